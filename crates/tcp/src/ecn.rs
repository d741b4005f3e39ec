//! Explicit congestion notification: classic (RFC 3168) and accurate (RFC 9768), both directions.
//!
//! | | classic | accurate |
//! |---|---|---|
//! | SYN | ECE, CWR | AE, CWR, ECE |
//! | SYN-ACK | ECE | the mark that the SYN arrived with |
//! | receiver | ECE from a mark until CWR | the number of marks modulo 8 in AE, CWR, ECE; bytes by mark in an option |
//! | sender | one cut per window, signalled by CWR | one cut per window |
//! | segments without data | not capable | capable if configured (draft-ietf-tcpm-generalized-ecn) |
//!
//! The state is a box that only connections with ECN have, in the header-out part; segments that concern it take all
//! parts at once ([`HeaderIn::classify`](crate::pcb::HeaderIn)), so the established path only has two bytes of the
//! header template for it. What may never happen: data sent as ECN-capable on a path that was seen to change marks, or
//! two cuts of the congestion window for one window of data.

use observe::{Counter, Time};
use wire::SeqNumber;
use wire::tcp::{EcnCounters, ExtraOptions, TcpFlags};

use crate::access::PcbMut;
use crate::config::{Config, Ecn, EcnOption};
use crate::ecn_state::{CE, ECT_0, ECT_1, EcnState, FIRST_BYTES, FIRST_COUNT, Marks, NOT_ECT};
pub use crate::ecn_state::{EcnCounts, EcnMode};
use crate::outbox::Outbox;
use crate::pcb::{HeaderOut, SendWindow};
use crate::segment::Segment;

/// The three bits of the header, as the SYN requests accurate ECN.
pub(crate) const ACE: TcpFlags = TcpFlags::AE.union(TcpFlags::CWR).union(TcpFlags::ECE);
const CLASSIC_REQUEST: TcpFlags = TcpFlags::CWR.union(TcpFlags::ECE);

/// Number of marks after which the three bits wrap.
const CIRCLE: u32 = 8;

/// The bits of an active open's SYN, the `retries`th time that it is sent.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
//# A TCP endpoint SHOULD implement ECN as described in RFC 3168 (SHLD-8).
pub(crate) fn syn_flags(config: &Config, retries: u8) -> TcpFlags {
    // RFC 9768 section 3.1.4.1: a request for accurate ECN is repeated once before the path is suspected.
    let patience = u8::from(config.ecn.requests_accurate());
    if config.ecn_fallback && retries > patience {
        return TcpFlags::NONE;
    }
    match config.ecn {
        ecn if ecn.requests_accurate() => ACE,
        ecn if ecn.requests() => CLASSIC_REQUEST,
        _ => TcpFlags::NONE,
    }
}

/// The ECN mode that a listener grants to a SYN with these flags that arrived with `mark` (RFC 9768 table 2 and section
/// 3.1.3).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
//# A TCP endpoint SHOULD implement ECN as described in RFC 3168 (SHLD-8).
pub(crate) fn grant(flags: TcpFlags, mark: u8, ecn: Ecn) -> EcnMode {
    let asked = flags.intersection(ACE);
    if asked == TcpFlags::NONE || !ecn.accepts() {
        EcnMode::Off
    } else if asked != CLASSIC_REQUEST && ecn.accepts_accurate() {
        // Combinations that are not in use today are reserved for successors of accurate ECN, and get accurate ECN.
        EcnMode::Accurate
    } else if asked.contains(CLASSIC_REQUEST) && mark == NOT_ECT {
        // A mark on a SYN of RFC 3168 shows that the path sets marks by itself.
        EcnMode::Classic
    } else {
        EcnMode::Off
    }
}

/// The ECN mode that a SYN-ACK with these flags grants to a SYN with the flags `asked`.
fn granted(asked: TcpFlags, flags: TcpFlags) -> EcnMode {
    let answer = flags.intersection(ACE);
    if asked == ACE {
        match answer {
            TcpFlags::NONE | ACE => EcnMode::Off,
            TcpFlags::ECE => EcnMode::Classic,
            _ => EcnMode::Accurate,
        }
    } else if asked == CLASSIC_REQUEST && answer.difference(TcpFlags::AE) == TcpFlags::ECE {
        EcnMode::Classic
    } else {
        EcnMode::Off
    }
}

