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
    /// A part of shared memory; [`Chunk::part`] makes it. Its length has 32 bits so that a chunk has 32 bytes: each
    /// connection has one in place.
    Shared {
        /// The memory.
        data: Arc<[u8]>,
        /// Where the part begins.
        start: usize,
        /// How long it is; it ends within `data`.
        len: u32,
    },
    /// A constant of the program.
    Static(&'static [u8]),
}

const _: () = assert!(size_of::<Chunk>() <= 32);

impl Chunk {
    /// All of `data`, shared; the first 4 GiB - 1 of it if there is more.
    ///
    /// ```
    /// let chunk = pktbuf::Chunk::shared(b"data".as_slice().into());
    /// assert_eq!(&*chunk, b"data");
    /// ```
    pub fn shared(data: Arc<[u8]>) -> Chunk {
        let range = 0..data.len();
        Chunk::part(data, range)
    }

    /// The part `range` of `data`, shared; the first 4 GiB - 1 of it if it is longer.
    ///
    /// # Panics
    /// If `range` is not within `data`.
    #[inline]
    pub fn part(data: Arc<[u8]>, range: Range<usize>) -> Chunk {
        assert!(range.start <= range.end && range.end <= data.len(), "{range:?} of {} bytes", data.len());
        let len = u32::try_from(range.len()).unwrap_or(u32::MAX);
        Chunk::Shared { data, start: range.start, len }
    }

    /// Bytes left in the chunk.
    #[inline]
    pub fn len(&self) -> usize {
        // Nearly always. Together with the others it would be a jump through a table.
        if let Chunk::Pooled(buf) = self {
            return buf.len();
        }
        match self {
            Chunk::Pooled(buf) => buf.len(),
            Chunk::Shared { len, .. } => *len as usize,
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
    /// If a `Shared` chunk was made with a part outside its data.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Chunk::Pooled(buf) => buf,
            Chunk::Shared { data, start, len } => &data[*start..*start + *len as usize],
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
            Chunk::Shared { start, len, .. } => {
                *start += n;
                *len -= n as u32;
            }
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
            Chunk::Shared { data, start, len } => {
                let front = Chunk::Shared { data: Arc::clone(data), start: *start, len: n as u32 };
                *start += n;
                *len -= n as u32;
                Some(front)
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

    const DATA: &[u8] = b"the quick brown fox";

    fn one_of_each() -> [Chunk; 3] {
        let shared = Chunk::part([b"__", DATA, b"__"].concat().into(), 2..2 + DATA.len());
        [PktBuf::from_slice(DATA).unwrap().into(), shared, DATA.into()]
    }

    #[test]
    fn advancing_removes_from_the_front() {
        for mut chunk in one_of_each() {
            chunk.advance(4);
            assert_eq!(&chunk[..], &DATA[4..], "{chunk:?}");
            chunk.advance(DATA.len() - 4);
            assert!(chunk.is_empty());
        }
    }

    #[test]
    fn splitting_anywhere_loses_nothing() {
        for at in 0..=DATA.len() {
            for mut chunk in one_of_each() {
                let front = chunk.split(at).unwrap();
                assert_eq!((&front[..], &chunk[..]), DATA.split_at(at), "{chunk:?} at {at}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "a chunk of 19 bytes advanced by 20")]
    fn advancing_beyond_the_end_panics() {
        Chunk::Static(DATA).advance(20);
    }
}
