//! The system calls of a packet socket, and the ring that the kernel writes received frames to (`packet(7)`, and
//! `Documentation/networking/packet_mmap.rst` of the kernel: version 2 of the ring).
//!
//! The ring is memory that this process and the kernel share: slots of equal length, each with a header that begins with
//! a status word. The kernel writes a slot while the word is `TP_STATUS_KERNEL`, and sets `TP_STATUS_USER` when it has
//! finished; from then on the slot is ours, until we set the word back.

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{check, ioctl, request};

/// Frames of one call of [`PacketPort::send`](crate::packet::PacketPort::send) at most.
pub const BATCH: usize = 64;
/// Bytes before the Ethernet header in a slot: the slot's header, the sender's address, and room to align the IP header.
const BEFORE: usize = 66;
/// Length of a block, the unit in which the kernel allocates the ring: a multiple of every page size.
const BLOCK: usize = 1 << 16;
/// Room for frames in flight, beyond the limit for ordinary sockets: those that wait in a device count for their socket.
const SEND_BUFFER: libc::c_int = 64 << 20;

/// A socket on one interface, with its receive ring.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    ring: NonNull<u8>,
    slot: usize,
    slots: usize,
    next: usize,
}

// SAFETY: the ring is memory of the process, which only this value points to; no thread-bound state belongs to it.
unsafe impl Send for PacketSocket {}

impl PacketSocket {
    /// Opens a socket on interface `name`, in the network namespace of the calling thread, for frames of `ethertype`. The
    /// ring holds at least `slots` frames, and of each frame the first `keep` bytes.
    pub fn open(name: &str, ethertype: u16, slots: usize, keep: usize) -> io::Result<PacketSocket> {
        // Protocol 0: nothing is received before the ring is there and the socket bound.
        // SAFETY: takes plain integers.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the descriptor is new and not used elsewhere.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let slot = (BEFORE + keep).next_power_of_two().clamp(128, BLOCK);
        let blocks = (slots * slot).div_ceil(BLOCK).max(1);
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        set(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1)?;
        // Without the right to exceed the limit the ordinary buffer remains.
        let _ = set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER);
        let ring = libc::tpacket_req {
            tp_block_size: BLOCK as libc::c_uint,
            tp_block_nr: blocks as libc::c_uint,
            tp_frame_size: slot as libc::c_uint,
            tp_frame_nr: (blocks * BLOCK / slot) as libc::c_uint,
        };
        // SAFETY: the option takes a `tpacket_req`, a live local.
        check(unsafe { set_raw(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, &ring) })?;
        let (length, access) = (blocks * BLOCK, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe { libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        let ring = NonNull::new(mapped.cast::<u8>()).filter(|_| mapped != libc::MAP_FAILED);
        let ring = ring.ok_or_else(io::Error::last_os_error)?;
        // From here on the mapping belongs to the socket, which unmaps it.
        let socket = PacketSocket { fd, ring, slot, slots: length / slot, next: 0 };
        socket.bind(name, ethertype)?;
        Ok(socket)
    }

    fn bind(&self, name: &str, ethertype: u16) -> io::Result<()> {
        let mut index = request(name);
        ioctl(self.fd.as_raw_fd(), libc::SIOCGIFINDEX as _, &mut index)?;
        // SAFETY: plain integers and arrays; all zero is a value of it.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as libc::c_ushort;
        address.sll_protocol = ethertype.to_be();
        // SAFETY: the request succeeded, so the kernel has filled in the index.
        address.sll_ifindex = unsafe { index.ifr_ifru.ifru_ifindex };
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address is a live local of the stated length.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), length) }).map(drop)
    }

    /// Sends the frames of `length` bytes each that `frames` consists of, at most [`BATCH`]. Returns how many the
    /// interface has taken; the frame after them, if there is one, it has dropped for want of room.
    pub fn send(&self, frames: &[u8], length: usize) -> io::Result<usize> {
        // SAFETY: plain integers and null pointers; all zero is a value of it.
        let mut parts: [libc::iovec; BATCH] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        let mut count = 0;
        for ((frame, part), message) in frames.chunks_exact(length).zip(&mut parts).zip(&mut messages) {
            *part = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: length };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        let (fd, flags) = (self.fd.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: `count` messages are filled in; each points to one live part, and that to borrowed memory of the stated
        // length, which is only read.
        let sent = check(unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), count, flags) });
        match sent {
            Ok(sent) => Ok(sent as usize),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOBUFS | libc::EAGAIN | libc::EINTR) => Ok(0),
                _ => Err(error),
            },
        }
    }

    /// Passes the next received frame to `look`, as far as it was kept, with its whole length. `None`: there is none.
    pub fn receive<R>(&mut self, look: impl FnOnce(&[u8], usize) -> R) -> Option<R> {
        // SAFETY: `next` is less than `slots`, so the slot lies in the mapping; slots are aligned to their length.
        let slot = unsafe { self.ring.add(self.next * self.slot) };
        let header = slot.cast::<libc::tpacket2_hdr>();
        // SAFETY: the status is the header's first word, aligned, and every access to it by this process is atomic.
        let status = unsafe { AtomicU32::from_ptr((&raw mut (*header.as_ptr()).tp_status).cast()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the slot is ours until the status is set, so the kernel does not write it.
        let (at, kept, length) = unsafe {
            let header = header.as_ptr();
            ((*header).tp_mac as usize, (*header).tp_snaplen as usize, (*header).tp_len as usize)
        };
        let kept = kept.min(self.slot.saturating_sub(at));
        // SAFETY: the bytes lie in the slot, which is ours and which nothing writes while the reference lives.
        let bytes = unsafe { std::slice::from_raw_parts(slot.add(at.min(self.slot)).as_ptr(), kept) };
        let result = look(bytes, length);
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = if self.next + 1 == self.slots { 0 } else { self.next + 1 };
        Some(result)
    }

    /// Frames that found no free slot since the last call.
    pub fn overflow(&self) -> io::Result<u32> {
        // SAFETY: plain integers; all zero is a value of it.
        let mut counts: libc::tpacket_stats = unsafe { zeroed() };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        let (fd, to) = (self.fd.as_raw_fd(), std::ptr::from_mut(&mut counts).cast());
        // SAFETY: the kernel writes at most `length` bytes to a live local of that size.
        check(unsafe { libc::getsockopt(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, to, &mut length) })?;
        Ok(counts.tp_drops)
    }
}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `open` with this length, and no reference into it is left.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), self.slots * self.slot) };
    }
}

fn set(fd: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: &libc::c_int) -> io::Result<()> {
    // SAFETY: the options used with this function take an int.
    check(unsafe { set_raw(fd, level, option, value) }).map(drop)
}

/// # Safety
/// The option takes a value of type `T`.
unsafe fn set_raw<T>(fd: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: &T) -> libc::c_int {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is borrowed and of the stated length; the caller vouches for its type.
    unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length) }
}

/// Moves the calling thread to a new network namespace.
pub fn unshare_network() -> io::Result<()> {
    // SAFETY: takes a plain integer. Descriptors that are open stay in their namespaces.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(drop)
}
