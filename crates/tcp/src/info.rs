//! `TCP_INFO`: a connection's report in the layout of Linux's `struct tcp_info` (6.18: 280 bytes), for programs and
//! scripts that expect it.
//!
//! The struct is declared once, by a macro that also writes it byte by byte, so that no `unsafe` is needed. Fields
//! without a meaning here (`rehash`, forward acknowledgement) are 0. Linux counts the flight in segments where we count
//! bytes: such fields are bytes divided by the MSS, rounded up.

use core::time::Duration;

use crate::config::Config;
use crate::congestion::MAX_WINDOW;
use crate::ecn::EcnMode;
use crate::event::{RecoveryState, StatusReport};
use crate::pcb::TIMESTAMPS_LEN;
use crate::state::State;

/// Length of Linux 6.18's `struct tcp_info`.
pub const TCP_INFO_LEN: usize = 280;

macro_rules! tcp_info {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        /// See the head of the file. Numbers are in the machine's byte order, times in microseconds unless said
        /// otherwise.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct TcpInfo {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl TcpInfo {
            /// The bytes that `getsockopt` would copy out.
            pub fn to_bytes(&self) -> [u8; TCP_INFO_LEN] {
                let mut bytes = [0; TCP_INFO_LEN];
                let mut rest = &mut bytes[..];
                $(
                    let (field, after) = rest.split_at_mut(size_of::<$type>());
                    field.copy_from_slice(&self.$name.to_ne_bytes());
                    rest = after;
                )*
                debug_assert!(rest.is_empty());
                bytes
            }

            /// Every field by Linux's name (without `tcpi_`) and its value; bit fields separately.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), u64::from(self.$name)),)*].into_iter()
            }

            /// Bytes before each field, in order.
            #[cfg(test)]
            fn offsets() -> Vec<(&'static str, usize)> {
                vec![$((stringify!($name), core::mem::offset_of!(TcpInfo, $name)),)*]
            }
        }
    };
}

impl TcpInfo {
    /// The report of a socket that is not connected, as on Linux: its state, and the initial values of a connection.
    pub fn of_idle(config: &Config) -> TcpInfo {
        TcpInfo {
            state: linux_state(State::Closed),
            rto: config.rto.initial_rto.as_micros() as u32,
            snd_mss: 536,
            snd_ssthresh: NO_THRESHOLD,
            ..TcpInfo::of_none(config)
        }
    }

    /// The report of a listener: `unacked` is the number of connections that wait to be accepted, `sacked` its backlog.
    pub fn of_listener(waiting: usize, backlog: usize, config: &Config) -> TcpInfo {
        let counted = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        TcpInfo {
            state: linux_state(State::Listen),
            unacked: counted(waiting),
            sacked: counted(backlog),
            ..TcpInfo::of_none(config)
        }
    }

    /// The fields common to both.
    fn of_none(config: &Config) -> TcpInfo {
        TcpInfo {
            snd_cwnd: u32::from(config.initial_window),
            reordering: 3,
            pacing_rate: u64::MAX,
            max_pacing_rate: u64::MAX,
            ..TcpInfo::default()
        }
    }
}

