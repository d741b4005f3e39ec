//! Bytes of streams, and the names in assertions.

use posix::{Errno, LinuxTcpInfo};

use crate::code::{Names, Value};
use crate::symbols;

use super::Runner;

/// Bytes written and read on a descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    pub written: u32,
    pub read: u32,
    /// Bytes read are no longer compared, because some were skipped.
    pub unchecked: bool,
}

/// The byte at a position of a stream, in both directions, so that data can be compared byte by byte. 251 is prime: no
/// segment size makes it repeat.
pub(super) fn pattern(place: u32) -> u8 {
    (place % 251) as u8
}

/// Names of assertions: fields of the connection's TCP_INFO, and constants.
pub(super) struct Info<'r> {
    pub runner: &'r mut Runner,
    pub info: Option<Result<LinuxTcpInfo, Errno>>,
}

impl Names for Info<'_> {
    fn look_up(&mut self, name: &str) -> Result<Option<Value>, String> {
        let Some(field) = name.strip_prefix("tcpi_") else {
            return Ok(symbols::number(name).map(|number| Value::Int(number.into())));
        };
        let runner = &mut self.runner;
        let info = self.info.get_or_insert_with(|| match runner.fd_under_test() {
            Some(fd) => runner.sockets.tcp_info(fd),
            None => Err(Errno::EBADF),
        });
        match info {
            Ok(info) => Ok(info.field(field).map(Value::Int)),
            Err(error) => Err(format!("{name}: the connection under test has no descriptor to ask ({error})")),
        }
    }
}
