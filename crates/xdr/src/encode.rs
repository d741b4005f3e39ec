//! Writing: [`Encoder`], a position in a slice that the caller lends.

use std::fmt;

use crate::{Codec, UNIT, Xdr, padded};

/// Where an encoding goes: the rest of a slice.
#[derive(Debug)]
pub struct Encoder<'a> {
    rest: &'a mut [u8],
    codec: Codec,
}

impl<'a> Encoder<'a> {
    /// An encoder that writes to the front of `to`.
    pub fn new(to: &'a mut [u8], codec: Codec) -> Encoder<'a> {
        Encoder { rest: to, codec }
    }

    /// How arrays are encoded.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// The number of bytes that may still be written.
    pub fn room(&self) -> usize {
        self.rest.len()
    }

    /// The next `length` bytes, for the caller to write.
    ///
    /// # Panics
    ///
    /// If there is less room.
    pub fn reserve(&mut self, length: usize) -> &'a mut [u8] {
        let (front, rest) = std::mem::take(&mut self.rest).split_at_mut(length);
        self.rest = rest;
        front
    }

    /// Writes a unit: an `unsigned int`, or whatever is encoded like one.
    ///
    /// # Panics
    ///
    /// If there is less room than [`UNIT`].
    pub fn unit(&mut self, value: u32) {
        self.reserve(UNIT).copy_from_slice(&value.to_be_bytes());
    }

    /// Writes `bytes` and their padding.
    ///
    /// # Panics
    ///
    /// If there is less room.
    pub fn opaque(&mut self, bytes: &[u8]) {
        let (data, padding) = self.reserve(padded(bytes.len())).split_at_mut(bytes.len());
        data.copy_from_slice(bytes);
        padding.fill(0);
    }

    /// Writes each of `elements`, without a count.
    ///
    /// # Panics
    ///
    /// If there is less room than they take.
    pub fn elements<T: Xdr>(&mut self, elements: &[T]) {
        match T::FIXED {
            Some(length) if self.codec == Codec::Bulk && length > 0 => {
                let to = self.reserve(length * elements.len());
                for (to, element) in to.chunks_exact_mut(length).zip(elements) {
                    element.encode(&mut Encoder { rest: to, codec: Codec::Bulk });
                }
            }
            _ => elements.iter().for_each(|element| element.encode(self)),
        }
    }
}

/// The slice is too short for the encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom {
    /// The bytes that the encoding takes.
    pub needed: usize,
    /// The bytes that there were.
    pub room: usize,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NoRoom { needed, room } = self;
        write!(f, "the encoding takes {needed} bytes and there is room for {room}")
    }
}

impl std::error::Error for NoRoom {}

/// Encodes `value` at the front of `to`, and returns the number of bytes written.
///
/// # Errors
///
/// If `to` is too short. Nothing is written then.
pub fn encode_into<T: Xdr>(value: &T, to: &mut [u8], codec: Codec) -> Result<usize, NoRoom> {
    let needed = value.encoded_len();
    let room = to.len();
    let to = to.get_mut(..needed).ok_or(NoRoom { needed, room })?;
    value.encode(&mut Encoder::new(to, codec));
    Ok(needed)
}

/// The encoding of `value`, by [`Codec::Bulk`].
pub fn to_vec<T: Xdr>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; value.encoded_len()];
    value.encode(&mut Encoder::new(&mut bytes, Codec::Bulk));
    bytes
}
