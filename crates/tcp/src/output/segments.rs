//! Makes the segments: acknowledgements, SYNs, resets, data.
//!
//! All segments of a connection are made in [`make`], except those of the fast lane (`lane.rs`) and the usual SYNs
//! (`usual_syn.rs`). What may never happen: a segment without a checksum, or one whose ACK number or window differs from
//! the one recorded as advertised.

use observe::{Counter, Time};
use pktbuf::{Checksum, PktBuf};
use wire::SeqNumber;
use wire::checksum::Sum;
use wire::tcp::{
    CHECKSUM_OFFSET, ExtraOptions, FastOpen, HEADER_LEN, Header, MAX_HEADER_LEN, Options, SackBlocks, SynOptions,
    TcpFlags, Timestamps, UserTimeout,
};

use super::{ACK, leave, usual_syn};
use crate::config::Config;
use crate::ecn_state::NOT_ECT;
use crate::outbox::Outbox;
use crate::pcb::{HeaderOut, RetransmitQueue, SendWindow};
use crate::state::State;
use crate::tick::SKEW_MS;

/// How a segment is made.
pub(super) struct Draft {
    pub(super) seq: SeqNumber,
    /// Bytes of data.
    pub(super) len: u32,
    pub(super) flags: TcpFlags,
    pub(super) options: Options,
    pub(super) window: u16,
    /// The device cuts the data into pieces of this size; 0: one segment.
    pub(super) segment_size: u16,
    /// The urgent pointer; valid if URG is set.
    pub(super) urgent: u16,
    /// ECN field of the IP header.
    pub(super) class: u8,
}

/// Most bytes of options beside the SACK blocks (timestamps, kind and length, padding), and bytes of one block.
const SACK_BESIDE: usize = 16;
const SACK_BLOCK: usize = 8;

/// A segment without data, at SND.NXT.
pub(crate) fn pure_ack(sw: &SendWindow, ho: &mut HeaderOut, out: &mut Outbox<'_>, now: Time) {
    acknowledge_at(sw, sw.nxt, None, ho, out, now);
}

/// The same, with our user time-out.
#[cold]
pub(crate) fn advertise_user_timeout(
    sw: &SendWindow,
    user_timeout: UserTimeout,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
) {
    acknowledge_at(sw, sw.nxt, Some(user_timeout), ho, out, now);
}

/// A segment without data at an old sequence number: the peer must answer with its RCV.NXT and window.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//# An implementation SHOULD send a keep-alive segment with no data (SHLD-12);
pub(crate) fn probe(sw: &SendWindow, ho: &mut HeaderOut, out: &mut Outbox<'_>, now: Time) {
    acknowledge_at(sw, sw.una + u32::MAX, None, ho, out, now);
}

#[inline]
fn acknowledge_at(
    sw: &SendWindow,
    seq: SeqNumber,
    user_timeout: Option<UserTimeout>,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
) {
    let mut options = usual_options(ho, now);
    if let Some(blocks) = &ho.sack {
        options.sack = **blocks;
        // On a link with a very small MTU not even an acknowledgement has room for all of them.
        let room = usize::from(ho.announce_mss).saturating_sub(SACK_BESIDE);
        if room < SackBlocks::CAPACITY * SACK_BLOCK {
            options.sack.truncate(room / SACK_BLOCK);
        }
        out.count(Counter::SacksOut, 1);
        ho.drop_dsack();
    }
    let flags = ACK | ho.marks.echo();
    let draft = Draft {
        seq,
        len: 0,
        flags,
        options,
        window: ho.window_field(),
        segment_size: 0,
        urgent: 0,
        class: ho.marks.pure_class(),
    };
    let sent = if ho.ecn.is_some() || user_timeout.is_some() {
        let ecn = ho.ecn_option(sw.rtt.srtt_us(), out.config, now);
        let rare = ExtraOptions { ecn, user_timeout, ..ExtraOptions::NONE };
        emit_rare(ho, out, draft, &rare, |_, _| Sum::zero())
    } else {
        emit(ho, out, draft, |_, _| Sum::zero())
    };
    if sent {
        out.count(Counter::PureAcksOut, 1);
    }
}

