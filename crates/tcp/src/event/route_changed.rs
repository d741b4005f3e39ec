//! Routes have changed under an open connection: the path to its peer may have become narrower or wider, or there is
//! none.
//!
//! Run by the stack after the first emission under the changed table, or at the request of a connection that searches
//! for its path's MTU; the next hop is not TCP's concern. Only the path's MTU is applied again: the other attributes of
//! a route (advertised MSS, initial windows) apply when a connection opens. What may never happen: segments larger than
//! the peer's MSS, however wide the path.

use observe::{Counter, Time};

use super::TcpEvent;
use super::icmp::{send_all_again, shrink};
use crate::access::{PcbAccess, PcbMut};
use crate::error::Error;
use crate::outbox::Outbox;
use crate::output;
use crate::pcb::Ack;

/// The routes have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteChanged {
    /// Bytes behind the fixed 20 bytes of the TCP header that the path carries now; `None`: there is no route.
    pub mss: Option<u16>,
    /// Segments just made were too large for that and were not sent.
    pub lost: bool,
}

impl TcpEvent for RouteChanged {
    type Reply = ();

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) {
        pcb.whole(out, |mut parts, out| {
            match self.mss {
                Some(mss) => self.adapt(mss, &mut parts, out, now),
                //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.8
                //# There MUST be a mechanism for reporting soft TCP error conditions to the application (MUST-47).
                None => parts.header_in.note_soft_error(Error::NetworkUnreachable, out, now),
            }
            if let Some(search) = parts.send_window.mtu_search() {
                search.heard_of(out.routes);
                send(&mut parts, out, now);
            }
        });
    }
}

impl RouteChanged {
    fn adapt(self, mss: u16, parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
        let size = mss.min(parts.retransmit_queue.largest).max(1);
        if !shrink(size, parts, out) {
            widen(size, parts, out);
        }
        // Not a sign of congestion, like a router's report (RFC 1191 section 6.4). Any recovery under way ends:
        // everything is sent again.
        if self.lost {
            send_all_again(parts, out, now);
        }
    }
}

/// Sends data that was waiting for this.
fn send(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let advertised = parts.transmit(out, |sw, rq, ho, out| output::transmit(sw, rq, ho, out, now, Ack::None));
    if let Some((nxt, edge)) = advertised {
        parts.receive_window.acked(nxt, edge);
    }
}

/// Segments may carry `size` bytes of data and options: at once, unless path MTU discovery by probes is on.
fn widen(size: u16, parts: &mut PcbMut<'_>, out: &Outbox<'_>) {
    let sw = &mut *parts.send_window;
    let mss = size.saturating_sub(sw.option_bytes()).max(1);
    if let Some(search) = sw.mtu_search() {
        search.may_pass(size);
    } else if mss > sw.mss {
        sw.change_mss(mss);
        out.count(Counter::MtuRaises, 1);
    }
}
