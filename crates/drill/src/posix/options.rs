//! Socket options: Linux's numbers onto the connection's options.

use std::collections::BTreeMap;
use std::time::Duration;

use tcp::SocketOption;
use tcp::config::KeepAlive;
use tcp::congestion::Kind;

use super::stream::Stage;
use super::{Errno, Object, Posix};

pub(super) const SIOCINQ: u64 = 0x541b;
pub(super) const SIOCOUTQ: u64 = 0x5411;
pub(super) const SIOCOUTQNSD: u64 = 0x894b;
const TCP_INQ: i32 = 36;

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
pub(super) struct Settings {
    /// In the order in which they were set.
    pub(super) set: Vec<SocketOption>,
    /// What `getsockopt` answers.
    values: BTreeMap<(i32, i32), OptionValue>,
    pub(super) cork: bool,
    pub(super) free_bind: bool,
    keep_alive: Option<KeepAlive>,
    keep_alive_on: bool,
}

impl Settings {
    pub(super) fn inherited(&self) -> Settings {
        self.clone()
    }
}

/// Options that are kept and have no effect here: the stack does what they ask for anyway, or it makes no difference.
const KEPT: [(i32, i32); 10] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_BUSY_POLL),
    (libc::IPPROTO_IP, libc::IP_FREEBIND),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_TCP, TCP_INQ),
];

const KNOWN: [(i32, i32); 20] = [
    (libc::SOL_SOCKET, libc::SO_ERROR),
    (libc::SOL_SOCKET, libc::SO_TYPE),
    (libc::SOL_SOCKET, libc::SO_DOMAIN),
    (libc::SOL_SOCKET, libc::SO_PROTOCOL),
    (libc::SOL_SOCKET, libc::SO_ACCEPTCONN),
    (libc::SOL_SOCKET, libc::SO_SNDBUF),
    (libc::SOL_SOCKET, libc::SO_RCVBUF),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
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
];

/// Whether this layer has the option.
pub fn is_known(level: i32, name: i32) -> bool {
    KEPT.contains(&(level, name)) || KNOWN.contains(&(level, name))
}

impl Posix {
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
        let options = sock.settings.read(level, name, value)?;
        sock.settings.values.insert((level, name), stored(level, name, value));
        let changed = !options.is_empty();
        for option in options {
            sock.settings.set.push(option);
            if let Stage::Stream(stream) = &sock.stage {
                stream.set(&stack, option)?;
            }
        }
        if changed { sock.listen_again(&stack) } else { Ok(()) }
    }

    /// `getsockopt(2)`.
    ///
    /// # Errors
    /// `ENOPROTOOPT` for an option that is not known.
    pub fn get_option(&mut self, fd: i32, level: i32, name: i32) -> Result<OptionValue, Errno> {
        let stack = self.stack.clone();
        let int = |value: i64| Ok(OptionValue::Int(value));
        let sock = match &mut self.file(fd)?.object {
            Object::Tcp(sock) => sock,
            Object::Udp(_) if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) => return int(0),
            _ => return Err(Errno::ENOTSOCK),
        };
        let status = match &sock.stage {
            Stage::Stream(stream) => stream.status(&stack),
            _ => None,
        };
        let config = stack.shared().tcp();
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => match &mut sock.stage {
                Stage::Stream(stream) => int(stream.take_error(&stack).map_or(0, |error| i64::from(error.0))),
                _ => int(0),
            },
            (libc::SOL_SOCKET, libc::SO_TYPE) => int(i64::from(libc::SOCK_STREAM)),
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => int(i64::from(libc::IPPROTO_TCP)),
            (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => int(i64::from(matches!(sock.stage, Stage::Listener(_)))),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => match (status, sock.settings.values.get(&(level, name))) {
                (Some(status), _) => int(i64::from(status.mss)),
                (None, Some(value)) => Ok(value.clone()),
                (None, None) => int(536),
            },
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => match (sock.settings.values.get(&(level, name)), status) {
                (Some(value), _) => Ok(value.clone()),
                (None, status) => int(status.map_or(config.send_buffer.initial, |status| status.send_buffer).into()),
            },
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => match (sock.settings.values.get(&(level, name)), status) {
                (Some(value), _) => Ok(value.clone()),
                (None, status) => {
                    int(status.map_or(config.receive_buffer.initial, |status| status.receive_buffer).into())
                }
            },
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
                let kind = status.map_or(config.congestion, |status| status.congestion);
                let name = if kind == Kind::Cubic { "cubic" } else { "reno" };
                Ok(OptionValue::Octets(name.into()))
            }
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let kept = sock.settings.values.get(&(level, name));
                Ok(kept.cloned().unwrap_or(OptionValue::Linger(false, 0)))
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => int(sock.settings.timing().idle.as_secs() as i64),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => int(sock.settings.timing().interval.as_secs() as i64),
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => int(sock.settings.timing().probes.into()),
            _ if is_known(level, name) => {
                Ok(sock.settings.values.get(&(level, name)).cloned().unwrap_or(OptionValue::Int(0)))
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
}

