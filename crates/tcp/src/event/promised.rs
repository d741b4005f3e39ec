//! SEND without waiting for the answer: the user was granted room beforehand.
//!
//! [`SendRoom`] requests the room, and data up to it is appended with [`SendPromised`], in any number of pieces. It is
//! appended completely, even if the room has shrunk meanwhile because memory is scarce or segments have become smaller:
//! the buffer then exceeds its limit by no more than was promised.

use observe::Time;

use super::TcpEvent;
use super::send::{Chunks, enqueue, may_send, room};
use crate::access::PcbAccess;
use crate::error::Error;
use crate::outbox::Outbox;
use crate::output;
use crate::pcb::{Ack, Push};

/// Bytes for which the send buffer has room now; 0 where no data can be sent.
#[derive(Clone, Copy, Debug)]
pub struct SendRoom;

impl TcpEvent for SendRoom {
    type Reply = usize;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, _now: Time) -> usize {
        pcb.send_side(|sw, rq| if may_send(sw).is_ok() { room(sw, rq, 0, out) } else { 0 })
    }
}

/// Appends all of the data, for which [`SendRoom`] has granted room, and sends what may be sent.
pub struct SendPromised(pub Chunks);

impl TcpEvent for SendPromised {
    /// Bytes appended.
    ///
    /// # Errors
    /// As [`Send`](super::Send); the data is dropped then.
    type Reply = Result<usize, Error>;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<usize, Error> {
        let mut appended = 0;
        let advertised = pcb.transmit(out, |sw, rq, ho, out| {
            may_send(sw)?;
            for chunk in self.0 {
                appended += chunk.len();
                enqueue(rq, chunk, out, now);
            }
            sw.hold.set_push(Push::Asked);
            let advertised = output::transmit(sw, rq, ho, out, now, Ack::None);
            sw.hold.set_push(Push::Asked.after_call());
            Ok(advertised)
        });
        if let Some(advertised) = advertised? {
            pcb.receive_side(|rw, _| rw.data_sent(advertised, out.config, now));
        }
        Ok(appended)
    }
}
