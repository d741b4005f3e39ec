//! Calls that receive and send.

use std::mem::size_of;
use std::ptr;

use libc::{c_int, c_uint, c_void, iovec, loff_t, msghdr, sockaddr, socklen_t};
use posix::{Errno, ErrorQueueEntry, Transfer};

use crate::abi::UserData;
use crate::calls::plug;
use crate::machine::Limit;
use crate::marshal::{answer, entries, entry, gather, read_address, room, scatter, write_address};
use crate::plug::MachineHandle;

/// `TCP_CM_INQ`, which is `TCP_INQ`; not in every libc.
const TCP_CM_INQ: c_int = 36;

/// A control message: level, type and data.
type Control = (c_int, c_int, Vec<u8>);

/// The result of a receive, with its bytes.
#[derive(Default)]
struct Received {
    count: usize,
    peer: Option<std::net::SocketAddr>,
    /// `msg_flags`.
    flags: c_int,
    controls: Vec<Control>,
}

/// Origins of error-queue entries, and kinds of timestamps (`linux/errqueue.h`).
const ORIGIN_TIMESTAMPING: u8 = 4;
const ORIGIN_ZEROCOPY: u8 = 5;
const ZEROCOPY_COPIED: u8 = 1;

/// `struct sock_extended_err`, and an offender without an address.
fn extended_error(v6: bool, errno: u32, (origin, code): (u8, u8), (info, data): (u32, u32)) -> Control {
    let mut bytes = errno.to_ne_bytes().to_vec();
    bytes.extend([origin, 0, code, 0]);
    bytes.extend(info.to_ne_bytes());
    bytes.extend(data.to_ne_bytes());
    let (level, kind) =
        if v6 { (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) } else { (libc::IPPROTO_IP, libc::IP_RECVERR) };
    bytes.extend(vec![0; if v6 { size_of::<libc::sockaddr_in6>() } else { size_of::<libc::sockaddr_in>() }]);
    (level, kind, bytes)
}

/// The result of `recvmsg` for an entry of the error queue.
fn reported(report: ErrorQueueEntry, v6: bool) -> Received {
    match report {
        ErrorQueueEntry::ZeroCopy { first, last } => {
            let error = extended_error(v6, 0, (ORIGIN_ZEROCOPY, ZEROCOPY_COPIED), (first, last));
            Received { flags: libc::MSG_ERRQUEUE, controls: vec![error], ..Received::default() }
        }
        ErrorQueueEntry::Stamp { what, at, byte, alone } => {
            let nanos = at.as_nanos();
            let mut stamps = ((nanos / 1_000_000_000) as i64).to_ne_bytes().to_vec();
            stamps.extend(((nanos % 1_000_000_000) as i64).to_ne_bytes());
            // The device's timestamps, in two forms: there are none.
            stamps.extend([0; 32]);
            let error = extended_error(v6, libc::ENOMSG as u32, (ORIGIN_TIMESTAMPING, 0), (what as u32, byte));
            let flags = libc::MSG_ERRQUEUE | if alone { 0 } else { libc::MSG_TRUNC };
            let controls = vec![(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, stamps), error];
            Received { flags, controls, ..Received::default() }
        }
    }
}

/// # Safety
/// Each entry has `iov_len` writable bytes.
unsafe fn receive(plug: &MachineHandle, fd: c_int, into: &[iovec], flags: c_int) -> Result<Received, Errno> {
    let max = room(into);
    if flags & libc::MSG_ERRQUEUE != 0 {
        return plug.now(move |sockets| {
            let v6 = sockets.is_v6(fd);
            sockets.receive_report(fd).map(|report| reported(report, v6))
        });
    }
    let received =
        plug.call(Limit::Receiving(fd), move |sockets, expired| sockets.try_receive(fd, max, flags, expired))?;
    // SAFETY: the caller's promise; no more than `max` bytes were received.
    unsafe { scatter(into, &received.data) };
    let posix::ReceivedMessage { count, peer, flags, waiting, .. } = received;
    let waiting = waiting.map(|bytes| (libc::IPPROTO_TCP, TCP_CM_INQ, bytes.to_ne_bytes().to_vec()));
    Ok(Received { count, peer, flags, controls: waiting.into_iter().collect() })
}

