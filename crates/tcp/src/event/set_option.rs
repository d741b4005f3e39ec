//! Options of a live connection.

use core::time::Duration;

use observe::Time;

use super::Event;
use crate::access::{PcbAccess, PcbMut};
use crate::config::KeepAlive;
use crate::congestion::Kind;
use crate::error::Error;
use crate::outbox::Outbox;
use crate::output;
use crate::pcb::{Ack, KeepAliveState};

/// Largest buffer that can be set, in octets: what a window can say (RFC 7323 section 2.3).
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
    /// Probe an idle peer, or stop.
    KeepAlive(Option<KeepAlive>),
    /// Size of the send buffer in octets, 1 to 2^30; it no longer grows.
    SendBuffer(u32),
    /// Size of the receive buffer in octets, 1 to 2^30; it no longer grows. A window that was announced is honoured.
    ReceiveBuffer(u32),
    /// Congestion control.
    Congestion(Kind),
    /// What close does with text not yet sent; time zero resets.
    Linger(Option<Duration>),
    /// Give up after this long without progress.
    UserTimeout(Option<Duration>),
    /// Largest window to announce, in octets.
    WindowClamp(u32),
    /// Acknowledge at once for a while, or delay from now on.
    QuickAck(bool),
    /// Largest text of a segment of ours, in octets; it can only be lowered.
    MaxSegment(u16),
}

impl Event for SetOption {
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
        SocketOption::NoDelay(on) => {
            sw.no_delay = on;
            release_held(&mut parts, on, out, now);
        }
        SocketOption::Cork(on) => {
            sw.cork = on;
            release_held(&mut parts, !on, out, now);
        }
        SocketOption::KeepAlive(timing) => {
            parts.header_in.keep_alive =
                timing.map(|timing| Box::new(KeepAliveState { timing, sent: 0, deadline: now + timing.idle }));
            parts.header_in.arm(out);
        }
        SocketOption::SendBuffer(octets) => {
            sw.limit = in_range(octets)?;
            sw.grows = false;
        }
        SocketOption::ReceiveBuffer(octets) => {
            rw.limit = in_range(octets)?;
            rw.grows = false;
        }
        SocketOption::Congestion(kind) => sw.congestion.set_kind(kind),
        SocketOption::Linger(time) => parts.header_in.linger_zero = time == Some(Duration::ZERO),
        SocketOption::UserTimeout(time) => {
            parts.header_in.user_timeout = time.map_or(0, crate::pcb::milliseconds);
        }
        SocketOption::WindowClamp(octets) => rw.clamp = in_range(octets)?,
        SocketOption::QuickAck(on) => rw.quick = if on { out.config.quick_acks } else { 0 },
        SocketOption::MaxSegment(octets) => {
            if octets < out.config.min_mss.max(1) {
                return Err(Error::InvalidOption);
            }
            sw.mss = sw.mss.min(octets);
            sw.congestion.set_mss(u32::from(sw.mss));
        }
    }
    Ok(())
}

fn in_range(octets: u32) -> Result<u32, Error> {
    if (1..=LARGEST_BUFFER).contains(&octets) { Ok(octets) } else { Err(Error::InvalidOption) }
}

/// Text that a cork or Nagle's rule held back may go now.
fn release_held(parts: &mut PcbMut<'_>, may_go: bool, out: &mut Outbox<'_>, now: Time) {
    if may_go {
        let told = parts.transmit(out, |sw, rq, ho, out| output::transmit(sw, rq, ho, out, now, Ack::None));
        if let Some((nxt, edge)) = told {
            parts.receive_window.acked(nxt, edge);
        }
    }
}
