//! Socket options: Linux's numbers onto the connection's options.

use std::collections::BTreeMap;
use std::time::Duration;

use tcp::SocketOption;
use tcp::config::{Config, ConnectionOptions, KeepAlive, time_outs_in};
use tcp::congestion::Kind;

use sync::Platform;

use crate::tcp_socket::Stage;
use crate::{Errno, Object, Sockets};

pub(crate) const SIOCINQ: u64 = 0x541b;
pub(crate) const SIOCOUTQ: u64 = 0x5411;
pub(crate) const SIOCOUTQNSD: u64 = 0x894b;
/// Not in every libc.
pub(crate) const TCP_INQ: i32 = 36;

/// Linux's smallest send buffer: two segments with what they cost.
const LEAST_SEND_BUFFER: u32 = 4608;

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// A number.
    Int(i64),
    /// A name, or octets.
    Octets(Vec<u8>),
    /// `struct linger`: whether, and seconds.
    Linger(bool, u32),
}

/// What was set on a socket, for the connection that it becomes and for its children.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    /// In the order in which they were set.
    pub(crate) set: Vec<SocketOption>,
    /// What `getsockopt` answers where no connection knows better.
    values: BTreeMap<(i32, i32), OptionValue>,
    pub(crate) free_bind: bool,
}

/// Options that are kept and have no effect: the stack does what they ask for anyway, or it makes no difference here.
const KEPT: [(i32, i32); 15] = [
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

const KNOWN: [(i32, i32); 32] = [
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_KEY),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::SOL_SOCKET, libc::SO_ERROR),
    (libc::SOL_SOCKET, libc::SO_TYPE),
    (libc::SOL_SOCKET, libc::SO_DOMAIN),
    (libc::SOL_SOCKET, libc::SO_PROTOCOL),
    (libc::SOL_SOCKET, libc::SO_ACCEPTCONN),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_MAXSEG),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_QUICKACK),
    (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
    (libc::IPPROTO_TCP, libc::TCP_INFO),
    (libc::IPPROTO_TCP, libc::TCP_SYNCNT),
    (libc::IPPROTO_TCP, libc::TCP_LINGER2),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
];

/// Whether this layer has the option.
pub fn is_known(level: i32, name: i32) -> bool {
    KEPT.contains(&(level, name)) || KNOWN.contains(&(level, name))
}

impl<P: Platform> Sockets<P> {
    /// `setsockopt(2)`.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for an option that is not known, `EINVAL` for a value out of range, `ENOENT` for a congestion
    /// control that is not known.
    pub fn set_option(&mut self, fd: i32, level: i32, name: i32, value: &OptionValue) -> Result<(), Errno> {
        let stack = self.stack.clone();
        let Object::Tcp(sock) = &mut self.file(fd)?.object else {
            return if is_known(level, name) { Ok(()) } else { Err(Errno::ENOPROTOOPT) };
        };
        if level == libc::IPPROTO_TCP
            && let Some(done) = sock.set_fast_open(&stack, name, value)
        {
            return done;
        }
        let option = sock.settings.read(level, name, value)?;
        if let (libc::SOL_SOCKET, libc::SO_TIMESTAMPING, OptionValue::Int(flags)) = (level, name, value) {
            sock.want_stamps(&stack, *flags as u32);
        }
        sock.settings.values.insert((level, name), stored(level, name, value));
        let Some(option) = option else { return Ok(()) };
        sock.settings.set.push(option);
        match &sock.stage {
            Stage::Stream(stream) => stream.set(&stack, option),
            _ => sock.listen_again(&stack),
        }
    }

