//! A set of sockets that one thread watches: edge-triggered, O(ready), with one pollable file descriptor.
//!
//! A socket that registers becomes a *member*: the set keeps a reference to it and gives it a number. An edge puts that
//! number into the set's queue (at most one entry for each member); the watching thread takes the numbers out. There is
//! no scan, and an edge changes no reference count. Members, numbers and queue are behind one lock, which is taken once
//! for a batch of edges and once for a batch of reports.
//!
//! What may never happen: a number that outlives its member and names another (it carries a generation), or a set and
//! its members that keep each other alive: a socket leaves when its handle is dropped, and all leave when the set
//! closes.

use std::sync::Arc;
use std::time::Duration;

use pktbuf::PacketPlace;
use sync::{Atomic, DoorbellLike, Lock, LockClass, LockKind, Ordering, Parker, Platform, PrefetchHint};

use super::handler::in_handler;
use super::readiness::{Pollable, Readiness};
use crate::charge;

/// One report of a [`PollSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollEvent {
    /// The token given when the socket was registered.
    pub token: usize,
    /// The readiness. Edge-triggered: use the socket until it would block.
    pub ready: Readiness,
}

/// Reports taken out under one lock.
const CHUNK: usize = 32;

/// The ready queue of one watching thread. Any thread may mark members; one thread at a time waits.
pub struct PollSet<P: Platform> {
    queue: Lock<ReadyQueue<P>, P>,
    /// Entries in the queue, written under its lock and readable without: a hint. A thread that is about to sleep takes
    /// the lock and looks at the queue ([`PollSet::announce`]).
    length: P::AtomicUsize,
    parker: Parker<P>,
    /// [`PollSet::wake`] was called and no waiter has returned because of it yet.
    woken: P::AtomicBool,
    doorbell: Option<P::Doorbell>,
}

struct ReadyQueue<P: Platform> {
    members: Vec<PollMember<P>>,
    /// Numbers to be given again.
    free: Vec<u32>,
    ready: ReadyNumbers,
    /// The thread that has reported the latest edges with [`Surroundings`] that no cache has.
    reporter: usize,
    /// See [`PollSet::expected`].
    expected: usize,
    /// The watching thread found the queue empty and sleeps, or is about to; the next edge wakes it.
    watcher: Watcher,
    /// The set will not be read again.
    closed: bool,
}

/// How the watching thread sleeps. Two ways at once only if one thread sleeps on the descriptor and another in
/// [`PollSet::wait`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Watcher {
    parked: bool,
    polls: bool,
}

/// What the user of a socket with an edge will touch, if that is so long ago that no cache has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// The connection; `NONE`: the caches have it.
    pub(crate) connection: PrefetchHint,
    /// The oldest data that was not read.
    pub(crate) unread: PacketPlace,
}

impl Surroundings {
    /// The caches have all of it.
    pub(crate) const CACHED: Surroundings = Surroundings { connection: PrefetchHint::NONE, unread: PacketPlace::NONE };
}

/// An edge of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberEdge {
    pub(crate) number: MemberNumber,
    pub(crate) around: Surroundings,
}

/// Edges in their order. A thread mostly takes out all of them: so a list that is begun anew when it is empty, and no ring.
#[derive(Default)]
struct ReadyNumbers {
    edges: Vec<MemberEdge>,
    /// How many of them were taken out; less than all, or 0.
    taken: usize,
}

impl ReadyNumbers {
    #[inline(always)]
    fn len(&self) -> usize {
        self.edges.len() - self.taken
    }

    #[inline(always)]
    fn push(&mut self, edge: MemberEdge) {
        if self.edges.len() == self.edges.capacity() {
            self.make_room();
        }
        self.edges.push(edge);
    }

    /// The next ones, `most` of them if there are so many.
    #[inline(always)]
    fn next(&self, most: usize) -> &[MemberEdge] {
        let waiting = self.edges.get(self.taken..).unwrap_or_default();
        waiting.get(..most).unwrap_or(waiting)
    }

    /// The memory is full: what was taken out makes room, if that is half of it or more.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self) {
        if self.taken > 0 && self.taken >= self.len() {
            self.edges.drain(..std::mem::take(&mut self.taken));
        }
        self.edges.reserve(1);
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<MemberNumber> {
        let number = self.edges.get(self.taken)?.number;
        self.taken += 1;
        if self.taken == self.edges.len() {
            self.taken = 0;
            self.edges.clear();
        }
        Some(number)
    }
}

/// A registered socket, or a place for one.
struct PollMember<P: Platform> {
    socket: Option<Arc<dyn Pollable<P>>>,
    token: usize,
    /// The user's handle of the socket, if it was given.
    handle: PrefetchHint,
    generation: u32,
    /// Its number is in the queue.
    queued: bool,
}

/// A member's name in its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberNumber {
    index: u32,
    generation: u32,
}

impl MemberNumber {
    /// The number of no member.
    const NONE: MemberNumber = MemberNumber { index: u32::MAX, generation: 0 };

