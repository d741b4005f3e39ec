//! Reading captures: pcapng and classic pcap, either byte order, as a stream of frames.
//!
//! A capture is untrusted input: nothing in it may make the reader panic, read without bound or allocate more than one
//! block. Blocks that are not frames are skipped, as the format requires.

use std::fmt;
use std::io::{self, ErrorKind, Read};

use super::format::{
    BYTE_ORDER_MAGIC, CLASSIC_MICROSECONDS, CLASSIC_NANOSECONDS, Direction, ENHANCED_PACKET, EPB_FLAGS, IF_TSOFFSET,
    IF_TSRESOL, INTERFACE_DESCRIPTION, LONGEST, OPT_END, PACKET, SECTION_HEADER, SIMPLE_PACKET,
};

/// Most interfaces of one section that are kept; a file that declares more is refused.
const MAX_INTERFACES: usize = 4096;

/// A frame as captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Nanoseconds since 1970, or 0 if the capture has no time (simple packet blocks).
    pub time: u64,
    /// Number of the interface inside its section.
    pub interface: u32,
    /// The direction of the frame.
    pub direction: Direction,
    /// Link type of the interface (1 is Ethernet).
    pub link_type: u16,
    /// Length on the wire; more than `data` if the capture truncated the frame.
    pub original_len: u32,
    /// The frame's bytes.
    pub data: Vec<u8>,
}

/// Why a capture cannot be read, with the offset of the error in bytes.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system's error.
    Io(io::Error),
    /// Neither pcapng nor pcap.
    NotACapture,
    /// The capture ends in the middle of a block or frame that begins at this offset.
    Truncated(u64),
    /// An invalid length: offset and length.
    BadLength(u64, u32),
    /// A frame of an interface that was not declared: offset and interface.
    UnknownInterface(u64, u32),
    /// More interfaces than a capture can plausibly have.
    TooManyInterfaces(u64),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => write!(f, "the capture cannot be read: {error}"),
            ReadError::NotACapture => {
                f.write_str("this is no capture: it begins neither like pcapng nor like pcap; give one of those (decompress it first)")
            }
            ReadError::Truncated(at) => {
                write!(f, "the capture breaks off inside the block at byte {at}; the frames before it are good")
            }
            ReadError::BadLength(at, len) => {
                write!(f, "the block at byte {at} of the capture claims {len} bytes, which cannot be; the file is damaged")
            }
            ReadError::UnknownInterface(at, interface) => {
                write!(f, "the frame at byte {at} of the capture is of interface {interface}, which was not declared; the file is damaged")
            }
            ReadError::TooManyInterfaces(at) => {
                write!(f, "the capture declares more than {MAX_INTERFACES} interfaces by byte {at}; the file is damaged")
            }
        }
    }
}

impl std::error::Error for ReadError {}

#[derive(Clone, Copy)]
struct CaptureInterface {
    link_type: u16,
    snap_len: u32,
    /// Ticks of the interface's clock: as (is a power of two, exponent).
    resolution: (bool, u32),
    offset_seconds: i64,
}

enum Format {
    Classic { nanoseconds: bool, link_type: u16 },
    NextGeneration { interfaces: Vec<CaptureInterface> },
}

/// Reads the frames of a capture one after the other.
pub struct Reader<R: Read> {
    input: R,
    at: u64,
    big_endian: bool,
    format: Format,
    /// The body of the block being read.
    block: Vec<u8>,
    ended: bool,
}

impl<R: Read> fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("at", &self.at).field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl<R: Read> Reader<R> {
    /// Recognises the format by the first bytes.
    pub fn new(input: R) -> Result<Reader<R>, ReadError> {
        let format = Format::NextGeneration { interfaces: Vec::new() };
        let mut reader = Reader { input, at: 0, big_endian: false, format, block: Vec::new(), ended: false };
        let mut magic = [0; 4];
        if !reader.fill(&mut magic)? {
            return Err(ReadError::NotACapture);
        }
        if u32::from_le_bytes(magic) == SECTION_HEADER {
            reader.section_header(0)?;
            return Ok(reader);
        }
        for big_endian in [false, true] {
            reader.big_endian = big_endian;
            let nanoseconds = match reader.u32(&magic) {
                CLASSIC_MICROSECONDS => false,
                CLASSIC_NANOSECONDS => true,
                _ => continue,
            };
            let mut header = [0; 20];
            reader.must_fill(&mut header, 0)?;
            let link_type = reader.u32(&header[16..]) as u16;
            reader.format = Format::Classic { nanoseconds, link_type };
            return Ok(reader);
        }
        Err(ReadError::NotACapture)
    }

    /// The next frame, `None` at the end of the capture.
    pub fn next_frame(&mut self) -> Result<Option<Captured>, ReadError> {
        match self.format {
            Format::Classic { nanoseconds, link_type } => self.next_classic(nanoseconds, link_type),
            Format::NextGeneration { .. } => self.next_block_frame(),
        }
    }