/// The bits that report the mark of a received SYN or SYN-ACK (RFC 9768 tables 2 and 3).
fn mark_bits(mark: u8) -> TcpFlags {
    match mark {
        ECT_1 => TcpFlags::CWR.union(TcpFlags::ECE),
        ECT_0 => TcpFlags::AE,
        CE => TcpFlags::AE.union(TcpFlags::CWR),
        _ => TcpFlags::CWR,
    }
}

/// The bits of a SYN-ACK.
pub(crate) fn syn_ack_flags(mode: EcnMode, mark: u8) -> TcpFlags {
    match mode {
        EcnMode::Off => TcpFlags::NONE,
        EcnMode::Classic => TcpFlags::ECE,
        EcnMode::Accurate => mark_bits(mark),
    }
}

/// The option of a SYN-ACK: nothing was counted yet.
pub(crate) fn syn_ack_option(mode: EcnMode, config: &Config) -> Option<EcnCounters> {
    let sent = mode == EcnMode::Accurate && config.ecn_option != EcnOption::Never;
    sent.then(|| EcnCounters::new(FIRST_BYTES, 0, FIRST_BYTES, 3, true))
}

/// A count in the bits of the header.
fn ace_flags(count: u32) -> TcpFlags {
    let bit = |bit: u32, flag: TcpFlags| if count >> bit & 1 != 0 { flag } else { TcpFlags::NONE };
    bit(2, TcpFlags::AE) | bit(1, TcpFlags::CWR) | bit(0, TcpFlags::ECE)
}

fn ace_count(flags: TcpFlags) -> u32 {
    let bit = |flag: TcpFlags| u32::from(flags.contains(flag));
    bit(TcpFlags::AE) << 2 | bit(TcpFlags::CWR) << 1 | bit(TcpFlags::ECE)
}

impl HeaderOut {
    /// A connection with `mode` is being opened; `mark` is that of the peer's SYN.
    pub(crate) fn set_ecn(&mut self, mode: EcnMode, mark: u8) {
        self.ecn = (mode != EcnMode::Off).then(|| Box::new(EcnState::new(mode)));
        self.marks.set_echo(syn_ack_flags(mode, mark));
    }

    /// Whether data must repeat the option of accurate ECN, as no acknowledgement had it for long. `srtt`: microseconds,
    /// 0 if unknown.
    #[cold]
    pub(crate) fn repeats_ecn_option(&self, srtt: u32, config: &Config, now: Time) -> bool {
        self.ecn.as_deref().is_some_and(|ecn| ecn.sends_option(config) && ecn.repeats_option(srtt, config, now))
    }

    /// The option of accurate ECN for a segment of data that must have it.
    #[cold]
    pub(crate) fn ecn_option_of_data(&mut self, config: &Config, now: Time) -> Option<EcnCounters> {
        self.marks.0 &= !Marks::OPTION;
        self.ecn.as_deref_mut().filter(|ecn| ecn.sends_option(config)).map(|ecn| ecn.report(now))
    }

    /// The option of accurate ECN for a segment without data. `srtt`: microseconds, 0 if unknown.
    #[cold]
    pub(crate) fn ecn_option(&mut self, srtt: u32, config: &Config, now: Time) -> Option<EcnCounters> {
        let ecn = self.ecn.as_deref_mut().filter(|ecn| ecn.sends_option(config))?;
        let always = config.ecn_option == EcnOption::Always;
        let due = always || ecn.counters_changed || ecn.repeats_option(srtt, config, now);
        due.then(|| ecn.report(now))
    }
}

/// Our SYN is answered by this SYN-ACK, which settles the mode. The acknowledgement of a SYN-ACK with accurate ECN must
/// leave before anything else ([`after_first_ack`]).
pub(crate) fn connected(parts: &mut PcbMut<'_>, segment: &Segment, out: &Outbox<'_>, now: Time) {
    let asked = parts.header_out.marks.echo();
    let flags = segment.header.flags;
    let mode = granted(asked, flags);
    parts.header_out.set_ecn(mode, segment.ecn());
    established(parts, out.config);
    let Some(ecn) = parts.header_out.ecn.as_deref_mut().filter(|ecn| ecn.mode == EcnMode::Accurate) else { return };
    // We send SYNs without a mark: any mark that the server saw was set by the path. The combination that is not
    // assigned yet counts as unchanged.
    let heard = flags.intersection(ACE);
    let unchanged = heard == mark_bits(NOT_ECT) || heard == TcpFlags::AE.union(TcpFlags::ECE);
    ecn.capable = unchanged || !out.config.ecn_fallback;
    ecn.option = rare(segment).ecn.is_some() && out.config.ecn_option != EcnOption::Never;
    if segment.ecn() == CE {
        ecn.marks_in += 1;
    }
    let (capable, option) = (ecn.capable, ecn.option);
    parts.header_out.marks.set_capable(capable);
    parts.header_out.marks.set_echo(mark_bits(segment.ecn()));
    if option {
        // RFC 9768 section 3.2.3.2.1: the acknowledgement of the SYN-ACK has the option and may be lost, so the first
        // data has it as well.
        parts.header_out.marks.0 |= Marks::OPTION;
    }
    if heard == mark_bits(CE) {
        // RFC 9768 section 3.2.2.2: our SYN met congestion, which reduces the window and is not counted in s.cep.
        cut_first_window(parts.send_window, out, now);
    }
}