/// What `getsockopt` answers afterwards: Linux doubles buffer sizes, for its own overhead.
fn stored(level: i32, name: i32, value: &OptionValue) -> OptionValue {
    match (level, name, value) {
        (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_RCVBUF, OptionValue::Int(octets)) => {
            OptionValue::Int(octets.saturating_mul(2))
        }
        _ => value.clone(),
    }
}

impl Settings {
    fn timing(&self) -> KeepAlive {
        self.keep_alive.unwrap_or_default()
    }

    /// The connection's options that say what the user said.
    fn read(&mut self, level: i32, name: i32, value: &OptionValue) -> Result<Vec<SocketOption>, Errno> {
        if level == libc::SOL_SOCKET && name == libc::SO_LINGER {
            let OptionValue::Linger(on, seconds) = *value else { return Err(Errno::EINVAL) };
            let time = on.then(|| Duration::from_secs(seconds.into()));
            return Ok(vec![SocketOption::Linger(time)]);
        }
        if level == libc::IPPROTO_TCP && name == libc::TCP_CONGESTION {
            let OptionValue::Octets(kind) = value else { return Err(Errno::EINVAL) };
            let kind = match kind.as_slice() {
                b"cubic" => Kind::Cubic,
                b"reno" => Kind::NewReno,
                _ => return Err(Errno::ENOENT),
            };
            return Ok(vec![SocketOption::Congestion(kind)]);
        }
        let OptionValue::Int(number) = *value else { return Err(Errno::EINVAL) };
        let on = number != 0;
        let octets = || u32::try_from(number).map_err(|_| Errno::EINVAL);
        let one = |option| Ok(vec![option]);
        match (level, name) {
            (libc::IPPROTO_IP, libc::IP_FREEBIND) => self.free_bind = on,
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => return one(SocketOption::NoDelay(on)),
            (libc::IPPROTO_TCP, libc::TCP_CORK) => {
                self.cork = on;
                return one(SocketOption::Cork(on));
            }
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                let octets = u16::try_from(number).map_err(|_| Errno::EINVAL)?;
                return one(SocketOption::MaxSegment(octets));
            }
            (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => return one(SocketOption::QuickAck(on)),
            (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP) => return one(SocketOption::WindowClamp(octets()?)),
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
                let time = Some(Duration::from_millis(octets()?.into())).filter(|time| !time.is_zero());
                return one(SocketOption::UserTimeout(time));
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => return one(SocketOption::SendBuffer(octets()?.saturating_mul(2))),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => return one(SocketOption::ReceiveBuffer(octets()?.max(1))),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => {
                self.keep_alive_on = on;
                return one(SocketOption::KeepAlive(on.then(|| self.timing())));
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT) => {
                return self.keep_alive(name, octets()?);
            }
            _ if KEPT.contains(&(level, name)) => {}
            _ => return Err(Errno::ENOPROTOOPT),
        }
        Ok(Vec::new())
    }

    fn keep_alive(&mut self, name: i32, number: u32) -> Result<Vec<SocketOption>, Errno> {
        // Linux: 1 to 32767 seconds, 1 to 127 probes.
        let mut timing = self.timing();
        let seconds = Duration::from_secs(number.into());
        match name {
            libc::TCP_KEEPCNT if (1..=127).contains(&number) => timing.probes = number as u8,
            libc::TCP_KEEPIDLE if (1..=32767).contains(&number) => timing.idle = seconds,
            libc::TCP_KEEPINTVL if (1..=32767).contains(&number) => timing.interval = seconds,
            _ => return Err(Errno::EINVAL),
        }
        self.keep_alive = Some(timing);
        Ok(if self.keep_alive_on { vec![SocketOption::KeepAlive(Some(timing))] } else { Vec::new() })
    }
}
