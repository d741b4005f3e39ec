//! A Linux TAP or TUN device with several queues and offload headers.
//!
//! [`Tap`] opens (or creates) an interface of the kernel's network stack and acts as the station at the other end of
//! its link: frames that the kernel sends are received here, frames transmitted here arrive in the kernel. Each queue
//! pair is one file descriptor of `/dev/net/tun`; one read or write moves one frame, or with offloads one super-segment
//! of up to 64 KiB.
//!
//! A TUN interface ([`TapOptions::framing`]) carries bare IP packets: there is no link header and no neighbour.
//! Everything else is the same.
//!
//! [`packet`] is the other side of an interface, for testers.
//!
//! # Queues
//!
//! The kernel chooses the queue of a frame by flow: it sends a flow's frames to the queue on which it last received
//! from that flow, so replies arrive on the queue of the transmitting thread.
//!
//! A second process could attach queues of its own, and each process would lose the frames that the kernel sends to the
//! other's. So an interface that already has an open queue is refused. The kernel counts the queues, so no lock remains
//! when a process crashes. The count is read before the queues are attached, for a clear error, and again afterwards:
//! of two processes that open an interface at the same moment at most one succeeds.
//!
//! # Offloads
//!
//! With [`Offloads::All`] frames from the kernel have incomplete checksums (marked `Partial`: they were never on a
//! wire) and may be super-segments, and the kernel accepts both. The offload mask belongs to the interface, not to the
//! descriptor, so it is set at every opening, to nothing if no offload is wanted: a persistent interface may keep the
//! settings of an earlier user.
//!
//! # What may never happen
//!
//! A queue blocks only in [`wait`](dev::RxQueue::wait). An interface that vanishes is noticed by the next read, write
//! or wait, and reported by [`gone`](dev::RxQueue::gone); an interface that is merely down is not gone.

mod error;
mod link_info;
pub mod packet;
mod queue;
mod sys;
mod vnet;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use dev::{Capabilities, Device, Framing, QueuePair};
use observe::Counters;
use wire::ethernet::MacAddr;

pub use crate::error::TapError;

use crate::queue::TapShared;
use crate::sys::Netdevice;

/// The most queues of one TAP device in the kernel (`MAX_TAP_QUEUES`).
const MAX_QUEUES: usize = 256;
/// Bits that change a frame's length on the way: TCP segmentation.
const TSO: u32 = sys::TUN_F_TSO4 | sys::TUN_F_TSO6;
/// UDP segmentation, which kernels before 6.2 do not know.
const USO: u32 = sys::TUN_F_USO4 | sys::TUN_F_USO6;

/// The work left to the other side of the interface, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offloads {
    /// Nothing: whole frames with complete checksums.
    None,
    /// Checksums.
    Checksum,
    /// Checksums and segmentation.
    #[default]
    All,
}

/// How to open a TAP device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapOptions {
    /// Queue pairs, 1 to 256.
    pub queues: usize,
    /// The work left to the other side.
    pub offloads: Offloads,
    /// MTU to give the interface, in bytes; `None` leaves it as it is (1500 for a new one).
    pub mtu: Option<usize>,
    /// Frames begin with an Ethernet header, which makes the interface a TAP interface, or with the IP header: TUN. The
    /// kernel has no such interface for FDDI.
    pub framing: Framing,
    /// Address of this end of the link, for a TAP interface; `None` derives one from the interface's. It must not be
    /// the interface's own.
    pub mac: Option<MacAddr>,
    /// Bring the interface up if it is down.
    pub bring_up: bool,
}

impl Default for TapOptions {
    fn default() -> TapOptions {
        TapOptions {
            queues: 1,
            offloads: Offloads::All,
            mtu: None,
            framing: Framing::Ethernet,
            mac: None,
            bring_up: true,
        }
    }
}

/// An open TAP device.
#[derive(Debug)]
pub struct Tap {
    name: String,
    capabilities: Capabilities,
    host_mac: MacAddr,
    fds: Vec<OwnedFd>,
    /// One for each queue, to wake a waiting receiver.
    bells: Vec<OwnedFd>,
    header_len: usize,
    link: Arc<TapShared>,
}

