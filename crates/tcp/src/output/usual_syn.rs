//! The usual SYN and SYN-ACK, whose options are the four that nearly every SYN has: like the segments of the fast lane
//! ([`crate::lane`]), their header is computed in registers and summed as it is stored. What may never happen: a difference
//! to what `segments.rs` makes for the same options; `tests/lane.rs` compares them.

use pktbuf::PktBuf;
use wire::SeqNumber;
use wire::checksum::Sum;
use wire::tcp::{ExtraOptions, Header, OptionOrder, Options, SYN_LEN, SynOptions, TcpFlags};

use super::{ACK, leave};
use crate::ecn_state::NOT_ECT;
use crate::outbox::Outbox;
use crate::pcb::HeaderOut;

/// Whether a SYN with all four options and `rare` ones may be made here.
#[inline(always)]
pub(super) fn is_usual(rare: &ExtraOptions, ho: &HeaderOut, out: &Outbox<'_>) -> bool {
    let config = out.config;
    config.fast_lane
        && config.option_order == OptionOrder::Linux
        && !config.tx_checksum_offload
        && *rare == ExtraOptions::NONE
        && ho.edge.gt(ho.nxt)
}

/// Makes the SYN or SYN-ACK at `seq`, with these control bits and those that ECN adds. False: there is no buffer.
pub(super) fn emit(
    seq: SeqNumber,
    flags: TcpFlags,
    options: SynOptions,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
) -> bool {
    let Some(mut buffer) = PktBuf::alloc_around(out.region, SYN_LEN, 0) else {
        out.tx_blocked = true;
        return false;
    };
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
    let pseudo = Sum::zero().add_u16(ho.pseudo).add_u16(SYN_LEN as u16);
    if let Some(front) = buffer.first_chunk_mut() {
        *front = header.synchronising(options, pseudo);
    }
    ho.describe(buffer.meta_mut(), NOT_ECT);
    if answers {
        ho.acked = ho.nxt;
        ho.advertised_edge = ho.edge;
    }
    leave(buffer, ho, out);
    true
}