    /// `getsockopt(2)`.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for an option that is not known.
    pub fn get_option(&mut self, fd: i32, level: i32, name: i32) -> Result<OptionValue, Errno> {
        if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) {
            return Ok(OptionValue::Octets(self.tcp_info(fd)?.to_bytes()));
        }
        let stack = self.stack.clone();
        let int = |value: i64| Ok(OptionValue::Int(value));
        let sock = match &mut self.file(fd)?.object {
            Object::Tcp(sock) => sock,
            Object::Udp(_) if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) => return int(0),
            _ => return Err(Errno::ENOTSOCK),
        };
        match (level, name, &mut sock.stage) {
            (libc::SOL_SOCKET, libc::SO_ERROR, Stage::Stream(stream)) => {
                return int(stream.take_error(&stack).map_or(0, |error| i64::from(error.0)));
            }
            (libc::SOL_SOCKET, libc::SO_DOMAIN, _) => {
                return int(i64::from(if sock.is_v6() { libc::AF_INET6 } else { libc::AF_INET }));
            }
            (libc::SOL_SOCKET, libc::SO_TYPE, _) => return int(i64::from(libc::SOCK_STREAM)),
            (libc::SOL_SOCKET, libc::SO_PROTOCOL, _) => return int(i64::from(libc::IPPROTO_TCP)),
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN, stage) => {
                return int(i64::from(matches!(stage, Stage::Listener(_))));
            }
            (libc::SOL_SOCKET, libc::SO_INCOMING_CPU, Stage::Stream(stream)) => {
                let driver = stack.driver_of(&stream.socket.flow()).and_then(|driver| i64::try_from(driver).ok());
                return int(driver.unwrap_or(-1));
            }
            _ => {}
        }
        let kept = sock.settings.values.get(&(level, name)).cloned();
        let report = match &sock.stage {
            Stage::Stream(stream) => stream.status(&stack),
            _ => None,
        };
        if let Some(report) = report
            && let Some(value) = live((level, name), &report.options, kept.as_ref(), stack.shared().tcp())
        {
            return Ok(value);
        }
        match kept.or_else(|| default(level, name, stack.shared().tcp())) {
            Some(value) => Ok(value),
            None if is_known(level, name) => int(0),
            None => Err(Errno::ENOPROTOOPT),
        }
    }
}

/// What a connection says of an option.
fn live(
    option: (i32, i32),
    options: &tcp::OptionValues,
    kept: Option<&OptionValue>,
    config: &Config,
) -> Option<OptionValue> {
    let number = match option {
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => options.max_segment.into(),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => options.no_delay.into(),
        (libc::IPPROTO_TCP, libc::TCP_CORK) => options.cork.into(),
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => options.quick_ack.into(),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => options.keep_alive.idle.as_secs() as i64,
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => options.keep_alive.interval.as_secs() as i64,
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => options.keep_alive.probes.into(),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => options.user_timeout.as_millis() as i64,
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => options.syn_retries.into(),
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) => options.fin_wait_2.as_secs() as i64,
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => options.keeps_alive.into(),
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => options.receive_low_water.into(),
        // What was asked for is answered doubled; what has grown by itself is answered as it is.
        (libc::SOL_SOCKET, libc::SO_SNDBUF) if kept.is_none() => options.send_buffer.into(),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) if kept.is_none() => {
            config.receive_share.memory(options.receive_buffer).into()
        }
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            let linger = options.linger;
            return Some(OptionValue::Linger(linger.is_some(), linger.map_or(0, |time| time.as_secs() as u32)));
        }
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => return Some(OptionValue::Octets(kind_name(options.congestion))),
        _ => return None,
    };
    Some(OptionValue::Int(number))
}

/// What a socket without a connection says of an option that nobody set.
fn default(level: i32, name: i32, config: &Config) -> Option<OptionValue> {
    let number = match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => 536,
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => config.keep_alive.idle.as_secs() as i64,
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => config.keep_alive.interval.as_secs() as i64,
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => config.keep_alive.probes.into(),
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => config.syn_retries.into(),
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) => config.fin_wait_2.as_secs() as i64,
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => config.send_buffer.initial.into(),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => config.receive_share.memory(config.receive_buffer.initial).into(),
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => 1,
        // No processor yet.
        (libc::SOL_SOCKET, libc::SO_INCOMING_CPU) => -1,
        (libc::SOL_SOCKET, libc::SO_LINGER) => return Some(OptionValue::Linger(false, 0)),
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => return Some(OptionValue::Octets(kind_name(config.congestion))),
        _ => return None,
    };
    Some(OptionValue::Int(number))
}

fn kind_name(kind: Kind) -> Vec<u8> {
    if kind == Kind::Cubic { b"cubic".to_vec() } else { b"reno".to_vec() }
}

/// What `getsockopt` answers afterwards: Linux doubles buffer sizes, for its own overhead.
fn stored(level: i32, name: i32, value: &OptionValue) -> OptionValue {
    match (level, name, value) {
        (libc::SOL_SOCKET, libc::SO_SNDBUF, OptionValue::Int(octets)) => {
            OptionValue::Int(octets.saturating_mul(2).max(LEAST_SEND_BUFFER.into()))
        }
        (libc::SOL_SOCKET, libc::SO_RCVBUF, OptionValue::Int(octets)) => OptionValue::Int(octets.saturating_mul(2)),
        _ => value.clone(),
    }
}

