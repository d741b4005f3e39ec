//! Explicit congestion notification: classic (RFC 3168) and accurate (RFC 9768), both directions.
//!
//! | | classic | accurate |
//! |---|---|---|
//! | SYN | ECE, CWR | AE, CWR, ECE |
//! | SYN-ACK | ECE | the mark that the SYN arrived with |
//! | receiver | ECE from a mark until CWR | the number of marks modulo 8 in AE, CWR, ECE; octets by mark in an option |
//! | sender | one cut per window, told by CWR | one cut per window |
//!
//! The state is a box that only connections with ECN have, in the header-out part; segments that concern it take all parts
//! at once ([`HeaderIn::judge`](crate::pcb::HeaderIn)), so the established path knows nothing of it but two octets of the
//! header template. What may never happen: text marked as capable of ECN on a path that was seen to change marks, or two
//! cuts of the congestion window for one window of text.

use observe::{Counter, Time};
use wire::tcp::{EcnCounters, Header, RareOptions, TcpFlags};

use crate::access::PcbMut;
use crate::config::{Config, Ecn, EcnOption};
use crate::outbox::Outbox;
use crate::pcb::{HeaderOut, SendWindow};
use crate::segment::Segment;

/// The ECN field of the IP header (RFC 3168 section 5).
pub(crate) const NOT_ECT: u8 = 0;
/// ECT(1).
const ECT_1: u8 = 1;
/// ECT(0): what our text is sent with.
pub(crate) const ECT_0: u8 = 2;
/// Congestion experienced.
pub(crate) const CE: u8 = 3;

/// The three bits of the header, as the SYN requests accurate ECN.
pub(crate) const ACE: TcpFlags = TcpFlags::AE.union(TcpFlags::CWR).union(TcpFlags::ECE);
const CLASSIC_REQUEST: TcpFlags = TcpFlags::CWR.union(TcpFlags::ECE);

/// Marks counted before there were any (RFC 9768 section 3.2.1): zero would look like a path that clears the bits.
const FIRST_COUNT: u32 = 5;
/// The same for octets that arrived marked ECT(0) or ECT(1).
const FIRST_OCTETS: u32 = 1;

/// What headers say of ECN, in one octet: the bits that our SYN asked with, later those of every segment with ACK; and what
/// new text adds. The bits keep their places, those of the ECN field of the IP header too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(u8);

impl Marks {
    /// CWR on the next new text: the congestion window was cut (RFC 3168 section 6.1.2).
    const REDUCED: u8 = 4;
    /// The bits count marks (RFC 9768).
    const COUNT: u8 = 8;
    const ECHO: u8 = TcpFlags::ECE.0 as u8 | TcpFlags::CWR.0 as u8 | 1;

    /// The bits of every segment with ACK, or of the SYN before there is one.
    #[inline]
    pub(crate) fn echo(self) -> TcpFlags {
        let bits = u16::from(self.0);
        TcpFlags(bits & 0xc0 | (bits & 1) << 8)
    }

    pub(crate) fn set_echo(&mut self, flags: TcpFlags) {
        self.0 = self.0 & !Self::ECHO | (flags.0 & 0xc0) as u8 | (flags.0 >> 8 & 1) as u8;
    }

    /// ECN field of new text.
    #[inline]
    pub(crate) fn class(self) -> u8 {
        self.0 & ECT_0
    }

    fn set_capable(&mut self, capable: bool) {
        self.0 = self.0 & !ECT_0 | if capable { ECT_0 } else { NOT_ECT };
    }

    /// May a device cut super-segments? Not if their pieces would all carry bits that only one may have, or lose them.
    #[inline]
    pub(crate) fn are_plain(self) -> bool {
        self.0 & (Self::REDUCED | Self::COUNT) == 0
    }

    /// Must the next new text have CWR?
    #[inline]
    pub(crate) fn tells_reduction(self) -> bool {
        self.0 & Self::REDUCED != 0
    }

    /// New text has left.
    #[inline]
    pub(crate) fn reduction_told(&mut self) {
        self.0 &= !Self::REDUCED;
    }
}

