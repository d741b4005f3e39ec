//! ICMP messages about a connection (RFC 9293 section 3.9.2.2, RFC 5927, RFC 1191, RFC 8201).
//!
//! Anyone can forge an ICMP error. It counts only if the sequence number that it quotes is in flight, and on an
//! established connection none is fatal unless [`Config::hard_errors_abort`](crate::Config::hard_errors_abort) is set:
//! retransmission decides.

use observe::{Counter, Time};
use wire::SeqNumber;

use super::TcpEvent;
use super::fast_open;
use crate::access::{PcbAccess, PcbMut};
use crate::config::MtuProbing;
use crate::error::Error;
use crate::outbox::Outbox;
use crate::output;
use crate::pcb::{Ack, Flight, RecoveryMode, SendWindow, Sizes};
use crate::state::State;

/// Class of an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpKind {
    /// Port or protocol unreachable: the host has no such service.
    PortUnreachable,
    /// Host unreachable.
    HostUnreachable,
    /// Network unreachable.
    NetworkUnreachable,
    /// Time exceeded, parameter problem, and all other soft errors.
    Transient,
}

/// An ICMP error quotes a segment of this connection.
#[derive(Clone, Copy, Debug)]
pub struct IcmpError {
    /// The class of the error.
    pub kind: IcmpKind,
    /// The sequence number of the quoted segment.
    pub seq: SeqNumber,
}

/// The path to the peer carries segments with at most `mss` bytes of data and options (packet-too-big, or another
/// connection's discovery).
#[derive(Clone, Copy, Debug)]
pub struct PathMtu {
    /// Bytes behind the fixed 20 bytes of the TCP header: path MTU - IP header - 20.
    pub mss: u16,
    /// The sequence number of the quoted segment; `None` if the stack learnt the path MTU in another way.
    pub seq: Option<SeqNumber>,
}

