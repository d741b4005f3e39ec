//! Threads that carry frames from an input through all layers up to the application, over the connections, tables and locks
//! of [`msgp`](super::msgp).
//!
//! What differs between architectures is how many inputs there are and how many workers each has: one input with many
//! workers is a pool, an input with one worker for each CPU has a thread for the frames of that CPU. A receive thread puts what
//! it receives into the input of its driver. Without an input, receive threads carry their frames themselves.
//!
//! Receive threads, callers and workers call this. What may never happen: a worker waits for a turn with a lock held; a
//! receive thread waits for a worker.

use std::sync::Arc;

use observe::{DropReason, Time};
use sync::{Lock, LockClass, LockKind, Platform, ThreadClass};

use super::frame_input::{CarriesFrames, FrameBound, FrameInput, TakenFrame};
use super::msgp::MsgP;
use super::{NotAtRest, RunningArchitecture};
use crate::call::{Call, ControlRequest, Ingress, Reply};
use crate::deferred::{DeferredEffects, OwedEffects};
use crate::flow::Target;
use crate::place::Contents;
use crate::stats::StackStats;
use crate::udp_call::{UdpCall, UdpReply};

/// See the head of this file.
pub struct FrameWorkers<P: Platform> {
    msgp: MsgP<P>,
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
}

impl<P: Platform> FrameWorkers<P> {
    /// Starts the workers of these inputs. `bound`: see [`RunningArchitecture::frame_bound`].
    pub fn start(
        msgp: MsgP<P>,
        inputs: Box<[Arc<FrameInput<P>>]>,
        workers: WorkerThreads,
        bound: Option<FrameBound>,
    ) -> Arc<Self> {
        let threads = Lock::new(LockKind::Blocking, LockClass::Control, Vec::new());
        let architecture = Arc::new(FrameWorkers { msgp, inputs, bound, threads });
        let spawn = |index: usize| {
            let architecture = architecture.clone();
            P::spawn(&format!("{}{index}", workers.name), Some(index), ThreadClass::Protocol, move || {
                // It ends with the architecture, and its frames may be needed until then.
                let _passes = architecture.msgp.shared().gate().always();
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
        let (shared, counters) = (self.msgp.shared(), self.msgp.counters());
        let carried = shared.failures.survive(counters, || {
            let mut owed = OwedEffects::new(shared.links());
            if let (Some(frame), Some(carrier)) = (taken.frame.take(), carrier) {
                carrier.carry(frame, self, counters, &mut owed.deferred);
            }
        });
        if carried.is_none() {
            counters.count_drop(DropReason::ReceiverPanicked);
        }
    }
}

impl<P: Platform> RunningArchitecture<P> for FrameWorkers<P> {
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
        self.msgp.arrive(ingress, now, deferred);
        drop(turn);
        self.msgp.run_handlers(now, deferred);
    }

    fn call(&self, target: &Target, call: &mut Call<P>, reply: &mut Reply) {
        self.msgp.call(target, call, reply);
    }

    fn udp(&self, call: &mut UdpCall<P>) -> UdpReply {
        self.msgp.udp(call)
    }

    fn control(&self, change: ControlRequest<P>) {
        self.msgp.control(change);
    }

    fn tick(&self, now: Time) {
        self.msgp.tick(now);
    }

    fn trim(&self) -> bool {
        self.msgp.trim()
    }

    fn next_deadline(&self) -> Option<Time> {
        self.msgp.next_deadline()
    }

    fn is_quiescent(&self) -> bool {
        self.inputs.iter().all(|input| input.is_empty())
    }

    fn stats(&self) -> StackStats {
        self.msgp.stats()
    }

    fn dissolve(&self) -> Result<Contents<P>, NotAtRest> {
        self.shutdown();
        for input in &self.inputs {
            let mut carrier = input.carrier();
            while let Some(taken) = input.take() {
                self.carry(taken, &mut carrier);
            }
        }
        self.msgp.dissolve()
    }

    fn shutdown(&self) {
        self.inputs.iter().for_each(|input| input.stop());
        for handle in std::mem::take(&mut *self.threads.lock()) {
            // A thread that panicked has reported it already.
            let _ = P::join(handle);
        }
    }
}
