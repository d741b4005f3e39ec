//! The machine's own kernel, through rustix.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::socket::sockopt::Timestamping;
use nix::sys::socket::{self, MsgFlags, TimestampingFlag, setsockopt};
use posix::{EpollInterest, Errno, PollFd, Reported};
use rustix::event::{self, PollFlags, Timespec, epoll};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt};
use rustix::{fs, io, pipe};
use socket2::SockRef;

use crate::system::{Result, System, to_read, to_write};

/// Never closed by being dropped: a thread may be in a call on it when another closes it.
type File = Arc<ManuallyDrop<OwnedFd>>;

/// Descriptors that the tests opened.
#[derive(Default)]
pub(crate) struct Kernel {
    files: Mutex<BTreeMap<i32, File>>,
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let files = std::mem::take(&mut *self.files.lock().unwrap());
        files.into_keys().for_each(|fd| _ = nix::unistd::close(fd));
    }
}

fn errno(error: io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

fn nix_errno(error: nix::errno::Errno) -> Errno {
    Errno(error as i32)
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

impl Kernel {
    fn add(&self, made: io::Result<OwnedFd>) -> Result<i32> {
        let file = made.map_err(errno)?;
        let fd = file.as_raw_fd();
        self.files.lock().unwrap().insert(fd, Arc::new(ManuallyDrop::new(file)));
        Ok(fd)
    }

    fn file(&self, fd: i32) -> Result<File> {
        self.files.lock().unwrap().get(&fd).cloned().ok_or(Errno::EBADF)
    }

    fn with<T>(&self, fd: i32, call: impl FnOnce(&OwnedFd) -> io::Result<T>) -> Result<T> {
        call(&**self.file(fd)?).map_err(errno)
    }
}

impl System for Kernel {
    fn socket(&self, kind: i32) -> Result<i32> {
        let flags = SocketFlags::from_bits_retain((kind & libc::SOCK_NONBLOCK) as u32);
        let kind = SocketType::from_raw((kind & !libc::SOCK_NONBLOCK) as u32);
        self.add(net::socket_with(AddressFamily::INET, kind, flags, None))
    }

    fn socket_v6(&self, kind: i32) -> Result<i32> {
        self.add(net::socket(AddressFamily::INET6, SocketType::from_raw(kind as u32), None))
    }

    fn bind(&self, fd: i32, address: SocketAddr) -> Result<()> {
        self.with(fd, |file| net::bind(file, &address))
    }

    fn listen(&self, fd: i32, backlog: i32) -> Result<()> {
        self.with(fd, |file| net::listen(file, backlog))
    }

    fn accept(&self, fd: i32, flags: i32) -> Result<i32> {
        let child = self.with(fd, |file| net::accept_with(file, SocketFlags::from_bits_retain(flags as u32)));
        self.add(Ok(child?))
    }

    fn connect(&self, fd: i32, to: SocketAddr) -> Result<()> {
        self.with(fd, |file| net::connect(file, &to))
    }

    fn send(&self, fd: i32, data: &[u8], flags: i32) -> Result<usize> {
        let flags = SendFlags::from_bits_retain((flags | libc::MSG_NOSIGNAL) as u32);
        self.with(fd, |file| net::send(file, data, flags))
    }

    fn sendto(&self, fd: i32, data: &[u8], to: SocketAddr) -> Result<usize> {
        self.with(fd, |file| net::sendto(file, data, SendFlags::NOSIGNAL, &to))
    }

    fn recv(&self, fd: i32, max: usize, flags: i32) -> Result<(usize, Vec<u8>)> {
        let mut buffer = vec![0; max];
        let flags = RecvFlags::from_bits_retain(flags as u32);
        let (stored, count) = self.with(fd, |file| net::recv(file, &mut buffer[..], flags))?;
        buffer.truncate(stored);
        Ok((count, buffer))
    }

    fn shutdown(&self, fd: i32, how: i32) -> Result<()> {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            _ => Shutdown::Both,
        };
        self.with(fd, |file| net::shutdown(file, how))
    }

    fn close(&self, fd: i32) -> Result<()> {
        let file = self.files.lock().unwrap().remove(&fd).ok_or(Errno::EBADF)?;
        nix::unistd::close(file.as_raw_fd()).map_err(nix_errno)
    }

    fn dup(&self, fd: i32) -> Result<i32> {
        let copy = self.with(fd, |file| io::dup(file))?;
        self.add(Ok(copy))
    }

    fn set_nonblocking(&self, fd: i32, on: bool) -> Result<()> {
        self.with(fd, |file| io::ioctl_fionbio(file, on))
    }

    fn is_nonblocking(&self, fd: i32) -> Result<bool> {
        self.with(fd, |file| Ok(fs::fcntl_getfl(file)?.contains(fs::OFlags::NONBLOCK)))
    }

    fn error(&self, fd: i32) -> Result<i32> {
        self.with(fd, |file| Ok(sockopt::socket_error(file)?.err().map_or(0, |error| error.raw_os_error())))
    }

    fn ttl(&self, fd: i32) -> Result<u32> {
        self.with(fd, |file| sockopt::ip_ttl(file))
    }

    fn set_ttl(&self, fd: i32, ttl: u32) -> Result<()> {
        self.with(fd, |file| sockopt::set_ip_ttl(file, ttl))
    }

    fn group_options(&self, fd: i32) -> Result<(u32, bool)> {
        self.with(fd, |file| Ok((sockopt::ip_multicast_ttl(file)?, sockopt::ip_multicast_loop(file)?)))
    }

    fn set_group_ttl(&self, fd: i32, ttl: u32) -> Result<()> {
        self.with(fd, |file| sockopt::set_ip_multicast_ttl(file, ttl))
    }

    fn set_group_loop(&self, fd: i32, on: bool) -> Result<()> {
        self.with(fd, |file| sockopt::set_ip_multicast_loop(file, on))
    }

    fn join(&self, fd: i32, group: IpAddr, address: Ipv4Addr, index: u32) -> Result<()> {
        self.with(fd, |file| match group {
            IpAddr::V4(group) => sockopt::set_ip_add_membership_with_ifindex(file, &group, &address, index),
            IpAddr::V6(group) => sockopt::set_ipv6_add_membership(file, &group, index),
        })
    }

    fn leave(&self, fd: i32, group: IpAddr, address: Ipv4Addr, index: u32) -> Result<()> {
        self.with(fd, |file| match group {
            IpAddr::V4(group) => sockopt::set_ip_drop_membership_with_ifindex(file, &group, &address, index),
            IpAddr::V6(group) => sockopt::set_ipv6_drop_membership(file, &group, index),
        })
    }

    fn group_interface(&self, fd: i32) -> Result<Ipv4Addr> {
        self.with(fd, |file| sockopt::ip_multicast_if(file))
    }

    fn set_group_interface(&self, fd: i32, address: Ipv4Addr, index: u32) -> Result<()> {
        self.with(fd, |file| match index {
            0 => sockopt::set_ip_multicast_if(file, &address),
            index => sockopt::set_ip_multicast_if_with_ifindex(file, &Ipv4Addr::UNSPECIFIED, &address, index),
        })
    }

    fn group_options_v6(&self, fd: i32) -> Result<(u32, bool, u32)> {
        self.with(fd, |file| {
            let loops = sockopt::ipv6_multicast_loop(file)?;
            Ok((sockopt::ipv6_multicast_hops(file)?, loops, sockopt::ipv6_multicast_if(file)?))
        })
    }

    fn set_group_hops(&self, fd: i32, hops: u32) -> Result<()> {
        self.with(fd, |file| sockopt::set_ipv6_multicast_hops(file, hops))
    }

    fn set_group_loop_v6(&self, fd: i32, on: bool) -> Result<()> {
        self.with(fd, |file| sockopt::set_ipv6_multicast_loop(file, on))
    }

    fn set_group_interface_v6(&self, fd: i32, index: u32) -> Result<()> {
        self.with(fd, |file| sockopt::set_ipv6_multicast_if(file, index))
    }

    fn set_all_groups(&self, fd: i32, v6: bool, on: bool) -> Result<()> {
        let file = self.file(fd)?;
        let socket = SockRef::from(&**file);
        let set = if v6 { socket.set_multicast_all_v6(on) } else { socket.set_multicast_all_v4(on) };
        set.map_err(|error| Errno(error.raw_os_error().unwrap_or(0)))
    }

    fn all_groups(&self, fd: i32, v6: bool) -> Result<bool> {
        let file = self.file(fd)?;
        let socket = SockRef::from(&**file);
        let value = if v6 { socket.multicast_all_v6() } else { socket.multicast_all_v4() };
        value.map_err(|error| Errno(error.raw_os_error().unwrap_or(0)))
    }

    fn set_receive_timeout(&self, fd: i32, time: Duration) -> Result<()> {
        self.with(fd, |file| sockopt::set_socket_timeout(file, sockopt::Timeout::Recv, Some(time)))
    }

    fn set_send_timeout(&self, fd: i32, time: Duration) -> Result<()> {
        self.with(fd, |file| sockopt::set_socket_timeout(file, sockopt::Timeout::Send, Some(time)))
    }

    fn set_linger(&self, fd: i32, time: Duration) -> Result<()> {
        self.with(fd, |file| sockopt::set_socket_linger(file, Some(time)))
    }

    fn set_timestamping(&self, fd: i32, flags: u32) -> Result<()> {
        let (file, flags) = (self.file(fd)?, TimestampingFlag::from_bits_retain(flags));
        setsockopt(&**file, Timestamping, &flags).map_err(nix_errno)
    }

    fn local(&self, fd: i32) -> Result<SocketAddr> {
        self.with(fd, |file| net::getsockname(file)?.try_into())
    }

    fn peer(&self, fd: i32) -> Result<SocketAddr> {
        self.with(fd, |file| net::getpeername(file)?.ok_or(io::Errno::NOTCONN)?.try_into())
    }

    fn poll(&self, fds: &mut [PollFd], timeout: Duration) -> usize {
        let files: Vec<_> = fds.iter().map(|entry| self.file(entry.fd).expect("an open descriptor")).collect();
        let mut asked: Vec<_> = files
            .iter()
            .zip(&*fds)
            .map(|(file, entry)| event::PollFd::new(&***file, PollFlags::from_bits_retain(entry.events as _)))
            .collect();
        let ready = event::poll(&mut asked, Some(&timespec(timeout))).expect("poll");
        for (entry, asked) in fds.iter_mut().zip(&asked) {
            entry.revents = asked.revents().bits() as _;
        }
        ready
    }

    fn epoll_create(&self) -> Result<i32> {
        self.add(epoll::create(epoll::CreateFlags::CLOEXEC))
    }

    fn epoll_ctl(&self, epoll: i32, operation: i32, fd: i32, interest: EpollInterest) -> Result<()> {
        let (epoll, file) = (self.file(epoll)?, self.file(fd)?);
        let (data, flags) =
            (epoll::EventData::new_u64(interest.data), epoll::EventFlags::from_bits_retain(interest.events));
        match operation {
            libc::EPOLL_CTL_ADD => epoll::add(&**epoll, &**file, data, flags),
            libc::EPOLL_CTL_MOD => epoll::modify(&**epoll, &**file, data, flags),
            _ => epoll::delete(&**epoll, &**file),
        }
        .map_err(errno)
    }

    fn epoll_wait(&self, epoll: i32, max: usize, timeout: Duration) -> Result<Vec<Reported>> {
        let mut events =
            vec![epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; max];
        let count = self.with(epoll, |file| epoll::wait(file, &mut events[..], Some(&timespec(timeout))))?;
        let report = |event: &epoll::Event| {
            let epoll::Event { flags, data } = *event;
            EpollInterest { events: flags.bits(), data: data.u64() }
        };
        Ok(events[..count].iter().map(report).collect())
    }

    fn pipe(&self) -> Result<(i32, i32)> {
        let (reader, writer) = pipe::pipe().map_err(errno)?;
        Ok((self.add(Ok(reader))?, self.add(Ok(writer))?))
    }

    fn write(&self, fd: i32, data: &[u8]) -> Result<usize> {
        self.with(fd, |file| io::write(file, data))
    }

    fn read(&self, fd: i32, max: usize) -> Result<Vec<u8>> {
        let mut buffer = vec![0; max];
        let count = self.with(fd, |file| io::read(file, &mut buffer[..]))?;
        buffer.truncate(count);
        Ok(buffer)
    }

    // rustix drops buffers beyond the maximum, so it is not used here.
    fn readv(&self, fd: i32, buffers: &mut [Vec<u8>]) -> Result<usize> {
        nix::sys::uio::readv(&**self.file(fd)?, &mut to_read(buffers)).map_err(nix_errno)
    }

    fn writev(&self, fd: i32, buffers: &[&[u8]]) -> Result<usize> {
        nix::sys::uio::writev(&**self.file(fd)?, &to_write(buffers)).map_err(nix_errno)
    }

    fn recvmsg(&self, fd: i32, buffers: &mut [Vec<u8>], flags: i32) -> Result<usize> {
        let (file, flags) = (self.file(fd)?, MsgFlags::from_bits_retain(flags));
        let mut buffers = to_read(buffers);
        let received = socket::recvmsg::<()>(file.as_raw_fd(), &mut buffers, None, flags);
        received.map(|message| message.bytes).map_err(nix_errno)
    }

    fn sendmsg(&self, fd: i32, buffers: &[&[u8]], flags: i32) -> Result<usize> {
        let (file, flags) = (self.file(fd)?, MsgFlags::from_bits_retain(flags | libc::MSG_NOSIGNAL));
        socket::sendmsg::<()>(file.as_raw_fd(), &to_write(buffers), &[], flags, None).map_err(nix_errno)
    }

    fn dup2(&self, fd: i32, new: i32) -> Result<()> {
        let file = self.file(fd)?;
        let before = self.files.lock().unwrap().remove(&new).ok_or(Errno::EBADF)?;
        let mut before = ManuallyDrop::into_inner(Arc::into_inner(before).expect("no call is under way on it"));
        io::dup2(&**file, &mut before).map_err(errno)?;
        self.add(Ok(before)).map(drop)
    }
}
