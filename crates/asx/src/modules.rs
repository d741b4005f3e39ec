//! The modules of this crate. None of them depends on threads, locks, or the process architecture that runs it.

pub mod checksum;
pub mod frame;
pub mod trace;
pub mod xdr;

use crate::message::Message;

/// The bytes of a message, for modules that accept only bytes.
fn bytes_of(message: Message) -> Result<Vec<u8>, String> {
    message.into_bytes().map_err(|message| format!("{message:?} is not bytes; put a module that encodes it above"))
}