/// Whether `seq` is in flight (RFC 5927 section 4.1).
fn in_flight(sw: &SendWindow, seq: SeqNumber) -> bool {
    seq.ge(sw.una) && seq.lt(sw.nxt)
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
//# Since these Unreachable messages indicate soft error conditions, a TCP implementation MUST NOT abort the connection
//# (MUST-56),
impl TcpEvent for IcmpError {
    /// Whether the error was believed.
    type Reply = bool;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> bool {
        pcb.whole(out, |mut parts, out| {
            if !in_flight(parts.send_window, self.seq) {
                return false;
            }
            let error = match self.kind {
                IcmpKind::PortUnreachable => Error::Refused,
                IcmpKind::HostUnreachable | IcmpKind::Transient => Error::HostUnreachable,
                IcmpKind::NetworkUnreachable => Error::NetworkUnreachable,
            };
            // RFC 5927 section 5.2: hard errors end a connection only before it is established.
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
            //# These are hard error conditions, so TCP implementations SHOULD abort the connection (SHLD-26).
            let believed = parts.header_in.state == State::SynSent || out.config.hard_errors_abort;
            if believed && error == Error::Refused {
                parts.fail(error, out, now);
                parts.release(out);
            } else {
                //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
                //# and it SHOULD make the information available to the application (SHLD-25).
                parts.header_in.note_soft_error(error, out, now);
            }
            true
        })
    }
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-5.7
//# Setting the DF bit implies the use of Path MTU Discovery as described in [RFC1191], [RFC1981], and [RFC4821]; thus,
//# any TCP implementation that implements PAWS MUST also implement Path MTU Discovery.
impl TcpEvent for PathMtu {
    /// Whether the MSS was lowered.
    type Reply = bool;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> bool {
        pcb.whole(out, |mut parts, out| {
            let known = self.seq.is_none_or(|seq| in_flight(parts.send_window, seq));
            known && lower_mss(self, &mut parts, out, now)
        })
    }
}

/// Retransmissions go unanswered and reach R1 (RFC 9293 section 3.8.3): perhaps a router drops packets that are too
/// large, and its ICMP errors are lost (RFC 2923 section 2.1). If black-hole detection is on, continue with segments
/// that pass nearly everywhere and search from there; if that was done already, halve the segment size. The time-out
/// that led here retransmits.
pub(super) fn suspect_black_hole(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let config = out.config;
    let sw = &mut *parts.send_window;
    sw.mtu_search().into_iter().for_each(|search| search.inconclusive());
    let suspicious = config.mtu_probing != MtuProbing::Off && sw.unanswered == config.suspicious_retries;
    if !suspicious || !sw.state.is_synchronised() {
        return;
    }
    let (before, options) = (sw.mss, sw.option_bytes());
    let floor = config.mtu_probe_floor.max(config.min_mss);
    let size = match sw.mtu_search() {
        Some(search) => search.retreat(before + options, config.base_mss, floor),
        None => sw.search_mtu(config, now),
    };
    sw.change_mss(size.saturating_sub(options).max(1));
    if sw.mss < before {
        out.count(Counter::BlackHoles, 1);
    }
}

/// Use a smaller MSS, and retransmit at once the segments that were too large (RFC 1191 section 6.4: the congestion
/// window stays, because this is no sign of congestion).
fn lower_mss(path: PathMtu, parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> bool {
    let before = parts.send_window.mss;
    if !shrink(path.mss.max(out.config.min_mss), parts, out) {
        return false;
    }
    send_larger_again(parts, (before, path.seq), out, now);
    true
}

/// Segments carry at most `size` bytes of data and options from now on. Returns whether they carried more.
pub(super) fn shrink(size: u16, parts: &mut PcbMut<'_>, out: &Outbox<'_>) -> bool {
    let sw = &mut *parts.send_window;
    let mss = size.saturating_sub(sw.option_bytes()).max(1);
    sw.mtu_search().into_iter().for_each(|search| search.at_most(size));
    if mss >= sw.mss {
        return false;
    }
    sw.change_mss(mss);
    out.count(Counter::PathMtuUpdates, 1);
    true
}

/// The flight was too large to arrive. Retransmit it from the beginning, paced by the acknowledgements, with the window
/// unchanged.
pub(super) fn send_all_again(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    if of_open_early(parts, out, now) {
        return;
    }
    let sw = &mut *parts.send_window;
    if sw.state.may_transmit() && sw.flight() > 0 {
        let (una, nxt) = (sw.una, sw.nxt);
        let loss = sw.begin_disorder();
        loss.forget_board();
        loss.lose_everything(una, nxt);
        repair(parts, out, now);
    }
}

/// Some segments in flight, made with an MSS of `before`, are too large to arrive: only those are retransmitted.
/// `quoted`: the beginning of a segment that a router has dropped.
fn send_larger_again(
    parts: &mut PcbMut<'_>,
    (before, quoted): (u16, Option<SeqNumber>),
    out: &mut Outbox<'_>,
    now: Time,
) {
    let sw = &mut *parts.send_window;
    if sw.mtu_search().is_some_and(|search| search.is_probing()) {
        // One of them had a size of its own.
        return send_all_again(parts, out, now);
    }
    if of_open_early(parts, out, now) {
        return;
    }
    let sw = &mut *parts.send_window;
    if !sw.state.may_transmit() || sw.flight() == 0 {
        return;
    }
    let flight = Flight { una: sw.una, nxt: sw.nxt, fin: sw.fin_sent };
    let sizes = Sizes { before: before.into(), now: sw.mss.into() };
    let (mode, ends) = (sw.mode, [sw.small_end, quoted.unwrap_or(sw.una)]);
    if sw.begin_disorder().lose_larger(&parts.retransmit_queue.log, flight, sizes, &ends) {
        repair(parts, out, now);
    } else {
        sw.set_mode(mode);
    }
}

/// Retransmits a SYN that had data without it. True if such a SYN is in flight.
fn of_open_early(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> bool {
    let early = parts.header_in.state == State::SynSent && parts.send_window.flight() > 1;
    if early {
        fast_open::too_large(parts, parts.send_window.mss, out, now);
    }
    early
}

/// Retransmit the lost segments; the loss is no sign of congestion.
fn repair(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let sw = &mut *parts.send_window;
    sw.set_mode(RecoveryMode::Loss);
    sw.rtt.cancel();
    let advertised = parts.transmit(out, |sw, rq, ho, out| output::transmit(sw, rq, ho, out, now, Ack::None));
    if let Some((nxt, edge)) = advertised {
        parts.receive_window.acked(nxt, edge);
    }
}
