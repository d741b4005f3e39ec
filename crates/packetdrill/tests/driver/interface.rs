//! The table as in packetdrill's header, declared independently, and the library loaded as packetdrill loads it.

use std::ffi::{CString, c_char, c_int, c_long, c_longlong, c_uint, c_ulong, c_void};
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::packet::{self, Segment};

type Ptr = *mut c_void;
type Len = *mut libc::socklen_t;

/// Functions that no test calls are words: only their presence and position matter.
#[repr(C)]
pub struct Interface {
    userdata: Ptr,
    free: unsafe extern "C" fn(Ptr),
    socket: unsafe extern "C" fn(Ptr, c_int, c_int, c_int) -> c_int,
    bind: unsafe extern "C" fn(Ptr, c_int, *const c_void, libc::socklen_t) -> c_int,
    listen: unsafe extern "C" fn(Ptr, c_int, c_int) -> c_int,
    accept: unsafe extern "C" fn(Ptr, c_int, Ptr, Len) -> c_int,
    connect: unsafe extern "C" fn(Ptr, c_int, *const c_void, libc::socklen_t) -> c_int,
    read: unsafe extern "C" fn(Ptr, c_int, Ptr, usize) -> isize,
    readv: usize,
    recv: unsafe extern "C" fn(Ptr, c_int, Ptr, usize, c_int) -> isize,
    recvfrom: usize,
    recvmsg: unsafe extern "C" fn(Ptr, c_int, *mut libc::msghdr, c_int) -> isize,
    write: unsafe extern "C" fn(Ptr, c_int, *const c_void, usize) -> isize,
    writev: unsafe extern "C" fn(Ptr, c_int, *const libc::iovec, c_int) -> isize,
    send: usize,
    sendto: usize,
    sendmsg: usize,
    fcntl: unsafe extern "C" fn(Ptr, c_int, c_int, ...) -> c_int,
    ioctl: unsafe extern "C" fn(Ptr, c_int, c_ulong, ...) -> c_int,
    close: unsafe extern "C" fn(Ptr, c_int) -> c_int,
    shutdown: usize,
    getsockopt: unsafe extern "C" fn(Ptr, c_int, c_int, c_int, Ptr, Len) -> c_int,
    setsockopt: unsafe extern "C" fn(Ptr, c_int, c_int, c_int, *const c_void, libc::socklen_t) -> c_int,
    poll: unsafe extern "C" fn(Ptr, *mut libc::pollfd, libc::nfds_t, c_int) -> c_int,
    netdev_send: unsafe extern "C" fn(Ptr, *const c_void, usize) -> c_int,
    netdev_receive: unsafe extern "C" fn(Ptr, Ptr, *mut usize, *mut c_longlong) -> c_int,
    usleep: unsafe extern "C" fn(Ptr, libc::useconds_t) -> c_int,
    gettimeofday: unsafe extern "C" fn(Ptr, *mut libc::timeval, Ptr) -> c_int,
    epoll_create: unsafe extern "C" fn(Ptr, c_int) -> c_int,
    epoll_ctl: unsafe extern "C" fn(Ptr, c_int, c_int, c_int, *mut libc::epoll_event) -> c_int,
    epoll_wait: unsafe extern "C" fn(Ptr, c_int, *mut libc::epoll_event, c_int, c_int) -> c_int,
    pipe: unsafe extern "C" fn(Ptr, *mut c_int) -> c_int,
    splice: unsafe extern "C" fn(Ptr, c_int, *mut i64, c_int, *mut i64, usize, c_uint) -> isize,
}

/// One script's run.
pub struct Run {
    interface: Interface,
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

// SAFETY: packetdrill calls the functions of the table from two threads, and so do the tests.
unsafe impl Send for Run {}
// SAFETY: as above.
unsafe impl Sync for Run {}

/// A control message: level, type and data.
pub type Control = (c_int, c_int, Vec<u8>);

/// A call's value, or its error.
pub type Done = Result<i64, i32>;

fn done(value: i64) -> Done {
    if value >= 0 { Ok(value) } else { Err(std::io::Error::last_os_error().raw_os_error().expect("errno")) }
}

/// The library that Cargo made for this test.
pub fn library() -> PathBuf {
    let mut path = std::env::current_exe().expect("the test's own path");
    path.set_file_name("libheddle_packetdrill.so");
    assert!(path.exists(), "{} was not built", path.display());
    path
}

fn sockaddr(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::new();
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes.extend((libc::AF_INET as u16).to_ne_bytes());
            bytes.extend(address.port().to_be_bytes());
            bytes.extend(ip.octets());
            bytes.resize(16, 0);
        }
        IpAddr::V6(ip) => {
            bytes.extend((libc::AF_INET6 as u16).to_ne_bytes());
            bytes.extend(address.port().to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(ip.octets());
            bytes.resize(28, 0);
        }
    }
    bytes
}