/// What both ends speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EcnMode {
    /// Nothing.
    #[default]
    Off,
    /// RFC 3168.
    Classic,
    /// RFC 9768.
    Accurate,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct EcnState {
    pub(crate) mode: EcnMode,
    /// Text may be sent as capable of ECN.
    capable: bool,
    /// The acknowledgement that completes the handshake (as a server), or the first segment after it, is still awaited.
    first: bool,
    /// The peer's option was seen, so that ours will arrive.
    option: bool,
    /// Something was counted since the option left last.
    news: bool,
    /// A segment of the peer was capable of ECN, or marked.
    seen: bool,
    /// No further cut until so many octets of text are acknowledged in all. Not a sequence number: those return after
    /// 2^32 octets, and no segment may have come here meanwhile.
    cut_until: Option<u64>,
    /// Segments of the peer that arrived marked (r.cep).
    marks_in: u32,
    /// Octets of text that arrived with ECT(0), marked, with ECT(1) (r.e0b, r.ceb, r.e1b).
    octets_in: [u32; 3],
    /// Our segments that arrived marked, as far as we know (s.cep).
    marks_out: u32,
    /// The peer's counts of octets that arrived there with ECT(0), marked, with ECT(1) (s.e0b, s.ceb, s.e1b).
    octets_out: [u32; 3],
}

impl EcnState {
    fn new(mode: EcnMode) -> EcnState {
        EcnState {
            mode,
            capable: true,
            first: true,
            option: false,
            news: true,
            seen: false,
            cut_until: None,
            marks_in: FIRST_COUNT,
            octets_in: [FIRST_OCTETS, 0, FIRST_OCTETS],
            marks_out: FIRST_COUNT,
            octets_out: [FIRST_OCTETS, 0, FIRST_OCTETS],
        }
    }

    /// Was the window cut, and none of the first `acked` octets of text left later?
    pub(crate) fn reduced(&self, acked: u64) -> bool {
        self.cut_until.is_some_and(|until| acked <= until)
    }

    /// Our segments that arrived marked.
    pub(crate) fn marked(&self) -> u32 {
        self.marks_out.wrapping_sub(FIRST_COUNT)
    }

    /// For those who ask for the connection's status.
    pub(crate) fn counts(&self) -> EcnCounts {
        let counted = |[ect0, ce, ect1]: [u32; 3]| {
            [ect0.wrapping_sub(FIRST_OCTETS), ce, ect1.wrapping_sub(FIRST_OCTETS)].map(|octets| octets & 0x00ff_ffff)
        };
        EcnCounts {
            mode: self.mode,
            seen: self.seen,
            delivered_ce: self.marked(),
            delivered_octets: counted(self.octets_out),
            received_ce: self.marks_in.wrapping_sub(FIRST_COUNT),
            received_octets: counted(self.octets_in),
            option_seen: self.option,
        }
    }
}

/// What a connection has counted of marks. Octets are modulo 2^24, and counted by accurate ECN alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnCounts {
    /// What both ends speak.
    pub mode: EcnMode,
    /// A segment of the peer's was capable of ECN, or marked.
    pub seen: bool,
    /// Segments of ours that met congestion, as far as the peer has told.
    pub delivered_ce: u32,
    /// Octets of ours that arrived with ECT(0), with a mark of congestion, with ECT(1), as far as the peer has told.
    pub delivered_octets: [u32; 3],
    /// Segments of the peer's that met congestion.
    pub received_ce: u32,
    /// Octets that arrived with ECT(0), with a mark of congestion, with ECT(1).
    pub received_octets: [u32; 3],
    /// The peer's option with its counters was seen.
    pub option_seen: bool,
}

/// The bits of an active open's SYN, the `retries`th time that it is sent.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
//# A TCP endpoint SHOULD implement ECN as described in RFC 3168 (SHLD-8).
pub(crate) fn syn_flags(config: &Config, retries: u8) -> TcpFlags {
    // RFC 9768 section 3.1.4.1: what asks for accurate ECN is tried once more before the path is suspected.
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

/// What a listener grants to a SYN with these flags that came with `mark` (RFC 9768 table 2 and section 3.1.3).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
//# A TCP endpoint SHOULD implement ECN as described in RFC 3168 (SHLD-8).
pub(crate) fn grant(flags: TcpFlags, mark: u8, ecn: Ecn) -> EcnMode {
    let asked = flags.intersection(ACE);
    if asked == TcpFlags::NONE || !ecn.accepts() {
        EcnMode::Off
    } else if asked != CLASSIC_REQUEST && ecn.accepts_accurate() {
        // Combinations that nobody sends today ask for what may come after accurate ECN, and get accurate ECN.
        EcnMode::Accurate
    } else if asked.contains(CLASSIC_REQUEST) && mark == NOT_ECT {
        // A mark on a SYN of RFC 3168 says that the path invents marks.
        EcnMode::Classic
    } else {
        EcnMode::Off
    }
}

/// What a SYN-ACK with these flags grants to a SYN that asked with `asked`.
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

/// How the bits tell the mark that a SYN or SYN-ACK arrived with (RFC 9768 tables 2 and 3).
fn told(mark: u8) -> TcpFlags {
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
        EcnMode::Accurate => told(mark),
    }
}

