//! The decision about one frame: the frame relay of IEEE 802.1D-2004 section 7.7 with the VLANs of 802.1Q section 8.6.
//!
//! [`forward`] looks addresses up, learns and decides; it moves no frame. The [`Decision`] has the port by which the frame
//! leaves and the change to its tag, or states that the frame is flooded; [`Flood::egress`] then yields the ports. A
//! frame between two known stations costs two look-ups, and visits no port but these two.

use observe::{Counter, Counters, DropReason, Time};
use wire::ethernet::{self, MacAddr, VlanTag};

use crate::PortNumber;
use crate::fdb::{self, Fdb, FdbEntry, FdbKey, Learned};
use crate::members::{Member, Members, PortRules, PortState};
use crate::port_set::WORD;
use crate::storm::{FloodKind, StormControl};
use crate::vlan::{TagAction, Vid};

/// The type of a frame with a tag.
const TAGGED: u16 = 0x8100;

/// The fields of a received frame that forwarding reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The port that received it.
    pub port: PortNumber,
    /// Its destination, as a number of 48 bits.
    pub dst: u64,
    /// Its source, as a number.
    pub src: u64,
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
        let head = frame.first_chunk::<{ ethernet::HEADER_LEN }>().ok_or(DropReason::FrameTooShort)?;
        // Two words, of which each has an address at the top.
        let (Some(first), Some(second)) = (head.first_chunk(), head.last_chunk()) else {
            return Err(DropReason::FrameTooShort);
        };
        let (first, second) = (u64::from_be_bytes(*first), u64::from_be_bytes(*second));
        let (dst, src, payload) = (first >> 16, second >> 16, frame.len() - ethernet::HEADER_LEN);
        if second as u16 != TAGGED {
            return Ok(Arrival { port, dst, src, tag: None, payload });
        }
        match ethernet::vlan_tag(frame) {
            Some(tag) => Ok(Arrival { port, dst, src, tag: Some(tag), payload: payload - ethernet::TAG_LEN }),
            None => Err(DropReason::FrameTooShort),
        }
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

/// All stations, as a number.
const BROADCAST: u64 = fdb::bits_of(MacAddr::BROADCAST);
/// The first of the reserved addresses, as a number.
const FIRST_RESERVED: u64 = 0x0180_c200_0000;

/// Whether an address is one of 01-80-C2-00-00-00 to 0F, which no bridge forwards, whether or not it has the protocol
/// (IEEE 802.1D-2004 table 7-10).
#[inline]
const fn is_reserved(bits: u64) -> bool {
    bits & !0xf == FIRST_RESERVED
}

/// Whether an address is that of a group.
#[inline]
pub(crate) const fn is_group(bits: u64) -> bool {
    bits >> 40 & 1 != 0
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
    match InputPort::of(members, frame.port) {
        Some(ingress) => ingress.forward(table, storm, frame, counters, now),
        None => Decision::Drop(DropReason::InterfaceDown),
    }
}

/// The port of the member list by which frames arrive, found once for all of them.
#[derive(Clone, Copy, Debug)]
pub struct InputPort<'a> {
    pub(crate) members: &'a Members,
    member: &'a Member,
    pub(crate) port: PortNumber,
    pub(crate) rules: PortRules,
}

