//! Threads that carry frames from an input up to the connections, which another architecture keeps.
//!
//! What differs between architectures is how many inputs there are and how many workers each has: one input with many
//! workers is a pool, an input with one worker for each CPU has a thread for the frames of that CPU; and whether a worker runs
//! the event of its frame itself ([`msgp`](super::msgp)), or leaves it to the thread that owns the connection. A receive thread
//! puts what it receives into the input of its driver. Without an input, receive threads carry their frames themselves.
//!
//! Receive threads, callers and workers call this. What may never happen: a worker waits for a turn with a lock held; a
//! receive thread waits for a worker.

use std::sync::Arc;

use observe::{Counters, DropReason, Time};
use sync::{Lock, LockClass, LockKind, Platform, ThreadClass};

use super::frame_input::{ArrivalTurn, CarriesFrames, FrameBound, FrameInput, TakenFrame};
use super::{NotAtRest, RunningArchitecture};
use crate::call::{Call, ControlRequest, Ingress, OpenRefused, OpenRequest, Reply};
use crate::deferred::{DeferredEffects, OwedEffects};
use crate::flow::{Key, Target};
use crate::handoff::{CellMessage, TableJob};
use crate::place::Contents;
use crate::shared::Shared;
use crate::stats::StackStats;
use crate::udp_call::{UdpCall, UdpReply};

/// The architecture that keeps the connections to which workers carry frames.
pub trait AboveWorkers<P: Platform>: RunningArchitecture<P> + 'static {
    /// The stack.
    fn shared(&self) -> &Arc<Shared<P>>;

    /// The counters for what the calling thread does below the connections.
    fn counters(&self) -> &Counters;

    /// [`RunningArchitecture::post`]. A worker's `turn` ends once its event has used the connection.
    fn post_in_turn(
        &self,
        ingress: &mut Ingress,
        now: Time,
        deferred: &mut DeferredEffects<P>,
        turn: Option<ArrivalTurn<'_, P>>,
    );
}

/// See the head of this file.
pub struct FrameWorkers<P: Platform, A> {
    above: A,
    /// That of driver `n` is input `n`, modulo their number.
    inputs: Box<[Arc<FrameInput<P>>]>,
    bound: Option<FrameBound>,
    threads: Lock<Vec<P::JoinHandle>, P>,
}

/// The workers.
pub struct WorkerThreads {
    /// Begins their names; a number follows, which is that of their CPU.
    pub name: &'static str,
    /// How many each input has, as the input was told.
    pub each: usize,
    /// The CPU of the first; the others follow.
    pub cpu: usize,
}

impl<P: Platform, A: AboveWorkers<P>> FrameWorkers<P, A> {
    /// Starts the workers of these inputs. `bound`: see [`RunningArchitecture::frame_bound`].
    pub fn start(
        above: A,
        inputs: Box<[Arc<FrameInput<P>>]>,
        workers: WorkerThreads,
        bound: Option<FrameBound>,
    ) -> Arc<Self> {
        let threads = Lock::new(LockKind::Blocking, LockClass::Control, Vec::new());
        let architecture = Arc::new(FrameWorkers { above, inputs, bound, threads });
        let spawn = |index: usize| {
            let architecture = architecture.clone();
            P::spawn(&format!("{}{index}", workers.name), Some(workers.cpu + index), ThreadClass::Protocol, move || {
                // It ends with the architecture, and its frames may be needed until then.
                let _passes = architecture.above.shared().gate().always();
                architecture.work(&architecture.inputs[index / workers.each], index % workers.each);
            })
        };
        let threads = (0..architecture.inputs.len() * workers.each).map(spawn).collect();
        *architecture.threads.lock() = threads;
        architecture
    }

    /// The loop of a worker: one frame after the other, then sleep.
    fn work(&self, input: &FrameInput<P>, worker: usize) {
        let mut carrier = None;
        while !input.is_stopped() {
            let Some(taken) = input.take() else {
                if !input.wait(worker) {
                    return;
                }
                continue;
            };
            if carrier.is_none() {
                carrier = input.carrier();
            }
            self.carry(taken, &mut carrier);
        }
    }

