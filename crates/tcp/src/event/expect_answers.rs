//! The user answers what it receives at once: acknowledgements wait for the answers.

use observe::Time;

use super::TcpEvent;
use crate::access::PcbAccess;
use crate::outbox::Outbox;

/// Begin a dialogue (`pcb/ack_delay.rs`) without having seen one: the connection's user is a program that runs where its
/// data arrives, so the first answer already carries the acknowledgement. A delay that ends without an answer ends the
/// dialogue as usual.
#[derive(Clone, Copy, Debug)]
pub struct ExpectAnswers;

impl TcpEvent for ExpectAnswers {
    type Reply = ();

    fn run<A: PcbAccess>(self, pcb: &mut A, _out: &mut Outbox<'_>, _now: Time) {
        pcb.receive_side(|rw, _| rw.delay.begin_dialogue());
    }
}