impl Tap {
    /// Opens interface `name`, creating it if it does not exist (`%d` in the name is replaced by a number). An
    /// interface created here is deleted with the last descriptor.
    pub fn open(name: &str, options: TapOptions) -> Result<Tap, TapError> {
        check_name(name)?;
        if !(1..=MAX_QUEUES).contains(&options.queues) {
            return Err(TapError::BadQueueCount { name: name.to_owned(), queues: options.queues });
        }
        let kind = match options.framing {
            Framing::Ethernet => sys::IFF_TAP,
            Framing::Packet => sys::IFF_TUN,
            Framing::Fddi => return Err(TapError::NoSuchFraming { name: name.to_owned() }),
        };
        alone(name, 0)?;
        let flags = kind | sys::IFF_NO_PI | sys::IFF_MULTI_QUEUE | sys::IFF_VNET_HDR;
        let mut name = name.to_owned();
        let mut fds = Vec::with_capacity(options.queues);
        for queue in 0..options.queues {
            let fd = sys::open_tun().map_err(|error| opening(&name, error))?;
            name = sys::attach(fd.as_fd(), &name, flags).map_err(|error| attaching(&name, queue, error))?;
            fds.push(fd);
        }
        alone(&name, options.queues)?;
        Tap::set_up(name, fds, vnet::LEN, options)
    }

    /// Uses descriptors that a process with more privileges has opened and attached: one per queue, all of one TAP or
    /// TUN interface, which has no further queue open. `options.queues` and `options.framing` are ignored. Without
    /// offload headers on the interface (`IFF_VNET_HDR`) there are no offloads.
    pub fn from_fds(fds: Vec<OwnedFd>, mut options: TapOptions) -> Result<Tap, TapError> {
        options.queues = fds.len();
        let mut of: Option<(String, u16)> = None;
        for (index, fd) in fds.iter().enumerate() {
            let attached = sys::attached_to(fd.as_fd()).map_err(|_| TapError::NotATap { index })?;
            if attached.1 & (sys::IFF_TAP | sys::IFF_TUN) == 0 || attached.1 & sys::IFF_NO_PI == 0 {
                return Err(TapError::NotATap { index });
            }
            match &of {
                Some((name, _)) if *name != attached.0 => {
                    return Err(TapError::Mixed { name: name.clone(), other: attached.0 });
                }
                _ => of = Some(attached),
            }
        }
        let Some((name, flags)) = of else {
            return Err(TapError::BadQueueCount { name: "(none)".to_owned(), queues: 0 });
        };
        options.framing = if flags & sys::IFF_TAP != 0 { Framing::Ethernet } else { Framing::Packet };
        alone(&name, fds.len())?;
        for fd in &fds {
            sys::set_nonblocking(fd.as_fd()).map_err(|source| failed(&name, "setting O_NONBLOCK", source))?;
        }
        let header_len = if flags & sys::IFF_VNET_HDR != 0 { vnet::LEN } else { 0 };
        if header_len == 0 {
            options.offloads = Offloads::None;
        }
        Tap::set_up(name, fds, header_len, options)
    }

    fn set_up(name: String, fds: Vec<OwnedFd>, header_len: usize, options: TapOptions) -> Result<Tap, TapError> {
        let offloads = if header_len == 0 { 0 } else { negotiate(&name, &fds, options.offloads)? };
        let netdevice = Netdevice::open().map_err(|source| failed(&name, "opening a socket", source))?;
        let bell = |_| sys::event_fd().map_err(|source| failed(&name, "making the counter that wakes a queue", source));
        let bells = fds.iter().map(bell).collect::<Result<Vec<_>, _>>()?;
        if let Some(mtu) = options.mtu {
            netdevice.set_mtu(&name, mtu).map_err(|source| TapError::BadMtu { name: name.clone(), mtu, source })?;
        }
        bring_up(&netdevice, &name, options.bring_up)?;
        let mtu = netdevice.mtu(&name).map_err(|source| failed(&name, "reading the MTU", source))?;
        let host_mac = netdevice.mac(&name).map_err(|source| failed(&name, "reading the address", source))?;
        let checksum = offloads & sys::TUN_F_CSUM != 0;
        let segments = offloads & TSO != 0;
        let capabilities = Capabilities {
            mtu,
            framing: options.framing,
            mac: match options.framing {
                Framing::Ethernet | Framing::Fddi => options.mac.unwrap_or(opposite(host_mac)),
                Framing::Packet => MacAddr::UNSPECIFIED,
            },
            queue_pairs: fds.len(),
            tx_checksum: checksum,
            rx_checksum: checksum,
            segmentation: segments.then_some(65_535),
            coalescing: segments,
            rss_key: None,
            region: None,
        };
        Ok(Tap { name, capabilities, host_mac, fds, bells, header_len, link: Arc::new(TapShared::new()) })
    }

