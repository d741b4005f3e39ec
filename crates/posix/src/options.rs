//! `getsockopt` and `setsockopt`: Linux's numbers and values for the options of a socket or its connection. Values that
//! were set are kept in [`SocketSettings`](crate::settings::SocketSettings).

use std::net::Ipv4Addr;
use std::time::Duration;

use stack::Stack;
use sync::Platform;
use tcp::SocketOption;
use tcp::config::Config;
use tcp::congestion::Kind;

use crate::description::OpenObject;
use crate::groups::GroupRequest;
use crate::settings::KEPT;
use crate::tcp_socket::{Stage, TcpDescription};
use crate::{Errno, Sockets};

pub(crate) const SIOCINQ: u64 = 0x541b;
pub(crate) const SIOCOUTQ: u64 = 0x5411;
pub(crate) const SIOCOUTQNSD: u64 = 0x894b;
/// Not in every libc.
pub(crate) const TCP_INQ: i32 = 36;

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// A number.
    Int(i64),
    /// A name, or bytes.
    Bytes(Vec<u8>),
    /// `struct linger`: whether, and seconds.
    Linger(bool, u32),
    /// `struct timeval`; zero: no limit.
    Time(Duration),
    /// `struct in_addr`
    Address(Ipv4Addr),
    /// `struct ip_mreq`, `struct ip_mreqn` or `struct ipv6_mreq`
    Group(GroupRequest),
}

impl OptionValue {
    /// A `struct timeval`. With a negative time a call does not wait, as in Linux.
    ///
    /// # Errors
    /// `EDOM` if `micros` is not below a second.
    pub fn time(seconds: i64, micros: i64) -> Result<OptionValue, Errno> {
        let part = u32::try_from(micros).ok().filter(|micros| *micros < 1_000_000).ok_or(Errno::EDOM)?;
        let time = match u64::try_from(seconds) {
            Ok(seconds) => Duration::new(seconds, part * 1000),
            Err(_) => Duration::from_nanos(1),
        };
        Ok(OptionValue::Time(time))
    }
}

