//! The bytes of a write, generated on demand: a program may write more than any buffer holds.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// The most bytes of one call (Linux's `MAX_RW_COUNT`): the largest `int` in whole pages.
pub const MOST: usize = 0x7fff_f000;

/// Generates a range of the call's bytes.
type FillRange = Box<dyn Fn(Range<usize>) -> Vec<u8> + Send>;

enum TransferSource {
    Whole(Arc<[u8]>),
    Made(FillRange),
}

/// The bytes of a write that may have to wait in the middle.
pub struct Transfer {
    source: TransferSource,
    len: usize,
    done: usize,
    /// It opens the connection, and waits until that is established.
    opens: bool,
}

impl Transfer {
    /// A transfer of `data`, limited to [`MOST`] bytes.
    pub fn new(data: impl Into<Arc<[u8]>>) -> Transfer {
        let data = data.into();
        let len = data.len().min(MOST);
        Transfer { source: TransferSource::Whole(data), len, done: 0, opens: false }
    }

    /// A transfer of `buffers`, one after the other, limited to [`MOST`] bytes.
    pub fn gathered(buffers: &[IoSlice<'_>]) -> Transfer {
        let mut data = Vec::with_capacity(buffers.iter().map(|buffer| buffer.len()).sum::<usize>().min(MOST));
        for buffer in buffers {
            data.extend_from_slice(&buffer[..buffer.len().min(MOST - data.len())]);
        }
        Transfer::new(data)
    }

    /// `len` bytes, at most [`MOST`], which `make` generates piece by piece; it may be called for the same range again.
    pub fn made(len: usize, make: impl Fn(Range<usize>) -> Vec<u8> + Send + 'static) -> Transfer {
        Transfer { source: TransferSource::Made(Box::new(make)), len: len.min(MOST), done: 0, opens: false }
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.len - self.done
    }

    /// How many bytes were accepted.
    pub fn done(&self) -> usize {
        self.done
    }

    /// The next bytes, at most `max`, as a range of memory.
    pub(crate) fn next(&self, max: usize) -> (Arc<[u8]>, Range<usize>) {
        let range = self.done..self.done + self.left().min(max);
        match &self.source {
            TransferSource::Whole(data) => (data.clone(), range),
            TransferSource::Made(make) => {
                let made: Arc<[u8]> = make(range).into();
                let len = made.len();
                (made, 0..len)
            }
        }
    }

    pub(crate) fn advance(&mut self, bytes: usize) {
        self.done += bytes;
    }

    pub(crate) fn open(&mut self) {
        self.opens = true;
    }

    pub(crate) fn opens(&self) -> bool {
        self.opens
    }
}
