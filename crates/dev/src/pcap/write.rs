//! Writing pcapng: a section, its interfaces, and a block per frame.

use std::fmt;
use std::io::{self, Write};

use wire::Framing;

use super::format::{
    BYTE_ORDER_MAGIC, Direction, ENHANCED_PACKET, EPB_FLAGS, IF_NAME, IF_TSRESOL, INTERFACE_DESCRIPTION, OPT_END,
    SECTION_HEADER, SHB_USERAPPL, link_type,
};

/// Writes one section of little-endian pcapng to any writer, without buffering of its own beyond one block.
pub struct Writer<W: Write> {
    out: W,
    block: Vec<u8>,
    interfaces: u32,
}

impl<W: Write> fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("interfaces", &self.interfaces).finish_non_exhaustive()
    }
}

impl<W: Write> Writer<W> {
    /// Begins a section.
    pub fn new(out: W) -> io::Result<Writer<W>> {
        let mut writer = Writer { out, block: Vec::with_capacity(2048), interfaces: 0 };
        writer.begin(SECTION_HEADER);
        writer.put32(BYTE_ORDER_MAGIC);
        writer.put16(1);
        writer.put16(0);
        // Length of the section: not known.
        writer.block.extend_from_slice(&u64::MAX.to_le_bytes());
        writer.option(SHB_USERAPPL, b"heddle");
        writer.option(OPT_END, &[]);
        writer.end()?;
        Ok(writer)
    }

    /// Declares an Ethernet interface with nanosecond time stamps; returns its number.
    pub fn interface(&mut self, name: &str) -> io::Result<u32> {
        self.framed_interface(name, Framing::Ethernet)
    }

    /// As [`interface`](Writer::interface), for frames with this framing, which sets the link type: 1 for Ethernet, 10 for
    /// FDDI, 101 for bare IP packets.
    pub fn framed_interface(&mut self, name: &str, framing: Framing) -> io::Result<u32> {
        self.begin(INTERFACE_DESCRIPTION);
        self.put16(link_type(framing));
        self.put16(0);
        // No limit on the length of captured frames.
        self.put32(0);
        self.option(IF_NAME, name.as_bytes());
        self.option(IF_TSRESOL, &[9]);
        self.option(OPT_END, &[]);
        self.end()?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Records one frame, `time` in nanoseconds since 1970.
    ///
    /// # Panics
    ///
    /// If `interface` was not declared.
    pub fn frame(&mut self, interface: u32, time: u64, direction: Direction, frame: &[u8]) -> io::Result<()> {
        assert!(interface < self.interfaces, "interface {interface} was not declared");
        self.begin(ENHANCED_PACKET);
        self.put32(interface);
        self.put32((time >> 32) as u32);
        self.put32(time as u32);
        self.put32(frame.len() as u32);
        self.put32(frame.len() as u32);
        self.block.extend_from_slice(frame);
        self.pad();
        if direction != Direction::Unknown {
            self.option(EPB_FLAGS, &direction.bits().to_le_bytes());
            self.option(OPT_END, &[]);
        }
        self.end()
    }

    /// What has been written to.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// Flushes everything written to the operating system.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.put32(kind);
        // The block's length, filled in by `end`.
        self.put32(0);
    }

    fn end(&mut self) -> io::Result<()> {
        let len = (self.block.len() + 4) as u32;
        self.block[4..8].copy_from_slice(&len.to_le_bytes());
        self.put32(len);
        self.out.write_all(&self.block)
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        self.put16(code);
        self.put16(value.len() as u16);
        self.block.extend_from_slice(value);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.block.len().is_multiple_of(4) {
            self.block.push(0);
        }
    }

    fn put16(&mut self, value: u16) {
        self.block.extend_from_slice(&value.to_le_bytes());
    }

    fn put32(&mut self, value: u32) {
        self.block.extend_from_slice(&value.to_le_bytes());
    }
}