impl Run {
    /// Loads the library and begins, between the addresses that scripts use.
    pub fn begin(flags: &str) -> Arc<Run> {
        let path = CString::new(library().as_os_str().as_bytes()).expect("a path");
        let mode = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE | libc::RTLD_DEEPBIND;
        // SAFETY: both are C strings, and loading the library runs no code of its own.
        let symbol = unsafe {
            let handle = libc::dlopen(path.as_ptr(), mode);
            assert!(!handle.is_null(), "dlopen of {path:?}");
            libc::dlsym(handle, c"packetdrill_interface_init".as_ptr())
        };
        assert!(!symbol.is_null());
        type Init = unsafe extern "C" fn(*const c_char, *mut Interface);
        // SAFETY: the symbol is a function of this type.
        let init = unsafe { mem::transmute::<Ptr, Init>(symbol) };
        let c_flags = CString::new(flags).expect("flags");
        let mut interface = MaybeUninit::<Interface>::zeroed();
        // SAFETY: the flags are a C string; the table has room, and every word of it is written.
        let interface = unsafe {
            init(c_flags.as_ptr(), interface.as_mut_ptr());
            let words: &[usize; size_of::<Interface>() / 8] = &*interface.as_ptr().cast();
            assert!(words.iter().all(|word| *word != 0), "an entry of the table is empty");
            interface.assume_init()
        };
        let v6 = flags.contains("local=fd3d");
        let (local, remote) = if v6 {
            ("[fd3d:a0b:17d6::1]:8080", "[fd3d:fa7b:d17d::1]:51000")
        } else {
            ("192.168.0.1:8080", "192.0.2.1:51000")
        };
        let run =
            Run { interface, local: local.parse().expect("an address"), remote: remote.parse().expect("an address") };
        Arc::new(run)
    }

    pub fn socket(&self) -> i32 {
        let domain = if self.local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let Interface { socket, userdata, .. } = self.interface;
        // SAFETY: the table's function with the table's pointer.
        done(unsafe { socket(userdata, domain, libc::SOCK_STREAM, libc::IPPROTO_TCP) }.into()).expect("socket") as i32
    }

    pub fn bind(&self, fd: i32) -> Done {
        let address = sockaddr(self.local);
        // SAFETY: as above; the address has the given length.
        done(unsafe {
            (self.interface.bind)(self.interface.userdata, fd, address.as_ptr().cast(), address.len() as u32).into()
        })
    }

    pub fn listen(&self, fd: i32) -> Done {
        // SAFETY: as above.
        done(unsafe { (self.interface.listen)(self.interface.userdata, fd, 5) }.into())
    }

    /// The new descriptor, and the length of the peer's address.
    pub fn accept(&self, fd: i32) -> Result<(i32, Vec<u8>), i32> {
        let mut address = vec![0_u8; 28];
        let mut len = address.len() as u32;
        // SAFETY: as above; the buffer has the given length.
        let fd = done(unsafe {
            (self.interface.accept)(self.interface.userdata, fd, address.as_mut_ptr().cast(), &mut len).into()
        })?;
        address.truncate(len as usize);
        Ok((fd as i32, address))
    }

    pub fn peer_bytes(&self) -> Vec<u8> {
        sockaddr(self.remote)
    }

    pub fn connect(&self, fd: i32) -> Done {
        let address = sockaddr(self.remote);
        // SAFETY: as above.
        done(unsafe {
            (self.interface.connect)(self.interface.userdata, fd, address.as_ptr().cast(), address.len() as u32).into()
        })
    }

    pub fn read(&self, fd: i32, max: usize) -> Result<Vec<u8>, i32> {
        let mut bytes = vec![0; max];
        // SAFETY: as above.
        let count = unsafe { (self.interface.read)(self.interface.userdata, fd, bytes.as_mut_ptr().cast(), max) };
        bytes.truncate(done(count as i64)? as usize);
        Ok(bytes)
    }

