//! Descriptors. packetdrill closes what a script left open with the kernel's `close`, so each of ours is one of the kernel's
//! as well, open on `/dev/null`.
//!
//! Which numbers are ours is kept in bits beside the table, so that the preloaded `close` of the whole program can pass
//! by without a lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use posix::{Errno, Sockets};
use sync::Real;

const WORDS: usize = 1024;
static OURS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

fn place(fd: i32) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((OURS.get(fd / 64)?, 1 << (fd % 64)))
}

/// Whether the kernel's descriptor `fd` is one of ours. Takes no lock.
pub(crate) fn is_ours(fd: i32) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

/// The kernel's numbers, and the socket layer's for each.
#[derive(Default)]
pub(crate) struct Files {
    inner: BTreeMap<i32, i32>,
}

impl Files {
    /// The socket layer's number for `fd`.
    pub(crate) fn inner(&self, fd: i32) -> Result<i32, Errno> {
        self.inner.get(&fd).copied().ok_or(Errno::EBADF)
    }

    /// A number of the kernel's for the socket layer's new `inner`, which is closed if there is none.
    pub(crate) fn adopt(&mut self, sockets: &mut Sockets<Real>, inner: i32) -> Result<i32, Errno> {
        // SAFETY: the path is a C string; the call touches nothing else of ours.
        let fd = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        let Some((word, bit)) = place(fd) else {
            let _ = sockets.close(inner);
            if fd >= 0 {
                close_real(fd);
            }
            return Err(Errno::EMFILE);
        };
        // Closed behind our back, in a program without the preloaded `close`.
        if let Some(stale) = self.inner.insert(fd, inner) {
            let _ = sockets.close(stale);
        }
        word.fetch_or(bit, Ordering::Release);
        Ok(fd)
    }

    /// Closes `fd`, here and in the kernel.
    pub(crate) fn close(&mut self, sockets: &mut Sockets<Real>, fd: i32) -> Result<(), Errno> {
        let inner = self.inner.remove(&fd).ok_or(Errno::EBADF)?;
        if let Some((word, bit)) = place(fd) {
            word.fetch_and(!bit, Ordering::Release);
        }
        let result = sockets.close(inner);
        close_real(fd);
        result
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // The numbers may be anybody's by now: they are forgotten, not closed.
        for (word, bit) in self.inner.keys().filter_map(|fd| place(*fd)) {
            word.fetch_and(!bit, Ordering::Release);
        }
    }
}

/// The kernel's `close`, whatever the symbol of that name is in this program; its result.
pub(crate) fn close_real(fd: i32) -> i32 {
    // SAFETY: the call takes one number and touches no memory. Who passes the number owns the descriptor, as with `close`.
    unsafe { libc::syscall(libc::SYS_close, fd) as i32 }
}
