//! The sending side of the search for the path's MTU: when a probe may be sent, and the effect of its arrival. The
//! rules of the search itself are in `pcb/mtu_search.rs`.
//!
//! Called for new data of connections that search. After a change of routes, nothing is sent before the stack has
//! reported the path's MTU, at the end of the event ([`crate::RouteChanged`]). A probe is sent only where its loss is
//! detected at once: with enough data behind it to start recovery without a time-out, in a window of at least
//! [`LEAST_WINDOW`] segments.

use super::*;
use crate::sack::DUP_THRESH;

/// Least congestion window in segments for a probe, as on Linux: in a smaller one a loss would cost too much.
const LEAST_WINDOW: u32 = 11;

/// Sends a probe if one is due; returns its bytes of sequence space. `None`: a segment of the usual size may be sent.
#[cold]
pub(super) fn send_probe(
    sw: &mut SendWindow,
    rq: &mut RetransmitQueue,
    ho: &mut HeaderOut,
    out: &mut Outbox<'_>,
    now: Time,
    room: NewSegmentLimits,
) -> Option<Result<u32, StopReason>> {
    take_result(sw, out);
    if !room.push && sw.mtu_search().is_some_and(|search| search.is_behind(out.routes)) {
        out.ask_for_path();
        return Some(Err(StopReason::Path));
    }
    let len = next_size(sw, rq, out, now, room)?;
    let left = sw.nxt;
    let small_end = sw.small_end;
    let sent = put_new(sw, rq, ho, out, now, NewData { len, fin: false, pushed: false, whole: true });
    if sent.is_ok() {
        // Larger than the others, it is not small by Nagle's rule.
        sw.small_end = small_end;
        let size = len as u16 + sw.option_bytes();
        if let Some(search) = sw.mtu_search() {
            search.sent(left, left + len, size);
        }
        out.count(Counter::MtuProbesOut, 1);
    }
    Some(sent)
}

/// After a probe has arrived, all segments have its size. The window in bytes stays the same.
fn take_result(sw: &mut SendWindow, out: &Outbox<'_>) {
    let (una, options) = (sw.una, sw.option_bytes());
    if let Some(size) = sw.mtu_search().and_then(|search| search.passed(una)) {
        sw.change_mss(size.saturating_sub(options).max(1));
        out.count(Counter::MtuRaises, 1);
    }
}

/// Bytes of data of a probe, if one may leave now.
fn next_size(
    sw: &mut SendWindow,
    rq: &RetransmitQueue,
    out: &Outbox<'_>,
    now: Time,
    room: NewSegmentLimits,
) -> Option<u32> {
    let mss = u32::from(sw.mss);
    let quiet = sw.mode == RecoveryMode::Open && !room.push && out.credit > 0;
    if !quiet || sw.congestion.cwnd() < LEAST_WINDOW * mss || room.congestion < mss {
        return None;
    }
    let (threshold, interval) = (out.config.mtu_probe_threshold, out.config.mtu_probe_interval);
    let options = sw.option_bytes();
    let size = sw.mtu_search()?.next(mss as u16 + options, threshold, interval, now)?;
    let len = u32::from(size.saturating_sub(options));
    let needed = len + (DUP_THRESH + 1) * mss;
    let window = (sw.right_edge() - sw.nxt).max(0) as u32;
    (rq.len - sw.sent_data() >= needed && window >= needed).then_some(len)
}