    pub fn recv(&self, fd: i32, max: usize, flags: c_int) -> Result<Vec<u8>, i32> {
        let mut bytes = vec![0; max];
        let Interface { recv, userdata, .. } = self.interface;
        // SAFETY: as above.
        let count = unsafe { recv(userdata, fd, bytes.as_mut_ptr().cast(), max, flags) };
        bytes.truncate(done(count as i64)? as usize);
        Ok(bytes)
    }

    /// `recvmsg` into two entries; the bytes and the one control message.
    pub fn receive_message(&self, fd: i32, rooms: [usize; 2]) -> Result<(Vec<u8>, Option<i32>), i32> {
        let mut bytes = [vec![0_u8; rooms[0]], vec![0_u8; rooms[1]]];
        let mut vector =
            bytes.each_mut().map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
        let mut control = [0_u64; 8];
        // SAFETY: an empty message header is all zeros.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = vector.as_mut_ptr();
        message.msg_iovlen = 2;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: as above; the message's buffers have the given lengths.
        let count = unsafe { (self.interface.recvmsg)(self.interface.userdata, fd, &mut message, 0) };
        let count = done(count as i64)? as usize;
        // SAFETY: the header is in `control`, if there is one, followed by its data.
        let waiting = unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            (!header.is_null()).then(|| libc::CMSG_DATA(header).cast::<c_int>().read_unaligned())
        };
        let mut bytes = bytes.concat();
        bytes.truncate(count);
        Ok((bytes, waiting))
    }

    /// `recvmsg` of the error queue: `msg_flags`, and the control messages.
    pub fn receive_report(&self, fd: i32) -> Result<(c_int, Vec<Control>), i32> {
        let mut control = [0_u64; 32];
        // SAFETY: an empty message header is all zeros.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let Interface { recvmsg, userdata, .. } = self.interface;
        // SAFETY: as above; the buffer has the given length.
        done(unsafe { recvmsg(userdata, fd, &mut message, libc::MSG_ERRQUEUE) } as i64)?;
        let mut controls = Vec::new();
        // SAFETY: the headers lie in `control`, each followed by its data.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(&message);
            while !header.is_null() {
                let len = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = std::slice::from_raw_parts(libc::CMSG_DATA(header), len).to_vec();
                controls.push(((*header).cmsg_level, (*header).cmsg_type, data));
                header = libc::CMSG_NXTHDR(&message, header);
            }
        }
        Ok((message.msg_flags, controls))
    }

    pub fn write(&self, fd: i32, bytes: &[u8]) -> Done {
        let Interface { write, userdata, .. } = self.interface;
        // SAFETY: as above.
        done(unsafe { write(userdata, fd, bytes.as_ptr().cast(), bytes.len()) } as i64)
    }

    pub fn write_vector(&self, fd: i32, parts: &[&[u8]]) -> Done {
        let vector: Vec<libc::iovec> = parts
            .iter()
            .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() })
            .collect();
        // SAFETY: as above.
        done(unsafe { (self.interface.writev)(self.interface.userdata, fd, vector.as_ptr(), vector.len() as i32) }
            as i64)
    }

    pub fn fcntl(&self, fd: i32, command: i32, argument: c_long) -> Done {
        // SAFETY: as above.
        done(unsafe { (self.interface.fcntl)(self.interface.userdata, fd, command, argument) }.into())
    }

    pub fn ioctl(&self, fd: i32, request: c_ulong) -> Result<i32, i32> {
        let mut number: c_int = -1;
        let Interface { ioctl, userdata, .. } = self.interface;
        // SAFETY: as above; every request that the tests make stores an `int`.
        done(unsafe { ioctl(userdata, fd, request, &raw mut number) }.into())?;
        Ok(number)
    }

    pub fn close(&self, fd: i32) -> Done {
        // SAFETY: as above.
        done(unsafe { (self.interface.close)(self.interface.userdata, fd) }.into())
    }

    pub fn set_option(&self, fd: i32, level: i32, name: i32, value: i32) -> Done {
        let Interface { setsockopt, userdata, .. } = self.interface;
        // SAFETY: as above; the value is four bytes long.
        done(unsafe { setsockopt(userdata, fd, level, name, (&raw const value).cast(), 4) }.into())
    }

    pub fn option(&self, fd: i32, level: i32, name: i32, room: usize) -> Result<Vec<u8>, i32> {
        let mut value = vec![0_u8; room];
        let mut len = room as u32;
        let Interface { getsockopt, userdata, .. } = self.interface;
        // SAFETY: as above; the buffer has the given length.
        done(unsafe { getsockopt(userdata, fd, level, name, value.as_mut_ptr().cast(), &mut len) }.into())?;
        value.truncate(len as usize);
        Ok(value)
    }

    pub fn poll(&self, fd: i32, events: i16, timeout: i32) -> Result<(i64, i16), i32> {
        let mut entry = libc::pollfd { fd, events, revents: 0 };
        // SAFETY: as above; there is one entry.
        let ready = done(unsafe { (self.interface.poll)(self.interface.userdata, &mut entry, 1, timeout) }.into())?;
        Ok((ready, entry.revents))
    }

    pub fn epoll(&self, fd: i32, events: u32, data: u64) -> i32 {
        let mut event = libc::epoll_event { events, u64: data };
        let Interface { userdata, epoll_create, epoll_ctl, .. } = self.interface;
        // SAFETY: as above.
        let epoll = done(unsafe { epoll_create(userdata, 1) }.into()).expect("epoll_create") as i32;
        // SAFETY: as above.
        done(unsafe { epoll_ctl(userdata, epoll, libc::EPOLL_CTL_ADD, fd, &mut event) }.into()).expect("epoll_ctl");
        epoll
    }

    pub fn epoll_wait(&self, epoll: i32, timeout: i32) -> Vec<(u32, u64)> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 4];
        // SAFETY: as above; there is room for four.
        let count =
            unsafe { (self.interface.epoll_wait)(self.interface.userdata, epoll, events.as_mut_ptr(), 4, timeout) };
        let count = done(count.into()).expect("epoll_wait") as usize;
        events[..count].iter().map(|event| (event.events, event.u64)).collect()
    }

    /// A pipe: the end to read from, the end to write to.
    pub fn pipe(&self) -> [i32; 2] {
        let mut fds = [-1; 2];
        // SAFETY: as above; there is room for two.
        done(unsafe { (self.interface.pipe)(self.interface.userdata, fds.as_mut_ptr()) }.into()).expect("pipe");
        fds
    }

    pub fn splice(&self, from: i32, to: i32, count: usize) -> Done {
        let (splice, none) = (self.interface.splice, std::ptr::null_mut());
        // SAFETY: as above.
        done(unsafe { splice(self.interface.userdata, from, none, to, none, count, 0) } as i64)
    }

    pub fn usleep(&self, time: Duration) {
        // SAFETY: as above.
        unsafe { (self.interface.usleep)(self.interface.userdata, time.as_micros() as u32) };
    }

    /// The clock, in microseconds.
    pub fn now(&self) -> i64 {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: as above.
        unsafe { (self.interface.gettimeofday)(self.interface.userdata, &mut time, std::ptr::null_mut()) };
        time.tv_sec * 1_000_000 + time.tv_usec
    }

    /// A segment from the peer.
    pub fn inject(&self, flags: u8, seq: u32, ack: u32, data: &[u8]) {
        let options = if flags & packet::SYN != 0 { vec![2, 4, 0x05, 0xb4, 4, 2, 1, 1] } else { Vec::new() };
        let ports = (self.remote.port(), self.local.port());
        self.inject_segment(&Segment { ports, flags, seq, ack, options, data: data.to_vec() });
    }

    pub fn inject_segment(&self, segment: &Segment) {
        let bytes = packet::packet(self.remote.ip(), self.local.ip(), segment);
        // SAFETY: as above.
        let sent = unsafe { (self.interface.netdev_send)(self.interface.userdata, bytes.as_ptr().cast(), bytes.len()) };
        assert_eq!(sent, 0);
    }

    /// The next segment and its time; `None` when the library has given up.
    pub fn receive(&self) -> Option<(i64, Segment)> {
        let mut bytes = vec![0_u8; 4096];
        let (mut count, mut time) = (bytes.len(), 0);
        // SAFETY: as above; the buffer has the given length.
        let result = unsafe {
            let buffer = bytes.as_mut_ptr().cast();
            (self.interface.netdev_receive)(self.interface.userdata, buffer, &mut count, &mut time)
        };
        assert_eq!(result, 0);
        (count > 0).then(|| (time, packet::read(&bytes[..count])))
    }

    pub fn expect(&self) -> (i64, Segment) {
        self.receive().expect("a segment")
    }

    /// The script is over.
    pub fn end(self: Arc<Run>) {
        assert_eq!(Arc::strong_count(&self), 1, "a thread still uses the table");
        // SAFETY: nothing of the table is used any more.
        unsafe { (self.interface.free)(self.interface.userdata) };
    }
}
