//! Process architectures: which thread may touch which connection, and how it gets exclusive use of it.
//!
//! This trait is the whole of what the rest of the stack knows about them. A file below holds exclusion and hand-off
//! and nothing else: what a segment *means* is in the `tcp` crate, what happens to a connection is in `connections/`,
//! where it is kept in `place/`. A new architecture is one file here, with its declaration, and one line in
//! `select.rs`.

pub mod cells;
pub mod connp_l;
pub mod connp_t;
pub mod declaration;
pub mod giant;
pub mod mailbox;
pub mod msgp;
pub mod running;
pub mod select;
pub mod squeue;
pub mod up;

use observe::Time;
use sync::Platform;

use crate::call::{Call, ControlRequest, Ingress, Reply};
use crate::deferred::DeferredEffects;
use crate::flow::Target;
use crate::place::Contents;
use crate::stats::StackStats;
use crate::udp_call::{UdpCall, UdpReply};

pub use crate::place::NotAtRest;

/// One process architecture, ready to run. All methods may be called by any thread.
///
/// Contract (DESIGN.md, invariants): G1 at most one runner in a cell; G4 no lock is held when a thread is woken or
/// put to sleep; G7 segments reach the device in the order in which the connection assigned them.
pub trait RunningArchitecture<P: Platform>: Send + Sync {
    /// Brings an event to its connection; no caller waits for a reply. Called by receive threads and timers. Events of
    /// one flow that one thread posts are run in the order in which it posted them. Wake-ups that the event calls for
    /// are left in `deferred`, so that a batch of events is followed by one round of them. The event is taken from
    /// where it stands: it is large, and to hand it on by value would be to copy it.
    fn post(&self, ingress: &mut Ingress, now: Time, deferred: &mut DeferredEffects<P>);

    /// The receive thread has posted all of a batch: wake the threads that were given work.
    fn end_of_batch(&self, _after: &mut DeferredEffects<P>) {}

    /// Runs a user's call on its connection and puts the answer into `reply`; may sleep until the connection's owner
    /// has it. Both stay where they stand, like the event of [`RunningArchitecture::post`], and for the same reason;
    /// what is left in `call` means nothing.
    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply);

    /// Runs a user's call of a datagram socket in the socket's home; may sleep until whoever uses the home has it. What
    /// is left in `call` means nothing.
    fn udp(&self, call: &mut UdpCall<P>) -> UdpReply;

    /// Applies a change to every cell. Returns when each has it: from then on no segment can find the old state.
    fn control(&self, change: ControlRequest<P>);

    /// Runs the timers that are due at `now`, where timers are not the business of the architecture's own threads;
    /// and, where the calling thread owns a cell, whatever waits for it. Called by receive threads.
    fn tick(&self, now: Time);

    /// The calling receive thread stops: what it owns passes to the next thread that ticks.
    fn retire(&self) {}

    /// When `tick` next has something to do; `None` when nothing is armed.
    fn next_deadline(&self) -> Option<Time>;

    /// Whether anything posted is still waiting to be run.
    fn is_quiescent(&self) -> bool;

    /// Sums of the counters, and what is alive, over all cells. Exact at rest.
    fn stats(&self) -> StackStats;

    /// Whether a connection with this hash may be opened by the calling thread. Architectures that tie a caller to a
    /// cell refuse, and the next ephemeral port is tried.
    fn accepts_port(&self, _hash: u32) -> bool {
        true
    }

    /// Ends the architecture's own threads, and takes out everything that is in it. At rest: no other thread is in any
    /// of these methods, nor comes into one before this returns. Afterwards it is empty, and is not used any more.
    ///
    /// # Errors
    /// It can tell that it is not at rest. It has everything that it had.
    fn dissolve(&self) -> Result<Contents<P>, NotAtRest>;

    /// Ends the architecture's own threads, if it has any. Nothing may be posted afterwards.
    fn shutdown(&self) {}
}