/// The acknowledgement of the SYN-ACK has reported the mark of the SYN-ACK; from now on the bits count.
pub(crate) fn after_first_ack(ho: &mut HeaderOut) {
    if let Some(ecn) = ho.ecn.as_deref().filter(|ecn| ecn.mode == EcnMode::Accurate) {
        ho.marks.set_echo(ace_flags(ecn.marks_in));
    }
}

/// The handshake is complete: the flags of the SYN are replaced by those of the mode.
pub(crate) fn established(parts: &mut PcbMut<'_>, config: &Config) {
    let ho = &mut *parts.header_out;
    let Some(ecn) = ho.ecn.as_deref() else {
        ho.marks = Marks::default();
        return;
    };
    ho.marks = Marks::default();
    ho.marks.set_capable(true);
    if ecn.mode == EcnMode::Accurate {
        ho.marks.set_echo(ace_flags(ecn.marks_in));
        // A device that cuts super-segments would change the bits of the pieces.
        ho.marks.0 |= Marks::COUNT;
        if config.ecn_pure_acks {
            ho.marks.0 |= Marks::PURE;
        }
        parts.header_in.notice(NOT_ECT);
    } else {
        // Until the peer has shown that it makes use of it.
        parts.header_in.notice(ECT_1);
    }
}

/// The first segment after the SYN. On a passively opened connection with accurate ECN its bits report the mark of our
/// SYN-ACK if it is a pure acknowledgement without SACK blocks (RFC 9768 section 3.2.2.1, table 4). Returns whether
/// they did, and so are no count.
fn first_segment(ecn: &mut EcnState, segment: &Segment, passive: bool, config: &Config) -> bool {
    let heard = segment.header.flags.intersection(ACE);
    let handshake = passive && segment.seq_len() == 0 && segment.header.options.sack.is_empty();
    if heard == TcpFlags::NONE {
        // RFC 9768 section 3.2.2.4: the path clears the bits, and would hide marks.
        ecn.capable = false;
        ecn.reports_ignored = true;
    } else if handshake {
        // Our SYN-ACK had no mark.
        let changed = heard == mark_bits(ECT_0) || heard == mark_bits(ECT_1) || heard == mark_bits(CE);
        ecn.capable = !changed || !config.ecn_fallback;
        ecn.marks_out = if heard == mark_bits(CE) { FIRST_COUNT + 1 } else { FIRST_COUNT };
    }
    if passive {
        ecn.option = rare(segment).ecn.is_some() && config.ecn_option != EcnOption::Never;
    }
    handshake
}

fn rare(segment: &Segment) -> ExtraOptions {
    segment.rare_options()
}

/// Counters of a connection before it processed an acknowledgement.
#[derive(Clone, Copy)]
pub(crate) struct CountersBefore {
    una: SeqNumber,
    delivered: u32,
    ts_recent: u32,
}

impl CountersBefore {
    /// `None`: the connection has no ECN.
    #[inline]
    pub(crate) fn of(parts: &PcbMut<'_>) -> Option<CountersBefore> {
        parts.header_out.ecn.as_ref()?;
        let (sw, rw) = (&*parts.send_window, &*parts.receive_window);
        Some(CountersBefore { una: sw.una, delivered: sw.delivered_bytes(), ts_recent: rw.ts_recent })
    }

    fn progress(self, parts: &PcbMut<'_>) -> AckProgress {
        let (sw, rw) = (&*parts.send_window, &*parts.receive_window);
        let delivered = sw.delivered_bytes().wrapping_sub(self.delivered) as i32;
        AckProgress {
            acked: (sw.una - self.una).max(0) as u32,
            delivered: delivered.max(0) as u32,
            later: rw.ts_recent != self.ts_recent,
        }
    }
}

