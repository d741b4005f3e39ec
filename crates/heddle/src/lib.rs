//! A multi-core TCP/UDP/IP stack in user space. Its *process architecture* (which thread may touch which connection,
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
//! A stack reaches itself at every address of its own, at 127.0.0.1 and at ::1, and needs no interface for the last
//! two. These packets do not leave the stack, and recording devices (`device::pcap`) do not see them.
//!
//! ```
//! use heddle::{Stack, TcpListener, TcpStream, UdpSocket};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let stack = Stack::builder().build()?;
//! let listener = TcpListener::bind(&stack, "127.0.0.1:0")?;
//! let stream = TcpStream::connect(&stack, listener.local_addr()?)?;
//! let (_, peer) = listener.accept()?;
//! assert_eq!(peer, stream.local_addr()?);
//!
//! let socket = UdpSocket::bind(&stack, "[::1]:0")?;
//! socket.send_to(b"to myself", socket.local_addr()?)?;
//! let mut datagram = [0; 9];
//! assert_eq!(socket.recv_from(&mut datagram)?, (9, socket.local_addr()?));
//! # Ok(())
//! # }
//! ```
//!
//! [`TcpListener`], [`TcpStream`] and [`UdpSocket`] are modelled on `std::net`'s: `Read` and `Write`, time-outs,
//! non-blocking mode. [`Poller`] watches many sockets with one thread and has one pollable file descriptor. All types
//! may be used from any thread under every architecture.
//!
//! # Where to find what
//!
//! | task | start at |
//! |---|---|
//! | build a stack, choose its architecture | [`Stack::builder`], [`Builder`], [`Architecture`]; while it runs, [`Stack::set_architecture`] |
//! | addresses, routers and routes of a link | [`Interface`]; while it runs, [`Stack::set_route`] |
//! | a link in memory; the kernel's TAP and TUN devices | [`mem`]; `tap` |
//! | a device of one's own, faults, captures | [`device`] |
//! | connections and datagrams, blocking or not | [`TcpListener`], [`TcpStream`], [`Connect`], [`UdpSocket`] |
//! | many sockets on one thread | [`Poller`] |
//! | servers that run where the data arrives | [`handler`], [`Stack::serve`] |
//! | sockets for tasks | `tokio`, `futures` |
//! | a stack without threads of its own, in virtual time | [`Builder::build_polled`], [`VirtualClock`] |
//! | TCP's parameters, by field or by the name of Linux's sysctl | [`config`], [`Builder::knob`], [`Stack::set_knob`] |
//! | the state of a connection, and counters | [`TcpStream::status`], [`TcpStream::info`], [`Stack::stats`] |
//! | errors | [`error`] |
//!
//! # Architectures
//!
//! An architecture is chosen by name, as in `architecture("connp-l")`, and changes nothing in the results: every test of
//! this crate runs under each. Without a choice the stack takes [`Architecture::default`], which is
//! `adaptive`. A name may have a parameter (`connp-l:64`: 64 groups of connections); [`Architecture::all`] lists them, and
//! [`Architecture::describe`] describes each.
//!
//! ```
//! for architecture in heddle::Architecture::all() {
//!     println!("{architecture}: {}", architecture.describe());
//! }
//! ```
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `tap` | `tap`: Linux TAP devices | yes |
//! | `pcap` | `device::pcap`: recording, reading and replaying captures | yes |
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
pub mod handler;
mod interface;
pub mod knob_files;
mod leftover;
mod listener;
pub mod ping;
mod polled;
mod poller;
mod socket_stack;
mod stream;
mod stream_options;
#[cfg(any(feature = "tokio", feature = "futures-io"))]
mod tasks;
mod timeout;
#[cfg(feature = "tokio")]
pub mod tokio;
mod udp;

pub use address::ToAddr;
pub use builder::{Builder, Stack};
pub use connect::Connect;
pub use error::{AcceptError, BindError, BuildError, ConnectError, RouteError, SetArchitectureError};
pub use interface::Interface;
pub use listener::{Incoming, TcpListener};
pub use observe::{Counter, CounterSnapshot, DropReason};
pub use polled::Polled;
pub use poller::{Event, Poller, Source};
/// The names of the variants that tests run under, for the tests of the workspace. Programs use [`Architecture::all`].
#[doc(hidden)]
pub use stack::ALL_ARCHITECTURES;
pub use stack::socket::Readiness;
pub use stack::{
    AddressEvent, Addressing, Architecture, Cidr, Failure, FaultScope, Properties, Route, RouteAttributes, RouteName,
    StackStats,
};
pub use stream::TcpStream;
pub use sync::LockKind;
pub use tcp::{StatusReport, TcpInfo};
pub use udp::UdpSocket;
pub use wire::FourTuple;

