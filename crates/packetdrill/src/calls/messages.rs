//! Calls that receive and send.

use std::mem::size_of;
use std::ptr;
use std::task::Poll;

use drill::posix::{Errno, Transfer};
use libc::{c_int, c_uint, c_void, iovec, loff_t, msghdr, sockaddr, socklen_t};

use crate::abi::UserData;
use crate::calls::plug;
use crate::machine::Sockets;
use crate::marshal::{answer, entries, entry, gather, read_address, room, scatter, write_address};
use crate::plug::Plug;

/// `TCP_CM_INQ`, which is `TCP_INQ`; not in every libc.
const TCP_CM_INQ: c_int = 36;

/// What a receive gave beside its octets.
struct Received {
    count: usize,
    peer: Option<std::net::SocketAddr>,
    /// What `TCP_CM_INQ` is to say.
    waiting: Option<i32>,
}

/// # Safety
/// Each entry has as many writable octets as it says.
unsafe fn receive(plug: &Plug, fd: c_int, into: &[iovec], flags: c_int) -> Result<Received, Errno> {
    let max = room(into);
    let received = plug.call(None, move |sockets, _| {
        sockets.about(fd, |posix, inner| {
            if flags & libc::MSG_ERRQUEUE != 0 {
                // No socket here ever queues an error.
                return Poll::Ready(Err(Errno::EAGAIN));
            }
            posix.receive(inner, max, flags).map(|received| {
                let (octets, peer) = received?;
                Ok((octets, peer, posix.waiting(inner)))
            })
        })
    });
    let (octets, peer, waiting) = received?;
    // SAFETY: the caller's promise; no more than `max` octets were received.
    unsafe { scatter(into, &octets) };
    Ok(Received { count: octets.len(), peer, waiting })
}

/// # Safety
/// Each entry has as many readable octets as it says.
unsafe fn transmit(
    plug: &Plug,
    fd: c_int,
    from: &[iovec],
    flags: c_int,
    to: Option<std::net::SocketAddr>,
) -> Result<i64, Errno> {
    // SAFETY: the caller's promise.
    let octets = unsafe { gather(from) };
    send_octets(plug, fd, octets, flags, to)
}

/// Sends through one of our descriptors.
pub(crate) fn send_octets(
    plug: &Plug,
    fd: c_int,
    octets: Vec<u8>,
    flags: c_int,
    to: Option<std::net::SocketAddr>,
) -> Result<i64, Errno> {
    let mut transfer = Transfer::new(octets);
    let sent = plug
        .call(None, move |sockets, _| sockets.about(fd, |posix, inner| posix.send(inner, &mut transfer, flags, to)));
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
    // SAFETY: `userdata` is the table's; buffer and address are as `recvfrom(2)` asks for, and a buffer that is null is
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
    // SAFETY: `userdata` is the table's; the vector is as `readv(2)` asks for.
    let result = unsafe {
        let count = usize::try_from(count).map_err(|_| Errno::EINVAL);
        count.and_then(|count| receive(plug(userdata), fd, entries(vector, count)?, 0))
    };
    answer(result.map(|received| received.count as i64)) as isize
}

pub(crate) unsafe extern "C" fn recvmsg(userdata: UserData, fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: `userdata` is the table's; the message is as `recvmsg(2)` asks for, and nobody else uses it meanwhile.
    let result = unsafe {
        let message = &mut *message;
        entries(message.msg_iov, message.msg_iovlen).and_then(|into| {
            let received = receive(plug(userdata), fd, into, flags)?;
            match received.peer {
                Some(_) => write_address(received.peer, message.msg_name.cast(), &mut message.msg_namelen),
                None => message.msg_namelen = 0,
            }
            message.msg_flags = 0;
            write_control(message, received.waiting);
            Ok(received.count as i64)
        })
    };
    answer(result) as isize
}

/// Writes the one control message that there is, if there is something to say and room for it.
///
/// # Safety
/// `message.msg_control` has `message.msg_controllen` writable octets, aligned for control messages.
unsafe fn write_control(message: &mut msghdr, waiting: Option<i32>) {
    let room = std::mem::replace(&mut message.msg_controllen, 0) as usize;
    let Some(waiting) = waiting else { return };
    // SAFETY: a computation with a number.
    let (space, len) = unsafe {
        let size = size_of::<c_int>() as c_uint;
        (libc::CMSG_SPACE(size) as usize, libc::CMSG_LEN(size) as usize)
    };
    if message.msg_control.is_null() || room < space {
        message.msg_flags |= libc::MSG_CTRUNC;
        return;
    }
    message.msg_controllen = space as _;
    // SAFETY: there is room for one message with an `int`, aligned for its header, so the first header is not null; its
    // data may have any alignment.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        (*header).cmsg_len = len as _;
        (*header).cmsg_level = libc::IPPROTO_TCP;
        (*header).cmsg_type = TCP_CM_INQ;
        libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(waiting);
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
    // SAFETY: `userdata` is the table's; buffer and address are as `sendto(2)` asks for.
    let result = unsafe {
        entries(vector.as_ptr(), 1).and_then(|from| {
            let to = if address.is_null() { None } else { read_address(address, address_len)? };
            transmit(plug(userdata), fd, from, flags, to)
        })
    };
    answer(result) as isize
}

pub(crate) unsafe extern "C" fn writev(userdata: UserData, fd: c_int, vector: *const iovec, count: c_int) -> isize {
    // SAFETY: `userdata` is the table's; the vector is as `writev(2)` asks for.
    let result = unsafe {
        let count = usize::try_from(count).map_err(|_| Errno::EINVAL);
        count.and_then(|count| transmit(plug(userdata), fd, entries(vector, count)?, 0, None))
    };
    answer(result) as isize
}

pub(crate) unsafe extern "C" fn sendmsg(userdata: UserData, fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    // SAFETY: `userdata` is the table's; the message is as `sendmsg(2)` asks for.
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
        // Sockets and pipes, which is all there is, have no place to begin at.
        return answer(Err(Errno::ESPIPE)) as isize;
    }
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let mut carried = None;
    let result = plug.call(None, move |Sockets { posix, files }, _| {
        let ends = files.inner(from).and_then(|from| Ok((from, files.inner(to)?)));
        match ends {
            Ok((from, to)) => posix.splice(from, to, count, &mut carried),
            Err(error) => Poll::Ready(Err(error)),
        }
    });
    answer(result.map(|count| count as i64)) as isize
}