/// Our SYN, or SYN-ACK once the peer's SYN is known, with `rare` options.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//# TCP endpoints MUST implement both sending and receiving the MSS Option (MUST-14).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//# TCP implementations SHOULD send an MSS Option in every SYN segment when its receive MSS differs from the default 536
//# for IPv4 or 1220 for IPv6 (SHLD-5),
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//# and MAY send it always (MAY-3).
pub(crate) fn syn(sw: &SendWindow, rare: &ExtraOptions, ho: &mut HeaderOut, out: &mut Outbox<'_>, now: Time) {
    if sw.state != State::SynSent {
        // On a connection that is open early, SND.UNA is past the SYN.
        let iss = if sw.state == State::SynReceived { sw.una } else { sw.una + u32::MAX };
        return syn_ack(iss, sw.sack, rare, ho, out, now);
    }
    let config = out.config;
    if config.window_scaling && config.sack && config.timestamps && usual_syn::is_usual(rare, ho, out) {
        let timestamps = Timestamps { value: ho.clock(now), echo: 0 };
        let options = SynOptions { mss: ho.announce_mss, window_scale: config.window_shift(), timestamps };
        usual_syn::emit(sw.una, TcpFlags::SYN, options, ho, out);
        return;
    }
    let options = syn_options(ho, out.config, now);
    emit_syn(sw.una, TcpFlags::SYN, options, rare, ho, out);
}

fn syn_options(ho: &mut HeaderOut, config: &Config, now: Time) -> Options {
    Options {
        mss: Some(ho.announce_mss),
        //= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
        //# This option is an offer, not a promise; both sides MUST send Window Scale options in their <SYN> segments to
        //# enable window scaling in either direction.
        //= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
        //# The Window Scale option MUST be sent with shift.cnt = R, where R is the value that the TCP would like to use
        //# for its receive window.
        window_scale: config.window_scaling.then(|| config.window_shift()),
        sack_permitted: config.sack,
        timestamps: config.timestamps.then(|| Timestamps { value: ho.clock(now), echo: 0 }),
        sack: SackBlocks::EMPTY,
    }
}

/// Our SYN with a Fast Open option and `len` bytes of data, for the first time. False if there is no buffer.
pub(crate) fn fast_syn(
    sw: &SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    (option, len): (Option<FastOpen>, u32),
    out: &mut Outbox<'_>,
    now: Time,
) -> bool {
    let options = syn_options(ho, out.config, now);
    let flags = TcpFlags::SYN | ho.marks.echo();
    let window = (ho.edge - ho.nxt).clamp(0, i32::from(u16::MAX)) as u16;
    let draft = Draft { seq: sw.una, len, flags, options, window, segment_size: 0, urgent: 0, class: NOT_ECT };
    let rare = ExtraOptions { fast_open: option, ..ExtraOptions::NONE };
    let sent = emit_rare(ho, out, draft, &rare, |dst, sum| rq.copy_unsent(dst, sum));
    if sent {
        out.count(Counter::DataBytesOut, u64::from(len));
    }
    sent
}

/// Our SYN-ACK: an option appears only if the peer offered it (RFC 7323 sections 2.2 and 3.2, RFC 2018 section 2).
pub(crate) fn syn_ack(
    iss: SeqNumber,
    sack: bool,
    rare: &ExtraOptions,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
) {
    let flags = TcpFlags::SYN.union(ACK);
    if sack && ho.scales() && ho.timestamps() && usual_syn::is_usual(rare, ho, out) {
        let timestamps = Timestamps { value: ho.clock(now), echo: ho.ts_recent };
        let options = SynOptions { mss: ho.announce_mss, window_scale: out.config.window_shift(), timestamps };
        if usual_syn::emit(iss, flags, options, ho, out) {
            out.count(Counter::SynAcksOut, 1);
        }
        return;
    }
    let options = Options {
        mss: Some(ho.announce_mss),
        window_scale: ho.scales().then(|| out.config.window_shift()),
        sack_permitted: sack,
        timestamps: ho.timestamps().then(|| Timestamps { value: ho.clock(now), echo: ho.ts_recent }),
        sack: SackBlocks::EMPTY,
    };
    if emit_syn(iss, flags, options, rare, ho, out) {
        out.count(Counter::SynAcksOut, 1);
    }
}

fn emit_syn(
    seq: SeqNumber,
    flags: TcpFlags,
    options: Options,
    rare: &ExtraOptions,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
) -> bool {
    let flags = flags | ho.marks.echo();
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
    //# The window field in a segment where the SYN bit is set (i.e., a <SYN> or <SYN,ACK>) MUST NOT be scaled.
    let window = (ho.edge - ho.nxt).clamp(0, i32::from(u16::MAX)) as u16;
    let draft = Draft { seq, len: 0, flags, options, window, segment_size: 0, urgent: 0, class: NOT_ECT };
    if *rare == ExtraOptions::NONE {
        return emit(ho, out, draft, |_, _| Sum::zero());
    }
    emit_rare(ho, out, draft, rare, |_, _| Sum::zero())
}