    /// The interface's own address, the kernel's end of the link; unspecified for a TUN interface.
    pub fn host_mac(&self) -> MacAddr {
        self.host_mac
    }

    /// Why the device is gone, if it is.
    pub fn gone_because(&self) -> Option<io::Error> {
        self.link.gone_because()
    }
}

impl Device for Tap {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        let fds = std::mem::take(&mut self.fds).into_iter().zip(std::mem::take(&mut self.bells));
        queue::pairs(fds, &self.capabilities, self.header_len, &self.link)
    }

    fn counters(&self) -> Option<Arc<Counters>> {
        Some(self.link.counters.clone())
    }
}

fn check_name(name: &str) -> Result<(), TapError> {
    let bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    let pattern = name.replacen("%d", "", 1);
    if name.is_empty()
        || name.len() > 15
        || name == "."
        || name == ".."
        || pattern.contains(bad)
        || pattern.contains('%')
    {
        return Err(TapError::BadName { name: name.to_owned() });
    }
    Ok(())
}

/// Refuses an interface that has more queues open than the caller's `own`. A new interface has none.
fn alone(name: &str, own: usize) -> Result<(), TapError> {
    let open = link_info::open_queues(name)
        .map_err(|source| failed(name, "finding the processes that have it open", source))?;
    match open {
        Some(open) if open as usize > own => Err(TapError::Busy { name: name.to_owned() }),
        _ => Ok(()),
    }
}

/// Sets the header length and the device-wide mask; returns the mask that the kernel accepted.
fn negotiate(name: &str, fds: &[OwnedFd], offloads: Offloads) -> Result<u32, TapError> {
    // Both belong to the interface, so one descriptor is enough.
    let Some(fd) = fds.first() else { return Ok(0) };
    sys::set_header_len(fd.as_fd(), vnet::LEN).map_err(|source| failed(name, "setting the header length", source))?;
    let masks: &[u32] = match offloads {
        Offloads::None => &[0],
        Offloads::Checksum => &[sys::TUN_F_CSUM],
        Offloads::All => &[sys::TUN_F_CSUM | TSO | USO, sys::TUN_F_CSUM | TSO],
    };
    let mut refusal = None;
    for mask in masks {
        match sys::set_offloads(fd.as_fd(), *mask) {
            Ok(()) => return Ok(*mask),
            Err(error) => refusal = Some(error),
        }
    }
    let source = refusal.unwrap_or_else(|| io::Error::from(io::ErrorKind::Unsupported));
    Err(failed(name, "setting the offloads", source))
}

fn bring_up(netdevice: &Netdevice, name: &str, wanted: bool) -> Result<(), TapError> {
    let is_up = netdevice.is_up(name).map_err(|source| failed(name, "reading the state", source))?;
    if is_up || !wanted {
        return Ok(());
    }
    netdevice.bring_up(name).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => TapError::Down { name: name.to_owned() },
        _ => failed(name, "bringing it up", error),
    })
}

/// An address for the other end of the link: the interface's, with the local bit set and one more bit flipped.
fn opposite(mac: MacAddr) -> MacAddr {
    let mut bytes = mac.0;
    bytes[0] = (bytes[0] | 0x02) & !0x01;
    bytes[5] ^= 0x01;
    MacAddr(bytes)
}

fn failed(name: &str, doing: &'static str, source: io::Error) -> TapError {
    let name = name.to_owned();
    match source.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => TapError::NoDescriptor { name, doing, source },
        _ => TapError::Io { name, doing, source },
    }
}

fn opening(name: &str, error: io::Error) -> TapError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => TapError::NotPermitted { name: name.to_owned() },
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => TapError::NoDriver,
        _ => failed(name, "opening /dev/net/tun", error),
    }
}

fn attaching(name: &str, queue: usize, error: io::Error) -> TapError {
    let own = || name.to_owned();
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => TapError::NotPermitted { name: own() },
        Some(libc::EBUSY) => TapError::Busy { name: own() },
        Some(libc::EINVAL) => TapError::WrongKind { name: own() },
        Some(libc::E2BIG) => TapError::BadQueueCount { name: own(), queues: queue + 1 },
        _ => failed(name, "attaching a queue", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_has_no_interface_for_fddi() {
        let options = TapOptions { framing: Framing::Fddi, ..TapOptions::default() };
        let error = Tap::open("heddle-fddi", options).expect_err("there is no such kind");
        assert!(matches!(&error, TapError::NoSuchFraming { name } if name == "heddle-fddi"), "{error}");
        assert!(error.to_string().contains("FDDI"), "{error}");
    }
}