    /// Carries a frame to the end and performs its effects. A panic loses the frame, and the thread continues.
    fn carry(&self, mut taken: TakenFrame<'_, P>, carrier: &mut Option<Box<dyn CarriesFrames<P>>>) {
        let (shared, counters) = (self.above.shared(), self.above.counters());
        let carried = shared.failures.survive(counters, || {
            let mut owed = OwedEffects::new(shared.links());
            if let (Some(frame), Some(carrier)) = (taken.frame.take(), carrier) {
                carrier.carry(frame, self, counters, &mut owed.deferred);
                self.above.end_of_batch(&mut owed.deferred);
            }
        });
        if carried.is_none() {
            counters.count_drop(DropReason::ReceiverPanicked);
        }
    }

    fn end_workers(&self) {
        self.inputs.iter().for_each(|input| input.stop());
        for handle in std::mem::take(&mut *self.threads.lock()) {
            // A thread that panicked has reported it already.
            let _ = P::join(handle);
        }
    }
}

impl<P: Platform, A: AboveWorkers<P>> RunningArchitecture<P> for FrameWorkers<P, A> {
    fn frame_input(&self, driver: usize) -> Option<Arc<FrameInput<P>>> {
        self.inputs.get(driver.checked_rem(self.inputs.len())?).cloned()
    }

    fn frame_bound(&self) -> Option<FrameBound> {
        self.bound
    }

    /// By a worker, in the turn of its frame; by a receive thread or a timer, at once.
    fn post(&self, ingress: &mut Ingress, now: Time, deferred: &mut DeferredEffects<P>) {
        // Only an input that is alone has tickets.
        let turn = self.inputs.first().and_then(|input| input.turn());
        self.above.post_in_turn(ingress, now, deferred, turn);
    }

    fn end_of_batch(&self, deferred: &mut DeferredEffects<P>) {
        self.above.end_of_batch(deferred);
    }

    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        self.above.call(target, call, reply);
    }

    fn open(&self, request: &mut OpenRequest<P>) -> Result<Key, OpenRefused> {
        self.above.open(request)
    }

    fn is_home(&self, hash: u32) -> bool {
        self.above.is_home(hash)
    }

    fn send(&self, target: &Target, send: &mut tcp::Send) -> Option<Result<u32, tcp::Error>> {
        self.above.send(target, send)
    }

    fn receive(
        &self,
        target: &Target,
        event: tcp::Receive,
        received: &mut tcp::Received,
    ) -> Option<Result<(), tcp::Error>> {
        self.above.receive(target, event, received)
    }

    fn has_channels(&self) -> bool {
        self.above.has_channels()
    }

    fn tell(&self, target: &Target, message: CellMessage<P>) -> Result<(), CellMessage<P>> {
        self.above.tell(target, message)
    }

    fn use_tables(&self, work: &mut dyn FnMut()) -> bool {
        self.above.use_tables(work)
    }

    fn ask_tables(&self, job: TableJob) -> Reply {
        self.above.ask_tables(job)
    }

    fn tell_tables(&self, job: Box<dyn FnOnce() + Send>) {
        self.above.tell_tables(job);
    }

    fn udp(&self, call: &mut UdpCall<P>) -> UdpReply {
        self.above.udp(call)
    }

    fn control(&self, change: ControlRequest<P>) {
        self.above.control(change);
    }

    fn tick(&self, now: Time) {
        self.above.tick(now);
    }

    fn trim(&self) -> bool {
        self.above.trim()
    }

    fn retire(&self) {
        self.above.retire();
    }

    fn next_deadline(&self) -> Option<Time> {
        self.above.next_deadline()
    }

    fn is_quiescent(&self) -> bool {
        self.inputs.iter().all(|input| input.is_empty()) && self.above.is_quiescent()
    }

    fn stats(&self) -> StackStats {
        self.above.stats()
    }

    fn dissolve(&self) -> Result<Contents<P>, NotAtRest> {
        self.end_workers();
        for input in &self.inputs {
            let mut carrier = input.carrier();
            while let Some(taken) = input.take() {
                self.carry(taken, &mut carrier);
            }
        }
        self.above.dissolve()
    }

    fn shutdown(&self) {
        self.end_workers();
        self.above.shutdown();
    }
}
