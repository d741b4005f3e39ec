//! Bytes that XDR does not look into, and strings (RFC 4506 sections 4.9 to 4.11).

use std::ops::Deref;

use crate::{DecodeError, Decoder, Encoder, UNIT, Xdr, padded};

impl<const N: usize> Xdr for [u8; N] {
    const LEAST: usize = padded(N);
    const FIXED: Option<usize> = Some(padded(N));

    fn encoded_len(&self) -> usize {
        padded(N)
    }

    fn encode(&self, to: &mut Encoder<'_>) {
        to.opaque(self);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(from.opaque(N)?);
        Ok(bytes)
    }
}

/// At most `MAX` bytes: `opaque name<MAX>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Opaque<const MAX: u32>(Vec<u8>);

impl<const MAX: u32> Opaque<MAX> {
    /// The bytes, without a copy.
    pub fn into_inner(self) -> Vec<u8> {
        self.0
    }
}

impl<const MAX: u32> TryFrom<Vec<u8>> for Opaque<MAX> {
    type Error = DecodeError;

    /// # Errors
    ///
    /// [`DecodeError::TooLong`] above `MAX` bytes.
    fn try_from(bytes: Vec<u8>) -> Result<Self, DecodeError> {
        within(bytes.len(), MAX)?;
        Ok(Opaque(bytes))
    }
}

impl<const MAX: u32> Deref for Opaque<MAX> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<const MAX: u32> Xdr for Opaque<MAX> {
    const LEAST: usize = UNIT;
    const FIXED: Option<usize> = None;

    fn encoded_len(&self) -> usize {
        UNIT + padded(self.0.len())
    }

    fn encode(&self, to: &mut Encoder<'_>) {
        encode_counted(&self.0, to);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let length = from.count(MAX, 1)?;
        Ok(Opaque(from.opaque(length)?.to_vec()))
    }
}

/// A string of at most `MAX` bytes: `string name<MAX>`. RFC 4506 asks for ASCII; all of UTF-8 is taken, and nothing
/// else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Text<const MAX: u32>(String);

impl<const MAX: u32> Text<MAX> {
    /// The string, without a copy.
    pub fn into_inner(self) -> String {
        self.0
    }
}

impl<const MAX: u32> TryFrom<String> for Text<MAX> {
    type Error = DecodeError;

    /// # Errors
    ///
    /// [`DecodeError::TooLong`] above `MAX` bytes.
    fn try_from(string: String) -> Result<Self, DecodeError> {
        within(string.len(), MAX)?;
        Ok(Text(string))
    }
}

impl<const MAX: u32> Deref for Text<MAX> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const MAX: u32> Xdr for Text<MAX> {
    const LEAST: usize = UNIT;
    const FIXED: Option<usize> = None;

    fn encoded_len(&self) -> usize {
        UNIT + padded(self.0.len())
    }

    fn encode(&self, to: &mut Encoder<'_>) {
        encode_counted(self.0.as_bytes(), to);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let length = from.count(MAX, 1)?;
        let string = std::str::from_utf8(from.opaque(length)?).map_err(|_| DecodeError::NotText)?;
        Ok(Text(string.to_owned()))
    }
}

/// Refuses a `length` above `bound`.
pub(crate) fn within(length: usize, bound: u32) -> Result<(), DecodeError> {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    if length > bound { Err(DecodeError::TooLong { length, bound }) } else { Ok(()) }
}

/// A count, which [`within`] has checked, and that many bytes.
fn encode_counted(bytes: &[u8], to: &mut Encoder<'_>) {
    to.unit(bytes.len() as u32);
    to.opaque(bytes);
}
