//! `frame`: record marking (RFC 5531 section 11), which adds message boundaries to a stream of bytes.
//!
//! A message is a record: one or more fragments, each with a header of four bytes: the highest bit marks the last
//! fragment of a record, the other 31 are its length. The reader takes bytes however they are split. It never keeps
//! more than the longest record that it accepts: a header that announces more ends the stream before any memory is
//! allocated for it.

use crate::message::Message;
use crate::modules::bytes_of;
use crate::queue::{Module, Passed, Queue};

/// The bytes of a fragment's header.
const HEADER: usize = 4;
/// The bit of the last fragment of a record.
const LAST: u32 = 1 << 31;

/// Limits of records and fragments, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLimits {
    /// The longest record, written or read; at most 2^31 - 1.
    pub record: usize,
    /// The longest fragment that is written; 1 to 2^31 - 1.
    pub fragment: usize,
}

/// Records of up to 1 MiB, in one fragment.
impl Default for RecordLimits {
    fn default() -> RecordLimits {
        RecordLimits { record: 1 << 20, fragment: LAST as usize - 1 }
    }
}

impl RecordLimits {
    /// The module, called `frame`.
    ///
    /// # Errors
    /// A length does not fit into a header.
    pub fn module(self) -> Result<Module, String> {
        let most = LAST as usize - 1;
        if self.fragment == 0 || self.fragment > most {
            return Err(format!("fragments of {} bytes: give 1 to {most}", self.fragment));
        }
        if self.record > most {
            return Err(format!("records of {} bytes: give at most {most}", self.record));
        }
        Ok(Module::new("frame", RecordReader::new(self.record), RecordWriter(self)))
    }
}

struct RecordWriter(RecordLimits);

impl Queue for RecordWriter {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        let bytes = bytes_of(message)?;
        if bytes.len() > self.0.record {
            return Err(format!(
                "a message of {} bytes is longer than the longest record, {}",
                bytes.len(),
                self.0.record
            ));
        }
        let count = bytes.len().div_ceil(self.0.fragment).max(1);
        let mut framed = Vec::with_capacity(bytes.len() + count * HEADER);
        for number in 0..count {
            let from = number * self.0.fragment;
            let fragment = &bytes[from..bytes.len().min(from + self.0.fragment)];
            let last = if number + 1 == count { LAST } else { 0 };
            framed.extend((fragment.len() as u32 | last).to_be_bytes());
            framed.extend(fragment);
        }
        to.on(Message::bytes(framed));
        Ok(())
    }
}

struct RecordReader {
    most: usize,
    /// The received bytes of a header.
    header: Vec<u8>,
    /// The missing bytes of the current fragment; `None` between two.
    missing: Option<usize>,
    /// The present fragment is the last of its record.
    last: bool,
    record: Vec<u8>,
    /// The bytes of the record in complete fragments.
    complete: usize,
}

impl RecordReader {
    fn new(most: usize) -> RecordReader {
        RecordReader { most, header: Vec::new(), missing: None, last: false, record: Vec::new(), complete: 0 }
    }

    /// Takes bytes of a header; returns how many.
    fn take_header(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let count = bytes.len().min(HEADER - self.header.len());
        self.header.extend(&bytes[..count]);
        if let Ok(header) = <[u8; HEADER]>::try_from(&self.header[..]) {
            let header = u32::from_be_bytes(header);
            let length = (header & !LAST) as usize;
            let room = self.most - self.record.len();
            if length > room {
                let before = self.record.len();
                return Err(format!(
                    "a record of {before} and {length} more bytes is longer than the longest, {}",
                    self.most
                ));
            }
            self.header.clear();
            (self.missing, self.last) = (Some(length), header & LAST != 0);
        }
        Ok(count)
    }

    /// Takes bytes of a fragment; returns how many.
    fn take_fragment(&mut self, bytes: &[u8], missing: usize) -> usize {
        let count = bytes.len().min(missing);
        self.record.extend(&bytes[..count]);
        self.missing = Some(missing - count);
        count
    }

    fn finish_fragment(&mut self, to: &mut Passed) {
        self.missing = None;
        self.complete = self.record.len();
        if self.last {
            self.complete = 0;
            to.on(Message::bytes(std::mem::take(&mut self.record)));
        }
    }
}

impl Queue for RecordReader {
    fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
        let bytes = bytes_of(message)?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let count = match self.missing {
                None => self.take_header(rest)?,
                Some(missing) => self.take_fragment(rest, missing),
            };
            rest = &rest[count..];
            if self.missing == Some(0) {
                self.finish_fragment(to);
            }
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Passed) -> Result<(), String> {
        let inside = !self.header.is_empty() || self.missing.is_some() || !self.record.is_empty();
        if inside {
            Err(format!("the end is inside a record, after {} of its bytes", self.record.len()))
        } else {
            Ok(())
        }
    }

    /// Passes on the beginning of an incomplete record, with equivalent headers: one for its complete fragments.
    fn close(&mut self, to: &mut Passed) {
        let record = std::mem::take(&mut self.record);
        let (complete, present) = record.split_at(std::mem::take(&mut self.complete));
        let mut raw = Vec::with_capacity(record.len() + 3 * HEADER);
        if !complete.is_empty() {
            raw.extend((complete.len() as u32).to_be_bytes());
            raw.extend(complete);
        }
        if let Some(missing) = self.missing.take() {
            let length = (present.len() + missing) as u32;
            raw.extend((length | if self.last { LAST } else { 0 }).to_be_bytes());
            raw.extend(present);
        }
        raw.append(&mut self.header);
        if !raw.is_empty() {
            to.on(Message::bytes(raw));
        }
    }
}
