//! Packets from the stack to itself.

use observe::{Counter, DropReason, Time};
use path::Frame;
use pktbuf::PktBuf;
use sync::Platform;
use wire::Framing;

use super::{Driver, DriverBatches};
use crate::charge;
use crate::deferred::DeferredEffects;

impl<P: Platform> Driver<P> {
    /// Takes one batch of loopback packets.
    #[cold]
    #[inline(never)]
    pub(super) fn take_loopback(&mut self, taken: &mut DriverBatches, deferred: &mut DeferredEffects<P>) {
        let mut vector = self.take_vector();
        let Some(receiver) = &mut self.loopback else { return };
        receiver.begin();
        charge::batch::<P>();
        let count = vector.receive(receiver.queue.as_mut(), Framing::Packet, self.keeps_batches);
        if count == vector.most() {
            receiver.keep_raised();
        }
        if count != 0 {
            self.counters.add(Counter::FramesIn, count as u64);
            self.counters.increment(Counter::RxBatches);
        }
        taken.frames += count;
        taken.full |= count == vector.most();
        let mut left = count as u64;
        self.unserved = left;
        for Frame { buffer, followed, .. } in vector.drain() {
            self.looped(buffer, followed, taken.now, deferred);
            left -= 1;
            self.served((left, followed), taken.now, deferred);
        }
        self.vector = Some(vector);
    }

    /// A loopback packet: it arrives at the interface that has its destination or, to a group, is a member of it.
    fn looped(&mut self, packet: PktBuf, followed: bool, now: Time, deferred: &mut DeferredEffects<P>) {
        charge::frame::<P>(&packet);
        let destination = ip::input::destination(&packet);
        let Some(owner) = destination.and_then(|destination| self.shared.links().owner_including_loopback(destination))
        else {
            // The address was given up meanwhile.
            return self.counters.count_drop(DropReason::NotForUs);
        };
        let view = self.shared.links().view(owner);
        let input = ip::input::looped_back(packet, view, &self.counters);
        self.input(owner, (input, followed), now, deferred);
    }
}
