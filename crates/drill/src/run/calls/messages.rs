//! Calls that receive and send.

use posix::{Errno, ErrorQueueEntry, ReceivedMessage, Sockets, Transfer};
use sync::Real;

use crate::error::ScriptError;
use crate::host::START;
use crate::run::values::pattern;
use crate::run::{Ran, Runner};
use crate::script::{Call, Expr, Field};

use super::arguments::{field, missing};
use super::{Attempt, Done, Stored, immediate};

/// Supported flags of sending.
const SEND_FLAGS: i64 =
    (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_EOR | libc::MSG_OOB | libc::MSG_FASTOPEN)
        as i64
        | libc::MSG_ZEROCOPY as i64;
/// Supported flags of receiving.
const RECEIVE_FLAGS: i64 = (libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_WAITALL | libc::MSG_TRUNC) as i64;

/// `TCP_INQ`, which is not in every libc.
const TCP_CM_INQ: i32 = 36;
/// The fields of `struct sock_extended_err`.
const ERROR_FIELDS: [&str; 6] = ["ee_errno", "ee_origin", "ee_type", "ee_code", "ee_info", "ee_data"];
/// Origins of errors, and kinds of timestamps (`linux/errqueue.h`).
const ORIGIN_TIMESTAMPING: i64 = 4;
const ORIGIN_ZEROCOPY: i64 = 5;
const ZEROCOPY_COPIED: i64 = 1;

/// A control message.
enum Control {
    /// `TCP_CM_INQ`
    Waiting(i64),
    /// `SCM_TIMESTAMPING`, in nanoseconds of the script.
    Time(i64),
    /// `IP_RECVERR`, in the order of [`ERROR_FIELDS`].
    Error([i64; 6]),
}

impl Control {
    /// Compares the script's message with the actual one. A time may be off by `slack`.
    fn against(&self, got: &Control, slack: i64) -> Vec<Stored> {
        match (self, got) {
            (Control::Time(wanted), Control::Time(got)) => {
                let got = if (got - wanted).abs() <= slack { wanted } else { got };
                vec![Stored { what: "the stamp in nanoseconds", wanted: *wanted, got: *got }]
            }
            (Control::Error(wanted), Control::Error(got)) => ERROR_FIELDS
                .iter()
                .zip(wanted.iter().zip(got))
                .map(|(what, (wanted, got))| Stored { what, wanted: *wanted, got: *got })
                .collect(),
            // A kind other than the script's is wrong in any case.
            _ => vec![Stored { what: "the kind of a control message", wanted: 1, got: 0 }],
        }
    }
}

/// The control messages of `report`.
fn controls(report: &ErrorQueueEntry) -> Vec<Control> {
    match *report {
        ErrorQueueEntry::ZeroCopy { first, last } => {
            vec![Control::Error([0, ORIGIN_ZEROCOPY, 0, ZEROCOPY_COPIED, first.into(), last.into()])]
        }
        ErrorQueueEntry::Stamp { what, at, byte, .. } => {
            let time = Control::Time((at - START).as_nanos() as i64);
            let error = [libc::ENOMSG.into(), ORIGIN_TIMESTAMPING, 0, 0, what as i64, byte.into()];
            vec![time, Control::Error(error)]
        }
    }
}

impl Runner {
    fn flags(&mut self, flags: i64, known: i64) -> Ran<i32> {
        match flags & !known {
            0 => Ok(flags as i32),
            other => Err(ScriptError::unsupported(self.line, format!("the message flag {other:#x}"))),
        }
    }

    /// Total of the lengths in `[{..., 1000}, {..., 10}]`.
    fn vector(&mut self, value: Option<&Expr>) -> Ran<usize> {
        let Some(Expr::List(items)) = value else { return Err(self.error("a vector is written [{..., 1000}]")) };
        let mut total = 0;
        for item in items {
            let Expr::Struct(fields) = item else { return Err(self.error("a vector is written [{..., 1000}]")) };
            let [_, Field { value, .. }] = &fields[..] else {
                return Err(self.error("an entry of a vector is written {..., 1000}"));
            };
            total += usize::try_from(self.int(value)?).map_err(|_| self.error("a length is negative"))?;
        }
        Ok(total)
    }

    /// The control messages that the script expects.
    fn control(&mut self, value: Option<&Expr>) -> Ran<Vec<Control>> {
        let Some(Expr::List(items)) = value else { return Ok(Vec::new()) };
        items.iter().map(|item| self.control_message(item)).collect()
    }

    fn control_message(&mut self, item: &Expr) -> Ran<Control> {
        let Expr::Struct(fields) = item else {
            return Err(self.error("a control message is written {cmsg_level=...}"));
        };
        let line = self.line;
        let unknown = || ScriptError::unsupported(line, "this control message");
        let (kind, data) = (field(fields, "cmsg_type"), field(fields, "cmsg_data"));
        let kind = kind.ok_or_else(unknown)?.clone();
        match (self.int(&kind)? as i32, data) {
            (TCP_CM_INQ, Some(data)) => Ok(Control::Waiting(self.int(data)?)),
            (libc::SO_TIMESTAMPING, Some(Expr::Struct(time))) => {
                let mut number = |name| field(time, name).map_or(Ok(0), |value| self.int(value));
                Ok(Control::Time(number("scm_sec")? * 1_000_000_000 + number("scm_nsec")?))
            }
            (libc::IP_RECVERR | libc::IPV6_RECVERR, Some(Expr::Struct(error))) => {
                let mut number = |name| field(error, name).map_or(Ok(0), |value| self.int(value));
                let mut read = [0; ERROR_FIELDS.len()];
                for (value, name) in read.iter_mut().zip(ERROR_FIELDS) {
                    *value = number(name)?;
                }
                Ok(Control::Error(read))
            }
            _ => Err(unknown()),
        }
    }

