//! The data of senders and receivers: plain bytes, or messages that are encoded and decoded.
//!
//! A [`Traffic`] belongs to one thread. Connections are named by their index in that thread.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use heddle::TcpStream;
use xdr::{Codec, Decoder, Xdr};

use super::{Params, SendMode};
use crate::worker_pool::Sample as Counts;

mod samples {
    include!(concat!(env!("OUT_DIR"), "/samples.rs"));
}
use samples::{Sample, Samples};

pub(super) trait Traffic: Send {
    /// Sends on connection `index` until the stack takes no more.
    fn send(&mut self, index: usize, stream: &TcpStream) -> io::Result<()>;

    /// Receives on connection `index` until there is nothing left, and counts it.
    fn receive(&mut self, index: usize, stream: &TcpStream, counts: &mut Counts) -> io::Result<()>;
}

/// The traffic that `params` selects.
pub(super) fn of(params: &Params) -> Box<dyn Traffic> {
    match params.presentation {
        None => Box::new(Plain {
            payload: (0..params.message).map(|n| n as u8).collect(),
            mode: params.send,
            buffer: vec![0; params.message],
        }),
        Some(codec) => Box::new(Presented::new(codec, params.message)),
    }
}

/// Calls `step` until it would block. It returns the number of bytes that it moved.
fn until_blocked(mut step: impl FnMut() -> io::Result<usize>) -> io::Result<()> {
    loop {
        match step() {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "a sender closed")),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// The same bytes again and again.
struct Plain {
    payload: Arc<[u8]>,
    mode: SendMode,
    buffer: Vec<u8>,
}

impl Traffic for Plain {
    fn send(&mut self, _index: usize, mut stream: &TcpStream) -> io::Result<()> {
        let payload = &self.payload;
        until_blocked(|| match self.mode {
            SendMode::Shared => stream.send_shared(payload, 0..payload.len()),
            SendMode::Write => stream.write(payload),
        })
    }

    fn receive(&mut self, _index: usize, mut stream: &TcpStream, counts: &mut Counts) -> io::Result<()> {
        until_blocked(|| {
            let count = stream.read(&mut self.buffer)?;
            counts.bytes += count as u64;
            counts.operations += u64::from(count > 0);
            Ok(count)
        })
    }
}

/// Messages through a presentation layer: the sender encodes an array of structures for each message, the receiver decodes
/// it, and both give its memory back (Schmidt & Suda 1995, section 3.2). The receiver checks that messages
/// arrive in order.
struct Presented {
    codec: Codec,
    message: Samples,
    /// The bytes of a message.
    length: usize,
    connections: Vec<Connection>,
}

/// One end of a connection: a sender's or a receiver's.
#[derive(Default)]
struct Connection {
    /// The encoded message.
    bytes: Vec<u8>,
    /// Number of its bytes that have been sent, or received.
    done: usize,
    /// The number of the message.
    number: u32,
}

impl Presented {
    fn new(codec: Codec, most: usize) -> Presented {
        let sample = |n: usize| Sample {
            channel: n as i32,
            sequence: 0,
            at: -(n as i64),
            level: n as f32,
            reading: 1.0 / (n + 1) as f64,
        };
        let count = samples_in(most);
        let message =
            Samples::try_from((0..count).map(sample).collect::<Vec<_>>()).expect("a message is not 2^32 samples");
        Presented { codec, length: message.encoded_len(), message, connections: Vec::new() }
    }

    /// Connection `index` of this thread, made when it is used first.
    fn connection(connections: &mut Vec<Connection>, index: usize) -> &mut Connection {
        if connections.len() <= index {
            connections.resize_with(index + 1, Connection::default);
        }
        &mut connections[index]
    }
}

/// The number of samples in a message of at most `bytes` bytes, at least one.
fn samples_in(bytes: usize) -> usize {
    (bytes.saturating_sub(xdr::UNIT) / Sample::LEAST).max(1)
}

/// The bytes of a message that is not longer than `bytes`, unless not even one structure has room.
pub fn presented_length(bytes: usize) -> usize {
    xdr::UNIT + samples_in(bytes) * Sample::LEAST
}

impl Traffic for Presented {
    fn send(&mut self, index: usize, mut stream: &TcpStream) -> io::Result<()> {
        let Presented { codec, message, length, connections } = self;
        let connection = Presented::connection(connections, index);
        until_blocked(|| {
            if connection.bytes.is_empty() {
                message[0].sequence = connection.number;
                let mut bytes = vec![0; *length];
                xdr::encode_into(message, &mut bytes, *codec).map_err(io::Error::other)?;
                connection.bytes = bytes;
            }
            let count = stream.write(&connection.bytes[connection.done..])?;
            connection.done += count;
            if connection.done == connection.bytes.len() {
                *connection = Connection { number: connection.number.wrapping_add(1), ..Connection::default() };
            }
            Ok(count)
        })
    }

    fn receive(&mut self, index: usize, mut stream: &TcpStream, counts: &mut Counts) -> io::Result<()> {
        let Presented { codec, length, connections, .. } = self;
        let connection = Presented::connection(connections, index);
        until_blocked(|| {
            connection.bytes.resize(*length, 0);
            let count = stream.read(&mut connection.bytes[connection.done..])?;
            connection.done += count;
            counts.bytes += count as u64;
            if connection.done == *length {
                let message =
                    Samples::decode(&mut Decoder::new(&connection.bytes, *codec)).map_err(io::Error::other)?;
                if message.first().map(|sample| sample.sequence) != Some(connection.number) {
                    return Err(io::Error::other("a message arrived that is not the next one"));
                }
                counts.operations += 1;
                *connection = Connection { number: connection.number.wrapping_add(1), ..Connection::default() };
            }
            Ok(count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_long_as_its_samples_allow() {
        // A count of 4 bytes, and samples of 28: 4096 bytes hold 146 of them.
        assert_eq!(presented_length(4096), 4 + 146 * 28);
        assert_eq!(presented_length(32), 32);
        assert_eq!(presented_length(59), 32);
        assert_eq!(presented_length(60), 60);
        assert_eq!(presented_length(1), 32, "one sample is the least");
        assert_eq!(Presented::new(Codec::Bulk, 4096).length, presented_length(4096));
    }
}
