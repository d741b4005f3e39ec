//! Reading the options of a connection: the counterpart of [`super::SetOption`].

use core::time::Duration;

use crate::access::PcbMut;
use crate::config::{Config, KeepAlive};
use crate::congestion::Kind;

/// The options of a connection, as they are in effect. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionValues {
    /// `TCP_NODELAY`.
    pub no_delay: bool,
    /// `TCP_CORK`.
    pub cork: bool,
    /// `TCP_QUICKACK`: acknowledgements are not held back for now.
    pub quick_ack: bool,
    /// `SO_KEEPALIVE`.
    pub keeps_alive: bool,
    /// `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`, whether probing is on or not.
    pub keep_alive: KeepAlive,
    /// `TCP_USER_TIMEOUT`; zero for none.
    pub user_timeout: Duration,
    /// The user time-out that is advertised (RFC 5482).
    pub announced_user_timeout: Option<Duration>,
    /// The one that the peer advertised last.
    pub peer_user_timeout: Option<Duration>,
    /// `TCP_MAXSEG`: data of a segment of ours.
    pub max_segment: u16,
    /// `TCP_WINDOW_CLAMP`; 2^30 for none.
    pub window_clamp: u32,
    /// `SO_LINGER`.
    pub linger: Option<Duration>,
    /// `TCP_LINGER2`.
    pub fin_wait_2: Duration,
    /// `TCP_SYNCNT`.
    pub syn_retries: u8,
    /// `TCP_CONGESTION`.
    pub congestion: Kind,
    /// `TCP_NOTSENT_LOWAT`; `u32::MAX` for none.
    pub not_sent_low_water: u32,
    /// `SO_RCVLOWAT`.
    pub receive_low_water: u32,
    /// `SO_MAX_PACING_RATE`; `u64::MAX` for none.
    pub max_pacing_rate: u64,
    /// `SO_SNDBUF`.
    pub send_buffer: u32,
    /// `SO_RCVBUF`.
    pub receive_buffer: u32,
    /// `IP_TOS`, `IPV6_TCLASS`, without the bits of ECN.
    pub traffic_class: u8,
    /// `IP_TTL`, `IPV6_UNICAST_HOPS`; `None` for IP's default.
    pub hop_limit: Option<u8>,
    /// Soft errors raise a readiness bit.
    pub error_reports: bool,
}

/// Read all options of a connection.
pub(super) fn read(parts: &PcbMut<'_>, config: &Config) -> OptionValues {
    let (sw, rw) = (&*parts.send_window, &*parts.receive_window);
    let settings = parts.header_in.settings.as_deref();
    let shaping = sw.shaping.as_deref();
    OptionValues {
        no_delay: sw.no_delay,
        cork: sw.hold.cork(),
        quick_ack: rw.delay.is_quick(),
        keeps_alive: settings.is_some_and(|settings| settings.keeps_alive),
        keep_alive: settings.map_or(config.keep_alive, |settings| settings.timing),
        user_timeout: parts.header_in.user_timeout(),
        announced_user_timeout: settings.and_then(|settings| settings.exchange.advertised()),
        peer_user_timeout: settings.and_then(|settings| settings.exchange.received()),
        max_segment: sw.mss,
        window_clamp: rw.clamp,
        linger: settings.and_then(|settings| settings.linger),
        fin_wait_2: settings.and_then(|settings| settings.fin_wait_2).unwrap_or(config.fin_wait_2),
        syn_retries: settings.and_then(|settings| settings.syn_retries).unwrap_or(config.syn_retries),
        congestion: sw.congestion.kind(),
        not_sent_low_water: shaping.map_or(u32::MAX, |shaping| shaping.not_sent_low_water),
        receive_low_water: rw.low_water,
        max_pacing_rate: shaping.map_or(u64::MAX, |shaping| shaping.max_rate),
        send_buffer: sw.limit,
        receive_buffer: rw.limit,
        traffic_class: parts.header_out.class(),
        hop_limit: Some(parts.header_out.hop_limit).filter(|limit| *limit != 0),
        error_reports: settings.is_none_or(|settings| !settings.silent),
    }
}
