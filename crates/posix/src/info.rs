//! TCP_INFO: a connection's values under Linux's names.

use sync::Platform;

use crate::description::OpenObject;
use crate::tcp_socket::Stage;
use crate::{Errno, Sockets};

/// The contents of `TCP_INFO`, by name and as bytes.
#[derive(Clone, Copy, Debug)]
pub struct LinuxTcpInfo {
    info: tcp::TcpInfo,
}

/// The number of a state's name, as in `TCP_CLOSE_WAIT`.
pub fn state_number(name: &str) -> Option<i64> {
    use tcp::State;
    let state = match name {
        "TCP_ESTABLISHED" => State::Established,
        "TCP_SYN_SENT" => State::SynSent,
        "TCP_SYN_RECV" => State::SynReceived,
        "TCP_FIN_WAIT1" => State::FinWait1,
        "TCP_FIN_WAIT2" => State::FinWait2,
        "TCP_TIME_WAIT" => State::TimeWait,
        "TCP_CLOSE" => State::Closed,
        "TCP_CLOSE_WAIT" => State::CloseWait,
        "TCP_LAST_ACK" => State::LastAck,
        "TCP_LISTEN" => State::Listen,
        "TCP_CLOSING" => State::Closing,
        _ => return None,
    };
    Some(tcp::info::linux_state(state).into())
}

impl LinuxTcpInfo {
    /// The field `name`, without its `tcpi_`; `None` if there is none of this name.
    pub fn field(&self, name: &str) -> Option<i128> {
        // C packs these two, and the bit fields, into one byte each.
        match name {
            "snd_wscale" => return Some(i128::from(self.info.wscale & 15)),
            "rcv_wscale" => return Some(i128::from(self.info.wscale >> 4)),
            "delivery_rate_app_limited" => return Some(i128::from(self.info.flags & 1)),
            "fastopen_client_fail" => return Some(i128::from(self.info.flags >> 1 & 3)),
            _ => {}
        }
        self.info.fields().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    /// The bytes that `getsockopt` copies out.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.info.to_bytes().to_vec()
    }
}

impl<P: Platform> Sockets<P> {
    /// `getsockopt(TCP_INFO)`.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`; `ENOTCONN` for a connection that is no longer there.
    pub fn tcp_info(&self, fd: i32) -> Result<LinuxTcpInfo, Errno> {
        let file = self.file(fd)?;
        let OpenObject::Tcp(socket) = &file.object else { return Err(Errno::ENOTSOCK) };
        let config = self.stack.shared().control().tcp();
        let state = socket.lock();
        let info = match &state.stage {
            Stage::Stream(stream) => tcp::TcpInfo::of(&stream.status(&self.stack).ok_or(Errno::ENOTCONN)?),
            Stage::Listener(listener) => tcp::TcpInfo::of_listener(listener.occupancy().1, state.backlog, config),
            Stage::Idle(_) | Stage::Deferred(..) => tcp::TcpInfo::of_idle(config),
        };
        Ok(LinuxTcpInfo { info })
    }
}