    /// `recvmsg` of the error queue.
    fn prepare_report(&mut self, fd: i32, flags: Option<i64>, wanted: Vec<Control>) -> Attempt {
        let slack = self.settings.tolerance;
        immediate(move |sockets| {
            let report = sockets.receive_report(fd)?;
            let alone = !matches!(report, ErrorQueueEntry::Stamp { alone: false, .. });
            let shown = i64::from(libc::MSG_ERRQUEUE | if alone { 0 } else { libc::MSG_TRUNC });
            let flags = flags.map(|wanted| Stored { what: "msg_flags", wanted, got: shown });
            let got = controls(&report);
            let count =
                Stored { what: "the number of control messages", wanted: wanted.len() as i64, got: got.len() as i64 };
            let pairs = wanted.iter().zip(&got).flat_map(|(wanted, got)| wanted.against(got, slack));
            let stored = flags.into_iter().chain([count]).chain(pairs).collect();
            Ok(Done { stored, ..Done::default() })
        })
    }

    fn length(&mut self, args: &[Expr], place: usize) -> Ran<usize> {
        let length = self.int_at(args, place)?;
        usize::try_from(length).map_err(|_| self.error("a length is negative"))
    }

    /// A null pointer for the bytes: the call fails before any effect.
    fn faulty(&self, call: &Call) -> bool {
        matches!(call.args.get(1), Some(Expr::Word(word)) if word == "NULL") && call.args.get(2) != Some(&Expr::Int(0))
    }

    pub(super) fn prepare_receive(&mut self, call: &Call, fd: i32) -> Ran<Attempt> {
        if self.faulty(call) {
            return Ok(immediate(|_| Err(Errno::EFAULT)));
        }
        let args = &call.args;
        let (mut stored_flags, mut controls) = (None, Vec::new());
        let (max, flags) = match call.name.as_str() {
            "read" => (self.length(args, 2)?, 0),
            "readv" => (self.vector(args.get(1))?, 0),
            "recv" | "recvfrom" => (self.length(args, 2)?, self.int_at(args, 3)?),
            _ => {
                let Some(Expr::Struct(fields)) = args.get(1) else { return Err(missing(self.line, "recvmsg")) };
                controls = self.control(field(fields, "msg_control"))?;
                stored_flags = field(fields, "msg_flags").map(|flags| self.int(flags)).transpose()?;
                (self.vector(field(fields, "msg_iov"))?, self.int_at(args, 2)?)
            }
        };
        if flags & i64::from(libc::MSG_ERRQUEUE) != 0 {
            return Ok(self.prepare_report(fd, stored_flags, controls));
        }
        let waiting = match controls[..] {
            [] => None,
            [Control::Waiting(bytes)] => Some(bytes),
            _ => return Err(ScriptError::unsupported(self.line, "these control messages beside text")),
        };
        let flags = self.flags(flags, RECEIVE_FLAGS)?;
        let peeked = flags & libc::MSG_PEEK != 0;
        Ok(Box::new(move |sockets: &Sockets<Real>, expired| {
            sockets.try_receive(fd, max, flags, expired).map(|received| {
                let ReceivedMessage { data, count, flags, waiting: got, .. } = received?;
                let flags = stored_flags.map(|wanted| Stored { what: "msg_flags", wanted, got: flags.into() });
                // -1 without the message, which no script expects.
                let got = got.map_or(-1, i64::from);
                let waiting = waiting.map(|wanted| Stored { what: "TCP_CM_INQ", wanted, got });
                let stored = flags.into_iter().chain(waiting).collect();
                Ok(Done { value: count as i64, data, peeked, stored, ..Done::default() })
            })
        }))
    }

    pub(super) fn prepare_send(&mut self, call: &Call, fd: i32) -> Ran<Attempt> {
        if self.faulty(call) {
            return Ok(immediate(|_| Err(Errno::EFAULT)));
        }
        let args = &call.args;
        let mut to = None;
        let (length, flags) = match call.name.as_str() {
            "write" => (self.length(args, 2)?, 0),
            "writev" => (self.vector(args.get(1))?, 0),
            "send" => (self.length(args, 2)?, self.int_at(args, 3)?),
            "sendto" => {
                to = self.address(args.get(4), true)?;
                (self.length(args, 2)?, self.int_at(args, 3)?)
            }
            _ => {
                let Some(Expr::Struct(fields)) = args.get(1) else { return Err(missing(self.line, "sendmsg")) };
                if field(fields, "msg_control").is_some() {
                    return Err(ScriptError::unsupported(self.line, "control messages"));
                }
                if let Some(name) = field(fields, "msg_name") {
                    to = self.address(Some(name), true)?;
                }
                (self.vector(field(fields, "msg_iov"))?, self.int_at(args, 2)?)
            }
        };
        let flags = self.flags(flags, SEND_FLAGS)?;
        let from = self.streams.entry(fd).or_default().written;
        let mut transfer = match args.get(1) {
            Some(Expr::Text(data)) => {
                self.unchecked(fd);
                let data = data.clone();
                Transfer::made(length, move |range| {
                    range.map(|place| data.get(place).copied().unwrap_or_default()).collect()
                })
            }
            _ => Transfer::made(length, move |range| {
                range.map(|place| pattern(from.wrapping_add(place as u32))).collect()
            }),
        };
        Ok(Box::new(move |sockets: &Sockets<Real>, expired| {
            let sent = sockets.try_send(fd, &mut transfer, flags, to, expired);
            sent.map(|sent| sent.map(|count| Done::value(count as i64)))
        }))
    }
}
