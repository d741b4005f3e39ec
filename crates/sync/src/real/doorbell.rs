//! A doorbell for `poll`, `epoll` and `select`: an eventfd.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::Real;
use crate::{Armed, DoorbellLike};

/// An eventfd that is written only while its reader is armed. See [`DoorbellLike`].
pub struct Doorbell {
    armed: Armed<Real>,
    event: OwnedFd,
}

impl Doorbell {
    /// A doorbell without a listener.
    ///
    /// # Errors
    /// When the process may open no more descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call has no memory arguments.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            let reason = io::Error::last_os_error();
            let text = format!("cannot make a doorbell (eventfd): {reason}; raise the descriptor limit (ulimit -n)");
            return Err(io::Error::new(reason.kind(), text));
        }
        // SAFETY: the kernel has just returned this descriptor; no other code has it.
        Ok(Self { armed: Armed::new(), event: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Wakes the reader if it is armed; returns whether that was needed. Call after publishing the work.
    #[inline]
    pub fn ring(&self) -> bool {
        let needed = self.armed.claim();
        if needed {
            self.sound();
        }
        needed
    }

    #[cold]
    fn sound(&self) {
        let one = 1u64;
        // SAFETY: eight bytes of our stack are read. It fails only when the count is full, and then the descriptor is
        // readable already.
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), size_of_val(&one)) };
    }

    /// Announces that the reader is about to sleep. Check for work once more after this, before sleeping.
    pub fn arm(&self) {
        self.armed.arm();
    }

    /// Announces that the reader is awake, and clears rings so far. Check for work after this.
    pub fn drain(&self) {
        self.armed.disarm();
        let mut count = 0u64;
        // SAFETY: eight bytes of our stack are written. It fails only when there was no ring.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), size_of_val(&count)) };
    }
}

impl DoorbellLike for Doorbell {
    fn new() -> io::Result<Self> {
        Self::new()
    }

    fn ring(&self) -> bool {
        self.ring()
    }

    fn arm(&self) {
        self.arm();
    }

    fn drain(&self) {
        self.drain();
    }

    fn sleep(&self, others: &[RawFd], limit: Option<Duration>) {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut entries: Vec<libc::pollfd> =
            [self.event.as_raw_fd()].iter().chain(others).map(|fd| entry(*fd)).collect();
        // Rounded up, so that a thread does not turn in place for the last millisecond.
        let millis = |limit: Duration| i32::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
        // SAFETY: the array has as many entries as stated and outlives the call. A descriptor that is not open is
        // reported in its entry; an error or a signal is a wake-up that came early.
        unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, limit.map_or(-1, millis)) };
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.event.as_raw_fd())
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl AsRawFd for Doorbell {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}
