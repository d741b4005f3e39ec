//! `poll` and `epoll`.

use std::task::Poll;

use libc::{c_int, epoll_event, nfds_t, pollfd};
use posix::{EpollInterest, Errno, PollFd};

use crate::abi::UserData;
use crate::calls::plug;
use crate::machine::Limit;
use crate::marshal::answer;

pub(crate) unsafe extern "C" fn poll(userdata: UserData, fds: *mut pollfd, count: nfds_t, wait: c_int) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let fds: &mut [pollfd] = match count {
        0 => &mut [],
        // SAFETY: there are `count` entries, as `poll(2)` requires, and they are not used elsewhere meanwhile.
        _ => unsafe { std::slice::from_raw_parts_mut(fds, count as usize) },
    };
    let asked: Vec<PollFd> =
        fds.iter().map(|entry| PollFd { fd: entry.fd, events: entry.events, revents: 0 }).collect();
    let result = plug.call(Limit::Milliseconds(wait), move |sockets, expired| {
        let mut looked = asked.clone();
        match sockets.try_poll(&mut looked) {
            0 if !expired => Poll::Pending,
            ready => Poll::Ready(Ok((ready, looked))),
        }
    });
    let result = result.map(|(ready, looked)| {
        for (entry, looked) in fds.iter_mut().zip(looked) {
            entry.revents = looked.revents;
        }
        ready as i64
    });
    answer(result) as c_int
}

pub(crate) unsafe extern "C" fn epoll_create(userdata: UserData, size: c_int) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let made = plug.now(move |sockets| if size <= 0 { Err(Errno::EINVAL) } else { sockets.epoll_create(0) });
    answer(made.map(i64::from)) as c_int
}

pub(crate) unsafe extern "C" fn epoll_ctl(
    userdata: UserData,
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let interest = match event.is_null() {
        true => EpollInterest { events: 0, data: 0 },
        false => {
            // SAFETY: not null, so it is an event, as `epoll_ctl(2)` requires.
            let event = unsafe { event.read_unaligned() };
            EpollInterest { events: event.events, data: event.u64 }
        }
    };
    let result = plug.now(move |sockets| sockets.epoll_ctl(epoll, operation, fd, interest));
    answer(result.map(|()| 0)) as c_int
}

pub(crate) unsafe extern "C" fn epoll_wait(
    userdata: UserData,
    epoll: c_int,
    events: *mut epoll_event,
    max: c_int,
    wait: c_int,
) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let max = usize::try_from(max).ok().filter(|max| *max > 0).ok_or(Errno::EINVAL);
    let reported = max.and_then(|max| {
        plug.call(Limit::Milliseconds(wait), move |sockets, expired| match sockets.try_epoll_wait(epoll, max) {
            Poll::Pending if expired => Poll::Ready(Ok(Vec::new())),
            other => other,
        })
    });
    let result = reported.map(|reported| {
        for (place, event) in reported.iter().enumerate() {
            let event = epoll_event { events: event.events, u64: event.data };
            // SAFETY: there is room for `max` events, as `epoll_wait(2)` requires, and no more are reported.
            unsafe { events.add(place).write_unaligned(event) };
        }
        reported.len() as i64
    });
    answer(result) as c_int
}
