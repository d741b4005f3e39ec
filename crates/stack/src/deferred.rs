//! Effects that wait until the last guard has dropped: wake-ups of sockets' users, and of the receivers behind devices.
//!
//! An event runs inside a cell and stores here the effects that must not be performed inside. The thread that held the
//! cell releases it and then calls [`DeferredEffects::flush`]. No other layer is called while a guard is held
//! (invariant G4).

use std::sync::Arc;

use dev::BitSet;
use path::Dirty;
use smallvec::SmallVec;
use sync::{Platform, Writers, model_is_over};

use crate::active_flows::CACHED;
use crate::attempt::attempt;
use crate::internet_deadline::DeadlineEffect;
use crate::links::Links;
use crate::socket::handler::{HandlerState, Post};
use crate::socket::poll::{MemberEdge, Surroundings};
use crate::socket::readiness::ReadinessWaiter;
use crate::socket::{ListenerShared, PollSet, Readiness, TcpSocket, UdpShared};
use crate::upcalls::{self, Risen, Upcalls};

/// Effects to perform once the guard is dropped. Make one for each guard, or for each batch of events under one guard.
pub struct DeferredEffects<P: Platform> {
    /// Members of `set` with a readiness edge: nearly all wake-ups. Their bits are set already.
    members: SmallVec<[MemberEdge; 4]>,
    /// The poll set of the first edge: one reference for a batch of them. A receive thread keeps it for the next batch;
    /// its edges mostly belong to the same set ([`DeferredEffects::release_set`]).
    set: Option<Arc<PollSet<P>>>,
    /// Other sockets with a readiness edge. Their bits are set as well.
    others: SmallVec<[(Risen<P>, Readiness); 1]>,
    /// Transmit queues that were given frames, and the receivers behind them.
    dirty: Dirty,
    /// Cells that were sent events without a notification of their thread.
    unannounced: BitSet,
    /// The earliest deadline of work for receive threads, in nanoseconds; `u64::MAX`: none.
    alarm: u64,
    /// The receive thread that posted the batch; [`NO_RECEIVER`]: no receive thread did.
    receiver: u16,
    /// See [`DeferredEffects::cached`].
    cached: usize,
    /// There are effects to perform, or memory to free: most calls end without either.
    used: bool,
    /// There are other effects than frames given to devices, or other memory.
    varied: bool,
}

/// The number of no receive thread.
const NO_RECEIVER: u16 = u16::MAX;

impl<P: Platform> Default for DeferredEffects<P> {
    fn default() -> Self {
        DeferredEffects {
            members: SmallVec::new(),
            set: None,
            others: SmallVec::new(),
            dirty: Dirty::new(),
            unannounced: BitSet::new(),
            alarm: u64::MAX,
            receiver: NO_RECEIVER,
            cached: CACHED as usize,
            used: false,
            varied: false,
        }
    }
}

impl<P: Platform> DeadlineEffect for DeferredEffects<P> {
    fn due_at(&mut self, nanos: u64) {
        self.due(nanos);
    }
}

impl<P: Platform> DeferredEffects<P> {
    /// A connection has a readiness edge. True: it has a handler, which is to be called.
    #[inline(always)]
    pub(crate) fn wake(&mut self, socket: &Arc<TcpSocket<P>>, bits: Readiness, writers: Writers) -> bool {
        !bits.is_empty() && self.wake_for(socket, bits, writers, Surroundings::CACHED)
    }

    /// [`DeferredEffects::wake`] of a user that will touch these `around`.
    #[inline(always)]
    pub(crate) fn wake_amid(
        &mut self,
        socket: &Arc<TcpSocket<P>>,
        bits: Readiness,
        writers: Writers,
        around: impl FnOnce() -> Surroundings,
    ) -> bool {
        !bits.is_empty() && self.wake_for(socket, bits, writers, around())
    }

    #[inline(never)]
    fn wake_for(
        &mut self,
        socket: &Arc<TcpSocket<P>>,
        bits: Readiness,
        writers: Writers,
        around: Surroundings,
    ) -> bool {
        let waiter = socket.ready.rise(bits, writers);
        // Nobody waits besides a handler.
        matches!(waiter, ReadinessWaiter::Other) && socket.ready.is_handled()
            || !self.noted(waiter, around) && self.wake_other(socket, bits)
    }

