//! Whether a socket has something for its user, and who is to be told.
//!
//! The truth is in the PCB. What is kept here are *level bits* that any thread may read without entering the cell:
//! a bit is set after the guard of the event that raised it has dropped, and cleared inside the guard of the call
//! that found nothing. So a bit may be set when there is nothing left (the user finds `WouldBlock`), but never clear
//! while there is something: no wake-up is lost.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sync::{Atomic, Lock, LockClass, LockKind, Ordering, Platform};
pub use tcp::Readiness;

use super::poll::PollSet;
use crate::containment::attempt;

/// Somebody sleeps on the word.
const WAITING: u32 = 1 << 31;
/// The socket is registered with a poll set, or watched.
const POLLED: u32 = 1 << 30;
/// The socket stands in its poll set's queue, or whoever set this is about to put it there.
const QUEUED: u32 = 1 << 29;
/// The registration that counts is not the first but the one behind the lock. Never cleared.
const MOVED: u32 = 1 << 28;
const BITS: u32 = 0xffff;

/// A socket that has a readiness word: a connection, a listener, a datagram socket.
pub trait Pollable<P: Platform>: Send + Sync + 'static {
    /// Its readiness word.
    fn ready_state(&self) -> &ReadyState<P>;
}

/// The readiness word of one socket, with the ways to wait for it.
///
/// Nearly every socket is registered with one poll set for life. That first registration is written once, before
/// `POLLED` is set, and read without a lock by every edge. Whatever comes after it (another set, a watch) stands
/// behind a lock that is made only then, and `MOVED` says so.
pub struct ReadyState<P: Platform> {
    word: P::AtomicU32,
    first: OnceLock<Place<P>>,
    later: OnceLock<Box<Lock<Option<Registration<P>>, P>>>,
}

/// A poll set, and the socket's name there.
struct Place<P: Platform> {
    set: Arc<PollSet<P>>,
    token: usize,
}

enum Registration<P: Platform> {
    Poll(Place<P>),
    Watch(Arc<dyn Watch>),
}

/// Who is to hear of an edge.
pub(crate) enum Hearer<'a, P: Platform> {
    /// Nobody, or it is in the queue already.
    Nobody,
    /// This set: the caller must push the socket.
    Set(&'a Arc<PollSet<P>>),
    /// The same, of a registration that was replaced at least once.
    Moved(Arc<PollSet<P>>),
}

/// Told of every edge of one socket: how another event loop is attached. Called with no lock held.
pub trait Watch: Send + Sync + 'static {
    /// `level` are the bits that are set now.
    fn ready(&self, level: Readiness);
}

/// Tells a watch. Its panic is its owner's affair and has been reported by the panic hook; it must not keep the news of
/// other sockets, which stand behind this one, from whom they are for.
fn tell<P: Platform>(watch: &dyn Watch, level: Readiness) {
    match attempt(|| watch.ready(level)) {
        Err(panic) if P::EXPLORED => std::panic::resume_unwind(panic),
        _ => {}
    }
}

impl<P: Platform> Default for ReadyState<P> {
    fn default() -> Self {
        ReadyState { word: P::AtomicU32::new(0), first: OnceLock::new(), later: OnceLock::new() }
    }
}

impl<P: Platform> ReadyState<P> {
    /// The bits that are set now.
    #[inline]
    pub fn get(&self) -> Readiness {
        level(self.word.load(Ordering::Acquire))
    }

    /// Sets `bits` of the socket `owner`, wakes who sleeps and queues the socket with its poll set. Phase *after*: no
    /// guard is held.
    pub fn raise<S: Pollable<P>>(&self, owner: &Arc<S>, bits: Readiness) {
        match self.rise(bits) {
            Hearer::Nobody => {}
            Hearer::Set(set) => set.push(owner.clone()),
            Hearer::Moved(set) => set.push(owner.clone()),
        }
    }