/// # Safety
/// Each entry has `iov_len` readable bytes.
unsafe fn transmit(
    plug: &MachineHandle,
    fd: c_int,
    from: &[iovec],
    flags: c_int,
    to: Option<std::net::SocketAddr>,
) -> Result<i64, Errno> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { gather(from) };
    send_bytes(plug, fd, bytes, flags, to)
}

/// Sends through one of our descriptors.
pub(crate) fn send_bytes(
    plug: &MachineHandle,
    fd: c_int,
    bytes: Vec<u8>,
    flags: c_int,
    to: Option<std::net::SocketAddr>,
) -> Result<i64, Errno> {
    let mut transfer = Transfer::new(bytes);
    let sent =
        plug.call(Limit::Sending(fd), move |sockets, expired| sockets.try_send(fd, &mut transfer, flags, to, expired));
    sent.map(|count| count as i64)
}

pub(crate) unsafe extern "C" fn read(userdata: UserData, fd: c_int, buffer: *mut c_void, len: usize) -> isize {
    // SAFETY: a `recvfrom` without flags and address is a `read`.
    unsafe { recvfrom(userdata, fd, buffer, len, 0, ptr::null_mut(), ptr::null_mut()) }
}

pub(crate) unsafe extern "C" fn recv(
    userdata: UserData,
    fd: c_int,
    buffer: *mut c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: a `recvfrom` without address is a `recv`.
    unsafe { recvfrom(userdata, fd, buffer, len, flags, ptr::null_mut(), ptr::null_mut()) }
}

