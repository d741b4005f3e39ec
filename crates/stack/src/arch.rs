//! Process architectures: which thread may touch which connection, and how it gets exclusive use of it.
//!
//! This trait is all that the rest of the stack knows about them. A file under `arch/` contains exclusion and hand-off
//! only: the meaning of a segment is in the `tcp` crate, the handling of a connection in `connections/`, its storage in
//! `place/`. A new architecture is one file here, with its declaration, and one line in `select.rs`.

pub mod adaptive;
pub mod async_wildcard;
pub mod backlog;
pub mod cells;
pub mod conn_thread;
pub mod connp_l;
pub mod connp_t;
pub mod declaration;
pub mod due_cells;
pub mod frame_input;
pub mod frame_workers;
pub mod giant;
pub mod layer;
pub mod lazy_broadcast;
pub mod lwkt;
pub mod mailbox;
pub mod msgp;
pub mod msgp_pool;
pub mod netisr;
pub mod own_threads;
pub mod owned_cells;
mod passes_on;
pub mod polled;
pub mod polled_rings;
pub mod processor;
pub mod ready_queues;
pub mod registered;
pub mod running;
pub mod select;
pub mod shared_nothing;
pub mod softint;
pub mod squeue;
pub mod steal;
pub mod up;
pub mod work_stream;

use std::sync::Arc;

use observe::Time;
use path::ArrivingFlow;
use sync::{Lock, Platform};

use adaptive::decisions::GroupDecision;
use adaptive::policy::Book;
use adaptive::queues::QueueClaims;
use frame_input::{FrameBound, FrameInput};

use crate::call::{self, Call, ControlRequest, Ingress, OpenRefused, OpenRequest, Reply};
use crate::deferred::DeferredEffects;
use crate::flow::{Key, Target};
use crate::handoff::{CellMessage, TableJob};
use crate::place::Contents;
use crate::place::connection::Connections;
use crate::stats::StackStats;
use crate::udp_call::{UdpCall, UdpReply};

pub use crate::place::NotAtRest;

/// Chunks of free connections in the slab that are kept for the next ones.
const KEPT_CHUNKS: usize = 4;

/// Gives back the memory of the slab's free connections, if there are many; `announce` makes every cell announce that
/// it accesses none of them. True: some wait for another round of announcements.
fn trim_slab<P: Platform>(slab: &Connections<P>, announce: impl FnOnce()) -> bool {
    if !slab.has_surplus(KEPT_CHUNKS) {
        return false;
    }
    announce();
    slab.trim(KEPT_CHUNKS);
    slab.awaits_owners()
}

/// One process architecture, ready to run. All methods may be called by any thread.
///
/// Contract (DESIGN.md, invariants): G1 at most one runner in a cell; G4 no lock is held when a thread is woken or
/// put to sleep; G7 segments reach the device in the order in which the connection assigned them. A thread of its own
/// passes the gate at any time ([`Gate::always`](crate::gate::Gate::always)) as long as it lives: a wake-up may lead to
/// a call of the stack on it, and the thread that switches waits for its end.
pub trait RunningArchitecture<P: Platform>: Send + Sync {
    /// Delivers an event to its connection; no caller waits for a reply. Called by receive threads and timers. Events
    /// of one flow that one thread posts run in the order in which it posted them. Wake-ups are left in `deferred`, so
    /// that one round of them follows a batch of events. The event is passed by reference and taken from there, because
    /// it is large and a move would copy it.
    fn post(&self, ingress: &mut Ingress, now: Time, deferred: &mut DeferredEffects<P>);

    /// Whether an event may be a run ([`Ingress::Run`]): all segments of a flow that directly follow one another in a
    /// batch, under one entry and one exclusion. Otherwise each segment is an event.
    fn takes_runs(&self) -> bool {
        false
    }

    /// Whether the stack may have more connections than the processor's caches hold, so that the receive threads' flows are to be
    /// counted, and [`RunningArchitecture::expect`] called.
    fn may_have_many(&self) -> bool {
        false
    }

    /// The calling receive thread is about to post segments of these flows, in this order, and uses so many flows that the caches
    /// are taken not to hold all: an architecture that can use their connections without waiting may ask the processor for
    /// them. A batch that has no such segments is announced as well. Returns the number of connections that were asked for.
    fn expect(&self, _flows: &[ArrivingFlow]) -> usize {
        0
    }

    /// Where the receive thread of this driver puts the frames that it receives, for threads of the architecture's own. `None`:
    /// receive threads process them, and post the events.
    fn frame_input(&self, _driver: usize) -> Option<Arc<FrameInput<P>>> {
        None
    }

