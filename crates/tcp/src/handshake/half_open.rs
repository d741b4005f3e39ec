//! A half-open connection: the state that a listener keeps between its SYN-ACK and the peer's acknowledgement (the SYN
//! cache of RFC 4987 section 3.5).
//!
//! It has 72 bytes instead of a PCB of 480: enough to retransmit the SYN-ACK, and to make the PCB when the
//! acknowledgement arrives. The rules of SYN-RECEIVED are not written twice: a segment is run on a temporary PCB made
//! from the half-open connection, which is kept only if it leaves SYN-RECEIVED. What may never happen: a retransmitted
//! SYN-ACK with other numbers or options than the first.

use observe::{Counter, DropReason, Time};
use wire::tcp::{ExtraOptions, FastOpen, Header, TcpFlags, Timestamps, UserTimeout};
use wire::{FourTuple, SeqNumber};

use super::prototype::{ChildPrototype, HandshakeKind, is_ipv6};
use crate::config::{Config, ListenParams};
use crate::ecn::{self, EcnMode};
use crate::event::segment_arrives::arrives_beside_lane;
use crate::event::{IcmpError, IcmpKind, Negotiation};
use crate::isn::{ChildIdentity, Isn};
use crate::mss;
use crate::outbox::Outbox;
use crate::output;
use crate::pcb::{HeaderOut, Pcb, TIMESTAMPS_LEN, first_window};
use crate::segment::Segment;
use crate::state::State;
use crate::tick::Tick;

/// The peer does not scale its window.
const NO_SHIFT: u8 = u8::MAX;

/// Units of 2^27 ns, an eighth of a second, of the time at which the peer was last answered.
const ANSWER_SHIFT: u32 = 27;
/// Least time between two answers to one half-open connection beyond its own timer, in those units: half a second.
const ANSWER_INTERVAL: u8 = 4;

/// Retransmissions of a SYN-ACK that still grant ECN (RFC 9768 section 3.1.4.2); later ones do not.
const ECN_RETRIES: u8 = 1;

/// See [`HalfOpen::features`].
mod feature {
    pub(super) const TIMESTAMPS: u8 = 1;
    pub(super) const SACK: u8 = 2;
    pub(super) const HASHED: u8 = 4;
    /// The time of the SYN-ACK is not known, because it was a cookie.
    pub(super) const UNTIMED: u8 = 8;
    /// `answered` is valid.
    pub(super) const ANSWERED: u8 = 16;
    pub(super) const CLASSIC_ECN: u8 = 32;
    pub(super) const ACCURATE_ECN: u8 = 64;
    /// The peer has acknowledged our SYN-ACK, and its data is awaited.
    pub(super) const DEFERRED: u8 = 128;
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct HalfOpen {
    tuple: FourTuple,
    /// Largest data of our segments, in bytes.
    mss: u16,
    peer_mss: u16,
    /// The peer's window shift, or [`NO_SHIFT`].
    shift: u8,
    features: u8,
    /// SYN-ACKs sent again because the timer ran out.
    retries: u8,
    /// When the peer was last sent something other than the timer's SYN-ACKs.
    answered: u8,
    /// ECN field of the IP header that the peer's SYN came with.
    mark: u8,
    iss: SeqNumber,
    irs: SeqNumber,
    ts_recent: u32,
    ts_offset: u32,
    flow_hash: u32,
    /// When the timer last sent the SYN-ACK, in microseconds: none waits for an hour.
    sent: u32,
}

/// The result of a segment for a half-open connection.
#[derive(Debug)]
#[must_use]
pub enum Progress {
    /// Unchanged.
    Waiting,
    /// It is over: the peer has reset it.
    Ended,
    /// The handshake is complete: the connection is in `child`. `out.table` reports it; data and FIN of the segment
    /// have been taken.
    Established,
}

impl HalfOpen {
    /// The peer's SYN had sequence number `irs`, `agreed` is the result of the negotiation; our SYN-ACK is sent at
    /// `now`.
    pub(crate) fn new(
        tuple: FourTuple,
        irs: SeqNumber,
        isn: Isn,
        params: &ListenParams<'_>,
        agreed: &Negotiation,
        (config, now): (&Config, Time),
    ) -> HalfOpen {
        let mut features = 0;
        let mut set = |condition: bool, bit: u8| features |= if condition { bit } else { 0 };
        set(agreed.timestamps.is_some(), feature::TIMESTAMPS);
        set(agreed.sack, feature::SACK);
        set(isn.flow_hash.is_some(), feature::HASHED);
        HalfOpen {
            tuple,
            mss: params.own_mss(config),
            peer_mss: agreed.peer_mss,
            shift: agreed.shift.unwrap_or(NO_SHIFT),
            features,
            retries: 0,
            answered: 0,
            mark: 0,
            iss: isn.iss,
            irs,
            ts_recent: agreed.timestamps.unwrap_or(0),
            ts_offset: isn.ts_offset,
            flow_hash: isn.flow_hash.unwrap_or(0),
            sent: now.as_micros() as u32,
        }
    }

