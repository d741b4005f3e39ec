//! Parameters: one [`Config`] for a stack, one [`ConnectionOptions`] for a connection or a listener.
//!
//! [`Config::default`] is a profile like Linux's, which peers and test scripts expect.

mod features;
mod share;

use core::time::Duration;

use wire::tcp::OptionOrder;
use wire::{FourTuple, SeqNumber};

pub use features::{Ecn, EcnOption, FastOpenMode, SynCookies};
pub use share::DataShare;

pub use crate::window_rule::WindowRule;

use crate::congestion::Kind;
use crate::rtt::RttConfig;
use crate::scarcity::Pressure;

/// Where the checksums of segments are computed and checked, relative to the exclusive use of the connection.
///
/// A knob because it moves work into or out of the lock, which the comparison of TCP-1, TCP-2 and TCP-6 depends on
/// (Nahum et al., OSDI 1994).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumPlacement {
    /// When the segment is parsed, before any part of the connection is held. Here and inside, a segment that is sent is summed when it
    /// is made, while its connection is held.
    #[default]
    Before,
    /// Inside `SegmentArrives`, while the first hold-set (the header-in part) is held.
    Inside,
    /// After the connection has been released: of a segment that is sent, by a thread that has dropped its last guard, before the device
    /// is given it (`dev::LateSums`). Of one that is received, by the thread that takes the data for its user. An experiment, which gives up a
    /// promise of TCP: the data has been acknowledged by then, and its header has been believed. If the check fails, the connection
    /// is [reset](crate::DamagedData); no damaged data is handed out, but the peer will not send it again. Only the check of
    /// more than a kilobyte of data that an established connection takes in order can wait; that of other segments is done inside.
    /// Where data is taken while the connection is held (by a handler, into a channel, or to be looked at), it is checked then.
    After,
}

/// Sizes of a socket buffer in bytes; a buffer starts at `initial` and grows to `max` as the connection shows that it
/// can use it. No memory is reserved: these are limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// Guaranteed size even when memory is short; at least 1.
    pub min: u32,
    /// Limit at connection set-up.
    pub initial: u32,
    /// Limit up to which it may grow by itself, at most 1 GiB.
    pub max: u32,
}

/// What counts against the send buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendAccounting {
    /// The bytes of data that are not acknowledged, and never more than the buffer's size. [`Config::send_low_water`]
    /// determines when a writer that found no room is woken.
    Bytes,
    /// Memory, as Linux counts it: data is kept in runs of up to half of the peer's largest window, 64 KiB at most,
    /// each of which costs `overhead` bytes more. A run is begun while the buffer is not full and may then be filled,
    /// so that up to one run more than the buffer's size is taken. A writer is notified of room when the free part is
    /// at least half of the used part, and the unsent data is less than half of the mark of unsent data.
    Runs {
        /// Overhead of each run, in bytes.
        overhead: u32,
    },
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
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
        //# and MUST default to no less than two hours (MUST-28).
        KeepAlive { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// Secrets of Fast Open cookies (RFC 7413 section 4.1.1): the first makes them, both are accepted.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct FastOpenKeys {
    /// Makes and checks cookies; `None`: the stack draws a random one.
    pub primary: Option<[u8; 16]>,
    /// Checks cookies made before a change of keys.
    pub backup: Option<[u8; 16]>,
}

impl core::fmt::Debug for FastOpenKeys {
    /// Prints whether there are keys, never the keys.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let shown = |key: Option<_>| if key.is_some() { "set" } else { "none" };
        write!(f, "FastOpenKeys({}, {})", shown(self.primary), shown(self.backup))
    }
}

/// Memory of the buffers of all connections together, sent and received, in bytes, as `tcp_mem` of Linux has it. A
/// buffer counts with its whole block; memory shared with the application counts only while it waits to be sent. The
/// stack counts the receive queues of datagram sockets and fragments of packets with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Pressure that began at `pressure` ends here.
    pub low: u64,
    /// From here on buffers stop growing.
    pub pressure: u64,
    /// From here on receive buffers shrink to the least as their windows are used up, data out of order is given up, a
    /// connection with as much as the least buffer unread refuses data, send buffers take no more than the least, and
    /// no new connection is opened.
    pub high: u64,
}

