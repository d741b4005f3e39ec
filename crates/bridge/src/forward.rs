//! The decision about one frame: the frame relay of IEEE 802.1D-2004 section 7.7 with the VLANs of 802.1Q section 8.6.
//!
//! [`forward`] looks addresses up, learns and decides; it moves no frame. The [`Decision`] has the port by which the frame
//! leaves and the change to its tag, or states that the frame is flooded; [`Flood::egress`] then yields the ports. A
//! frame between two known stations costs two look-ups, and visits no port but these two.

use observe::{Counter, Counters, DropReason, Time};
use wire::ethernet::{self, MacAddr, VlanTag};

use crate::PortNumber;
use crate::fdb::{self, Fdb, FdbKey, Learned, LearnedSource};
use crate::members::{Member, Members, PortState};
use crate::port_set::WORD;
use crate::storm::{FloodKind, StormControl};
use crate::vlan::{TagAction, Vid};

/// The fields of a received frame that forwarding reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The port that received it.
    pub port: PortNumber,
    /// Its destination.
    pub dst: MacAddr,
    /// Its source.
    pub src: MacAddr,
    /// Its tag, if it has one.
    pub tag: Option<VlanTag>,
    /// Bytes after the link header; of a super-segment those of its longest segment.
    pub payload: usize,
}

impl Arrival {
    /// Of a frame that begins at its Ethernet header. A tag with another type than 0x8100 (802.1ad) is data.
    ///
    /// # Errors
    /// [`DropReason::FrameTooShort`].
    #[inline]
    pub fn of(port: PortNumber, frame: &[u8]) -> Result<Arrival, DropReason> {
        let (header, payload) = ethernet::parse(frame).map_err(|_| DropReason::FrameTooShort)?;
        let tag = if payload == ethernet::HEADER_LEN { None } else { ethernet::vlan_tag(frame) };
        Ok(Arrival { port, dst: header.dst, src: header.src, tag, payload: frame.len() - payload })
    }

    /// The same for a super-segment, where the frames that are made of it have at most `longest` bytes behind their link
    /// header.
    #[inline]
    pub fn cut_to(self, longest: usize) -> Arrival {
        Arrival { payload: self.payload.min(longest), ..self }
    }
}

/// The destination of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It leaves by one port.
    Forward(ForwardedFrame),
    /// It leaves by [these](Flood::egress).
    Flood(Flood),
    /// It is for the bridge's spanning tree.
    Bpdu,
    /// It is dropped; the caller counts the reason.
    Drop(DropReason),
}

/// One copy of a forwarded frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedFrame {
    /// By this port.
    pub port: PortNumber,
    /// After this change to its tag.
    pub tag: TagAction,
}

/// A frame that is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood {
    kind: FloodKind,
    from: PortNumber,
    vlan: Option<Vid>,
    tag: Option<VlanTag>,
    payload: usize,
}

impl Flood {
    /// Why it is flooded.
    pub fn kind(&self) -> FloodKind {
        self.kind
    }

    /// The ports by which it leaves, in order. A port whose MTU is too small for the frame is omitted and counted as
    /// [`DropReason::FrameTooLong`]; if there is no port at all, [`DropReason::BridgeNoPort`] is counted.
    #[inline]
    pub fn egress<'a>(self, members: &'a Members, counters: &'a Counters) -> FloodPorts<'a> {
        FloodPorts { flood: self, members, counters, at: 0, word: self.word(members, 0), any: false }
    }

    #[inline]
    fn word(&self, members: &Members, at: usize) -> u64 {
        let vlan = members.vlan(self.vlan).map(|(_, vlan)| vlan);
        members.open_word(at, self.kind, vlan, self.from)
    }
}

/// See [`Flood::egress`].
pub struct FloodPorts<'a> {
    flood: Flood,
    members: &'a Members,
    counters: &'a Counters,
    at: usize,
    word: u64,
    any: bool,
}

impl FloodPorts<'_> {
    #[inline]
    fn next_port(&mut self) -> Option<PortNumber> {
        while self.word == 0 {
            self.at += 1;
            if self.at >= self.members.open_words(self.flood.kind) {
                return None;
            }
            self.word = self.flood.word(self.members, self.at);
        }
        let bit = self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        PortNumber::new((self.at * WORD + bit) as u16)
    }
}

