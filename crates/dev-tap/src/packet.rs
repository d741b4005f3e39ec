//! A packet socket: the network side of an interface, as a tester uses it.
//!
//! [`PacketPort`] sends frames by an interface of the kernel and receives those that arrive at it, past the kernel's own
//! protocols. At a [`Tap`](crate::Tap) it is the opposite of the descriptor: a frame that is sent here is read there, and
//! a frame that is written there is received here. It is no [`dev::Device`]: it keeps only the beginning of a received frame,
//! and a batch is sent by one system call, from one piece of memory. Received frames are taken from memory shared with
//! the kernel, without a system call.
//!
//! Frames pass the queueing discipline of the interface by (`PACKET_QDISC_BYPASS`), and are not seen by other packet
//! sockets. An interface that has no room drops a frame at once, and says so.

use std::io;

pub use crate::sys::packet::BATCH;
use crate::sys::packet::PacketSocket;

/// How to open a packet socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketOptions {
    /// The EtherType of the frames that are received.
    pub ethertype: u16,
    /// Received frames that wait to be taken, at least; a few more fit.
    pub ring: usize,
    /// How many bytes of a received frame are kept, at least: 62 to 65 000.
    pub keep: usize,
}

/// An open packet socket. One thread at a time.
#[derive(Debug)]
pub struct PacketPort {
    name: String,
    socket: PacketSocket,
}

impl PacketPort {
    /// Opens a socket at interface `name` of the calling thread's network namespace.
    ///
    /// # Errors
    /// The caller has no `CAP_NET_RAW`, or there is no such interface, or no memory for the ring. The text names the
    /// interface.
    pub fn open(name: &str, options: PacketOptions) -> io::Result<PacketPort> {
        let PacketOptions { ethertype, ring, keep } = options;
        match PacketSocket::open(name, ethertype, ring, keep) {
            Ok(socket) => Ok(PacketPort { name: name.to_owned(), socket }),
            Err(error) => Err(named(name, "opening a packet socket", &error)),
        }
    }

    /// Sends frames, all of `length` bytes, that lie in `frames` one behind the other; of more than [`BATCH`] the first
    /// ones. Returns how many the interface has taken. If that is not all, the next frame has been dropped for want of
    /// room, and those behind it have not been tried.
    ///
    /// # Errors
    /// The interface is down or has vanished, or a frame is longer than its MTU allows.
    pub fn send(&mut self, frames: &[u8], length: usize) -> io::Result<usize> {
        self.socket.send(frames, length).map_err(|error| named(&self.name, "sending", &error))
    }

    /// Passes the oldest received frame to `look`: the bytes that were kept, and the length of the whole frame. `None`:
    /// no frame is waiting.
    pub fn receive<R>(&mut self, look: impl FnOnce(&[u8], usize) -> R) -> Option<R> {
        self.socket.receive(look)
    }

    /// Frames that arrived since the last call and were dropped, because the ring was full.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn overflow(&mut self) -> io::Result<u32> {
        self.socket.overflow().map_err(|error| named(&self.name, "reading its counters", &error))
    }
}

fn named(name: &str, doing: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("interface {name}: {doing} failed ({error})"))
}

/// Moves the calling thread, and the threads and programs that it starts from now on, to a new network namespace: no
/// interface of the machine is seen there, and all that is made there vanishes with its last thread and descriptor.
///
/// # Errors
/// The process may not (`CAP_SYS_ADMIN`); the text has the remedy.
pub fn enter_new_namespace() -> io::Result<()> {
    crate::sys::packet::unshare_network().map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "a network namespace cannot be made without permission: run as root, or put `unshare -rn` before the command",
        ),
        _ => io::Error::new(error.kind(), format!("a network namespace cannot be made ({error})")),
    })
}