impl MemoryLimits {
    /// No limit.
    pub const UNLIMITED: MemoryLimits = MemoryLimits { low: u64::MAX, pressure: u64::MAX, high: u64::MAX };

    /// Linux's values for a machine with this many bytes of memory: pressure begins at a sixteenth, the limit is one
    /// and a half times that, and pressure ends at three quarters of it; 512 KiB at least.
    pub const fn of_machine(bytes: u64) -> MemoryLimits {
        let pressure = if bytes / 16 > 512 << 10 { bytes / 16 } else { 512 << 10 };
        let low = pressure / 4 * 3;
        MemoryLimits { low, pressure, high: 2 * low }
    }

    /// The pressure when `used` bytes are in use and the pressure was `before`.
    pub fn classify(&self, used: u64, before: Pressure) -> Pressure {
        if used > self.high {
            Pressure::Severe
        } else if used > self.pressure || before != Pressure::None && used > self.low {
            Pressure::Moderate
        } else {
            Pressure::None
        }
    }
}

/// When a sender probes for the path MTU without ICMP (RFC 4821, RFC 8899): `tcp_mtu_probing` of Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtuProbing {
    /// Never: the path MTU is learnt from ICMP alone.
    #[default]
    Off,
    /// [`Config::base_mss`] is used once [`Config::suspicious_retries`] time-outs in a row suggest an ICMP black hole,
    /// and the search for larger segments starts there.
    AfterBlackHole,
    /// Every connection begins with [`Config::base_mss`], unless [`Config::trust_route_mtu`] is set, and searches
    /// upwards.
    Always,
}

/// Pacing of segments: off unless a rate is set for the connection or [`Pacing::on`] for the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Pace every connection.
    pub on: bool,
    /// Rate in slow start, in per cent of cwnd / SRTT.
    pub slow_start: u16,
    /// Rate in congestion avoidance, in per cent of cwnd / SRTT.
    pub avoidance: u16,
}

