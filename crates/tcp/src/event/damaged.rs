//! Data whose checksum was checked after the connection had been released was found to be damaged.

use observe::{DropReason, Time};

use super::TcpEvent;
use crate::access::PcbAccess;
use crate::error::Error;
use crate::outbox::Outbox;
use crate::output;
use crate::state::State;

/// Data that the connection has acknowledged is not what its checksum says
/// ([`ChecksumPlacement::After`](crate::config::ChecksumPlacement::After)). The peer will not send it again, so the stream cannot
/// continue: the connection is reset, its user learns [`Error::Aborted`], and what has not been taken is dropped. Not an event of
/// RFC 9293.
#[derive(Clone, Copy, Debug)]
pub struct DamagedData;

impl TcpEvent for DamagedData {
    type Reply = ();

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) {
        out.dropped(DropReason::TcpDamagedLate);
        pcb.whole(out, |mut parts, out| {
            parts.receive_window.drop_queue(out);
            parts.reassembly.give_up(out);
            if parts.header_in.state != State::Closed {
                output::reset(parts.send_window, parts.header_out, out, now);
                parts.fail(Error::Aborted, out, now);
                parts.release(out);
            }
        });
    }
}
