//! A file of zeros, for `sendfile`: it has only a name and a length.

use crate::receive::Put;
use sync::{Atomic, Ordering, Platform};

/// An open one.
pub(crate) struct Zeros<P: Platform> {
    len: usize,
    /// Where the next read begins.
    offset: P::AtomicUsize,
}

impl<P: Platform> Zeros<P> {
    pub(crate) fn new(len: usize) -> Self {
        Zeros { len, offset: P::AtomicUsize::new(0) }
    }

    /// Bytes between the offset and the end.
    pub(crate) fn left(&self) -> usize {
        self.len.saturating_sub(self.offset.load(Ordering::Relaxed))
    }

    /// `read(2)`: at most `max` bytes; returns how many.
    pub(crate) fn read(&self, max: usize, put: Put<'_>) -> usize {
        const PIECE: [u8; 4096] = [0; 4096];
        let count = self.skip(max);
        let mut left = count;
        while left > 0 {
            let piece = left.min(PIECE.len());
            put(&PIECE[..piece]);
            left -= piece;
        }
        count
    }

    /// Moves the offset, not beyond the end; returns by how much.
    pub(crate) fn skip(&self, bytes: usize) -> usize {
        let mut offset = self.offset.load(Ordering::Relaxed);
        loop {
            let count = bytes.min(self.len.saturating_sub(offset));
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            match self.offset.compare_exchange_weak(offset, offset + count, success, failure) {
                Ok(_) => return count,
                Err(moved) => offset = moved,
            }
        }
    }
}
