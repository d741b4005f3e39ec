//! The header-in part: the state of the connection, and the classification of an arriving header before any window is
//! examined. It also keeps the state of the connection as a whole: its error, keep-alive and the timers of states. The
//! four-tuple is not stored here: the connection table owns it.

use core::time::Duration;

use observe::Time;
use wire::tcp::{HEADER_LEN, TcpFlags};

use super::UserSettings;
use crate::config::{Config, ConnectionOptions};
use crate::ecn_state::{CE, NOT_ECT};
use crate::error::Error;
use crate::isn::ChildIdentity;
use crate::outbox::{Outbox, Readiness};
use crate::scarcity::LimitClass;
use crate::segment::Segment;
use crate::state::State;
use crate::tick::{Tick, ticks_of_2_20_ns};

/// Bits of `HeaderIn::traits`.
const PASSIVE: u8 = 1;
const DATA_ON_SYN: u8 = 2;
/// The user time-outs of both ends are advertised.
const EXCHANGES: u8 = 4;
/// The peer has an IPv6 address.
const IPV6: u8 = 8;
/// A user will close or abort the connection; until then it stays even if it is finished.
const HELD: u8 = 16;
/// Shift of the least ECN field with which segments take the slow path.
const NOTABLE_SHIFT: u32 = 6;
/// Bytes of a header with only timestamps.
const USUAL_LEN: usize = HEADER_LEN + 12;

/// See the module documentation.
#[derive(Debug)]
#[repr(C)]
pub struct HeaderIn {
    /// Segments that arrived, modulo 2^32.
    pub(crate) segments_in: u32,
    /// When a segment of this connection last arrived, in units of 2^20 ns modulo 2^32.
    pub(super) last_heard: u32,
    /// Of [`PASSIVE`], [`DATA_ON_SYN`], [`EXCHANGES`], [`IPV6`] and [`HELD`]; above them the class set by
    /// [`HeaderIn::notice`], initially that of marked segments.
    traits: u8,
    /// The connection's state; the other parts have copies.
    pub(crate) state: State,
    /// Why the connection ended, until the error has been reported to the user.
    pub(crate) error: Option<Error>,
    /// When the last challenge acknowledgement was sent (RFC 5961 section 7).
    pub(crate) challenged: Tick,
    /// End of TIME-WAIT, or of an orphaned FIN-WAIT-2.
    pub(crate) state_deadline: Time,
    /// Settings that few connections have.
    pub(crate) settings: Option<Box<UserSettings>>,
}

/// `time` in whole milliseconds, as far as 32 bits go (49 days).
pub(crate) fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// The path of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentPath {
    /// Established, with only ACK and PSH: hold-set by hold-set.
    Established,
    /// Everything else: all parts at once.
    Whole,
}

impl HeaderIn {
    /// For a connection in `state`; `ipv6`: the peer has an IPv6 address.
    pub(crate) fn new(state: State, ipv6: bool, options: &ConnectionOptions, config: &Config, now: Time) -> Self {
        let settings = UserSettings::of(options, config, now);
        let exchanges = settings.as_ref().is_some_and(|settings| settings.exchange.is_on());
        HeaderIn {
            state,
            error: None,
            traits: CE << NOTABLE_SHIFT | HELD | if exchanges { EXCHANGES } else { 0 } | if ipv6 { IPV6 } else { 0 },
            segments_in: 0,
            last_heard: ticks_of_2_20_ns(now),
            challenged: Tick::long_before(now),
            state_deadline: Time::MAX,
            settings,
        }
    }

    /// That of another connection, which has begun as this one has.
    #[inline(always)]
    pub(crate) fn like(&self, identity: &ChildIdentity<'_>) -> Self {
        HeaderIn {
            segments_in: self.segments_in,
            last_heard: ticks_of_2_20_ns(identity.now),
            traits: self.traits,
            state: self.state,
            error: self.error,
            challenged: Tick::long_before(identity.now),
            state_deadline: self.state_deadline,
            settings: None,
        }
    }

    /// The connection's state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Since a segment of this connection last arrived, to about a millisecond and never too long; wrong after 52 days
    /// of silence.
    pub(crate) fn silence(&self, now: Time) -> Duration {
        Duration::from_nanos(u64::from(ticks_of_2_20_ns(now).wrapping_sub(self.last_heard)) << 20)
    }

    /// The user time-out; zero for none.
    pub(crate) fn user_timeout(&self) -> Duration {
        Duration::from_millis(self.settings.as_ref().map_or(0, |settings| settings.user_timeout.into()))
    }

    /// A transient condition: record it, and report it to the user unless the user has disabled such reports (RFC 9293
    /// section 3.9.1.8).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.8
    //# There MUST be a mechanism for reporting soft TCP error conditions to the application (MUST-47).
    #[cold]
    pub(crate) fn note_soft_error(&mut self, error: Error, out: &mut Outbox<'_>, now: Time) {
        let settings = self.settings(out.config);
        settings.soft_error = Some(error);
        settings.soft_error_at = ticks_of_2_20_ns(now);
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.8
        //# However, an application program that does not want to receive such ERROR_REPORT calls SHOULD be able to
        //# effectively disable these calls (SHLD-20).
        if !settings.silent {
            out.ready |= Readiness::SOFT_ERROR;
        }
    }

    /// The soft error noted since the last segment arrived: the arrival of any segment ends it.
    pub(crate) fn soft_error(&self) -> Option<Error> {
        let settings = self.settings.as_ref()?;
        settings.soft_error.filter(|_| settings.soft_error_at.wrapping_sub(self.last_heard) as i32 >= 0)
    }

