//! Arrays and optional data (RFC 4506 sections 4.12, 4.13, 4.19).

use std::ops::{Deref, DerefMut};

use crate::opaque::within;
use crate::{DecodeError, Decoder, Encoder, UNIT, Xdr};

impl<T: Xdr, const N: usize> Xdr for [T; N] {
    const LEAST: usize = T::LEAST * N;
    const FIXED: Option<usize> = match T::FIXED {
        Some(length) => Some(length * N),
        None => None,
    };

    fn encoded_len(&self) -> usize {
        length_of(self)
    }

    fn encode(&self, to: &mut Encoder<'_>) {
        to.elements(self);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        if Self::LEAST > from.rest().len() {
            return Err(DecodeError::Ended);
        }
        let elements: Vec<T> = from.elements(N)?;
        elements.try_into().map_err(|_| DecodeError::Ended)
    }
}

/// At most `MAX` elements: `T name<MAX>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Array<T, const MAX: u32>(Vec<T>);

impl<T, const MAX: u32> Array<T, MAX> {
    /// The elements, without a copy.
    pub fn into_inner(self) -> Vec<T> {
        self.0
    }
}

impl<T, const MAX: u32> Default for Array<T, MAX> {
    fn default() -> Self {
        Array(Vec::new())
    }
}

impl<T, const MAX: u32> TryFrom<Vec<T>> for Array<T, MAX> {
    type Error = DecodeError;

    /// # Errors
    ///
    /// [`DecodeError::TooLong`] above `MAX` elements.
    fn try_from(elements: Vec<T>) -> Result<Self, DecodeError> {
        within(elements.len(), MAX)?;
        Ok(Array(elements))
    }
}

impl<T, const MAX: u32> Deref for Array<T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T, const MAX: u32> DerefMut for Array<T, MAX> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: Xdr, const MAX: u32> Xdr for Array<T, MAX> {
    const LEAST: usize = UNIT;
    const FIXED: Option<usize> = None;

    fn encoded_len(&self) -> usize {
        UNIT + length_of(&self.0)
    }

    fn encode(&self, to: &mut Encoder<'_>) {
        to.unit(self.0.len() as u32);
        to.elements(&self.0);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        const { assert!(T::LEAST > 0, "an element without bytes would cost memory that no input pays for") };
        let count = from.count(MAX, T::LEAST)?;
        from.elements(count).map(Array)
    }
}

/// Optional data: absent, or a value. It is how lists and trees are specified.
impl<T: Xdr> Xdr for Option<Box<T>> {
    const LEAST: usize = UNIT;
    const FIXED: Option<usize> = None;

    fn encoded_len(&self) -> usize {
        UNIT + self.as_ref().map_or(0, |value| value.encoded_len())
    }

    fn encode(&self, to: &mut Encoder<'_>) {
        self.is_some().encode(to);
        if let Some(value) = self {
            value.encode(to);
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match bool::decode(from)? {
            true => from.nested(T::decode).map(|value| Some(Box::new(value))),
            false => Ok(None),
        }
    }
}

/// The bytes that `elements` take, without a count.
fn length_of<T: Xdr>(elements: &[T]) -> usize {
    match T::FIXED {
        Some(length) => length * elements.len(),
        None => elements.iter().map(Xdr::encoded_len).sum(),
    }
}
