//! Pipes: bytes from one end to the other, at most 65 536 of them buffered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;

use sync::{Lock, LockClass, LockKind, Platform};

use crate::receive::Put;
use crate::transfer::Transfer;
use crate::wait_queue::{WaitQueue, bits};
use crate::{CallProgress, Errno, now};

/// The capacity of a pipe, Linux's default (pipe(7)).
const CAPACITY: usize = 65_536;

struct Content {
    bytes: VecDeque<u8>,
    readers: bool,
    writers: bool,
}

/// The state shared by both ends.
struct Pipe<P: Platform> {
    content: Lock<Content, P>,
    reader: Arc<WaitQueue<P>>,
    writer: Arc<WaitQueue<P>>,
}

/// One end of a pipe. Any thread.
pub(crate) struct PipeEnd<P: Platform> {
    pipe: Arc<Pipe<P>>,
    writes: bool,
}

/// The read end and the write end, each with its queue of waiters.
pub(crate) fn pipe<P: Platform>() -> [(PipeEnd<P>, Arc<WaitQueue<P>>); 2] {
    let (reader, writer) = (WaitQueue::new(), WaitQueue::new());
    let content = Content { bytes: VecDeque::new(), readers: true, writers: true };
    let content = Lock::new(LockKind::Blocking, LockClass::OpenFile, content);
    let pipe = Arc::new(Pipe { content, reader: reader.clone(), writer: writer.clone() });
    [(PipeEnd { pipe: pipe.clone(), writes: false }, reader), (PipeEnd { pipe, writes: true }, writer)]
}

impl<P: Platform> PipeEnd<P> {
    /// Whether it is the write end.
    pub(crate) fn writes(&self) -> bool {
        self.writes
    }

    /// `read(2)`: "If a process attempts to read from an empty pipe, then read(2) will block until data is available";
    /// "if all file descriptors referring to the write end of a pipe have been closed, then an attempt to read(2) from
    /// the pipe will see end-of-file" (pipe(7)).
    pub(crate) fn read(&self, max: usize, nonblocking: bool, put: Put<'_>) -> CallProgress<usize> {
        if self.writes {
            return now(Err(Errno::EBADF));
        }
        let mut content = self.pipe.content.lock();
        if content.bytes.is_empty() && content.writers && max > 0 {
            return if nonblocking { now(Err(Errno::EAGAIN)) } else { Poll::Pending };
        }
        let count = max.min(content.bytes.len());
        let (front, back) = content.bytes.as_slices();
        let first = count.min(front.len());
        put(&front[..first]);
        put(&back[..count - first]);
        content.bytes.drain(..count);
        drop(content);
        self.pipe.writer.wake(bits::OUT);
        now(Ok(count))
    }

    /// `write(2)`: "If a process attempts to write to a full pipe, then write(2) blocks until sufficient data has been
    /// read from the pipe to allow the write to complete"; "if all file descriptors referring to the read end of a pipe
    /// have been closed", `EPIPE` (pipe(7)).
    pub(crate) fn write(&self, transfer: &mut Transfer, nonblocking: bool) -> CallProgress<usize> {
        if !self.writes {
            return now(Err(Errno::EBADF));
        }
        let mut content = self.pipe.content.lock();
        if !content.readers {
            return now(if transfer.done() > 0 { Ok(transfer.done()) } else { Err(Errno::EPIPE) });
        }
        let (data, range) = transfer.next(CAPACITY - content.bytes.len());
        let count = range.len();
        content.bytes.extend(&data[range]);
        drop(content);
        transfer.advance(count);
        if count > 0 {
            self.pipe.reader.wake(bits::IN);
        }
        match (transfer.left(), nonblocking, transfer.done()) {
            (0, _, done) => now(Ok(done)),
            (_, false, _) => Poll::Pending,
            (_, true, 0) => now(Err(Errno::EAGAIN)),
            (_, true, done) => now(Ok(done)),
        }
    }

    /// Room for bytes.
    ///
    /// # Errors
    /// `EINVAL` at the read end.
    pub(crate) fn room(&self) -> Result<usize, Errno> {
        if self.writes { Ok(CAPACITY - self.pipe.content.lock().bytes.len()) } else { Err(Errno::EINVAL) }
    }

    pub(crate) fn events(&self) -> u32 {
        let content = self.pipe.content.lock();
        let is = |bit: u32, condition: bool| if condition { bit } else { 0 };
        if self.writes {
            is(bits::OUT, content.bytes.len() < CAPACITY) | is(bits::ERR, !content.readers)
        } else {
            is(bits::IN, !content.bytes.is_empty()) | is(bits::HUP, !content.writers)
        }
    }

    pub(crate) fn close(&self) {
        let mut content = self.pipe.content.lock();
        if self.writes {
            content.writers = false;
        } else {
            content.readers = false;
        }
        drop(content);
        let other = if self.writes { &self.pipe.reader } else { &self.pipe.writer };
        other.wake(bits::ALL);
    }
}