/// The progress that an acknowledgement made.
#[derive(Clone, Copy)]
struct AckProgress {
    /// Bytes of sequence space that it acknowledged for the first time.
    acked: u32,
    /// Bytes of data that are known to have arrived since, acknowledged or SACKed.
    delivered: u32,
    /// Its timestamp is the latest so far.
    later: bool,
}

impl AckProgress {
    /// Whether another acknowledgement may have overtaken this one (RFC 9768 appendix A.1).
    fn may_be_old(self) -> bool {
        self.acked == 0 && self.delivered == 0 && !self.later
    }
}

/// Marks that must be reported to the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EcnEcho {
    /// Data arrived with a mark: it is acknowledged at once.
    pub(crate) now: bool,
    /// Enough segments without data arrived with a mark to report it although there is nothing to acknowledge.
    pub(crate) pure: bool,
}

/// A segment of an established connection has been found acceptable, and its acknowledgement processed; `before` is the
/// state at its arrival.
#[inline(never)]
pub(crate) fn arrives(
    segment: &Segment,
    before: CountersBefore,
    parts: &mut PcbMut<'_>,
    out: &Outbox<'_>,
    now: Time,
) -> EcnEcho {
    let Some(ecn) = parts.header_out.ecn.as_deref() else { return EcnEcho::default() };
    let mode = ecn.mode;
    let progress = before.progress(parts);
    match mode {
        EcnMode::Off => EcnEcho::default(),
        EcnMode::Classic => EcnEcho { now: classic(segment, progress.acked, parts, out, now), pure: false },
        EcnMode::Accurate => accurate(segment, progress, parts, out, now),
    }
}

fn classic(segment: &Segment, acked: u32, parts: &mut PcbMut<'_>, out: &Outbox<'_>, now: Time) -> bool {
    let flags = segment.header.flags;
    let ho = &mut *parts.header_out;
    let mut marked = false;
    if segment.ecn() != NOT_ECT
        && let Some(ecn) = ho.ecn.as_deref_mut()
    {
        ecn.seen = true;
        parts.header_in.notice(CE);
    }
    if !segment.data.is_empty() {
        // RFC 3168 section 6.1.3: CWR ends the echo, and a mark on the same segment begins it again.
        if flags.contains(TcpFlags::CWR) {
            ho.marks.set_echo(TcpFlags::NONE);
        }
        marked = segment.ecn() == CE && ho.marks.echo() == TcpFlags::NONE;
        if segment.ecn() == CE {
            out.count(Counter::EcnMarksIn, 1);
            ho.marks.set_echo(TcpFlags::ECE);
        }
    }
    if flags.contains(TcpFlags::ECE) {
        out.count(Counter::EcnEchoesIn, 1);
        if let Some(ecn) = ho.ecn.as_deref_mut() {
            let segments = acked.div_ceil(parts.send_window.mss.into());
            ecn.marks_out = ecn.marks_out.wrapping_add(segments);
        }
        if cut(parts.send_window, ho, acked, out, now) {
            ho.marks.0 |= Marks::REDUCED;
        }
    }
    marked
}

fn accurate(segment: &Segment, progress: AckProgress, parts: &mut PcbMut<'_>, out: &Outbox<'_>, now: Time) -> EcnEcho {
    let passive = parts.header_in.is_passive();
    let (mss, sack) = (parts.send_window.mss.into(), parts.send_window.sack);
    let ho = &mut *parts.header_out;
    let segments_out = ho.segments_out;
    let Some(ecn) = ho.ecn.as_deref_mut() else { return EcnEcho::default() };
    let handshake = std::mem::take(&mut ecn.first) && first_segment(ecn, segment, passive, out.config);
    let marked = count_arrival(ecn, segment, out);
    // It must not be taken for a duplicate acknowledgement, which has SACK blocks where SACK is agreed on.
    let distinct = sack && ho.sack.is_none();
    let pure = marked && segment.seq_len() == 0 && ecn.needs_ack(segments_out) && distinct;
    let told = if handshake { ecn.marks_out != FIRST_COUNT } else { read_marks(ecn, segment, progress, mss) };
    ho.marks.set_capable(ecn.capable);
    ho.marks.set_echo(ace_flags(ecn.marks_in));
    if told {
        out.count(Counter::EcnEchoesIn, 1);
        if handshake {
            cut_first_window(parts.send_window, out, now);
        } else {
            cut(parts.send_window, ho, progress.acked, out, now);
        }
    }
    EcnEcho { now: marked && segment.seq_len() > 0, pure }
}

