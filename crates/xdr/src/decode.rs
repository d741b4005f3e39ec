//! Reading: [`Decoder`], a position in an unchecked slice.

use std::fmt;

use crate::{Codec, UNIT, Xdr, padded};

/// How deep arrays and optional data may be nested unless [`Decoder::depth`] says otherwise. A decoded level
/// takes some hundred bytes of the thread's stack.
const DEPTH: u32 = 256;

/// The rest of an input.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    codec: Codec,
    depth: u32,
}

impl<'a> Decoder<'a> {
    /// A decoder that begins at the front of `bytes`.
    pub fn new(bytes: &'a [u8], codec: Codec) -> Decoder<'a> {
        Decoder { rest: bytes, codec, depth: DEPTH }
    }

    /// The same with another bound on the nesting of arrays and optional data. A list made of optional data (RFC 4506
    /// section 4.19) takes a level for each of its elements. Without this call the bound is 256.
    pub fn depth(self, depth: u32) -> Decoder<'a> {
        Decoder { depth, ..self }
    }

    /// How arrays are decoded.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// The unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `length` bytes.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Ended`] if there are fewer.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (front, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Ended)?;
        self.rest = rest;
        Ok(front)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Ended`] if there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (front, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Ended)?;
        self.rest = rest;
        Ok(*front)
    }

    /// The next unit as an `unsigned int`.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Ended`] if there are fewer bytes than [`UNIT`].
    pub fn unit(&mut self) -> Result<u32, DecodeError> {
        self.array::<UNIT>().map(u32::from_be_bytes)
    }

    /// `length` bytes of opaque data, whose padding is read, too.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Ended`] if there are fewer, [`DecodeError::Padding`] if the padding is not zero.
    pub fn opaque(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let bytes = self.take(length)?;
        let padding = self.take(padded(length) - length)?;
        if padding.iter().any(|&byte| byte != 0) {
            return Err(DecodeError::Padding);
        }
        Ok(bytes)
    }

    /// A count of elements or bytes, compared with the `bound` of the type, and with what the rest of the input can
    /// hold if each of them takes at least `least` bytes, which is not 0.
    ///
    /// # Errors
    ///
    /// [`DecodeError::TooLong`] above the bound, [`DecodeError::Ended`] where the input cannot hold so many.
    pub fn count(&mut self, bound: u32, least: usize) -> Result<usize, DecodeError> {
        let count = self.unit()?;
        if count > bound {
            return Err(DecodeError::TooLong { length: count, bound });
        }
        let possible = self.rest.len() / least;
        let count = count as usize;
        if count > possible { Err(DecodeError::Ended) } else { Ok(count) }
    }

    /// `count` elements. Each takes one level of nesting, together.
    ///
    /// # Errors
    ///
    /// The first that an element meets, or [`DecodeError::TooDeep`].
    pub fn elements<T: Xdr>(&mut self, count: usize) -> Result<Vec<T>, DecodeError> {
        match T::FIXED {
            Some(length) if self.codec == Codec::Bulk && length > 0 => {
                let total = count.checked_mul(length).ok_or(DecodeError::Ended)?;
                let depth = self.depth;
                let element = |rest| T::decode(&mut Decoder { rest, codec: Codec::Bulk, depth });
                self.take(total)?.chunks_exact(length).map(element).collect()
            }
            _ => self.nested(|from| {
                let mut elements = match from.codec {
                    Codec::Bulk => Vec::with_capacity(count),
                    Codec::FieldByField => Vec::new(),
                };
                for _ in 0..count {
                    elements.push(T::decode(from)?);
                }
                Ok(elements)
            }),
        }
    }

    /// Runs `read` one level deeper.
    ///
    /// # Errors
    ///
    /// [`DecodeError::TooDeep`] at the last level; what `read` returns.
    pub fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
        self.depth = self.depth.checked_sub(1).ok_or(DecodeError::TooDeep)?;
        let value = read(self);
        self.depth += 1;
        value
    }
}

/// Why bytes are no encoding of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The input ends within the value, or cannot hold as many elements as it announces.
    Ended,
    /// A length is above the bound of its type.
    TooLong {
        /// The length in the input.
        length: u32,
        /// The bound in the specification.
        bound: u32,
    },
    /// The bytes after opaque data are not zero (RFC 4506 section 3).
    Padding,
    /// A Boolean is neither 0 nor 1 (section 4.4), or optional data is neither absent nor present (section 4.19).
    NotBoolean(u32),
    /// An enumeration, or the discriminant of a union, has a number that the specification does not assign.
    Unassigned {
        /// The Rust name of the type.
        name: &'static str,
        /// The number in the input, as a signed integer.
        number: i32,
    },
    /// A string is not UTF-8. ASCII, as section 4.11 requires, is always valid UTF-8.
    NotText,
    /// Arrays or optional data are nested deeper than [`Decoder::depth`] allows.
    TooDeep,
    /// Bytes follow the value.
    Trailing(usize),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Ended => f.write_str("the input ends within a value"),
            DecodeError::TooLong { length, bound } => {
                write!(f, "a length of {length} is above the bound of its type, which is {bound}")
            }
            DecodeError::Padding => f.write_str("padding is not zero"),
            DecodeError::NotBoolean(number) => write!(f, "a Boolean is {number}, neither 0 nor 1"),
            DecodeError::Unassigned { name, number } => write!(f, "{name} has no member with the number {number}"),
            DecodeError::NotText => f.write_str("a string is not UTF-8"),
            DecodeError::TooDeep => f.write_str("data is nested deeper than the decoder allows"),
            DecodeError::Trailing(bytes) => write!(f, "{bytes} bytes follow the value"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Decodes a value that takes all of `bytes`, by [`Codec::Bulk`].
///
/// # Errors
///
/// See [`DecodeError`]; [`DecodeError::Trailing`] if bytes follow the value.
pub fn from_bytes<T: Xdr>(bytes: &[u8]) -> Result<T, DecodeError> {
    match prefix_from_bytes(bytes)? {
        (value, []) => Ok(value),
        (_, rest) => Err(DecodeError::Trailing(rest.len())),
    }
}

/// Decodes a value at the front of `bytes`, by [`Codec::Bulk`], and returns it with what follows it.
///
/// # Errors
///
/// See [`DecodeError`].
pub fn prefix_from_bytes<T: Xdr>(bytes: &[u8]) -> Result<(T, &[u8]), DecodeError> {
    let mut from = Decoder::new(bytes, Codec::Bulk);
    let value = T::decode(&mut from)?;
    Ok((value, from.rest()))
}
