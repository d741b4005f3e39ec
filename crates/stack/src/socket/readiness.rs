//! Readiness of a socket, and the notification of its waiters.
//!
//! The PCB is authoritative. The *level bits* here can be read by any thread without entering the cell. A bit is set by
//! the event that raised it, before or after its guard has dropped, and cleared inside the guard of the call that found
//! nothing. So a bit may be set when there is nothing left (the user gets `WouldBlock`). But once the event is over it
//! is never clear while there is something: no wake-up is lost. Waiters and watches are notified when no guard is held
//! any more.
//!
//! Where one thread uses a connection (an owner of a core, or of a group at home), the bits are in a word of their own, but for
//! those of errors, which a user's thread clears. Only the thread with the connection writes that word, by plain stores. A
//! sleeper pays for that with a heavy fence: it announces that it
//! waits, fences, and reads the bits; the writer sets the bits, fences lightly, and checks for waiters. At least one of
//! the two sees the other.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sync::{Atomic, Lock, LockClass, LockKind, OnceBox, Ordering, Platform, PrefetchHint, Writers};
pub use tcp::Readiness;

use super::handler::in_handler;
use super::poll::{MemberNumber, PollSet};
use crate::attempt::attempt;

/// A thread sleeps on the word.
const WAITING: u32 = 1 << 31;
/// The socket is registered with a poll set, or watched.
const POLLED: u32 = 1 << 30;
/// The current registration is not the first but the one behind the lock. Never cleared.
const MOVED: u32 = 1 << 28;
/// Bits may be set by plain stores, so a sleeper must fence. Never cleared.
const PLAIN: u32 = 1 << 29;
/// The connection has a handler, which is called instead of waking waiters. Never cleared.
const HANDLED: u32 = 1 << 27;
/// The bits that a user clears without the connection, so that two threads may write them at once.
const ERRORS: u32 = Readiness::ERROR.union(Readiness::SOFT_ERROR).bits() as u32;

/// A socket that has a readiness word: a connection, a listener, a datagram socket.
pub trait Pollable<P: Platform>: Send + Sync + 'static {
    /// Its readiness word.
    fn ready_state(&self) -> &ReadyState<P>;
}

/// The readiness word of one socket, with the methods to wait for it.
///
/// Nearly every socket is registered with one poll set for life. That first registration is written once, before
/// `POLLED` is set, and read without a lock by every edge. A later registration (another set, a watch) is kept behind a
/// lock that is allocated only then, and `MOVED` marks that. An edge that finds its bits already set writes nothing
/// here, as while the user never gets `WouldBlock`. The thread that clears them next sees the effect of the event,
/// because the guard of the connection orders the clearing after the event.
///
/// The fields that an edge and its report read come first.
#[repr(C)]
pub struct ReadyState<P: Platform> {
    word: P::AtomicU32,
    /// The bits set by plain stores. Written by one thread at a time, which has exclusive use of the connection.
    own: P::AtomicU32,
    /// Its owner's; see [`ReadyState::with_owner_word`].
    owner_word: P::AtomicU32,
    first: OnceLock<PollPlace<P>>,
    later: OnceBox<Lock<Option<Registration<P>>, P>>,
}

/// A poll set, and the socket's number there.
struct PollPlace<P: Platform> {
    set: Arc<PollSet<P>>,
    number: MemberNumber,
}

/// The receiver of a readiness edge; see [`ReadyState::rise`].
pub(crate) enum ReadinessWaiter<'a, P: Platform> {
    /// No waiter and no watch.
    None,
    /// Mark this number in this set.
    Member(&'a Arc<PollSet<P>>, MemberNumber),
    /// Other waiters: [`ReadyState::tell`].
    Other,
}

enum Registration<P: Platform> {
    Poll(PollPlace<P>),
    Watch(Arc<dyn Watch>),
}

/// Notified of every edge of one socket, to attach another event loop. Called with no lock held, by any thread, which may be one
/// that runs the events of other connections: a watch may call the stack, but should not wait for other threads otherwise.
pub trait Watch: Send + Sync + 'static {
    /// `raised` are the bits of the edge, which may have been set before; `level` are the bits set now.
    fn ready(&self, raised: Readiness, level: Readiness);
}

