//! What can be tuned: one [`Config`] for a stack, one [`ConnectionOptions`] for a connection or a listener.
//!
//! [`Config::default`] is a profile like Linux's, because that is what peers and test scripts expect.

mod features;

use core::time::Duration;

use wire::tcp::OptionOrder;
use wire::{FourTuple, SeqNumber};

pub use features::{Ecn, EcnOption, FastOpenMode, SynCookies};

use crate::congestion::Kind;
use crate::rtt::RttConfig;

/// Where the check of a received segment's checksum is done, relative to the exclusive use of the connection.
///
/// A knob because it moves work into or out of the lock, which is what comparing TCP-1, TCP-2 and TCP-6 is about
/// (Nahum et al., OSDI 1994).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumPlacement {
    /// When the segment is parsed, before any part of the connection is held.
    #[default]
    Before,
    /// Inside `SegmentArrives`, while the first hold-set (the header-in part) is held.
    Inside,
}

/// Sizes of a socket buffer in octets; a buffer starts at `initial` and grows to `max` as the connection proves that it
/// can use it. No memory is reserved: these are limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// Limit at connection set-up.
    pub initial: u32,
    /// Limit up to which it may grow by itself, at most 1 GiB.
    pub max: u32,
}

/// Keep-alive timing (RFC 9293 section 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence after which the first probe is sent.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Unanswered probes after which the connection is given up.
    pub probes: u8,
}

