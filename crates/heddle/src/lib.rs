//! A multi-core TCP/UDP/IP stack in user space whose *process architecture* (which thread may touch which connection,
//! and how it gets exclusive use of it) is chosen at run time.
//!
//! ```
//! use heddle::{Interface, Stack, TcpListener, TcpStream, mem};
//! use std::io::{Read, Write};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (a, b) = mem::pair(mem::MemConfig::default());
//! let server = Stack::builder().interface(Interface::new(a).address("10.0.0.1/24")?).architecture("connp-l").build()?;
//! let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).architecture("giant").build()?;
//!
//! let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
//! let mut stream = TcpStream::connect(&client, "10.0.0.1:7")?;
//! stream.write_all(b"hello")?;
//! let (mut peer, _) = listener.accept()?;
//! let mut greeting = [0; 5];
//! peer.read_exact(&mut greeting)?;
//! assert_eq!(&greeting, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! [`TcpListener`], [`TcpStream`] and [`UdpSocket`] are shaped like `std::net`'s: `Read` and `Write`, time-outs,
//! non-blocking mode. [`Poller`] watches many sockets with one thread and has one pollable file descriptor. Everything
//! may be used from any thread under every architecture.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `tap` | `tap`: Linux TAP devices | yes |
//! | `pcap` | `device::pcap`: recording, reading and playing captures | yes |
//! | `fault` | `device::fault`: devices that lose, delay, damage and reorder frames | yes |
//! | `tokio` | `tokio`: sockets for tasks, with tokio's `AsyncRead` and `AsyncWrite` | no |
//! | `futures-io` | `futures`: the same sockets with the traits of `futures-io` | no |

#![forbid(unsafe_code)]

mod address;
mod builder;
mod connect;
pub mod error;
#[cfg(feature = "futures-io")]
pub mod futures;
mod interface;
pub mod knob_files;
mod leftover;
mod listener;
pub mod ping;
mod polled;
mod poller;
mod stream;
mod stream_options;
#[cfg(any(feature = "tokio", feature = "futures-io"))]
mod tasks;
#[cfg(feature = "tokio")]
pub mod tokio;
mod udp;

pub use address::ToAddr;
pub use builder::{Builder, Stack};
pub use connect::Connect;
pub use error::{AcceptError, BindError, BuildError, ConnectError, RouteError};
pub use interface::Interface;
pub use listener::{Incoming, TcpListener};
pub use observe::{Counter, CounterSnapshot, DropReason};
pub use polled::Polled;
pub use poller::{Event, Poller, Source};
pub use stack::socket::Readiness;
pub use stack::{
    ALL_ARCHITECTURES, AddressEvent, Addressing, Architecture, Cidr, Failure, FaultScope, Properties, Route,
    RouteAttributes, RouteName, StackStats,
};
pub use stream::TcpStream;
pub use sync::LockKind;
pub use tcp::{StatusReport, TcpInfo};
pub use udp::UdpSocket;
pub use wire::FourTuple;

/// A clock that is moved by hand: see [`Builder::clock`].
pub type VirtualClock = stack::VirtualClock<sync::Real>;

/// A clock that can be stopped: see [`Builder::stoppable_clock`].
pub type StoppableClock = stack::StoppableClock<sync::Real>;

/// The in-memory device: two linked ports.
pub mod mem {
    pub use dev::mem::{MAX_QUEUES, MemConfig, MemDevice};

    /// Two linked ports on the real platform. What one sends the other receives.
    pub fn pair(config: MemConfig) -> (MemDevice, MemDevice) {
        dev::mem::pair::<sync::Real>(config)
    }
}

/// Linux TAP and TUN devices.
#[cfg(feature = "tap")]
pub mod tap {
    pub use dev_tap::*;
}

/// What the report of a connection ([`TcpStream::status`]) is made of.
pub mod status {
    pub use tcp::ecn::{EcnCounts, EcnMode};
    pub use tcp::fast_open::FastOpenFailure;
    pub use tcp::state::Cause;
    pub use tcp::{Limited, Rate, RecoveryState, State, StatusReport, TcpInfo, Traffic};
}

/// The device traits with every type in their signatures, and devices around devices. `examples/channel_device.rs` is a
/// device of one's own.
pub mod device {
    pub use dev::{BitSet, Capabilities, Device, Framing, Notify, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake};
    pub use observe::{Counters, DropReason, Time};
    pub use pktbuf::{Checksum, Meta, PktBuf, RegionId, SharedBuf};
    pub use wire::ethernet::MacAddr;

    /// A device around another that loses, delays, damages, doubles and reorders frames by a plan (`docs/faults.md`).
    #[cfg(feature = "fault")]
    pub mod fault {
        pub use dev::fault::{
            Burst, Clock, Cycle, FaultPlan, Faults, GRAMMAR, ParsePlanError, Pcg, Ppm, Rule, Timing, Trouble, Unplug,
        };

        /// A device with faults.
        pub type Fault = dev::fault::Fault<sync::Real>;

        /// The machine's clock, for a [`Fault`].
        pub type PlatformClock = dev::fault::PlatformClock<sync::Real>;
    }

    /// Captures: recording what crosses a device, reading captures, and playing them into a stack.
    #[cfg(feature = "pcap")]
    pub mod pcap {
        pub use dev::pcap::{Captured, Direction, Pacing, ReadError, Reader, Replay, ReplayConfig, Writer};

        /// A device that records what crosses it.
        pub type Tap = dev::pcap::Tap<sync::Real>;

        /// What a [`Tap`] has recorded so far, and how it goes.
        pub type Recording = dev::pcap::Recording<sync::Real>;
    }

    /// A device that plays the remote end of connections in memory.
    pub mod peer {
        pub use dev::peer::{Opens, PeerConfig, PeerMonitor, PeerTotals, Traffic, pattern};

        /// The device.
        pub type Peer = dev::peer::Peer<sync::Real>;
    }

    /// `device` with the given faults, on the machine's clock.
    #[cfg(feature = "fault")]
    pub fn with_faults(device: Box<dyn Device>, faults: fault::FaultPlan) -> fault::Fault {
        fault::Fault::new(device, faults, fault::PlatformClock::default())
    }
}

/// TCP's parameters.
pub mod config {
    pub use stack::SetKnobError;
    pub use tcp::Profile;
    pub use tcp::config::{
        BufferSizes, ChecksumPlacement, Config, ConnectionOptions, Ecn, EcnOption, FastOpenKeys, FastOpenMode,
        KeepAlive, MemoryLimits, MtuProbing, Pacing, SendAccounting, SynCookies,
    };
    pub use tcp::config::{DataShare, WindowRule};
    pub use tcp::congestion::Kind as CongestionControl;
    pub use tcp::knobs;
    pub use tcp::rtt::{RtoFloor, RttConfig};
    pub use tcp::{OptionValues, Pressure, SocketOption};
    pub use wire::tcp::OptionOrder;
}