tcp_info! {
    /// State, numbered as Linux does (ESTABLISHED is 1).
    state: u8,
    /// Congestion state: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    ca_state: u8,
    /// Time-outs of the first unacknowledged segment.
    retransmits: u8,
    /// Window probes without an answer.
    probes: u8,
    /// Exponent of the RTO's back-off.
    backoff: u8,
    /// `TCPI_OPT_*`: 1 timestamps, 2 SACK, 4 window scale, 8 ECN, 16 ECN seen, 32 data in SYN accepted.
    options: u8,
    /// Shift of the peer's window (low four bits) and of ours (high four).
    wscale: u8,
    /// Bit 0: the delivery rate was limited by the application; bits 1 and 2: why Fast Open failed.
    flags: u8,
    /// Retransmission time-out.
    rto: u32,
    /// Delay of acknowledgements; 0 until data has arrived.
    ato: u32,
    /// Data of a segment of ours, bytes.
    snd_mss: u32,
    /// Data of a segment of the peer's, bytes, as far as seen.
    rcv_mss: u32,
    /// Segments sent and not acknowledged.
    unacked: u32,
    /// Of these, SACKed.
    sacked: u32,
    /// Of these, lost, sent again or not.
    lost: u32,
    /// Of these, sent again.
    retrans: u32,
    /// Always 0, as in Linux today.
    fackets: u32,
    /// Milliseconds since data was sent.
    last_data_sent: u32,
    /// Always 0, as in Linux.
    last_ack_sent: u32,
    /// Milliseconds since data arrived.
    last_data_recv: u32,
    /// Milliseconds since an acknowledgement arrived.
    last_ack_recv: u32,
    /// Path MTU, bytes.
    pmtu: u32,
    /// Limit of our window's growth, bytes.
    rcv_ssthresh: u32,
    /// Smoothed round-trip time.
    rtt: u32,
    /// Its variation.
    rttvar: u32,
    /// Slow-start threshold, segments; 0x7fff_ffff for none.
    snd_ssthresh: u32,
    /// Congestion window, segments.
    snd_cwnd: u32,
    /// MSS that we announced, less the timestamps of every segment, bytes: the data that we expect in one.
    advmss: u32,
    /// Reordering, segments.
    reordering: u32,
    /// The receiver's estimate of the round-trip time.
    rcv_rtt: u32,
    /// Receive buffer space by which growth is decided, bytes.
    rcv_space: u32,
    /// Segments sent again, in all.
    total_retrans: u32,
    /// Pacing rate, bytes per second; all ones for none.
    pacing_rate: u64,
    /// Largest pacing rate that the user allows.
    max_pacing_rate: u64,
    /// Bytes acknowledged (RFC 4898 tcpEStatsAppHCThruOctetsAcked).
    bytes_acked: u64,
    /// Bytes received in order (tcpEStatsAppHCThruOctetsReceived).
    bytes_received: u64,
    /// Segments sent.
    segs_out: u32,
    /// Segments received.
    segs_in: u32,
    /// Bytes queued and never sent.
    notsent_bytes: u32,
    /// Smallest round-trip time; all ones before the first sample.
    min_rtt: u32,
    /// Segments received with data.
    data_segs_in: u32,
    /// Segments sent with data.
    data_segs_out: u32,
    /// Rate of delivery, bytes per second.
    delivery_rate: u64,
    /// Time with data to send.
    busy_time: u64,
    /// Of this, limited by the peer's window.
    rwnd_limited: u64,
    /// Of this, limited by the send buffer.
    sndbuf_limited: u64,
    /// Segments delivered.
    delivered: u32,
    /// Of these, with a mark of congestion.
    delivered_ce: u32,
    /// Bytes of data sent, again or not.
    bytes_sent: u64,
    /// Bytes of data sent again.
    bytes_retrans: u64,
    /// D-SACK blocks received.
    dsack_dups: u32,
    /// Times that reordering was seen.
    reord_seen: u32,
    /// Segments received out of order.
    rcv_ooopack: u32,
    /// The peer's window, bytes.
    snd_wnd: u32,
    /// Our window, bytes.
    rcv_wnd: u32,
    /// Always 0: flow labels are not changed.
    rehash: u32,
    /// Retransmission time-outs.
    total_rto: u16,
    /// Recoveries after a time-out.
    total_rto_recoveries: u16,
    /// Milliseconds in such recoveries.
    total_rto_time: u32,
    /// Segments received with a mark of congestion (RFC 9768).
    received_ce: u32,
    /// Bytes delivered with ECT(1), by the peer's count.
    delivered_e1_bytes: u32,
    /// The same with ECT(0).
    delivered_e0_bytes: u32,
    /// The same with CE.
    delivered_ce_bytes: u32,
    /// Bytes received with ECT(1).
    received_e1_bytes: u32,
    /// The same with ECT(0).
    received_e0_bytes: u32,
    /// The same with CE.
    received_ce_bytes: u32,
    /// Why accurate ECN was given up.
    accecn_fail_mode: u16,
    /// AccECN options seen.
    accecn_opt_seen: u16,
}

/// `TCPI_OPT_TIMESTAMPS`.
pub const OPTION_TIMESTAMPS: u8 = 1;
/// `TCPI_OPT_SACK`.
pub const OPTION_SACK: u8 = 2;
/// `TCPI_OPT_WSCALE`.
pub const OPTION_WINDOW_SCALE: u8 = 4;
/// `TCPI_OPT_ECN`.
pub const OPTION_ECN: u8 = 8;
/// `TCPI_OPT_ECN_SEEN`.
pub const OPTION_ECN_SEEN: u8 = 16;
/// `TCPI_OPT_SYN_DATA`.
pub const OPTION_DATA_ON_SYN: u8 = 32;

/// Bit of [`TcpInfo::flags`]: the user limited the rate of delivery.
const RATE_LIMITED: u8 = 1;
/// First bit in [`TcpInfo::flags`] of the reason why Fast Open failed.
const FAST_OPEN_FAILURE_SHIFT: u8 = 1;