impl<'a> InputPort<'a> {
    /// `None`: it is not a member.
    #[inline]
    pub fn of(members: &'a Members, port: PortNumber) -> Option<InputPort<'a>> {
        Some(InputPort { members, member: members.get(port)?, port, rules: members.rules(port) })
    }

    /// [`InputPort::receive`], rule by rule.
    #[inline(never)]
    pub(crate) fn apply(
        &self,
        table: &mut impl Fdb,
        frame: &[u8],
        counters: &Counters,
        now: Time,
    ) -> Result<PortNumber, Exception> {
        let arrival = Arrival::of(self.port, frame).map_err(Exception::Drop)?;
        self.relay(table, arrival, |arrival| self.classify(arrival), counters, now)
    }

    /// Learns a source that was looked up.
    #[inline(never)]
    pub(crate) fn learn(
        &self,
        table: &mut impl Fdb,
        source: (FdbKey, Option<FdbEntry>),
        counters: &Counters,
        now: Time,
    ) {
        count_learned(fdb::learn_found(table, source, self.port, &self.member.config.max_addresses, now), counters);
    }

    /// The last part of the decision about a frame that leaves by `port` or not at all, on a bridge that does not distinguish
    /// VLANs.
    #[inline(never)]
    pub(crate) fn leave_by(&self, port: PortNumber, frame: &[u8]) -> Result<PortNumber, Exception> {
        let arrival = Arrival::of(self.port, frame).map_err(Exception::Drop)?;
        to_one(self.members, self.member, port, &arrival, None)
    }

    #[inline]
    fn classify(&self, frame: &Arrival) -> Result<Option<Vid>, Exception> {
        self.members.classify(frame.port, self.member, frame.tag).map_err(Exception::Drop)
    }

    /// [`forward`] for a frame of this port.
    #[inline]
    pub fn forward(
        &self,
        table: &mut impl Fdb,
        storm: &mut impl StormControl,
        frame: &Arrival,
        counters: &Counters,
        now: Time,
    ) -> Decision {
        match self.relay(table, *frame, |frame| self.classify(frame), counters, now) {
            Ok(port) => Decision::Forward(ForwardedFrame { port, tag: TagAction::Keep }),
            Err(exception) => self.explain(exception, storm, *frame, now),
        }
    }

    /// The rules for a frame in the VLAN that `classify` returns.
    #[inline(always)]
    fn relay(
        &self,
        table: &mut impl Fdb,
        frame: Arrival,
        classify: impl FnOnce(&Arrival) -> Result<Option<Vid>, Exception>,
        counters: &Counters,
        now: Time,
    ) -> Result<PortNumber, Exception> {
        let InputPort { members, member, .. } = *self;
        let Arrival { src, dst, .. } = frame;
        if is_group(src) || src == 0 {
            return Err(Exception::Drop(DropReason::FrameBadSource));
        }
        if is_reserved(dst) {
            return Err(Exception::Reserved);
        }
        if member.state == PortState::Discarding {
            return Err(Exception::Drop(DropReason::BridgePortBlocked));
        }
        let vlan = classify(&frame)?;
        if member.config.learning {
            let key = FdbKey::of_station(src, vlan);
            count_learned(fdb::learn(table, key, frame.port, &member.config.max_addresses, now), counters);
        }
        if member.state != PortState::Forwarding {
            return Err(Exception::Drop(DropReason::BridgePortBlocked));
        }
        if !is_group(dst)
            && let Some(entry) = table.look_up(FdbKey::of_station(dst, vlan))
            && !table.has_aged(entry, now)
        {
            return to_one(members, member, entry.port(), &frame, vlan);
        }
        Err(Exception::Flood(vlan))
    }

    /// The decision about a frame that does not leave by one port as it is.
    #[inline(never)]
    pub fn decide(&self, exception: Exception, storm: &mut impl StormControl, frame: &[u8], now: Time) -> Decision {
        match Arrival::of(self.port, frame) {
            Ok(arrival) => self.explain(exception, storm, arrival, now),
            Err(reason) => Decision::Drop(reason),
        }
    }

    fn explain(&self, exception: Exception, storm: &mut impl StormControl, frame: Arrival, now: Time) -> Decision {
        match exception {
            Exception::Retag(to) => Decision::Forward(to),
            Exception::Drop(reason) => Decision::Drop(reason),
            Exception::Reserved => match (frame.dst == fdb::bits_of(wire::stp::GROUP), frame.tag) {
                (true, None) => Decision::Bpdu,
                (true, Some(_)) => Decision::Drop(DropReason::BpduIgnored),
                (false, _) => Decision::Drop(DropReason::BridgeReservedAddress),
            },
            Exception::Flood(vlan) => flood(self.member, storm, frame, vlan, now),
        }
    }
}

/// Why a frame does not leave by one port, or not as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// It leaves by one port with another tag.
    Retag(ForwardedFrame),
    /// It is not to a known station; it is in this VLAN.
    Flood(Option<Vid>),
    /// It is to a reserved address.
    Reserved,
    /// It is dropped.
    Drop(DropReason),
}

/// The frame is not to a known station.
fn flood(member: &Member, storm: &mut impl StormControl, frame: Arrival, vlan: Option<Vid>, now: Time) -> Decision {
    let kind = match frame.dst {
        BROADCAST => FloodKind::Broadcast,
        dst if is_group(dst) => FloodKind::Multicast,
        _ => FloodKind::UnknownUnicast,
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
fn to_one(
    members: &Members,
    from: &Member,
    port: PortNumber,
    frame: &Arrival,
    vlan: Option<Vid>,
) -> Result<PortNumber, Exception> {
    let drop = |reason| Err(Exception::Drop(reason));
    let Some(to) = members.get(port) else { return drop(DropReason::BridgeNoPort) };
    if port == frame.port && !from.config.hairpin {
        return drop(DropReason::BridgeSamePort);
    }
    if to.state != PortState::Forwarding {
        return drop(DropReason::BridgePortBlocked);
    }
    if from.config.isolated && to.config.isolated {
        return drop(DropReason::BridgeIsolated);
    }
    let vlan = members.vlan(vlan);
    if vlan.is_some_and(|(_, vlan)| !vlan.members.contains(port)) {
        return drop(DropReason::VlanEgress);
    }
    if frame.payload > to.config.mtu {
        return drop(DropReason::FrameTooLong);
    }
    match Members::action(vlan, frame.tag, port) {
        TagAction::Keep => Ok(port),
        tag => Err(Exception::Retag(ForwardedFrame { port, tag })),
    }
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