/// Parameters of TCP for a whole stack. [`crate::Profile`] makes whole sets of them; [`crate::knobs`] names most of
/// them as Linux's sysctls do.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Receive buffer limits, in bytes of data: the largest windows.
    pub receive_buffer: BufferSizes,
    /// The share of a receive buffer's memory that is for data.
    pub receive_share: DataShare,
    /// Send buffer limits.
    pub send_buffer: BufferSizes,
    /// What counts against the send buffer.
    pub send_accounting: SendAccounting,
    /// Bytes that must be free in the send buffer before a writer that found no room is woken, under
    /// [`SendAccounting::Bytes`]; never more than the buffer. BSD's `SO_SNDLOWAT`, 2048 there. `None`: more than a third
    /// of the buffer.
    pub send_low_water: Option<u32>,
    /// Whether data is taken whole or not at all, under [`SendAccounting::Bytes`]: whole as soon as a writer would be woken,
    /// even beyond the size of the buffer, as BSD's sendfile appends a page. The data left is not empty then if the next
    /// send would find no room: it ends with an empty chunk.
    pub send_whole: bool,
    /// Retransmission time-out bounds (RFC 6298).
    pub rto: RttConfig,
    /// Congestion control of new connections.
    pub congestion: Kind,
    /// Initial window in segments (RFC 6928: 10).
    pub initial_window: u8,
    /// Upper bound of the initial window in bytes, unless two segments are larger (RFC 5681 section 3.1: 4,380; RFC
    /// 6928 section 2: 14,600, which Linux does not apply). `u32::MAX`: no bound. A window set by a user or a route has
    /// none.
    pub initial_window_bytes: u32,
    /// Offer and accept timestamps (RFC 7323).
    pub timestamps: bool,
    /// Drop segments without a timestamp on a connection that negotiated timestamps (RFC 7323 section 3.2, SHOULD).
    /// Linux and FreeBSD accept them because some middleboxes strip the option.
    pub strict_timestamps: bool,
    /// Ticks of the peer's clock by which a timestamp may be older than TS.Recent and still be accepted (PAWS, RFC 7323
    /// section 5.3, which allows none). Linux allows one, for paths that reorder; FreeBSD none.
    pub paws_window: u8,
    /// Offer and accept window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Offer and accept selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Report duplicate segments by D-SACK (RFC 2883).
    pub dsack: bool,
    /// Half-open connections of a listener beyond which new ones get cookies, or nothing.
    pub syn_backlog: u32,
    /// Secrets of Fast Open cookies.
    pub fast_open_keys: FastOpenKeys,
    /// Return to the initial window after an idle RTO (RFC 5681 section 4.1).
    pub slow_start_after_idle: bool,
    /// RACK (RFC 8985), bits as `tcp_recovery` of Linux: 2 a reordering window that D-SACKs do not widen, 4 no entry
    /// into recovery for three SACKed segments alone. 1 is RACK itself, which is always on.
    pub recovery: u8,
    /// On a loss CUBIC reduces the congestion window instead of the flight. RFC 9438 section 4.6 allows both, since an
    /// unused window does not grow; Linux and FreeBSD reduce the window.
    pub cubic_cuts_window: bool,
    /// Tail-loss probe (RFC 8985 section 7), as `tcp_early_retrans` of Linux: 3 or 4 on, else off.
    pub tail_loss_probe: bool,
    /// F-RTO (RFC 5682), as `tcp_frto` of Linux: 0 off, 1 and 2 on.
    pub frto: u8,
    /// Time for which an acknowledgement is held back at first, and at least (RFC 9293 section 3.8.6.3: below 500 ms).
    pub delayed_ack: Duration,
    /// Longest time to which that adapts, up to the round trip (Linux's `TCP_DELACK_MAX`); at most `delayed_ack`: it
    /// does not adapt.
    pub delayed_ack_max: Duration,
    /// Longest assumed delay of the peer's acknowledgement of a single segment; a tail loss probe waits that much
    /// longer (RFC 8985 section 7.2, TLP.max_ack_delay).
    pub peer_ack_delay: Duration,
    /// Segments at the start of a connection that are acknowledged at once, so that the peer's slow start is not held
    /// back by the delay. While the user answers the peer's data within the delay, acknowledgements wait nevertheless.
    pub quick_acks: u8,
    /// The acknowledgement of a FIN without data waits for what the user sends next, mostly its own FIN, as long as that of data may
    /// (Linux). Otherwise it leaves at once (FreeBSD).
    pub delay_fin_acks: bool,
    /// Longest time for which a corked partial segment is held back.
    pub cork_timeout: Duration,
    /// Length of TIME-WAIT: twice the maximum segment lifetime (RFC 9293 section 3.4.2).
    pub time_wait: Duration,
    /// Longest stay in FIN-WAIT-2 of a closed socket if the peer never sends its FIN.
    pub fin_wait_2: Duration,
    /// Retransmissions of a SYN before an active open fails.
    pub syn_retries: u8,
    /// Time-outs of our SYN before its RTO backs off. RFC 6298 section 5.5 has none; Linux's default is 4.
    pub syn_linear_timeouts: u8,
    /// Retransmissions of a SYN-ACK before a half-open connection is dropped.
    pub syn_ack_retries: u8,
    /// Retransmissions after which the route is looked up again (R1, RFC 9293 section 3.8.3).
    pub suspicious_retries: u8,
    /// Retransmissions of data, or unanswered window probes, before the connection is given up (R2, RFC 9293 section
    /// 3.8.3).
    pub retries: u8,
    /// Retransmissions and window probes after the user has closed the connection; 0 means 8.
    pub orphan_retries: u8,
    /// Keep-alive timing of connections that enable it without setting their own.
    pub keep_alive: KeepAlive,
    /// Shortest and longest user time-out that a peer can make a connection adopt (RFC 5482 section 3.1: L_LIMIT,
    /// U_LIMIT).
    pub user_timeout_limits: (Duration, Duration),
    /// Most connections without a user that wait for the peer; one more is reset.
    pub max_orphans: u32,
    /// Most connections in TIME-WAIT; one more is closed at once.
    pub max_time_wait: u32,
    /// An active open may take over a tuple in TIME-WAIT: 0 never; 1 if timestamps allow it (RFC 6191); 2 as 1 between
    /// loopback addresses, and else never.
    pub reuse_time_wait: u8,
    /// Least time between two challenge acknowledgements of one connection (RFC 5961 section 7). Nothing is shared
    /// between connections: a shared limit would be a side channel.
    pub challenge_ack_interval: Duration,
    /// Smallest MSS that a peer or a path-MTU report can impose, in bytes of data and options.
    pub min_mss: u16,
    /// Probing for the path's MTU.
    pub mtu_probing: MtuProbing,
    /// MSS that passes nearly everywhere, in bytes of data and options.
    pub base_mss: u16,
    /// A passively opened connection that probes begins with the MSS of its route, as on Linux. Off, both ends begin
    /// with `base_mss`.
    pub trust_route_mtu: bool,
    /// Smallest MSS that a probing connection falls back to in a black hole, in bytes of data and options.
    pub mtu_probe_floor: u16,
    /// The search ends when two sizes are closer than this, in bytes.
    pub mtu_probe_threshold: u16,
    /// Time after which a finished search starts again: the path may have changed.
    pub mtu_probe_interval: Duration,
    /// Pacing.
    pub pacing: Pacing,
    /// Data that may wait unsent before a writer counts as blocked, in bytes (`TCP_NOTSENT_LOWAT`); `u32::MAX`: no
    /// limit.
    pub not_sent_low_water: u32,
    /// Whether receive buffers grow by themselves.
    pub receive_growth: bool,
    /// Memory of the buffers of all connections; `None`: the stack uses a part of the machine's memory
    /// ([`MemoryLimits::of_machine`]).
    pub memory: Option<MemoryLimits>,
    /// Measure what limits each sender (`tcpi_busy_time`, `tcpi_rwnd_limited`, `tcpi_sndbuf_limited`) and of how fast
    /// its data is delivered (`tcpi_delivery_rate`). Costs some memory per connection and a few instructions per
    /// segment.
    pub measure_limits: bool,
    /// Send the peer a reset when retransmission or a user time-out ends a connection (FreeBSD does, Linux does not).
    pub reset_on_timeout: bool,
    /// Let an ICMP error that reports a missing service end an established connection too, if it quotes a segment in
    /// flight (RFC 9293 SHLD-26). Off, such an error only explains a time-out, because it is easily forged (RFC 5927).
    pub hard_errors_abort: bool,
    /// Every super-segment that the device cuts carries PSH, as Linux's do, so that a receiver that coalesces segments
    /// delivers each one as a whole. Off, PSH is set only at the end of the data.
    pub push_super_segments: bool,
    /// Segments of established connections take the fast lane (`lane.rs`) where nothing rare is going on. Off, all take
    /// the general code, with the same effects: for tests and measurements.
    pub fast_lane: bool,
    /// Leave the checksum to the device (`Meta::checksum` is `Partial`).
    pub tx_checksum_offload: bool,
    /// Where received checksums are checked.
    pub checksum_placement: ChecksumPlacement,
    /// The stack whose order of options is used.
    pub option_order: OptionOrder,
    /// How the receive window is chosen.
    pub window_rule: WindowRule,
    /// When listeners answer with SYN cookies.
    pub syn_cookies: SynCookies,
    /// How explicit congestion notification is negotiated.
    pub ecn: Ecn,
    /// When the counters of accurate ECN are sent.
    pub ecn_option: EcnOption,
    /// The counters of accurate ECN are sent at least so many times in a round trip, if as many acknowledgements are sent,
    /// with data or without (RFC 9768 section 3.2.3.3, which asks for three). 0: no such rule.
    pub ecn_option_beacon: u8,
    /// A SYN that is not answered is sent again without the request for ECN (RFC 3168 section 6.1.1.1).
    pub ecn_fallback: bool,
    /// Acknowledgements without data are sent as capable of ECN on connections with accurate ECN
    /// (draft-ietf-tcpm-generalized-ecn section 3.2.3, "ECN++").
    pub ecn_pure_acks: bool,
    /// Fast Open.
    pub fast_open: FastOpenMode,
    /// A destination that left a SYN with Fast Open unanswered is sent none for this time, which doubles with each
    /// further failure: the path may drop such SYNs (RFC 7413 sections 4.1.3.1 and 7.1). 0: the next SYN has the option
    /// again.
    pub fast_open_black_hole_timeout: Duration,
}