impl Default for KeepAlive {
    fn default() -> Self {
        KeepAlive { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// Parameters of TCP for a whole stack.
#[derive(Clone, Debug)]
pub struct Config {
    /// Receive buffer limits.
    pub receive_buffer: BufferSizes,
    /// Send buffer limits.
    pub send_buffer: BufferSizes,
    /// Retransmission time-out bounds (RFC 6298).
    pub rto: RttConfig,
    /// Congestion control of new connections.
    pub congestion: Kind,
    /// Initial window in segments (RFC 6928: 10).
    pub initial_window: u8,
    /// Offer and accept timestamps (RFC 7323).
    pub timestamps: bool,
    /// Offer and accept window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Offer and accept selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Longest time for which an acknowledgement is held back (RFC 9293 section 3.8.6.3: below 500 ms).
    pub delayed_ack: Duration,
    /// Segments at the start of a connection that are acknowledged at once, so that the peer's slow start is not held
    /// back by the delay.
    pub quick_acks: u8,
    /// Time for which a corked partial segment is held back at most.
    pub cork_timeout: Duration,
    /// Length of TIME-WAIT: twice the maximum segment lifetime (RFC 9293 section 3.4.2).
    pub time_wait: Duration,
    /// Longest stay in FIN-WAIT-2 of a closed socket whose peer never sends its FIN.
    pub fin_wait_2: Duration,
    /// Retransmissions of a SYN before an active open fails.
    pub syn_retries: u8,
    /// Retransmissions of a SYN-ACK before a half-open connection is dropped.
    pub syn_ack_retries: u8,
    /// Retransmissions of data, or unanswered window probes, before the connection is given up (R2, RFC 9293 section
    /// 3.8.3).
    pub retries: u8,
    /// Least time between two challenge acknowledgements of one connection (RFC 5961 section 7). Nothing is shared
    /// between connections: a shared limit would be a side channel.
    pub challenge_ack_interval: Duration,
    /// Smallest MSS that a peer or a path-MTU report can force upon us, in octets of text and options.
    pub min_mss: u16,
    /// Time within which a whole receive window must pass for the receive buffer to grow.
    pub receive_growth_horizon: Duration,
    /// Leave the checksum to the device (`Meta::checksum` is `Partial`).
    pub tx_checksum_offload: bool,
    /// Where received checksums are checked.
    pub checksum_placement: ChecksumPlacement,
    /// In whose order options are written.
    pub option_order: OptionOrder,
    /// When listeners answer with SYN cookies.
    pub syn_cookies: SynCookies,
    /// How explicit congestion notification is negotiated.
    pub ecn: Ecn,
    /// When the counters of accurate ECN are sent.
    pub ecn_option: EcnOption,
    /// A SYN that is not answered is sent again without the request for ECN (RFC 3168 section 6.1.1.1).
    pub ecn_fallback: bool,
    /// Fast Open.
    pub fast_open: FastOpenMode,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            receive_buffer: BufferSizes { initial: 128 << 10, max: 6 << 20 },
            send_buffer: BufferSizes { initial: 256 << 10, max: 4 << 20 },
            rto: RttConfig::default(),
            congestion: Kind::Cubic,
            initial_window: 10,
            timestamps: true,
            window_scaling: true,
            sack: true,
            delayed_ack: Duration::from_millis(40),
            quick_acks: 16,
            cork_timeout: Duration::from_millis(200),
            time_wait: Duration::from_secs(60),
            fin_wait_2: Duration::from_secs(60),
            syn_retries: 6,
            syn_ack_retries: 5,
            retries: 15,
            challenge_ack_interval: Duration::from_millis(500),
            min_mss: 216,
            receive_growth_horizon: Duration::from_secs(1),
            tx_checksum_offload: false,
            checksum_placement: ChecksumPlacement::Before,
            option_order: OptionOrder::Linux,
            syn_cookies: SynCookies::default(),
            ecn: Ecn::default(),
            ecn_option: EcnOption::default(),
            ecn_fallback: true,
            fast_open: FastOpenMode::default(),
        }
    }
}

impl Config {
    /// Shift with which our windows are scaled: the least that lets 16 bits express the largest receive buffer, at most
    /// 14 (RFC 7323 section 2.3).
    pub fn window_shift(&self) -> u8 {
        let mut shift = 0;
        while shift < 14 && (self.receive_buffer.max >> shift) > u32::from(u16::MAX) {
            shift += 1;
        }
        shift
    }
}

/// Options of one connection; `None` means the stack's [`Config`].
#[derive(Clone, Debug, Default)]
pub struct ConnectionOptions {
    /// Send small segments at once (no Nagle).
    pub no_delay: bool,
    /// Hold partial segments back until uncorked or for [`Config::cork_timeout`].
    pub cork: bool,
    /// Probe an idle peer.
    pub keep_alive: Option<KeepAlive>,
    /// Fixed send buffer in octets; switches its growth off.
    pub send_buffer: Option<u32>,
    /// Fixed receive buffer in octets; switches its growth off.
    pub receive_buffer: Option<u32>,
    /// Congestion control.
    pub congestion: Option<Kind>,
    /// Upper bound of the MSS that we announce and use.
    pub max_segment: Option<u16>,
    /// Upper bound of the window that we announce, in octets.
    pub window_clamp: Option<u32>,
    /// Time without progress after which the connection is given up (RFC 5482, local meaning only).
    pub user_timeout: Option<Duration>,
    /// What close does with data not yet sent: `Some(0)` resets the connection.
    pub linger: Option<Duration>,
}

/// What an active open needs (RFC 9293 section 3.10.1). The secrets come from outside: this crate draws no randomness.
#[derive(Clone, Debug)]
pub struct OpenParams {
    /// Both ends.
    pub tuple: FourTuple,
    /// Initial send sequence number (RFC 6528: a keyed hash of the tuple, plus a clock).
    pub iss: SeqNumber,
    /// Offset of our timestamp clock in ms, keyed by tuple so that it does not reveal uptime.
    pub ts_offset: u32,
    /// Flow hash copied to every segment's `Meta::flow_hash`, if the stack has one.
    pub flow_hash: Option<u32>,
    /// Largest segment text that the route carries, in octets: MTU - IP header - 20.
    pub mss: u16,
    /// Options of this connection.
    pub options: ConnectionOptions,
}

/// What a listener hands to each child (RFC 9293 section 3.10.7.2).
#[derive(Clone, Debug)]
pub struct ListenParams {
    /// Largest segment text that the route carries, in octets: MTU - IP header - 20.
    pub mss: u16,
    /// Options that children inherit.
    pub options: ConnectionOptions,
}
