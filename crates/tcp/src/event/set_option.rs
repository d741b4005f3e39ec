//! Options of a live connection.

use core::time::Duration;

use observe::Time;

use super::TcpEvent;
use crate::access::{PcbAccess, PcbMut};
use crate::config::KeepAlive;
use crate::congestion::Kind;
use crate::error::Error;
use crate::outbox::{Outbox, Readiness};
use crate::output;
use crate::pcb::{Ack, Awaited, ReadMode, UserSettings};
use crate::user_timeout;

/// Largest buffer that can be set, in bytes: the largest window (RFC 7323 section 2.3).
const LARGEST_BUFFER: u32 = 1 << 30;

/// Set one option.
#[derive(Clone, Copy, Debug)]
pub struct SetOption(pub SocketOption);

/// An option with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    /// Send small segments at once (no Nagle).
    NoDelay(bool),
    /// Hold partial segments back.
    Cork(bool),
    /// Probe an idle peer with this timing, or stop.
    KeepAlive(Option<KeepAlive>),
    /// Probe an idle peer or stop, with the timing that was set last (`SO_KEEPALIVE`).
    KeepsAlive(bool),
    /// Silence before the first probe, 1 s to 32 767 s (`TCP_KEEPIDLE`). Takes effect at once if probing is on.
    KeepIdle(Duration),
    /// Time between probes, 1 s to 32 767 s (`TCP_KEEPINTVL`).
    KeepInterval(Duration),
    /// Unanswered probes that end the connection, 1 to 127 (`TCP_KEEPCNT`).
    KeepCount(u8),
    /// Size of the send buffer in bytes, 1 to 2^30; it no longer grows.
    SendBuffer(u32),
    /// Size of the receive buffer in bytes, 1 to 2^30; it no longer grows. A window already announced is never shrunk.
    ReceiveBuffer(u32),
    /// Congestion control.
    Congestion(Kind),
    /// How long close waits for unsent data; time zero resets.
    Linger(Option<Duration>),
    /// Give up after this long without progress (`TCP_USER_TIMEOUT`). The peer's advertised value is ignored until this
    /// is `None`.
    UserTimeout(Option<Duration>),
    /// Advertise this user time-out, 1 s to 32 767 min, at once, and adopt the peer's (RFC 5482); `None`: stop.
    AnnouncedUserTimeout(Option<Duration>),
    /// Largest window to announce, in bytes.
    WindowClamp(u32),
    /// Acknowledge at once for a while, or delay from now on.
    QuickAck(bool),
    /// Largest data of a segment of ours, in bytes; it can only be lowered.
    MaxSegment(u16),
    /// Longest stay in FIN-WAIT-2 after close; `None`: the stack's (`TCP_LINGER2`).
    FinWait2(Option<Duration>),
    /// Retransmissions of the SYN, 1 to 127 (`TCP_SYNCNT`).
    SynRetries(u8),
    /// Data from which on the connection counts as readable, in bytes; 0 counts as 1 (`SO_RCVLOWAT`).
    ReceiveLowWater(u32),
    /// Data that may wait unsent before the writer counts as blocked, in bytes (`TCP_NOTSENT_LOWAT`); 0: the stack's.
    NotSentLowWater(u32),
    /// Pace segments, at this many bytes per second or less; `u64::MAX` paces without a bound (`SO_MAX_PACING_RATE`).
    MaxPacingRate(u64),
    /// Differentiated Services field of all that is sent from now on, in the high six bits (`IP_TOS`, `IPV6_TCLASS`);
    /// the low two are those of ECN and the stack's.
    TrafficClass(u8),
    /// Time to live or hop limit of all that is sent from now on, 1 to 255 (`IP_TTL`, `IPV6_UNICAST_HOPS`); `None`:
    /// IP's default.
    HopLimit(Option<u8>),
    /// Whether soft errors raise [`Readiness::SOFT_ERROR`]; they do unless switched off.
    ErrorReports(bool),
    /// Whether every arrival of data raises [`Readiness::READABLE`], and not only the first after the receive queue was
    /// below the low-water mark: for edge-triggered pollers with Linux's semantics. Off unless switched on.
    EveryArrival(bool),
    /// Raises [`Readiness::WRITABLE`] when the send buffer next has room, at once if it has some now, although no send
    /// was refused: for a poller that found the connection not writable.
    NotifyWritable,
    /// Raises [`Readiness::ACKNOWLEDGED`] once, when SND.UNA next moves: for a user that reports when its sends are
    /// acknowledged.
    NotifyAcknowledged,
}