impl Default for Config {
    /// [`crate::Profile::Linux`].
    fn default() -> Self {
        Config {
            receive_buffer: BufferSizes { min: 2 << 10, initial: 64 << 10, max: 3 << 20 },
            receive_share: DataShare::HALF,
            send_buffer: BufferSizes { min: 4 << 10, initial: 256 << 10, max: 4 << 20 },
            send_accounting: SendAccounting::Runs { overhead: 1280 },
            send_low_water: None,
            send_whole: false,
            rto: RttConfig::default(),
            congestion: Kind::Cubic,
            initial_window: 10,
            initial_window_bytes: u32::MAX,
            timestamps: true,
            strict_timestamps: false,
            paws_window: 1,
            window_scaling: true,
            sack: true,
            dsack: true,
            syn_backlog: 4096,
            fast_open_keys: FastOpenKeys::default(),
            slow_start_after_idle: true,
            recovery: 1,
            cubic_cuts_window: true,
            tail_loss_probe: true,
            frto: 2,
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.3
            //# in particular, the delay MUST be less than 0.5 seconds (MUST-40).
            delayed_ack: Duration::from_millis(40),
            delayed_ack_max: Duration::from_millis(200),
            peer_ack_delay: Duration::from_millis(200),
            quick_acks: 16,
            delay_fin_acks: true,
            cork_timeout: Duration::from_millis(200),
            time_wait: Duration::from_secs(60),
            fin_wait_2: Duration::from_secs(60),
            syn_retries: 6,
            syn_linear_timeouts: 0,
            syn_ack_retries: 5,
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
            //# The value of R1 SHOULD correspond to at least 3 retransmissions, at the current RTO (SHLD-10).
            suspicious_retries: 3,
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
            //# The value of R2 SHOULD correspond to at least 100 seconds (SHLD-11).
            retries: 15,
            orphan_retries: 0,
            keep_alive: KeepAlive::default(),
            //= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
            //# Consequently, the lower limit (L_LIMIT) SHOULD be set to at least 100 seconds when following the
            //# RECOMMENDED scheme described in this section.
            user_timeout_limits: (Duration::from_secs(100), Duration::from_secs(3600)),
            max_orphans: 65_536,
            max_time_wait: 262_144,
            reuse_time_wait: 2,
            challenge_ack_interval: Duration::from_millis(500),
            min_mss: 216,
            mtu_probing: MtuProbing::Off,
            base_mss: 1024,
            trust_route_mtu: true,
            mtu_probe_floor: 48,
            mtu_probe_threshold: 8,
            mtu_probe_interval: Duration::from_secs(600),
            pacing: Pacing { on: false, slow_start: 200, avoidance: 120 },
            not_sent_low_water: u32::MAX,
            receive_growth: true,
            memory: None,
            measure_limits: false,
            reset_on_timeout: false,
            hard_errors_abort: false,
            push_super_segments: false,
            fast_lane: true,
            tx_checksum_offload: false,
            checksum_placement: ChecksumPlacement::Before,
            option_order: OptionOrder::Linux,
            window_rule: WindowRule::Linux,
            syn_cookies: SynCookies::default(),
            ecn: Ecn::default(),
            ecn_option: EcnOption::default(),
            ecn_option_beacon: 3,
            ecn_fallback: true,
            ecn_pure_acks: false,
            fast_open: FastOpenMode::default(),
            fast_open_black_hole_timeout: Duration::from_secs(60),
        }
    }
}