    /// The same, with ECN; `mark`: the mark of the SYN.
    pub(crate) fn with_ecn(mut self, mode: EcnMode, mark: u8) -> HalfOpen {
        self.features |= match mode {
            EcnMode::Off => 0,
            EcnMode::Classic => feature::CLASSIC_ECN,
            EcnMode::Accurate => feature::ACCURATE_ECN,
        };
        self.mark = mark;
        self
    }

    fn ecn(&self) -> EcnMode {
        if self.has(feature::ACCURATE_ECN) {
            EcnMode::Accurate
        } else if self.has(feature::CLASSIC_ECN) {
            EcnMode::Classic
        } else {
            EcnMode::Off
        }
    }

    /// The same, from a cookie: the time of its SYN-ACK is unknown.
    pub(crate) fn untimed(mut self) -> HalfOpen {
        self.features |= feature::UNTIMED;
        self
    }

    /// Both ends, as our connection will name them.
    pub fn tuple(&self) -> &FourTuple {
        &self.tuple
    }

    /// The hash of its flow, as [`Isn::flow_hash`] had it; 0 if there is none.
    pub fn flow_hash(&self) -> u32 {
        self.flow_hash
    }

    /// How many times the timer has sent the SYN-ACK again.
    pub fn retries(&self) -> u8 {
        self.retries
    }

    /// Its kind, if there is nothing rare about it: the SYN-ACK was sent once, at a known time, and grants no ECN.
    #[inline]
    pub(super) fn kind(&self) -> Option<HandshakeKind> {
        let HalfOpen { mss, peer_mss, shift, features, retries, .. } = *self;
        let usual = feature::TIMESTAMPS | feature::SACK | feature::HASHED;
        let plain = features & !usual == 0 && retries == 0;
        plain.then_some(HandshakeKind { mss, peer_mss, shift, features, ipv6: is_ipv6(&self.tuple) })
    }

    fn has(&self, bit: u8) -> bool {
        self.features & bit != 0
    }

    fn isn(&self) -> Isn {
        let flow_hash = self.has(feature::HASHED).then_some(self.flow_hash);
        Isn { iss: self.iss, ts_offset: self.ts_offset, flow_hash }
    }

    fn agreed(&self) -> Negotiation {
        Negotiation {
            peer_mss: self.peer_mss,
            shift: (self.shift != NO_SHIFT).then_some(self.shift),
            timestamps: self.has(feature::TIMESTAMPS).then_some(self.ts_recent),
            sack: self.has(feature::SACK),
        }
    }

