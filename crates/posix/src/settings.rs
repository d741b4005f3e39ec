//! The options set on a TCP socket: for its future connection, for its children, and for `getsockopt`.

use std::collections::BTreeMap;
use std::time::Duration;

use tcp::SocketOption;
use tcp::config::{Config, ConnectionOptions, KeepAlive, time_outs_in};
use tcp::congestion::Kind;

use crate::Errno;
use crate::options::{OptionValue, TCP_INQ};

/// Linux's smallest send buffer: two segments with their overhead.
const LEAST_SEND_BUFFER: u32 = 4608;

/// The options set on a socket, for its future connection and for its children.
#[derive(Clone, Default)]
pub(crate) struct SocketSettings {
    /// In the order in which they were set.
    set: Vec<SocketOption>,
    /// Values for `getsockopt` that no connection overrides.
    values: BTreeMap<(i32, i32), OptionValue>,
    pub(crate) free_bind: bool,
    /// An edge-triggered watcher must be notified of every arrival of data.
    pub(crate) every_arrival: bool,
}

/// Options that are stored without effect: the stack behaves that way anyway, or they make no difference here.
pub(crate) const KEPT: [(i32, i32); 15] = [
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::SOL_SOCKET, libc::SO_ZEROCOPY),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_BUSY_POLL),
    (libc::SOL_SOCKET, libc::SO_INCOMING_CPU),
    (libc::IPPROTO_IP, libc::IP_FREEBIND),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_TCP, TCP_INQ),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
];

/// The value for later `getsockopt` calls: Linux doubles buffer sizes, for its own overhead.
fn stored(level: i32, name: i32, value: &OptionValue) -> OptionValue {
    match (level, name, value) {
        (libc::SOL_SOCKET, libc::SO_SNDBUF, OptionValue::Int(bytes)) => {
            OptionValue::Int(bytes.saturating_mul(2).max(LEAST_SEND_BUFFER.into()))
        }
        (libc::SOL_SOCKET, libc::SO_RCVBUF, OptionValue::Int(bytes)) => OptionValue::Int(bytes.saturating_mul(2)),
        _ => value.clone(),
    }
}

impl SocketSettings {
    /// Stores an option; returns the connection's equivalent option, `None` if it is only stored.
    ///
    /// # Errors
    /// `EINVAL`, `ENOENT`, `ENOPROTOOPT`.
    pub(crate) fn set(&mut self, level: i32, name: i32, value: &OptionValue) -> Result<Option<SocketOption>, Errno> {
        let option = self.read(level, name, value)?;
        self.values.insert((level, name), stored(level, name, value));
        self.set.extend(option);
        Ok(option)
    }