/// The option of a SYN-ACK: nothing was counted yet.
pub(crate) fn syn_ack_option(mode: EcnMode, config: &Config) -> Option<EcnCounters> {
    let sent = mode == EcnMode::Accurate && config.ecn_option != EcnOption::Never;
    sent.then(|| EcnCounters::new(FIRST_OCTETS, 0, FIRST_OCTETS, 3, true))
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
    /// A connection that speaks `mode` is being opened; `mark`: that of the peer's SYN.
    pub(crate) fn set_ecn(&mut self, mode: EcnMode, mark: u8) {
        self.ecn = (mode != EcnMode::Off).then(|| Box::new(EcnState::new(mode)));
        self.marks.set_echo(syn_ack_flags(mode, mark));
    }

    /// The option of accurate ECN for a segment without text.
    #[cold]
    pub(crate) fn ecn_option(&mut self, config: &Config) -> Option<EcnCounters> {
        let ecn = self.ecn.as_deref_mut().filter(|ecn| ecn.mode == EcnMode::Accurate && ecn.option)?;
        let due = match config.ecn_option {
            EcnOption::Never => false,
            EcnOption::Sparing => ecn.news,
            EcnOption::Always => true,
        };
        let [ect0, ce, ect1] = ecn.octets_in;
        due.then(|| {
            ecn.news = false;
            EcnCounters::new(ect0, ce, ect1, 3, true)
        })
    }
}

/// Our SYN is answered by this SYN-ACK: what both speak from now on. The acknowledgement of a SYN-ACK with accurate ECN
/// must leave before anything else ([`after_first_ack`]).
pub(crate) fn connected(parts: &mut PcbMut<'_>, segment: &Segment, out: &Outbox<'_>) {
    let asked = parts.header_out.marks.echo();
    let flags = segment.header.flags;
    let mode = granted(asked, flags);
    parts.header_out.set_ecn(mode, segment.ecn());
    established(parts);
    let Some(ecn) = parts.header_out.ecn.as_deref_mut().filter(|ecn| ecn.mode == EcnMode::Accurate) else { return };
    // We send SYNs without a mark: any other that the server saw was put there by the path. The combination that means
    // nothing yet counts as unchanged.
    let heard = flags.intersection(ACE);
    ecn.capable = heard == told(NOT_ECT) || heard == TcpFlags::AE.union(TcpFlags::ECE);
    ecn.option = rare(segment).ecn.is_some() && out.config.ecn_option != EcnOption::Never;
    if segment.ecn() == CE {
        ecn.marks_in += 1;
    }
    let capable = ecn.capable;
    parts.header_out.marks.set_capable(capable);
    parts.header_out.marks.set_echo(told(segment.ecn()));
}

/// The acknowledgement of the SYN-ACK has told the mark that this had; from now on the bits count.
pub(crate) fn after_first_ack(ho: &mut HeaderOut) {
    if let Some(ecn) = ho.ecn.as_deref().filter(|ecn| ecn.mode == EcnMode::Accurate) {
        ho.marks.set_echo(ace_flags(ecn.marks_in));
    }
}

/// The handshake is complete: the flags of the SYN give way to those of the mode.
pub(crate) fn established(parts: &mut PcbMut<'_>) {
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
        parts.header_in.notice(NOT_ECT);
    } else {
        // Until the peer has shown that it makes use of it.
        parts.header_in.notice(ECT_1);
    }
}

/// The third segment of a handshake that we answered: with accurate ECN its bits tell the mark of our SYN-ACK (RFC 9768
/// table 4).
fn first_segment(ecn: &mut EcnState, segment: &Segment, passive: bool, config: &Config) {
    let heard = segment.header.flags.intersection(ACE);
    if heard == TcpFlags::NONE {
        // RFC 9768 section 3.2.2.4: the path clears the bits, and would hide marks.
        ecn.capable = false;
    } else if passive {
        // Our SYN-ACK had no mark.
        ecn.capable = heard != told(ECT_0) && heard != told(ECT_1) && heard != told(CE);
        ecn.marks_out = FIRST_COUNT;
        ecn.option = rare(segment).ecn.is_some() && config.ecn_option != EcnOption::Never;
    }
}

fn rare(segment: &Segment) -> RareOptions {
    segment.rare_options()
}