    /// Send the SYN-ACK. `stamp`: the timestamp that it must carry, for a SYN cookie that encodes options in it;
    /// `cookie`: one for Fast Open, in the first SYN-ACK only.
    pub(crate) fn send(
        &self,
        params: &ListenParams<'_>,
        (stamp, cookie): (Option<u32>, Option<FastOpen>),
        out: &mut Outbox<'_>,
        now: Time,
    ) {
        if stamp.is_none() && cookie.is_none() && self.send_usual(params, out, now) {
            return;
        }
        let mut isn = self.isn();
        if let Some(stamp) = stamp {
            isn.ts_offset = stamp.wrapping_sub(now.as_millis() as u32);
        }
        let announced = mss::announced(self.mss, params.options);
        let mut ho = HeaderOut::new(&self.tuple, (announced, 0), &isn, params.options, now);
        ho.nxt = self.irs + 1;
        ho.edge = ho.nxt + self.first_window(params, out.config);
        ho.set_features(self.shift != NO_SHIFT, self.has(feature::TIMESTAMPS));
        ho.ts_recent = self.ts_recent;
        ho.marks.set_echo(ecn::syn_ack_flags(self.ecn(), self.mark));
        // The path may drop segments with this option.
        let counters = ecn::syn_ack_option(self.ecn(), out.config).filter(|_| self.retries == 0);
        // There is no room for both.
        let user_timeout =
            params.options.announced_user_timeout.and_then(UserTimeout::new).filter(|_| cookie.is_none());
        let rare = ExtraOptions { ecn: counters.filter(|_| cookie.is_none()), fast_open: cookie, user_timeout };
        output::syn_ack(self.iss, self.has(feature::SACK), &rare, &mut ho, out, now);
    }

    /// Sends the SYN-ACK if it is a usual one, as [`HalfOpen::send`] would. False: it is not.
    #[inline]
    fn send_usual(&self, params: &ListenParams<'_>, out: &mut Outbox<'_>, now: Time) -> bool {
        const USUAL: u8 = feature::TIMESTAMPS | feature::SACK;
        const ECN: u8 = feature::CLASSIC_ECN | feature::ACCURATE_ECN;
        let options = params.options;
        let usual = self.features & (USUAL | ECN) == USUAL && self.shift != NO_SHIFT;
        if !usual || options.announced_user_timeout.is_some() {
            return false;
        }
        let answer = output::UsualAnswer {
            tuple: &self.tuple,
            iss: self.iss,
            nxt: self.irs + 1,
            window: self.first_window(params, out.config),
            announced: mss::announced(self.mss, options),
            timestamps: Timestamps {
                value: (now.as_millis() as u32).wrapping_add(self.ts_offset),
                echo: self.ts_recent,
            },
            flow_hash: if self.has(feature::HASHED) { self.flow_hash } else { 0 },
            options,
        };
        answer.send(out)
    }

    /// The window of the SYN-ACK.
    fn first_window(&self, params: &ListenParams<'_>, config: &Config) -> u32 {
        let announced = mss::announced(self.mss, params.options);
        let stamps = if self.has(feature::TIMESTAMPS) { TIMESTAMPS_LEN } else { 0 };
        first_window(params.options, config, announced.saturating_sub(stamps))
    }

    /// When the SYN-ACK was sent, seen from `now`.
    fn sent(&self, now: Time) -> Time {
        let elapsed = (now.as_micros() as u32).wrapping_sub(self.sent);
        // A thread with an older batch may have a `now` before it.
        let elapsed = if elapsed > u32::MAX / 2 { 0 } else { u64::from(elapsed) };
        Time::from_nanos(now.as_nanos().saturating_sub(elapsed * 1000))
    }

    /// When the SYN-ACK must be sent again: RFC 6298 section 5.5 from the initial time-out on. Seen from `now`, less
    /// than half an hour after its last transmission.
    pub fn deadline(&self, config: &Config, now: Time) -> Time {
        let initial = config.rto.initial_rto;
        // Multiplying a duration divides.
        let doubled = if self.retries == 0 { initial } else { initial.saturating_mul(1 << self.retries.min(16)) };
        self.sent(now) + doubled.min(config.rto.max_rto)
    }

    /// Whether an ICMP error quotes our SYN-ACK (RFC 5927 section 4.1). Otherwise it is forged, or outdated.
    pub fn is_quoted(&self, error: &IcmpError) -> bool {
        error.seq == self.iss
    }

    /// Whether an ICMP error that quotes our SYN-ACK ends the handshake: only one that reports a missing service. A
    /// host, network or neighbour may be unreachable for a moment only, and the peer may consider the connection
    /// established by now: the timer tries again (RFC 9293, MUST-56; Linux gives up).
    pub fn is_ended_by(&self, error: &IcmpError) -> bool {
        self.is_quoted(error) && error.kind == IcmpKind::PortUnreachable
    }