impl Config {
    /// Limits of the memory of the buffers of all connections.
    #[inline]
    pub fn memory_limits(&self) -> MemoryLimits {
        self.memory.unwrap_or(MemoryLimits::UNLIMITED)
    }

    /// May an active open take over this tuple in TIME-WAIT, if timestamps allow it?
    pub fn reclaims_time_wait(&self, tuple: &FourTuple) -> bool {
        match self.reuse_time_wait {
            0 => false,
            1 => true,
            _ => tuple.local_addr.is_loopback() || tuple.remote_addr.is_loopback(),
        }
    }

    /// Shift with which our windows are scaled: the least that lets 16 bits express the memory of the largest receive
    /// buffer, at most 14 (RFC 7323 section 2.3).
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
    //# Thus, the shift count MUST be limited to 14 (which allows windows of 2^30 = 1 GiB).
    pub fn window_shift(&self) -> u8 {
        let largest = self.receive_share.memory(self.receive_buffer.max);
        (u32::BITS - largest.leading_zeros()).saturating_sub(u16::BITS).min(14) as u8
    }
}

/// Options of one connection; `None` means the stack's [`Config`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Send small segments at once (no Nagle).
    pub no_delay: bool,
    /// Hold partial segments back until uncorked or for [`Config::cork_timeout`].
    pub cork: bool,
    /// Probe an idle peer.
    pub keep_alive: Option<KeepAlive>,
    /// Fixed send buffer in bytes; switches its growth off.
    pub send_buffer: Option<u32>,
    /// Fixed receive buffer in bytes of data; switches its growth off.
    pub receive_buffer: Option<u32>,
    /// Congestion control.
    pub congestion: Option<Kind>,
    /// Upper bound of the MSS that we announce and use.
    pub max_segment: Option<u16>,
    /// The MSS that we announce, in bytes, but no more than `max_segment`; segments sent may be larger or smaller. The
    /// caller that sets it must ensure that the link takes as much (RFC 9293, MUST-67). `None`: as much as the path
    /// carries.
    pub announced_mss: Option<u16>,
    /// Initial congestion window in segments; 0 counts as `None`.
    pub initial_window: Option<u8>,
    /// Upper bound of the window of our SYN, in segments of the MSS that we announce.
    pub initial_receive_window: Option<u16>,
    /// Upper bound of the window that we announce, in bytes.
    pub window_clamp: Option<u32>,
    /// Time without progress after which the connection is given up (USER_TIMEOUT of RFC 5482).
    pub user_timeout: Option<Duration>,
    /// The user time-out that is advertised, 1 s to 32 767 min (ADV_UTO of RFC 5482); the peer's is adopted in turn,
    /// unless `user_timeout` is set. `None`, or a value out of range: nothing is advertised, and the peer's is ignored.
    pub announced_user_timeout: Option<Duration>,
    /// How long close waits for unsent data; `Some(0)` resets the connection.
    pub linger: Option<Duration>,
    /// Longest stay in FIN-WAIT-2 after close.
    pub fin_wait_2: Option<Duration>,
    /// Retransmissions of the SYN before an active open fails.
    pub syn_retries: Option<u8>,
    /// Bytes of data that make the connection readable; at least 1.
    pub receive_low_water: Option<u32>,
    /// Data that may wait unsent before a writer counts as blocked, in bytes.
    pub not_sent_low_water: Option<u32>,
    /// Upper bound of the pacing rate in bytes per second; switches pacing on.
    pub max_pacing_rate: Option<u64>,
    /// Differentiated Services field of packets sent, in the high six bits; the low two are not used.
    pub traffic_class: u8,
    /// Time to live or hop limit of packets sent, 1 to 255; `None`: IP's default.
    pub hop_limit: Option<u8>,
}

