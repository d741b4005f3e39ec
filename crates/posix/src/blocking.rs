//! Blocking calls: a call is attempted; while the attempt returns [`Poll::Pending`] the thread sleeps on a permit of
//! the platform and is woken through the wait queue of the description.
//!
//! The thread joins the queue before the attempt that precedes its sleep, so any event after that attempt gives the
//! permit. When the call times out (`SO_RCVTIMEO`, `SO_SNDTIMEO`) it is attempted once more as if the descriptor did
//! not block, which returns "the amount of data transferred", or `EAGAIN` (socket(7)).
//!
//! A caller with a virtual clock, such as the runner of packet scripts, does not use this file: it makes the attempts
//! itself (`try_receive` and similar).

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sync::{Parker, Platform};

use crate::description::Description;
use crate::wait_queue::{WaitQueue, WaitTicket, Waiter};
use crate::{CallProgress, Errno};

/// A thread's entries in some queues, removed when this is dropped.
pub(crate) struct WaitEntries<P: Platform> {
    parker: Arc<Parker<P>>,
    entries: Vec<(Arc<WaitQueue<P>>, WaitTicket)>,
}

impl<P: Platform> WaitEntries<P> {
    pub(crate) fn new() -> Self {
        WaitEntries { parker: Arc::new(Parker::new()), entries: Vec::new() }
    }

    /// From now on wakes the thread on any of `bits`.
    pub(crate) fn join(&mut self, queue: &Arc<WaitQueue<P>>, bits: u32) {
        let ticket = queue.join(bits, Waiter::Thread(self.parker.clone()));
        self.entries.push((queue.clone(), ticket));
    }

    /// Sleeps until woken, or until `limit` has passed. False: it has passed.
    pub(crate) fn sleep(&self, limit: &WaitLimit) -> bool {
        match limit.left::<P>() {
            Some(Duration::ZERO) => return false,
            left => self.parker.park(left),
        };
        true
    }
}

impl<P: Platform> Drop for WaitEntries<P> {
    fn drop(&mut self) {
        for (queue, ticket) in self.entries.drain(..) {
            queue.leave(ticket);
        }
    }
}

/// How long a call may wait.
pub(crate) struct WaitLimit {
    /// Nanoseconds of the platform's clock; `None`: for ever.
    end: Option<u64>,
}

impl WaitLimit {
    /// `None`: for ever.
    pub(crate) fn new<P: Platform>(time: Option<Duration>) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        WaitLimit { end: time.map(|time| P::now().saturating_add(nanos(time))) }
    }

    fn left<P: Platform>(&self) -> Option<Duration> {
        self.end.map(|end| Duration::from_nanos(end.saturating_sub(P::now())))
    }
}

/// Repeats `attempt` until it is complete, and sleeps in between until one of `bits` may have occurred on `file`. The
/// argument of `attempt`: the time is over, and it must not wait any more.
pub(crate) fn block<P: Platform, T>(
    file: &Description<P>,
    bits: u32,
    time: Option<Duration>,
    mut attempt: impl FnMut(bool) -> CallProgress<T>,
) -> Result<T, Errno> {
    if let Poll::Ready(done) = attempt(false) {
        return done;
    }
    let limit = WaitLimit::new::<P>(time);
    let mut entries = WaitEntries::new();
    entries.join(&file.waiters, bits);
    loop {
        if let Poll::Ready(done) = attempt(false) {
            return done;
        }
        if !entries.sleep(&limit) {
            return match attempt(true) {
                Poll::Ready(done) => done,
                Poll::Pending => Err(Errno::EAGAIN),
            };
        }
    }
}
