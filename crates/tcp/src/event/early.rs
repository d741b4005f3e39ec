//! A connection that is open early (RFC 7413). It is in SYN-RECEIVED, but its window parts are those of an established
//! connection: their copies of the state say so, and SND.UNA is past the SYN as if that were acknowledged. The rest of
//! the handshake uses the state in the header-in part, which is authoritative. [`crate::handshake`] makes such a
//! connection.

use observe::Time;
use wire::SeqNumber;
use wire::tcp::Header;

use crate::access::PcbMut;
use crate::congestion::Controller;
use crate::outbox::Outbox;
use crate::pcb::{Loss, SendWindow};
use crate::tick::Tick;

/// Whether `ack` acknowledges the SYN of a connection that is open early.
pub(crate) fn covers(sw: &SendWindow, ack: SeqNumber) -> bool {
    ack.ge(sw.una) && ack.le(sw.nxt)
}

/// The handshake is complete: the timer of the SYN-ACK becomes that of the data.
pub(crate) fn complete(parts: &mut PcbMut<'_>, header: &Header, out: &mut Outbox<'_>, now: Time) {
    let sw = &mut *parts.send_window;
    sw.progress = Tick::of(now);
    sw.unanswered = 0;
    if sw.rtt.backoff_count() > 0 {
        // As for any lost SYN-ACK; no data was retransmitted meanwhile, and its timer begins now.
        let mss = u32::from(sw.mss);
        sw.congestion = Controller::new(sw.congestion.kind(), mss, mss);
        let (una, retries) = (sw.una, sw.rtt.backoff_count() as u8);
        sw.loss.get_or_insert_with(|| Loss::new(una)).totals.opened_late(retries, 0);
        sw.rtt.cancel();
        sw.rtt.restart_after_lost_syn();
    } else if sw.timestamps {
        sw.sample_echo(header, out, now);
    }
    if sw.flight() > 0 {
        sw.guard_flight(out.config, now);
        sw.arm(out);
    } else {
        sw.stop_timer();
    }
}
