//! `xdr`: the presentation layer. Values of the application go down as their encodings (RFC 4506) and come up decoded.
//!
//! A message is one encoding. Below it a stream of bytes needs [`frame`](crate::modules::frame), which limits the
//! length of the encoding; within this limit a hostile length in the data allocates no memory, as the crate `xdr`
//! guarantees.

use std::any::Any;
use std::marker::PhantomData;

use ::xdr::{Codec, Opaque, UNBOUNDED, Xdr};

use crate::message::Message;
use crate::modules::bytes_of;
use crate::queue::{Module, Passed, Queue};

/// The module for values of `T` ([`Message::value`]), called `xdr`. A message that is not an encoding of a `T`, or has
/// more bytes after it, ends the stream.
pub fn of<T: Xdr + Any + Send>(codec: Codec) -> Module {
    Module::new("xdr", ValueReader::<T>(codec, PhantomData), ValueWriter::<T>(codec, PhantomData))
}

/// The module for messages of bytes, each of which is encoded as `opaque data<>`.
pub fn opaque() -> Module {
    Module::new("xdr", OpaqueReader, OpaqueWriter)
}

struct ValueReader<T>(Codec, PhantomData<fn() -> T>);
struct ValueWriter<T>(Codec, PhantomData<fn() -> T>);

impl<T: Xdr + Any + Send> Queue for ValueWriter<T> {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        let kind = std::any::type_name::<T>();
        let value: T = message.into_value().map_err(|message| format!("{message:?} is not a `{kind}`"))?;
        let mut bytes = vec![0; value.encoded_len()];
        ::xdr::encode_into(&value, &mut bytes, self.0).map_err(|error| error.to_string())?;
        to.on(Message::bytes(bytes));
        Ok(())
    }
}

impl<T: Xdr + Any + Send> Queue for ValueReader<T> {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        to.on(Message::value(decoded::<T>(&bytes_of(message)?, self.0)?));
        Ok(())
    }
}

struct OpaqueReader;
struct OpaqueWriter;

impl Queue for OpaqueWriter {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        let value = Opaque::<UNBOUNDED>::try_from(bytes_of(message)?).map_err(|error| error.to_string())?;
        to.on(Message::bytes(::xdr::to_vec(&value)));
        Ok(())
    }
}

impl Queue for OpaqueReader {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        let value = decoded::<Opaque<UNBOUNDED>>(&bytes_of(message)?, Codec::Bulk)?;
        to.on(Message::bytes(value.into_inner()));
        Ok(())
    }
}

/// Decodes a value from `bytes`, which must be its complete encoding.
fn decoded<T: Xdr>(bytes: &[u8], codec: Codec) -> Result<T, String> {
    let mut decoder = ::xdr::Decoder::new(bytes, codec);
    let value = T::decode(&mut decoder).map_err(|error| error.to_string())?;
    match decoder.rest().len() {
        0 => Ok(value),
        left => Err(format!("{left} bytes follow a value")),
    }
}
