//! `poll(2)`: the readiness of some descriptors, now or when the first of them is ready.

use std::time::Duration;

use sync::Platform;

use crate::Sockets;
use crate::blocking::{WaitEntries, WaitLimit};
use crate::wait_queue::bits;

/// One entry of `poll`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollFd {
    /// The descriptor; a negative one is ignored.
    pub fd: i32,
    /// The requested events.
    pub events: i16,
    /// The returned events.
    pub revents: i16,
}

impl PollFd {
    fn wanted(self) -> u32 {
        u32::from(self.events as u16) | bits::ALWAYS
    }
}

impl<P: Platform> Sockets<P> {
    /// The readiness of `fd`, in bits of `poll` and `epoll`, including `POLLERR`, `POLLHUP` and `POLLNVAL`. If it is
    /// not ready for one of `wanted`, a caller in `poll` or `epoll_wait` is notified when it is.
    fn events(&self, fd: i32, wanted: u32) -> u32 {
        match self.file(fd) {
            Ok(file) => file.events(wanted) & wanted,
            Err(_) => libc::POLLNVAL as u32,
        }
    }

    /// One attempt of `poll(2)`: fills `revents`; returns how many descriptors have any. "The field fd contains a file
    /// descriptor for an open file. If this field is negative, then the corresponding events field is ignored and the
    /// revents field returns zero."
    pub fn try_poll(&self, fds: &mut [PollFd]) -> usize {
        for entry in fds.iter_mut() {
            entry.revents = if entry.fd < 0 { 0 } else { self.events(entry.fd, entry.wanted()) as i16 };
        }
        fds.iter().filter(|entry| entry.revents != 0).count()
    }

    /// `poll(2)`: waits until a descriptor is ready, for at most `timeout` (`None`: for ever); returns how many are. If
    /// another thread closes a descriptor, no caller is woken; it is `POLLNVAL` when the call next checks.
    pub fn poll(&self, fds: &mut [PollFd], timeout: Option<Duration>) -> usize {
        let ready = self.try_poll(fds);
        if ready > 0 {
            return ready;
        }
        let limit = WaitLimit::new::<P>(timeout);
        let mut entries = WaitEntries::<P>::new();
        // The call holds its descriptions, as Linux does.
        let files: Vec<_> = fds.iter().filter_map(|entry| Some((self.file(entry.fd).ok()?, entry.wanted()))).collect();
        for (file, wanted) in &files {
            entries.join(&file.waiters, *wanted);
        }
        loop {
            let ready = self.try_poll(fds);
            if ready > 0 || !entries.sleep(&limit) {
                return ready;
            }
        }
    }
}
