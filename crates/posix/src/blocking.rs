//! How a call blocks: it is attempted; while that says [`Poll::Pending`] the thread sleeps on a permit of the
//! platform's and is woken through the queue of the description that it waits for.
//!
//! The thread joins the queue before the attempt that precedes its sleep, so whatever happens after that attempt has
//! given the permit. When the time of the call is over (`SO_RCVTIMEO`, `SO_SNDTIMEO`) it is attempted once more as if
//! the descriptor did not block, which returns "the amount of data transferred", or `EAGAIN` (socket(7)).
//!
//! A caller that moves a clock of its own, as the runner of packet scripts does, does not come here: it makes the
//! attempts itself (`try_receive` and the like).

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sync::{Parker, Platform};

use crate::description::Description;
use crate::wait_queue::{Ticket, WaitQueue, Waiter};
use crate::{Answer, Errno};

/// A thread's place in some queues; it leaves them when this is dropped.
pub(crate) struct Seats<P: Platform> {
    parker: Arc<Parker<P>>,
    seats: Vec<(Arc<WaitQueue<P>>, Ticket)>,
}

impl<P: Platform> Seats<P> {
    pub(crate) fn new() -> Self {
        Seats { parker: Arc::new(Parker::new()), seats: Vec::new() }
    }

    /// Has the thread woken by any of `bits` from now on.
    pub(crate) fn join(&mut self, queue: &Arc<WaitQueue<P>>, bits: u32) {
        let ticket = queue.join(bits, Waiter::Thread(self.parker.clone()));
        self.seats.push((queue.clone(), ticket));
    }

    /// Sleeps until woken, or until `limit` has passed. False: it has passed.
    pub(crate) fn sleep(&self, limit: &Limit) -> bool {
        match limit.left::<P>() {
            Some(Duration::ZERO) => return false,
            left => self.parker.park(left),
        };
        true
    }
}

impl<P: Platform> Drop for Seats<P> {
    fn drop(&mut self) {
        for (queue, ticket) in self.seats.drain(..) {
            queue.leave(ticket);
        }
    }
}

/// How long a call may wait.
pub(crate) struct Limit {
    /// Nanoseconds of the platform's clock; `None`: for ever.
    end: Option<u64>,
}

impl Limit {
    /// `None`: for ever.
    pub(crate) fn new<P: Platform>(time: Option<Duration>) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Limit { end: time.map(|time| P::now().saturating_add(nanos(time))) }
    }

    fn left<P: Platform>(&self) -> Option<Duration> {
        self.end.map(|end| Duration::from_nanos(end.saturating_sub(P::now())))
    }
}

/// Makes `attempt` until it is over, and sleeps in between until one of `bits` may have happened to `file`. The
/// argument of `attempt` says that the time is over and that it must not wait any more.
pub(crate) fn block<P: Platform, T>(
    file: &Description<P>,
    bits: u32,
    time: Option<Duration>,
    mut attempt: impl FnMut(bool) -> Answer<T>,
) -> Result<T, Errno> {
    if let Poll::Ready(done) = attempt(false) {
        return done;
    }
    let limit = Limit::new::<P>(time);
    let mut seats = Seats::new();
    seats.join(&file.waiters, bits);
    loop {
        if let Poll::Ready(done) = attempt(false) {
            return done;
        }
        if !seats.sleep(&limit) {
            return match attempt(true) {
                Poll::Ready(done) => done,
                Poll::Pending => Err(Errno::EAGAIN),
            };
        }
    }
}
