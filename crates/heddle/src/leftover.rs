//! Data that a stream has received and its user has not read: buffers that were read in part, and the position of the
//! urgent byte in them.
//!
//! Owned by a stream's handle, behind its lock. A read fills it from the connection, and the next reads empty it before
//! the connection is called again. What may never happen: data read twice, or out of order, or data after the urgent
//! byte in one read with data before it.

use std::collections::VecDeque;

use pktbuf::PktBuf;

/// Bytes read of the kept data after which a connection that requested it is notified before all is read: half of the
/// largest packet.
const TELL: usize = 32 << 10;

/// The unread data of one stream. Usually there is none, and it then takes eight bytes.
#[derive(Default)]
pub(crate) struct Leftover {
    /// Allocated when there first is data.
    inner: Option<Box<Rest>>,
}

#[derive(Default)]
struct Rest {
    buffers: VecDeque<PktBuf>,
    /// Bytes of them that the connection counts as unread, if it requested to be notified when they become fewer;
    /// otherwise 0.
    counted: usize,
    /// Unread bytes before the urgent one.
    mark: Option<usize>,
}

impl Leftover {
    /// Whether there is unread data.
    #[inline]
    pub(crate) fn has_data(&self) -> bool {
        self.inner.as_ref().is_some_and(|rest| !rest.buffers.is_empty())
    }

    /// Bytes before the urgent one, if there is one.
    #[inline]
    pub(crate) fn mark(&self) -> Option<usize> {
        self.inner.as_ref().and_then(|rest| rest.mark)
    }

    /// Bytes that were not read.
    pub(crate) fn bytes(&self) -> usize {
        self.inner.as_ref().map_or(0, |rest| rest.bytes())
    }

    /// Takes the unread buffers.
    pub(crate) fn take_buffers(&mut self) -> VecDeque<PktBuf> {
        self.inner.as_mut().map(|rest| std::mem::take(&mut rest.buffers)).unwrap_or_default()
    }

    /// Keeps these buffers without their first `read` bytes; there are no others. `window_clamped`: the connection
    /// requested to be notified when they have been read.
    #[cold]
    pub(crate) fn keep(&mut self, buffers: impl IntoIterator<Item = PktBuf>, mut read: usize, window_clamped: bool) {
        let rest = self.inner.get_or_insert_default();
        for mut buffer in buffers {
            let count = buffer.len().min(read);
            read -= count;
            if count < buffer.len() {
                buffer.pull_front(count);
                rest.buffers.push_back(buffer);
            }
        }
        rest.counted = if window_clamped { rest.bytes() } else { 0 };
    }

    /// Stores what the connection returned to a receive of `max` bytes.
    pub(crate) fn refill(&mut self, received: tcp::Received, max: usize) {
        self.inner.get_or_insert_default().refill(received, max);
    }

    /// The number of bytes that the connection should count as unread from now on, if it must be notified.
    #[inline]
    pub(crate) fn unread_update(&mut self) -> Option<usize> {
        self.inner.as_mut().filter(|rest| rest.counted > 0)?.unread_update()
    }

    /// Bytes that one read of `max` may take, here and from the connection: it stops before the urgent byte.
    pub(crate) fn bound(&self, max: usize) -> usize {
        self.inner.as_ref().map_or(max, |rest| rest.bound(max))
    }

    /// Passes the first `max` bytes to `copy` and keeps them.
    pub(crate) fn peek(&self, max: usize, mut copy: impl FnMut(&[u8])) {
        let mut left = max;
        for buffer in self.inner.iter().flat_map(|rest| &rest.buffers) {
            let count = buffer.len().min(left);
            copy(&buffer[..count]);
            left -= count;
        }
    }

    /// Passes data to `copy`, up to the urgent byte; returns how much.
    pub(crate) fn read(&mut self, max: usize, copy: impl FnMut(&[u8])) -> usize {
        let Some(rest) = &mut self.inner else { return 0 };
        let bound = rest.bound(max);
        let copied = copy_out(&mut rest.buffers, bound, copy);
        rest.consumed(copied);
        copied
    }
}

impl Rest {
    /// Bytes that one read may take: it stops before the urgent byte.
    fn bound(&self, max: usize) -> usize {
        self.mark.filter(|before| *before > 0).map_or(max, |before| max.min(before))
    }

    fn bytes(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.len()).sum()
    }

    fn unread_update(&mut self) -> Option<usize> {
        let left = self.bytes();
        let tell = left == 0 || left + TELL <= self.counted;
        tell.then(|| {
            self.counted = left;
            left
        })
    }

    /// Records that `bytes` were read.
    fn consumed(&mut self, bytes: usize) {
        self.mark = self.mark.and_then(|before| before.checked_sub(bytes));
    }

    fn refill(&mut self, received: tcp::Received, max: usize) {
        let queued = self.bytes();
        self.mark = self.mark.or(received.urgent.and_then(|end| end.checked_sub(1)).map(|before| queued + before));
        self.buffers.extend(received.data);
        self.counted = if received.window_clamped { self.bytes().saturating_sub(queued + max) } else { 0 };
    }
}

/// Passes at most `max` bytes from the front of `buffers` to `copy`; returns how many.
fn copy_out(buffers: &mut VecDeque<PktBuf>, max: usize, mut copy: impl FnMut(&[u8])) -> usize {
    let mut copied = 0;
    while copied < max
        && let Some(front) = buffers.front_mut()
    {
        let count = front.len().min(max - copied);
        copy(&front[..count]);
        copied += count;
        if count == front.len() {
            buffers.pop_front();
        } else {
            front.pull_front(count);
        }
    }
    copied
}