    fn read(&mut self, level: i32, name: i32, value: &OptionValue) -> Result<Option<SocketOption>, Errno> {
        if level == libc::SOL_SOCKET && name == libc::SO_LINGER {
            let OptionValue::Linger(on, seconds) = *value else { return Err(Errno::EINVAL) };
            return Ok(Some(SocketOption::Linger(on.then(|| Duration::from_secs(seconds.into())))));
        }
        if level == libc::IPPROTO_TCP && name == libc::TCP_CONGESTION {
            let OptionValue::Bytes(kind) = value else { return Err(Errno::EINVAL) };
            return match kind.as_slice() {
                b"cubic" => Ok(Some(SocketOption::Congestion(Kind::Cubic))),
                b"reno" => Ok(Some(SocketOption::Congestion(Kind::NewReno))),
                _ => Err(Errno::ENOENT),
            };
        }
        let OptionValue::Int(number) = *value else { return Err(Errno::EINVAL) };
        let on = number != 0;
        // Linux's are 32 bits: 0xffffffff and -1 are the same.
        let bytes = number as u32;
        let seconds =
            || u32::try_from(number).map(|seconds| Duration::from_secs(seconds.into())).map_err(|_| Errno::EINVAL);
        // Linux: 1 to 32767 seconds, 1 to 127 probes and retransmissions.
        let seconds_within = || if (1..=32767).contains(&number) { seconds() } else { Err(Errno::EINVAL) };
        let count = || u8::try_from(number).ok().filter(|n| (1..=127).contains(n)).ok_or(Errno::EINVAL);
        Ok(Some(match (level, name) {
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => SocketOption::NoDelay(on),
            (libc::IPPROTO_TCP, libc::TCP_CORK) => SocketOption::Cork(on),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                SocketOption::MaxSegment(u16::try_from(number).map_err(|_| Errno::EINVAL)?)
            }
            (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => SocketOption::QuickAck(on),
            (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => SocketOption::WindowClamp(bytes),
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
                let time = u32::try_from(number).map_err(|_| Errno::EINVAL)?;
                SocketOption::UserTimeout((time > 0).then(|| Duration::from_millis(time.into())))
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => SocketOption::KeepIdle(seconds_within()?),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => SocketOption::KeepInterval(seconds_within()?),
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => SocketOption::KeepCount(count()?),
            (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => SocketOption::SynRetries(count()?),
            // Negative: no time at all in FIN-WAIT-2; zero: the stack's.
            (libc::IPPROTO_TCP, libc::TCP_LINGER2) if number < 0 => SocketOption::FinWait2(Some(Duration::ZERO)),
            (libc::IPPROTO_TCP, libc::TCP_LINGER2) => SocketOption::FinWait2(Some(seconds()?).filter(|_| on)),
            (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => SocketOption::NotSentLowWater(bytes),
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                SocketOption::TrafficClass(u8::try_from(number).map_err(|_| Errno::EINVAL)?)
            }
            // Minus one: the stack's.
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) if number == -1 => {
                SocketOption::HopLimit(None)
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
                let limit = u8::try_from(number).ok().filter(|limit| *limit > 0).ok_or(Errno::EINVAL)?;
                SocketOption::HopLimit(Some(limit))
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
                SocketOption::SendBuffer(bytes.saturating_mul(2).max(LEAST_SEND_BUFFER))
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => SocketOption::ReceiveBuffer(bytes.max(1)),
            (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => SocketOption::ReceiveLowWater(bytes),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => SocketOption::KeepsAlive(on),
            (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE) => {
                SocketOption::MaxPacingRate(if bytes == u32::MAX { u64::MAX } else { bytes.into() })
            }
            _ if KEPT.contains(&(level, name)) => {
                self.free_bind |= on && (level, name) == (libc::IPPROTO_IP, libc::IP_FREEBIND);
                return Ok(None);
            }
            _ => return Err(Errno::ENOPROTOOPT),
        }))
    }

    /// The options that a connection is opened with; `config` has the stack's parameters.
    pub(crate) fn connection(&self, config: &Config) -> ConnectionOptions {
        let mut options = ConnectionOptions::default();
        let mut timing = config.keep_alive;
        let mut keeps_alive = false;
        for option in &self.set {
            match *option {
                SocketOption::NoDelay(on) => options.no_delay = on,
                SocketOption::Cork(on) => options.cork = on,
                SocketOption::KeepsAlive(on) => keeps_alive = on,
                SocketOption::KeepIdle(idle) => timing.idle = idle,
                SocketOption::KeepInterval(interval) => timing.interval = interval,
                SocketOption::KeepCount(probes) => timing.probes = probes,
                SocketOption::SendBuffer(bytes) => options.send_buffer = Some(bytes),
                SocketOption::ReceiveBuffer(bytes) => options.receive_buffer = Some(bytes),
                SocketOption::Congestion(kind) => options.congestion = Some(kind),
                SocketOption::Linger(time) => options.linger = time,
                SocketOption::UserTimeout(time) => options.user_timeout = time,
                SocketOption::WindowClamp(bytes) => options.window_clamp = Some(bytes),
                SocketOption::MaxSegment(bytes) => options.max_segment = Some(bytes),
                SocketOption::FinWait2(time) => options.fin_wait_2 = time,
                SocketOption::SynRetries(retries) => options.syn_retries = Some(retries),
                SocketOption::ReceiveLowWater(bytes) => options.receive_low_water = Some(bytes),
                SocketOption::NotSentLowWater(bytes) => options.not_sent_low_water = Some(bytes).filter(|o| *o > 0),
                SocketOption::MaxPacingRate(rate) => options.max_pacing_rate = Some(rate),
                SocketOption::TrafficClass(class) => options.traffic_class = class,
                SocketOption::HopLimit(limit) => options.hop_limit = limit,
                SocketOption::AnnouncedUserTimeout(time) => options.announced_user_timeout = time,
                SocketOption::KeepAlive(_)
                | SocketOption::QuickAck(_)
                | SocketOption::ErrorReports(_)
                | SocketOption::EveryArrival(_)
                | SocketOption::NotifyWritable
                | SocketOption::NotifyAcknowledged => {}
            }
        }
        options.keep_alive = keeps_alive.then_some(KeepAlive { ..timing });
        options
    }

    /// The latest `SO_LINGER`, if it is on.
    pub(crate) fn linger(&self) -> Option<Duration> {
        let time = |option: &SocketOption| if let SocketOption::Linger(time) = option { Some(*time) } else { None };
        self.set.iter().rev().find_map(time).flatten()
    }

    /// Options that apply only to an existing connection, not to its opening.
    pub(crate) fn live_only(&self) -> Vec<SocketOption> {
        let quick_acks = self.set.iter().copied().filter(|option| matches!(option, SocketOption::QuickAck(_)));
        // Data in this layer counts towards a low-water mark, but the connection does not know of it.
        let marked = self.set.iter().any(|option| matches!(option, SocketOption::ReceiveLowWater(2..)));
        quick_acks.chain((self.every_arrival || marked).then_some(SocketOption::EveryArrival(true))).collect()
    }

    /// Stores a value that no connection needs.
    pub(crate) fn keep(&mut self, level: i32, name: i32, value: OptionValue) {
        self.values.insert((level, name), value);
    }

    /// The value kept for this option, if it was set.
    pub(crate) fn kept(&self, level: i32, name: i32) -> Option<&OptionValue> {
        self.values.get(&(level, name))
    }

    /// How many time-outs of the SYN-ACK a listener waits for data.
    pub(crate) fn defer_accept(&self, config: &Config) -> u8 {
        match self.values.get(&(libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT)) {
            Some(OptionValue::Int(seconds)) if *seconds > 0 => {
                time_outs_in(Duration::from_secs(seconds.unsigned_abs()), config)
            }
            _ => 0,
        }
    }

    /// Whether a number other than 0 was set.
    pub(crate) fn is_on(&self, level: i32, name: i32) -> bool {
        matches!(self.values.get(&(level, name)), Some(OptionValue::Int(value)) if *value != 0)
    }
}