    /// The deadline has passed: send the SYN-ACK again, unless that was done `limit` times. False: it is given up.
    ///
    /// Nothing is sent to a peer that has acknowledged while the listener waits for its data, except at the end: its
    /// answer then opens the connection without data (`TCP_DEFER_ACCEPT`).
    pub fn timed_out(&mut self, params: &ListenParams<'_>, limit: u8, out: &mut Outbox<'_>, now: Time) -> bool {
        let deferred = self.has(feature::DEFERRED);
        if self.retries >= limit && (!deferred || self.retries >= params.defer_accept) {
            out.count(Counter::ConnectionsTimedOut, 1);
            return false;
        }
        self.retries = self.retries.saturating_add(1);
        if deferred && self.retries < params.defer_accept {
            self.sent = now.as_micros() as u32;
            return true;
        }
        if self.retries > ECN_RETRIES && out.config.ecn_fallback {
            self.features &= !(feature::CLASSIC_ECN | feature::ACCURATE_ECN);
        }
        self.sent = now.as_micros() as u32;
        out.count(Counter::Timeouts, 1);
        out.count(Counter::Retransmits, 1);
        self.send(params, (None, None), out, now);
        true
    }

    /// A segment of this connection has arrived (RFC 9293 section 3.10.7.4, SYN-RECEIVED). If it completes the
    /// handshake, the connection is left in `child`, which is empty before: a PCB is large, and is made where the caller
    /// needs it. `prototype`: one made with the options in `params` and the present configuration, if there is one.
    pub fn segment_arrives(
        &mut self,
        (params, prototype): (&ListenParams<'_>, Option<&ChildPrototype>),
        arrival: &mut Option<Segment>,
        (child, out): (&mut Option<Pcb>, &mut Outbox<'_>),
        now: Time,
    ) -> Progress {
        let Some(segment) = &*arrival else { return Progress::Waiting };
        let flags = segment.header.flags;
        let speaks = flags.intersection(TcpFlags::SYN | TcpFlags::ACK | TcpFlags::RST | TcpFlags::FIN);
        if speaks == TcpFlags::SYN && segment.header.seq == self.irs && segment.checksum_holds() {
            self.syn_again(params, out, now);
            return Progress::Waiting;
        }
        if self.defers(params, segment) {
            // The round trip ends here; a timing would end with the data.
            self.features |= feature::DEFERRED | feature::UNTIMED;
            out.count(Counter::SegmentsIn, 1);
            out.dropped(DropReason::TcpDeferred);
            return Progress::Waiting;
        }
        let pcb = match prototype.filter(|prototype| prototype.serves(self)) {
            Some(prototype) => self.copy(prototype, child, now),
            None => self.revive(child, params, out.config, now),
        };
        let quiet = Tick::long_before(now);
        pcb.header_in.challenged = if self.may_answer(now) { quiet } else { Tick::of(now) };
        let _ = arrives_beside_lane(arrival, pcb, out, now);
        let (state, answered) = (pcb.header_in.state, pcb.header_in.challenged != quiet);
        let progress = match state {
            State::SynReceived => {
                if self.may_answer(now) && answered {
                    self.note_answer(now);
                }
                Progress::Waiting
            }
            State::Closed => Progress::Ended,
            _ => return Progress::Established,
        };
        *child = None;
        progress
    }

    /// Whether `segment` is the bare acknowledgement of our SYN-ACK, for a listener that waits for data.
    fn defers(&self, params: &ListenParams<'_>, segment: &Segment) -> bool {
        let header = &segment.header;
        params.defer_accept > self.retries
            && header.flags.intersection(TcpFlags::SYN | TcpFlags::ACK | TcpFlags::RST | TcpFlags::FIN) == TcpFlags::ACK
            && segment.data.is_empty()
            && header.seq == self.irs + 1
            && header.ack == self.iss + 1
            && segment.checksum_holds()
    }

    /// The peer repeats its SYN: it has not received our answer. If it repeats too often, the answer is left to the
    /// timer.
    fn syn_again(&mut self, params: &ListenParams<'_>, out: &mut Outbox<'_>, now: Time) {
        out.count(Counter::SegmentsIn, 1);
        if self.may_answer(now) {
            self.note_answer(now);
            self.send(params, (None, None), out, now);
        } else {
            out.count(Counter::ChallengeAcksLimited, 1);
            out.dropped(DropReason::RateLimited);
        }
    }

    fn may_answer(&self, now: Time) -> bool {
        let since = ((now.as_nanos() >> ANSWER_SHIFT) as u8).wrapping_sub(self.answered);
        !self.has(feature::ANSWERED) || since >= ANSWER_INTERVAL
    }

    fn note_answer(&mut self, now: Time) {
        self.features |= feature::ANSWERED;
        self.answered = (now.as_nanos() >> ANSWER_SHIFT) as u8;
    }

    /// [`HalfOpen::revive`], for one that this prototype serves.
    #[inline(never)]
    pub(super) fn copy<'c>(&self, prototype: &ChildPrototype, child: &'c mut Option<Pcb>, now: Time) -> &'c mut Pcb {
        let (isn, sent) = (self.isn(), self.sent(now).as_micros() as u32);
        let HalfOpen { tuple, irs, ts_recent, .. } = self;
        let identity = ChildIdentity { tuple, isn, irs: *irs, ts_recent: *ts_recent, sent, now };
        child.get_or_insert_with(|| prototype.child(&identity))
    }

