//! Symbols of the C library that this one replaces when it is preloaded (`LD_PRELOAD`), for calls that packetdrill does
//! not route through the table: `getsockopt` for the blocks `%{ }%`, `sendfile`, and the `close` of descriptors that a
//! script left open.
//!
//! A descriptor that is not ours is passed to the kernel by system call, without a lock and without the machine: every
//! thread of the program, of this library, and of every program that it starts uses these functions.

use std::sync::Arc;

use libc::{c_int, c_void, off_t, socklen_t};
use posix::Errno;

use crate::calls::life::close_ours;
use crate::calls::messages::send_bytes;
use crate::calls::options::get_option;
use crate::marshal::answer;
use crate::numbers::{close_real, is_ours};
use crate::plug::MachineHandle;

/// Most bytes of a file that one `sendfile` reads.
const MOST: usize = 1 << 24;

/// The machine, if the descriptor is one of ours.
fn machine_of(fd: c_int) -> Option<Arc<MachineHandle>> {
    // Without a lock, so that a thread that holds one may close a file.
    if is_ours(fd) { MachineHandle::current() } else { None }
}

/// `close(2)`.
///
/// # Safety
/// As the system call's: the descriptor is no longer used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    match machine_of(fd) {
        Some(plug) => close_ours(&plug, fd),
        None => close_real(fd),
    }
}

/// `getsockopt(2)`.
///
/// # Safety
/// As the system call's: `value` has `*len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    match machine_of(fd) {
        // SAFETY: the caller's promise is the same.
        Some(plug) => unsafe { get_option(&plug, fd, level, name, value, len) },
        // SAFETY: the kernel checks its arguments, and writes at most `*len` bytes.
        None => unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value, len) as c_int },
    }
}

/// `sendfile(2)`: from a kernel file into one of our sockets.
///
/// # Safety
/// As the system call's: `offset` is null or readable and writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: usize) -> isize {
    let Some(plug) = machine_of(to) else {
        // SAFETY: the kernel checks its arguments.
        return unsafe { libc::syscall(libc::SYS_sendfile, to, from, offset, count) as isize };
    };
    // SAFETY: the caller's promise is the same.
    answer(unsafe { send_file(&plug, to, from, offset, count) }) as isize
}

/// # Safety
/// `offset` is null or readable and writable.
unsafe fn send_file(
    plug: &MachineHandle,
    to: c_int,
    from: c_int,
    offset: *mut off_t,
    count: usize,
) -> Result<i64, Errno> {
    let mut bytes = vec![0_u8; count.min(MOST)];
    // SAFETY: not null where it is read; a relative seek by 0 only returns the position.
    let start = unsafe { if offset.is_null() { libc::lseek(from, 0, libc::SEEK_CUR) } else { *offset } };
    // SAFETY: there is room for all requested bytes.
    let got = unsafe { libc::pread(from, bytes.as_mut_ptr().cast(), bytes.len(), start) };
    bytes.truncate(usize::try_from(got).map_err(|_| Errno(last_error()))?);
    let sent = send_bytes(plug, to, bytes, 0, None)?;
    // SAFETY: not null where it is written; the other branch only sets the position of the caller's file.
    unsafe {
        match offset.is_null() {
            true => drop(libc::lseek(from, start + sent, libc::SEEK_SET)),
            false => *offset = start + sent,
        }
    }
    Ok(sent)
}

fn last_error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}
