//! The retransmit-queue part: all data from SND.UNA on, sent or not, and the times at which the sent part was sent.
//!
//! Data stays in the user's chunks (pooled, shared or static memory) and is copied once per transmission, into the
//! segment. A cursor marks the position of SND.NXT, so that sending new data never walks the queue; only retransmission
//! does.

use pktbuf::{Chunk, PktBuf, copy_and_sum};
use wire::checksum::Sum;

use super::fifo::{Appended, Fifo, behind};
use super::send_log::SendLog;
use crate::isn::ChildIdentity;
use crate::outbox::LocalEffects;
use crate::scarcity::{of_buffer, of_chunk};

/// Writes of up to this many bytes are copied into the tail of the queue if that is pooled and has room.
const COALESCE: usize = 4096;

/// Position in the queue: chunk, and byte in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    chunk: u32,
    byte: u32,
}

/// See the module documentation.
#[derive(Debug)]
#[repr(C)]
pub struct RetransmitQueue {
    chunks: Fifo<Chunk>,
    pub(crate) log: SendLog,
    /// Bytes of data in the queue.
    pub(crate) len: u32,
    /// Most bytes of data and options of a segment, whatever the path: the peer's MSS, and the user's limit. Kept here
    /// because this part has room for it.
    pub(crate) largest: u16,
    /// Position of the first byte never sent.
    unsent: Cursor,
}

impl RetransmitQueue {
    /// For a connection whose segments carry at most `largest` bytes of data and options.
    pub(crate) const fn new(largest: u16) -> Self {
        let unsent = Cursor { chunk: 0, byte: 0 };
        RetransmitQueue { log: SendLog::new(), len: 0, largest, unsent, chunks: Fifo::new() }
    }

    /// A queue like this one, which is empty, with a SYN that was sent at another time.
    #[inline(always)]
    pub(crate) fn like(&self, identity: &ChildIdentity<'_>) -> Self {
        let RetransmitQueue { chunks: _, log: _, len, largest, unsent } = *self;
        RetransmitQueue { log: SendLog::of_syn(identity.sent), len, largest, unsent, chunks: Fifo::new() }
    }

    /// Append `chunk`; small ones are copied behind the last one.
    #[inline(always)]
    pub(crate) fn push(&mut self, mut chunk: Chunk) -> Appended {
        let len = chunk.len();
        if len == 0 {
            return Appended::NOTHING;
        }
        let before = self.len;
        self.len += len as u32;
        if len <= COALESCE
            && before > 0
            && let Some(Chunk::Pooled(tail)) = self.chunks.back_mut()
        {
            if tail.tailroom() >= len && tail.extend_from_slice(chunk.as_slice()) {
                return Appended::NOTHING;
            }
            if let Chunk::Pooled(buffer) = chunk {
                chunk = Chunk::Pooled(behind(tail, buffer));
            }
        }
        let memory = of_chunk(&chunk);
        // By kind: each has fields of its own that are moved, where a chunk as a whole would be stored in pieces and loaded at once.
        let spilled = match chunk {
            Chunk::Pooled(buffer) => self.chunks.push(Chunk::Pooled(buffer)),
            chunk => self.push_unpooled(chunk),
        };
        Appended { memory, spilled }
    }

    /// [`RetransmitQueue::push`] of a buffer with at least a byte, where nothing is queued. Returns the bytes of memory that it
    /// occupies.
    #[inline(always)]
    pub(crate) fn push_alone(&mut self, buffer: PktBuf) -> u32 {
        debug_assert!(self.len == 0 && !buffer.is_empty());
        self.len = buffer.len() as u32;
        let memory = of_buffer(&buffer);
        let spilled = self.chunks.push(Chunk::Pooled(buffer));
        debug_assert!(!spilled, "the first place of the queue is empty");
        memory
    }

    /// [`RetransmitQueue::push_alone`] of bytes that leave at once.
    #[inline(always)]
    pub(crate) fn push_sent(&mut self, buffer: PktBuf) -> u32 {
        debug_assert_eq!(self.unsent, Cursor::default());
        let memory = self.push_alone(buffer);
        self.unsent.byte = self.len;
        memory
    }

    #[inline(never)]
    fn push_unpooled(&mut self, chunk: Chunk) -> bool {
        self.chunks.push(chunk)
    }

