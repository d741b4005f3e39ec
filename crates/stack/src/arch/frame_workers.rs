//! Threads that carry frames from an input up to the connections, which another architecture keeps.
//!
//! Architectures differ in the number of inputs and in the number of workers of each: one input with many workers is a
//! pool; an input with one worker for each CPU has a thread for the frames of that CPU. They also differ in whether a
//! worker runs the event of its frame itself ([`msgp`](super::msgp)), or leaves it to the thread that owns the
//! connection. A receive thread puts its frames into the input of its driver. Without an input, receive threads carry
//! their frames themselves.
//!
//! Receive threads, callers and workers call this. What may never happen: a worker waits for a turn with a lock held; a
//! receive thread waits for a worker.

use std::sync::Arc;

use observe::{Counters, DropReason, Time};
use sync::{Platform, ThreadClass};

use super::frame_input::{ArrivalTurn, CarriesFrames, FrameBound, FrameInput, TakenFrame};
use super::own_threads::OwnThreads;
use super::passes_on::passes_on;
use super::{NotAtRest, RunningArchitecture};
use crate::call::Ingress;
use crate::deferred::{DeferredEffects, EffectsGuard};
use crate::place::Contents;
use crate::shared::Shared;

/// The architecture that keeps the connections to which workers carry frames.
pub trait AboveWorkers<P: Platform>: RunningArchitecture<P> + 'static {
    /// The stack.
    fn shared(&self) -> &Arc<Shared<P>>;

    /// The counters for the calling thread's work below the connections.
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
    threads: OwnThreads<P>,
}

/// The workers.
pub struct WorkerThreads {
    /// Begins their names; a number follows, which is that of their CPU.
    pub name: &'static str,
    /// The number of workers of each input.
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
        let architecture = Arc::new(FrameWorkers { above, inputs, bound, threads: OwnThreads::none() });
        let (carrying, each) = (architecture.clone(), workers.each);
        let cpus = workers.cpu..workers.cpu + architecture.inputs.len() * each;
        let work = move |index: usize| carrying.work(&carrying.inputs[index / each], index % each);
        architecture.threads.start(architecture.above.shared(), (workers.name, ThreadClass::Protocol), cpus, work);
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
            let mut effects = EffectsGuard::new(shared.links());
            if let (Some(frame), Some(carrier)) = (taken.frame.take(), carrier) {
                carrier.carry(frame, self, counters, &mut effects.deferred);
                self.above.end_of_batch(&mut effects.deferred);
            }
        });
        if carried.is_none() {
            counters.count_drop(DropReason::ReceiverPanicked);
        }
    }

    fn end_workers(&self) {
        self.inputs.iter().for_each(|input| input.stop());
        self.threads.join();
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

    passes_on!(self => self.above);

    fn tick(&self, now: Time) {
        self.above.tick(now);
    }

    fn is_quiescent(&self) -> bool {
        self.inputs.iter().all(|input| input.is_empty()) && self.above.is_quiescent()
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
