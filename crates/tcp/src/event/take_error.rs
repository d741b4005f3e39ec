//! SO_ERROR: why the connection failed, told once.

use observe::Time;

use super::Event;
use crate::access::PcbAccess;
use crate::error::Error;
use crate::outbox::Outbox;

/// Take the pending error, as `getsockopt(SO_ERROR)` does: who asks again hears of none.
#[derive(Clone, Copy, Debug)]
pub struct TakeError;

impl Event for TakeError {
    /// `None` if there is none, or somebody was told already.
    type Reply = Option<Error>;

    fn run<A: PcbAccess>(self, pcb: &mut A, _out: &mut Outbox<'_>, _now: Time) -> Option<Error> {
        pcb.header_in(|header_in| header_in.error.take())
    }
}
