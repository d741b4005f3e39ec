//! System calls of the script: calls the socket layer, and compares the results.

mod arguments;
mod messages;
mod options;

use std::net::SocketAddr;
use std::task::Poll;

use observe::Time;
use posix::{EpollInterest, Errno, PollFd, Sockets};
use sync::Real;

use crate::error::ScriptError;
use crate::script::{Call, Expr, Nanos};

use super::connections::UnderTest;
use super::values::{Stream, pattern};
use super::{Ran, Runner, tolerance};
use arguments::{field, missing};

/// The results of a call.
#[derive(Default)]
pub(super) struct Done {
    /// Its value.
    pub value: i64,
    /// Received bytes.
    pub data: Vec<u8>,
    /// The bytes stay in the queue.
    pub peeked: bool,
    /// The value is a new descriptor.
    pub descriptor: bool,
    /// Values stored by the call, in the script's order.
    pub stored: Vec<Stored>,
}

/// One value stored by a call, and the script's.
pub(super) struct Stored {
    pub what: &'static str,
    pub wanted: i64,
    pub got: i64,
}

impl Done {
    pub(super) fn value(value: i64) -> Done {
        Done { value, ..Done::default() }
    }

    fn descriptor(fd: i32) -> Done {
        Done { descriptor: true, ..Done::value(fd.into()) }
    }
}

type Outcome = Result<Done, Errno>;
/// Makes one attempt; the flag is true once its time-out has passed.
pub(super) type Attempt = Box<dyn FnMut(&Sockets<Real>, bool) -> Poll<Outcome>>;

/// A blocked call.
pub(super) struct Pending {
    call: Call,
    line: u32,
    pub from: Nanos,
    pub end: Nanos,
    pub attempt: Attempt,
    /// When its own time-out expires.
    pub deadline: Option<Time>,
    /// Its outcome, and the time.
    pub outcome: Option<(Outcome, Time)>,
    /// Its descriptor.
    fd: Option<i32>,
}

/// An attempt that returns at once.
fn immediate(mut call: impl FnMut(&Sockets<Real>) -> Outcome + 'static) -> Attempt {
    Box::new(move |sockets: &Sockets<Real>, _| Poll::Ready(call(sockets)))
}

fn nothing(result: Result<(), Errno>) -> Outcome {
    result.map(|()| Done::default())
}

impl Runner {
    /// Begins a call at `from`; it may block until `end`.
    pub(super) fn call(&mut self, call: &Call, from: Nanos, end: Option<Nanos>) -> Ran<()> {
        let fd = match call.args.first() {
            Some(Expr::Int(fd)) => Some(self.fd(*fd)),
            _ => None,
        };
        let (attempt, deadline) = self.prepare(call, fd)?;
        let deadline = deadline.or_else(|| self.socket_timeout(call, fd?));
        let blocking = end.is_some();
        let end = end.unwrap_or(from);
        self.pending =
            Some(Pending { call: call.clone(), line: self.line, from, end, attempt, deadline, outcome: None, fd });
        self.retry_pending();
        if call.name == "connect" || call.name.starts_with("send") || call.name.starts_with("write") {
            // Before its SYN is expected.
            if let Some(fd) = fd {
                self.connected(fd);
            }
        }
        self.step();
        if blocking { Ok(()) } else { self.settle_pending() }
    }

    /// The descriptor of the socket layer.
    fn fd(&self, script: i64) -> i32 {
        // A number that the script never got is passed on: the call must fail.
        self.fds.get(&script).copied().unwrap_or(script as i32)
    }

    /// Records the socket layer's descriptor for a new one of the script, which must not be open.
    fn opened(&mut self, script: i64, fd: i32) -> Ran<()> {
        if self.fds.contains_key(&script) {
            return Err(self.error(format!("descriptor {script} is open already")));
        }
        self.fds.insert(script, fd);
        Ok(())
    }

    /// Compares the results with the script's once the call has returned.
    pub(super) fn settle_pending(&mut self) -> Ran<()> {
        let Some(pending) = self.pending.take() else { return Ok(()) };
        let here = std::mem::replace(&mut self.line, pending.line);
        let result = self.compare(pending);
        self.line = here;
        result
    }

