//! Errors of opening a TAP device: each is one sentence with the cause and the remedy.

use std::fmt;
use std::io;

/// Why a TAP device could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum TapError {
    /// `/dev/net/tun` or the interface may not be opened by this user.
    NotPermitted {
        /// The interface.
        name: String,
    },
    /// The kernel has no TUN/TAP driver.
    NoDriver,
    /// An interface name is 1 to 15 bytes without `/`, `:` and white space.
    BadName {
        /// The name asked for.
        name: String,
    },
    /// Another process has the interface open.
    Busy {
        /// The interface.
        name: String,
    },
    /// The interface exists, but is not a TAP device with several queues and offload headers.
    WrongKind {
        /// The interface.
        name: String,
    },
    /// More queues than the kernel grants, or none.
    BadQueueCount {
        /// The interface.
        name: String,
        /// The number asked for.
        queues: usize,
    },
    /// The kernel's driver has Ethernet frames (TAP) and bare packets (TUN), and no others.
    NoSuchFraming {
        /// The interface.
        name: String,
    },
    /// A file descriptor that is not attached to a TAP interface.
    NotATap {
        /// Position in the list that was given.
        index: usize,
    },
    /// File descriptors of different interfaces.
    Mixed {
        /// The first descriptor's interface.
        name: String,
        /// Another one's.
        other: String,
    },
    /// The interface is down, and this user may not bring it up.
    Down {
        /// The interface.
        name: String,
    },
    /// The interface refuses the MTU.
    BadMtu {
        /// The interface.
        name: String,
        /// The MTU asked for.
        mtu: usize,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The process, or the machine, has reached its limit of open files. A device needs two for each queue, and one
    /// more while it is opened.
    NoDescriptor {
        /// The interface.
        name: String,
        /// The failed operation.
        doing: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Any other error.
    Io {
        /// The interface.
        name: String,
        /// The failed operation.
        doing: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

impl fmt::Display for TapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TapError::NotPermitted { name } => write!(
                f,
                "TAP interface {name} cannot be opened without permission: run as root, or create it beforehand with \
                 `ip tuntap add mode tap user $USER multi_queue vnet_hdr name {name}`, or pass file descriptors that \
                 are already open"
            ),
            TapError::NoDriver => f.write_str(
                "/dev/net/tun does not exist: load the driver with `modprobe tun`, or in a container pass the device \
                 in (`--device /dev/net/tun`)",
            ),
            TapError::BadName { name } => write!(
                f,
                "{name:?} is not an interface name: use 1 to 15 characters without '/', ':', '%' or white space"
            ),
            TapError::Busy { name } => write!(
                f,
                "TAP interface {name} is in use by another process, and each process would lose packets to the other: \
                 stop that process (`fuser -v /dev/net/tun` lists those that have a TAP interface open), or take \
                 another interface"
            ),
            TapError::WrongKind { name } => write!(
                f,
                "interface {name} exists but is not a multi-queue TAP device with offload headers: delete it with \
                 `ip link del {name}`, or use another name"
            ),
            TapError::BadQueueCount { name, queues } => {
                write!(f, "TAP interface {name} cannot have {queues} queues: use 1 to 256")
            }
            TapError::NoSuchFraming { name } => {
                write!(
                    f,
                    "interface {name} cannot carry FDDI frames: use the framing of Ethernet (TAP) or of bare packets (TUN)"
                )
            }
            TapError::NotATap { index } => write!(
                f,
                "file descriptor number {index} of those given is not attached to a TAP interface: open /dev/net/tun \
                 and attach it with TUNSETIFF (IFF_TAP | IFF_NO_PI) first"
            ),
            TapError::Mixed { name, other } => write!(
                f,
                "the file descriptors belong to different interfaces, {name} and {other}: pass the queues of one"
            ),
            TapError::Down { name } => write!(
                f,
                "TAP interface {name} is down and this user may not bring it up: run `ip link set {name} up` as root"
            ),
            TapError::BadMtu { name, mtu, source } => write!(
                f,
                "TAP interface {name} rejects an MTU of {mtu} bytes ({source}): use 68 to 65521; root is needed to \
                 change it"
            ),
            TapError::NoDescriptor { name, doing, source } => write!(
                f,
                "TAP interface {name}: {doing} failed ({source}): raise the limit of open files (`ulimit -n`), or use \
                 fewer queues"
            ),
            TapError::Io { name, doing, source } => {
                write!(f, "TAP interface {name}: {doing} failed ({source}); `ip -d link show {name}` shows its state")
            }
        }
    }
}

impl std::error::Error for TapError {}