/// A reset that the peer must accept: it continues our sequence numbers.
pub(crate) fn reset(sw: &SendWindow, ho: &mut HeaderOut, out: &mut Outbox<'_>, now: Time) {
    let options = usual_options(ho, now);
    let flags = TcpFlags::RST.union(ACK);
    let draft = Draft { seq: sw.nxt, len: 0, flags, options, window: 0, segment_size: 0, urgent: 0, class: NOT_ECT };
    if emit(ho, out, draft, |_, _| Sum::zero()) {
        out.count(Counter::ResetsOut, 1);
    }
}

/// A reset in answer to an unacceptable acknowledgement (RFC 9293 section 3.10.7.4): at its ACK number, without ACK.
pub(crate) fn reset_at(seq: SeqNumber, ho: &mut HeaderOut, out: &mut Outbox<'_>) {
    let draft = Draft {
        seq,
        len: 0,
        flags: TcpFlags::RST,
        options: Options::NONE,
        window: 0,
        segment_size: 0,
        urgent: 0,
        class: NOT_ECT,
    };
    if emit(ho, out, draft, |_, _| Sum::zero()) {
        out.count(Counter::ResetsOut, 1);
    }
}

impl HeaderOut {
    /// Our timestamp clock: milliseconds, with the connection's own offset (RFC 7323 section 5.4).
    //= https://www.rfc-editor.org/rfc/rfc7323#section-4.1
    //# Values of this clock MUST be at least approximately proportional to real time, in order to measure actual RTT.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-5.4
    //# It MUST tick at least once for each 2^31 bytes sent.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-5.4
    //# The recycling time of the timestamp clock MUST be greater than MSL seconds.
    #[inline]
    pub(crate) fn clock(&mut self, now: Time) -> u32 {
        let clock = (now.as_millis() as u32).wrapping_add(self.ts_offset);
        if self.ts_sent.wrapping_sub(clock) > SKEW_MS {
            self.ts_sent = clock;
        }
        self.ts_sent
    }