impl TcpEvent for SetOption {
    /// # Errors
    /// [`Error::InvalidOption`] if the value is out of range.
    type Reply = Result<(), Error>;

    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Result<(), Error> {
        pcb.whole(out, |parts, out| set(self.0, parts, out, now))
    }
}

fn set(option: SocketOption, mut parts: PcbMut<'_>, out: &mut Outbox<'_>, now: Time) -> Result<(), Error> {
    let (sw, rw) = (&mut *parts.send_window, &mut *parts.receive_window);
    match option {
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.4
        //# However, there MUST be a way for an application to disable the Nagle algorithm on an individual connection
        //# (MUST-17).
        SocketOption::NoDelay(on) => {
            sw.no_delay = on;
            // Corked data is sent as well; data written from now on is corked again.
            let cork = sw.hold.cork();
            sw.hold.set_cork(cork && !on);
            release_held(&mut parts, on, out, now);
            parts.send_window.hold.set_cork(cork);
        }
        SocketOption::Cork(on) => {
            sw.hold.set_cork(on);
            release_held(&mut parts, !on, out, now);
        }
        SocketOption::KeepAlive(timing) => {
            parts.header_in.settings(out.config).keep_alive(timing, now);
            parts.header_in.arm(out);
        }
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
        //# If keep-alives are included, the application MUST be able to turn them on or off for each TCP connection
        //# (MUST-24),
        SocketOption::KeepsAlive(on) => {
            let settings = parts.header_in.settings(out.config);
            let timing = on.then_some(settings.timing);
            settings.keep_alive(timing, now);
            parts.header_in.arm(out);
        }
        SocketOption::KeepIdle(_) | SocketOption::KeepInterval(_) | SocketOption::KeepCount(_) => {
            let heard = now - parts.header_in.silence(now);
            keep_timing(option, parts.header_in.settings(out.config), heard)?;
            parts.header_in.arm(out);
        }
        SocketOption::SendBuffer(bytes) => {
            sw.limit = in_range(bytes)?;
            sw.grows = false;
        }
        SocketOption::ReceiveBuffer(bytes) => {
            rw.limit = in_range(bytes)?;
            rw.grows = false;
        }
        SocketOption::Congestion(kind) => sw.congestion.set_kind(kind),
        SocketOption::Linger(time) => parts.header_in.settings(out.config).linger = time,
        SocketOption::FinWait2(time) => parts.header_in.settings(out.config).fin_wait_2 = time,
        SocketOption::SynRetries(retries) => {
            parts.header_in.settings(out.config).syn_retries = Some(within(retries.into(), 1..=127)? as u8);
        }
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
        //# An application MUST (MUST-21) be able to set the value for R2 for a particular connection.
        SocketOption::UserTimeout(time) => {
            let limit = time.map_or(0, crate::pcb::milliseconds);
            parts.header_in.settings(out.config).exchange.set_fixed(time.is_some());
            user_timeout::adopt(limit, parts.header_in, sw, out.config);
            // If data waits already, its deadline may be earlier than any other timer.
            out.wake_by(now);
        }
        SocketOption::AnnouncedUserTimeout(time) => user_timeout::announce(time, &mut parts, out, now)?,
        SocketOption::ReceiveLowWater(bytes) => {
            rw.low_water = bytes.clamp(1, LARGEST_BUFFER);
            rw.limit = rw.limit.max(rw.low_water);
            if rw.is_readable() {
                out.ready |= Readiness::READABLE;
            }
        }
        SocketOption::EveryArrival(_) if rw.discards() => {}
        SocketOption::EveryArrival(every) => {
            rw.reading = if every { ReadMode::EveryArrival } else { ReadMode::AtLowWater };
            rw.note_rare();
        }
        SocketOption::NotifyWritable if sw.is_writable(parts.retransmit_queue, out.config, out.scarcity) => {
            out.ready |= Readiness::WRITABLE;
        }
        SocketOption::NotifyWritable => sw.awaited.insert(Awaited::ROOM),
        SocketOption::NotifyAcknowledged => sw.awaited.insert(Awaited::ACKNOWLEDGEMENT),
        SocketOption::NotSentLowWater(bytes) => {
            let mark = if bytes == 0 { out.config.not_sent_low_water } else { bytes };
            sw.shaping(out.config).not_sent_low_water = mark;
        }
        SocketOption::MaxPacingRate(rate) => sw.shaping(out.config).pace_at_most(rate.max(1)),
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
        //# The application layer MUST be able to specify the Differentiated Services field for segments that are sent
        //# on a connection (MUST-48).
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
        //# It is not required, but the application SHOULD be able to change the Differentiated Services field during
        //# the connection lifetime (SHLD-21).
        SocketOption::TrafficClass(class) => parts.header_out.set_class(class),
        SocketOption::HopLimit(Some(0)) => return Err(Error::InvalidOption),
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2
        //# The TTL value used to send TCP segments MUST be configurable (MUST-49).
        SocketOption::HopLimit(limit) => parts.header_out.hop_limit = limit.unwrap_or(0),
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.8
        //# However, an application program that does not want to receive such ERROR_REPORT calls SHOULD be able to
        //# effectively disable these calls (SHLD-20).
        SocketOption::ErrorReports(on) => parts.header_in.settings(out.config).silent = !on,
        SocketOption::WindowClamp(bytes) => rw.clamp = in_range(bytes)?,
        SocketOption::QuickAck(on) => rw.delay.set_quick(if on { out.config.quick_acks } else { 0 }),
        SocketOption::MaxSegment(bytes) => {
            if bytes < out.config.min_mss.max(1) {
                return Err(Error::InvalidOption);
            }
            let size = bytes.saturating_add(sw.option_bytes());
            sw.mtu_search().into_iter().for_each(|search| search.at_most(size));
            sw.change_mss(sw.mss.min(bytes));
            parts.retransmit_queue.largest = parts.retransmit_queue.largest.min(size);
        }
    }
    Ok(())
}

