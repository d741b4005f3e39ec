//! Calls that open and close descriptors.

use libc::{c_int, sockaddr, socklen_t};
use posix::Errno;

use crate::abi::UserData;
use crate::calls::plug;
use crate::machine::Limit;
use crate::marshal::{answer, read_address, write_address};
use crate::plug::MachineHandle;

pub(crate) unsafe extern "C" fn socket(userdata: UserData, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let made = plug.now(move |sockets| sockets.socket(domain, kind, protocol));
    answer(made.map(i64::from)) as c_int
}

pub(crate) unsafe extern "C" fn bind(userdata: UserData, fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: `userdata` is the table's; the address is as `bind(2)` requires.
    let (plug, address) = unsafe { (plug(userdata), read_address(address, len)) };
    let bound = plug.now(move |sockets| sockets.bind(fd, address?.ok_or(Errno::EAFNOSUPPORT)?));
    answer(bound.map(|()| 0)) as c_int
}

pub(crate) unsafe extern "C" fn listen(userdata: UserData, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let result = plug.now(move |sockets| sockets.listen(fd, backlog));
    answer(result.map(|()| 0)) as c_int
}

pub(crate) unsafe extern "C" fn accept(
    userdata: UserData,
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let accepted = plug.call(Limit::Receiving(fd), move |sockets, expired| sockets.try_accept(fd, 0, expired));
    let accepted = accepted.map(|(child, peer)| {
        // SAFETY: both are as `accept(2)` requires.
        unsafe { write_address(Some(peer), address, len) };
        child
    });
    answer(accepted.map(i64::from)) as c_int
}

pub(crate) unsafe extern "C" fn connect(
    userdata: UserData,
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: `userdata` is the table's; the address is as `connect(2)` requires.
    let (plug, address) = unsafe { (plug(userdata), read_address(address, len)) };
    let connected = address.and_then(|address| {
        plug.call(Limit::Sending(fd), move |sockets, expired| sockets.try_connect(fd, address, expired))
    });
    answer(connected.map(|()| 0)) as c_int
}

/// `close` of one of ours, here and in the kernel.
pub(crate) fn close_ours(plug: &MachineHandle, fd: c_int) -> c_int {
    answer(plug.now(move |sockets| sockets.close_at_once(fd)).map(|()| 0)) as c_int
}

pub(crate) unsafe extern "C" fn close(userdata: UserData, fd: c_int) -> c_int {
    // SAFETY: `userdata` is the table's.
    close_ours(unsafe { plug(userdata) }, fd)
}

pub(crate) unsafe extern "C" fn shutdown(userdata: UserData, fd: c_int, how: c_int) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let result = plug.now(move |sockets| sockets.shutdown(fd, how));
    answer(result.map(|()| 0)) as c_int
}

pub(crate) unsafe extern "C" fn pipe(userdata: UserData, fds: *mut c_int) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let made = plug.now(|sockets| sockets.pipe(0));
    let result = made.map(|(from, to)| {
        // SAFETY: there is room for two descriptors, as `pipe(2)` requires.
        unsafe { fds.cast::<[c_int; 2]>().write([from, to]) };
        0
    });
    answer(result) as c_int
}