    fn next_classic(&mut self, nanoseconds: bool, link_type: u16) -> Result<Option<Captured>, ReadError> {
        let start = self.at;
        let mut header = [0; 16];
        if !self.fill(&mut header)? {
            return Ok(None);
        }
        let word = |index: usize| self.u32(&header[index * 4..]);
        let (seconds, fraction, len, original_len) = (word(0), word(1), word(2), word(3));
        if len > LONGEST {
            return Err(ReadError::BadLength(start, len));
        }
        let mut data = vec![0; len as usize];
        self.must_fill(&mut data, start)?;
        let fraction = u64::from(fraction) * if nanoseconds { 1 } else { 1000 };
        let time = u64::from(seconds) * 1_000_000_000 + fraction;
        let direction = Direction::Unknown;
        Ok(Some(Captured { time, interface: 0, direction, link_type, original_len, data }))
    }

    fn next_block_frame(&mut self) -> Result<Option<Captured>, ReadError> {
        loop {
            let start = self.at;
            let mut kind = [0; 4];
            if !self.fill(&mut kind)? {
                return Ok(None);
            }
            // The section header's number reads the same in both byte orders, and sets the order.
            if u32::from_le_bytes(kind) == SECTION_HEADER {
                self.section_header(start)?;
                continue;
            }
            self.read_body(start)?;
            let block = std::mem::take(&mut self.block);
            let frame = match self.u32(&kind) {
                INTERFACE_DESCRIPTION => self.interface(&block, start).map(|()| None),
                ENHANCED_PACKET => self.enhanced(&block, start).map(Some),
                PACKET => self.obsolete(&block, start).map(Some),
                SIMPLE_PACKET => self.simple(&block, start).map(Some),
                _ => Ok(None),
            };
            self.block = block;
            if let Some(frame) = frame? {
                return Ok(Some(frame));
            }
        }
    }

