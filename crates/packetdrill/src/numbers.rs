//! Numbers of descriptors. packetdrill closes the descriptors that a script left open with the kernel's `close`, so
//! each of ours is also one of the kernel, open on `/dev/null`.
//!
//! Our numbers are marked in a bit set beside the table, so that the preloaded `close` of the whole program needs no
//! lock for others.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use posix::{DescriptorNumbers, Errno};

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

/// Numbers allocated by the kernel, each held by an open descriptor.
#[derive(Default)]
pub(crate) struct KernelNumbers {
    taken: Mutex<BTreeSet<i32>>,
}

impl KernelNumbers {
    fn taken(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        // No thread can leave it in an inconsistent state.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel's `fd` is ours from now on.
    fn adopt(&self, fd: i32) -> Result<i32, Errno> {
        let Some((word, bit)) = place(fd) else {
            if fd >= 0 {
                close_real(fd);
            }
            return Err(Errno::EMFILE);
        };
        self.taken().insert(fd);
        word.fetch_or(bit, Ordering::Release);
        Ok(fd)
    }
}

/// A descriptor of the kernel's on `/dev/null`, or a negative number.
fn open_null() -> i32 {
    // SAFETY: the path is a C string; the call touches nothing else of ours.
    unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) }
}

impl DescriptorNumbers for KernelNumbers {
    fn take(&self, from: i32) -> Result<i32, Errno> {
        let null = open_null();
        if null < 0 || null >= from {
            return self.adopt(null);
        }
        // SAFETY: the call takes numbers only.
        let fd = unsafe { libc::fcntl(null, libc::F_DUPFD_CLOEXEC, from) };
        close_real(null);
        self.adopt(fd)
    }

    fn take_this(&self, fd: i32) -> Result<(), Errno> {
        let null = open_null();
        if null == fd {
            return self.adopt(fd).map(|_| ());
        }
        // SAFETY: the call takes numbers only. The program requested that any other descriptor with this number be
        // closed.
        let copy = unsafe { libc::dup3(null, fd, libc::O_CLOEXEC) };
        close_real(null);
        if copy == fd { self.adopt(fd).map(|_| ()) } else { Err(Errno::EBADF) }
    }

    fn give_back(&self, fd: i32) {
        self.taken().remove(&fd);
        if let Some((word, bit)) = place(fd) {
            word.fetch_and(!bit, Ordering::Release);
        }
        close_real(fd);
    }
}

impl Drop for KernelNumbers {
    fn drop(&mut self) {
        // The numbers may have been reused by now: they are forgotten, not closed.
        for (word, bit) in self.taken().iter().filter_map(|fd| place(*fd)) {
            word.fetch_and(!bit, Ordering::Release);
        }
    }
}

/// The kernel's `close`, whatever the symbol of that name is in this program; its result.
pub(crate) fn close_real(fd: i32) -> i32 {
    // SAFETY: the call takes one number and touches no memory. The caller owns the descriptor, as with `close`.
    unsafe { libc::syscall(libc::SYS_close, fd) as i32 }
}
