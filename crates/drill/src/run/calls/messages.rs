//! Calls that receive and send.

use std::task::Poll;

use crate::error::ScriptError;
use crate::posix::{Errno, Posix, Transfer};
use crate::run::values::pattern;
use crate::run::{Ran, Runner};
use crate::script::{Call, Expr, Field};

use super::arguments::{field, missing};
use super::{Attempt, Done, Stored, immediate};

/// Flags of sending that the stack below has.
const SEND_FLAGS: i64 = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE | libc::MSG_OOB) as i64;
/// The same of receiving.
const RECEIVE_FLAGS: i64 = (libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_WAITALL | libc::MSG_TRUNC) as i64;

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

    /// The one control message that is had: how much waits after a receive.
    fn control(&mut self, value: Option<&Expr>) -> Ran<Option<i64>> {
        let Some(Expr::List(items)) = value else { return Ok(None) };
        match &items[..] {
            [] => Ok(None),
            [Expr::Struct(fields)] if field(fields, "cmsg_type") == Some(&Expr::Word("TCP_CM_INQ".into())) => {
                field(fields, "cmsg_data").map(|data| self.int(data)).transpose()
            }
            _ => Err(ScriptError::unsupported(self.line, "control messages other than TCP_CM_INQ")),
        }
    }

    fn length(&mut self, args: &[Expr], place: usize) -> Ran<usize> {
        let length = self.int_at(args, place)?;
        usize::try_from(length).map_err(|_| self.error("a length is negative"))
    }

    /// A null pointer for the octets: the call fails before anything happens.
    fn faulty(&self, call: &Call) -> bool {
        matches!(call.args.get(1), Some(Expr::Word(word)) if word == "NULL") && call.args.get(2) != Some(&Expr::Int(0))
    }

    pub(super) fn prepare_receive(&mut self, call: &Call, fd: i32) -> Ran<Attempt> {
        if self.faulty(call) {
            return Ok(immediate(|_| Err(Errno::EFAULT)));
        }
        let args = &call.args;
        let (mut stored_flags, mut waiting) = (None, None);
        let (max, flags) = match call.name.as_str() {
            "read" => (self.length(args, 2)?, 0),
            "readv" => (self.vector(args.get(1))?, 0),
            "recv" | "recvfrom" => (self.length(args, 2)?, self.int_at(args, 3)?),
            _ => {
                let Some(Expr::Struct(fields)) = args.get(1) else { return Err(missing(self.line, "recvmsg")) };
                waiting = self.control(field(fields, "msg_control"))?;
                stored_flags = field(fields, "msg_flags").map(|flags| self.int(flags)).transpose()?;
                (self.vector(field(fields, "msg_iov"))?, self.int_at(args, 2)?)
            }
        };
        let flags = self.flags(flags, RECEIVE_FLAGS)?;
        if flags & libc::MSG_PEEK != 0 {
            self.streams.entry(fd).or_default().unchecked = true;
        }
        Ok(Box::new(move |posix: &mut Posix, _| {
            posix.receive(fd, max, flags).map(|received| {
                let (data, _) = received?;
                let flags = stored_flags.map(|wanted| Stored { what: "msg_flags", wanted, got: 0 });
                // Without the message -1, which no script expects.
                let got = || posix.waiting(fd).map_or(-1, i64::from);
                let waiting = waiting.map(|wanted| Stored { what: "TCP_CM_INQ", wanted, got: got() });
                let stored = flags.into_iter().chain(waiting).collect();
                Ok(Done { value: data.len() as i64, data, stored, ..Done::default() })
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
                (self.vector(field(fields, "msg_iov"))?, self.int_at(args, 2)?)
            }
        };
        let flags = self.flags(flags, SEND_FLAGS)?;
        let from = self.streams.entry(fd).or_default().written;
        let data: Vec<u8> = match args.get(1) {
            Some(Expr::Text(text)) => {
                self.unchecked(fd);
                text.iter().copied().chain(std::iter::repeat(0)).take(length).collect()
            }
            _ => (0..length as u32).map(|n| pattern(from.wrapping_add(n))).collect(),
        };
        let mut transfer = Transfer::new(data);
        Ok(Box::new(move |posix: &mut Posix, _| match posix.send(fd, &mut transfer, flags, to) {
            Poll::Ready(sent) => Poll::Ready(sent.map(|count| Done::value(count as i64))),
            Poll::Pending => Poll::Pending,
        }))
    }
}