pub(crate) unsafe extern "C" fn recvfrom(
    userdata: UserData,
    fd: c_int,
    buffer: *mut c_void,
    len: usize,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> isize {
    let vector = [entry(buffer, len)];
    // SAFETY: `userdata` is the table's; buffer and address are as `recvfrom(2)` requires, and a buffer that is null is
    // refused as an entry.
    let result = unsafe {
        entries(vector.as_ptr(), 1).and_then(|into| {
            let received = receive(plug(userdata), fd, into, flags)?;
            write_address(received.peer, address, address_len);
            Ok(received.count as i64)
        })
    };
    answer(result) as isize
}

pub(crate) unsafe extern "C" fn readv(userdata: UserData, fd: c_int, vector: *const iovec, count: c_int) -> isize {
    // SAFETY: `userdata` is the table's; the vector is as `readv(2)` requires.
    let result = unsafe {
        let count = usize::try_from(count).map_err(|_| Errno::EINVAL);
        count.and_then(|count| receive(plug(userdata), fd, entries(vector, count)?, 0))
    };
    answer(result.map(|received| received.count as i64)) as isize
}

pub(crate) unsafe extern "C" fn recvmsg(userdata: UserData, fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: `userdata` is the table's; the message is as `recvmsg(2)` requires, and it is not used elsewhere
    // meanwhile.
    let result = unsafe {
        let message = &mut *message;
        entries(message.msg_iov, message.msg_iovlen).and_then(|into| {
            let received = receive(plug(userdata), fd, into, flags)?;
            match received.peer {
                Some(_) => write_address(received.peer, message.msg_name.cast(), &mut message.msg_namelen),
                None => message.msg_namelen = 0,
            }
            message.msg_flags = received.flags;
            write_controls(message, &received.controls);
            Ok(received.count as i64)
        })
    };
    answer(result) as isize
}

/// Writes control messages, if there are any and room for all.
///
/// # Safety
/// `message.msg_control` has `message.msg_controllen` writable bytes, aligned for control messages.
unsafe fn write_controls(message: &mut msghdr, controls: &[Control]) {
    let room = std::mem::replace(&mut message.msg_controllen, 0) as usize;
    if controls.is_empty() {
        return;
    }
    // SAFETY: a computation with a number.
    let space = |data: &[u8]| unsafe { libc::CMSG_SPACE(data.len() as c_uint) as usize };
    let total: usize = controls.iter().map(|(_, _, data)| space(data)).sum();
    if message.msg_control.is_null() || room < total {
        message.msg_flags |= libc::MSG_CTRUNC;
        return;
    }
    message.msg_controllen = total as _;
    // SAFETY: there is room for all of them, zeroed first so that no old length remains, and aligned for the headers,
    // so neither the first header nor any that has a successor is null; data may have any alignment.
    unsafe {
        message.msg_control.cast::<u8>().write_bytes(0, total);
        let mut header = libc::CMSG_FIRSTHDR(message);
        for (level, kind, data) in controls {
            if header.is_null() {
                return;
            }
            (*header).cmsg_len = libc::CMSG_LEN(data.len() as c_uint) as _;
            (*header).cmsg_level = *level;
            (*header).cmsg_type = *kind;
            ptr::copy_nonoverlapping(data.as_ptr(), libc::CMSG_DATA(header), data.len());
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

pub(crate) unsafe extern "C" fn write(userdata: UserData, fd: c_int, buffer: *const c_void, len: usize) -> isize {
    // SAFETY: a `sendto` without flags and address is a `write`.
    unsafe { sendto(userdata, fd, buffer, len, 0, ptr::null(), 0) }
}

pub(crate) unsafe extern "C" fn send(
    userdata: UserData,
    fd: c_int,
    buffer: *const c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: a `sendto` without address is a `send`.
    unsafe { sendto(userdata, fd, buffer, len, flags, ptr::null(), 0) }
}

pub(crate) unsafe extern "C" fn sendto(
    userdata: UserData,
    fd: c_int,
    buffer: *const c_void,
    len: usize,
    flags: c_int,
    address: *const sockaddr,
    address_len: socklen_t,
) -> isize {
    let vector = [entry(buffer, len)];
    // SAFETY: `userdata` is the table's; buffer and address are as `sendto(2)` requires.
    let result = unsafe {
        entries(vector.as_ptr(), 1).and_then(|from| {
            let to = if address.is_null() { None } else { read_address(address, address_len)? };
            transmit(plug(userdata), fd, from, flags, to)
        })
    };
    answer(result) as isize
}

pub(crate) unsafe extern "C" fn writev(userdata: UserData, fd: c_int, vector: *const iovec, count: c_int) -> isize {
    // SAFETY: `userdata` is the table's; the vector is as `writev(2)` requires.
    let result = unsafe {
        let count = usize::try_from(count).map_err(|_| Errno::EINVAL);
        count.and_then(|count| transmit(plug(userdata), fd, entries(vector, count)?, 0, None))
    };
    answer(result) as isize
}

pub(crate) unsafe extern "C" fn sendmsg(userdata: UserData, fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    // SAFETY: `userdata` is the table's; the message is as `sendmsg(2)` requires.
    let result = unsafe {
        let message = &*message;
        entries(message.msg_iov, message.msg_iovlen).and_then(|from| {
            let name: *const sockaddr = message.msg_name.cast_const().cast();
            let to = if name.is_null() { None } else { read_address(name, message.msg_namelen)? };
            transmit(plug(userdata), fd, from, flags, to)
        })
    };
    answer(result) as isize
}

pub(crate) unsafe extern "C" fn splice(
    userdata: UserData,
    from: c_int,
    from_offset: *mut loff_t,
    to: c_int,
    to_offset: *mut loff_t,
    count: usize,
    _flags: c_uint,
) -> isize {
    if !from_offset.is_null() || !to_offset.is_null() {
        // Sockets and pipes are the only descriptors, and have no offsets.
        return answer(Err(Errno::ESPIPE)) as isize;
    }
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let mut carried = None;
    let result = plug.call(Limit::None, move |sockets, _| sockets.try_splice(from, to, count, &mut carried));
    answer(result.map(|count| count as i64)) as isize
}