impl Settings {
    /// The connection's option that says what the user said; `None` if it is only kept.
    fn read(&mut self, level: i32, name: i32, value: &OptionValue) -> Result<Option<SocketOption>, Errno> {
        if level == libc::SOL_SOCKET && name == libc::SO_LINGER {
            let OptionValue::Linger(on, seconds) = *value else { return Err(Errno::EINVAL) };
            return Ok(Some(SocketOption::Linger(on.then(|| Duration::from_secs(seconds.into())))));
        }
        if level == libc::IPPROTO_TCP && name == libc::TCP_CONGESTION {
            let OptionValue::Octets(kind) = value else { return Err(Errno::EINVAL) };
            return match kind.as_slice() {
                b"cubic" => Ok(Some(SocketOption::Congestion(Kind::Cubic))),
                b"reno" => Ok(Some(SocketOption::Congestion(Kind::NewReno))),
                _ => Err(Errno::ENOENT),
            };
        }
        let OptionValue::Int(number) = *value else { return Err(Errno::EINVAL) };
        let on = number != 0;
        // Linux's are 32 bits: 0xffffffff and -1 are the same.
        let octets = number as u32;
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
            (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => SocketOption::WindowClamp(octets),
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
            (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => SocketOption::NotSentLowWater(octets),
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
                SocketOption::SendBuffer(octets.saturating_mul(2).max(LEAST_SEND_BUFFER))
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => SocketOption::ReceiveBuffer(octets.max(1)),
            (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => SocketOption::ReceiveLowWater(octets),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => SocketOption::KeepsAlive(on),
            (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE) => {
                SocketOption::MaxPacingRate(if octets == u32::MAX { u64::MAX } else { octets.into() })
            }
            _ if KEPT.contains(&(level, name)) => {
                self.free_bind |= on && (level, name) == (libc::IPPROTO_IP, libc::IP_FREEBIND);
                return Ok(None);
            }
            _ => return Err(Errno::ENOPROTOOPT),
        }))
    }

    /// What the connection is opened with, where the stack's parameters are `config`.
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
                SocketOption::SendBuffer(octets) => options.send_buffer = Some(octets),
                SocketOption::ReceiveBuffer(octets) => options.receive_buffer = Some(octets),
                SocketOption::Congestion(kind) => options.congestion = Some(kind),
                SocketOption::Linger(time) => options.linger = time,
                SocketOption::UserTimeout(time) => options.user_timeout = time,
                SocketOption::WindowClamp(octets) => options.window_clamp = Some(octets),
                SocketOption::MaxSegment(octets) => options.max_segment = Some(octets),
                SocketOption::FinWait2(time) => options.fin_wait_2 = time,
                SocketOption::SynRetries(retries) => options.syn_retries = Some(retries),
                SocketOption::ReceiveLowWater(octets) => options.receive_low_water = Some(octets),
                SocketOption::NotSentLowWater(octets) => options.not_sent_low_water = Some(octets).filter(|o| *o > 0),
                SocketOption::MaxPacingRate(rate) => options.max_pacing_rate = Some(rate),
                SocketOption::TrafficClass(class) => options.traffic_class = class,
                SocketOption::HopLimit(limit) => options.hop_limit = limit,
                SocketOption::AnnouncedUserTimeout(time) => options.announced_user_timeout = time,
                SocketOption::KeepAlive(_) | SocketOption::QuickAck(_) | SocketOption::ErrorReports(_) => {}
            }
        }
        options.keep_alive = keeps_alive.then_some(KeepAlive { ..timing });
        options
    }

    /// Options that only a connection has, not what it is opened with.
    pub(crate) fn live_only(&self) -> Vec<SocketOption> {
        self.set.iter().copied().filter(|option| matches!(option, SocketOption::QuickAck(_))).collect()
    }

    /// Remembers a value that no connection needs to know.
    pub(crate) fn keep(&mut self, level: i32, name: i32, value: OptionValue) {
        self.values.insert((level, name), value);
    }

    /// What was set.
    pub(crate) fn kept(&self, level: i32, name: i32) -> Option<&OptionValue> {
        self.values.get(&(level, name))
    }

    /// Time-outs of a SYN-ACK for which a listener waits for text.
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

    pub(crate) fn inherited(&self) -> Settings {
        self.clone()
    }
}
