//! Packets that are not plain segments. Those for IP itself are processed in `rx/internet.rs`.

use ip::Input;
use observe::Time;
use path::Frame;
use sync::Platform;

use super::Driver;
use super::internet::PacketReceiver;
use crate::charge;
use crate::deferred::DeferredEffects;

impl<P: Platform> Driver<P> {
    /// A packet from a link without headers.
    #[inline(never)]
    pub(super) fn packet(&mut self, interface: usize, packet: Frame, now: Time, deferred: &mut DeferredEffects<P>) {
        charge::frame::<P>(&packet.buffer);
        let view = self.shared.links().view(interface);
        let input = ip::input::without_link(packet.buffer, view, &self.counters);
        self.input(interface, (input, packet.followed), now, deferred);
    }

    /// A frame with an FDDI header.
    #[inline(never)]
    pub(super) fn fddi(&mut self, interface: usize, frame: Frame, now: Time, deferred: &mut DeferredEffects<P>) {
        let Frame { buffer, headers, followed } = frame;
        charge::frame::<P>(&buffer);
        let (links, counters) = (self.shared.links(), &*self.counters);
        let view = (links.view(interface), &mut self.accepted);
        let segment = |datagram| {
            let around = (&*self.shared, &*self.active, &self.rss, counters);
            Self::tcp(around, Some(&mut self.run), (datagram, followed), now, deferred);
            None
        };
        if let Some(input) = ip::input::fddi_to(buffer, headers, view, counters, segment, Some) {
            self.input(interface, (input, followed), now, deferred);
        }
    }

    /// Classifies a frame that is not a plain segment. `followed`: data of the same connection follows directly.
    #[inline(never)]
    pub(super) fn input(
        &mut self,
        interface: usize,
        (input, followed): (Input, bool),
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) {
        match input {
            Input::Tcp(datagram) => {
                let around = (&*self.shared, &*self.active, &self.rss, &*self.counters);
                Self::tcp(around, Some(&mut self.run), (datagram, followed), now, deferred);
            }
            Input::Udp(datagram) => self.packets().udp(datagram, now, deferred),
            Input::Drop(reason) => self.counters.count_drop(reason),
            input => self.packets().deliver(interface, (input, followed), now, deferred),
        }
    }

    /// Where packets other than segments are processed.
    #[inline]
    pub(super) fn packets(&self) -> PacketReceiver<'_, P> {
        let Driver { shared, weak_slot, active, rss, counters, .. } = self;
        PacketReceiver { shared, slot: weak_slot, active: &**active, rss, counters }
    }
}