impl EcnState {
    /// Whether the option is sent on this connection.
    fn sends_option(&self, config: &Config) -> bool {
        self.mode == EcnMode::Accurate && self.option && config.ecn_option != EcnOption::Never
    }

    /// Whether the option must be sent again though nothing was counted. RFC 9768 section 3.2.3.3: at least three
    /// acknowledgements of a round trip have it, or all if there are fewer.
    fn repeats_option(&self, srtt: u32, config: &Config, now: Time) -> bool {
        let times = u64::from(config.ecn_option_beacon);
        let passed = self.option_sent.map_or(u64::MAX, |sent| now.nanos_since(sent) / 1000);
        times > 0 && passed.saturating_mul(times) >= srtt.into()
    }

    /// The option, which leaves now.
    fn report(&mut self, now: Time) -> EcnCounters {
        (self.counters_changed, self.option_sent) = (false, Some(now));
        let [ect0, ce, ect1] = self.bytes_in;
        EcnCounters::new(ect0, ce, ect1, 3, true)
    }

    /// A segment without data has arrived with a mark. RFC 9768 section 3.2.2.5.1: the third since we last sent
    /// anything must be answered, though it acknowledges nothing.
    fn needs_ack(&mut self, segments_out: u32) -> bool {
        let (sent, marks) = self.unanswered;
        let marks = if sent == segments_out { marks + 1 } else { 1 };
        self.unanswered = (segments_out, marks);
        marks >= 3
    }

    /// The number of marks that an acknowledgement reports, if its bits are `marks` modulo eight. It newly acknowledges
    /// `packets` segments, and its option reports `reported` marked bytes. The bits may have wrapped during lost
    /// acknowledgements: then the safest likely case is assumed (RFC 9768 section 3.2.2.5.2, appendix A.2).
    fn safest(&self, marks: u32, packets: u32, reported: Option<u32>, mss: u32) -> u32 {
        if packets < CIRCLE {
            return marks;
        }
        let safer = packets - (packets - marks) % CIRCLE;
        let plain = match reported {
            Some(bytes) => bytes <= marks.saturating_mul(mss) && bytes < safer.saturating_mul(mss) / 2,
            // Where acknowledgements usually cover many segments, a large one is no sign of lost ones.
            None => self.usual_ack >= 16 * CIRCLE / 2,
        };
        if plain { marks } else { safer }
    }

    /// An acknowledgement has reported `packets` segments.
    fn note_ack(&mut self, packets: u32) {
        let packets = packets.min(1 << 20);
        if self.usual_ack == 0 {
            self.usual_ack = 16 * packets;
        } else if packets > 0 {
            self.usual_ack += packets;
            self.usual_ack -= self.usual_ack / 16;
        }
    }
}

/// Count the mark of a segment and its bytes. True if it was marked.
fn count_arrival(ecn: &mut EcnState, segment: &Segment, out: &Outbox<'_>) -> bool {
    let len = segment.data.len() as u32;
    let bytes = match segment.ecn() {
        ECT_0 => &mut ecn.bytes_in[0],
        CE => &mut ecn.bytes_in[1],
        ECT_1 => &mut ecn.bytes_in[2],
        _ => return false,
    };
    *bytes = bytes.wrapping_add(len) & 0x00ff_ffff;
    ecn.seen = true;
    ecn.counters_changed |= len > 0;
    let marked = segment.ecn() == CE;
    if marked {
        out.count(Counter::EcnMarksIn, 1);
        ecn.marks_in = ecn.marks_in.wrapping_add(1);
    }
    marked
}

/// Reads the peer's report of our marks. True if there were new ones.
fn read_marks(ecn: &mut EcnState, segment: &Segment, progress: AckProgress, mss: u32) -> bool {
    // Without an earlier option there is no difference from which the bytes marked since then could be computed.
    let known = ecn.option;
    let counters = rare(segment).ecn;
    ecn.option |= counters.is_some_and(|counters| counters.ce().is_some());
    // An acknowledgement that was overtaken would seem to count backwards, that is, far ahead.
    if ecn.reports_ignored || progress.may_be_old() {
        return false;
    }
    let told = counters.and_then(|counters| read_byte_counters(ecn, &counters));
    let packets = progress.delivered.div_ceil(mss.max(1));
    ecn.note_ack(packets);
    let marks = ace_count(segment.header.flags).wrapping_sub(ecn.marks_out) % CIRCLE;
    let marks = ecn.safest(marks, packets, told.filter(|_| known), mss);
    ecn.marks_out = ecn.marks_out.wrapping_add(marks);
    marks > 0 || told.is_some_and(|bytes| bytes > 0)
}