/// Parameters of an active open (RFC 9293 section 3.10.1). The secrets come from outside: this crate draws no
/// randomness.
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
    /// Largest segment data that the route carries, in bytes: MTU - IP header - 20.
    pub mss: u16,
    /// Options of this connection.
    pub options: ConnectionOptions,
}

/// Parameters that a listener passes to each child (RFC 9293 section 3.10.7.2).
#[derive(Clone, Copy, Debug)]
pub struct ListenParams<'o> {
    /// Largest segment data that the route carries, in bytes: MTU - IP header - 20.
    pub mss: u16,
    /// Options that children inherit.
    pub options: &'o ConnectionOptions,
    /// Number of SYN-ACK time-outs before a bare acknowledgement opens the connection; until then only data does
    /// (`TCP_DEFER_ACCEPT`). 0: every acknowledgement does.
    pub defer_accept: u8,
}

/// The number of SYN-ACK time-outs in `time`, if the first is one second and each doubles: how `TCP_DEFER_ACCEPT`
/// counts seconds.
pub fn time_outs_in(time: Duration, config: &Config) -> u8 {
    let (mut count, mut spent, mut next) = (0, Duration::ZERO, config.rto.initial_rto.max(Duration::from_millis(1)));
    while spent < time && count < u8::MAX {
        count += 1;
        spent += next;
        next = (next * 2).min(config.rto.max_rto);
    }
    count
}