/// A clock that is moved by hand: see [`Builder::clock`], and [`Polled`] for an example.
pub type VirtualClock = stack::VirtualClock<sync::Real>;

/// A clock that can be stopped: see [`Builder::stoppable_clock`].
///
/// ```
/// use heddle::{Interface, Stack, StoppableClock, mem};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = StoppableClock::new();
/// let (device, _peer) = mem::pair(mem::MemConfig::default());
/// let interface = Interface::new(device).address("10.0.0.1/24")?;
/// let stack = Stack::builder().interface(interface).stoppable_clock(clock.clone()).build()?;
/// clock.stop();
/// let stopped = clock.now();
/// // No timer runs meanwhile.
/// assert_eq!(clock.now(), stopped);
/// clock.go_on();
/// # drop(stack);
/// # Ok(())
/// # }
/// ```
pub type StoppableClock = stack::StoppableClock<sync::Real>;

/// The in-memory device: two linked ports.
///
/// ```
/// use heddle::{Interface, Stack, UdpSocket, device::Framing, mem};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Four queue pairs, a large MTU, and packets without a link header, as a TUN device has them.
/// let config = mem::MemConfig { queues: 4, mtu: 9000, framing: Framing::Packet, ..mem::MemConfig::default() };
/// let (a, b) = mem::pair(config);
/// let server = Stack::builder().interface(Interface::new(a).address("fd00::1/64")?).build()?;
/// let client = Stack::builder().interface(Interface::new(b).address("fd00::2/64")?).build()?;
/// let service = UdpSocket::bind(&server, "[fd00::1]:7")?;
/// UdpSocket::bind(&client, "[fd00::2]:0")?.send_to(&[1; 8000], "[fd00::1]:7")?;
/// assert_eq!(service.recv(&mut [0; 9000])?, 8000);
/// # Ok(())
/// # }
/// ```
pub mod mem {
    pub use dev::mem::{MAX_QUEUES, MemConfig, MemDevice};

    /// Two linked ports on the real platform. Each receives what the other sends.
    pub fn pair(config: MemConfig) -> (MemDevice, MemDevice) {
        dev::mem::pair::<sync::Real>(config)
    }
}

/// Linux TAP and TUN devices.
///
/// ```no_run
/// use heddle::{Interface, Stack, TcpListener, device::Framing, tap};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // Needs CAP_NET_ADMIN, or a device that was made for this user with `ip tuntap add`.
/// let device = tap::Tap::open("tap0", tap::TapOptions { queues: 2, ..tap::TapOptions::default() })?;
/// let tunnel = tap::Tap::open("tun0", tap::TapOptions { framing: Framing::Packet, ..tap::TapOptions::default() })?;
/// let stack = Stack::builder()
///     .interface(Interface::new(device).address("10.0.0.2/24")?.gateway("10.0.0.1".parse()?))
///     .interface(Interface::new(tunnel).address("10.9.0.2/24")?)
///     .build()?;
/// let listener = TcpListener::bind(&stack, "0.0.0.0:80")?;
/// for stream in listener.incoming() {
///     println!("{}", stream?.peer_addr()?);
/// }
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "tap")]
pub mod tap {
    pub use dev_tap::{Offloads, Tap, TapError, TapOptions};
}

/// The parts of a connection's report ([`TcpStream::status`]).
///
/// ```
/// use heddle::{Interface, Stack, TcpListener, TcpStream, mem, status::State};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (a, b) = mem::pair(mem::MemConfig::default());
/// # let server = Stack::builder().interface(Interface::new(a).address("10.0.0.1/24")?).build()?;
/// # let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).build()?;
/// let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
/// let stream = TcpStream::connect(&client, "10.0.0.1:7")?;
/// let report = stream.status().expect("the connection is there");
/// assert_eq!(report.state, State::Established);
/// assert_eq!(report.options.no_delay, stream.nodelay()?);
/// # drop(listener);
/// # Ok(())
/// # }
/// ```
pub mod status {
    pub use tcp::ecn::{EcnCounts, EcnMode};
    pub use tcp::fast_open::FastOpenFailure;
    pub use tcp::state::Cause;
    pub use tcp::{Limited, Rate, RecoveryState, State, StatusReport, TcpInfo, Traffic};
}

