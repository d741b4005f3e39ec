//! A host made of this crate alone, and the frames that an untrusted station on its link can send.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use frames::{Checksum, Datagram, Ends, Fragment, Icmp, Packet, Payload};
use ip::icmp::{self, ReceivedIcmp};
use ip::input::{self, Input};
use ip::{InterfaceView, NeighbourTable, PerDestination, Reassembled, ReassemblyTable, Refused};
use observe::{Counters, DropReason, Time};
use pktbuf::PktBuf;
use wire::ethernet::MacAddr;

pub const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
pub const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub const OURS6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub const PEER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
/// The link header.
pub const L3: usize = 14;

/// The outcome of a frame.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing at all.
    Silence,
    /// Delivered to a transport: protocol and payload.
    Delivered(u8, Vec<u8>),
    /// A fragment waits.
    Held,
    /// This packet, from its network header on, is sent back to the sender.
    Reply(Vec<u8>),
}

impl Outcome {
    pub fn is_silence(&self) -> bool {
        matches!(self, Outcome::Silence)
    }

    /// ICMP type and code of a reply.
    pub fn reply(&self) -> Option<(u8, u8)> {
        match self {
            Outcome::Reply(packet) if packet[0] >> 4 == 4 => Some((packet[20], packet[21])),
            Outcome::Reply(packet) => Some((packet[40], packet[41])),
            _ => None,
        }
    }
}

pub struct Host {
    pub view: InterfaceView,
    pub neighbours: NeighbourTable,
    pub reassembly: ReassemblyTable,
    pub limit: PerDestination,
    pub counters: Counters,
    pub now: Time,
}

impl Host {
    pub fn new() -> Self {
        let view = InterfaceView::new(0, OUR_MAC, 1500);
        let view = view.with_address(OURS.into(), 8).expect("a good address");
        Self {
            view: view.with_address(OURS6.into(), 64).expect("a good address"),
            neighbours: NeighbourTable::new(1),
            reassembly: ReassemblyTable::new(),
            limit: PerDestination::errors(1),
            counters: Counters::new(),
            now: Time::from_secs(1000),
        }
    }

    /// Takes a frame as the stack does: input, then the step for its kind. Errors for unbound ports belong to the
    /// transports, not to this crate.
    pub fn takes(&mut self, frame: &[u8]) -> Outcome {
        let buffer = PktBuf::from_slice(frame).expect("a buffer");
        let input = input::ethernet(buffer, &self.view, &self.counters);
        self.goes_on(input)
    }

    fn goes_on(&mut self, input: Input) -> Outcome {
        match input {
            Input::Tcp(d) | Input::Udp(d) => Outcome::Delivered(d.protocol, d.buf.to_vec()),
            Input::Icmp(datagram) => match icmp::receive(datagram, &self.view, &self.counters) {
                ReceivedIcmp::Reply { packet, .. } => Outcome::Reply(packet.to_vec()),
                ReceivedIcmp::Neighbour(discovery) => {
                    self.neighbours.discovery_arrives(self.now, &self.view, &discovery, &self.counters);
                    Outcome::Silence
                }
                _ => Outcome::Silence,
            },
            Input::Igmp(datagram) => {
                if let Err(reason) = ip::igmp::receive(&datagram, &self.counters) {
                    self.counters.count_drop(reason);
                }
                Outcome::Silence
            }
            Input::Fragment(fragment) => match self.reassembly.insert(self.now, fragment, &self.counters) {
                Reassembled::Whole(datagram) => self.goes_on(input::reassembled(datagram)),
                Reassembled::Refused(refused) => self.refuses(&refused),
                Reassembled::Pending => Outcome::Held,
            },
            Input::Arp(packet) => {
                self.neighbours.arp_arrives(self.now, &self.view, &packet, &self.counters);
                Outcome::Silence
            }
            Input::Refused(refused) => self.refuses(&refused),
            Input::Elsewhere { .. } => {
                self.counters.count_drop(DropReason::NotForUs);
                Outcome::Silence
            }
            Input::Drop(reason) => {
                self.counters.count_drop(reason);
                Outcome::Silence
            }
        }
    }

