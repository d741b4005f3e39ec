//! `checksum`: the Internet checksum (RFC 1071) of each message, in two bytes before it.
//!
//! It needs messages with boundaries, which [`frame`](crate::modules::frame) below it adds to a stream of bytes.

use wire::checksum::sum;

use crate::message::Message;
use crate::modules::bytes_of;
use crate::queue::{Module, Passed, Queue};

/// The bytes that it adds.
const LENGTH: usize = 2;

/// The module, called `checksum`. A message with a wrong checksum ends the stream.
pub fn module() -> Module {
    Module::new("checksum", SumCheck, SumWriter)
}

struct SumCheck;
struct SumWriter;

impl Queue for SumWriter {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        let bytes = bytes_of(message)?;
        let mut summed = Vec::with_capacity(LENGTH + bytes.len());
        summed.extend(sum(&bytes).finish().to_be_bytes());
        summed.extend(bytes);
        to.on(Message::bytes(summed));
        Ok(())
    }
}

impl Queue for SumCheck {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        let mut bytes = bytes_of(message)?;
        if bytes.len() < LENGTH {
            return Err(format!("a message of {} bytes has no checksum", bytes.len()));
        }
        if !sum(&bytes).is_valid() {
            return Err(format!("the checksum of a message of {} bytes is wrong", bytes.len() - LENGTH));
        }
        bytes.drain(..LENGTH);
        to.on(Message::bytes(bytes));
        Ok(())
    }
}
