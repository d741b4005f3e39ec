//! C's addresses, vectors and bytes, to and from values.

use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr;

use libc::{c_void, iovec, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use posix::{Errno, MOST};

/// A call's result in C: `-1` and `errno`, or the value.
pub(crate) fn answer(result: Result<i64, Errno>) -> i64 {
    result.unwrap_or_else(|error| {
        // SAFETY: the address is that of this thread's `errno`, valid as long as the thread lives.
        unsafe { *libc::__errno_location() = error.0 };
        -1
    })
}

/// The address at `address`; `None` is `AF_UNSPEC`.
///
/// # Safety
/// `address` is null or has `len` readable bytes.
pub(crate) unsafe fn read_address(address: *const sockaddr, len: socklen_t) -> Result<Option<SocketAddr>, Errno> {
    let len = len as usize;
    if address.is_null() || len < size_of::<libc::sa_family_t>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: there are at least the bytes of a family, by the check above and the caller's promise; unaligned is
    // allowed.
    let family = i32::from(unsafe { ptr::read_unaligned(address.cast::<libc::sa_family_t>()) });
    match family {
        libc::AF_UNSPEC => Ok(None),
        libc::AF_INET if len >= size_of::<sockaddr_in>() => {
            // SAFETY: there are that many bytes, and any bytes are a `sockaddr_in`.
            let v4 = unsafe { ptr::read_unaligned(address.cast::<sockaddr_in>()) };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 if len >= size_of::<sockaddr_in6>() => {
            // SAFETY: there are that many bytes, and any bytes are a `sockaddr_in6`.
            let v6 = unsafe { ptr::read_unaligned(address.cast::<sockaddr_in6>()) };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Ok(Some(SocketAddr::new(ip.into(), u16::from_be(v6.sin6_port))))
        }
        libc::AF_INET | libc::AF_INET6 => Err(Errno::EINVAL),
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

/// Writes `value` to `out`, as much of it as fits, and its whole length to `len`.
///
/// # Safety
/// Each is null or writable: `len`, and `*len` bytes at `out`.
pub(crate) unsafe fn write_address(value: Option<SocketAddr>, out: *mut sockaddr, len: *mut socklen_t) {
    let Some(value) = value else { return };
    if out.is_null() || len.is_null() {
        return;
    }
    let bytes = address_bytes(value);
    // SAFETY: the caller guarantees that `len` is writable and is the number of bytes at `out`; no more are written,
    // and a new vector does not overlap them.
    unsafe {
        let count = bytes.len().min(*len as usize);
        ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast::<u8>(), count);
        *len = bytes.len() as socklen_t;
    }
}

/// `struct sockaddr_in` or `struct sockaddr_in6`, byte by byte.
fn address_bytes(value: SocketAddr) -> Vec<u8> {
    let family = if value.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut bytes = (family as libc::sa_family_t).to_ne_bytes().to_vec();
    bytes.extend(value.port().to_be_bytes());
    match value.ip() {
        IpAddr::V4(ip) => {
            bytes.extend(ip.octets());
            bytes.resize(size_of::<sockaddr_in>(), 0);
        }
        IpAddr::V6(ip) => {
            bytes.extend([0; 4]);
            bytes.extend(ip.octets());
            bytes.resize(size_of::<sockaddr_in6>(), 0);
        }
    }
    bytes
}

/// The entries of a vector.
///
/// # Safety
/// `vector` is null or has `count` entries, each with `iov_len` bytes; they outlive the result.
pub(crate) unsafe fn entries<'a>(vector: *const iovec, count: usize) -> Result<&'a [iovec], Errno> {
    if count == 0 {
        return Ok(&[]);
    }
    if vector.is_null() {
        return Err(Errno::EFAULT);
    }
    if count > libc::UIO_MAXIOV as usize {
        return Err(Errno::EINVAL);
    }
    // SAFETY: not null, and the caller promises `count` entries that live long enough.
    let entries = unsafe { std::slice::from_raw_parts(vector, count) };
    match entries.iter().any(|entry| entry.iov_base.is_null() && entry.iov_len > 0) {
        true => Err(Errno::EFAULT),
        false => Ok(entries),
    }
}

/// Bytes in all entries together.
pub(crate) fn room(entries: &[iovec]) -> usize {
    entries.iter().map(|entry| entry.iov_len).sum()
}

/// Copies the entries' bytes, up to the limit of one call ([`MOST`]).
///
/// # Safety
/// Each entry has `iov_len` readable bytes.
pub(crate) unsafe fn gather(entries: &[iovec]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(room(entries).min(MOST));
    for entry in entries.iter().filter(|entry| entry.iov_len > 0) {
        let count = entry.iov_len.min(MOST - bytes.len());
        // SAFETY: the caller promises that many bytes; a null base was refused when the entries were read.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(entry.iov_base.cast::<u8>(), count) });
    }
    bytes
}

/// Copies `bytes` into the entries; they must fit.
///
/// # Safety
/// Each entry has `iov_len` writable bytes.
pub(crate) unsafe fn scatter(entries: &[iovec], mut bytes: &[u8]) {
    for entry in entries {
        let (now, rest) = bytes.split_at(bytes.len().min(entry.iov_len));
        // SAFETY: the caller promises that many writable bytes, which are C's and no part of `bytes`.
        unsafe { ptr::copy_nonoverlapping(now.as_ptr(), entry.iov_base.cast::<u8>(), now.len()) };
        bytes = rest;
    }
}

/// One entry for `len` bytes at `base`.
pub(crate) fn entry(base: *const c_void, len: usize) -> iovec {
    iovec { iov_base: base.cast_mut(), iov_len: len }
}
