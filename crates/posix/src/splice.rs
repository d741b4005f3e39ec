//! Files other than sockets, and moving bytes between descriptors: `pipe`, `open`, `sendfile`, `splice`.

use std::task::Poll;

use sync::Platform;

use crate::description::{Description, OpenObject};
use crate::pipe::pipe;
use crate::transfer::Transfer;
use crate::wait_queue::WaitQueue;
use crate::zero_file::Zeros;
use crate::{CallProgress, Errno, Sockets, now};

impl<P: Platform> Sockets<P> {
    /// Makes a file of `len` zeros for `open`.
    pub fn make_file(&self, path: &str, len: usize) {
        self.disk.lock().insert(path.to_owned(), len);
    }

    /// `open(2)` of a file that was made.
    ///
    /// # Errors
    /// `ENOENT`, `EMFILE`.
    pub fn open(&self, path: &str) -> Result<i32, Errno> {
        let len = *self.disk.lock().get(path).ok_or(Errno::ENOENT)?;
        let object = OpenObject::Zeros(Zeros::new(len));
        let file = Description::new(object, WaitQueue::new(), (false, libc::O_RDONLY), &self.stack);
        self.table.add(file, false, 0)
    }

    /// `pipe2(2)`: the read end and the write end. Supports the flags `O_NONBLOCK` and `O_CLOEXEC`.
    ///
    /// # Errors
    /// `EMFILE`, `EINVAL` for other flags.
    pub fn pipe(&self, flags: i32) -> Result<(i32, i32), Errno> {
        if flags & !(libc::O_NONBLOCK | libc::O_CLOEXEC) != 0 {
            return Err(Errno::EINVAL);
        }
        let (nonblocking, close_on_exec) = (flags & libc::O_NONBLOCK != 0, flags & libc::O_CLOEXEC != 0);
        let [(reader, readers), (writer, writers)] = pipe();
        let end =
            |end, waiters, access| Description::new(OpenObject::Pipe(end), waiters, (nonblocking, access), &self.stack);
        let (reader, writer) = (end(reader, readers, libc::O_RDONLY), end(writer, writers, libc::O_WRONLY));
        let reader = self.table.add(reader, close_on_exec, 0)?;
        match self.table.add(writer, close_on_exec, 0) {
            Ok(writer) => Ok((reader, writer)),
            Err(error) => {
                drop(self.table.remove(reader));
                Err(error)
            }
        }
    }

    /// Room in the pipe, if `file` is the write end of one.
    fn pipe_room(file: &Description<P>) -> Option<usize> {
        if let OpenObject::Pipe(end) = &file.object { end.room().ok() } else { None }
    }

    /// One attempt of `sendfile(2)` or `splice(2)`: at most `count` bytes from one descriptor to another. `carried`
    /// keeps the bytes taken before the call had to wait.
    pub fn try_splice(&self, from: i32, to: i32, count: usize, carried: &mut Option<Transfer>) -> CallProgress<usize> {
        let (source, target) = match (self.file(from), self.file(to)) {
            (Ok(source), Ok(target)) => (source, target),
            (Err(error), _) | (_, Err(error)) => return now(Err(error)),
        };
        let count = Self::pipe_room(&target).unwrap_or(count).min(count);
        if let OpenObject::Zeros(zeros) = &source.object {
            let left = zeros.left();
            let transfer = carried.get_or_insert_with(|| Transfer::made(count.min(left), |range| vec![0; range.len()]));
            let sent = if transfer.left() == 0 { now(Ok(0)) } else { self.try_send(to, transfer, 0, None, false) };
            if let Poll::Ready(Ok(sent)) = sent {
                zeros.skip(sent);
            }
            return sent;
        }
        if carried.is_none() {
            match self.try_receive(from, count, 0, false) {
                Poll::Ready(Ok(received)) => *carried = Some(Transfer::new(received.data)),
                Poll::Ready(Err(error)) => return now(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        let Some(transfer) = carried else { return Poll::Pending };
        if transfer.left() == 0 {
            return now(Ok(transfer.done()));
        }
        self.try_send(to, transfer, 0, None, false)
    }
}
