//! Reading and writing of a connection: data is written from the caller's memory or shared, and read into it or taken
//! as buffers.
//!
//! Copies are made on the caller's thread with only the handle's own lock held. Data that was delivered and not read
//! stays in the leftover; the connection is notified how much that is. What may never happen: data that overtakes data
//! delivered earlier.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::ops::Range;
use std::sync::Arc;

use pktbuf::{Chunk, PktBuf};
use stack::call::{Call, Reply};
use stack::socket::Readiness;
use sync::Ordering;
use tcp::Chunks;

use super::{StreamTimeouts, TcpStream};
use crate::error::may_wait;
use crate::leftover::Leftover;
use crate::timeout::Timeout;

/// The most that one `write` copies before it calls the connection: one pooled buffer.
const COPY: usize = 64 << 10;
/// Buffers that a write leaves in a bounded pool: for the segments that carry the data, and for arriving frames.
const SPARE: usize = 24;

impl TcpStream {
    /// Sends part of shared bytes without copying them: they are copied once, into the segments. Returns how much was
    /// taken. The bytes must not change until all is acknowledged, which the `Arc` guarantees.
    ///
    /// # Errors
    /// As a write.
    pub fn send_shared(&self, data: &Arc<[u8]>, range: Range<usize>) -> io::Result<usize> {
        if range.start > range.end || range.end > data.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the range to send lies outside the bytes"));
        }
        let length = range.len();
        let mut chunk = Chunk::part(data.clone(), range);
        loop {
            let (accepted, rest) = self.send_once(chunk)?;
            if accepted > 0 || length == 0 {
                return Ok(accepted);
            }
            let Some(back) = rest else { return Ok(accepted) };
            chunk = back;
            self.wait_writable()?;
        }
    }

    /// Takes received buffers without copying: at least one, about `max` bytes in all; none at the end of the stream.
    ///
    /// # Errors
    /// As a read.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
    //# TCP implementations MAY pass the most recently received Differentiated Services field up to the application
    //# (MAY-9).
    pub fn receive_buffers(&self, max: usize) -> io::Result<Vec<PktBuf>> {
        loop {
            may_wait()?;
            let mut leftover = self.inner.leftover.lock();
            if leftover.has_data() || self.has_ended() {
                let buffers = leftover.take_buffers().into();
                self.report_unread(&mut leftover);
                return Ok(buffers);
            }
            if self.refill(&mut leftover, max)? {
                continue;
            }
            drop(leftover);
            self.wait_readable()?;
        }
    }

    /// Inlined, so that the chunk is constructed in place for the connection.
    #[inline(always)]
    fn send_once(&self, chunk: Chunk) -> io::Result<(usize, Option<Chunk>)> {
        let mut send = tcp::Send { chunks: Chunks::from_buf([chunk]) };
        let (stack, socket) = (self.inner.stack.raw(), &self.inner.socket);
        let answer = match &self.inner.channel {
            None => stack.send(&socket.target(), &mut send),
            Some(channel) => {
                may_wait()?;
                stack.send_over(channel, socket, &mut send)
            }
        };
        match answer {
            Some(Ok(accepted)) => Ok((accepted, send.chunks.pop())),
            Some(Err(error)) => Err(self.error(error)),
            None => Err(self.gone()),
        }
    }

    /// Reads like [`Read::read`] and leaves the data to be read again; 0: the stream has ended. The data stays in the
    /// receive buffer, so a peek does not open the window.
    ///
    /// # Errors
    /// As a read.
    pub fn peek(&self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(count) = self.try_peek(out)? {
                return Ok(count);
            }
            self.wait_readable()?;
        }
    }

    /// As [`TcpStream::peek`], for at least one byte; `None`: there is no data now.
    pub(crate) fn try_peek(&self, out: &mut [u8]) -> io::Result<Option<usize>> {
        may_wait()?;
        let mut leftover = self.inner.leftover.lock();
        self.take_in(&mut leftover);
        let most = leftover.bound(out.len());
        let mut filled = 0;
        leftover.peek(most, |piece| {
            out[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        });
        if filled == most || self.has_ended() {
            return Ok(Some(filled));
        }
        let peek = tcp::Peek { max: most - filled, follows_data: filled > 0 };
        let peeked = match self.call(Call::Peek(peek)) {
            Reply::Peeked(Ok(peeked)) => peeked,
            Reply::Peeked(Err(tcp::Error::WouldBlock)) if filled == 0 && self.take_in(&mut leftover) => {
                drop(leftover);
                return self.try_peek(out);
            }
            Reply::Peeked(Err(tcp::Error::WouldBlock)) if filled == 0 => return Ok(None),
            Reply::Peeked(Err(error)) if filled == 0 => return Err(self.error(error)),
            _ if filled == 0 => return Err(self.gone()),
            _ => {
                // The connection has no data left, but the leftover has.
                self.inner.socket.ready.restore(Readiness::READABLE);
                return Ok(Some(filled));
            }
        };
        let before_mark = peeked.urgent.map_or(0, |end| filled + end - 1);
        let most = if before_mark > 0 { most.min(before_mark) } else { most };
        let count = peeked.data.len().min(most - filled);
        out[filled..filled + count].copy_from_slice(&peeked.data[..count]);
        Ok(Some(filled + count))
    }

    /// Passes received data to `copy`, piece by piece, at most `max` bytes in all (at least 1); 0: the stream has
    /// ended. `None`: there is no data now.
    pub(crate) fn try_read(&self, max: usize, mut copy: impl FnMut(&[u8])) -> io::Result<Option<usize>> {
        may_wait()?;
        let mut leftover = self.inner.leftover.lock();
        if leftover.has_data() || self.has_ended() {
            let copied = leftover.read(max, copy);
            self.report_unread(&mut leftover);
            return Ok(Some(copied));
        }
        let mut received = tcp::Received::default();
        let answer = self.receive_into(max, &mut received);
        let Some(Ok(())) = answer else { return self.nothing_received(answer).map(|()| None) };
        let received = &mut received;
        if received.urgent.is_some() || leftover.mark().is_some() {
            self.note_end(received);
            leftover.refill(std::mem::take(received), max);
            let copied = leftover.read(max, copy);
            self.report_unread(&mut leftover);
            return Ok(Some(copied));
        }
        self.note_end(received);
        let mut copied = 0;
        for buffer in &received.data {
            let count = buffer.len().min(max - copied);
            copy(&buffer[..count]);
            copied += count;
        }
        // Whole buffers were delivered: usually all but the last, or all, have been copied completely.
        let all: usize = received.data.iter().map(|buffer| buffer.len()).sum();
        if all > copied {
            leftover.keep(std::mem::take(&mut received.data), copied, received.window_clamped);
        }
        Ok(Some(copied))
    }

    /// Reports the number of unread bytes, if the connection requested that.
    #[inline]
    fn report_unread(&self, leftover: &mut Leftover) {
        if let Some(bytes) = leftover.unread_update() {
            self.call(Call::ReportUnread(tcp::ReportUnread { bytes }));
        }
    }

    #[inline]
    fn has_ended(&self) -> bool {
        self.inner.ended.load(Ordering::Relaxed)
    }

    /// The leftover is locked.
    #[inline]
    fn note_end(&self, received: &tcp::Received) {
        if received.end {
            self.inner.ended.store(true, Ordering::Relaxed);
        }
    }

    /// Handles an answer without data: an error, unless there is no data now.
    #[cold]
    fn nothing_received(&self, answer: Option<Result<(), tcp::Error>>) -> io::Result<()> {
        match answer {
            Some(Ok(()) | Err(tcp::Error::WouldBlock)) => Ok(()),
            Some(Err(error)) => Err(self.error(error)),
            None => Err(self.gone()),
        }
    }

    /// Sends from the front of `parts`, gathered into one buffer: copied on the caller's thread, before any lock is
    /// taken. Returns how much was taken; 0: there is no room now.
    pub(crate) fn try_write<'a>(&self, parts: impl Iterator<Item = &'a [u8]> + Clone) -> io::Result<usize> {
        let mut left = parts.clone().map(<[u8]>::len).sum::<usize>().min(COPY);
        let mut buffer = PktBuf::alloc_leaving(left, SPARE).ok_or_else(|| self.error(tcp::Error::NoBuffer))?;
        for part in parts {
            let count = part.len().min(left);
            left -= count;
            let fits = buffer.extend_from_slice(&part[..count]);
            debug_assert!(fits, "the buffer was asked for in this size");
        }
        Ok(self.send_once(Chunk::Pooled(buffer))?.0)
    }

    fn write_parts<'a>(&self, parts: impl Iterator<Item = &'a [u8]> + Clone) -> io::Result<usize> {
        if parts.clone().all(<[u8]>::is_empty) {
            return Ok(0);
        }
        loop {
            // If the send queue is full, wait before the copy, which might be useless.
            let room = Readiness::WRITABLE | Readiness::ERROR | Readiness::CLOSED;
            if !self.inner.nonblocking.load(Ordering::Relaxed) && !self.readiness().intersects(room) {
                self.wait_writable()?;
            }
            let accepted = self.try_write(parts.clone())?;
            if accepted > 0 {
                return Ok(accepted);
            }
            self.wait_writable()?;
        }
    }

    /// Takes more data from the connection into the leftover. False: there is no data now.
    fn refill(&self, leftover: &mut Leftover, max: usize) -> io::Result<bool> {
        let Some(received) = self.receive(max)? else { return Ok(false) };
        self.note_end(&received);
        leftover.refill(received, max);
        Ok(true)
    }

    /// Takes about `max` bytes from the connection; `None`: there is no data now.
    #[inline]
    fn receive(&self, max: usize) -> io::Result<Option<tcp::Received>> {
        let mut received = tcp::Received::default();
        match self.receive_into(max, &mut received) {
            Some(Ok(())) => Ok(Some(received)),
            answer => self.nothing_received(answer).map(|()| None),
        }
    }

    #[inline(always)]
    fn receive_into(&self, max: usize, received: &mut tcp::Received) -> Option<Result<(), tcp::Error>> {
        let (stack, socket) = (self.inner.stack.raw(), &self.inner.socket);
        match &self.inner.channel {
            None => stack.receive(&socket.target(), tcp::Receive { max }, received),
            Some(channel) => stack.receive_over(channel, socket, tcp::Receive { max }, received),
        }
    }

    /// Moves what has been delivered over the channel into the leftover, so that the two together are all that the
    /// connection counts as taken. False: nothing has been.
    pub(super) fn take_in(&self, leftover: &mut Leftover) -> bool {
        let Some(channel) = &self.inner.channel else { return false };
        let mut any = false;
        let mut received = tcp::Received::default();
        while !self.has_ended()
            && self.inner.stack.raw().take_over(channel, &self.inner.socket, usize::MAX, &mut received)
        {
            any = true;
            self.note_end(&received);
            leftover.refill(std::mem::take(&mut received), usize::MAX);
        }
        any
    }

    fn wait_readable(&self) -> io::Result<()> {
        self.wait_for(Readiness::READABLE, |timeouts| &timeouts.read)
    }

    fn wait_writable(&self) -> io::Result<()> {
        self.wait_for(Readiness::WRITABLE, |timeouts| &timeouts.write)
    }

    fn wait_for(&self, bit: Readiness, which: impl Fn(&StreamTimeouts) -> &Timeout) -> io::Result<()> {
        if self.inner.nonblocking.load(Ordering::Relaxed) {
            return Err(self.error(tcp::Error::WouldBlock));
        }
        may_wait()?;
        let ended = if bit == Readiness::READABLE { Readiness::PEER_CLOSED } else { Readiness::NONE };
        let wanted = bit | ended | Readiness::ERROR | Readiness::CLOSED;
        if self.inner.socket.ready.wait(wanted, self.inner.timeout(which)).intersects(wanted) {
            Ok(())
        } else {
            Err(self.error(tcp::Error::WouldBlock))
        }
    }
}