    /// An edge of the member. The caches have what its user will touch.
    #[inline(always)]
    pub(crate) fn edge(self) -> MemberEdge {
        MemberEdge { number: self, around: Surroundings::CACHED }
    }
}

impl<P: Platform> ReadyQueue<P> {
    #[inline]
    fn member(&mut self, number: MemberNumber) -> Option<&mut PollMember<P>> {
        self.members.get_mut(number.index as usize).filter(|member| member.generation == number.generation)
    }

    fn register(&mut self, socket: Arc<dyn Pollable<P>>, token: usize, handle: PrefetchHint) -> MemberNumber {
        let index = self.free.pop().unwrap_or(self.members.len() as u32);
        match self.members.get_mut(index as usize) {
            Some(place) => {
                (place.socket, place.token, place.queued, place.handle) = (Some(socket), token, false, handle);
                MemberNumber { index, generation: place.generation }
            }
            None => {
                self.members.push(PollMember { socket: Some(socket), token, handle, generation: 0, queued: false });
                MemberNumber { index, generation: 0 }
            }
        }
    }

    /// The member leaves; returns its reference.
    fn deregister(&mut self, number: MemberNumber) -> Option<Arc<dyn Pollable<P>>> {
        let member = self.member(number)?;
        member.generation = member.generation.wrapping_add(1);
        let socket = member.socket.take();
        self.free.push(number.index);
        socket
    }

    #[inline]
    fn mark(&mut self, edge: MemberEdge) {
        if let Some(member) = self.member(edge.number)
            && !member.queued
        {
            member.queued = true;
            charge::ready::<P, _>(Some(&*member));
            self.ready.push(edge);
            charge::ready::<P, _>(self.ready.edges.last());
        }
    }

    /// The next `most` reports are about to be taken. Asks the processor for what their user will touch, if no cache has it
    /// and the edges were reported by the calling thread: it would take it away from another one, which may still use it.
    #[inline(always)]
    fn expect(&mut self, most: usize) {
        let is_far = self.ready.next(most).first().is_some_and(|edge| !edge.around.connection.is_none());
        if is_far && self.reporter == P::thread_index() {
            self.expected += self.ask(most);
        }
    }

    /// Returns the number of connections. In two passes, so that it waits for no member.
    #[inline(never)]
    fn ask(&self, most: usize) -> usize {
        let edges = self.ready.next(most);
        let members = || edges.iter().filter_map(|edge| self.members.get(edge.number.index as usize));
        members().for_each(|member| sync::prefetch(member));
        for MemberEdge { around, .. } in edges {
            around.connection.ask();
            around.unread.prefetch();
        }
        for member in members() {
            member.handle.ask();
            member.socket.iter().for_each(|socket| PrefetchHint::of(&**socket).ask());
        }
        edges.iter().filter(|edge| !edge.around.connection.is_none()).count()
    }

    /// The report of the oldest entry; an inner `None`: its member has left.
    #[inline]
    fn next(&mut self) -> Option<Option<PollEvent>> {
        charge::ready::<P, _>(self.ready.edges.get(self.ready.taken));
        let number = self.ready.pop()?;
        let member = self.member(number);
        Some(member.and_then(|member| {
            charge::ready::<P, _>(Some(&*member));
            // Before the bits are read: a later edge queues the member again.
            member.queued = false;
            let ready = member.socket.as_ref()?.ready_state().get();
            Some(PollEvent { token: member.token, ready })
        }))
    }
}

impl<P: Platform> PollSet<P> {
    /// A set with a pollable descriptor where the platform has one and `pollable` asks for it.
    ///
    /// # Errors
    /// The descriptor cannot be opened (the process has too many open files).
    pub fn new(pollable: bool) -> std::io::Result<Arc<Self>> {
        let doorbell = if pollable { Some(P::Doorbell::new()?) } else { None };
        let queue = ReadyQueue {
            members: Vec::new(),
            free: Vec::new(),
            ready: ReadyNumbers::default(),
            reporter: 0,
            expected: 0,
            watcher: Watcher::default(),
            closed: false,
        };
        Ok(Arc::new(PollSet {
            // Mostly one thread takes the edges out that it has put in.
            queue: Lock::new(LockKind::Reserved, LockClass::SocketBuffer, queue),
            length: P::AtomicUsize::new(0),
            parker: Parker::new(),
            woken: P::AtomicBool::new(false),
            doorbell,
        }))
    }

    /// The descriptor that polls readable while the queue is not empty, once [`PollSet::arm`] has been called.
    pub fn fd(&self) -> Option<i32> {
        self.doorbell.as_ref().and_then(DoorbellLike::fd)
    }

    /// The owner of that descriptor, for callers that borrow it.
    pub fn doorbell(&self) -> Option<&P::Doorbell> {
        self.doorbell.as_ref()
    }

    /// Announces that the watcher is about to sleep on the descriptor; returns false if the queue is not empty.
    pub fn arm(&self) -> bool {
        if let Some(doorbell) = &self.doorbell {
            doorbell.drain();
            doorbell.arm();
        }
        self.announce(|watcher| watcher.polls = self.doorbell.is_some())
    }