const KNOWN: [(i32, i32); 34] = [
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
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
    /// `EBADF`, `ENOTSOCK`; `ENOPROTOOPT` for an unknown option, `EINVAL` for a value out of range, `EDOM` for a time
    /// out of range, `ENOENT` for an unknown congestion control; for groups `ENODEV` (no such interface), `EADDRINUSE`
    /// (joined already), `EADDRNOTAVAIL` (not joined; no such address), `ENOBUFS` (too many), `EPROTO` (not a datagram
    /// socket).
    pub fn set_option(&self, fd: i32, level: i32, name: i32, value: &OptionValue) -> Result<(), Errno> {
        let file = self.file(fd)?;
        if let (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) = (level, name) {
            let OptionValue::Time(time) = *value else { return Err(Errno::EINVAL) };
            if !file.is_socket() {
                return Err(Errno::ENOTSOCK);
            }
            file.set_timeout(name == libc::SO_RCVTIMEO, time);
            return Ok(());
        }
        match &file.object {
            OpenObject::Tcp(socket) => socket.set_option(&self.stack, level, name, value),
            OpenObject::Udp(socket) => socket.set_option(&self.stack, level, name, value),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    /// `getsockopt(2)`. "SO_ERROR: Get and clear the pending socket error."
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`; `ENOPROTOOPT` for an unknown option.
    pub fn get_option(&self, fd: i32, level: i32, name: i32) -> Result<OptionValue, Errno> {
        let file = self.file(fd)?;
        if let (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO, true) = (level, name, file.is_socket()) {
            return Ok(OptionValue::Time(file.timeout(name == libc::SO_RCVTIMEO).unwrap_or_default()));
        }
        match &file.object {
            OpenObject::Tcp(_) if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                Ok(OptionValue::Bytes(self.tcp_info(fd)?.to_bytes()))
            }
            OpenObject::Tcp(socket) => socket.option(&self.stack, level, name),
            OpenObject::Udp(socket) => socket.option(&self.stack, level, name).ok_or(Errno::ENOPROTOOPT),
            _ => Err(Errno::ENOTSOCK),
        }
    }
}

impl<P: Platform> TcpDescription<P> {
    fn set_option(&self, stack: &Stack<P>, level: i32, name: i32, value: &OptionValue) -> Result<(), Errno> {
        if let Some(refused) = of_datagrams(level, name) {
            return Err(refused);
        }
        let mut state = self.lock();
        if level == libc::IPPROTO_TCP
            && let Some(done) = state.set_fast_open(stack, name, value)
        {
            return done;
        }
        let option = state.settings.set(level, name, value)?;
        if let (libc::SOL_SOCKET, libc::SO_TIMESTAMPING, OptionValue::Int(flags)) = (level, name, value) {
            state.want_stamps(stack, *flags as u32);
        }
        let Some(option) = option else { return Ok(()) };
        let Stage::Stream(stream) = &state.stage else { return state.listen_again(stack) };
        let stream = stream.clone();
        drop(state);
        stream.set(stack, option)?;
        match option {
            // See `SocketSettings::live_only`.
            SocketOption::ReceiveLowWater(2..) => stream.set(stack, SocketOption::EveryArrival(true)),
            _ => Ok(()),
        }
    }

    fn option(&self, stack: &Stack<P>, level: i32, name: i32) -> Result<OptionValue, Errno> {
        let int = |value: i64| Ok(OptionValue::Int(value));
        let (kept, stream, listens) = {
            let state = self.lock();
            let stream = if let Stage::Stream(stream) = &state.stage { Some(stream.clone()) } else { None };
            (state.settings.kept(level, name).cloned(), stream, matches!(state.stage, Stage::Listener(_)))
        };
        match (level, name, &stream) {
            (libc::SOL_SOCKET, libc::SO_ERROR, Some(stream)) => {
                return int(stream.take_error(stack).map_or(0, |error| i64::from(error.0)));
            }
            (libc::SOL_SOCKET, libc::SO_DOMAIN, _) => return int(i64::from(domain(self.is_v6()))),
            (libc::SOL_SOCKET, libc::SO_TYPE, _) => return int(i64::from(libc::SOCK_STREAM)),
            (libc::SOL_SOCKET, libc::SO_PROTOCOL, _) => return int(i64::from(libc::IPPROTO_TCP)),
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN, _) => return int(i64::from(listens)),
            (libc::SOL_SOCKET, libc::SO_INCOMING_CPU, Some(stream)) => {
                let driver = stack.driver_of(&stream.socket.flow()).and_then(|driver| i64::try_from(driver).ok());
                return int(driver.unwrap_or(-1));
            }
            _ => {}
        }
        if let Some(report) = stream.and_then(|stream| stream.status(stack))
            && let Some(value) = live((level, name), &report.options, kept.as_ref(), stack.shared().control().tcp())
        {
            return Ok(value);
        }
        match kept.or_else(|| default(level, name, stack.shared().control().tcp())) {
            Some(value) => Ok(value),
            None if is_known(level, name) => int(0),
            None => Err(Errno::ENOPROTOOPT),
        }
    }
}

/// The error for an option that only datagram sockets have.
fn of_datagrams(level: i32, name: i32) -> Option<Errno> {
    match (level, name) {
        (libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP | libc::IP_DROP_MEMBERSHIP)
        | (libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP | libc::IPV6_DROP_MEMBERSHIP) => Some(Errno::EPROTO),
        (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL | libc::IP_MULTICAST_IF) => Some(Errno::EINVAL),
        (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS | libc::IPV6_MULTICAST_IF) => Some(Errno::ENOPROTOOPT),
        _ => None,
    }
}

/// The address family of a socket, as reported by `SO_DOMAIN`.
pub(crate) fn domain(v6: bool) -> i32 {
    if v6 { libc::AF_INET6 } else { libc::AF_INET }
}

/// The connection's value of an option.
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
        // A size that was set is reported doubled; one from auto-tuning is reported unchanged.
        (libc::SOL_SOCKET, libc::SO_SNDBUF) if kept.is_none() => options.send_buffer.into(),
        (libc::SOL_SOCKET, libc::SO_RCVBUF) if kept.is_none() => {
            config.receive_share.memory(options.receive_buffer).into()
        }
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            let linger = options.linger;
            return Some(OptionValue::Linger(linger.is_some(), linger.map_or(0, |time| time.as_secs() as u32)));
        }
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => return Some(OptionValue::Bytes(kind_name(options.congestion))),
        _ => return None,
    };
    Some(OptionValue::Int(number))
}

/// The value of an option that was not set, for a socket without a connection.
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
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => return Some(OptionValue::Bytes(kind_name(config.congestion))),
        _ => return None,
    };
    Some(OptionValue::Int(number))
}

fn kind_name(kind: Kind) -> Vec<u8> {
    if kind == Kind::Cubic { b"cubic".to_vec() } else { b"reno".to_vec() }
}