    /// Asks the processor for what [`RetransmitQueue::acknowledge`] frees first.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        if let Some(Chunk::Pooled(buffer)) = self.chunks.front() {
            buffer.prefetch_header();
        }
    }

    /// Drop the first `bytes`: they are acknowledged. The bytes of memory freed are entered in `out`, and a buffer that has
    /// held all of it is left there.
    #[inline(always)]
    pub(crate) fn acknowledge(&mut self, bytes: u32, out: &mut LocalEffects<'_>) {
        if bytes == self.len
            && let Some(Chunk::Pooled(_)) = self.chunks.front()
            && let Some(Chunk::Pooled(buffer)) = self.chunks.pop_single()
        {
            // All of it, in one buffer.
            (self.len, self.unsent) = (0, Cursor::default());
            out.memory -= i64::from(of_buffer(&buffer));
            return out.keep_spare(buffer);
        }
        out.memory -= self.acknowledge_pieces(bytes);
    }

    #[inline(never)]
    fn acknowledge_pieces(&mut self, bytes: u32) -> i64 {
        let mut given_back = 0;
        let mut left = bytes.min(self.len) as usize;
        self.len -= left as u32;
        while left > 0 {
            let Some(front) = self.chunks.front_mut() else { break };
            let len = front.len();
            if len > left {
                front.advance(left);
                if matches!(front, Chunk::Shared { .. }) {
                    given_back += left as i64;
                }
                if self.unsent.chunk == 0 {
                    self.unsent.byte = self.unsent.byte.saturating_sub(left as u32);
                }
                return given_back;
            }
            left -= len;
            given_back += i64::from(of_chunk(front));
            self.chunks.drop_first();
            match self.unsent.chunk {
                0 => self.unsent.byte = 0,
                _ => self.unsent.chunk -= 1,
            }
        }
        self.close_gap();
        given_back
    }

    /// In an empty queue the cursor points to the data that is queued next.
    #[inline]
    fn close_gap(&mut self) {
        if self.len == 0 {
            self.unsent = Cursor::default();
        }
    }

    /// Copies the next `dst.len()` unsent bytes, sums them on request, and advances the cursor.
    #[inline]
    pub(crate) fn copy_unsent(&mut self, dst: &mut [u8], summed: bool) -> Sum {
        // Segments usually end where a write ended: the next begins with the next chunk.
        if self.unsent.byte > 0
            && let Some(chunk) = self.chunks.get(self.unsent.chunk as usize)
            && self.unsent.byte as usize == chunk.len()
            && !dst.is_empty()
        {
            self.unsent = Cursor { chunk: self.unsent.chunk + 1, byte: 0 };
        }
        // Usually one chunk has all of it.
        if let Some(sum) = self.copy_whole(self.unsent, dst, summed) {
            self.unsent.byte += dst.len() as u32;
            return sum;
        }
        let (sum, cursor) = self.copy_pieces(self.unsent, dst, summed);
        self.unsent = cursor;
        sum
    }

    /// [`RetransmitQueue::copy_unsent`] of all bytes of the queue, none of which was sent. They are one piece.
    #[inline(always)]
    pub(crate) fn copy_first(&mut self, dst: &mut [u8]) -> Sum {
        debug_assert_eq!((self.unsent, self.len as usize), (Cursor::default(), dst.len()));
        self.unsent.byte = dst.len() as u32;
        match self.chunks.front() {
            Some(Chunk::Pooled(buffer)) if buffer.len() == dst.len() => copy_and_sum(dst, buffer),
            _ => self.copy_pieces(Cursor::default(), dst, true).0,
        }
    }

    /// Copies `dst.len()` bytes from `offset` bytes after SND.UNA on, and sums them on request.
    pub(crate) fn copy_sent(&self, offset: u32, dst: &mut [u8], sum: bool) -> Sum {
        let mut cursor = Cursor { chunk: 0, byte: offset };
        while let Some(chunk) = self.chunks.get(cursor.chunk as usize) {
            let len = chunk.len() as u32;
            if cursor.byte < len {
                break;
            }
            cursor.byte -= len;
            cursor.chunk += 1;
        }
        self.copy_whole(cursor, dst, sum).unwrap_or_else(|| self.copy_pieces(cursor, dst, sum).0)
    }

    /// Copies `dst.len()` bytes from `cursor` on if one chunk has them all, and sums them on request.
    #[inline(always)]
    fn copy_whole(&self, cursor: Cursor, dst: &mut [u8], summed: bool) -> Option<Sum> {
        let chunk = self.chunks.get(cursor.chunk as usize)?;
        let data = chunk.as_slice().get(cursor.byte as usize..cursor.byte as usize + dst.len())?;
        if summed {
            return Some(copy_and_sum(dst, data));
        }
        dst.copy_from_slice(data);
        Some(Sum::zero())
    }

    /// The same across chunks; also returns the cursor after them.
    fn copy_pieces(&self, mut cursor: Cursor, dst: &mut [u8], summed: bool) -> (Sum, Cursor) {
        let mut sum = Sum::zero();
        let mut done = 0;
        while done < dst.len() {
            let Some(chunk) = self.chunks.get(cursor.chunk as usize) else { break };
            let rest = &chunk.as_slice()[cursor.byte as usize..];
            if rest.is_empty() {
                cursor = Cursor { chunk: cursor.chunk + 1, byte: 0 };
                continue;
            }
            let n = rest.len().min(dst.len() - done);
            let dst = &mut dst[done..done + n];
            if summed {
                sum = sum.add_at(copy_and_sum(dst, &rest[..n]), done);
            } else {
                dst.copy_from_slice(&rest[..n]);
            }
            done += n;
            cursor.byte += n as u32;
        }
        debug_assert_eq!(done, dst.len(), "the queue holds what is sent from it");
        (sum, cursor)
    }

    /// Nothing in the queue counts as sent.
    pub(crate) fn rewind(&mut self) {
        self.unsent = Cursor::default();
    }

    /// Drops everything, memory included, and returns the bytes of memory freed.
    pub(crate) fn clear(&mut self) -> i64 {
        let given_back = self.memory();
        *self = RetransmitQueue::new(self.largest);
        given_back
    }

    /// Bytes of memory that the data in the queue occupies.
    pub(crate) fn memory(&self) -> i64 {
        (0..).map_while(|index| self.chunks.get(index)).map(|chunk| i64::from(of_chunk(chunk))).sum()
    }

    /// Whether the queue itself holds heap memory.
    pub(crate) fn is_spilled(&self) -> bool {
        self.chunks.is_spilled() || self.log.is_spilled()
    }

    /// Frees heap memory that is not in use.
    pub(crate) fn shrink(&mut self) {
        self.chunks.shrink();
        self.log.shrink();
    }
}