/// Calls a watch. If it panics, the panic hook has reported that; a panicking watch must not prevent later sockets in
/// the batch from being notified.
fn tell_watch<P: Platform>(watch: &dyn Watch, raised: Readiness, level: Readiness) {
    match attempt(|| watch.ready(raised, level)) {
        Err(panic) if P::EXPLORED => std::panic::resume_unwind(panic),
        _ => {}
    }
}

impl<P: Platform> Default for ReadyState<P> {
    fn default() -> Self {
        Self::with_owner_word(0)
    }
}

impl<P: Platform> ReadyState<P> {
    /// Nothing is ready. `owner_word` is four bytes for the owner's use, which alignment would otherwise waste in each
    /// connection.
    pub fn with_owner_word(owner_word: u32) -> Self {
        ReadyState {
            word: P::AtomicU32::new(0),
            own: P::AtomicU32::new(0),
            owner_word: P::AtomicU32::new(owner_word),
            first: OnceLock::new(),
            later: OnceBox::new(),
        }
    }

    /// The argument of [`ReadyState::with_owner_word`].
    #[inline]
    pub fn owner_word(&self) -> u32 {
        self.owner_word.load(Ordering::Relaxed)
    }

    /// Whether it refers to a poll set or a watch, or has.
    #[inline]
    pub(super) fn refers(&self) -> bool {
        self.first.get().is_some() || self.later.get().is_some()
    }

    /// As [`ReadyState::with_owner_word`] makes it. No other thread knows the socket, which refers to nothing.
    #[inline]
    pub(super) fn renew(&self, owner_word: u32) {
        debug_assert!(!self.refers(), "what it refers to would hear of another connection");
        self.word.store(0, Ordering::Relaxed);
        self.own.store(0, Ordering::Relaxed);
        self.owner_word.store(owner_word, Ordering::Relaxed);
    }

    /// The bits that are set now.
    #[inline]
    pub fn get(&self) -> Readiness {
        self.level(self.word.load(Ordering::Acquire))
    }

    /// From now on a handler is called for the edges that [`ReadyState::rise`] reports.
    pub(crate) fn hand_over(&self) {
        self.word.fetch_or(HANDLED, Ordering::AcqRel);
    }

    /// Whether the connection has, or had, a handler.
    #[inline]
    pub(crate) fn is_handled(&self) -> bool {
        self.word.load(Ordering::Acquire) & HANDLED != 0
    }

    /// The bits that are set now: those of `word` and those set by plain stores.
    #[inline]
    fn level(&self, word: u32) -> Readiness {
        Readiness::from_bits((word | self.own.load(Ordering::Acquire)) as u16)
    }

    /// The same for a thread that has just put into the word a mark that setters check for; `before`: the previous
    /// word.
    #[inline]
    fn level_behind(&self, before: u32) -> Readiness {
        if before & PLAIN != 0 {
            P::heavy_fence();
        }
        self.level(before)
    }

    /// Sets the bits that a socket has from the beginning, before anything can wait for it.
    #[inline]
    pub(crate) fn begin(&self, bits: Readiness, writers: Writers) {
        let bits = u32::from(bits.bits());
        // No other thread knows the socket yet.
        match writers {
            Writers::One => {
                self.own.store(bits & !ERRORS, Ordering::Relaxed);
                self.word.store(bits & ERRORS | PLAIN, Ordering::Relaxed);
            }
            Writers::Many => self.word.store(bits, Ordering::Relaxed),
        }
    }

    /// Sets `bits`, wakes sleepers and marks the socket in its poll set. Phase *after*: no guard is held.
    pub fn raise(&self, bits: Readiness) {
        let seen = self.set(bits);
        self.tell_of(bits, seen);
    }

    /// As [`ReadyState::raise`], by a thread that with [`Writers::One`] is the only one to set and clear bits.
    pub fn raise_as(&self, bits: Readiness, writers: Writers) {
        match self.rise(bits, writers) {
            ReadinessWaiter::None => {}
            ReadinessWaiter::Member(set, number) => set.mark(number),
            ReadinessWaiter::Other => self.tell(bits),
        }
    }

    /// As [`ReadyState::raise`], of bits that were set before.
    pub(crate) fn tell(&self, bits: Readiness) {
        self.tell_of(bits, self.word.load(Ordering::Acquire));
    }

