//! Fast Open as Linux's calls have it: a send that opens (`MSG_FASTOPEN`), and a `connect` that leaves its SYN to the
//! first write (`TCP_FASTOPEN_CONNECT`).

use std::net::SocketAddr;
use std::task::Poll;

use stack::Stack;
use sync::Platform;
use tcp::config::{FastOpenKeys, FastOpenMode};

use crate::options::OptionValue;
use crate::stream::Stream;
use crate::tcp_socket::{Stage, TcpSocketState};
use crate::transfer::Transfer;
use crate::{CallProgress, Errno, now};

fn is_client<P: Platform>(stack: &Stack<P>) -> bool {
    stack.shared().control().tcp().fast_open.has(FastOpenMode::CLIENT)
}

/// `TCP_FASTOPEN_KEY`: one key, or the key and the one before it.
pub(crate) fn read_keys(bytes: &[u8]) -> Result<FastOpenKeys, Errno> {
    match bytes.as_chunks::<16>() {
        ([primary], []) => Ok(FastOpenKeys { primary: Some(*primary), backup: None }),
        ([primary, backup], []) => Ok(FastOpenKeys { primary: Some(*primary), backup: Some(*backup) }),
        _ => Err(Errno::EINVAL),
    }
}

impl<P: Platform> TcpSocketState<P> {
    /// `setsockopt` of an option of Fast Open. `None`: `name` is not a Fast Open option.
    pub(crate) fn set_fast_open(
        &mut self,
        stack: &Stack<P>,
        name: i32,
        value: &OptionValue,
    ) -> Option<Result<(), Errno>> {
        let open = matches!(self.stage, Stage::Idle(_));
        let passive = open || matches!(self.stage, Stage::Listener(_));
        let result = match (name, value) {
            (libc::TCP_FASTOPEN, OptionValue::Int(0..)) if passive => Ok(()),
            (libc::TCP_FASTOPEN_CONNECT, OptionValue::Int(0 | 1)) if !is_client(stack) => Err(Errno::EOPNOTSUPP),
            (libc::TCP_FASTOPEN_CONNECT, OptionValue::Int(0 | 1)) if open => Ok(()),
            (libc::TCP_FASTOPEN_KEY, OptionValue::Bytes(bytes)) => read_keys(bytes).map(|_| ()),
            (libc::TCP_FASTOPEN | libc::TCP_FASTOPEN_CONNECT | libc::TCP_FASTOPEN_KEY, _) => Err(Errno::EINVAL),
            _ => return None,
        };
        if result.is_ok() {
            self.settings.keep(libc::IPPROTO_TCP, name, value.clone());
            self.tell_listener();
        }
        Some(result)
    }

    /// Applies the Fast Open settings to a listener, whether set before or after it began to listen.
    pub(crate) fn tell_listener(&self) {
        let Stage::Listener(listener) = &self.stage else { return };
        if let Some(OptionValue::Int(limit)) = self.settings.kept(libc::IPPROTO_TCP, libc::TCP_FASTOPEN) {
            listener.set_fast_open(usize::try_from(*limit).unwrap_or(0));
        }
        if let Some(OptionValue::Bytes(bytes)) = self.settings.kept(libc::IPPROTO_TCP, libc::TCP_FASTOPEN_KEY)
            && let Ok(keys) = read_keys(bytes)
        {
            listener.set_fast_open_keys(keys);
        }
    }

    /// `connect` under `TCP_FASTOPEN_CONNECT`: nothing is sent if the first write can open the connection; otherwise
    /// the SYN requests a cookie, and the connection is being opened.
    pub(crate) fn connect_later(
        &mut self,
        stack: &Stack<P>,
        bound: Option<SocketAddr>,
        to: SocketAddr,
    ) -> Result<(), Errno> {
        if stack.opens_fast(to.ip()) {
            self.stage = Stage::Deferred(bound, to);
            return Ok(());
        }
        self.open_fast(stack, (bound, to), (&mut Transfer::new([]), false))
    }

    fn open_fast(
        &mut self,
        stack: &Stack<P>,
        (bound, to): (Option<SocketAddr>, SocketAddr),
        (transfer, waits): (&mut Transfer, bool),
    ) -> Result<(), Errno> {
        let options = self.settings.connection(stack.shared().control().tcp());
        // A SYN carries no more.
        let (data, range) = transfer.next(usize::from(u16::MAX));
        let (socket, taken) = stack.connect_fast(bound, to, &options, &data[range], waits)?;
        let stream = Stream::new(socket, true, self.waiters());
        self.adopt(stack, stream)?;
        transfer.advance(taken);
        Ok(())
    }

    /// The beginning of a send that opens the connection, or finds one that is being opened. `None`: the send continues
    /// normally.
    pub(crate) fn open_by_send(
        &mut self,
        stack: &Stack<P>,
        transfer: &mut Transfer,
        (asked, nonblocking): (bool, bool),
        to: Option<SocketAddr>,
    ) -> Option<CallProgress<usize>> {
        let ends = match &mut self.stage {
            Stage::Deferred(bound, to) => Ok((*bound, *to)),
            Stage::Idle(bound) if asked => {
                let bound = *bound;
                match to.filter(|_| is_client(stack)) {
                    Some(to) => self.on_wire(to).map(|to| (bound, to)),
                    None => Err(Errno::EOPNOTSUPP),
                }
            }
            Stage::Stream(stream) if asked && !transfer.opens() => return stream.met_by_open(stack, nonblocking),
            Stage::Listener(_) if asked => Err(Errno::EISCONN),
            _ => return None,
        };
        Some(match ends.and_then(|ends| self.open_fast(stack, ends, (transfer, !nonblocking))) {
            Err(error) => now(Err(error)),
            Ok(()) if !nonblocking => {
                transfer.open();
                Poll::Pending
            }
            Ok(()) if transfer.done() == 0 => now(Err(Errno::EINPROGRESS)),
            Ok(()) => now(Ok(transfer.done())),
        })
    }
}

impl<P: Platform> Stream<P> {
    /// A send that should open finds a connection.
    fn met_by_open(&self, stack: &Stack<P>, nonblocking: bool) -> Option<CallProgress<usize>> {
        if !self.is_opening() {
            return Some(now(Err(Errno::EISCONN)));
        }
        match self.status(stack) {
            Some(status) if status.state.is_synchronised() => {
                self.opened();
                None
            }
            Some(status) if status.state != tcp::State::Closed && nonblocking => Some(now(Err(Errno::EALREADY))),
            _ => None,
        }
    }
}
