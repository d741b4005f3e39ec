//! Options and queries of a connection by their usual socket names, one method each for set and get.
//!
//! All of them are values for [`TcpStream::set_option`] and fields of [`TcpStream::options`]; these methods are
//! shorthands. A getter on a connection that is gone is an error, as on a closed socket.

use std::io;
use std::time::Duration;

use pktbuf::{Chunk, PktBuf};
use stack::call::{Call, Reply};
use sync::Real;
use tcp::config::KeepAlive;
use tcp::congestion::Kind;
use tcp::{OptionValues, SocketOption, StatusReport, TcpInfo};

use crate::stream::TcpStream;

/// A setter and a getter for one option.
macro_rules! options {
    ($($(#[$doc:meta])* $set:ident, $get:ident: $type:ty = $variant:ident, $field:ident;)*) => {
        impl TcpStream {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// The value is out of range, or the connection is gone.
                pub fn $set(&self, value: $type) -> io::Result<()> {
                    self.set_option(SocketOption::$variant(value.into()))
                }

                #[doc = concat!("What [`TcpStream::", stringify!($set), "`] set, or what is in effect without it.")]
                ///
                /// # Errors
                /// The connection is gone.
                pub fn $get(&self) -> io::Result<$type> {
                    Ok(self.options()?.$field)
                }
            )*
        }
    };
}

options! {
    /// Holds partial segments back until uncorked, for 200 ms at most (`TCP_CORK`).
    set_cork, cork: bool = Cork, cork;
    /// Acknowledges at once for a while, or delays from now on (`TCP_QUICKACK`).
    set_quick_ack, quick_ack: bool = QuickAck, quick_ack;
    /// Probes an idle peer with the timing that was set last, or stops (`SO_KEEPALIVE`).
    set_keeps_alive, keeps_alive: bool = KeepsAlive, keeps_alive;
    /// Largest data of a sent segment, in bytes; it can only be lowered (`TCP_MAXSEG`).
    set_max_segment, max_segment: u16 = MaxSegment, max_segment;
    /// Largest window to advertise, in bytes (`TCP_WINDOW_CLAMP`).
    set_window_clamp, window_clamp: u32 = WindowClamp, window_clamp;
    /// Retransmissions of the SYN, 1 to 127 (`TCP_SYNCNT`).
    set_syn_retries, syn_retries: u8 = SynRetries, syn_retries;
    /// Congestion control (`TCP_CONGESTION`).
    set_congestion, congestion: Kind = Congestion, congestion;
    /// Bytes that may wait unsent before a writer is blocked; 0: the stack's knob (`TCP_NOTSENT_LOWAT`).
    set_not_sent_low_water, not_sent_low_water: u32 = NotSentLowWater, not_sent_low_water;
    /// Bytes from which on the stream counts as readable (`SO_RCVLOWAT`).
    set_receive_low_water, receive_low_water: u32 = ReceiveLowWater, receive_low_water;
    /// Paces segments at this many bytes per second or less (`SO_MAX_PACING_RATE`).
    set_max_pacing_rate, max_pacing_rate: u64 = MaxPacingRate, max_pacing_rate;
    /// Size of the send buffer in bytes; it no longer grows (`SO_SNDBUF`, without Linux's doubling).
    /// [`tcp::config::SendAccounting`] describes what counts against it, and how far the last write may exceed it.
    set_send_buffer, send_buffer: u32 = SendBuffer, send_buffer;
    /// Size of the receive buffer in bytes; it no longer grows (`SO_RCVBUF`, without Linux's doubling).
    set_receive_buffer, receive_buffer: u32 = ReceiveBuffer, receive_buffer;
}

impl TcpStream {
    /// The effective values of all options.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn options(&self) -> io::Result<OptionValues> {
        Ok(self.report()?.options)
    }

    /// `TCP_INFO`: the connection's report in Linux's layout; [`TcpInfo::to_bytes`] has the 280 bytes.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn info(&self) -> io::Result<TcpInfo> {
        Ok(TcpInfo::of(&self.report()?))
    }

    fn report(&self) -> io::Result<StatusReport> {
        self.status().ok_or_else(|| self.error(tcp::Error::NotConnected))
    }

    /// Whether small segments are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.options()?.no_delay)
    }

    /// Timing of keep-alive probes, whether they are on or not (`TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn keepalive(&self) -> io::Result<KeepAlive> {
        Ok(self.options()?.keep_alive)
    }

    /// How closing treats unacknowledged data, see [`TcpStream::set_linger`] (`SO_LINGER`).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.options()?.linger)
    }

    /// Which of the threads that poll the devices receives this connection's segments, counted from 0: the queue that
    /// the device's hash chooses (`SO_INCOMING_CPU`). `None` if no route leads to the peer any more.
    pub fn incoming_driver(&self) -> Option<usize> {
        self.driver()
    }

    /// Gives up after this long without progress; `None`: after the retries of the stack (`TCP_USER_TIMEOUT`).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_option(SocketOption::UserTimeout(timeout))
    }

    /// The value of [`TcpStream::set_user_timeout`].
    ///
    /// # Errors
    /// The connection is gone.
    pub fn user_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(Some(self.options()?.user_timeout).filter(|timeout| !timeout.is_zero()))
    }

    /// Advertises to the peer how long this end tolerates silence, 1 s to 32 767 min, and adapts to the peer's value:
    /// the longer of the two, within the stack's limits, becomes the user time-out, unless
    /// [`TcpStream::set_user_timeout`] has set one (RFC 5482). `None`: no longer. To advertise it with the SYN, set
    /// `announced_user_timeout` in the options that a listener or a connection is opened with.
    ///
    /// # Errors
    /// The connection is gone, or the option cannot express the time.
    pub fn set_announced_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_option(SocketOption::AnnouncedUserTimeout(timeout))
    }

    /// The user time-out that the peer advertised, if any.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn peer_user_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.options()?.peer_user_timeout)
    }

    /// Longest stay in FIN-WAIT-2 after close; `None`: the stack's knob (`TCP_LINGER2`).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn set_fin_wait_2(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_option(SocketOption::FinWait2(timeout))
    }

    /// The value of [`TcpStream::set_fin_wait_2`], or the stack's.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn fin_wait_2(&self) -> io::Result<Duration> {
        Ok(self.options()?.fin_wait_2)
    }

    /// Sends with this Differentiated Services field from now on: the high six bits of `class` (`IP_TOS`,
    /// `IPV6_TCLASS`).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        self.set_option(SocketOption::TrafficClass(class))
    }

    /// The value of [`TcpStream::set_traffic_class`].
    ///
    /// # Errors
    /// The connection is gone.
    pub fn traffic_class(&self) -> io::Result<u8> {
        Ok(self.options()?.traffic_class)
    }

    /// Sends with this time to live or hop limit from now on, 1 to 255; `None`: 64 (`IP_TTL`, `IPV6_UNICAST_HOPS`).
    ///
    /// # Errors
    /// The value is zero, or the connection is gone.
    pub fn set_hop_limit(&self, limit: Option<u8>) -> io::Result<()> {
        self.set_option(SocketOption::HopLimit(limit))
    }

    /// The value of [`TcpStream::set_hop_limit`].
    ///
    /// # Errors
    /// The connection is gone.
    pub fn hop_limit(&self) -> io::Result<Option<u8>> {
        Ok(self.options()?.hop_limit)
    }

    /// Whether soft errors set [`Readiness::SOFT_ERROR`](crate::Readiness::SOFT_ERROR): an ICMP error, or a peer that
    /// does not answer. On by default.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn set_error_reports(&self, on: bool) -> io::Result<()> {
        self.set_option(SocketOption::ErrorReports(on))
    }

    /// The soft error of the connection, if there was one since the peer was last heard. Clears
    /// [`Readiness::SOFT_ERROR`](crate::Readiness::SOFT_ERROR).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn soft_error(&self) -> io::Result<Option<io::Error>> {
        self.socket().ready.clear(tcp::Readiness::SOFT_ERROR);
        Ok(self.report()?.soft_error.map(|error| self.error(error)))
    }

    /// Bytes that can be read now (`SIOCINQ`).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn unread(&self) -> io::Result<usize> {
        Ok(self.kept() + self.report()?.receive_queue as usize)
    }

    /// Bytes written and not acknowledged, sent or not (`SIOCOUTQ`).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn unacknowledged(&self) -> io::Result<usize> {
        Ok(self.report()?.send_queue as usize)
    }

    /// Bytes written and never sent (`SIOCOUTQNSD`).
    ///
    /// # Errors
    /// The connection is gone.
    pub fn unsent(&self) -> io::Result<usize> {
        let report = self.report()?;
        Ok(report.send_queue.saturating_sub(report.unacknowledged) as usize)
    }

    /// Whether the next byte to be read is the urgent one (`SIOCATMARK`). Urgent data is always inline (RFC 6093), and
    /// one read does not pass the mark.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn at_mark(&self) -> io::Result<bool> {
        match self.mark() {
            Some(before) => Ok(before == 0),
            None => Ok(self.kept() == 0 && self.report()?.urgent == Some(1)),
        }
    }

    /// Sends `data` that more will follow (`MSG_MORE`): a partial segment waits for the next write, for an
    /// acknowledgement, or for 200 ms and a round trip; returns how much was taken.
    ///
    /// # Errors
    /// As a write; [`io::ErrorKind::WouldBlock`] if there is no room now.
    pub fn send_more(&self, data: &[u8]) -> io::Result<usize> {
        self.send_copy(data, |send| Call::SendMore(tcp::SendMore(send)))
    }

    /// Sends `data`, the last byte of which is urgent (`MSG_OOB`); returns how much was taken. The mark is set if all
    /// was.
    ///
    /// # Errors
    /// As a write; [`io::ErrorKind::WouldBlock`] if there is no room now.
    pub fn send_urgent(&self, data: &[u8]) -> io::Result<usize> {
        self.send_copy(data, |send| Call::SendUrgent(tcp::SendUrgent(send)))
    }

    fn send_copy(&self, data: &[u8], call: impl FnOnce(tcp::Send) -> Call<Real>) -> io::Result<usize> {
        let mut buffer = PktBuf::alloc(data.len()).ok_or_else(|| self.error(tcp::Error::NoBuffer))?;
        let fits = buffer.extend_from_slice(data);
        debug_assert!(fits, "the buffer was asked for in this size");
        let mut chunks = tcp::Chunks::new();
        chunks.push(Chunk::Pooled(buffer));
        match self.call(call(tcp::Send { chunks })) {
            Reply::Sent(Ok(sent)) if sent.accepted == 0 && !data.is_empty() => Err(self.error(tcp::Error::WouldBlock)),
            Reply::Sent(Ok(sent)) => Ok(sent.accepted),
            Reply::Sent(Err(error)) => Err(self.error(error)),
            _ => Err(self.error(tcp::Error::NotConnected)),
        }
    }
}