    #[inline(never)]
    fn wake_other(&mut self, socket: &Arc<TcpSocket<P>>, bits: Readiness) -> bool {
        self.others.push((Risen::Connection(socket.clone()), bits));
        false
    }

    /// The handler of this connection is to be called, by [`DeferredEffects::next_handled`]'s caller.
    #[cold]
    pub(crate) fn call_handler(&mut self, socket: &Arc<TcpSocket<P>>, bits: Readiness) {
        self.vary();
        self.others.push((Risen::Handled(socket.clone()), bits));
    }

    /// Takes a connection whose handler must be called, in the order of their events, and its bits.
    #[inline]
    pub(crate) fn next_handled(&mut self) -> Option<(Arc<TcpSocket<P>>, Readiness)> {
        if self.others.is_empty() {
            return None;
        }
        let index = self.others.iter().position(|(risen, _)| matches!(risen, Risen::Handled(_)))?;
        match self.others.remove(index) {
            (Risen::Handled(socket), bits) => Some((socket, bits)),
            _ => None,
        }
    }

    /// A handler has posted these, mostly none.
    #[inline(always)]
    pub(crate) fn post(&mut self, posts: Vec<Post<P>>) {
        if !posts.is_empty() {
            self.post_all(posts);
        }
    }

    #[cold]
    fn post_all(&mut self, posts: Vec<Post<P>>) {
        self.vary();
        self.others.extend(posts.into_iter().map(|post| (Risen::Posted(Box::new(post)), Readiness::NONE)));
    }

    /// A handler is over. It is dropped where no guard is held, because it may own anything.
    pub(crate) fn dispose(&mut self, handler: Box<HandlerState<P>>) {
        self.vary();
        self.others.push((Risen::Over(handler), Readiness::NONE));
    }

    /// Takes the messages that handlers have posted.
    pub(crate) fn take_posts(&mut self) -> Vec<Post<P>> {
        let (mut posts, mut rest) = (Vec::new(), SmallVec::new());
        for (risen, bits) in self.others.drain(..) {
            match risen {
                Risen::Posted(post) => posts.push(*post),
                risen => rest.push((risen, bits)),
            }
        }
        self.others = rest;
        posts
    }

    /// A connection waits to be accepted.
    pub fn wake_listener(&mut self, listener: &Arc<ListenerShared<P>>) {
        let bits = Readiness::ACCEPTABLE;
        if !self.noted(listener.ready.rise(bits, Writers::Many), Surroundings::CACHED) {
            self.others.push((Risen::Listener(listener.clone()), bits));
        }
    }

    /// A datagram socket has a readiness edge.
    pub(crate) fn wake_datagrams(&mut self, socket: &Arc<UdpShared<P>>, bits: Readiness, writers: Writers) {
        if !self.noted(socket.ready.rise(bits, writers), Surroundings::CACHED) {
            self.others.push((Risen::Datagrams(socket.clone()), bits));
        }
    }

    /// The bits of a socket with this waiter have risen: records its number if it is in the poll set of most edges of a batch.
    /// False: it has another waiter.
    #[inline(always)]
    fn noted(&mut self, waiter: ReadinessWaiter<'_, P>, around: Surroundings) -> bool {
        let (set, number) = match waiter {
            ReadinessWaiter::None => {
                sync::walk::note(file!(), "the socket's user finds it ready: nobody sleeps on it");
                return true;
            }
            ReadinessWaiter::Member(set, number) => (set, number),
            ReadinessWaiter::Other => {
                self.vary();
                return false;
            }
        };
        self.vary();
        match &self.set {
            Some(known) if Arc::ptr_eq(known, set) => {}
            Some(_) if !self.members.is_empty() => return false,
            _ => self.begin_set(set),
        }
        self.members.push(MemberEdge { number, around });
        true
    }

    #[cold]
    #[inline(never)]
    fn begin_set(&mut self, set: &Arc<PollSet<P>>) {
        self.set = Some(set.clone());
    }

    /// There is an effect that [`DeferredEffects::flush`] looks for.
    #[inline(always)]
    fn vary(&mut self) {
        (self.used, self.varied) = (true, true);
    }