impl Read for &TcpStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        let len = out.len();
        loop {
            let mut filled = 0;
            let copy = |piece: &[u8]| {
                out[filled..filled + piece.len()].copy_from_slice(piece);
                filled += piece.len();
            };
            if let Some(count) = self.try_read(len, copy)? {
                return Ok(count);
            }
            self.wait_readable()?;
        }
    }

    /// Copies the available data into the buffers, from the first to the last.
    fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        loop {
            if let Some(count) = self.try_read_parts(parts)? {
                return Ok(count);
            }
            self.wait_readable()?;
        }
    }
}

impl TcpStream {
    /// As [`TcpStream::try_read`], into buffers that are filled one after the other; also 0 if they have no space.
    pub(crate) fn try_read_parts(&self, parts: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        let room = parts.iter().fold(0, |room: usize, part| room.saturating_add(part.len()));
        if room == 0 {
            return Ok(Some(0));
        }
        let (mut part, mut filled) = (0, 0);
        self.try_read(room, |mut piece| {
            while !piece.is_empty() {
                let free = &mut parts[part][filled..];
                let count = piece.len().min(free.len());
                free[..count].copy_from_slice(&piece[..count]);
                piece = &piece[count..];
                filled += count;
                if filled == parts[part].len() {
                    (part, filled) = (part + 1, 0);
                }
            }
        })
    }
}

impl Write for &TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.write_parts(std::iter::once(data))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_parts(parts.iter().map(|part| &**part))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        (&*self).read(out)
    }

    fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(parts)
    }
}

impl Write for TcpStream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
