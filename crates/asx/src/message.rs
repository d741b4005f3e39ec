//! [`Message`]: the unit that modules pass to each other, and its weight in a queue.
//!
//! Most messages are bytes. Above a module of the presentation layer a message is a value of the application's, which that
//! module encodes on its way down and decodes on its way up.

use std::any::Any;
use std::fmt;

/// Bytes, or a value that a module encodes. It is owned by one queue, module or thread at a time.
pub struct Message(Payload);

enum Payload {
    Bytes(Vec<u8>),
    /// The value, and its weight in a queue.
    Value(Box<dyn Any + Send>, usize),
}

impl Message {
    /// A message of bytes.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Message {
        Message(Payload::Bytes(bytes.into()))
    }

    /// A message with a value of any type. Queues count the size of the type, without what it points to.
    pub fn value<T: Any + Send>(value: T) -> Message {
        Message(Payload::Value(Box::new(value), size_of::<T>()))
    }

    /// The weight of the message in a queue, in bytes: at least 1, so that empty messages fill a queue, too.
    pub fn weight(&self) -> usize {
        match &self.0 {
            Payload::Bytes(bytes) => bytes.len().max(1),
            Payload::Value(_, size) => (*size).max(1),
        }
    }

    /// The bytes, if it is a message of bytes.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Payload::Bytes(bytes) => Some(bytes),
            Payload::Value(..) => None,
        }
    }

    /// The bytes.
    ///
    /// # Errors
    /// The message itself, if it has a value.
    pub fn into_bytes(self) -> Result<Vec<u8>, Message> {
        match self.0 {
            Payload::Bytes(bytes) => Ok(bytes),
            value @ Payload::Value(..) => Err(Message(value)),
        }
    }

    /// The value.
    ///
    /// # Errors
    /// The message itself, if it has bytes or a value of another type.
    pub fn into_value<T: Any>(self) -> Result<T, Message> {
        match self.0 {
            Payload::Value(value, size) => match value.downcast() {
                Ok(value) => Ok(*value),
                Err(value) => Err(Message(Payload::Value(value, size))),
            },
            bytes @ Payload::Bytes(_) => Err(Message(bytes)),
        }
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Message {
        Message::bytes(bytes)
    }
}

impl From<&[u8]> for Message {
    fn from(bytes: &[u8]) -> Message {
        Message::bytes(bytes)
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Payload::Bytes(bytes) => write!(f, "Message({} bytes)", bytes.len()),
            Payload::Value(_, size) => write!(f, "Message(a value of {size} bytes)"),
        }
    }
}
