//! The header-in part: who the connection is, in which state, and how an arriving header is judged before any window is
//! looked at. It also keeps what belongs to the connection as a whole: its error, keep-alive and the timers of states.

use core::time::Duration;

use observe::Time;
use wire::FourTuple;
use wire::tcp::TcpFlags;

use super::Tick;
use crate::config::{ConnectionOptions, KeepAlive};
use crate::error::Error;
use crate::outbox::Outbox;
use crate::segment::Segment;
use crate::state::State;

/// Keep-alive state; boxed, because most connections have none.
#[derive(Debug)]
pub(crate) struct KeepAliveState {
    pub(crate) timing: KeepAlive,
    /// Probes sent since the peer was last heard.
    pub(crate) sent: u8,
    /// When to look again.
    pub(crate) deadline: Time,
}

/// See the module documentation.
#[derive(Debug)]
pub struct HeaderIn {
    /// The authority for the connection's state.
    pub(crate) state: State,
    /// Why the connection ended, until the user has been told.
    pub(crate) error: Option<Error>,
    /// What an ICMP error said, in case the opening fails for lack of an answer.
    pub(crate) soft_error: Option<Error>,
    /// A child of a listener.
    pub(crate) passive: bool,
    /// Somebody will close or abort the connection; until then it stays although it may be finished.
    pub(crate) held: bool,
    /// The user has closed: nobody will read the text.
    pub(crate) orphan: bool,
    /// Close resets (linger time zero).
    pub(crate) linger_zero: bool,
    pub(crate) tuple: FourTuple,
    /// Give up after this long without progress, in ms; 0 for the retry limit alone.
    pub(crate) user_timeout: u32,
    /// When a segment of this connection last arrived.
    pub(crate) last_heard: Time,
    /// When the last challenge acknowledgement was sent (RFC 5961 section 7).
    pub(crate) challenged: Tick,
    /// End of TIME-WAIT, or of an orphaned FIN-WAIT-2.
    pub(crate) state_deadline: Time,
    pub(crate) keep_alive: Option<Box<KeepAliveState>>,
}

/// `time` in whole milliseconds, as far as 32 bits go (49 days).
pub(crate) fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// Which way a segment takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Established, and nothing but ACK and PSH: hold-set by hold-set.
    Established,
    /// Everything else: all parts at once.
    Whole,
}

impl HeaderIn {
    pub(crate) fn new(state: State, tuple: FourTuple, options: &ConnectionOptions, now: Time) -> Self {
        HeaderIn {
            state,
            error: None,
            soft_error: None,
            passive: false,
            held: true,
            orphan: false,
            linger_zero: options.linger == Some(Duration::ZERO),
            tuple,
            user_timeout: options.user_timeout.map_or(0, milliseconds),
            last_heard: now,
            challenged: Tick::long_before(now),
            state_deadline: Time::MAX,
            keep_alive: options
                .keep_alive
                .map(|timing| Box::new(KeepAliveState { timing, sent: 0, deadline: now + timing.idle })),
        }
    }

    /// Who the connection is.
    pub fn tuple(&self) -> FourTuple {
        self.tuple
    }

    /// The connection's state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The first look at an arriving segment: choose its path, and note that the peer is alive.
    #[inline]
    pub(crate) fn judge(&mut self, segment: &Segment, now: Time) -> Path {
        self.last_heard = now;
        let plain = segment.header.flags.0 & !(TcpFlags::PSH.0 | TcpFlags::ECE.0 | TcpFlags::CWR.0) == TcpFlags::ACK.0;
        if plain && self.state == State::Established { Path::Established } else { Path::Whole }
    }

    /// May a challenge acknowledgement be sent now? If so, the next one must wait (RFC 5961 section 7).
    pub(crate) fn may_challenge(&mut self, now: Time, interval: Duration) -> bool {
        let may = self.challenged.elapsed(now) >= interval;
        if may {
            self.challenged = Tick::of(now);
        }
        may
    }

    /// Ask for a wake at the earliest of this part's deadlines. They change too rarely to remember what was asked for.
    pub(crate) fn arm(&mut self, out: &mut Outbox<'_>) {
        let keep_alive = self.keep_alive.as_ref().map_or(Time::MAX, |state| state.deadline);
        let deadline = self.state_deadline.min(keep_alive);
        if deadline != Time::MAX {
            out.wake_by(deadline);
        }
    }
}
