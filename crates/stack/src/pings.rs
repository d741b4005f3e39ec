//! Echo requests of this stack that wait for their replies.
//!
//! Off the data path. A `ping` waits here; the receive thread that sees the reply wakes it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use observe::Time;
use sync::{Atomic, Condvar, Lock, LockClass, LockKind, Ordering, Platform};

/// Identifier, sequence number.
type Name = (u16, u16);

/// Requests under way. Any thread.
pub(crate) struct Pings<P: Platform> {
    replies: Lock<HashMap<Name, Option<EchoReply>>, P>,
    arrived: Condvar<P>,
    next: P::AtomicU32,
}

/// A reply to an echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoReply {
    /// The address that answered.
    pub from: IpAddr,
    /// Bytes of data in the reply.
    pub len: usize,
    /// Its time to live or hop limit as received.
    pub ttl: u8,
    /// When it came.
    pub at: Time,
}

impl<P: Platform> Default for Pings<P> {
    fn default() -> Self {
        Pings {
            replies: Lock::new(LockKind::Blocking, LockClass::Handoff, HashMap::new()),
            arrived: Condvar::new(),
            next: P::AtomicU32::new(1),
        }
    }
}

impl<P: Platform> Pings<P> {
    /// An identifier that is unique among this stack's requests.
    pub(crate) fn identifier(&self) -> u16 {
        self.next.fetch_add(1, Ordering::Relaxed) as u16
    }

    /// A request is about to be sent.
    pub(crate) fn expect(&self, ident: u16, seq: u16) {
        self.replies.lock().insert((ident, seq), None);
    }

    /// A reply arrives. It is ignored if no caller waits for it.
    pub(crate) fn arrived(&self, datagram: &ip::Datagram, ident: u16, seq: u16, now: Time) {
        let reply = EchoReply { from: datagram.src, len: datagram.buf.len(), ttl: datagram.ttl, at: now };
        let mut replies = self.replies.lock();
        if let Some(slot) = replies.get_mut(&(ident, seq)) {
            *slot = Some(reply);
            drop(replies);
            self.arrived.notify_all();
        }
    }

    /// Waits for the reply for at most `timeout` of the platform's time. The request is removed in both cases.
    pub(crate) fn wait(&self, ident: u16, seq: u16, timeout: Duration) -> Option<EchoReply> {
        let start = P::now();
        let mut replies = self.replies.lock();
        loop {
            if let Some(Some(reply)) = replies.get(&(ident, seq)).copied() {
                replies.remove(&(ident, seq));
                return Some(reply);
            }
            let spent = Duration::from_nanos(P::now().saturating_sub(start));
            let Some(left) = timeout.checked_sub(spent).filter(|left| !left.is_zero()) else {
                replies.remove(&(ident, seq));
                return None;
            };
            replies = self.arrived.wait_timeout(replies, left);
        }
    }
}