    /// The record of transmit queues that were given frames, for their notification.
    #[inline]
    pub fn dirty(&mut self) -> &mut Dirty {
        self.used = true;
        &mut self.dirty
    }

    /// [`DeferredEffects::dirty`], for frames after which usually nothing is to be notified: [`DeferredEffects::flush`] looks
    /// whether there is anything in the record.
    #[inline(always)]
    pub(crate) fn emission(&mut self) -> &mut Dirty {
        &mut self.dirty
    }

    /// Work for a receive thread is due at `nanos` (`u64::MAX`: none); see [`crate::alarm`].
    #[inline]
    pub fn due(&mut self, nanos: u64) {
        if nanos < self.alarm {
            self.alarm = nanos;
            self.vary();
        }
    }

    /// The events belong to a batch of this receive thread.
    #[inline]
    pub(crate) fn brought_by(&mut self, receiver: usize) {
        self.receiver = u16::try_from(receiver).unwrap_or(NO_RECEIVER);
    }

    /// The number of connections that a cell may have, and the caches of the calling thread still be taken to hold those that it uses.
    #[inline(always)]
    pub(crate) fn cached(&self) -> usize {
        self.cached
    }

    /// From now on that is so many.
    #[inline]
    pub(crate) fn set_cached(&mut self, connections: usize) {
        self.cached = connections;
    }

    /// The number of the receive thread that posts the events, which is that of its queue pair. `None`: they come from
    /// elsewhere.
    #[inline]
    pub fn receiver(&self) -> Option<usize> {
        (self.receiver != NO_RECEIVER).then_some(self.receiver.into())
    }

    /// The thread of cell `cell` was sent an event and is to be notified at the end of the batch. The sender keeps this
    /// record, not the queue: if a sender relied on another sender's record, that could be cleared before its own event
    /// is seen.
    #[inline]
    pub fn announce(&mut self, cell: usize) {
        self.unannounced.insert(cell);
        if !self.unannounced.is_inline() {
            self.vary();
        }
    }

    /// Whether there are cells whose threads must be notified.
    #[inline]
    pub fn has_announcements(&self) -> bool {
        !self.unannounced.is_empty()
    }

    /// Takes a cell whose thread must be notified.
    #[inline]
    pub fn next_announcement(&mut self) -> Option<usize> {
        self.unannounced.pop()
    }

    /// Performs the effects other than announcements. The caller holds no guard.
    #[inline(always)]
    pub fn flush(&mut self, links: &Links<P>) {
        if self.has_effects() {
            self.flush_some(links);
        }
    }

    #[inline(never)]
    fn flush_some(&mut self, links: &Links<P>) {
        // A call that has sent something rarely leaves more.
        if !self.varied && self.dirty.only().is_some() {
            sync::walk::note(file!(), "notifies the device");
            links.notify_only(&mut self.dirty);
            self.used = false;
            return;
        }
        self.flush_all(links);
    }

    #[inline(never)]
    fn flush_all(&mut self, links: &Links<P>) {
        if !self.dirty.is_empty() {
            sync::walk::note(file!(), "notifies the device");
            links.notify(&mut self.dirty);
        }
        if self.alarm != u64::MAX {
            links.alarms().due(std::mem::replace(&mut self.alarm, u64::MAX));
        }
        if !self.members.is_empty() {
            self.mark_members();
        }
        if !self.others.is_empty() {
            upcalls::perform(self.others.drain(..));
        }
        self.varied = self.members.spilled() | self.others.spilled() | !self.unannounced.is_inline();
        self.used = self.varied | !self.dirty.is_inline();
    }

    /// [`DeferredEffects::flush`], but what may run a user's code is appended to `upcalls` instead. The caller holds no
    /// guard; it may have the flag of a cell.
    pub(crate) fn flush_all_but_upcalls(&mut self, links: &Links<P>, upcalls: &mut Upcalls<P>) {
        let others = std::mem::take(&mut self.others);
        self.flush(links);
        upcalls.keep(others.into_iter());
    }

    /// Gives up the reference to the poll set of the latest batch, if its effects were performed.
    pub(crate) fn release_set(&mut self) {
        if self.members.is_empty() {
            self.set = None;
        }
    }

