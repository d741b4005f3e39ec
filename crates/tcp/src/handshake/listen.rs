//! SEGMENT ARRIVES in LISTEN (RFC 9293 section 3.10.7.2): a SYN makes a half-open connection.
//!
//! A listener is not a PCB: it is a [`ListenParams`], which any number of threads may read at once. The `stack` decides
//! which listener a segment belongs to, and how many children it may have.

use observe::{Counter, DropReason, Time};
use wire::tcp::{FastOpen, TcpFlags};

use crate::closed;
use crate::config::ListenParams;
use crate::ecn;
use crate::isn::Isn;
use crate::outbox::Outbox;
use crate::segment::Segment;

use super::half_open::{HalfOpen, agreement};

/// A segment for a listener has arrived that belongs to no connection. A SYN makes a half-open connection, with its
/// SYN-ACK in `out`, which carries `cookie` if there is one (RFC 7413 section 4.2.1); the SYN's payload is not
/// accepted.
///
/// # Errors
/// The reason for which none was made, counted already; a reset may be in `out`.
pub fn syn_arrives(
    params: &ListenParams<'_>,
    segment: &Segment,
    isn: Isn,
    cookie: Option<FastOpen>,
    out: &mut Outbox<'_>,
    now: Time,
) -> Result<HalfOpen, DropReason> {
    admit_syn(segment, out)?;
    let agreed = agreement(&segment.header, &segment.tuple, out.config);
    let half_open = HalfOpen::new(segment.tuple, segment.header.seq, isn, params, &agreed, (out.config, now));
    let mode = ecn::grant(segment.header.flags, segment.ecn(), out.config.ecn);
    let half_open = half_open.with_ecn(mode, segment.ecn());
    half_open.send(params, (None, cookie), out, now);
    if !segment.data.is_empty() {
        out.dropped(DropReason::TcpFastOpenRefused);
    }
    Ok(half_open)
}

/// How a listener handles a segment that belongs to no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenMatch {
    /// The listener takes the segment ([`syn_arrives`]): it is a SYN, or it has neither SYN nor ACK and is dropped.
    Listener,
    /// The listener takes the segment if it has sent cookies and this brings one back ([`crate::syn_cookie`]);
    /// otherwise it is answered as in CLOSED.
    Cookie,
    /// No listener takes the segment: it is answered as in CLOSED.
    Nothing,
}

/// How a listener handles `segment`, which belongs to no connection (RFC 9293 section 3.10.7.2: first RST, second ACK,
/// third SYN).
#[inline]
pub fn claim(segment: &Segment) -> ListenMatch {
    let flags = segment.header.flags;
    if flags.contains(TcpFlags::RST) {
        ListenMatch::Nothing
    } else if flags.contains(TcpFlags::SYN) || !flags.contains(TcpFlags::ACK) {
        ListenMatch::Listener
    } else {
        ListenMatch::Cookie
    }
}

/// The checks of LISTEN: only a SYN passes.
pub(crate) fn admit_syn(segment: &Segment, out: &mut Outbox<'_>) -> Result<(), DropReason> {
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
        closed::deny(segment, out);
        return Err(out.dropped(DropReason::TcpListenNotSyn));
    }
    // RFC 9293 section 3.10.7.2 queues the FIN for later; no peer opens that way, and Linux drops it as well.
    if !flags.contains(TcpFlags::SYN) || flags.contains(TcpFlags::FIN) {
        return Err(out.dropped(DropReason::TcpBadFlags));
    }
    out.count(Counter::SynsIn, 1);
    Ok(())
}
