//! Numbers and addresses in arguments.

use std::net::{IpAddr, SocketAddr};

use crate::error::ScriptError;
use crate::run::{Ran, Runner};
use crate::script::{Expr, Field, Operator};
use crate::symbols;

/// A call that lacks required arguments.
pub(super) fn missing(line: u32, call: &str) -> ScriptError {
    ScriptError::new(line, format!("{call}() has too few arguments"))
}

/// The value of a field.
pub(super) fn field<'f>(fields: &'f [Field], name: &str) -> Option<&'f Expr> {
    fields.iter().find(|field| field.name.as_deref() == Some(name)).map(|field| &field.value)
}

impl Runner {
    /// The argument at `place` as a number.
    pub(super) fn int_at(&mut self, args: &[Expr], place: usize) -> Ran<i64> {
        match args.get(place) {
            Some(value) => self.int(value),
            None => Err(self.error(format!("argument {} is missing", place + 1))),
        }
    }

    /// A value as a number.
    pub(super) fn int(&mut self, value: &Expr) -> Ran<i64> {
        match value {
            Expr::Int(value) => Ok(*value),
            Expr::Word(word) => {
                symbols::number(word).ok_or_else(|| ScriptError::unsupported(self.line, format!("the name {word}")))
            }
            Expr::Not(inner) => Ok(!self.int(inner)?),
            Expr::Binary(operator, left, right) => {
                let (left, right) = (self.int(left)?, self.int(right)?);
                match operator {
                    Operator::Or => Some(left | right),
                    Operator::And => Some(left & right),
                    Operator::Add => left.checked_add(right),
                    Operator::Multiply => left.checked_mul(right),
                    Operator::ShiftLeft => u32::try_from(right).ok().and_then(|right| left.checked_shl(right)),
                }
                .ok_or_else(|| self.error("a number becomes too large"))
            }
            // Numbers in scripts are in host order, on every machine.
            Expr::Apply(name, args) if matches!(name.as_str(), "htons" | "htonl" | "ntohs" | "ntohl") => {
                self.int_at(args, 0)
            }
            Expr::List(items) if items.len() == 1 => self.int(&items[0]),
            Expr::Ellipsis => Err(self.error("`...` cannot stand for a number here")),
            _ => Err(self.error("a number is expected here")),
        }
    }

    /// `{sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("10.0.0.1")}`; `None` for `AF_UNSPEC`.
    pub(super) fn socket_address(&mut self, fields: &[Field]) -> Ran<Option<SocketAddr>> {
        let named = |names: &[&str]| names.iter().find_map(|name| field(fields, name));
        let family = match named(&["sa_family", "sin_family", "sin6_family"]) {
            Some(family) => self.int(family)?,
            None => i64::from(libc::AF_INET),
        };
        if family == i64::from(libc::AF_UNSPEC) {
            return Ok(None);
        }
        let port = match named(&["sin_port", "sin6_port"]) {
            Some(port) => u16::try_from(self.int(port)?).map_err(|_| self.error("a port is 0 to 65535"))?,
            None => 0,
        };
        let text = match named(&["sin_addr", "sin6_addr"]) {
            Some(Expr::Apply(_, args)) => args.iter().find_map(|arg| match arg {
                Expr::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
                _ => None,
            }),
            _ => None,
        };
        let text =
            text.ok_or_else(|| self.error("an address is written inet_addr(\"10.0.0.1\") or inet6_addr(...)"))?;
        let address: IpAddr = text.parse().map_err(|_| self.error(format!("`{text}` is not an address")))?;
        Ok(Some(SocketAddr::new(address, port)))
    }
}