impl Iterator for FloodPorts<'_> {
    type Item = ForwardedFrame;

    #[inline]
    fn next(&mut self) -> Option<ForwardedFrame> {
        loop {
            let Some(port) = self.next_port() else {
                if !self.any {
                    self.any = true;
                    self.counters.count_drop(DropReason::BridgeNoPort);
                }
                return None;
            };
            self.any = true;
            if self.members.get(port).is_none_or(|member| self.flood.payload > member.config.mtu) {
                self.counters.count_drop(DropReason::FrameTooLong);
                continue;
            }
            let vlan = self.members.vlan(self.flood.vlan);
            return Some(ForwardedFrame { port, tag: Members::action(vlan, self.flood.tag, port) });
        }
    }
}

/// Whether an address is one of 01-80-C2-00-00-00 to 0F, which no bridge forwards, whether or not it has the protocol
/// (IEEE 802.1D-2004 table 7-10).
#[inline]
fn is_reserved(address: MacAddr) -> bool {
    let [a, b, c, d, e, f] = address.0;
    [a, b, c, d, e] == [0x01, 0x80, 0xc2, 0x00, 0x00] && f & 0xf0 == 0
}

/// Decides about one frame, learns its source, and counts what it learned. `storm` is that of the port that received
/// it.
#[inline]
pub fn forward(
    members: &Members,
    table: &mut impl Fdb,
    storm: &mut impl StormControl,
    frame: &Arrival,
    counters: &Counters,
    now: Time,
) -> Decision {
    let Some(member) = members.get(frame.port) else { return Decision::Drop(DropReason::InterfaceDown) };
    if !frame.src.is_unicast() {
        return Decision::Drop(DropReason::FrameBadSource);
    }
    if is_reserved(frame.dst) {
        return match (frame.dst == wire::stp::GROUP, frame.tag) {
            (true, None) => Decision::Bpdu,
            (true, Some(_)) => Decision::Drop(DropReason::BpduIgnored),
            (false, _) => Decision::Drop(DropReason::BridgeReservedAddress),
        };
    }
    if member.state == PortState::Discarding {
        return Decision::Drop(DropReason::BridgePortBlocked);
    }
    let vlan = match members.classify(frame.port, member, frame.tag) {
        Ok(vlan) => vlan,
        Err(reason) => return Decision::Drop(reason),
    };
    if member.config.learning {
        let limit = member.config.max_addresses;
        let source = LearnedSource { key: FdbKey::new(frame.src, vlan), port: frame.port, limit };
        count_learned(fdb::learn(table, source, now), counters);
    }
    if member.state != PortState::Forwarding {
        return Decision::Drop(DropReason::BridgePortBlocked);
    }
    let kind = if frame.dst.is_multicast() {
        if frame.dst.is_broadcast() { FloodKind::Broadcast } else { FloodKind::Multicast }
    } else {
        match table.look_up(FdbKey::new(frame.dst, vlan)) {
            Some(entry) if !entry.is_expired(now, table.ageing()) => {
                return to_one(members, member, entry.port(), frame, vlan);
            }
            _ => FloodKind::UnknownUnicast,
        }
    };
    if let Some(rate) = member.config.storm.0[kind.index()]
        && !storm.admit(kind, rate, now)
    {
        return Decision::Drop(DropReason::BridgeStorm);
    }
    Decision::Flood(Flood { kind, from: frame.port, vlan, tag: frame.tag, payload: frame.payload })
}

/// The frame leaves by `port`, unless the port's configuration forbids it.
#[inline(always)]
fn to_one(members: &Members, from: &Member, port: PortNumber, frame: &Arrival, vlan: Option<Vid>) -> Decision {
    let Some(to) = members.get(port) else { return Decision::Drop(DropReason::BridgeNoPort) };
    if port == frame.port && !from.config.hairpin {
        return Decision::Drop(DropReason::BridgeSamePort);
    }
    if to.state != PortState::Forwarding {
        return Decision::Drop(DropReason::BridgePortBlocked);
    }
    if from.config.isolated && to.config.isolated {
        return Decision::Drop(DropReason::BridgeIsolated);
    }
    let vlan = members.vlan(vlan);
    if vlan.is_some_and(|(_, vlan)| !vlan.members.contains(port)) {
        return Decision::Drop(DropReason::VlanEgress);
    }
    if frame.payload > to.config.mtu {
        return Decision::Drop(DropReason::FrameTooLong);
    }
    Decision::Forward(ForwardedFrame { port, tag: Members::action(vlan, frame.tag, port) })
}

/// Counts a learned address; for a table that learns only after the decision.
#[inline]
pub fn count_learned(learned: Learned, counters: &Counters) {
    match learned {
        Learned::Known => {}
        Learned::Inserted => counters.increment(Counter::AddressesLearned),
        Learned::Moved => counters.increment(Counter::AddressesMoved),
        Learned::Refused => counters.increment(Counter::AddressesRefused),
    }
}