/// A segment of an established connection has been found acceptable, and its acknowledgement processed; `acked`:
/// octets of sequence space that it acknowledged for the first time. True: the peer must hear at once.
pub(crate) fn arrives(segment: &Segment, acked: u32, parts: &mut PcbMut<'_>, out: &Outbox<'_>, now: Time) -> bool {
    let Some(ecn) = parts.header_out.ecn.as_deref_mut() else { return false };
    match ecn.mode {
        EcnMode::Off => false,
        EcnMode::Classic => classic(segment, acked, parts, out, now),
        EcnMode::Accurate => accurate(segment, acked, parts, out, now),
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
    if !segment.text.is_empty() {
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

fn accurate(segment: &Segment, acked: u32, parts: &mut PcbMut<'_>, out: &Outbox<'_>, now: Time) -> bool {
    let ho = &mut *parts.header_out;
    let Some(ecn) = ho.ecn.as_deref_mut() else { return false };
    let handshake = ecn.first;
    if handshake {
        ecn.first = false;
        first_segment(ecn, segment, parts.header_in.is_passive(), out.config);
    }
    let marked = count_arrival(ecn, segment, out);
    let told =
        if handshake && parts.header_in.is_passive() { false } else { heard(ecn, &segment.header, segment, acked > 0) };
    ho.marks.set_capable(ecn.capable);
    ho.marks.set_echo(ace_flags(ecn.marks_in));
    if told {
        out.count(Counter::EcnEchoesIn, 1);
        cut(parts.send_window, ho, acked, out, now);
    }
    marked
}

/// Count the mark of a segment and its octets. True if it was marked.
fn count_arrival(ecn: &mut EcnState, segment: &Segment, out: &Outbox<'_>) -> bool {
    let len = segment.text.len() as u32;
    let octets = match segment.ecn() {
        ECT_0 => &mut ecn.octets_in[0],
        CE => &mut ecn.octets_in[1],
        ECT_1 => &mut ecn.octets_in[2],
        _ => return false,
    };
    *octets = octets.wrapping_add(len) & 0x00ff_ffff;
    ecn.seen = true;
    ecn.news |= len > 0;
    let marked = segment.ecn() == CE;
    if marked {
        out.count(Counter::EcnMarksIn, 1);
        ecn.marks_in = ecn.marks_in.wrapping_add(1);
    }
    marked
}

/// What the peer says of our marks. True if there were new ones.
fn heard(ecn: &mut EcnState, header: &Header, segment: &Segment, acked: bool) -> bool {
    let mut more = false;
    if acked {
        // An acknowledgement that was overtaken would seem to count backwards, that is, far ahead.
        let marks = ace_count(header.flags).wrapping_sub(ecn.marks_out) & 7;
        ecn.marks_out = ecn.marks_out.wrapping_add(marks);
        more = marks > 0;
    }
    if let Some(counters) = rare(segment).ecn {
        ecn.option |= counters.ce().is_some();
        for (index, told) in [counters.ect0(), counters.ce(), counters.ect1()].into_iter().enumerate() {
            // Those of an option that was overtaken would seem to be far ahead.
            let known = &mut ecn.octets_out[index];
            let new = told.map_or(0, |octets| octets.wrapping_sub(*known) & 0x00ff_ffff);
            if new > 0 && new < 1 << 23 {
                *known = told.unwrap_or_default();
                more |= index == 1;
            }
        }
    }
    more
}

/// Cut the congestion window, unless that was done for this window of text. What the same segment acknowledged, `acked`
/// octets, was in flight when it met congestion, and counts. True if it was cut.
fn cut(sw: &mut SendWindow, ho: &mut HeaderOut, acked: u32, out: &Outbox<'_>, now: Time) -> bool {
    let Some(ecn) = ho.ecn.as_deref_mut() else { return false };
    if ecn.cut_until.is_some_and(|until| sw.bytes_acked < until) {
        return false;
    }
    ecn.cut_until = Some(sw.bytes_acked + u64::from(sw.sent_text()));
    // In recovery the window was cut already; the peer is told all the same.
    if !sw.mode.recovers() {
        let (flight, mss) = (sw.flight() + acked, u32::from(sw.mss));
        // The acknowledgement may have opened a window of one segment by one.
        let least = flight <= mss && sw.congestion.cwnd() <= 2 * mss;
        // The window as it was before this acknowledgement may have opened it.
        let outstanding = flight.max(sw.outstanding(out.config).saturating_sub(acked));
        sw.congestion.on_ecn(outstanding, flight, now);
        out.count(Counter::CongestionEvents, 1);
        if least {
            // RFC 3168 section 6.1.2: only the retransmission timer lets the next new segment go.
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
    use crate::event::Isn;
    use crate::pcb::Pcb;

    /// No segment with news of ECN comes for long: what was cut is forgotten all the same, also where sequence numbers have
    /// come half around.
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
            assert!(cut(sw, ho, 0, &out, Time::ZERO), "{since} octets later");
        }
    }
}