/// `TCP_ACCECN_OPT_COUNTER_SEEN`.
const ACCECN_COUNTERS_SEEN: u16 = 2;

/// No slow-start threshold yet.
const NO_THRESHOLD: u32 = 0x7fff_ffff;

impl TcpInfo {
    /// `report` in Linux's form.
    pub fn of(report: &StatusReport) -> TcpInfo {
        let mut info = TcpInfo { state: linux_state(report.state), ..TcpInfo::default() };
        info.negotiated(report);
        info.sender(report);
        info.receiver(report);
        info.traffic(report);
        info.marks(report);
        info
    }

    fn negotiated(&mut self, report: &StatusReport) {
        let bit = |on: bool, bit: u8| if on { bit } else { 0 };
        self.options = bit(report.timestamps, OPTION_TIMESTAMPS)
            | bit(report.sack, OPTION_SACK)
            | bit(report.window_scaling, OPTION_WINDOW_SCALE)
            | bit(report.ecn != EcnMode::Off, OPTION_ECN)
            | bit(report.marks.seen, OPTION_ECN_SEEN)
            | bit(report.data_on_syn, OPTION_DATA_ON_SYN);
        self.flags = bit(report.traffic.rate.limited, RATE_LIMITED)
            | report.fast_open_failure.map_or(0, |failure| failure as u8) << FAST_OPEN_FAILURE_SHIFT;
        self.wscale = report.send_shift & 15 | report.receive_shift << 4;
        self.snd_mss = report.mss.into();
        self.advmss = report.announced_mss.saturating_sub(if report.timestamps { TIMESTAMPS_LEN } else { 0 }).into();
        self.pmtu = report.path_mtu;
    }

    fn sender(&mut self, report: &StatusReport) {
        let mss = u32::from(report.mss.max(1));
        self.ca_state = match report.recovery {
            RecoveryState::Open => 0,
            RecoveryState::Disorder => 1,
            RecoveryState::Reduced => 2,
            RecoveryState::Recovery => 3,
            RecoveryState::Loss => 4,
        };
        self.sacked = report.sacked.div_ceil(mss);
        self.lost = report.lost_in_all.div_ceil(mss);
        self.retrans = report.resent.div_ceil(mss);
        self.total_retrans = report.total_retransmits;
        self.dsack_dups = report.duplicates_reported;
        self.reord_seen = report.reorderings_seen;
        self.retransmits = report.retransmits;
        self.probes = report.probes;
        self.backoff = report.backoff;
        self.rto = micros(report.rto);
        self.rtt = report.srtt.map_or(0, micros);
        self.rttvar = report.rttvar.map_or(0, micros);
        self.unacked = report.unacknowledged.div_ceil(mss);
        self.snd_cwnd = report.cwnd / mss;
        self.snd_ssthresh = if report.ssthresh >= MAX_WINDOW { NO_THRESHOLD } else { report.ssthresh / mss };
        self.snd_wnd = report.send_window;
        self.notsent_bytes = report.send_queue.saturating_sub(report.unacknowledged);
        self.reordering = report.reordering;
        self.min_rtt = report.min_rtt.map_or(u32::MAX, micros);
        self.pacing_rate = report.pacing_rate.unwrap_or(u64::MAX);
        self.max_pacing_rate = report.max_pacing_rate.unwrap_or(u64::MAX);
    }

    fn receiver(&mut self, report: &StatusReport) {
        self.ato = if report.traffic.data_segments_in > 0 { micros(report.delayed_ack) } else { 0 };
        self.rcv_mss = report.peer_segment.into();
        self.rcv_wnd = report.announced_window;
        self.rcv_ssthresh = report.receive_buffer;
        self.rcv_rtt = micros(report.receive_rtt);
        self.rcv_space = report.receive_space;
    }

    fn traffic(&mut self, report: &StatusReport) {
        let traffic = &report.traffic;
        self.last_data_sent = millis(traffic.since_data_sent);
        self.last_data_recv = millis(traffic.since_data_received);
        self.last_ack_recv = millis(traffic.since_heard);
        self.segs_in = traffic.segments_in;
        self.segs_out = traffic.segments_out;
        self.data_segs_in = traffic.data_segments_in;
        self.data_segs_out = traffic.data_segments_out;
        self.bytes_acked = traffic.bytes_acked;
        self.bytes_received = traffic.bytes_received;
        self.bytes_sent = traffic.bytes_sent;
        self.bytes_retrans = traffic.bytes_again;
        self.delivered = traffic.segments_delivered;
        self.delivery_rate = traffic.rate.per_second();
        self.rcv_ooopack = traffic.out_of_order;
        self.total_rto = traffic.timeouts;
        self.total_rto_recoveries = traffic.timeout_recoveries;
        self.total_rto_time = millis(traffic.in_timeouts);
        self.busy_time = report.limited.busy.as_micros() as u64;
        self.rwnd_limited = report.limited.window.as_micros() as u64;
        self.sndbuf_limited = report.limited.buffer.as_micros() as u64;
    }
}

