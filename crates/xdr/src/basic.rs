//! The types that are one or two units, or four (RFC 4506 sections 4.1 to 4.8).

use crate::{DecodeError, Decoder, Encoder, UNIT, Xdr};

/// Implements [`Xdr`] for a type with `to_be_bytes` and `from_be_bytes`.
macro_rules! big_endian {
    ($($type:ty),*) => {$(
        impl Xdr for $type {
            const LEAST: usize = size_of::<$type>();
            const FIXED: Option<usize> = Some(size_of::<$type>());

            fn encoded_len(&self) -> usize {
                size_of::<$type>()
            }

            fn encode(&self, to: &mut Encoder<'_>) {
                to.reserve(size_of::<$type>()).copy_from_slice(&self.to_be_bytes());
            }

            fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                from.array().map(<$type>::from_be_bytes)
            }
        }
    )*};
}

big_endian!(i32, u32, i64, u64, f32, f64);

impl Xdr for bool {
    const LEAST: usize = UNIT;
    const FIXED: Option<usize> = Some(UNIT);

    fn encoded_len(&self) -> usize {
        UNIT
    }

    fn encode(&self, to: &mut Encoder<'_>) {
        to.unit(u32::from(*self));
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match from.unit()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::NotBoolean(other)),
        }
    }
}

/// A floating-point number of 128 bits (RFC 4506 section 4.8), as the 16 bytes of its encoding. Rust has no such type
/// yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Quadruple(pub [u8; 16]);

impl Xdr for Quadruple {
    const LEAST: usize = 16;
    const FIXED: Option<usize> = Some(16);

    fn encoded_len(&self) -> usize {
        16
    }

    fn encode(&self, to: &mut Encoder<'_>) {
        to.opaque(&self.0);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        from.array().map(Quadruple)
    }
}