    /// As [`ReadyState::raise`], but leaves it to the caller to push the socket into its poll set: several at a time,
    /// and without another reference. Whoever is answered with a set owes it the push.
    #[inline]
    pub(crate) fn rise(&self, bits: Readiness) -> Hearer<'_, P> {
        let mut seen = self.word.load(Ordering::Relaxed);
        // The bits and the place in the queue in one step: there is no edge between them that nobody queues.
        loop {
            let queued = if seen & POLLED != 0 { QUEUED } else { 0 };
            let risen = seen | u32::from(bits.0) | queued;
            match self.word.compare_exchange_weak(seen, risen, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => seen = other,
            }
        }
        if seen & WAITING != 0 {
            self.wake();
        }
        // A poll set is edge-triggered: an edge is news even when the bit was already set.
        if seen & POLLED == 0 || seen & QUEUED != 0 { Hearer::Nobody } else { self.hearer(seen) }
    }

    #[cold]
    fn wake(&self) {
        self.word.fetch_and(!WAITING, Ordering::AcqRel);
        P::futex_wake(&self.word, u32::MAX);
    }

    /// Whom to tell of an edge that has just set [`QUEUED`]. A watch is told here.
    #[inline]
    fn hearer(&self, word: u32) -> Hearer<'_, P> {
        match self.first.get() {
            Some(place) if word & MOVED == 0 => Hearer::Set(&place.set),
            _ => self.later_hearer(),
        }
    }

    #[cold]
    fn later_hearer(&self) -> Hearer<'_, P> {
        let watch = match &*self.later().lock() {
            Some(Registration::Poll(place)) => return Hearer::Moved(place.set.clone()),
            Some(Registration::Watch(watch)) => Some(watch.clone()),
            None => None,
        };
        // Cleared before the bits are read: an edge that comes now tells of itself.
        let word = self.word.fetch_and(!QUEUED, Ordering::AcqRel);
        if let Some(watch) = watch {
            tell::<P>(&*watch, level(word));
        }
        Hearer::Nobody
    }

    fn later(&self) -> &Lock<Option<Registration<P>>, P> {
        self.later.get_or_init(|| Box::new(Lock::new(LockKind::Blocking, LockClass::SocketBuffer, None)))
    }

    /// Clears `bits`; phase *inside*: the caller holds the cell whose PCB has nothing more to offer.
    #[inline]
    pub fn clear(&self, bits: Readiness) {
        self.word.fetch_and(!u32::from(bits.0), Ordering::AcqRel);
    }

    /// Sets `bits` again after a call that cleared them found something. No edge: only who sleeps is told.
    pub fn restore(&self, bits: Readiness) {
        let old = self.word.fetch_or(u32::from(bits.0), Ordering::AcqRel);
        if old & WAITING != 0 {
            self.wake();
        }
    }

    /// Sleeps until one of `wanted` is set or `timeout` has passed; tells which are. `None` waits for ever.
    pub fn wait(&self, wanted: Readiness, timeout: Option<Duration>) -> Readiness {
        let start = timeout.map(|_| P::now());
        loop {
            let word = self.word.load(Ordering::Acquire);
            if word & u32::from(wanted.0) != 0 {
                return level(word);
            }
            let left = match (timeout, start) {
                (Some(timeout), Some(start)) => {
                    let spent = Duration::from_nanos(P::now().saturating_sub(start));
                    match timeout.checked_sub(spent) {
                        Some(left) if !left.is_zero() => Some(left),
                        _ => return level(word),
                    }
                }
                _ => None,
            };
            let advertised = word | WAITING;
            if word & WAITING == 0
                && self.word.compare_exchange(word, advertised, Ordering::AcqRel, Ordering::Acquire).is_err()
            {
                continue;
            }
            P::futex_wait(&self.word, advertised, left);
        }
    }

    /// Makes `set` hear of this socket under `token`; an earlier registration is replaced. What is ready already is
    /// reported at once.
    pub fn register<S: Pollable<P>>(&self, owner: &Arc<S>, set: &Arc<PollSet<P>>, token: usize) {
        let place = Place { set: set.clone(), token };
        let refused =
            if self.word.load(Ordering::Acquire) & MOVED == 0 { self.first.set(place).err() } else { Some(place) };
        let Some(place) = refused else {
            let old = self.word.fetch_or(POLLED, Ordering::AcqRel);
            if old & BITS != 0 && self.word.fetch_or(QUEUED, Ordering::AcqRel) & QUEUED == 0 {
                set.push(owner.clone());
            }
            return;
        };
        *self.later().lock() = Some(Registration::Poll(place));
        let old = self.word.fetch_or(POLLED | MOVED, Ordering::AcqRel);
        // The queue that it stands in may be the old set's, who will pass over it: it is put into the new one's, too.
        if old & (BITS | QUEUED) != 0 {
            self.word.fetch_or(QUEUED, Ordering::AcqRel);
            set.push(owner.clone());
        }
    }

    /// Makes `watch` hear of every edge; an earlier registration is replaced. Told at once of what is ready already.
    pub fn watch(&self, watch: Arc<dyn Watch>) {
        *self.later().lock() = Some(Registration::Watch(watch.clone()));
        self.word.fetch_or(POLLED | MOVED, Ordering::AcqRel);
        // A place in the queue of an earlier set would keep edges from being told.
        let old = self.word.fetch_and(!QUEUED, Ordering::AcqRel);
        if old & BITS != 0 {
            tell::<P>(&*watch, level(old));
        }
    }

    /// No poll set hears of this socket any more; events already queued are skipped.
    pub fn deregister(&self) {
        let old = self.word.fetch_and(!POLLED, Ordering::AcqRel);
        if old & MOVED != 0 {
            // Dropped with the lock released: a watch may own anything.
            drop(self.later().lock().take());
        }
    }

    /// Called by the poll set that takes the socket out of its queue: the token and what is ready. `None` when the
    /// socket is registered with `set` no more.
    #[inline]
    pub(super) fn dequeue(&self, set: &PollSet<P>) -> Option<(usize, Readiness)> {
        let token = match self.first.get() {
            Some(place) if self.word.load(Ordering::Acquire) & MOVED == 0 => place.token,
            _ => self.later_token(set)?,
        };
        // Cleared before the bits are read: an edge that comes now queues the socket again.
        let word = self.word.fetch_and(!QUEUED, Ordering::AcqRel);
        (word & POLLED != 0).then(|| (token, level(word)))
    }

    #[cold]
    fn later_token(&self, set: &PollSet<P>) -> Option<usize> {
        match &*self.later().lock() {
            Some(Registration::Poll(place)) if std::ptr::eq(&*place.set, set) => Some(place.token),
            _ => None,
        }
    }
}