/// The device traits with every type in their signatures, and wrapper devices.
///
/// # A device of one's own
///
/// A device has [`Capabilities`](device::Capabilities) and pairs of queues. A receive queue must let a thread sleep on
/// it and another one end that sleep; [`device::channel()`] makes one for frames that come from anywhere. This is
/// `examples/channel_device.rs`, with the test of the whole [contract](device::conformance):
///
/// ```
#[doc = include_str!("../examples/channel_device.rs")]
/// ```
///
/// # A wrapper device
///
/// This one counts sent frames.
///
/// ```
/// use heddle::device::conformance::Conformance;
/// use heddle::device::{Capabilities, Device, PktBuf, QueuePair, TxQueue};
/// use heddle::mem;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// struct Counting<D> {
///     device: D,
///     sent: Arc<AtomicU64>,
/// }
///
/// impl<D: Device> Device for Counting<D> {
///     fn capabilities(&self) -> &Capabilities {
///         self.device.capabilities()
///     }
///
///     fn name(&self) -> &str {
///         self.device.name()
///     }
///
///     fn take_queues(&mut self) -> Vec<QueuePair> {
///         let sent = || self.sent.clone();
///         let around = |pair: QueuePair| QueuePair { rx: pair.rx, tx: Box::new(CountingTx { tx: pair.tx, sent: sent() }) };
///         self.device.take_queues().into_iter().map(around).collect()
///     }
///
///     fn counters(&self) -> Option<Arc<heddle::device::Counters>> {
///         self.device.counters()
///     }
/// }
///
/// struct CountingTx {
///     tx: Box<dyn TxQueue>,
///     sent: Arc<AtomicU64>,
/// }
///
/// impl TxQueue for CountingTx {
///     fn credit(&self) -> usize {
///         self.tx.credit()
///     }
///
///     fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
///         self.tx.transmit(frame)?;
///         self.sent.fetch_add(1, Ordering::Relaxed);
///         Ok(())
///     }
///
///     fn flush(&mut self) {
///         self.tx.flush();
///     }
/// }
///
/// let sent = Arc::new(AtomicU64::new(0));
/// let make = || {
///     let (a, b) = mem::pair(mem::MemConfig::default());
///     (Counting { device: a, sent: sent.clone() }, b)
/// };
/// Conformance::new(make).check().unwrap();
/// assert!(sent.load(Ordering::Relaxed) > 0);
/// ```
#[allow(clippy::test_attr_in_doctest, reason = "the example is a whole file, which has a test; `main` runs here")]
pub mod device {
    pub use dev::conformance;
    pub use dev::{
        BitSet, Capabilities, Device, Framing, NotTransmitted, Notify, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake,
        transmit_own,
    };
    pub use observe::{Counters, DropReason, Time};
    pub use pktbuf::{Checksum, Meta, PktBuf, RegionId, SharedBuf};
    pub use wire::ethernet::MacAddr;

    /// The sending end of a [`channel()`]: see the example of a [device](self).
    pub type FrameSender = dev::FrameSender<sync::Real>;

    /// The receiving end of a [`channel()`], which is a device's [`RxQueue`].
    pub type FrameReceiver = dev::FrameReceiver<sync::Real>;

    /// Makes a channel for at least `frames` frames: a receive queue for a device of one's own, and the end by which
    /// another thread delivers frames to it.
    ///
    /// ```
    /// use heddle::device::{PktBuf, RxQueue, WaitOutcome, channel};
    ///
    /// let (mut sender, mut receiver) = channel(64);
    /// let reader = std::thread::spawn(move || {
    ///     sender.try_send(PktBuf::from_slice(&[0; 60]).expect("memory")).expect("room");
    ///     sender.flush();
    /// });
    /// assert_eq!(receiver.wait(None), WaitOutcome::Ready);
    /// let mut frames = Vec::new();
    /// assert_eq!(receiver.receive(&mut frames, 32), 1);
    /// # reader.join().unwrap();
    /// ```
    ///
    /// # Panics
    /// If `frames` is 0.
    pub fn channel(frames: usize) -> (FrameSender, FrameReceiver) {
        dev::channel(frames)
    }

