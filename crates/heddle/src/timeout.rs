//! A time-out of a socket, which any thread may set.

use std::io;
use std::time::Duration;

use sync::{Atomic, Ordering, Platform, Real};

/// How long calls of one kind wait; `None`: for ever.
pub(crate) struct Timeout {
    /// In nanoseconds; 0: none.
    nanos: <Real as Platform>::AtomicU64,
}

impl Default for Timeout {
    fn default() -> Self {
        Timeout { nanos: Atomic::new(0) }
    }
}

impl Timeout {
    pub(crate) fn get(&self) -> Option<Duration> {
        let nanos = self.nanos.load(Ordering::Relaxed);
        (nanos != 0).then(|| Duration::from_nanos(nanos))
    }

    /// Sets a time-out.
    ///
    /// # Errors
    /// It is zero.
    pub(crate) fn set(&self, timeout: Option<Duration>) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a time-out cannot be zero: give None to wait for ever, or make the socket non-blocking",
            ));
        }
        self.set_or_none(timeout);
        Ok(())
    }

    /// Sets a time-out; zero is none.
    pub(crate) fn set_or_none(&self, timeout: Option<Duration>) {
        let nanos = timeout.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.nanos.store(nanos, Ordering::Relaxed);
    }
}