    fn refuses(&mut self, refused: &Refused) -> Outcome {
        self.counters.count_drop(refused.reason);
        let error = icmp::error(&refused.datagram, refused.error, &self.view, &mut self.limit, self.now);
        error.map_or(Outcome::Silence, |packet| Outcome::Reply(packet.to_vec()))
    }

    /// As [`Host::takes`], and checks the reply against the rules for replies.
    pub fn answers_by_the_rules(&mut self, name: &str, frame: &[u8]) -> Outcome {
        let outcome = self.takes(frame);
        if let Outcome::Reply(packet) = &outcome {
            let v6 = packet[0] >> 4 == 6;
            let (longest, to) = if v6 { (1280, PEER6.into()) } else { (576, IpAddr::V4(PEER)) };
            let echo = matches!(outcome.reply(), Some((0 | 129, 0)));
            assert!(echo || packet.len() <= longest, "{name}: {} bytes", packet.len());
            let cause = frame.len() - L3;
            assert!(packet.len() <= if v6 { cause + 48 } else { cause.max(96) }, "{name}: amplified {cause}");
            let destination: IpAddr = match packet.get(16..20).and_then(|four| <[u8; 4]>::try_from(four).ok()) {
                Some(four) if !v6 => four.into(),
                _ => <[u8; 16]>::try_from(&packet[24..40]).expect("sixteen bytes").into(),
            };
            assert_eq!(destination, to, "{name}: to whom");
        }
        outcome
    }
}

/// Runs an attack and checks that every buffer was freed.
pub fn balanced(attack: impl FnOnce()) {
    let before = pktbuf::balance();
    attack();
    assert_eq!(pktbuf::balance(), before, "buffers are given back");
}

/// From the peer to us.
pub fn ends(v6: bool) -> Ends {
    let (src, dst) = if v6 { (PEER6.into(), OURS6.into()) } else { (PEER.into(), OURS.into()) };
    Ends { src_mac: PEER_MAC, dst_mac: OUR_MAC, src, dst }
}

/// A packet from the peer to us, which routers may fragment.
pub fn packet<'a>(v6: bool, payload: impl Into<Payload<'a>>) -> Packet<'a> {
    let fragment = (!v6).then_some(Fragment { ident: 7, ..Fragment::default() });
    Packet { fragment, dont_fragment: false, ..ends(v6).packet(payload) }
}

/// A packet from the peer to us in a frame. `protocol` may name extension headers at the start of `payload`.
pub fn frame(v6: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
    ends(v6).frame(packet(v6, Payload::Other(protocol, payload))).bytes()
}

/// A UDP datagram of `len` bytes of data, checksum none over IPv4 and right over IPv6.
pub fn udp(v6: bool, len: usize) -> Vec<u8> {
    let checksum = if v6 { Checksum::Right } else { Checksum::Value(0) };
    let data = vec![0x55; len];
    Payload::from(Datagram { checksum, ..Datagram::new(0x1000, 0x2000, &data) }).bytes(ends(v6).src, ends(v6).dst)
}

/// An echo request as payload, checksum right.
pub fn echo(v6: bool, len: usize) -> Vec<u8> {
    Payload::from(Icmp::echo_request(v6, &vec![0x66; len])).bytes(ends(v6).src, ends(v6).dst)
}

/// An echo request in a frame.
pub fn ping(v6: bool, len: usize) -> Vec<u8> {
    ends(v6).frame(packet(v6, Icmp::echo_request(v6, &vec![0x66; len]))).bytes()
}

/// A good packet of each family still gets its answer.
pub fn still_lives(host: &mut Host) {
    for v6 in [false, true] {
        let expected = if v6 { (129, 0) } else { (0, 0) };
        assert_eq!(host.takes(&ping(v6, 56)).reply(), Some(expected), "the control");
    }
}