    /// The user has closed: the data will not be read.
    #[inline]
    pub(crate) fn is_orphan(&self) -> bool {
        !self.is_held() && self.state.is_synchronised()
    }

    /// Close resets (linger time zero).
    pub(crate) fn resets_on_close(&self) -> bool {
        self.settings.as_ref().is_some_and(|settings| settings.linger == Some(Duration::ZERO))
    }

    /// The settings that few connections have, allocated if necessary.
    pub(crate) fn settings(&mut self, config: &Config) -> &mut UserSettings {
        self.settings.get_or_insert_with(|| UserSettings::new(config))
    }

    /// After a change of the state or of the holder: reports how the connection counts against the stack's limits.
    pub(crate) fn recount(&self, out: &mut Outbox<'_>) {
        self.recount_in(self.state, out);
    }

    /// [`HeaderIn::recount`] of a connection in `state`.
    #[inline(always)]
    pub(crate) fn recount_in(&self, state: State, out: &mut Outbox<'_>) {
        out.standing = Some(match state {
            State::TimeWait => LimitClass::TimeWait,
            State::Closed | State::Listen => LimitClass::Free,
            state if !self.is_held() && state.is_synchronised() => LimitClass::Orphan,
            _ => LimitClass::Free,
        });
    }

    /// Whether the peer has an IPv6 address.
    pub(crate) fn is_ipv6(&self) -> bool {
        self.traits & IPV6 != 0
    }

    /// Whether a user will close or abort the connection. Until then it stays even if it is finished.
    pub(crate) fn is_held(&self) -> bool {
        self.traits & HELD != 0
    }

    /// Sets whether a user will close or abort the connection.
    pub(crate) fn set_held(&mut self, held: bool) {
        self.traits = self.traits & !HELD | if held { HELD } else { 0 };
    }

    /// A child of a listener?
    pub(crate) fn is_passive(&self) -> bool {
        self.traits & PASSIVE != 0
    }

    /// It is a child of a listener.
    pub(crate) fn set_passive(&mut self) {
        self.traits |= PASSIVE;
    }

    /// Data of the SYN has reached the other side, in either direction.
    pub(crate) fn has_data_on_syn(&self) -> bool {
        self.traits & DATA_ON_SYN != 0
    }

    /// Data of the SYN has arrived.
    pub(crate) fn note_data_on_syn(&mut self) {
        self.traits |= DATA_ON_SYN;
    }

    /// Whether accurate ECN is in use: the bits of every header count, so all segments take the slow path.
    #[inline]
    pub(crate) fn is_accurate(&self) -> bool {
        self.traits >> NOTABLE_SHIFT == NOT_ECT
    }

    /// Sends segments with an ECN field of at least `class` to the slow path.
    pub(crate) fn notice(&mut self, class: u8) {
        self.traits = self.traits & ((1 << NOTABLE_SHIFT) - 1) | class << NOTABLE_SHIFT;
    }

    /// Whether the segment carries more than data and an acknowledgement.
    #[cold]
    fn takes_whole(&self, segment: &Segment) -> bool {
        ![HEADER_LEN, USUAL_LEN].contains(&usize::from(segment.header.header_len))
    }

    /// Whether the user time-outs of both ends are advertised (ENABLED of RFC 5482).
    pub(crate) fn exchanges(&self) -> bool {
        self.traits & EXCHANGES != 0
    }

    /// Switches the exchange on or off.
    pub(crate) fn set_exchanges(&mut self, on: bool) {
        self.traits = self.traits & !EXCHANGES | if on { EXCHANGES } else { 0 };
    }

    /// The first step of an arriving segment: chooses its path, and records that the peer is alive.
    #[inline]
    pub(crate) fn classify(&mut self, segment: &Segment, now: Time) -> SegmentPath {
        self.hear(now);
        self.path(segment)
    }

    /// [`HeaderIn::classify`], without taking note of the segment.
    #[inline]
    pub(crate) fn path(&self, segment: &Segment) -> SegmentPath {
        let plain = segment.header.flags.0 & !TcpFlags::PSH.0 == TcpFlags::ACK.0;
        let usual = segment.ecn() < self.traits >> NOTABLE_SHIFT
            && (self.traits & EXCHANGES == 0 || !self.takes_whole(segment));
        if plain && usual && self.state == State::Established { SegmentPath::Established } else { SegmentPath::Whole }
    }

    /// A segment arrived: the peer is alive.
    #[inline]
    pub(crate) fn hear(&mut self, now: Time) {
        self.last_heard = ticks_of_2_20_ns(now);
        self.segments_in = self.segments_in.wrapping_add(1);
    }

    /// Whether a segment with this ECN field, control bits ACK and PSH and only timestamps takes the established path.
    #[inline]
    pub(crate) fn takes_lane(&self, ecn: u8) -> bool {
        self.state == State::Established && ecn < self.traits >> NOTABLE_SHIFT
    }

    /// Whether a challenge acknowledgement may be sent now. If so, the next one must wait (RFC 5961 section 7).
    pub(crate) fn may_challenge(&mut self, now: Time, interval: Duration) -> bool {
        let may = self.challenged.elapsed(now) >= interval;
        if may {
            self.challenged = Tick::of(now);
        }
        may
    }

    /// Requests a wake at the earliest of this part's deadlines. They change too rarely to store the last request.
    pub(crate) fn arm(&mut self, out: &mut Outbox<'_>) {
        let keep_alive = self.settings.as_ref().map_or(Time::MAX, |settings| settings.deadline);
        let deadline = self.state_deadline.min(keep_alive);
        if deadline != Time::MAX {
            out.wake_by(deadline);
        }
    }
}