    /// The PCB in SYN-RECEIVED that corresponds to this, made in `child`.
    pub(crate) fn revive<'c>(
        &self,
        child: &'c mut Option<Pcb>,
        params: &ListenParams<'_>,
        config: &Config,
        now: Time,
    ) -> &'c mut Pcb {
        let pcb = child.insert(Pcb::closed(self.tuple, self.isn(), self.mss, params.options, config, now));
        let mut parts = pcb.parts();
        parts.receive_window.offer_first(self.first_window(params, config));
        parts.header_in.set_passive();
        parts.header_in.set_held(false);
        parts.agree(self.irs, 0, &self.agreed(), config, now);
        parts.header_out.set_ecn(self.ecn(), self.mark);
        let sw = &mut *parts.send_window;
        sw.nxt = sw.una + 1;
        sw.timed = sw.nxt;
        // A SYN-ACK sent again for a repeated SYN is not timed (RFC 6298 section 3); nor is one after a challenge,
        // which sets the same flag.
        if self.retries == 0 && !self.has(feature::UNTIMED) && !self.has(feature::ANSWERED) {
            sw.rtt.start();
            parts.retransmit_queue.log.sent(sw.una, sw.una, self.sent(now).as_micros() as u32, 0);
        }
        // Time-outs of a listener that waits for data are no evidence about the path.
        let unanswered = if self.has(feature::DEFERRED) { 0 } else { self.retries };
        (0..unanswered).for_each(|_| sw.rtt.backoff());
        for state in [&mut pcb.header_in.state, &mut pcb.receive_window.state, &mut pcb.send_window.state] {
            *state = State::SynReceived;
        }
        pcb
    }
}

impl ListenParams<'_> {
    /// Largest segment that a child would send.
    fn own_mss(&self, config: &Config) -> u16 {
        // The floor limits the values that users and peers set; no segment can be larger than the route carries.
        self.options.max_segment.unwrap_or(u16::MAX).max(config.min_mss).min(self.mss).max(1)
    }
}

