//! Pipes, and files that exist in name and length only: enough for `splice` and `sendfile`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::{Descriptor, Errno, Object, Posix, Transfer};

/// What a pipe holds at most, Linux's default.
const PIPE: usize = 65536;

/// A pipe's contents, shared by both its ends.
pub type Pipe = Rc<RefCell<VecDeque<u8>>>;

pub(super) enum File {
    Reader(Pipe),
    Writer(Pipe),
    /// A file of so many zeros, and where the next read begins.
    Zeros(usize, usize),
}

impl File {
    pub(super) fn read(&mut self, max: usize) -> Result<Vec<u8>, Errno> {
        match self {
            File::Reader(pipe) => {
                let mut pipe = pipe.borrow_mut();
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

    pub(super) fn write(&mut self, transfer: &mut Transfer) -> Result<usize, Errno> {
        let File::Writer(pipe) = self else { return Err(Errno::EBADF) };
        let mut pipe = pipe.borrow_mut();
        let count = transfer.rest().len().min(PIPE - pipe.len());
        if count == 0 {
            return Err(Errno::EAGAIN);
        }
        pipe.extend(&transfer.rest()[..count]);
        transfer.advance(count);
        Ok(count)
    }
}

impl Posix {
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
            Some(Descriptor { object: Object::File(File::Writer(pipe)), .. }) => Ok(PIPE - pipe.borrow().len()),
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::EBADF),
        }
    }
}