/// One of the three parts of the keep-alive timing.
fn keep_timing(option: SocketOption, settings: &mut UserSettings, heard: Time) -> Result<(), Error> {
    let seconds = |time: Duration| within(time.as_secs(), 1..=32_767).map(|_| time);
    match option {
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
        //# This interval MUST be configurable (MUST-27)
        SocketOption::KeepIdle(time) => settings.timing.idle = seconds(time)?,
        SocketOption::KeepInterval(time) => settings.timing.interval = seconds(time)?,
        SocketOption::KeepCount(probes) => settings.timing.probes = within(probes.into(), 1..=127)? as u8,
        _ => return Err(Error::InvalidOption),
    }
    if settings.sent == 0 {
        settings.restart(heard);
    }
    Ok(())
}

fn within(value: u64, range: core::ops::RangeInclusive<u64>) -> Result<u64, Error> {
    if range.contains(&value) { Ok(value) } else { Err(Error::InvalidOption) }
}

fn in_range(bytes: u32) -> Result<u32, Error> {
    if (1..=LARGEST_BUFFER).contains(&bytes) { Ok(bytes) } else { Err(Error::InvalidOption) }
}

/// Sends data that a cork or Nagle's rule held back.
fn release_held(parts: &mut PcbMut<'_>, may_go: bool, out: &mut Outbox<'_>, now: Time) {
    if may_go {
        let advertised = parts.transmit(out, |sw, rq, ho, out| output::transmit(sw, rq, ho, out, now, Ack::None));
        if let Some((nxt, edge)) = advertised {
            parts.receive_window.acked(nxt, edge);
        }
    }
}