    /// Whether there are effects to perform.
    #[inline]
    pub(crate) fn has_effects(&self) -> bool {
        self.used || !self.dirty.is_empty()
    }

    /// Whether dropping it would do nothing, once its effects are performed: code that served a single call then
    /// forgets it instead.
    #[inline]
    pub fn is_plain(&self) -> bool {
        !self.used
    }

    fn mark_members(&mut self) {
        if let Some(set) = &self.set {
            sync::walk::note(file!(), "no guard is held any more: wakes the socket's user");
            set.mark_all(&self.members);
        }
        self.members.clear();
        if self.receiver == NO_RECEIVER {
            self.set = None;
        }
    }
}

/// A record of effects that is made when there are some: reading data rarely has any, and a record of its own would be a
/// tenth of its cost.
pub struct LazyEffects<'a, P: Platform> {
    given: Option<&'a mut DeferredEffects<P>>,
    made: Option<DeferredEffects<P>>,
}

impl<'a, P: Platform> LazyEffects<'a, P> {
    /// No record yet.
    #[inline(always)]
    pub fn none() -> Self {
        LazyEffects { given: None, made: None }
    }

    /// A record that exists.
    #[inline(always)]
    pub fn given(record: &'a mut DeferredEffects<P>) -> Self {
        LazyEffects { given: Some(record), made: None }
    }

    /// The record.
    #[inline(never)]
    pub fn record(&mut self) -> &mut DeferredEffects<P> {
        match &mut self.given {
            Some(given) => given,
            None => self.made.get_or_insert_default(),
        }
    }

    /// Whether no record was made.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.made.is_none()
    }

    /// [`DeferredEffects::flush`] for the record that was made, if there is one. The caller holds no guard.
    #[inline(always)]
    pub fn flush(self, links: &Links<P>) {
        if let Some(mut made) = self.made {
            made.flush(links);
        }
    }
}

/// The effects of a send: frames given to a device, after which usually nothing is to be notified, and rarely others.
pub struct SendEffects<P: Platform> {
    dirty: Dirty,
    rest: LazyEffects<'static, P>,
}

impl<P: Platform> SendEffects<P> {
    /// None yet.
    #[inline(always)]
    pub fn none() -> Self {
        SendEffects { dirty: Dirty::new(), rest: LazyEffects::none() }
    }

    /// The record for frames that leave without other effects.
    #[inline(always)]
    pub(crate) fn emission(&mut self) -> &mut Dirty {
        &mut self.dirty
    }

    /// The record of all other effects, which is made if there is none.
    #[inline(always)]
    pub fn record(&mut self) -> &mut DeferredEffects<P> {
        self.rest.record()
    }

    /// Whether there are none: [`SendEffects::flush`], and dropping it, would do nothing.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.dirty.is_empty() && self.dirty.is_inline() && self.rest.made.is_none()
    }

    /// [`DeferredEffects::flush`]. The caller holds no guard.
    #[inline(never)]
    pub fn flush(mut self, links: &Links<P>) {
        if !self.dirty.is_empty() {
            self.notify(links);
        }
        self.rest.flush(links);
    }

    #[inline(always)]
    fn notify(&mut self, links: &Links<P>) {
        sync::walk::note(file!(), "notifies the device");
        links.notify(&mut self.dirty);
    }
}

/// Effects of a batch of events, performed once the cell has been released, even if the last event panics.
pub(crate) struct EffectsGuard<'a, P: Platform> {
    /// The effects so far.
    pub deferred: DeferredEffects<P>,
    links: &'a Links<P>,
}

impl<'a, P: Platform> EffectsGuard<'a, P> {
    /// No effects yet.
    #[inline]
    pub(crate) fn new(links: &'a Links<P>) -> Self {
        EffectsGuard { deferred: DeferredEffects::default(), links }
    }
}

impl<P: Platform> Drop for EffectsGuard<'_, P> {
    #[inline]
    fn drop(&mut self) {
        if model_is_over::<P>() {
            return;
        }
        if std::thread::panicking() {
            let _ = attempt(|| self.deferred.flush(self.links));
        } else {
            self.deferred.flush(self.links);
        }
    }
}