/// Reads the option's counters of our bytes; returns how many more have met congestion, if it reports that.
fn read_byte_counters(ecn: &mut EcnState, counters: &EcnCounters) -> Option<u32> {
    let mut marked = None;
    for (index, told) in [counters.ect0(), counters.ce(), counters.ect1()].into_iter().enumerate() {
        let Some(told) = told else { continue };
        // The counters of an option that was overtaken would seem to be far ahead.
        let known = &mut ecn.bytes_out[index];
        let new = told.wrapping_sub(*known) & 0x00ff_ffff;
        let new = if new < 1 << 23 { new } else { 0 };
        *known = known.wrapping_add(new) & 0x00ff_ffff;
        if index == 1 {
            marked = Some(new);
        }
    }
    marked
}

/// The SYN or SYN-ACK that we sent met congestion: the first window is treated as if its data had met congestion.
fn cut_first_window(sw: &mut SendWindow, out: &Outbox<'_>, now: Time) {
    let window = sw.congestion.cwnd();
    sw.congestion.on_ecn(window, window, now);
    out.count(Counter::CongestionEvents, 1);
}

/// Cut the congestion window, unless that was done for this window of data. The `acked` bytes that the same segment
/// acknowledged were in flight at the mark, and count. True if it was cut.
fn cut(sw: &mut SendWindow, ho: &mut HeaderOut, acked: u32, out: &Outbox<'_>, now: Time) -> bool {
    let Some(ecn) = ho.ecn.as_deref_mut() else { return false };
    if ecn.cut_until.is_some_and(|until| sw.bytes_acked < until) {
        return false;
    }
    ecn.cut_until = Some(sw.bytes_acked + u64::from(sw.sent_data()));
    // In recovery the window was cut already; the mark is still echoed to the peer.
    if !sw.mode.recovers() {
        let (flight, mss) = (sw.flight() + acked, u32::from(sw.mss));
        // The acknowledgement may have opened a window of one segment by one.
        let least = flight <= mss && sw.congestion.cwnd() <= 2 * mss;
        // The window as it was before this acknowledgement may have opened it.
        let outstanding = flight.max(sw.outstanding(out.config).saturating_sub(acked));
        sw.congestion.on_ecn(outstanding, flight, now);
        out.count(Counter::CongestionEvents, 1);
        if least {
            // RFC 3168 section 6.1.2: the next new segment is sent only when the retransmission timer expires.
            //= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
            //# If congestion events indicated by ECN-Echo ACKs persist, a sender with a _cwnd_ of 1 SMSS MUST reduce
            //# its sending rate even further.
            let until = sw.rtt.deadline(now);
            sw.shaping(out.config).hold_back(until);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConnectionOptions;
    use crate::isn::Isn;
    use crate::pcb::Pcb;

    /// The record of the cut expires even if no segment reports ECN for a long time, and sequence numbers have wrapped
    /// half-way.
    #[test]
    fn a_cut_is_forgotten_whatever_was_acknowledged_since() {
        let tuple = wire::FourTuple {
            local_addr: [10, 0, 0, 1].into(),
            remote_addr: [10, 0, 0, 2].into(),
            local_port: 1,
            remote_port: 2,
        };
        for since in [20_000, 1 << 31, (1 << 31) + (1 << 30), 1 << 32, (1 << 32) + 5000u64] {
            let config = Config::default();
            let counters = observe::Counters::new();
            let out = Outbox::new(&config, &counters);
            let isn = Isn { iss: wire::SeqNumber(7), ts_offset: 0, flow_hash: None };
            let mut pcb = Pcb::closed(tuple, isn, 1000, &ConnectionOptions::default(), &config, Time::ZERO);
            let (sw, ho) = (&mut pcb.send_window, &mut pcb.header_out);
            ho.set_ecn(EcnMode::Classic, NOT_ECT);
            sw.nxt = sw.una + 10_000;
            assert!(cut(sw, ho, 0, &out, Time::ZERO));
            assert!(!cut(sw, ho, 0, &out, Time::ZERO), "the same window of text");
            sw.bytes_acked += since;
            sw.una += since as u32;
            sw.nxt += since as u32;
            assert!(cut(sw, ho, 0, &out, Time::ZERO), "{since} bytes later");
        }
    }
}
