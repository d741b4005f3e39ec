//! Input for IP itself: ARP, neighbour discovery, ICMP, IGMP and fragments, and the timers of IP.
//!
//! These packets read and change the tables of IP (routes, neighbours, fragments, addresses, limits), so they are
//! processed where the architecture allows that: by the thread that received them, or by the thread that owns the
//! tables, to which they are sent. The result of a packet (a whole datagram, an error for a connection) is posted to
//! the architecture once the tables are released.

use std::sync::{Arc, Weak};

use ip::Input;
use ip::icmp::ReceivedIcmp;
use observe::{Counters, DropReason, Time};
use sync::Platform;
use wire::FourTuple;
use wire::rss::Toeplitz;

use super::Driver;
use crate::addresses::InterfaceContext;
use crate::arch::RunningArchitecture;
use crate::arch::running::ArchitectureSlot;
use crate::call::{ArrivingDatagram, Ingress};
use crate::charge;
use crate::deferred::DeferredEffects;
use crate::shared::Shared;

/// The remaining work for a packet once the tables of IP have been used.
enum PacketOutcome {
    /// Nothing.
    Done,
    /// It is, or was a part of, this packet for an interface.
    Input(usize, Input),
    /// It reports an error to a connection or socket.
    Error(ip::ReceivedIcmpError),
}

/// Where packets of one driver are processed.
#[derive(Clone, Copy)]
pub(super) struct PacketReceiver<'a, P: Platform> {
    pub shared: &'a Arc<Shared<P>>,
    pub slot: &'a Weak<ArchitectureSlot<P>>,
    pub active: &'a dyn RunningArchitecture<P>,
    pub rss: &'a Toeplitz,
    pub counters: &'a Counters,
}