    /// A wrapper device that loses, delays, damages, duplicates and reorders frames by a plan (`docs/faults.md`).
    ///
    /// ```
    /// use heddle::{Interface, Stack, device, mem};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (a, b) = mem::pair(mem::MemConfig::default());
    /// let faults: device::fault::FaultPlan = "loss 1% reorder 2% delay 5ms seed 7".parse()?;
    /// let lossy = device::with_faults(Box::new(a), faults);
    /// let stack = Stack::builder().interface(Interface::new(lossy).address("10.0.0.1/24")?).build()?;
    /// # drop((stack, b));
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "fault")]
    pub mod fault {
        pub use dev::fault::{
            Burst, Cycle, DeviceFaults, FaultPlan, FaultRule, Faults, GRAMMAR, ParsePlanError, Pcg, Ppm, TimeSource,
            Timing, Unplug,
        };

        /// A device with faults.
        pub type Fault = dev::fault::Fault<sync::Real>;

        /// The machine's clock, for a [`Fault`].
        pub type PlatformClock = dev::fault::PlatformClock<sync::Real>;
    }

    /// Captures: recording the frames of a device, reading captures, and replaying them into a stack.
    ///
    /// ```
    /// use heddle::device::pcap::{CaptureDevice, Reader};
    /// use heddle::{Interface, Stack, UdpSocket, mem};
    /// use std::fs::File;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = std::env::temp_dir().join(format!("heddle-doc-{}.pcapng", std::process::id()));
    /// let (a, b) = mem::pair(mem::MemConfig::default());
    /// let recorded = CaptureDevice::new(Box::new(a), File::create(&path)?);
    /// let recording = recorded.recording();
    /// let server = Stack::builder().interface(Interface::new(recorded).address("10.0.0.1/24")?).build()?;
    /// let client = Stack::builder().interface(Interface::new(b).address("10.0.0.2/24")?).build()?;
    /// let service = UdpSocket::bind(&server, "10.0.0.1:7")?;
    /// UdpSocket::bind(&client, "10.0.0.2:0")?.send_to(b"seen", "10.0.0.1:7")?;
    /// service.recv(&mut [0; 8])?;
    /// recording.flush();
    /// let frames = Reader::new(File::open(&path)?)?.collect::<Result<Vec<_>, _>>()?;
    /// assert!(frames.iter().any(|frame| frame.data.ends_with(b"seen")));
    /// # std::fs::remove_file(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "pcap")]
    pub mod pcap {
        pub use dev::pcap::{Captured, Direction, ReadError, Reader, Replay, ReplayConfig, ReplayPacing, Writer};

        /// A device that records its frames. Loopback packets cross no device.
        pub type CaptureDevice = dev::pcap::CaptureDevice<sync::Real>;

        /// The recording of a [`CaptureDevice`], and its status.
        pub type Recording = dev::pcap::Recording<sync::Real>;
    }

    /// A device that simulates the remote end of connections in memory.
    ///
    /// ```
    /// use heddle::device::peer::{Peer, PeerConfig};
    /// use heddle::{Interface, Stack, TcpStream};
    /// use std::io::Write;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // It accepts every connection and discards the data.
    /// let peer = Peer::new(PeerConfig::new("10.0.0.9".parse()?));
    /// let monitor = peer.monitor();
    /// let stack = Stack::builder().interface(Interface::new(peer).address("10.0.0.1/24")?).build()?;
    /// let mut stream = TcpStream::connect(&stack, "10.0.0.9:80")?;
    /// stream.write_all(b"into the void")?;
    /// # let _ = monitor.totals();
    /// # Ok(())
    /// # }
    /// ```
    pub mod peer {
        pub use dev::peer::{Opens, PeerConfig, PeerMonitor, PeerTotals, PeerTraffic, pattern};

        /// The device.
        pub type Peer = dev::peer::Peer<sync::Real>;
    }

    /// `device` with the given faults, on the machine's clock.
    #[cfg(feature = "fault")]
    pub fn with_faults(device: Box<dyn Device>, faults: fault::FaultPlan) -> fault::Fault {
        fault::Fault::new(device, faults, fault::PlatformClock::default())
    }
}

/// What the architecture `adaptive` has decided about its groups of flows, and why ([`Stack::decisions`]), about their number
/// ([`Stack::group_numbers`]), and when its receive threads send without a lock ([`Stack::queue_claims`]).
///
/// ```
/// use heddle::Stack;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let stack = Stack::builder().architecture("adaptive").build()?;
/// // Nothing has happened yet.
/// assert!(stack.decisions().is_empty());
/// for decision in stack.decisions() {
///     println!("{decision}");
/// }
/// assert!(stack.queue_claims().is_empty() && stack.group_numbers().is_empty());
/// # Ok(())
/// # }
/// ```
pub mod decisions {
    pub use stack::{
        DecisionMeasure, DecisionOutcome, DecisionReason, GroupDecision, GroupNumber, GroupPlace, NumberOutcome,
        NumberReason, QueueClaims, WindowCounts,
    };
}

/// TCP's parameters.
///
/// ```
/// use heddle::config::{BufferSizes, Config, CongestionControl, Profile, knobs};
///
/// let mut config: Config = Profile::Linux.into();
/// config.congestion = CongestionControl::NewReno;
/// // Bytes.
/// config.send_buffer = BufferSizes { min: 4096, initial: 65_536, max: 1 << 20 };
/// // By the name of Linux's sysctl.
/// knobs::set(&mut config, "tcp_sack", "0").unwrap();
/// assert!(!config.sack);
/// ```
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

/// The examples of the project's README and of the crate's are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../README.md")]
struct Readme;