    /// Reads a section header after its type, which begins at `start`: byte order, and a new set of interfaces.
    fn section_header(&mut self, start: u64) -> Result<(), ReadError> {
        let mut head = [0; 8];
        self.must_fill(&mut head, start)?;
        self.big_endian = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) == BYTE_ORDER_MAGIC;
        if self.u32(&head[4..]) != BYTE_ORDER_MAGIC {
            return Err(ReadError::NotACapture);
        }
        let len = self.u32(&head);
        if !(28..=LONGEST).contains(&len) || !len.is_multiple_of(4) {
            return Err(ReadError::BadLength(start, len));
        }
        self.skip(len as usize - 12, start)?;
        self.format = Format::NextGeneration { interfaces: Vec::new() };
        Ok(())
    }

    /// Reads the rest of a block whose type began at `start`: its length, its body into `self.block`, its length again.
    fn read_body(&mut self, start: u64) -> Result<(), ReadError> {
        let mut len = [0; 4];
        self.must_fill(&mut len, start)?;
        let len = self.u32(&len);
        if !(12..=LONGEST).contains(&len) || !len.is_multiple_of(4) {
            return Err(ReadError::BadLength(start, len));
        }
        self.skip(len as usize - 8, start)?;
        let trailer = self.u32(&self.block[len as usize - 12..]);
        if trailer != len {
            return Err(ReadError::BadLength(start, trailer));
        }
        self.block.truncate(len as usize - 12);
        Ok(())
    }

    fn interface(&mut self, block: &[u8], start: u64) -> Result<(), ReadError> {
        if block.len() < 8 {
            return Err(ReadError::BadLength(start, block.len() as u32 + 12));
        }
        let mut interface = CaptureInterface {
            link_type: self.u16(block),
            snap_len: self.u32(&block[4..]),
            resolution: (false, 6),
            offset_seconds: 0,
        };
        self.options(&block[8..], |reader, code, value| match (code, value.len()) {
            (IF_TSRESOL, 1) => interface.resolution = (value[0] & 0x80 != 0, u32::from(value[0] & 0x7f)),
            (IF_TSOFFSET, 8) => {
                let (low, high) = (
                    reader.u32(&value[if reader.big_endian { 4 } else { 0 }..]),
                    reader.u32(&value[if reader.big_endian { 0 } else { 4 }..]),
                );
                interface.offset_seconds = (u64::from(high) << 32 | u64::from(low)) as i64;
            }
            _ => {}
        });
        if let Format::NextGeneration { interfaces } = &mut self.format {
            if interfaces.len() == MAX_INTERFACES {
                return Err(ReadError::TooManyInterfaces(start));
            }
            interfaces.push(interface);
        }
        Ok(())
    }

    fn enhanced(&self, block: &[u8], start: u64) -> Result<Captured, ReadError> {
        let interface = self.header_word(block, 0, start)?;
        let mut frame = self.stamped_frame(block, interface, start)?;
        let options = block.get(20 + frame.data.len().next_multiple_of(4)..).unwrap_or(&[]);
        self.options(options, |reader, code, value| {
            if code == EPB_FLAGS && value.len() == 4 {
                frame.direction = Direction::from_bits(reader.u32(value));
            }
        });
        Ok(frame)
    }

    /// The obsolete packet block differs in its first word: interface and drop count, 16 bits each.
    fn obsolete(&self, block: &[u8], start: u64) -> Result<Captured, ReadError> {
        self.header_word(block, 0, start)?;
        self.stamped_frame(block, u32::from(self.u16(block)), start)
    }

    /// Time, lengths and data of a block with a 20-byte head.
    fn stamped_frame(&self, block: &[u8], number: u32, start: u64) -> Result<Captured, ReadError> {
        let interface = self.declared(number, start)?;
        let ticks = u64::from(self.header_word(block, 1, start)?) << 32 | u64::from(self.header_word(block, 2, start)?);
        let len = self.header_word(block, 3, start)?;
        let original_len = self.header_word(block, 4, start)?;
        let data = block.get(20..).and_then(|rest| rest.get(..len as usize));
        let data = data.ok_or(ReadError::BadLength(start, len))?.to_vec();
        let direction = Direction::Unknown;
        let link_type = interface.link_type;
        Ok(Captured { time: interface.nanoseconds(ticks), interface: number, direction, link_type, original_len, data })
    }

    fn simple(&self, block: &[u8], start: u64) -> Result<Captured, ReadError> {
        let interface = self.declared(0, start)?;
        let original_len = self.header_word(block, 0, start)?;
        let snap_len = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
        let len = original_len.min(snap_len) as usize;
        let data = block[4..].get(..len).ok_or(ReadError::BadLength(start, original_len))?.to_vec();
        let direction = Direction::Unknown;
        Ok(Captured { time: 0, interface: 0, direction, link_type: interface.link_type, original_len, data })
    }

    fn declared(&self, number: u32, start: u64) -> Result<CaptureInterface, ReadError> {
        match &self.format {
            Format::NextGeneration { interfaces } => interfaces.get(number as usize).copied(),
            Format::Classic { .. } => None,
        }
        .ok_or(ReadError::UnknownInterface(start, number))
    }

    fn header_word(&self, block: &[u8], index: usize, start: u64) -> Result<u32, ReadError> {
        let bytes = block.get(index * 4..index * 4 + 4);
        bytes.map(|bytes| self.u32(bytes)).ok_or(ReadError::BadLength(start, block.len() as u32 + 12))
    }

    /// Calls `each` for every whole option of a list.
    fn options<'b>(&self, mut list: &'b [u8], mut each: impl FnMut(&Self, u16, &'b [u8])) {
        while list.len() >= 4 {
            let (code, len) = (self.u16(list), usize::from(self.u16(&list[2..])));
            let Some(value) = list.get(4..4 + len) else { return };
            if code == OPT_END {
                return;
            }
            each(self, code, value);
            list = list.get(4 + len.next_multiple_of(4)..).unwrap_or(&[]);
        }
    }

    /// Reads `len` bytes into `self.block`. The buffer grows as bytes arrive, not as a length claims.
    fn skip(&mut self, len: usize, start: u64) -> Result<(), ReadError> {
        self.block.clear();
        let read = (&mut self.input).take(len as u64).read_to_end(&mut self.block).map_err(ReadError::Io)?;
        self.at += read as u64;
        if read == len { Ok(()) } else { Err(ReadError::Truncated(start)) }
    }

    /// Fills the buffer, or returns false at a clean end of the capture.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<bool, ReadError> {
        let (start, mut filled) = (self.at, 0);
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
        self.at += filled as u64;
        match filled {
            0 => Ok(false),
            n if n == buffer.len() => Ok(true),
            _ => Err(ReadError::Truncated(start)),
        }
    }

    fn must_fill(&mut self, buffer: &mut [u8], start: u64) -> Result<(), ReadError> {
        if buffer.is_empty() {
            return Ok(());
        }
        match self.fill(buffer) {
            Ok(true) => Ok(()),
            Ok(false) | Err(ReadError::Truncated(_)) => Err(ReadError::Truncated(start)),
            Err(error) => Err(error),
        }
    }

    /// The first four bytes of `bytes` in the capture's byte order.
    fn u32(&self, bytes: &[u8]) -> u32 {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn u16(&self, bytes: &[u8]) -> u16 {
        let bytes = [bytes[0], bytes[1]];
        if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }
}

impl CaptureInterface {
    fn nanoseconds(&self, ticks: u64) -> u64 {
        let (binary, exponent) = self.resolution;
        let ticks = u128::from(ticks) * 1_000_000_000;
        let since_offset = if binary {
            ticks.checked_shr(exponent).unwrap_or(0)
        } else {
            10u128.checked_pow(exponent).map_or(0, |per_second| ticks / per_second)
        };
        let offset = i128::from(self.offset_seconds) * 1_000_000_000;
        (since_offset as i128 + offset).clamp(0, i128::from(u64::MAX)) as u64
    }
}

/// Frames until the end or the first error.
impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Captured, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_frame().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}
