//! The system calls of a TAP device: every `unsafe` of this crate is here, and in `sys/packet.rs`.
//!
//! All functions take safe arguments and return `io::Result`. Requests whose argument is an address borrow a value of
//! exactly the type that the kernel reads or writes for that request (`linux/if_tun.h`, `netdevice(7)`).

pub mod packet;

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use wire::ethernet::MacAddr;

/// Flags of `TUNSETIFF`.
pub const IFF_TUN: u16 = 0x0001;
/// Frames have Ethernet headers.
pub const IFF_TAP: u16 = 0x0002;
/// No packet information before each frame.
pub const IFF_NO_PI: u16 = 0x1000;
/// A virtio header before each frame.
pub const IFF_VNET_HDR: u16 = 0x4000;
/// Several queues.
pub const IFF_MULTI_QUEUE: u16 = 0x0100;

/// Bits of `TUNSETOFFLOAD`: partial checksums, TCP segmentation for IPv4 and IPv6, UDP segmentation.
pub const TUN_F_CSUM: u32 = 0x01;
/// TCP segmentation over IPv4.
pub const TUN_F_TSO4: u32 = 0x02;
/// TCP segmentation over IPv6.
pub const TUN_F_TSO6: u32 = 0x04;
/// UDP segmentation over IPv4 (Linux 6.2).
pub const TUN_F_USO4: u32 = 0x20;
/// UDP segmentation over IPv6 (Linux 6.2).
pub const TUN_F_USO6: u32 = 0x40;

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNSETOFFLOAD: libc::c_ulong = 0x4004_54d0;
const TUNGETIFF: libc::c_ulong = 0x8004_54d2;
const TUNSETVNETHDRSZ: libc::c_ulong = 0x4004_54d8;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// An interface request for `name`, which must be shorter than 16 bytes.
fn request(name: &str) -> libc::ifreq {
    // SAFETY: `ifreq` is plain integers, arrays and unions of those; all zero is a value of it.
    let mut request: libc::ifreq = unsafe { zeroed() };
    let room = libc::IFNAMSIZ - 1;
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(room)) {
        *to = from as libc::c_char;
    }
    request
}

fn name_of(request: &libc::ifreq) -> String {
    let bytes = request.ifr_name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8);
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

/// `ioctl` with a request structure.
fn ioctl(fd: RawFd, number: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every number used with this function takes a pointer to an `ifreq`, which the borrow keeps alive and
    // writable during the call.
    check(unsafe { libc::ioctl(fd, number as _, std::ptr::from_mut(request)) }).map(drop)
}

