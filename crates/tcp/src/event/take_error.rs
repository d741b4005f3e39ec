//! SO_ERROR: why the connection failed, reported once.

use observe::Time;

use super::TcpEvent;
use crate::access::PcbAccess;
use crate::error::Error;
use crate::outbox::Outbox;

/// Take the pending error, as `getsockopt(SO_ERROR)` does: a second call finds none.
#[derive(Clone, Copy, Debug)]
pub struct TakeError;

impl TcpEvent for TakeError {
    /// `None` if there is none, or it has been reported already.
    type Reply = Option<Error>;

    fn run<A: PcbAccess>(self, pcb: &mut A, _out: &mut Outbox<'_>, _now: Time) -> Option<Error> {
        pcb.header_in(|header_in| header_in.error.take())
    }
}
