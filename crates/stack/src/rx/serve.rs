//! The loop of a receive thread, and its handling of panics.

use observe::{Counters, DropReason};
use sync::{Atomic, Ordering, Platform};

use super::{Driver, RxSource};
use crate::attempt::{Panic, attempt};
use crate::call::ControlRequest;
use crate::containment::{FaultScope, PANICS_IN_A_ROW};
use crate::deferred::DeferredEffects;

impl<P: Platform> Driver<P> {
    /// The loop of a receive thread: batches while there are frames, sleep when there are none, until `stop` is set and
    /// the thread woken. It outlives its devices: timers and, under `up`, callers still need it. Calls `on_gone` once,
    /// when every device has vanished or been given up.
    ///
    /// A panic loses the work in progress. After repeated panics without progress in between, the device that they come
    /// from is given up, as if unplugged; if they come from no device, the thread is given up with all its devices.
    pub fn serve(&mut self, stop: &P::AtomicBool, on_gone: impl FnOnce()) {
        let mut on_gone = Some(on_gone);
        while !stop.load(Ordering::Acquire) && self.panics <= PANICS_IN_A_ROW {
            match self.contained(Self::turn) {
                Some(0) => {}
                Some(_) => {
                    self.panics = 0;
                    if !self.ends_interrupt() {
                        continue;
                    }
                }
                None => continue,
            }
            if self.gone()
                && let Some(on_gone) = on_gone.take()
            {
                self.contained(|_, _| on_gone());
            }
            let waits = |driver: &mut Self, deferred: &mut DeferredEffects<P>| {
                deferred.release_set();
                driver.wait(None)
            };
            if self.contained(waits).is_some() {
                self.panics = 0;
            }
        }
        if let Some(on_gone) = on_gone.filter(|_| self.panics > PANICS_IN_A_ROW) {
            on_gone();
        }
    }

    /// After a turn with frames. Where the architecture bounds turns, the thread waits for its device's next interrupt if its
    /// frames are processed by other threads (true), and otherwise lets others run before its next turn. It can wait for one
    /// queue only.
    fn ends_interrupt(&self) -> bool {
        let waits = self.bound.is_some() && self.passes_frames_on() && self.sources.len() == 1;
        if self.bound.is_some() && !waits {
            P::yield_now();
        }
        waits
    }

    /// Does one piece of work. `None`: it panicked.
    fn contained<R>(&mut self, work: impl FnOnce(&mut Self, &mut DeferredEffects<P>) -> R) -> Option<R> {
        let mut deferred = self.deferred.take().unwrap_or_default();
        let done = attempt(|| work(self, &mut deferred));
        let done = done.map_err(|panic| self.inside(|driver| driver.survive(panic, &mut deferred))).ok();
        self.deferred = Some(deferred);
        done
    }

    /// Records a panic, gives up a device or thread that panicked too often, and performs the effects of earlier
    /// events.
    #[cold]
    fn survive(&mut self, panic: Panic, deferred: &mut DeferredEffects<P>) {
        // A frame was consumed, so this counts as progress: the next one may not panic.
        self.panics = if self.unserved > 0 { 0 } else { self.panics + 1 };
        let source = self.sources.get(self.at).map(|source| source.port);
        let scope = match source {
            _ if self.panics < PANICS_IN_A_ROW => FaultScope::Work,
            Some(port) => FaultScope::Device(port),
            None => FaultScope::Thread,
        };
        self.shared.failures.note(panic, scope.clone(), &self.shared.counters);
        Counters::count_drops(&self.counters, DropReason::ReceiverPanicked, std::mem::take(&mut self.unserved));
        self.run.clear();
        // The effects of the events before it must still be performed.
        let rest = attempt(|| {
            self.shared.failures.notify_pending();
            deferred.flush(self.shared.links());
            self.active.end_of_batch(deferred);
        });
        if rest.is_err() {
            *deferred = DeferredEffects::default();
        }
        match scope {
            FaultScope::Device(_) => {
                let source = self.sources.remove(self.at);
                self.take_down(source);
                self.panics = 0;
            }
            FaultScope::Thread => {
                while let Some(source) = self.sources.pop() {
                    self.take_down(source);
                }
                self.panics = PANICS_IN_A_ROW + 1;
            }
            _ => {}
        }
        self.at = self.sources.len();
    }

    /// Takes a device out of use. If it was its interface's last, connections through the interface end, and none can
    /// be opened through it.
    fn take_down(&self, RxSource { port, interface, queue, .. }: RxSource<P>) {
        let _ = attempt(|| drop(queue));
        let last = self.set_port_down(port, interface, true);
        if let Some(interface) = interface.filter(|_| last) {
            let _ = attempt(|| self.active.control(ControlRequest::LinkDown(interface)));
        }
    }
}