    fn compare(&mut self, pending: Pending) -> Ran<()> {
        let name = &pending.call.name;
        let Some((outcome, at)) = pending.outcome else {
            let now = self.script_time(self.host.now()) as f64 / 1e9;
            return Err(self.error(format!("{name}() still blocks at {now:.6} s")));
        };
        let at = self.script_time(at);
        let slack = tolerance(&self.settings, pending.end - pending.from);
        if (at - pending.end).abs() > slack {
            let (at, end) = (at as f64 / 1e9, pending.end as f64 / 1e9);
            return Err(self.error(format!("{name}() returned at {at:.6} s instead of {end:.6} s")));
        }
        let wanted = self.wanted(&pending.call)?;
        match (&outcome, wanted) {
            // The real packetdrill lets `accept` reuse the number of another descriptor.
            (Ok(done), Wanted::Value(value)) if done.descriptor && name.starts_with("accept") => {
                self.fds.insert(value, done.value as i32);
            }
            (Ok(done), Wanted::Value(value)) if done.descriptor => self.opened(value, done.value as i32)?,
            (Ok(done), Wanted::Value(value)) if done.value == value => {}
            (Err(errno), Wanted::Error(Some(wanted))) if *errno == wanted => {}
            (Ok(_), Wanted::Anything) | (Err(_), Wanted::Anything | Wanted::Error(None)) => {}
            (outcome, wanted) => {
                let got = match outcome {
                    Ok(done) => done.value.to_string(),
                    Err(errno) => format!("-1 {errno}"),
                };
                return Err(self.error(format!("{name}() = {got}, expected {wanted}")));
            }
        }
        let Ok(done) = outcome else { return Ok(()) };
        for Stored { what, wanted, got } in &done.stored {
            if wanted != got {
                return Err(self.error(format!("{name}() stored {got} as {what}, expected {wanted}")));
            }
        }
        self.consequences(&pending.call, pending.fd, &done)
    }

