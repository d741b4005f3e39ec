//! The usual SYN and SYN-ACK, whose options are the four that nearly every SYN has: like the segments of the fast lane
//! ([`crate::lane`]), their header is computed in registers and summed as it is stored. What may never happen: a difference
//! to what `segments.rs` makes for the same options; `tests/lane.rs` compares them.

use observe::Counter;
use pktbuf::PktBuf;
use wire::checksum::Sum;
use wire::tcp::{ExtraOptions, Header, OptionOrder, Options, SYN_LEN, SynOptions, TcpFlags, Timestamps};
use wire::{FourTuple, SeqNumber};

use super::{ACK, leave};
use crate::config::{Config, ConnectionOptions};
use crate::ecn_state::NOT_ECT;
use crate::outbox::Outbox;
use crate::pcb::{HeaderOut, describe, pseudo};

/// Whether SYNs with all four options and a window may be made here.
#[inline(always)]
fn are_made_here(config: &Config) -> bool {
    config.fast_lane && config.option_order == OptionOrder::Linux && !config.tx_checksum_offload
}

/// Whether a SYN with all four options and `rare` ones may be made here.
#[inline(always)]
pub(super) fn is_usual(rare: &ExtraOptions, ho: &HeaderOut, out: &Outbox<'_>) -> bool {
    are_made_here(out.config) && *rare == ExtraOptions::NONE && ho.edge.gt(ho.nxt)
}

/// A listener's SYN-ACK with all four options, no others, and no ECN.
pub(crate) struct UsualAnswer<'a> {
    pub(crate) tuple: &'a FourTuple,
    pub(crate) iss: SeqNumber,
    /// RCV.NXT.
    pub(crate) nxt: SeqNumber,
    /// In bytes.
    pub(crate) window: u32,
    pub(crate) announced: u16,
    pub(crate) timestamps: Timestamps,
    /// 0: none.
    pub(crate) flow_hash: u32,
    /// For the IP header.
    pub(crate) options: &'a ConnectionOptions,
}

impl UsualAnswer<'_> {
    /// Makes it, without the header-out part of a PCB. False: it cannot be made here.
    #[inline]
    pub(crate) fn send(&self, out: &mut Outbox<'_>) -> bool {
        if !are_made_here(out.config) || self.window == 0 {
            return false;
        }
        let UsualAnswer { tuple, iss, nxt, announced, timestamps, .. } = *self;
        let header = Header {
            src_port: tuple.local_port,
            dst_port: tuple.remote_port,
            seq: iss,
            ack: nxt,
            flags: TcpFlags::SYN.union(ACK),
            //= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
            //# The window field in a segment where the SYN bit is set (i.e., a <SYN> or <SYN,ACK>) MUST NOT be scaled.
            window: self.window.min(u32::from(u16::MAX)) as u16,
            urgent: 0,
            header_len: 0,
            options: Options::NONE,
        };
        let options = SynOptions { mss: announced, window_scale: out.config.window_shift(), timestamps };
        let addresses = pseudo(tuple.local_addr, tuple.remote_addr);
        let Some(mut buffer) = make(&header, options, addresses, out) else { return true };
        describe(buffer.meta_mut(), self.flow_hash, self.options);
        out.segments.push(buffer);
        out.count(Counter::SegmentsOut, 1);
        out.count(Counter::SynAcksOut, 1);
        true
    }
}

/// A SYN or SYN-ACK with this `header` but for its options. `None`: there is no buffer.
#[inline(always)]
fn make(header: &Header, options: SynOptions, addresses: Sum, out: &mut Outbox<'_>) -> Option<PktBuf> {
    let Some(mut buffer) = PktBuf::alloc_around(out.region, SYN_LEN, 0) else {
        out.tx_blocked = true;
        return None;
    };
    if let Some(front) = buffer.first_chunk_mut() {
        *front = header.synchronising(options, addresses.add_u16(SYN_LEN as u16));
    }
    Some(buffer)
}

/// Makes the SYN or SYN-ACK at `seq`, with these control bits and those that ECN adds. False: there is no buffer.
pub(super) fn emit(
    seq: SeqNumber,
    flags: TcpFlags,
    options: SynOptions,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
) -> bool {
    let answers = flags.contains(ACK);
    let header = Header {
        src_port: ho.local_port,
        dst_port: ho.remote_port,
        seq,
        ack: if answers { ho.nxt } else { SeqNumber(0) },
        flags: flags | ho.marks.echo(),
        //= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
        //# The window field in a segment where the SYN bit is set (i.e., a <SYN> or <SYN,ACK>) MUST NOT be scaled.
        window: (ho.edge - ho.nxt).clamp(0, i32::from(u16::MAX)) as u16,
        urgent: 0,
        header_len: 0,
        options: Options::NONE,
    };
    let Some(mut buffer) = make(&header, options, Sum::zero().add_u16(ho.pseudo), out) else { return false };
    ho.describe(buffer.meta_mut(), NOT_ECT);
    if answers {
        ho.acked = ho.nxt;
        ho.advertised_edge = ho.edge;
    }
    leave(buffer, ho, out);
    true
}
