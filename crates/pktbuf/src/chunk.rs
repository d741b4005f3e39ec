//! [`Chunk`]: a run of bytes in a send queue, wherever they live.

use core::fmt;
use core::ops::{Deref, Range};
use std::sync::Arc;

use crate::buffer::PktBuf;

/// Bytes waiting to be sent: in a packet buffer, in memory shared with the application (as `sendfile` would), or in
/// the program itself.
pub enum Chunk {
    /// A packet buffer that the queue owns.
    Pooled(PktBuf),
    /// A part of memory that others hold too.
    Shared {
        /// The memory.
        data: Arc<[u8]>,
        /// The part that is meant; within `data`.
        range: Range<usize>,
    },
    /// A constant of the program.
    Static(&'static [u8]),
}

impl Chunk {
    /// All of `data`, shared.
    pub fn shared(data: Arc<[u8]>) -> Chunk {
        let range = 0..data.len();
        Chunk::Shared { data, range }
    }

    /// Bytes left in the chunk.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Chunk::Pooled(buf) => buf.len(),
            Chunk::Shared { range, .. } => range.len(),
            Chunk::Static(bytes) => bytes.len(),
        }
    }

    /// Whether nothing is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes.
    ///
    /// # Panics
    /// If a `Shared` chunk was made with a range outside its data.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Chunk::Pooled(buf) => buf,
            Chunk::Shared { data, range } => &data[range.clone()],
            Chunk::Static(bytes) => bytes,
        }
    }

    /// Removes `n` bytes from the front: they were acknowledged.
    ///
    /// # Panics
    /// If fewer are left.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.len(), "a chunk of {} bytes advanced by {n}", self.len());
        match self {
            Chunk::Pooled(buf) => buf.pull_front(n),
            Chunk::Shared { range, .. } => range.start += n,
            Chunk::Static(bytes) => *bytes = &bytes[n..],
        }
    }

    /// Removes the first `n` bytes and returns them as a chunk of their own. A pooled chunk has one owner, so the
    /// shorter side is copied; `None`, with the chunk unchanged, if the pool has no buffer for it.
    ///
    /// # Panics
    /// If fewer than `n` bytes are left.
    pub fn split(&mut self, n: usize) -> Option<Chunk> {
        assert!(n <= self.len(), "a chunk of {} bytes split at {n}", self.len());
        match self {
            Chunk::Pooled(buf) => split_pooled(buf, n).map(Chunk::Pooled),
            Chunk::Shared { data, range } => {
                let front = range.start..range.start + n;
                range.start += n;
                Some(Chunk::Shared { data: Arc::clone(data), range: front })
            }
            Chunk::Static(bytes) => {
                let (front, back) = bytes.split_at(n);
                *bytes = back;
                Some(Chunk::Static(front))
            }
        }
    }
}

fn split_pooled(buf: &mut PktBuf, n: usize) -> Option<PktBuf> {
    if n <= buf.len() / 2 {
        let mut front = PktBuf::from_slice(&buf[..n])?;
        *front.meta_mut() = *buf.meta();
        front.meta_mut().l3 = 0;
        buf.pull_front(n);
        return Some(front);
    }
    let mut back = PktBuf::from_slice(&buf[n..])?;
    *back.meta_mut() = *buf.meta();
    back.meta_mut().l3 = 0;
    buf.truncate(n);
    Some(core::mem::replace(buf, back))
}

impl Deref for Chunk {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl From<PktBuf> for Chunk {
    fn from(buf: PktBuf) -> Chunk {
        Chunk::Pooled(buf)
    }
}

impl From<Arc<[u8]>> for Chunk {
    fn from(data: Arc<[u8]>) -> Chunk {
        Chunk::shared(data)
    }
}

impl From<&'static [u8]> for Chunk {
    fn from(bytes: &'static [u8]) -> Chunk {
        Chunk::Static(bytes)
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Chunk::Pooled(_) => "Pooled",
            Chunk::Shared { .. } => "Shared",
            Chunk::Static(_) => "Static",
        };
        write!(f, "{kind}({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"the quick brown fox";

    fn one_of_each() -> [Chunk; 3] {
        let shared = Chunk::Shared { data: [b"__", TEXT, b"__"].concat().into(), range: 2..2 + TEXT.len() };
        [PktBuf::from_slice(TEXT).unwrap().into(), shared, TEXT.into()]
    }

    #[test]
    fn advancing_removes_from_the_front() {
        for mut chunk in one_of_each() {
            chunk.advance(4);
            assert_eq!(&chunk[..], &TEXT[4..], "{chunk:?}");
            chunk.advance(TEXT.len() - 4);
            assert!(chunk.is_empty());
        }
    }

    #[test]
    fn splitting_anywhere_loses_nothing() {
        for at in 0..=TEXT.len() {
            for mut chunk in one_of_each() {
                let front = chunk.split(at).unwrap();
                assert_eq!((&front[..], &chunk[..]), TEXT.split_at(at), "{chunk:?} at {at}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "a chunk of 19 bytes advanced by 20")]
    fn advancing_beyond_the_end_panics() {
        Chunk::Static(TEXT).advance(20);
    }
}
