//! `setsockopt` and `getsockopt`.

use posix::{OptionValue, is_known};

use crate::error::ScriptError;
use crate::run::{Ran, Runner};
use crate::script::Expr;

use super::arguments::field;
use super::{Attempt, Done, Stored, immediate};

impl Runner {
    fn option_name(&mut self, args: &[Expr]) -> Ran<(i32, i32)> {
        let (level, name) = (self.int_at(args, 1)? as i32, self.int_at(args, 2)? as i32);
        if is_known(level, name) {
            return Ok((level, name));
        }
        let shown = |value: Option<&Expr>| match value {
            Some(Expr::Word(word)) => word.clone(),
            _ => "by its number".to_owned(),
        };
        Err(ScriptError::unsupported(self.line, format!("the socket option {}", shown(args.get(2)))))
    }

    fn option_value(&mut self, value: Option<&Expr>) -> Ran<OptionValue> {
        match value {
            Some(Expr::Text(data)) => Ok(OptionValue::Bytes(data.clone())),
            Some(Expr::Struct(fields)) if field(fields, "tv_sec").or(field(fields, "tv_usec")).is_some() => {
                let mut number = |name| field(fields, name).map_or(Ok(0), |value| self.int(value));
                let (seconds, micros) = (number("tv_sec")?, number("tv_usec")?);
                OptionValue::time(seconds, micros)
                    .map_err(|error| self.error(format!("the time-out is out of range: {error}")))
            }
            Some(Expr::Struct(fields)) => {
                let on = field(fields, "onoff").map_or(Ok(0), |on| self.int(on))?;
                let seconds = field(fields, "linger").map_or(Ok(0), |seconds| self.int(seconds))?;
                Ok(OptionValue::Linger(on != 0, seconds as u32))
            }
            Some(Expr::List(items)) if items.len() == 1 => self.option_value(items.first()),
            Some(value) => Ok(OptionValue::Int(self.int(value)?)),
            None => Err(self.error("an option needs a value")),
        }
    }

    pub(super) fn prepare_set_option(&mut self, args: &[Expr], fd: i32) -> Ran<Attempt> {
        let (level, name) = self.option_name(args)?;
        let value = self.option_value(args.get(3))?;
        Ok(immediate(move |sockets| sockets.set_option(fd, level, name, &value).map(|()| Done::default())))
    }

    pub(super) fn prepare_get_option(&mut self, args: &[Expr], fd: i32) -> Ran<Attempt> {
        let (level, name) = self.option_name(args)?;
        let wanted = match args.get(3) {
            None | Some(Expr::Ellipsis) => None,
            value => Some(self.option_value(value)?),
        };
        Ok(immediate(move |sockets| {
            let got = sockets.get_option(fd, level, name)?;
            let stored = match (&wanted, &got) {
                (Some(OptionValue::Int(wanted)), OptionValue::Int(got)) => vec![(*wanted, *got)],
                (Some(OptionValue::Linger(on, seconds)), OptionValue::Linger(on_now, seconds_now)) => {
                    vec![(i64::from(*on), i64::from(*on_now)), (i64::from(*seconds), i64::from(*seconds_now))]
                }
                // A kind of value other than the script's is wrong in any case.
                (Some(wanted), got) => vec![(1, i64::from(wanted == got))],
                (None, _) => Vec::new(),
            };
            let stored = stored.into_iter().map(|(wanted, got)| Stored { what: "the option", wanted, got });
            Ok(Done { stored: stored.collect(), ..Done::default() })
        }))
    }
}
