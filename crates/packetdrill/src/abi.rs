//! The binary interface: the table of functions in packetdrill's order, and the one symbol that it looks for.
//!
//! In C two of the functions are variadic. On the supported platforms (x86-64 and 64-bit ARM under Linux) a C compiler
//! passes the first variadic argument, a word, like a declared one; if none was passed, an undefined word is read, and
//! used only for commands that have an argument.

use std::ffi::CStr;
use std::process;
use std::sync::Arc;

use libc::{
    c_char, c_int, c_longlong, c_uint, c_ulong, c_void, epoll_event, iovec, loff_t, msghdr, nfds_t, pollfd, sockaddr,
    socklen_t, timeval, useconds_t,
};

use crate::calls::{clock, life, messages, options, poll};
use crate::plug::MachineHandle;

/// The first argument of every function: the machine.
pub type UserData = *mut c_void;

/// The table, in packetdrill's order; every entry is filled. Those named after a system call have its arguments and
/// results: a value, or -1 and `errno`.
#[repr(C)]
pub struct PacketdrillInterface {
    /// The machine: first argument of every function.
    pub userdata: UserData,
    /// Ends the machine; no function is called with it afterwards.
    pub free: unsafe extern "C" fn(UserData),
    /// `socket(2)`: the descriptor is allocated from the kernel, so that nothing else gets its number.
    pub socket: unsafe extern "C" fn(UserData, c_int, c_int, c_int) -> c_int,
    /// `bind(2)`.
    pub bind: unsafe extern "C" fn(UserData, c_int, *const sockaddr, socklen_t) -> c_int,
    /// `listen(2)`.
    pub listen: unsafe extern "C" fn(UserData, c_int, c_int) -> c_int,
    /// `accept(2)`; it may block.
    pub accept: unsafe extern "C" fn(UserData, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    /// `connect(2)`; it may block.
    pub connect: unsafe extern "C" fn(UserData, c_int, *const sockaddr, socklen_t) -> c_int,
    /// `read(2)`; it may block.
    pub read: unsafe extern "C" fn(UserData, c_int, *mut c_void, usize) -> isize,
    /// `readv(2)`; it may block.
    pub readv: unsafe extern "C" fn(UserData, c_int, *const iovec, c_int) -> isize,
    /// `recv(2)`; it may block.
    pub recv: unsafe extern "C" fn(UserData, c_int, *mut c_void, usize, c_int) -> isize,
    /// `recvfrom(2)`; it may block.
    pub recvfrom:
        unsafe extern "C" fn(UserData, c_int, *mut c_void, usize, c_int, *mut sockaddr, *mut socklen_t) -> isize,
    /// `recvmsg(2)`, the error queue included; it may block.
    pub recvmsg: unsafe extern "C" fn(UserData, c_int, *mut msghdr, c_int) -> isize,
    /// `write(2)`; it may block.
    pub write: unsafe extern "C" fn(UserData, c_int, *const c_void, usize) -> isize,
    /// `writev(2)`; it may block.
    pub writev: unsafe extern "C" fn(UserData, c_int, *const iovec, c_int) -> isize,
    /// `send(2)`; it may block.
    pub send: unsafe extern "C" fn(UserData, c_int, *const c_void, usize, c_int) -> isize,
    /// `sendto(2)`, also to open a connection with data; it may block.
    pub sendto: unsafe extern "C" fn(UserData, c_int, *const c_void, usize, c_int, *const sockaddr, socklen_t) -> isize,
    /// `sendmsg(2)`; it may block.
    pub sendmsg: unsafe extern "C" fn(UserData, c_int, *const msghdr, c_int) -> isize,
    /// `fcntl(2)` with the argument as a word, used only for commands that have one.
    pub fcntl: unsafe extern "C" fn(UserData, c_int, c_int, c_ulong) -> c_int,
    /// `ioctl(2)` with a pointer to one number.
    pub ioctl: unsafe extern "C" fn(UserData, c_int, c_ulong, *mut c_int) -> c_int,
    /// `close(2)`.
    pub close: unsafe extern "C" fn(UserData, c_int) -> c_int,
    /// `shutdown(2)`.
    pub shutdown: unsafe extern "C" fn(UserData, c_int, c_int) -> c_int,
    /// `getsockopt(2)`.
    pub getsockopt: unsafe extern "C" fn(UserData, c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    /// `setsockopt(2)`.
    pub setsockopt: unsafe extern "C" fn(UserData, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    /// `poll(2)`, with its time-out in virtual time; it may block.
    pub poll: unsafe extern "C" fn(UserData, *mut pollfd, nfds_t, c_int) -> c_int,
    /// One IP packet of so many bytes arrives at the stack; 0, or -1.
    pub netdev_send: unsafe extern "C" fn(UserData, *const c_void, usize) -> c_int,
    /// The next IP packet that the stack sent: its bytes, their number (room before, length after), and its time in
    /// microseconds of [`PacketdrillInterface::gettimeofday`]. Returns 0; the length is 0 if no packet is sent in 200
    /// virtual seconds.
    pub netdev_receive: unsafe extern "C" fn(UserData, *mut c_void, *mut usize, *mut c_longlong) -> c_int,
    /// `usleep(3)` in virtual time.
    pub usleep: unsafe extern "C" fn(UserData, useconds_t) -> c_int,
    /// `gettimeofday(2)` of the virtual clock, which advances by a microsecond.
    pub gettimeofday: unsafe extern "C" fn(UserData, *mut timeval, *mut c_void) -> c_int,
    /// `epoll_create(2)`.
    pub epoll_create: unsafe extern "C" fn(UserData, c_int) -> c_int,
    /// `epoll_ctl(2)`.
    pub epoll_ctl: unsafe extern "C" fn(UserData, c_int, c_int, c_int, *mut epoll_event) -> c_int,
    /// `epoll_wait(2)`, with its time-out in virtual time; it may block.
    pub epoll_wait: unsafe extern "C" fn(UserData, c_int, *mut epoll_event, c_int, c_int) -> c_int,
    /// `pipe(2)`.
    pub pipe: unsafe extern "C" fn(UserData, *mut c_int) -> c_int,
    /// `splice(2)`.
    pub splice: unsafe extern "C" fn(UserData, c_int, *mut loff_t, c_int, *mut loff_t, usize, c_uint) -> isize,
}

/// Makes a machine configured by `flags` (`--so_flags`, may be null), and fills `interface`.
///
/// The calling thread is the one that runs the script. Flags that cannot be read end the process, like a wrong option
/// of packetdrill: the interface cannot return an error.
///
/// # Safety
/// `flags` is null or a C string; `interface` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, interface: *mut PacketdrillInterface) {
    let flags = match flags.is_null() {
        true => Default::default(),
        // SAFETY: the caller promises a C string if it is not null.
        false => unsafe { CStr::from_ptr(flags) }.to_string_lossy(),
    };
    let plug = MachineHandle::new(&flags).unwrap_or_else(|error| {
        eprintln!("heddle: --so_flags={flags}: {error}");
        process::exit(1)
    });
    let table = table(Arc::into_raw(plug).cast_mut().cast());
    // SAFETY: the caller guarantees room for the table; the previous contents need no drop.
    unsafe { interface.write(table) };
}

fn table(userdata: UserData) -> PacketdrillInterface {
    PacketdrillInterface {
        userdata,
        free,
        socket: life::socket,
        bind: life::bind,
        listen: life::listen,
        accept: life::accept,
        connect: life::connect,
        read: messages::read,
        readv: messages::readv,
        recv: messages::recv,
        recvfrom: messages::recvfrom,
        recvmsg: messages::recvmsg,
        write: messages::write,
        writev: messages::writev,
        send: messages::send,
        sendto: messages::sendto,
        sendmsg: messages::sendmsg,
        fcntl: options::fcntl,
        ioctl: options::ioctl,
        close: life::close,
        shutdown: life::shutdown,
        getsockopt: options::getsockopt,
        setsockopt: options::setsockopt,
        poll: poll::poll,
        netdev_send: clock::netdev_send,
        netdev_receive: clock::netdev_receive,
        usleep: clock::usleep,
        gettimeofday: clock::gettimeofday,
        epoll_create: poll::epoll_create,
        epoll_ctl: poll::epoll_ctl,
        epoll_wait: poll::epoll_wait,
        pipe: life::pipe,
        splice: messages::splice,
    }
}

/// The script is over: no other function is called with this machine any more.
unsafe extern "C" fn free(userdata: UserData) {
    // SAFETY: `userdata` came from `Arc::into_raw` and is released once.
    let plug = unsafe { Arc::from_raw(userdata.cast_const().cast::<MachineHandle>()) };
    plug.forget();
}