fn level(word: u32) -> Readiness {
    Readiness((word & BITS) as u16)
}

#[cfg(test)]
mod tests {
    use super::super::{PollEvent, TcpSocket};
    use super::*;
    use crate::flow::Flow;
    use std::sync::Mutex;
    use sync::Real;

    const READABLE: Readiness = Readiness::READABLE;

    fn socket() -> Arc<TcpSocket<Real>> {
        let address = std::net::IpAddr::from([10, 0, 0, 1]);
        let tuple = wire::FourTuple { local_addr: address, remote_addr: address, local_port: 1, remote_port: 2 };
        TcpSocket::new(Flow { tuple, hash: 0 })
    }

    fn set() -> Arc<PollSet<Real>> {
        PollSet::new(false).expect("no descriptor is asked for")
    }

    fn events(set: &PollSet<Real>) -> Vec<(usize, Readiness)> {
        let mut events = Vec::new();
        set.try_wait(&mut events, 100);
        events.iter().map(|event: &PollEvent| (event.token, event.ready)).collect()
    }

    #[derive(Default)]
    struct Heard(Mutex<Vec<Readiness>>);

    impl Watch for Heard {
        fn ready(&self, level: Readiness) {
            self.0.lock().unwrap().push(level);
        }
    }

    #[test]
    fn a_socket_that_moves_to_another_set_is_heard_of_there_and_only_there() {
        let (socket, old, new) = (socket(), set(), set());
        socket.ready.register(&socket, &old, 1);
        socket.ready.raise(&socket, READABLE);
        // It stands in the old set's queue, which nobody has looked at.
        socket.ready.register(&socket, &new, 2);
        assert_eq!(events(&new), [(2, READABLE)]);
        assert_eq!(events(&old), []);
        socket.ready.raise(&socket, READABLE);
        assert_eq!((events(&old), events(&new)), (vec![], vec![(2, READABLE)]));
    }

    /// The level was used up before the move: the place in the old queue must not swallow the next edge.
    #[test]
    fn an_edge_after_a_move_is_not_lost_to_the_old_queue() {
        let (socket, old, new) = (socket(), set(), set());
        socket.ready.register(&socket, &old, 1);
        socket.ready.raise(&socket, READABLE);
        socket.ready.clear(READABLE);
        socket.ready.register(&socket, &new, 2);
        socket.ready.raise(&socket, READABLE);
        assert_eq!(events(&new), [(2, READABLE)]);
        assert_eq!(events(&old), []);
    }

    #[test]
    fn a_watch_that_replaces_a_set_hears_every_edge() {
        let (socket, set, heard) = (socket(), set(), Arc::new(Heard::default()));
        socket.ready.register(&socket, &set, 1);
        socket.ready.raise(&socket, READABLE);
        socket.ready.watch(heard.clone());
        socket.ready.raise(&socket, Readiness::WRITABLE);
        assert_eq!(*heard.0.lock().unwrap(), [READABLE, READABLE | Readiness::WRITABLE]);
        assert_eq!(events(&set), []);
        socket.ready.deregister();
        socket.ready.raise(&socket, READABLE);
        assert_eq!(heard.0.lock().unwrap().len(), 2);
        assert_eq!(Arc::strong_count(&heard), 1, "a watch ends with its registration");
    }

    #[test]
    fn a_deregistered_socket_is_passed_over_and_may_come_back() {
        let (socket, set) = (socket(), set());
        socket.ready.register(&socket, &set, 1);
        socket.ready.raise(&socket, READABLE);
        socket.ready.deregister();
        assert_eq!(events(&set), []);
        socket.ready.register(&socket, &set, 3);
        assert_eq!(events(&set), [(3, READABLE)]);
    }

    #[test]
    fn a_closed_set_and_the_sockets_in_its_queue_do_not_keep_each_other() {
        let (socket, set) = (socket(), set());
        socket.ready.register(&socket, &set, 1);
        socket.ready.raise(&socket, READABLE);
        set.close();
        let gone = Arc::downgrade(&set);
        drop(set);
        drop(socket);
        assert!(gone.upgrade().is_none());
    }

    #[test]
    fn a_batch_is_taken_in_chunks_and_in_order() {
        let set = set();
        let sockets: Vec<_> = (0..100).map(|_| socket()).collect();
        for (token, socket) in sockets.iter().enumerate() {
            socket.ready.register(socket, &set, token);
            socket.ready.raise(socket, READABLE);
        }
        let mut seen = Vec::new();
        assert_eq!(set.try_wait(&mut seen, 70), 70);
        let tokens: Vec<_> = seen.iter().map(|event| event.token).collect();
        assert_eq!(tokens, (0..70).collect::<Vec<_>>());
        assert_eq!(events(&set).len(), 30);
        assert!(set.arm());
    }
}