    /// How far that clock is ahead of `now`, in milliseconds: another thread has sent a later time.
    pub(crate) fn ahead(&mut self, now: Time) -> u32 {
        self.clock(now).wrapping_sub((now.as_millis() as u32).wrapping_add(self.ts_offset))
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.2
//# and MUST NOT be sent in other segments (MUST-65).
//= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
//# When the ACK bit is set in an outgoing segment, the sender MUST echo a recently received TSval sent by the remote
//# TCP in the TSval field of a Timestamps option.
//= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
//# The exact rules on which TSval MUST be echoed are given in Section 4.3.
//= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
//# Once TSopt has been successfully negotiated, that is both <SYN> and <SYN,ACK> contain TSopt, the TSopt MUST be sent
//# in every non-<RST> segment for the duration of the connection, and SHOULD be sent in an <RST> segment (see Section
//# 5.2 for details).
#[inline]
pub(super) fn usual_options(ho: &mut HeaderOut, now: Time) -> Options {
    let mut options = Options::NONE;
    if ho.timestamps() {
        options.timestamps = Some(Timestamps { value: ho.clock(now), echo: ho.ts_recent });
    }
    options
}

#[inline]
pub(super) fn data_draft(
    sw: &SendWindow,
    ho: &mut HeaderOut,
    seq: SeqNumber,
    len: u32,
    flags: TcpFlags,
    now: Time,
) -> Draft {
    let (flags, urgent) = if sw.shaping.is_some() { urgency(sw, seq, flags) } else { (flags, 0) };
    Draft {
        seq,
        len,
        flags: flags | ho.marks.echo(),
        options: usual_options(ho, now),
        window: ho.window_field(),
        segment_size: if len > u32::from(sw.mss) { sw.mss } else { 0 },
        urgent,
        class: NOT_ECT,
    }
}

/// While urgent data is not acknowledged, every segment before its end points at the byte after it (RFC 9293 section
/// 3.8.5, RFC 6093), or as far as a pointer reaches.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
//# The urgent pointer MUST point to the sequence number of the octet following the urgent data (MUST-62).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
//# A TCP implementation MUST support a sequence of urgent data of any length (MUST-31) [19].
#[cold]
fn urgency(sw: &SendWindow, seq: SeqNumber, flags: TcpFlags) -> (TcpFlags, u16) {
    match sw.shaping.as_ref().and_then(|shaping| shaping.urgent) {
        Some(end) if end.gt(seq) => (flags.union(TcpFlags::URG), (end - seq).min(i32::from(u16::MAX)) as u16),
        _ => (flags, 0),
    }
}

/// Emit a segment with data, which takes a credit.
#[inline]
pub(super) fn emit_data(
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    draft: Draft,
    fill: impl FnOnce(&mut [u8], bool) -> Sum,
) -> bool {
    let charged = draft.len > 0;
    if !emit(ho, out, draft, fill) {
        return false;
    }
    if charged {
        out.credit -= 1;
    }
    true
}

/// Bytes of the option with all counters of accurate ECN, padding included.
pub(super) const COUNTERS: u32 = 12;

/// The same for data with the option of accurate ECN: the first data of a client (RFC 9768 section 3.2.3.2.1), and what
/// repeats it (section 3.2.3.3).
#[cold]
pub(super) fn emit_data_with_counters(
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    draft: Draft,
    now: Time,
    fill: impl FnOnce(&mut [u8], bool) -> Sum,
) -> bool {
    let rare = ExtraOptions { ecn: ho.ecn_option_of_data(out.config, now), ..ExtraOptions::NONE };
    if !emit_rare(ho, out, draft, &rare, fill) {
        return false;
    }
    out.credit -= 1;
    true
}

/// Make the segment and put it into the outbox. `fill` writes the data, and sums it on request. False if there is no
/// buffer.
#[inline]
pub(super) fn emit(
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    draft: Draft,
    fill: impl FnOnce(&mut [u8], bool) -> Sum,
) -> bool {
    make(ho, out, draft, None, fill)
}

/// [`emit`] with options that few segments carry; those without room are omitted.
#[cold]
fn emit_rare(
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    draft: Draft,
    rare: &ExtraOptions,
    fill: impl FnOnce(&mut [u8], bool) -> Sum,
) -> bool {
    let fixed = HEADER_LEN + draft.options.emitted_len();
    // SACK blocks are worth more than counters.
    let fits = fixed + rare.emitted_len() <= MAX_HEADER_LEN;
    make(ho, out, draft, fits.then_some(rare), fill)
}

/// Leaves the checksum to the device: the field holds the sum of the pseudo-header.
fn leave_checksum(buf: &mut PktBuf, pseudo: Sum) {
    buf[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
    buf.meta_mut().checksum = Checksum::Partial { start: 0, offset: CHECKSUM_OFFSET as u16 };
}

/// The segment itself.
#[inline(always)]
fn make(
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    draft: Draft,
    rare: Option<&ExtraOptions>,
    fill: impl FnOnce(&mut [u8], bool) -> Sum,
) -> bool {
    let Some(mut buf) = PktBuf::alloc_near(out.region, draft.len as usize) else {
        out.tx_blocked = true;
        return false;
    };
    let left_to_device = draft.segment_size > 0 || out.config.tx_checksum_offload;
    let data = fill(buf.append(draft.len as usize), !left_to_device);
    let header = Header {
        src_port: ho.local_port,
        dst_port: ho.remote_port,
        seq: draft.seq,
        ack: if draft.flags.contains(ACK) { ho.nxt } else { SeqNumber(0) },
        flags: draft.flags,
        window: draft.window,
        urgent: draft.urgent,
        header_len: 0,
        options: draft.options,
    };
    let len = rare.map_or_else(|| header.emitted_len(), |rare| header.emitted_len_with(rare));
    let pseudo = Sum::zero().add_u16(ho.pseudo).add_u16((len + draft.len as usize) as u16);
    let front = buf.push_front(len);
    match rare {
        None if !left_to_device => {
            // The header's length is even, so the data's sum joins without a byte swap.
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
            //# The sender MUST generate it (MUST-2)
            header.emit_sealed(out.config.option_order, pseudo.add(data), front);
        }
        None => {
            header.emit_ordered(out.config.option_order, front);
            leave_checksum(&mut buf, pseudo);
        }
        Some(rare) => {
            header.emit_with(out.config.option_order, rare, front);
            if left_to_device {
                leave_checksum(&mut buf, pseudo);
            } else {
                let sum = pseudo.add(pktbuf::sum(front)).add(data).finish();
                front[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&sum.to_be_bytes());
            }
        }
    }
    ho.describe(buf.meta_mut(), draft.class);
    buf.meta_mut().segment_size = draft.segment_size;
    if draft.flags.contains(ACK) {
        if draft.window == 0 && ho.advertised_edge != ho.acked && !draft.flags.contains(TcpFlags::RST) {
            out.count(Counter::ZeroWindowsOut, 1);
        }
        ho.acked = ho.nxt;
        ho.advertised_edge = ho.edge;
    }
    leave(buf, ho, out);
    true
}