    /// The same, if that calls no [`Watch`]. False: it may, and nothing was told. A watch that is registered meanwhile learns
    /// of the bits by its registration.
    pub(crate) fn tell_threads(&self, bits: Readiness) -> bool {
        let seen = self.word.load(Ordering::Acquire);
        let may_be_watched = seen & POLLED != 0 && seen & MOVED != 0;
        if !may_be_watched {
            self.tell_of(bits, seen);
        }
        !may_be_watched
    }

    fn tell_of(&self, bits: Readiness, seen: u32) {
        if seen & WAITING != 0 {
            self.wake();
        }
        // A poll set is edge-triggered: an edge is reported even if the bit was already set.
        if seen & POLLED != 0 {
            match self.first.get() {
                Some(place) if seen & MOVED == 0 => place.set.mark(place.number),
                _ => self.tell_later(bits),
            }
        }
    }

    /// Asks the processor for the fields that an edge reads.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        sync::prefetch(&self.word);
    }

    /// As [`ReadyState::rise`], where a handler is called instead of waiters.
    #[inline(always)]
    pub(crate) fn rise_handled(&self, bits: Readiness, writers: Writers) {
        self.set_as(bits, writers);
    }

    /// Sets `bits` and returns the receiver to notify once no guard is held. Phase *inside*: with [`Writers::One`] no
    /// other thread uses the connection or its cell.
    #[inline]
    pub(crate) fn rise(&self, bits: Readiness, writers: Writers) -> ReadinessWaiter<'_, P> {
        let seen = self.set_as(bits, writers);
        if seen & (POLLED | WAITING | HANDLED) == 0 {
            return ReadinessWaiter::None;
        }
        match self.first.get() {
            Some(place) if seen & (POLLED | MOVED | WAITING | HANDLED) == POLLED => {
                ReadinessWaiter::Member(&place.set, place.number)
            }
            _ => ReadinessWaiter::Other,
        }
    }

    /// Sets `bits`; returns the word with its marks.
    #[inline]
    fn set_as(&self, bits: Readiness, writers: Writers) -> u32 {
        match writers {
            Writers::One => self.set_plainly(bits),
            Writers::Many => self.set(bits),
        }
    }

    /// As [`ReadyState::set`], by the only thread that sets bits.
    #[inline]
    fn set_plainly(&self, bits: Readiness) -> u32 {
        let bits = u32::from(bits.bits());
        let (own, plain) = (self.own.load(Ordering::Relaxed), bits & !ERRORS);
        if own & plain != plain {
            self.own.store(own | plain, Ordering::Release);
            P::light_fence();
        }
        // PLAIN at most once for a socket, unless it has it from the beginning: a mark made before that is seen here, and a
        // thread that marks the word later sees this bit.
        self.set_in_word(bits & ERRORS | PLAIN, self.word.load(Ordering::Acquire))
    }

    /// Sets `bits`; returns the previous word.
    #[inline]
    fn set(&self, bits: Readiness) -> u32 {
        let bits = u32::from(bits.bits());
        let seen = self.word.load(Ordering::Acquire);
        if seen & PLAIN != 0 && (seen | self.own.load(Ordering::Relaxed)) & bits == bits {
            return seen;
        }
        self.set_in_word(bits, seen)
    }

    /// Sets `bits` of the word, which was `seen` before; returns what it was last.
    #[inline]
    fn set_in_word(&self, bits: u32, mut seen: u32) -> u32 {
        while seen & bits != bits {
            match self.word.compare_exchange_weak(seen, seen | bits, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(other) => seen = other,
            }
        }
        seen
    }

    #[cold]
    fn wake(&self) {
        sync::lock_order::assert_only_users_held::<P>("waking the users of a socket");
        self.word.fetch_and(!WAITING, Ordering::AcqRel);
        P::futex_wake(&self.word, u32::MAX);
    }

    /// Notifies the latest registration.
    #[cold]
    fn tell_later(&self, raised: Readiness) {
        let (place, watch) = match &*self.later().lock() {
            Some(Registration::Poll(place)) => (Some((place.set.clone(), place.number)), None),
            Some(Registration::Watch(watch)) => (None, Some(watch.clone())),
            None => return,
        };
        if let Some((set, number)) = place {
            set.mark(number);
        }
        if let Some(watch) = watch {
            tell_watch::<P>(&*watch, raised, self.get());
        }
    }

    fn later(&self) -> &Lock<Option<Registration<P>>, P> {
        self.later.get_or_init(|| Box::new(Lock::new(LockKind::Blocking, LockClass::SocketBuffer, None)))
    }

    /// Clears `bits`; phase *inside*: the caller holds the cell, and its PCB has nothing left.
    #[inline]
    pub fn clear(&self, bits: Readiness) {
        self.clear_own(bits);
        self.word.fetch_and(!u32::from(bits.bits()), Ordering::AcqRel);
    }

    /// As [`ReadyState::clear`], by a thread that need not exclude others: a bit set only by plain stores costs no
    /// read-modify-write.
    #[inline]
    pub fn clear_as(&self, bits: Readiness, writers: Writers) {
        match writers {
            Writers::Many => self.clear(bits),
            Writers::One => {
                self.clear_own(bits);
                if self.word.load(Ordering::Relaxed) & u32::from(bits.bits()) != 0 {
                    self.clear(bits);
                }
            }
        }
    }

    /// Clears bits set by plain stores. After a switch to an architecture with several threads, several may call this
    /// at once: they only clear, and one may restore a bit that another has just cleared, which is then cleared the
    /// next time.
    #[inline]
    fn clear_own(&self, bits: Readiness) {
        let own = self.own.load(Ordering::Relaxed);
        if own & u32::from(bits.bits()) != 0 {
            self.own.store(own & !u32::from(bits.bits()), Ordering::Release);
        }
    }

    /// Sets `bits` again after a call that cleared them left data or room. No edge: only sleepers are woken.
    pub fn restore(&self, bits: Readiness) {
        let old = self.word.fetch_or(u32::from(bits.bits()), Ordering::AcqRel);
        if old & WAITING != 0 {
            self.wake();
        }
    }

    /// Sleeps until one of `wanted` is set or `timeout` has passed; returns those that are set. `None` waits for ever. A
    /// thread that runs a handler does not sleep: see [`in_handler`].
    pub fn wait(&self, wanted: Readiness, timeout: Option<Duration>) -> Readiness {
        let start = timeout.map(|_| P::now());
        loop {
            let word = self.word.load(Ordering::Acquire);
            let now = self.level(word);
            if now.intersects(wanted) {
                return now;
            }
            if in_handler::<P>() {
                return now;
            }
            let left = match (timeout, start) {
                (Some(timeout), Some(start)) => {
                    let spent = Duration::from_nanos(P::now().saturating_sub(start));
                    match timeout.checked_sub(spent) {
                        Some(left) if !left.is_zero() => Some(left),
                        _ => return now,
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
            if self.level_behind(word).intersects(wanted) {
                continue;
            }
            sync::lock_order::assert_only_users_held::<P>("waiting for a socket");
            P::futex_wait(&self.word, advertised, left);
        }
    }

    /// Registers this socket with `set` under `token`; replaces an earlier registration. Present readiness is reported
    /// at once. The set keeps `owner` until the registration ends or the set closes.
    pub fn register<S: Pollable<P>>(&self, owner: &Arc<S>, set: &Arc<PollSet<P>>, token: usize) {
        self.register_handle(owner, set, token, PrefetchHint::NONE);
    }

    /// [`ReadyState::register`], where the owner has a handle at this place that its user will touch at each event.
    pub fn register_handle<S: Pollable<P>>(
        &self,
        owner: &Arc<S>,
        set: &Arc<PollSet<P>>,
        token: usize,
        handle: PrefetchHint,
    ) {
        let number = set.register(owner.clone(), token, handle);
        let place = PollPlace { set: set.clone(), number };
        let refused =
            if self.word.load(Ordering::Acquire) & MOVED == 0 { self.first.set(place).err() } else { Some(place) };
        let old = match refused {
            None => self.word.fetch_or(POLLED, Ordering::AcqRel),
            Some(place) => self.replace(Registration::Poll(place)),
        };
        if !self.level_behind(old).is_empty() {
            set.mark(number);
        }
    }

    /// Calls `watch` at every edge; replaces an earlier registration. It is called at once for present readiness.
    pub fn watch(&self, watch: Arc<dyn Watch>) {
        let old = self.replace(Registration::Watch(watch.clone()));
        let level = self.level_behind(old);
        if !level.is_empty() {
            tell_watch::<P>(&*watch, level, level);
        }
    }

    /// Stores a registration that is not the first; returns the previous word.
    fn replace(&self, registration: Registration<P>) -> u32 {
        let before = self.later().lock().replace(registration);
        let old = self.word.fetch_or(POLLED | MOVED, Ordering::AcqRel);
        self.leave(before);
        old
    }

    /// Ends the registration with a poll set; events already queued are skipped.
    pub fn deregister(&self) {
        // Most sockets are never registered, or end with their registration.
        if self.word.load(Ordering::Acquire) & (POLLED | MOVED) == 0 {
            return;
        }
        let old = self.word.fetch_and(!POLLED, Ordering::AcqRel);
        // Taken in a statement of its own, so that the old registration is dropped with the lock released: a watch may
        // own anything.
        let before = if old & MOVED != 0 { self.later().lock().take() } else { None };
        self.leave(before);
    }

    /// The registration `before` has ended, and so has the first.
    fn leave(&self, before: Option<Registration<P>>) {
        if let Some(Registration::Poll(PollPlace { set, number })) = before {
            set.deregister(number);
        }
        if let Some(place) = self.first.get() {
            place.set.deregister(place.number);
        }
    }
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
        fn ready(&self, _: Readiness, level: Readiness) {
            self.0.lock().unwrap().push(level);
        }
    }

    #[test]
    fn a_socket_that_moves_to_another_set_is_heard_of_there_and_only_there() {
        let (socket, old, new) = (socket(), set(), set());
        socket.ready.register(&socket, &old, 1);
        socket.ready.raise(READABLE);
        // Its number is in the old set's queue, which has not been read.
        socket.ready.register(&socket, &new, 2);
        assert_eq!(events(&new), [(2, READABLE)]);
        assert_eq!(events(&old), []);
        socket.ready.raise(READABLE);
        assert_eq!((events(&old), events(&new)), (vec![], vec![(2, READABLE)]));
    }

    /// The level was consumed before the move: the entry in the old queue must not suppress the next edge.
    #[test]
    fn an_edge_after_a_move_is_not_lost_to_the_old_queue() {
        let (socket, old, new) = (socket(), set(), set());
        socket.ready.register(&socket, &old, 1);
        socket.ready.raise(READABLE);
        socket.ready.clear(READABLE);
        socket.ready.register(&socket, &new, 2);
        socket.ready.raise(READABLE);
        assert_eq!(events(&new), [(2, READABLE)]);
        assert_eq!(events(&old), []);
    }

    #[test]
    fn a_watch_that_replaces_a_set_hears_every_edge() {
        let (socket, set, heard) = (socket(), set(), Arc::new(Heard::default()));
        socket.ready.register(&socket, &set, 1);
        socket.ready.raise(READABLE);
        socket.ready.watch(heard.clone());
        socket.ready.raise(Readiness::WRITABLE);
        assert_eq!(*heard.0.lock().unwrap(), [READABLE, READABLE | Readiness::WRITABLE]);
        assert_eq!(events(&set), []);
        socket.ready.deregister();
        socket.ready.raise(READABLE);
        assert_eq!(heard.0.lock().unwrap().len(), 2);
        assert_eq!(Arc::strong_count(&heard), 1, "a watch ends with its registration");
    }

    #[test]
    fn a_deregistered_socket_is_passed_over_and_may_come_back() {
        let (socket, set) = (socket(), set());
        socket.ready.register(&socket, &set, 1);
        socket.ready.raise(READABLE);
        socket.ready.deregister();
        assert_eq!(events(&set), []);
        socket.ready.register(&socket, &set, 3);
        assert_eq!(events(&set), [(3, READABLE)]);
    }

    #[test]
    fn a_closed_set_and_the_sockets_in_its_queue_do_not_keep_each_other() {
        let (socket, set) = (socket(), set());
        socket.ready.register(&socket, &set, 1);
        socket.ready.raise(READABLE);
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
            socket.ready.raise(READABLE);
        }
        let mut seen = Vec::new();
        assert_eq!(set.try_wait(&mut seen, 70), 70);
        let tokens: Vec<_> = seen.iter().map(|event| event.token).collect();
        assert_eq!(tokens, (0..70).collect::<Vec<_>>());
        assert_eq!(events(&set).len(), 30);
        assert!(set.arm());
    }
}