    /// Updates the runner's state after a successful call.
    fn consequences(&mut self, call: &Call, fd: Option<i32>, done: &Done) -> Ran<()> {
        match call.name.as_str() {
            "socket" => self.under_test = UnderTest::Socket(done.value as i32),
            "accept" | "accept4" => self.accepted(done.value as i32),
            "close" => {
                if let Some(fd) = fd {
                    self.closed(fd);
                }
                if let Some(Expr::Int(script)) = call.args.first() {
                    self.fds.remove(script);
                }
            }
            "write" | "writev" | "send" | "sendto" | "sendmsg" => {
                if let Some(fd) = fd {
                    let stream = self.streams.entry(fd).or_default();
                    stream.written = stream.written.wrapping_add(done.value as u32);
                }
            }
            "read" | "readv" | "recv" | "recvfrom" | "recvmsg" => {
                if let Some(fd) = fd {
                    self.check_received(fd, &done.data, done.peeked)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The bytes read must be those that arrived. Each datagram begins the pattern again.
    fn check_received(&mut self, fd: i32, data: &[u8], peeked: bool) -> Ran<()> {
        let in_place = peeked || self.sockets.is_datagram(fd);
        let stream = self.streams.entry(fd).or_default();
        let Stream { read, unchecked, .. } = *stream;
        if !in_place {
            stream.read = read.wrapping_add(data.len() as u32);
        }
        let wrong = data.iter().zip(0_u32..).find(|(byte, n)| **byte != pattern(read.wrapping_add(*n)));
        match wrong {
            Some((byte, n)) if !unchecked => {
                let place = read.wrapping_add(n);
                Err(self.error(format!("byte {place} was read as {byte:#04x}, came as {:#04x}", pattern(place))))
            }
            _ => Ok(()),
        }
    }

    /// The attempt, and when its own time-out expires.
    fn prepare(&mut self, call: &Call, fd: Option<i32>) -> Ran<(Attempt, Option<Time>)> {
        let args = &call.args;
        let fd_or = || fd.ok_or_else(|| missing(self.line, &call.name));
        let attempt = match call.name.as_str() {
            "socket" => self.prepare_socket(args)?,
            "bind" | "listen" | "accept" | "accept4" | "connect" | "close" | "shutdown" => {
                self.prepare_life(call, fd_or()?)?
            }
            "read" | "recv" | "recvfrom" | "readv" | "recvmsg" => self.prepare_receive(call, fd_or()?)?,
            "write" | "send" | "sendto" | "writev" | "sendmsg" => self.prepare_send(call, fd_or()?)?,
            "fcntl" => {
                let (fd, command) = (fd_or()?, self.int_at(args, 1)? as i32);
                let argument = if args.len() > 2 { self.int_at(args, 2)? as i32 } else { 0 };
                immediate(move |sockets| sockets.fcntl(fd, command, argument).map(|flags| Done::value(flags.into())))
            }
            "ioctl" => self.prepare_ioctl(args, fd_or()?)?,
            "setsockopt" => self.prepare_set_option(args, fd_or()?)?,
            "getsockopt" => self.prepare_get_option(args, fd_or()?)?,
            "poll" => return self.prepare_poll(args),
            "epoll_create" | "epoll_create1" => immediate(|sockets| sockets.epoll_create(0).map(Done::descriptor)),
            "epoll_ctl" => self.prepare_epoll_ctl(args, fd_or()?)?,
            "epoll_wait" => return self.prepare_epoll_wait(args, fd_or()?),
            "pipe" => self.prepare_pipe(args)?,
            "open" => {
                let Some(Expr::Text(path)) = args.first() else { return Err(missing(self.line, "open")) };
                let path = String::from_utf8_lossy(path).into_owned();
                immediate(move |sockets| sockets.open(&path).map(Done::descriptor))
            }
            "sendfile" | "splice" => self.prepare_between(call, fd_or()?)?,
            other => return Err(ScriptError::unsupported(self.line, format!("the system call {other}()"))),
        };
        Ok((attempt, None))
    }

    /// Calls that open, connect and close sockets.
    fn prepare_life(&mut self, call: &Call, fd: i32) -> Ran<Attempt> {
        let args = &call.args;
        Ok(match call.name.as_str() {
            "bind" => {
                let address = self.address(args.get(1), false)?;
                immediate(move |sockets| nothing(sockets.bind(fd, address.ok_or(Errno::EAFNOSUPPORT)?)))
            }
            "listen" => {
                let backlog = self.int_at(args, 1)? as i32;
                immediate(move |sockets| nothing(sockets.listen(fd, backlog)))
            }
            "connect" => {
                let address = self.address(args.get(1), true)?;
                Box::new(move |sockets: &Sockets<Real>, expired| sockets.try_connect(fd, address, expired).map(nothing))
            }
            "close" => immediate(move |sockets| nothing(sockets.close_at_once(fd))),
            "shutdown" => {
                let how = self.int_at(args, 1)? as i32;
                immediate(move |sockets| nothing(sockets.shutdown(fd, how)))
            }
            _ => {
                let flags = if args.len() > 3 { self.int_at(args, 3)? as i32 } else { 0 };
                Box::new(move |sockets: &Sockets<Real>, expired| {
                    sockets
                        .try_accept(fd, flags, expired)
                        .map(|accepted| accepted.map(|(child, _)| Done::descriptor(child)))
                })
            }
        })
    }

    fn prepare_socket(&mut self, args: &[Expr]) -> Ran<Attempt> {
        let v4 = self.settings.addresses.local.is_ipv4() && !self.settings.mapped;
        let domain = match args.first() {
            Some(Expr::Ellipsis) => i64::from(if v4 { libc::AF_INET } else { libc::AF_INET6 }),
            _ => self.int_at(args, 0)?,
        };
        let (kind, protocol) = (self.int_at(args, 1)? as i32, self.int_at(args, 2)? as i32);
        Ok(immediate(move |sockets| sockets.socket(domain as i32, kind, protocol).map(Done::descriptor)))
    }

    fn prepare_ioctl(&mut self, args: &[Expr], fd: i32) -> Ran<Attempt> {
        let request = self.int_at(args, 1)? as u64;
        let wanted = match args.get(2) {
            Some(Expr::List(items)) => Some(self.int_at(items, 0)?),
            _ => None,
        };
        Ok(immediate(move |sockets| {
            let got = sockets.ioctl(fd, request)?.into();
            let stored = wanted.map(|wanted| Stored { what: "the number", wanted, got });
            Ok(Done { stored: stored.into_iter().collect(), ..Done::default() })
        }))
    }

    /// When a call times out by `SO_RCVTIMEO` or `SO_SNDTIMEO`.
    fn socket_timeout(&self, call: &Call, fd: i32) -> Option<Time> {
        let receives = match call.name.as_str() {
            "accept" | "accept4" | "read" | "readv" | "recv" | "recvfrom" | "recvmsg" => true,
            "connect" | "write" | "writev" | "send" | "sendto" | "sendmsg" => false,
            _ => return None,
        };
        Some(self.host.now() + self.sockets.timeout(fd, receives)?)
    }

    fn deadline(&self, milliseconds: i64) -> Option<Time> {
        let timeout = u64::try_from(milliseconds).ok()?;
        Some(self.host.now() + std::time::Duration::from_millis(timeout))
    }

    /// `poll([{fd=4, events=POLLIN, revents=POLLIN}], 1, 1000)`
    fn prepare_poll(&mut self, args: &[Expr]) -> Ran<(Attempt, Option<Time>)> {
        let Some(Expr::List(items)) = args.first() else { return Err(missing(self.line, "poll")) };
        let mut fds = Vec::new();
        let mut wanted = Vec::new();
        for item in items {
            let Expr::Struct(fields) = item else { return Err(missing(self.line, "poll")) };
            let mut number = |name| field(fields, name).map_or(Ok(0), |value| self.int(value));
            let (fd, events, revents) = (number("fd")?, number("events")?, number("revents")?);
            fds.push(PollFd { fd: self.fd(fd), events: events as i16, revents: 0 });
            wanted.push(revents);
        }
        let timeout = self.int_at(args, 2)?;
        let attempt: Attempt = Box::new(move |sockets, expired| {
            let ready = sockets.try_poll(&mut fds);
            if ready == 0 && !expired && timeout != 0 {
                return Poll::Pending;
            }
            let stored = fds.iter().zip(&wanted).map(|(entry, wanted)| Stored {
                what: "revents",
                wanted: *wanted,
                got: i64::from(entry.revents as u16),
            });
            Poll::Ready(Ok(Done { stored: stored.collect(), ..Done::value(ready as i64) }))
        });
        Ok((attempt, self.deadline(timeout)))
    }

    fn interest(&mut self, value: &Expr) -> Ran<EpollInterest> {
        let Expr::Struct(fields) = value else { return Err(missing(self.line, "epoll_ctl")) };
        let events = field(fields, "events").map_or(Ok(0), |events| self.int(events))?;
        let data = ["fd", "u32", "u64", "ptr"].iter().find_map(|name| field(fields, name));
        let data = data.map_or(Ok(0), |data| self.int(data))?;
        Ok(EpollInterest { events: events as u32, data: data as u64 })
    }

    fn prepare_epoll_ctl(&mut self, args: &[Expr], epoll: i32) -> Ran<Attempt> {
        let operation = self.int_at(args, 1)? as i32;
        let fd = self.int_at(args, 2)?;
        let fd = self.fd(fd);
        let interest = match args.get(3) {
            Some(value @ Expr::Struct(_)) => self.interest(value)?,
            _ => EpollInterest { events: 0, data: 0 },
        };
        Ok(immediate(move |sockets| nothing(sockets.epoll_ctl(epoll, operation, fd, interest))))
    }

    /// `epoll_wait(5, {events=EPOLLIN, fd=4}, 1, 0)`: the structure is the first event that is reported.
    fn prepare_epoll_wait(&mut self, args: &[Expr], epoll: i32) -> Ran<(Attempt, Option<Time>)> {
        let wanted = match args.get(1) {
            Some(value @ Expr::Struct(_)) => vec![self.interest(value)?],
            Some(Expr::List(items)) => items.iter().map(|item| self.interest(item)).collect::<Ran<Vec<_>>>()?,
            _ => Vec::new(),
        };
        let (max, timeout) = (self.int_at(args, 2)?, self.int_at(args, 3)?);
        let max = usize::try_from(max).unwrap_or(0);
        let attempt: Attempt = Box::new(move |sockets, expired| {
            let events = match sockets.try_epoll_wait(epoll, max) {
                Poll::Ready(Ok(events)) => events,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if !expired && timeout != 0 => return Poll::Pending,
                Poll::Pending => Vec::new(),
            };
            let mut stored = Vec::new();
            for (event, wanted) in events.iter().zip(&wanted) {
                stored.push(Stored { what: "events", wanted: wanted.events.into(), got: event.events.into() });
                stored.push(Stored { what: "data", wanted: wanted.data as i64, got: event.data as i64 });
            }
            Poll::Ready(Ok(Done { stored, ..Done::value(events.len() as i64) }))
        });
        Ok((attempt, self.deadline(timeout)))
    }

    /// `pipe([5, 6])`
    fn prepare_pipe(&mut self, args: &[Expr]) -> Ran<Attempt> {
        let Some(Expr::List(items)) = args.first() else { return Err(missing(self.line, "pipe")) };
        let (reader, writer) = (self.int_at(items, 0)?, self.int_at(items, 1)?);
        // Created now, so that the script's numbers can be recorded.
        let made = self.sockets.pipe(0);
        let (from, to) = made.map_err(|error| self.error(format!("pipe() = -1 {error}")))?;
        self.opened(reader, from)?;
        self.opened(writer, to)?;
        Ok(immediate(|_| Ok(Done::default())))
    }

    /// `sendfile(out, in, [offset], count)` and `splice(in, NULL, out, NULL, count, flags)`.
    fn prepare_between(&mut self, call: &Call, first: i32) -> Ran<Attempt> {
        let second = self.int_at(&call.args, if call.name == "splice" { 2 } else { 1 })?;
        let second = self.fd(second);
        let (from, to, count) = match call.name.as_str() {
            "splice" => (first, second, self.int_at(&call.args, 4)?),
            _ => (second, first, self.int_at(&call.args, 3)?),
        };
        let count = usize::try_from(count).unwrap_or(0);
        self.unchecked(to);
        self.streams.entry(from).or_default().unchecked = true;
        let mut carried = None;
        Ok(Box::new(move |sockets: &Sockets<Real>, _| {
            sockets.try_splice(from, to, count, &mut carried).map(|sent| sent.map(|count| Done::value(count as i64)))
        }))
    }

    /// The bytes that `fd` sends no longer follow the pattern.
    fn unchecked(&mut self, fd: i32) {
        for connection in self.connections.iter_mut().filter(|connection| connection.fd == Some(fd)) {
            connection.unchecked = true;
        }
    }

    fn address(&mut self, value: Option<&Expr>, remote: bool) -> Ran<Option<SocketAddr>> {
        match value {
            None | Some(Expr::Ellipsis) => Ok(Some(self.default_address(remote))),
            Some(Expr::Word(word)) if word == "AF_UNSPEC" => Ok(None),
            Some(Expr::Word(word)) if word == "NULL" => Ok(Some(self.default_address(remote))),
            Some(Expr::Struct(fields)) => self.socket_address(fields),
            Some(_) => Err(self.error(
                "an address is written {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr(\"10.0.0.1\")}",
            )),
        }
    }
}

/// The result that the script expects of a call.
enum Wanted {
    Value(i64),
    Error(Option<Errno>),
    Anything,
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wanted::Value(value) => value.fmt(f),
            Wanted::Error(Some(errno)) => write!(f, "-1 {errno}"),
            Wanted::Error(None) => f.write_str("-1"),
            Wanted::Anything => f.write_str("anything"),
        }
    }
}

impl Runner {
    fn wanted(&mut self, call: &Call) -> Ran<Wanted> {
        if call.result == Expr::Ellipsis {
            return Ok(Wanted::Anything);
        }
        let value = self.int(&call.result)?;
        match &call.errno {
            Some(name) => {
                let errno = Errno::named(name).ok_or_else(|| self.error(format!("there is no error {name}")))?;
                Ok(Wanted::Error(Some(errno)))
            }
            None if value < 0 => Ok(Wanted::Error(None)),
            None => Ok(Wanted::Value(value)),
        }
    }
}