impl<P: Platform> PacketReceiver<'_, P> {
    /// Processes a packet, here or on the thread that owns the tables of IP.
    /// `followed`: data of the same connection follows directly.
    pub(super) fn deliver(
        &self,
        interface: usize,
        (input, followed): (Input, bool),
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) {
        let mut next = Some((interface, input));
        while let Some((interface, input)) = next.take() {
            match input {
                Input::Tcp(datagram) => {
                    let PacketReceiver { shared, active, rss, counters, .. } = *self;
                    let around = (&**shared, active, rss, counters);
                    return Driver::tcp(around, None, (datagram, followed), now, deferred);
                }
                Input::Udp(datagram) => return self.udp(datagram, now, deferred),
                input => next = self.use_tables(interface, input, now, deferred),
            }
        }
    }

    /// Passes a packet to IP; returns the packet that it has become, if any.
    fn use_tables(
        &self,
        interface: usize,
        input: Input,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> Option<(usize, Input)> {
        let (mut input, mut rest) = (Some(input), PacketOutcome::Done);
        self.active.use_tables(&mut || {
            if let Some(input) = input.take() {
                rest = self.packet(interface, input, now, deferred);
            }
        });
        if let Some(input) = input {
            self.hand_over(interface, input);
        }
        match rest {
            PacketOutcome::Done => None,
            PacketOutcome::Input(interface, input) => Some((interface, input)),
            PacketOutcome::Error(error) => {
                self.post(error, now, deferred);
                None
            }
        }
    }

    /// Sends a packet to the thread that owns the tables.
    #[cold]
    fn hand_over(&self, interface: usize, input: Input) {
        let (shared, weak, rss) = (self.shared.clone(), self.slot.clone(), self.rss.clone());
        self.active.tell_tables(Box::new(move || {
            let Some(slot) = weak.upgrade() else { return shared.counters.count_drop(DropReason::InputQueueFull) };
            let (now, mut deferred) = (shared.clock().now(), DeferredEffects::default());
            let active = &*slot.get().active;
            let receiver =
                PacketReceiver { shared: &shared, slot: &weak, active, rss: &rss, counters: &shared.counters };
            receiver.deliver(interface, (input, false), now, &mut deferred);
            deferred.flush(shared.links());
            active.end_of_batch(&mut deferred);
        }));
    }

    fn post(&self, error: ip::ReceivedIcmpError, now: Time, deferred: &mut DeferredEffects<P>) {
        let hash = self.rss.hash_tcp(&error.tuple);
        self.active.post(&mut Ingress::IcmpError { hash, error }, now, deferred);
    }

    /// Posts a datagram.
    pub(super) fn udp(&self, datagram: ip::Datagram, now: Time, deferred: &mut DeferredEffects<P>) {
        charge::checked::<P>(&datagram.buf);
        let Ok(header) = wire::udp::parse(&datagram.buf) else {
            return self.counters.count_drop(DropReason::UdpBadLength);
        };
        let tuple = FourTuple {
            local_addr: datagram.dst,
            local_port: header.dst_port,
            remote_addr: datagram.src,
            remote_port: header.src_port,
        };
        self.active.post(&mut Ingress::Datagram(ArrivingDatagram { tuple, datagram }), now, deferred);
    }

    /// IP's own timers, if the calling thread may use the tables. Otherwise their owner runs them.
    #[cold]
    pub(super) fn timeouts(&self, now: Time, deferred: &mut DeferredEffects<P>) {
        let mut lost = None;
        self.active.use_tables(&mut || {
            let ways = (self.shared.egress(), self.shared.control());
            lost = Some(self.shared.internet().timeouts(ways, now, self.counters, deferred));
        });
        lost.into_iter().flatten().for_each(|error| self.post(error, now, deferred));
        self.active.end_of_batch(deferred);
    }

    /// A packet that is neither a segment nor a datagram. The calling thread may use the tables of IP.
    fn packet(&self, interface: usize, input: Input, now: Time, deferred: &mut DeferredEffects<P>) -> PacketOutcome {
        let (shared, counters) = (self.shared, self.counters);
        match input {
            Input::Tcp(_) | Input::Udp(_) => return PacketOutcome::Input(interface, input),
            Input::Icmp(datagram) => return self.icmp(interface, datagram, now, deferred),
            Input::Igmp(datagram) => match ip::igmp::receive(&datagram, counters) {
                Ok(query) => {
                    shared.addresses().group_query_arrives(&mut self.context(interface, now, deferred), &query);
                }
                Err(reason) => counters.count_drop(reason),
            },
            Input::Fragment(fragment) => {
                let ways = (shared.egress(), shared.control());
                let whole = shared.internet().fragment_arrives(ways, fragment, now, counters, deferred);
                let whole = whole.map(|whole| PacketOutcome::Input(interface, ip::input::reassembled(whole)));
                return whole.unwrap_or(PacketOutcome::Done);
            }
            Input::Arp(packet) => {
                shared.internet().arp_arrives(&mut self.context(interface, now, deferred), &packet);
            }
            Input::Elsewhere { packet, src, dst } => match shared.links().owner_of(dst) {
                Some(owner) if !shared.links().is_local(src) => {
                    let view = shared.links().view(owner);
                    return PacketOutcome::Input(owner, ip::input::for_another(packet, view, counters));
                }
                _ => counters.count_drop(DropReason::NotForUs),
            },
            Input::Refused(refused) => {
                counters.count_drop(refused.reason);
                shared.egress().refuse(&refused.datagram, refused.error, counters, deferred);
            }
            Input::Drop(reason) => counters.count_drop(reason),
        }
        PacketOutcome::Done
    }

    fn icmp(
        &self,
        interface: usize,
        datagram: ip::Datagram,
        now: Time,
        deferred: &mut DeferredEffects<P>,
    ) -> PacketOutcome {
        let (shared, counters) = (self.shared, self.counters);
        let (local, protocol) = (datagram.dst, datagram.protocol);
        match ip::icmp::receive(datagram, shared.links().view(interface), counters) {
            ReceivedIcmp::Reply { packet, destination } => {
                shared.egress().send_fragmented(packet, local, destination, protocol, counters, deferred);
            }
            ReceivedIcmp::EchoReply { datagram, ident, seq } => shared.pings.arrived(&datagram, ident, seq, now),
            ReceivedIcmp::Error(error) if shared.routes().is_settled(shared.links(), &error) => {
                counters.count_drop(DropReason::IcmpSettledPath);
            }
            ReceivedIcmp::Error(error) => return PacketOutcome::Error(error),
            ReceivedIcmp::Neighbour(discovery) => {
                shared.internet().discovery_arrives(&mut self.context(interface, now, deferred), &discovery);
            }
            ReceivedIcmp::RouterAdvert { from, advert } => {
                let mut context = self.context(interface, now, deferred);
                shared.addresses().router_advert_arrives(&mut context, (from, &advert));
            }
            ReceivedIcmp::ListenerQuery(query) => {
                shared.addresses().group_query_arrives(&mut self.context(interface, now, deferred), &query);
            }
            ReceivedIcmp::Redirect(redirect) => {
                shared.addresses().redirect_arrives(&mut self.context(interface, now, deferred), &redirect);
            }
            ReceivedIcmp::Nothing => {}
        }
        PacketOutcome::Done
    }

    /// The parts needed to process an event at an interface.
    fn context<'b>(
        &'b self,
        interface: usize,
        now: Time,
        deferred: &'b mut DeferredEffects<P>,
    ) -> InterfaceContext<'b, P> {
        InterfaceContext { egress: self.shared.egress(), interface, now, counters: self.counters, deferred }
    }
}