/// Opens `/dev/net/tun` without blocking.
pub fn open_tun() -> io::Result<OwnedFd> {
    // SAFETY: the path is a NUL-terminated literal.
    let fd = check(unsafe { libc::open(c"/dev/net/tun".as_ptr(), libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC) })?;
    // SAFETY: the descriptor is new and not used elsewhere.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `TUNSETIFF`: attaches the descriptor to interface `name`, creating it if needed; returns the interface's name.
pub fn attach(fd: BorrowedFd<'_>, name: &str, flags: u16) -> io::Result<String> {
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    ioctl(fd.as_raw_fd(), TUNSETIFF, &mut request)?;
    Ok(name_of(&request))
}

/// `TUNGETIFF`: name and flags of the interface that the descriptor is attached to.
pub fn attached_to(fd: BorrowedFd<'_>) -> io::Result<(String, u16)> {
    let mut request = request("");
    ioctl(fd.as_raw_fd(), TUNGETIFF, &mut request)?;
    // SAFETY: the request succeeded, so the kernel has filled in the flags; all bit patterns are values of the field.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok((name_of(&request), flags as u16))
}

/// `TUNSETVNETHDRSZ`: length of the virtio header, device-wide.
pub fn set_header_len(fd: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    let len = len as libc::c_int;
    // SAFETY: the request reads one int through the pointer, which is to a live local.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETVNETHDRSZ as _, std::ptr::from_ref(&len)) }).map(drop)
}

/// `TUNSETOFFLOAD`: the work that the kernel may leave to us, device-wide.
pub fn set_offloads(fd: BorrowedFd<'_>, mask: u32) -> io::Result<()> {
    // SAFETY: the request takes its argument by value.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), TUNSETOFFLOAD as _, libc::c_ulong::from(mask)) }).map(drop)
}

/// Makes reads and writes return instead of waiting.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: F_GETFL and F_SETFL take and give plain integers.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}

/// A socket for interface requests to the kernel.
pub struct Netdevice(OwnedFd);

impl Netdevice {
    /// Opens the socket, in the network namespace of the calling thread.
    pub fn open() -> io::Result<Netdevice> {
        // SAFETY: takes plain integers.
        let fd = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the descriptor is new and not used elsewhere.
        Ok(Netdevice(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The interface's hardware address.
    pub fn mac(&self, name: &str) -> io::Result<MacAddr> {
        let mut request = request(name);
        ioctl(self.0.as_raw_fd(), libc::SIOCGIFHWADDR as _, &mut request)?;
        // SAFETY: the request succeeded, so the kernel has filled in the address.
        let data = unsafe { request.ifr_ifru.ifru_hwaddr }.sa_data;
        Ok(MacAddr([0, 1, 2, 3, 4, 5].map(|i: usize| data[i] as u8)))
    }

    /// The interface's MTU in bytes.
    pub fn mtu(&self, name: &str) -> io::Result<usize> {
        let mut request = request(name);
        ioctl(self.0.as_raw_fd(), libc::SIOCGIFMTU as _, &mut request)?;
        // SAFETY: the request succeeded, so the kernel has filled in the MTU.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        Ok(usize::try_from(mtu).unwrap_or(0))
    }

    /// Sets the MTU.
    pub fn set_mtu(&self, name: &str, mtu: usize) -> io::Result<()> {
        let mut request = request(name);
        request.ifr_ifru.ifru_mtu = libc::c_int::try_from(mtu).unwrap_or(libc::c_int::MAX);
        ioctl(self.0.as_raw_fd(), libc::SIOCSIFMTU as _, &mut request)
    }

    /// Whether the interface is up.
    pub fn is_up(&self, name: &str) -> io::Result<bool> {
        Ok(self.flags(name)? & libc::IFF_UP as libc::c_short != 0)
    }

    /// Brings the interface up.
    pub fn bring_up(&self, name: &str) -> io::Result<()> {
        let flags = self.flags(name)?;
        let mut request = request(name);
        request.ifr_ifru.ifru_flags = flags | libc::IFF_UP as libc::c_short;
        ioctl(self.0.as_raw_fd(), libc::SIOCSIFFLAGS as _, &mut request)
    }

    fn flags(&self, name: &str) -> io::Result<libc::c_short> {
        let mut request = request(name);
        ioctl(self.0.as_raw_fd(), libc::SIOCGIFFLAGS as _, &mut request)?;
        // SAFETY: the request succeeded, so the kernel has filled in the flags.
        Ok(unsafe { request.ifr_ifru.ifru_flags })
    }
}

/// Longest answer about one interface: the kernel's own messages are shorter than a page of 8 KiB (`NLMSG_GOODSIZE`).
const LONGEST_ANSWER: usize = 32 << 10;

/// Sends one `rtnetlink` request and returns the kernel's answer, in the network namespace of the calling thread.
pub fn ask_rtnetlink(request: &[u8]) -> io::Result<Vec<u8>> {
    // SAFETY: takes plain integers.
    let fd =
        check(unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) })?;
    // SAFETY: the descriptor is new and not used elsewhere.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: reads `request.len()` bytes of borrowed memory. An unconnected socket of this family sends to the kernel.
    check_len(unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) })?;
    let mut answer = vec![0; LONGEST_ANSWER];
    // The kernel answers within `send`: there is nothing to wait for.
    // SAFETY: writes at most `answer.len()` bytes into exclusively borrowed memory.
    let read = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), libc::MSG_DONTWAIT) };
    answer.truncate(check_len(read)?);
    Ok(answer)
}

