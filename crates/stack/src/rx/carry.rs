//! Frames that workers take from an input ([`FrameInput`]): a worker's way from the frame to `post`.
//!
//! The receive thread has put the frame there as it came from the device. The rest is that of a driver, without its
//! prediction for the commonest segments.

use std::sync::{Arc, Weak};

use observe::{Counters, DropReason, Time};
use path::{StackInput, Vector};
use sync::Platform;
use wire::rss::Toeplitz;

use super::Driver;
use super::internet::PacketReceiver;
use crate::arch::RunningArchitecture;
use crate::arch::frame_input::{ArrivedFrame, CarriesFrames, FrameInput};
use crate::arch::running::ArchitectureSlot;
use crate::charge;
use crate::deferred::DeferredEffects;
use crate::shared::Shared;

/// One worker's way from a frame to `post`.
struct FrameCarrier<P: Platform> {
    shared: Arc<Shared<P>>,
    /// Not counted as a user: the architecture in the slot has this.
    slot: Weak<ArchitectureSlot<P>>,
    rss: Toeplitz,
}

impl<P: Platform> CarriesFrames<P> for FrameCarrier<P> {
    fn carry(
        &mut self,
        ArrivedFrame { interface, input, now, .. }: ArrivedFrame,
        active: &dyn RunningArchitecture<P>,
        counters: &Counters,
        deferred: &mut DeferredEffects<P>,
    ) {
        let FrameCarrier { shared, slot, rss } = self;
        let view = shared.links().view(interface);
        let (input, followed) = match input {
            StackInput::Frame(frame) => {
                sync::walk::note(file!(), "a worker takes the frame from the input");
                charge::frame::<P>(&frame.buffer);
                (ip::input::ethernet(frame.buffer, view, counters), frame.followed)
            }
            StackInput::Fddi(frame) => {
                charge::frame::<P>(&frame.buffer);
                (ip::input::fddi(frame.buffer, view, counters), frame.followed)
            }
            StackInput::Packet(packet) => {
                charge::frame::<P>(&packet.buffer);
                (ip::input::without_link(packet.buffer, view, counters), packet.followed)
            }
        };
        PacketReceiver { shared, slot, active, rss, counters }.deliver(interface, (input, followed), now, deferred);
    }
}

impl<P: Platform> Driver<P> {
    /// Reads from the architecture how many frames the driver takes in a turn, for which the next batch makes another vector,
    /// and the input for them. If there is an input, sets its carrier of frames.
    #[cold]
    pub(super) fn find_input(&mut self) {
        self.bound = self.active.frame_bound();
        (self.polled, self.shut) = (self.active.polls_rings(), false);
        self.vector = None;
        self.input = self.active.frame_input(self.index);
        self.run.enable(self.runs && self.active.takes_runs());
        let Some(input) = &self.input else { return };
        input.carry_by(|| {
            let (shared, slot, rss) = (self.shared.clone(), Arc::downgrade(&self.slot), self.rss.clone());
            Box::new(move || Box::new(FrameCarrier { shared: shared.clone(), slot: slot.clone(), rss: rss.clone() }))
        });
    }

    /// Gives a batch of frames to the workers of the input; without such threads this one does their work.
    #[cold]
    pub(super) fn share(
        &mut self,
        input: &FrameInput<P>,
        (interface, vector): (usize, &mut Vector),
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) {
        // A panic may have left frames for this thread.
        if vector.is_empty() && (input.has_workers() || input.is_empty()) {
            return;
        }
        sync::walk::note(file!(), "puts the frames into an input of workers");
        let (framing, mut frames) = (vector.framing(), std::mem::take(&mut self.arrived));
        frames.extend(vector.drain().map(|mut frame| {
            let hash = frame.buffer.meta().flow_hash;
            let hash = hash.or_else(|| Some(self.rss.hash_tcp(&frame.headers.receiver_tuple(&frame.buffer)?)));
            frame.buffer.meta_mut().flow_hash = hash;
            ArrivedFrame { interface, input: frame.ingress(framing), now, hash }
        }));
        let refused = input.put(&mut frames);
        self.arrived = frames;
        Counters::count_drops(&self.counters, DropReason::InputQueueFull, refused as u64);
        if input.has_workers() {
            return;
        }
        while let Some(mut taken) = input.take() {
            if let Some(ArrivedFrame { interface, input, now, .. }) = taken.frame.take() {
                self.unserved = 1;
                self.ingress(interface, input, now, deferred);
                self.served((0, false), now, deferred);
            }
        }
    }
}
