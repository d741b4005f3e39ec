//! SEGMENT ARRIVES in LISTEN (RFC 9293 section 3.10.7.2): a SYN makes a child.
//!
//! A listener is no PCB: it is a [`ListenParams`], which any number of threads may read at once. Which listener a
//! segment belongs to, and how many children it may have, is the `stack`'s business.

use observe::{Counter, DropReason, Time};
use wire::tcp::TcpFlags;

use super::flags_make_sense;
use crate::config::ListenParams;
use crate::event::Isn;
use crate::outbox::Outbox;
use crate::pcb::Pcb;
use crate::segment::Segment;
use crate::state::{Cause, State};

/// A segment for a listener has arrived that belongs to no connection. A SYN makes a child in SYN-RECEIVED, with its
/// SYN-ACK in `out`. When the child is established, `out.table` says so; if it never is, `out.table` says to remove it.
///
/// # Errors
/// The reason for which no child was made, counted already; a reset may be in `out`.
pub fn syn_arrives(
    params: &ListenParams,
    segment: &Segment,
    isn: Isn,
    out: &mut Outbox<'_>,
    now: Time,
) -> Result<Pcb, DropReason> {
    let flags = segment.header.flags;
    out.count(Counter::SegmentsIn, 1);
    if !segment.checksum_holds() {
        return Err(out.dropped(DropReason::TcpBadChecksum));
    }
    // First: the RST bit. Second: the ACK bit. Third: the SYN bit.
    if flags.contains(TcpFlags::RST) {
        return Err(out.dropped(DropReason::TcpListenNotSyn));
    }
    if flags.contains(TcpFlags::ACK) {
        out.segments.extend(crate::closed::segment_arrives(segment));
        return Err(out.dropped(DropReason::TcpListenNotSyn));
    }
    if !flags.contains(TcpFlags::SYN) || !flags_make_sense(flags) {
        return Err(out.dropped(DropReason::TcpBadFlags));
    }
    out.count(Counter::SynsIn, 1);
    let mut pcb = Pcb::closed(segment.tuple, isn, params.mss, &params.options, out.config, now);
    let mut parts = pcb.parts();
    parts.header_in.passive = true;
    parts.header_in.held = false;
    parts.header_in.state = State::Listen;
    parts.enter(Cause::Syn, out, now);
    parts.synchronise(&segment.header, out, now);
    parts.send_syn(out, now);
    Ok(pcb)
}
