//! Calls that begin and end what a descriptor is.

use drill::posix::Errno;
use libc::{c_int, sockaddr, socklen_t};

use crate::abi::UserData;
use crate::calls::plug;
use crate::marshal::{answer, read_address, write_address};
use crate::plug::Plug;

pub(crate) unsafe extern "C" fn socket(userdata: UserData, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let made = plug.now(move |sockets| {
        let inner = sockets.posix.socket(domain, kind, protocol)?;
        sockets.adopt(inner)
    });
    answer(made.map(i64::from)) as c_int
}

pub(crate) unsafe extern "C" fn bind(userdata: UserData, fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: `userdata` is the table's; the address is as `bind(2)` asks for.
    let (plug, address) = unsafe { (plug(userdata), read_address(address, len)) };
    let bound = plug.now(move |sockets| {
        let address = address?.ok_or(Errno::EAFNOSUPPORT)?;
        sockets.posix.bind(sockets.files.inner(fd)?, address)
    });
    answer(bound.map(|()| 0)) as c_int
}

pub(crate) unsafe extern "C" fn listen(userdata: UserData, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let result = plug.now(move |sockets| sockets.posix.listen(sockets.files.inner(fd)?, backlog));
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
    let accepted = plug.call(None, move |sockets, _| {
        let accepted = sockets.about(fd, |posix, inner| posix.accept(inner, 0));
        accepted.map(|accepted| accepted.and_then(|(child, peer)| Ok((sockets.adopt(child)?, peer))))
    });
    let accepted = accepted.map(|(child, peer)| {
        // SAFETY: both are as `accept(2)` asks for.
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
    // SAFETY: `userdata` is the table's; the address is as `connect(2)` asks for.
    let (plug, address) = unsafe { (plug(userdata), read_address(address, len)) };
    let connected = address.and_then(|address| {
        plug.call(None, move |sockets, _| sockets.about(fd, |posix, inner| posix.connect(inner, address)))
    });
    answer(connected.map(|()| 0)) as c_int
}

/// `close` of one of ours, here and in the kernel.
pub(crate) fn close_ours(plug: &Plug, fd: c_int) -> c_int {
    answer(plug.now(move |sockets| sockets.files.close(&mut sockets.posix, fd)).map(|()| 0)) as c_int
}

pub(crate) unsafe extern "C" fn close(userdata: UserData, fd: c_int) -> c_int {
    // SAFETY: `userdata` is the table's.
    close_ours(unsafe { plug(userdata) }, fd)
}

pub(crate) unsafe extern "C" fn shutdown(userdata: UserData, fd: c_int, how: c_int) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let result = plug.now(move |sockets| sockets.posix.shutdown(sockets.files.inner(fd)?, how));
    answer(result.map(|()| 0)) as c_int
}

pub(crate) unsafe extern "C" fn pipe(userdata: UserData, fds: *mut c_int) -> c_int {
    // SAFETY: `userdata` is the table's.
    let plug = unsafe { plug(userdata) };
    let made = plug.now(move |sockets| {
        let (from, to) = sockets.posix.pipe();
        let from = sockets.adopt(from)?;
        Ok([from, sockets.adopt(to)?])
    });
    let result = made.map(|ends| {
        // SAFETY: there is room for two descriptors, as `pipe(2)` asks for.
        unsafe { fds.cast::<[c_int; 2]>().write(ends) };
        0
    });
    answer(result) as c_int
}
