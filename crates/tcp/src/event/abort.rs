//! ABORT (RFC 9293 section 3.10.5).

use observe::Time;

use super::segment_arrives::release;
use super::{Event, close};
use crate::access::PcbAccess;
use crate::outbox::Outbox;

/// End the connection at once with a reset, drop all text, and let the user go.
#[derive(Clone, Copy, Debug)]
pub struct Abort;

impl Event for Abort {
    type Reply = ();

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) {
        pcb.whole(out, |mut parts, out| {
            parts.header_in.held = false;
            close::reset(&mut parts, out, now);
            release(&mut parts, out);
        });
    }
}
