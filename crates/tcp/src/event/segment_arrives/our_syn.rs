//! Our SYN, common to SYN-SENT and SYN-RECEIVED: it is acknowledged, or sent again.

use observe::Time;
use wire::tcp::Header;

use super::super::fast_open;
use crate::access::{PcbAccess, PcbMut};
use crate::config::Config;
use crate::congestion::Controller;
use crate::outbox::Outbox;
use crate::output;
use crate::pcb::{Loss, TimerPurpose};
use crate::tick::{Tick, since};
use crate::user_timeout;

/// Our SYN is acknowledged by the segment with this `header`: its byte leaves the sequence space, its timer stops, and
/// its round trip is a sample.
pub(super) fn establish(parts: &mut PcbMut<'_>, header: &Header, out: &mut Outbox<'_>, now: Time) {
    parts.send_window.una += 1;
    if parts.send_window.flight() > 0 {
        fast_open::settle_data(parts, header.ack, out);
    }
    let sw = &mut *parts.send_window;
    sw.wl2 = sw.una;
    sw.small_end = sw.una;
    sw.progress = Tick::of(now);
    // A SYN's first time-outs may leave the RTO as it is, and a half-open connection has its count in the back-off
    // alone.
    let lost = sw.rtt.backoff_count().max(sw.unanswered.into()) as u8;
    if lost == 0 {
        // A cookie is not timed: the time at which it was sent is not kept. If a SYN left twice, only the echo of a
        // timestamp shows which one is acknowledged.
        if sw.rtt.is_timing() {
            let elapsed = since(now.as_micros() as u32, parts.retransmit_queue.log.newest());
            sw.rtt.finish(elapsed, now, &out.config.rto);
        } else if sw.timestamps && !parts.header_in.is_passive() {
            sw.sample_echo(header, out, now);
        }
    } else {
        // RFC 5681 section 3.1: a lost SYN, of either side, is a sign of congestion; begin with one segment.
        let mss = u32::from(sw.mss);
        sw.congestion = Controller::new(sw.congestion.kind(), mss, mss);
        opened_late(parts, lost, out.config, now);
        parts.send_window.rtt.restart_after_lost_syn();
    }
    let sw = &mut *parts.send_window;
    sw.rtt.cancel();
    sw.unanswered = 0;
    sw.set_timer(TimerPurpose::Off, Time::MAX);
    parts.receive_window.begin_data(now);
}

/// Some of our SYNs were not answered: note it for status reports.
fn opened_late(parts: &mut PcbMut<'_>, retries: u8, config: &Config, now: Time) {
    let (sw, first) = (&mut *parts.send_window, parts.retransmit_queue.log.newest());
    let una = sw.una;
    let waited = since(now.as_micros() as u32, first) / 1000;
    // A half-open connection only keeps the time of its last SYN-ACK, which the revived PCB does not have.
    let patience = config.rto.initial_rto.as_millis() as u32;
    let late = if parts.header_in.is_passive() { 0 } else { waited.saturating_sub(patience) };
    sw.loss.get_or_insert_with(|| Loss::new(una)).totals.opened_late(retries, late);
}

/// Answers the peer's SYN with ours, which was sent before.
//= https://www.rfc-editor.org/rfc/rfc6298#section-3
//# TCP MUST use Karn's algorithm [KP87] for taking RTT samples.
pub(super) fn syn_again(parts: &mut PcbMut<'_>, out: &mut Outbox<'_>, now: Time) {
    let rare = user_timeout::of_syn(parts.header_in);
    parts.transmit(out, |sw, _, ho, out| {
        sw.rtt.cancel();
        output::syn(sw, &rare, ho, out, now);
    });
}