/// Reads one frame behind its header. Returns the number of bytes, both together.
pub fn read_frame(fd: BorrowedFd<'_>, to: &mut [u8]) -> io::Result<usize> {
    // SAFETY: writes at most `to.len()` bytes into exclusively borrowed memory.
    check_len(unsafe { libc::read(fd.as_raw_fd(), to.as_mut_ptr().cast(), to.len()) })
}

/// Writes one frame with its header before it.
pub fn write_frame(fd: BorrowedFd<'_>, from: &[u8]) -> io::Result<usize> {
    // SAFETY: reads `from.len()` bytes of borrowed memory.
    check_len(unsafe { libc::write(fd.as_raw_fd(), from.as_ptr().cast(), from.len()) })
}

/// Writes one frame in two pieces: its offload header, and the rest.
pub fn write_pieces(fd: BorrowedFd<'_>, header: &[u8], frame: &[u8]) -> io::Result<usize> {
    let parts = [
        libc::iovec { iov_base: header.as_ptr().cast_mut().cast(), iov_len: header.len() },
        libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() },
    ];
    // SAFETY: both parts point to borrowed memory of the stated length, and writev only reads it.
    check_len(unsafe { libc::writev(fd.as_raw_fd(), parts.as_ptr(), 2) })
}

/// Makes a counter that can be polled.
pub fn event_fd() -> io::Result<OwnedFd> {
    // SAFETY: takes plain integers.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
    // SAFETY: the descriptor is new and not used elsewhere.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Increments an event counter. A counter at its limit needs no increment.
pub fn raise(fd: BorrowedFd<'_>) {
    let one = 1u64;
    // SAFETY: writes eight bytes from a live local.
    let _ = unsafe { libc::write(fd.as_raw_fd(), std::ptr::from_ref(&one).cast(), 8) };
}

/// Resets an event counter to zero; true if it was above.
pub fn lower(fd: BorrowedFd<'_>) -> bool {
    let mut count = 0u64;
    // SAFETY: reads eight bytes into a live local.
    unsafe { libc::read(fd.as_raw_fd(), std::ptr::from_mut(&mut count).cast(), 8) == 8 }
}

/// The result of [`poll`] for the two descriptors.
#[derive(Clone, Copy, Debug, Default)]
pub struct PollResult {
    /// The first can be read.
    pub readable: bool,
    /// The first can be written.
    pub writable: bool,
    /// The first has an error.
    pub error: bool,
    /// The second can be read.
    pub event: bool,
}

/// Waits until `fd` has one of `events` (`POLLIN`, `POLLOUT`), `event` was incremented, the time is up, or a signal
/// arrives. `None` waits for ever.
pub fn poll(
    fd: BorrowedFd<'_>,
    events: libc::c_short,
    event: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> PollResult {
    let none = -1;
    let mut fds = [
        libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 },
        libc::pollfd { fd: event.map_or(none, |event| event.as_raw_fd()), events: libc::POLLIN, revents: 0 },
    ];
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the array is live and of the stated length; the time is null or a live local; the mask is null.
    let found = unsafe { libc::ppoll(fds.as_mut_ptr(), 2, timeout, std::ptr::null()) };
    if found <= 0 {
        return PollResult::default();
    }
    let has = |index: usize, bits: libc::c_short| fds[index].revents & bits != 0;
    PollResult {
        readable: has(0, libc::POLLIN),
        writable: has(0, libc::POLLOUT),
        error: has(0, libc::POLLERR | libc::POLLHUP | libc::POLLNVAL),
        event: has(1, libc::POLLIN),
    }
}