impl TcpInfo {
    fn marks(&mut self, report: &StatusReport) {
        let marks = &report.marks;
        self.delivered_ce = marks.delivered_ce;
        if marks.mode == EcnMode::Accurate {
            self.received_ce = marks.received_ce;
            [self.received_e0_bytes, self.received_ce_bytes, self.received_e1_bytes] = marks.received_bytes;
            [self.delivered_e0_bytes, self.delivered_ce_bytes, self.delivered_e1_bytes] = marks.delivered_bytes;
            self.accecn_opt_seen = if marks.option_seen { ACCECN_COUNTERS_SEEN } else { 0 };
        }
    }
}

/// In whole microseconds, as far as 32 bits go.
fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// In milliseconds, to the nearest: rounding down could lose a whole one to the clock's granularity.
fn millis(time: Duration) -> u32 {
    u32::try_from((time + Duration::from_micros(500)).as_millis()).unwrap_or(u32::MAX)
}

/// The numbers of Linux's `TCP_*` states.
pub const fn linux_state(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Listen => 10,
        State::Closing => 11,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets of `struct tcp_info` in Linux's `include/uapi/linux/tcp.h`, version 6.18.
    #[test]
    fn the_layout_is_linuxs() {
        let expected = [
            ("state", 0),
            ("options", 5),
            ("wscale", 6),
            ("flags", 7),
            ("rto", 8),
            ("snd_mss", 16),
            ("unacked", 24),
            ("lost", 32),
            ("fackets", 40),
            ("last_data_sent", 44),
            ("last_ack_recv", 56),
            ("pmtu", 60),
            ("rtt", 68),
            ("snd_ssthresh", 76),
            ("snd_cwnd", 80),
            ("reordering", 88),
            ("rcv_space", 96),
            ("total_retrans", 100),
            ("pacing_rate", 104),
            ("max_pacing_rate", 112),
            ("bytes_acked", 120),
            ("bytes_received", 128),
            ("segs_out", 136),
            ("notsent_bytes", 144),
            ("min_rtt", 148),
            ("data_segs_in", 152),
            ("delivery_rate", 160),
            ("busy_time", 168),
            ("rwnd_limited", 176),
            ("sndbuf_limited", 184),
            ("delivered", 192),
            ("delivered_ce", 196),
            ("bytes_sent", 200),
            ("bytes_retrans", 208),
            ("dsack_dups", 216),
            ("reord_seen", 220),
            ("rcv_ooopack", 224),
            ("snd_wnd", 228),
            ("rcv_wnd", 232),
            ("rehash", 236),
            ("total_rto", 240),
            ("total_rto_recoveries", 242),
            ("total_rto_time", 244),
            ("received_ce", 248),
            ("delivered_e1_bytes", 252),
            ("received_ce_bytes", 272),
            ("accecn_fail_mode", 276),
            ("accecn_opt_seen", 278),
        ];
        let offsets = TcpInfo::offsets();
        for (name, offset) in expected {
            assert!(offsets.contains(&(name, offset)), "{name} is not at {offset}");
        }
        assert_eq!(size_of::<TcpInfo>(), TCP_INFO_LEN);
    }

    /// Bytes written one field after the other lie where the compiler lays the fields out: there is no padding.
    #[test]
    fn bytes_are_the_structs() {
        let info = TcpInfo {
            state: 1,
            wscale: 0x87,
            snd_cwnd: 0x0102_0304,
            bytes_acked: 0x1122_3344_5566_7788,
            total_rto: 0xabcd,
            accecn_opt_seen: 0x1234,
            ..TcpInfo::default()
        };
        let bytes = info.to_bytes();
        assert_eq!((bytes[0], bytes[6]), (1, 0x87));
        assert_eq!(bytes[80..84], 0x0102_0304_u32.to_ne_bytes());
        assert_eq!(bytes[120..128], 0x1122_3344_5566_7788_u64.to_ne_bytes());
        assert_eq!(bytes[240..242], 0xabcd_u16.to_ne_bytes());
        assert_eq!(bytes[278..280], 0x1234_u16.to_ne_bytes());
        assert_eq!(info.fields().count(), 68);
    }
}
