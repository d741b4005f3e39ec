//! Continues a transmission that the device blocked.

use observe::Time;

use super::TcpEvent;
use super::segment_arrives::fast_path;
use crate::access::PcbAccess;
use crate::outbox::Outbox;
use crate::state::State;

/// The device (or the buffer pool) takes segments again: continue where [`Outbox::tx_blocked`] was set.
#[derive(Clone, Copy, Debug)]
pub struct TransmitReady;

impl TcpEvent for TransmitReady {
    type Reply = ();

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) {
        if pcb.send_side(|sw, rq| sw.state != State::Closed && sw.has_work(rq)) {
            fast_path::transmit(pcb, out, None, now);
        }
    }
}
