//! Packets that are not plain segments: datagrams, fragments, ICMP and its relatives, packets for the address of another
//! interface.

use ip::Input;
use ip::icmp::ReceivedIcmp;
use observe::{Counters, DropReason, Time};
use path::Frame;
use sync::Platform;
use wire::FourTuple;

use super::Driver;
use crate::addresses::InterfaceContext;
use crate::call::{ArrivingDatagram, Ingress};
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
                Self::tcp(&self.shared, &*self.active, &self.rss, &self.counters, (datagram, followed), now, deferred);
            }
            Input::Udp(datagram) => self.udp(datagram, now, deferred),
            Input::Icmp(datagram) => self.icmp(interface, datagram, now, deferred),
            Input::Igmp(datagram) => match ip::igmp::receive(&datagram, &self.counters) {
                Ok(query) => {
                    self.shared.addresses().group_query_arrives(&mut self.context(interface, now, deferred), &query);
                }
                Err(reason) => Counters::drop(&self.counters, reason),
            },
            Input::Fragment(fragment) => {
                if let Some(whole) = self.shared.internet().fragment_arrives(
                    (self.shared.egress(), self.shared.control()),
                    fragment,
                    now,
                    &self.counters,
                    deferred,
                ) {
                    self.input(interface, (ip::input::reassembled(whole), false), now, deferred);
                }
            }
            Input::Arp(packet) => {
                self.shared.internet().arp_arrives(&mut self.context(interface, now, deferred), &packet);
            }
            Input::Elsewhere { packet, src, dst } => match self.shared.links().owner_of(dst) {
                Some(owner) if !self.shared.links().is_local(src) => {
                    let view = self.shared.links().view(owner);
                    let input = ip::input::for_another(packet, view, &self.counters);
                    self.input(owner, (input, followed), now, deferred);
                }
                _ => Counters::drop(&self.counters, DropReason::NotForUs),
            },
            Input::Refused(refused) => {
                Counters::drop(&self.counters, refused.reason);
                self.shared.egress().refuse(&refused.datagram, refused.error, &self.counters, deferred);
            }
            Input::Drop(reason) => Counters::drop(&self.counters, reason),
        }
    }

    fn udp(&mut self, datagram: ip::Datagram, now: Time, deferred: &mut DeferredEffects<P>) {
        let Ok(header) = wire::udp::parse(&datagram.buf) else {
            return Counters::drop(&self.counters, DropReason::UdpBadLength);
        };
        let tuple = FourTuple {
            local_addr: datagram.dst,
            local_port: header.dst_port,
            remote_addr: datagram.src,
            remote_port: header.src_port,
        };
        self.active.post(&mut Ingress::Datagram(ArrivingDatagram { tuple, datagram }), now, deferred);
    }

    fn icmp(&mut self, interface: usize, datagram: ip::Datagram, now: Time, deferred: &mut DeferredEffects<P>) {
        let view = self.shared.links().view(interface);
        let (local, protocol) = (datagram.dst, datagram.protocol);
        match ip::icmp::receive(datagram, view, &self.counters) {
            ReceivedIcmp::Reply { packet, destination } => {
                self.shared.egress().send_fragmented(packet, local, destination, protocol, &self.counters, deferred);
            }
            ReceivedIcmp::EchoReply { datagram, ident, seq } => self.shared.pings.arrived(&datagram, ident, seq, now),
            ReceivedIcmp::Error(error) if self.shared.routes().is_settled(self.shared.links(), &error) => {
                Counters::drop(&self.counters, DropReason::IcmpSettledPath);
            }
            ReceivedIcmp::Error(error) => {
                let hash = self.rss.hash_tcp(&error.tuple);
                self.active.post(&mut Ingress::IcmpError { hash, error }, now, deferred);
            }
            ReceivedIcmp::Neighbour(discovery) => {
                self.shared.internet().discovery_arrives(&mut self.context(interface, now, deferred), &discovery);
            }
            ReceivedIcmp::RouterAdvert { from, advert } => {
                let mut context = self.context(interface, now, deferred);
                self.shared.addresses().router_advert_arrives(&mut context, (from, &advert));
            }
            ReceivedIcmp::ListenerQuery(query) => {
                self.shared.addresses().group_query_arrives(&mut self.context(interface, now, deferred), &query);
            }
            ReceivedIcmp::Redirect(redirect) => {
                self.shared.addresses().redirect_arrives(&mut self.context(interface, now, deferred), &redirect);
            }
            ReceivedIcmp::Nothing => {}
        }
    }

    /// What acting on an event at an interface needs.
    fn context<'a>(
        &'a self,
        interface: usize,
        now: Time,
        deferred: &'a mut DeferredEffects<P>,
    ) -> InterfaceContext<'a, P> {
        InterfaceContext { egress: self.shared.egress(), interface, now, counters: &self.counters, deferred }
    }
}
