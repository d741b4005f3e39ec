//! `poll` and `epoll`: levels are asked of the sockets, edges are remembered from one look to the next.

use std::collections::BTreeMap;
use std::task::Poll;

use sync::Platform;

use crate::tcp_socket::Stage;
use crate::{Answer, Errno, Object, Sockets, now};

/// One entry of `poll`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollFd {
    /// The descriptor.
    pub fd: i32,
    /// What is asked for.
    pub events: i16,
    /// What is there.
    pub revents: i16,
}

/// What one descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Event bits, `EPOLLET` and `EPOLLONESHOT` among them.
    pub events: u32,
    /// The user's own value.
    pub data: u64,
}

/// One event of `epoll_wait`.
pub type Reported = Interest;

#[derive(Default)]
pub(crate) struct Epoll {
    watched: BTreeMap<i32, Watched>,
}

struct Watched {
    interest: Interest,
    /// The level at the last look.
    level: u32,
    /// Octets that could be read at the last look.
    readable: usize,
    /// What the socket had reported at the last look.
    told: u64,
    /// Something happened since it was last reported.
    edge: bool,
    /// `EPOLLONESHOT` has fired.
    spent: bool,
}

impl Epoll {
    pub(crate) fn forget(&mut self, fd: i32) {
        self.watched.remove(&fd);
    }
}

impl<P: Platform> Sockets<P> {
    /// Poll bits of `fd`, `EPOLLERR` and `EPOLLHUP` included.
    pub fn events(&self, fd: i32) -> u32 {
        match self.files.get(&fd).map(|file| &file.object) {
            None => libc::POLLNVAL as u32,
            Some(Object::Tcp(sock)) => match &sock.stage {
                Stage::Idle(_) => (libc::EPOLLOUT | libc::EPOLLHUP) as u32,
                Stage::Deferred(..) => libc::EPOLLOUT as u32,
                Stage::Listener(listener) => {
                    if listener.occupancy().1 > 0 {
                        libc::EPOLLIN as u32
                    } else {
                        0
                    }
                }
                Stage::Stream(stream) => {
                    let reported = if sock.reports.is_empty() { 0 } else { libc::EPOLLERR as u32 };
                    stream.events(&self.stack) | reported
                }
            },
            Some(Object::Udp(sock)) => sock.events(),
            Some(Object::Epoll(_)) => 0,
            Some(Object::File(_)) => (libc::EPOLLIN | libc::EPOLLOUT) as u32,
        }
    }

    fn readable(&self, fd: i32) -> usize {
        match self.files.get(&fd).map(|file| &file.object) {
            Some(Object::Tcp(sock)) => match &sock.stage {
                Stage::Stream(stream) => stream.readable(&self.stack),
                Stage::Listener(listener) => listener.occupancy().1,
                Stage::Idle(_) | Stage::Deferred(..) => 0,
            },
            _ => 0,
        }
    }

    fn told(&self, fd: i32) -> u64 {
        match self.files.get(&fd).map(|file| &file.object) {
            Some(Object::Tcp(sock)) => sock.reports.told,
            _ => 0,
        }
    }

    /// One look of `poll(2)`: fills `revents`; how many descriptors have any.
    pub fn poll(&self, fds: &mut [PollFd]) -> usize {
        for entry in fds.iter_mut() {
            let always = (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) as u32;
            let wanted = entry.events as u16 as u32 | always;
            entry.revents = (self.events(entry.fd) & wanted) as i16;
        }
        fds.iter().filter(|entry| entry.revents != 0).count()
    }

    /// `epoll_create(2)`.
    pub fn epoll_create(&mut self) -> i32 {
        self.add(Object::Epoll(Epoll::default()), false, libc::O_RDWR)
    }

    /// `epoll_ctl(2)`.
    ///
    /// # Errors
    /// `EBADF`, `EEXIST`, `ENOENT`, `EINVAL`.
    pub fn epoll_ctl(&mut self, epoll: i32, operation: i32, fd: i32, interest: Interest) -> Result<(), Errno> {
        if !self.is_open(fd) {
            return Err(Errno::EBADF);
        }
        let (level, readable, told) = (self.events(fd), self.readable(fd), self.told(fd));
        let watched = &mut self.epoll(epoll)?.watched;
        let entry = Watched { interest, level, readable, told, edge: true, spent: false };
        match operation {
            libc::EPOLL_CTL_ADD if watched.contains_key(&fd) => return Err(Errno::EEXIST),
            libc::EPOLL_CTL_ADD => drop(watched.insert(fd, entry)),
            libc::EPOLL_CTL_MOD if watched.contains_key(&fd) => drop(watched.insert(fd, entry)),
            libc::EPOLL_CTL_DEL if watched.remove(&fd).is_some() => {}
            libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL => return Err(Errno::ENOENT),
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    fn epoll(&mut self, fd: i32) -> Result<&mut Epoll, Errno> {
        match &mut self.file(fd)?.object {
            Object::Epoll(epoll) => Ok(epoll),
            _ => Err(Errno::EINVAL),
        }
    }

    /// One look of `epoll_wait(2)`: at most `max` events. Pending when there is none; the caller minds the time-out.
    pub fn epoll_wait(&mut self, epoll: i32, max: usize) -> Answer<Vec<Reported>> {
        self.observe();
        let epoll = match self.epoll(epoll) {
            Ok(epoll) => epoll,
            Err(error) => return now(Err(error)),
        };
        let mut events = Vec::new();
        for watched in epoll.watched.values_mut() {
            let wanted = watched.interest.events | (libc::EPOLLERR | libc::EPOLLHUP) as u32;
            let level = watched.level & wanted;
            let by_edge = watched.interest.events & libc::EPOLLET as u32 != 0;
            if level == 0 || watched.spent || by_edge && !watched.edge || events.len() == max {
                continue;
            }
            watched.edge = false;
            watched.spent = watched.interest.events & libc::EPOLLONESHOT as u32 != 0;
            events.push(Interest { events: level, data: watched.interest.data });
        }
        if events.is_empty() { Poll::Pending } else { now(Ok(events)) }
    }

    /// Remembers what has changed since the last look, for edges. Called whenever something may have happened.
    pub fn observe(&mut self) {
        for file in self.files.values_mut() {
            if let Object::Tcp(sock) = &mut file.object {
                sock.report(&self.stack);
            }
        }
        let epolls: Vec<i32> =
            self.files.iter().filter_map(|(fd, file)| matches!(file.object, Object::Epoll(_)).then_some(*fd)).collect();
        for epoll in epolls {
            let Ok(watched) = self.epoll(epoll).map(|epoll| epoll.watched.keys().copied().collect::<Vec<_>>()) else {
                continue;
            };
            for fd in watched {
                let (level, readable, told) = (self.events(fd), self.readable(fd), self.told(fd));
                if let Ok(epoll) = self.epoll(epoll)
                    && let Some(watched) = epoll.watched.get_mut(&fd)
                {
                    // New text is an edge although there was some already, and so is a new report.
                    watched.edge |= level & !watched.level != 0 || readable > watched.readable || told > watched.told;
                    (watched.level, watched.readable, watched.told) = (level, readable, told);
                }
            }
        }
    }
}
