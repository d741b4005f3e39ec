//! Pipes, and files that exist in name and length only: enough for `splice` and `sendfile`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use sync::Platform;

use crate::{Answer, Descriptor, Errno, Object, Sockets, Transfer, now};

/// What a pipe holds at most, Linux's default.
const PIPE: usize = 65536;

/// A pipe's contents, shared by both its ends.
pub type Pipe = Arc<Mutex<VecDeque<u8>>>;

fn lock(pipe: &Pipe) -> MutexGuard<'_, VecDeque<u8>> {
    // Nobody can leave the queue half changed.
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) enum File {
    Reader(Pipe),
    Writer(Pipe),
    /// A file of so many zeros, and where the next read begins.
    Zeros(usize, usize),
}

impl File {
    pub(crate) fn read(&mut self, max: usize) -> Result<Vec<u8>, Errno> {
        match self {
            File::Reader(pipe) => {
                let mut pipe = lock(pipe);
                if pipe.is_empty() {
                    return Err(Errno::EAGAIN);
                }
                let count = max.min(pipe.len());
                Ok(pipe.drain(..count).collect())
            }
            File::Writer(_) => Err(Errno::EBADF),
            File::Zeros(len, at) => {
                let count = max.min(*len - *at);
                *at += count;
                Ok(vec![0; count])
            }
        }
    }

    pub(crate) fn write(&mut self, transfer: &mut Transfer) -> Result<usize, Errno> {
        let File::Writer(pipe) = self else { return Err(Errno::EBADF) };
        let mut pipe = lock(pipe);
        let (data, range) = transfer.next(PIPE - pipe.len());
        let count = range.len();
        if count == 0 {
            return Err(Errno::EAGAIN);
        }
        pipe.extend(&data[range]);
        transfer.advance(count);
        Ok(count)
    }
}

impl<P: Platform> Sockets<P> {
    /// Makes a file of `len` zeros that `open` finds.
    pub fn make_file(&mut self, path: &str, len: usize) {
        self.disk.insert(path.to_owned(), len);
    }

    /// `open(2)` of a file that was made.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn open(&mut self, path: &str) -> Result<i32, Errno> {
        let len = *self.disk.get(path).ok_or(Errno::ENOENT)?;
        Ok(self.add(Object::File(File::Zeros(len, 0)), false, libc::O_RDONLY))
    }

    /// `pipe(2)`: the end to read from, the end to write to.
    pub fn pipe(&mut self) -> (i32, i32) {
        let pipe = Pipe::default();
        let reader = self.add(Object::File(File::Reader(pipe.clone())), false, libc::O_RDONLY);
        (reader, self.add(Object::File(File::Writer(pipe)), false, libc::O_WRONLY))
    }

    /// Room in the pipe whose writing end is `fd`.
    ///
    /// # Errors
    /// `EINVAL` if it is none.
    pub fn pipe_room(&self, fd: i32) -> Result<usize, Errno> {
        match self.files.get(&fd) {
            Some(Descriptor { object: Object::File(File::Writer(pipe)), .. }) => Ok(PIPE - lock(pipe).len()),
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::EBADF),
        }
    }

    /// Octets between the place where the next read of the file `fd` begins and its end; `None` if it is no file.
    fn left_in_file(&self, fd: i32) -> Option<usize> {
        match self.files.get(&fd)?.object {
            Object::File(File::Zeros(len, at)) => Some(len - at),
            _ => None,
        }
    }

    fn skip_in_file(&mut self, fd: i32, octets: usize) {
        if let Some(Descriptor { object: Object::File(File::Zeros(_, at)), .. }) = self.files.get_mut(&fd) {
            *at += octets;
        }
    }

    /// `sendfile(2)` and `splice(2)`: at most `count` octets from one descriptor to another. `carried` keeps what was taken
    /// before the call had to wait.
    pub fn splice(&mut self, from: i32, to: i32, count: usize, carried: &mut Option<Transfer>) -> Answer<usize> {
        let count = self.pipe_room(to).unwrap_or(count).min(count);
        if let Some(left) = self.left_in_file(from) {
            let transfer = carried.get_or_insert_with(|| Transfer::made(count.min(left), |range| vec![0; range.len()]));
            let sent = if transfer.left() == 0 { now(Ok(0)) } else { self.send(to, transfer, 0, None) };
            if let Poll::Ready(Ok(sent)) = sent {
                self.skip_in_file(from, sent);
            }
            return sent;
        }
        if carried.is_none() {
            match self.receive(from, count, 0) {
                Poll::Ready(Ok((data, _))) => *carried = Some(Transfer::new(data)),
                Poll::Ready(Err(error)) => return now(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        let Some(transfer) = carried else { return Poll::Pending };
        if transfer.left() == 0 {
            return now(Ok(transfer.done()));
        }
        self.send(to, transfer, 0, None)
    }
}