/// The negotiation of a listener with the SYN of this header.
pub(crate) fn agreement(header: &Header, tuple: &FourTuple, config: &Config) -> Negotiation {
    Negotiation::read(header, tuple.remote_addr.is_ipv6(), config)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use observe::Counters;

    use super::*;
    use crate::config::{BufferSizes, ConnectionOptions};
    use crate::profile::Profile;

    /// A flood fills the table with these.
    #[test]
    fn a_half_open_connection_is_small() {
        assert!(size_of::<HalfOpen>() <= 72, "{} bytes", size_of::<HalfOpen>());
    }

    /// What [`HalfOpen::send`] leaves in an outbox: the segments, and what was counted.
    fn sent(half_open: &HalfOpen, params: &ListenParams<'_>, config: &Config) -> String {
        let counters = Counters::new();
        let mut out = Outbox::new(config, &counters);
        half_open.send(params, (None, None), &mut out, Time::from_millis(86_400_177));
        let segments: Vec<_> = out.segments.iter().map(|segment| (segment.to_vec(), *segment.meta())).collect();
        format!("{segments:?} {} {:?}", out.tx_blocked, counters.snapshot())
    }

    /// The usual SYN-ACK is that of the general code: without the fast lane, the latter makes all.
    #[test]
    fn a_usual_syn_ack_differs_in_nothing() {
        let none = ConnectionOptions::default;
        let options = [
            none(),
            ConnectionOptions { traffic_class: 0xbb, hop_limit: Some(9), ..none() },
            ConnectionOptions { max_segment: Some(900), announced_mss: Some(700), ..none() },
            ConnectionOptions { initial_receive_window: Some(2), window_clamp: Some(5000), ..none() },
            ConnectionOptions { receive_buffer: Some(7000), ..none() },
            ConnectionOptions { announced_user_timeout: Some(Duration::from_secs(30)), ..none() },
        ];
        let agreed = [false, true].into_iter().flat_map(|on| {
            [None, Some(0), Some(7)].into_iter().flat_map(move |shift| {
                [None, Some(12_345)].map(|timestamps| Negotiation { peer_mss: 1460, shift, timestamps, sack: on })
            })
        });
        let agreed: Vec<Negotiation> = agreed.collect();
        let ends = [("10.0.0.1", "10.1.0.2"), ("fd00::1", "fd00::7:2")];
        let mut usual = 0;
        for config in Profile::ALL.iter().map(|profile| profile.config()) {
            let general = Config { fast_lane: false, ..config.clone() };
            for (options, agreed) in options.iter().flat_map(|options| agreed.iter().map(move |it| (options, it))) {
                for ((local, remote), hash) in
                    ends.into_iter().flat_map(|ends| [None, Some(99)].map(|hash| (ends, hash)))
                {
                    let (local_addr, remote_addr) = (local.parse().unwrap(), remote.parse().unwrap());
                    let tuple = FourTuple { local_addr, remote_addr, local_port: 80, remote_port: 40_000 };
                    let params = ListenParams { mss: 1460, options, defer_accept: 0 };
                    let isn = Isn { iss: SeqNumber(0xffff_ff00), ts_offset: 5_000_000, flow_hash: hash };
                    let irs = SeqNumber(0x7fff_ffff);
                    let new =
                        |mode| HalfOpen::new(tuple, irs, isn, &params, agreed, (&config, Time::ZERO)).with_ecn(mode, 0);
                    for mode in [EcnMode::Off, EcnMode::Classic, EcnMode::Accurate] {
                        let half_open = new(mode);
                        let (with, without) = [&config, &general].map(|it| sent(&half_open, &params, it)).into();
                        assert_eq!(with, without, "{options:?} {agreed:?} {mode:?}");
                    }
                    let counters = Counters::new();
                    let out = &mut Outbox::new(&config, &counters);
                    usual += u32::from(new(EcnMode::Off).send_usual(&params, out, Time::ZERO));
                }
            }
        }
        assert!(usual > 50, "{usual} of them were usual");
    }

    /// The connection uses the values that its SYN-ACK offered, exactly, regardless of rounding.
    #[test]
    fn a_child_keeps_the_window_that_its_syn_ack_offered() {
        let config =
            Config { receive_buffer: BufferSizes { min: 4096, initial: 60_000, max: 60_000 }, ..Config::default() };
        let ends = [10, 0, 0, 1].into();
        let tuple = FourTuple { local_addr: ends, remote_addr: ends, local_port: 80, remote_port: 2000 };
        for (timestamps, first) in [(None, 59_860), (Some(7), 59_368)] {
            let agreed = Negotiation { peer_mss: 1000, shift: Some(0), timestamps, sack: true };
            let isn = Isn { iss: SeqNumber(1), ts_offset: 0, flow_hash: None };
            let params = ListenParams { mss: 1460, options: &ConnectionOptions::default(), defer_accept: 0 };
            let half_open = HalfOpen::new(tuple, SeqNumber(100), isn, &params, &agreed, (&config, Time::ZERO));
            let mut child = None;
            let pcb = half_open.revive(&mut child, &params, &config, Time::ZERO);
            assert_eq!(half_open.first_window(&params, &config), first);
            assert_eq!((pcb.receive_window.edge - pcb.receive_window.nxt) as u32, first);
            assert_eq!((pcb.header_out.edge - pcb.header_out.nxt) as u32, first);
        }
    }
}