    /// How many frames a receive thread takes from a queue in one turn, if the architecture says that. With an input
    /// ([`RunningArchitecture::frame_input`]) a turn is then all that it does at an interrupt of its device: it waits for the
    /// next one afterwards. Without, it gives way to other threads after a turn that has left frames.
    fn frame_bound(&self) -> Option<FrameBound> {
        None
    }

    /// Whether [`RunningArchitecture::opens_ring`] is to be asked.
    fn polls_rings(&self) -> bool {
        false
    }

    /// Whether the receive thread of this driver, which calls this, may take a batch from its queues now. Otherwise it leaves the
    /// frames in the device, and is woken when it may ([`polled_rings`]).
    fn opens_ring(&self, _driver: usize) -> bool {
        true
    }

    /// Whether that thread still has to wait.
    fn is_ring_shut(&self, _driver: usize) -> bool {
        false
    }

    /// The receive thread of this driver, which calls this, has found its queues empty.
    fn ring_is_empty(&self, _driver: usize) {}

    /// The receive thread has posted all of a batch: wake the threads that were given work.
    fn end_of_batch(&self, _after: &mut DeferredEffects<P>) {}

    /// Runs a user's call on its connection and stores the answer in `reply`; may sleep until the connection's owner
    /// has run it. Both are passed by reference for the same reason as the event of [`RunningArchitecture::post`]. The
    /// contents of `call` are unspecified afterwards.
    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply);

    /// [`RunningArchitecture::call`] for OPEN, in the cell of the request's flow. The values of the request are taken
    /// where they are needed; the caller keeps the socket.
    ///
    /// # Errors
    /// See [`OpenRefused`].
    fn open(&self, request: &mut OpenRequest<P>) -> Result<Key, OpenRefused> {
        let target = request.target();
        call::open_by(request, |call, reply| self.call(&target, call, reply))
    }

    /// Whether the calling thread would own a connection of a flow with this hash. True where connections do not belong to
    /// the threads that call. An active open prefers such flows.
    fn is_home(&self, _hash: u32) -> bool {
        true
    }

    /// [`RunningArchitecture::call`] for SEND, without the values of calls and answers: data not taken stays in
    /// `send`. `None`: the connection is gone.
    fn send(&self, target: &Target, send: &mut tcp::Send) -> Option<Result<u32, tcp::Error>> {
        call::send_by(send, |call, reply| self.call(target, call, reply))
    }

    /// The same for RECEIVE, into `received`, which is empty.
    fn receive(
        &self,
        target: &Target,
        event: tcp::Receive,
        received: &mut tcp::Received,
    ) -> Option<Result<(), tcp::Error>> {
        call::receive_by(event, received, |call, reply| self.call(target, call, reply))
    }

    /// Whether threads that poll own connections: [`RunningArchitecture::send_as_owner`] and the methods after it may run
    /// calls.
    fn has_owners(&self) -> bool {
        false
    }

    /// [`RunningArchitecture::send`] by a thread that owns the connection because it polls. Such a thread need not pass the
    /// gate: no state moves before it gives up what it owns, which it does when it polls. `None`: it does not own the
    /// connection, and nothing was done.
    fn send_as_owner(&self, _target: &Target, _send: &mut tcp::Send) -> Option<Option<Result<u32, tcp::Error>>> {
        None
    }

    /// The same for RECEIVE.
    fn receive_as_owner(
        &self,
        _target: &Target,
        _event: tcp::Receive,
        _received: &mut tcp::Received,
    ) -> Option<Option<Result<(), tcp::Error>>> {
        None
    }

    /// The same for every call: [`RunningArchitecture::call`]. False: nothing was done.
    fn call_as_owner(&self, _target: &Target, _call: &mut Call<P>, _reply: &mut Reply) -> bool {
        false
    }

    /// The same for CLOSE, without the values of calls and answers. False: nothing was done.
    fn close_as_owner(&self, _target: &Target) -> bool {
        false
    }

    /// The same for OPEN: [`RunningArchitecture::open`], by a thread that owns what the flow of the request belongs to. The socket in
    /// the request has the key.
    fn open_as_owner(&self, _request: &mut OpenRequest<P>) -> Option<Result<(), OpenRefused>> {
        None
    }

    /// Whether the calling thread owns the tables of IP because it polls: it need not pass the gate to use them.
    fn owns_tables(&self) -> bool {
        false
    }

    /// Whether its connections can have channels ([`crate::socket::channel`]): another thread than the user's runs their
    /// events, and serves the owners' ends.
    fn has_channels(&self) -> bool {
        false
    }

    /// Sends a message about a connection to its owner. No caller waits; messages of one thread run in their order, and
    /// before its later calls.
    ///
    /// # Errors
    /// The message, where there are no channels, the queue is full, or the calling thread is the owner: make a call.
    fn tell(&self, _target: &Target, message: CellMessage<P>) -> Result<(), CellMessage<P>> {
        Err(message)
    }

    /// Runs a user's call on a datagram socket in the socket's home; may sleep until the thread that uses the home has
    /// run it. The contents of `call` are unspecified afterwards.
    fn udp(&self, call: &mut UdpCall<P>) -> UdpReply;

    /// Runs `work` now, if the calling thread may use the tables of IP: routes, neighbours, fragments, addresses, limits.
    /// The tables have locks of their own, and any thread may use them, unless the architecture gives them to one
    /// thread. False: another thread owns them, and `work` was not called. `work` runs at most once, outside any cell.
    fn use_tables(&self, work: &mut dyn FnMut()) -> bool {
        work();
        true
    }

    /// Has the owner of the tables of IP run `job`, and sleeps until it has: [`Reply::Job`] with its result, or
    /// [`Reply::Gone`]. Called where [`RunningArchitecture::use_tables`] was refused.
    fn ask_tables(&self, job: TableJob) -> Reply {
        Reply::Job(job())
    }

    /// The same without waiting and without a result.
    fn tell_tables(&self, job: Box<dyn FnOnce() + Send>) {
        job();
    }

    /// Applies a change to every cell. Once it returns, no segment can find the old state.
    fn control(&self, change: ControlRequest<P>);

    /// Runs the timers that are due at `now`, unless the architecture's own threads run them. If the calling thread
    /// owns a cell, also runs the work that waits for the cell. Called by receive threads.
    fn tick(&self, now: Time);

    /// Gives back memory that a peak of connections has left behind, in each cell and in the slab. True: the rest can be
    /// freed after another call, when every cell has been used since. Called by receive threads, seldom.
    fn trim(&self) -> bool;

    /// The calling receive thread stops: its cells pass to the next thread that ticks.
    fn retire(&self) {}

    /// When `tick` next has something to do; `None` when nothing is armed.
    fn next_deadline(&self) -> Option<Time>;

    /// Whether a timer that the calling receive thread would run may have expired at `now`. Where the architecture cannot tell
    /// it from other work for `tick`, that counts too.
    fn timer_is_due(&self, now: Time) -> bool {
        self.next_deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Whether anything posted is still waiting to be run.
    fn is_quiescent(&self) -> bool;

    /// Sums of the counters and of the live connections over all cells. Exact at rest.
    fn stats(&self) -> StackStats;

    /// What the architecture has decided by itself while it runs, and why, oldest first; only the latest are kept. Empty: nothing
    /// yet, or it decides nothing.
    fn decisions(&self) -> Vec<GroupDecision> {
        Vec::new()
    }

    /// The claims of transmit queues that it has made by itself, by receive thread; threads that never had one are left out.
    fn queue_claims(&self) -> Vec<QueueClaims> {
        Vec::new()
    }

    /// Its decisions so far, if it takes some by itself. It is built again from its contents where these ask for another number of
    /// cells.
    fn book(&self) -> Option<&Arc<Lock<Book, P>>> {
        None
    }

    /// Ends the architecture's own threads and takes out all its contents. To be called while no other thread is in any
    /// of these methods, or enters one before this returns: see [`gate`](crate::gate). Afterwards the architecture is
    /// empty and must not be used.
    ///
    /// # Errors
    /// Another thread owns a cell. The architecture is unchanged, and its threads run again.
    fn dissolve(&self) -> Result<Contents<P>, NotAtRest>;

    /// Ends the architecture's own threads, if it has any. Nothing may be posted afterwards.
    fn shutdown(&self) {}
}

/// Runs `work` where the tables of IP may be used: on the calling thread, or on the thread that owns them, by one message
/// each way. `None`: the owner panicked, or has ended. The caller is in no cell.
pub fn at_tables<P: Platform, R: Send + 'static>(
    active: &dyn RunningArchitecture<P>,
    work: impl FnOnce() -> R + Send + 'static,
) -> Option<R> {
    let (mut work, mut result) = (Some(work), None);
    active.use_tables(&mut || result = work.take().map(|work| work()));
    let Some(work) = work else { return result };
    match active.ask_tables(Box::new(move || Box::new(work()))) {
        Reply::Job(result) => result.downcast().ok().map(|result| *result),
        _ => None,
    }
}
