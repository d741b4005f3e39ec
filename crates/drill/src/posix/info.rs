//! TCP_INFO: a connection's figures under Linux's names.

use tcp::{State, StatusReport};

use super::stream::Stage;
use super::{Errno, Object, Posix};

/// What `TCP_INFO` says, by name.
#[derive(Clone, Debug)]
pub struct TcpInfo {
    report: StatusReport,
}

/// Numbers of the states as Linux has them.
const STATES: [(&str, State, i128); 11] = [
    ("TCP_ESTABLISHED", State::Established, 1),
    ("TCP_SYN_SENT", State::SynSent, 2),
    ("TCP_SYN_RECV", State::SynReceived, 3),
    ("TCP_FIN_WAIT1", State::FinWait1, 4),
    ("TCP_FIN_WAIT2", State::FinWait2, 5),
    ("TCP_TIME_WAIT", State::TimeWait, 6),
    ("TCP_CLOSE", State::Closed, 7),
    ("TCP_CLOSE_WAIT", State::CloseWait, 8),
    ("TCP_LAST_ACK", State::LastAck, 9),
    ("TCP_LISTEN", State::Listen, 10),
    ("TCP_CLOSING", State::Closing, 11),
];

/// The number of a state's name, as in `TCP_CLOSE_WAIT`.
pub(crate) fn state_number(name: &str) -> Option<i128> {
    STATES.iter().find(|(known, ..)| *known == name).map(|(_, _, number)| *number)
}

const OPTION_TIMESTAMPS: i128 = 1;
const OPTION_SACK: i128 = 2;
const OPTION_WINDOW_SCALE: i128 = 4;

impl TcpInfo {
    /// The field `name`, without its `tcpi_`; `None` if it is not had.
    pub fn field(&self, name: &str) -> Option<i128> {
        let report = &self.report;
        let segments = |octets: u32| i128::from(octets.div_ceil(u32::from(report.mss).max(1)));
        Some(match name {
            "state" => STATES.iter().find(|(_, state, _)| *state == report.state).map_or(0, |(.., number)| *number),
            "snd_cwnd" => i128::from(report.cwnd / u32::from(report.mss).max(1)),
            // Linux says 2^31 - 1 while no loss has been seen.
            "snd_ssthresh" if report.ssthresh >= i32::MAX as u32 => i128::from(i32::MAX),
            "snd_ssthresh" => i128::from(report.ssthresh / u32::from(report.mss).max(1)),
            "snd_mss" => report.mss.into(),
            "unacked" => segments(report.unacknowledged),
            "rtt" => report.srtt.map_or(0, |srtt| srtt.as_micros() as i128),
            "rto" => report.rto.as_micros() as i128,
            "snd_wscale" => report.send_shift.into(),
            "rcv_wscale" => report.receive_shift.into(),
            "options" => {
                let mut options = 0;
                for (on, bit) in [
                    (report.timestamps, OPTION_TIMESTAMPS),
                    (report.sack, OPTION_SACK),
                    (report.send_shift > 0 || report.receive_shift > 0, OPTION_WINDOW_SCALE),
                ] {
                    options |= if on { bit } else { 0 };
                }
                options
            }
            "notsent_bytes" => i128::from(report.send_queue.saturating_sub(report.unacknowledged)),
            "rcv_wnd" => report.receive_window.into(),
            "snd_wnd" => report.send_window.into(),
            _ => return None,
        })
    }
}

impl Posix {
    /// `getsockopt(TCP_INFO)`.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`; `ENOTCONN` before there is a connection.
    pub fn tcp_info(&mut self, fd: i32) -> Result<TcpInfo, Errno> {
        let stack = self.stack.clone();
        match &self.file(fd)?.object {
            Object::Tcp(sock) => match &sock.stage {
                Stage::Stream(stream) => {
                    let report = stream.status(&stack).ok_or(Errno::ENOTCONN)?;
                    Ok(TcpInfo { report })
                }
                _ => Err(Errno::ENOTCONN),
            },
            _ => Err(Errno::ENOTSOCK),
        }
    }
}