    /// Records under the lock how the calling thread is about to sleep: a thread that marks a member later takes the lock
    /// later, and finds the record. False, without a record: the queue is not empty.
    fn announce(&self, sleeps: impl FnOnce(&mut Watcher)) -> bool {
        let mut queue = self.queue.lock();
        let empty = queue.ready.len() == 0;
        if empty {
            sleeps(&mut queue.watcher);
        }
        empty
    }

    /// Makes `socket` a member that is reported under `token`, until [`PollSet::deregister`]. Does nothing on a closed
    /// set. `handle`: where its user's handle is.
    pub(super) fn register(&self, socket: Arc<dyn Pollable<P>>, token: usize, handle: PrefetchHint) -> MemberNumber {
        let mut queue = self.queue.lock();
        if !queue.closed {
            return queue.register(socket, token, handle);
        }
        // Dropped with the lock released: dropping the last reference to a socket may run much code.
        drop(queue);
        drop(socket);
        MemberNumber::NONE
    }

    /// The member leaves; its entry in the queue is skipped.
    pub(super) fn deregister(&self, number: MemberNumber) {
        let socket = self.queue.lock().deregister(number);
        drop(socket);
    }

    /// An edge of this member.
    pub(crate) fn mark(&self, number: MemberNumber) {
        self.mark_all(&[number.edge()]);
    }

    /// These edges of members, under one lock. Their bits were set before.
    pub(crate) fn mark_all(&self, edges: &[MemberEdge]) {
        let mut queue = self.queue.lock();
        charge::ready::<P, _>(Some(&queue.ready));
        edges.iter().for_each(|edge| queue.mark(*edge));
        if edges.first().is_some_and(|edge| !edge.around.connection.is_none()) {
            queue.reporter = P::thread_index();
        }
        let length = queue.ready.len();
        self.length.store(length, Ordering::Relaxed);
        let watcher = if length == 0 { Watcher::default() } else { std::mem::take(&mut queue.watcher) };
        drop(queue);
        self.wake_watcher(watcher);
    }

    #[inline(always)]
    fn wake_watcher(&self, watcher: Watcher) {
        if watcher == Watcher::default() {
            return sync::profile::wake::<P>(false);
        }
        if watcher.parked {
            self.parker.unpark();
        }
        if watcher.polls
            && let Some(doorbell) = &self.doorbell
        {
            doorbell.ring();
        }
    }

    /// The set will not be read again: members leave, the queue is emptied and stays empty. Sockets keep their
    /// registration, so without this a set and its members would keep each other alive.
    pub fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        queue.ready = ReadyNumbers::default();
        queue.free = Vec::new();
        let members = std::mem::take(&mut queue.members);
        self.length.store(0, Ordering::Relaxed);
        drop(queue);
        drop(members);
    }

    /// Connections that the processor was asked for before their events were returned.
    pub fn expected(&self) -> usize {
        self.queue.lock().expected
    }

    /// Moves ready events into `events` (cleared first), at most `max`, without sleeping.
    pub fn try_wait(&self, events: &mut Vec<PollEvent>, max: usize) -> usize {
        self.woken.store(false, Ordering::Relaxed);
        self.take(events, max)
    }

    fn take(&self, events: &mut Vec<PollEvent>, max: usize) -> usize {
        events.clear();
        if self.length.load(Ordering::Acquire) == 0 {
            return 0;
        }
        while events.len() < max && self.take_chunk(events, max) {}
        events.len()
    }

    /// Takes out some events; returns whether there may be more.
    #[inline]
    fn take_chunk(&self, events: &mut Vec<PollEvent>, max: usize) -> bool {
        let mut queue = self.queue.lock();
        charge::ready::<P, _>(Some(&queue.ready));
        let most = CHUNK.min(max - events.len());
        queue.expect(most);
        for _ in 0..most {
            match queue.next() {
                Some(Some(event)) => events.push(event),
                Some(None) => {}
                None => break,
            }
        }
        let left = queue.ready.len();
        self.length.store(left, Ordering::Relaxed);
        left != 0
    }

    /// As [`PollSet::try_wait`], but sleeps up to `timeout` (`None`: for ever) when nothing is ready. A
    /// [`PollSet::wake`] ends it early.
    pub fn wait(&self, events: &mut Vec<PollEvent>, max: usize, timeout: Option<Duration>) -> usize {
        let start = P::now();
        loop {
            if self.take(events, max) > 0 || self.woken.swap(false, Ordering::AcqRel) {
                return events.len();
            }
            let left = match timeout {
                None => None,
                Some(timeout) => {
                    let spent = Duration::from_nanos(P::now().saturating_sub(start));
                    match timeout.checked_sub(spent) {
                        Some(left) if !left.is_zero() => Some(left),
                        _ => return 0,
                    }
                }
            };
            if in_handler::<P>() {
                return 0;
            }
            if self.announce(|watcher| watcher.parked = true) {
                self.parker.park(left);
            }
        }
    }

    /// Wakes the watcher without an event.
    pub fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.parker.unpark();
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
    }
}
