//! The outbox: all effects of an event. The caller of the event performs them.
//!
//! Effects have a phase. `segments` belong *inside*: they leave for the device while the connection (or its header-out
//! part) is still held, because their order on the wire must be the order in which they were made. Everything else
//! belongs *after*: sockets are woken, deadlines armed and tables changed once the last guard has dropped. Nothing in
//! this crate calls up or down.

use core::ops::{Deref, DerefMut};

use observe::{Counter, Counters, DropReason, Time};
use pktbuf::{PktBuf, RegionId};
use smallvec::SmallVec;

use crate::config::Config;
use crate::scarcity::{LimitClass, Scarcity};

/// Readiness of a socket as a set of bits. In [`LocalEffects::ready`]: bits that rose during the event. In a status report:
/// the level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Readiness(u16);

impl Readiness {
    /// Nothing.
    pub const NONE: Readiness = Readiness(0);
    /// Data (or the end of the stream) can be received.
    pub const READABLE: Readiness = Readiness(1);
    /// Data can be sent.
    pub const WRITABLE: Readiness = Readiness(2);
    /// An active open is complete.
    pub const CONNECTED: Readiness = Readiness(4);
    /// A child of a listener became established.
    pub const ACCEPTABLE: Readiness = Readiness(8);
    /// The peer's FIN was reached: no more data will come.
    pub const PEER_CLOSED: Readiness = Readiness(16);
    /// The connection failed; the status has the reason.
    pub const ERROR: Readiness = Readiness(32);
    /// The connection is gone: both directions are finished.
    pub const CLOSED: Readiness = Readiness(64);
    /// Urgent data was announced (RFC 6093).
    pub const URGENT: Readiness = Readiness(128);
    /// The peer has acknowledged our FIN, and so all that was ever sent.
    pub const FLUSHED: Readiness = Readiness(512);
    /// SND.UNA has moved: raised once, after [`crate::SocketOption::NotifyAcknowledged`] has requested it.
    pub const ACKNOWLEDGED: Readiness = Readiness(1024);
    /// A transient problem, which the status reports ([`crate::StatusReport::soft_error`]).
    pub const SOFT_ERROR: Readiness = Readiness(256);
    const ALL: u16 = 0x7ff;

    /// The set as one word, for storage. Only [`Readiness::from_bits`] gives it a meaning.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The inverse of [`Readiness::bits`]. Bits that no constant of this type has are left out.
    #[inline]
    pub const fn from_bits(bits: u16) -> Readiness {
        Readiness(bits & Readiness::ALL)
    }

    /// The bits of both: the operator `|`, also in constants.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Readiness) -> Readiness {
        Readiness(self.0 | other.0)
    }

    /// The bits of `self` that `other` lacks.
    #[inline]
    #[must_use]
    pub const fn difference(self, other: Readiness) -> Readiness {
        Readiness(self.0 & !other.0)
    }

    /// Whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Readiness) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set.
    #[inline]
    pub const fn intersects(self, other: Readiness) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether no bit is set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl core::ops::BitOr for Readiness {
    type Output = Readiness;
    #[inline]
    fn bitor(self, other: Readiness) -> Readiness {
        self.union(other)
    }
}

impl core::ops::BitOrAssign for Readiness {
    #[inline]
    fn bitor_assign(&mut self, other: Readiness) {
        self.0 |= other.0;
    }
}

/// A change of the connection tables, applied once the last guard has dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TableChange {
    /// Nothing.
    #[default]
    None,
    /// A child of a listener is established: it may enter the accept queue.
    Established,
    /// The connection is finished: take it out of the table and free it.
    Remove,
    /// The connection is in TIME-WAIT and no user holds it: the table may keep it as a [`crate::TimeWait`].
    /// [`LocalEffects::deadline`] is the end of TIME-WAIT, and an earlier requested wake-up can be cancelled.
    Waits,
    /// A connection that was open early ([`crate::fast_open`]) has failed before its handshake was complete.
    Unfinished {
        /// The peer reset it (RFC 7413 section 5.1: it still counts for a while).
        reset: bool,
        /// As [`TableChange::Remove`]; otherwise its user will close it.
        remove: bool,
    },
    /// An active open has learnt about its destination: run [`crate::TakeDestinationUpdate`].
    DestinationLearnt,
    /// An active open is complete. [`LocalEffects::deadline`] now includes every deadline of the connection, so an earlier
    /// requested wake-up, such as that for its SYN, can be cancelled. It would only find nothing due.
    Opened {
        /// As [`TableChange::DestinationLearnt`].
        learnt: bool,
    },
}

impl TableChange {
    /// Whether [`LocalEffects::deadline`] includes every deadline of the connection, so that an earlier requested wake-up can
    /// be cancelled.
    #[inline]
    pub fn replaces_wake_up(self) -> bool {
        matches!(self, TableChange::Opened { .. } | TableChange::Waits)
    }
}

/// Changes of the path to the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathUpdate {
    /// Nothing.
    #[default]
    None,
    /// The peer has been silent for so long that the path is in doubt (R1, RFC 9293 section 3.8.3): IP must look for
    /// another.
    Suspect,
    /// Routes have changed since the connection last sent, or there is none: detected when the segments are emitted, or
    /// by a connection that searches for its path's MTU, before it sends. Run [`crate::RouteChanged`].
    Changed {
        /// Segments were too large for the path as it is now and were not sent.
        lost: bool,
        /// As [`PathUpdate::Suspect`], found by the same event before.
        suspect: bool,
    },
}

/// The effects that an event can have on the user and on the account of a connection, without those that need a device or a
/// table: all effects of nearly every segment that arrives, before anything is sent. An [`Outbox`] has them, too.
pub struct LocalEffects<'c> {
    /// The stack's parameters.
    pub config: &'c Config,
    /// The counters of this thread.
    pub counters: &'c Counters,
    /// The scarce resources of the stack at the time of the event.
    pub scarcity: Scarcity,
    /// Set when our data was acknowledged: the path works in both directions.
    pub progress: bool,
    /// Phase AFTER: readiness bits that rose.
    pub ready: Readiness,
    /// Phase AFTER: run `Timeouts` no later than this. An early wake is harmless.
    pub deadline: Option<Time>,
    /// Phase AFTER: bytes of memory by which the connection's buffers, sent and received, have grown; negative: shrunk.
    pub memory: i64,
    /// A buffer that the event has freed: that of acknowledged data. A later event with the same outbox may use it for data
    /// to send; otherwise it is dropped with the outbox.
    pub spare: Option<PktBuf>,
}

impl<'c> LocalEffects<'c> {
    /// None yet.
    #[inline(always)]
    pub fn new(config: &'c Config, counters: &'c Counters, scarcity: Scarcity) -> Self {
        LocalEffects {
            config,
            counters,
            scarcity,
            progress: false,
            ready: Readiness::NONE,
            deadline: None,
            memory: 0,
            spare: None,
        }
    }

    /// Requests a wake no later than `at`.
    #[inline]
    pub(crate) fn wake_by(&mut self, at: Time) {
        if self.deadline.is_none_or(|deadline| at < deadline) {
            self.deadline = Some(at);
        }
    }

    /// Count `n` of `counter`.
    #[inline]
    pub(crate) fn count(&self, counter: Counter, n: u64) {
        self.counters.add(counter, n);
    }

    /// Keeps a buffer of no more use, unless there is one already.
    #[inline(always)]
    pub(crate) fn keep_spare(&mut self, buffer: PktBuf) {
        if self.spare.is_none() {
            // Nothing is replaced, and dropping that would be a call.
            core::mem::forget(self.spare.replace(buffer));
        }
    }

    /// Counts a dropped segment; returns the reason for the caller to pass on.
    #[cold]
    pub(crate) fn dropped(&self, reason: DropReason) -> DropReason {
        self.counters.count_drop(reason);
        reason
    }
}

/// Effects of one event (or of several on the same connection), and the resources that the event may use.
pub struct Outbox<'c> {
    /// Those on the user and on the account: the outbox dereferences to them.
    pub local: LocalEffects<'c>,
    /// Free places in the device queue; segments with data stop at 0, acknowledgements and resets do not.
    pub credit: u32,
    /// Set when data could have been sent but `credit` (or the buffer pool) was exhausted: run `TransmitReady` later.
    pub tx_blocked: bool,
    /// The information about the path from the event, or from the emission of its segments.
    pub path: PathUpdate,
    /// Phase INSIDE: whole TCP segments (header and data, checksum done or `Checksum::Partial`) with at least 64 bytes
    /// of headroom, in the order in which they were made.
    pub segments: SmallVec<[PktBuf; 8]>,
    /// Phase AFTER: change of the connection tables.
    pub table: TableChange,
    /// Data bytes that the device splits by itself; 0 for one MSS at a time.
    pub prefer_super_segments: usize,
    /// The region in which segments must be made for the device; `None`: the heap.
    pub region: Option<RegionId>,
    /// Generation number of the routes, which changes whenever they do. Connections that search for their path's MTU
    /// request the present one before they probe; 0: unknown.
    pub routes: u32,
    /// Phase AFTER: how the connection counts from now on, if that may have changed.
    pub standing: Option<LimitClass>,
}

impl<'c> Deref for Outbox<'c> {
    type Target = LocalEffects<'c>;

    #[inline(always)]
    fn deref(&self) -> &LocalEffects<'c> {
        &self.local
    }
}

impl<'c> DerefMut for Outbox<'c> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut LocalEffects<'c> {
        &mut self.local
    }
}

impl<'c> Outbox<'c> {
    /// An empty outbox with unlimited credit and without segmentation by the device.
    #[inline(always)]
    pub fn new(config: &'c Config, counters: &'c Counters) -> Self {
        Self::for_device(LocalEffects::new(config, counters, Scarcity::NONE), u32::MAX, 0)
    }

    /// An outbox that has these effects, for a device that takes `credit` frames with data now, and splits super-segments of up
    /// to `prefer_super_segments` bytes of data (0: none). One constructor, so that the value is built in place and not
    /// moved.
    #[inline(always)]
    pub fn for_device(local: LocalEffects<'c>, credit: u32, prefer_super_segments: usize) -> Self {
        Outbox {
            local,
            credit,
            tx_blocked: false,
            path: PathUpdate::None,
            segments: SmallVec::new(),
            table: TableChange::None,
            prefer_super_segments,
            region: None,
            routes: 0,
            standing: None,
        }
    }

    /// The same, with this generation number of the routes.
    #[inline(always)]
    pub fn with_routes(mut self, routes: u32) -> Self {
        self.routes = routes;
        self
    }

    /// The same, with this scarcity.
    #[inline(always)]
    pub fn with_scarcity(mut self, scarcity: Scarcity) -> Self {
        self.scarcity = scarcity;
        self
    }

    /// The same, for a device that needs segments in this region.
    #[inline(always)]
    pub fn in_region(mut self, region: Option<RegionId>) -> Self {
        self.region = region;
        self
    }

    /// The path is in doubt, regardless of other information about it.
    pub(crate) fn suspect_path(&mut self) {
        self.path = match self.path {
            PathUpdate::Changed { lost, .. } => PathUpdate::Changed { lost, suspect: true },
            PathUpdate::None | PathUpdate::Suspect => PathUpdate::Suspect,
        };
    }

    /// The caller must determine the current MTU of the path.
    #[cold]
    pub(crate) fn ask_for_path(&mut self) {
        self.path = match self.path {
            PathUpdate::None => PathUpdate::Changed { lost: false, suspect: false },
            PathUpdate::Suspect => PathUpdate::Changed { lost: false, suspect: true },
            changed => changed,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubt_adds_to_what_is_known_of_the_path() {
        let (config, counters) = (Config::default(), Counters::new());
        let mut out = Outbox::new(&config, &counters);
        out.suspect_path();
        assert_eq!(out.path, PathUpdate::Suspect);
        out.path = PathUpdate::Changed { lost: true, suspect: false };
        out.suspect_path();
        assert_eq!(out.path, PathUpdate::Changed { lost: true, suspect: true });
        out.ask_for_path();
        assert_eq!(out.path, PathUpdate::Changed { lost: true, suspect: true }, "it is being asked for");
        out.path = PathUpdate::Suspect;
        out.ask_for_path();
        assert_eq!(out.path, PathUpdate::Changed { lost: false, suspect: true });
    }

    #[test]
    fn a_set_of_readiness_is_the_same_after_being_a_word() {
        const EACH: [Readiness; 11] = [
            Readiness::READABLE,
            Readiness::WRITABLE,
            Readiness::CONNECTED,
            Readiness::ACCEPTABLE,
            Readiness::PEER_CLOSED,
            Readiness::ERROR,
            Readiness::CLOSED,
            Readiness::URGENT,
            Readiness::FLUSHED,
            Readiness::ACKNOWLEDGED,
            Readiness::SOFT_ERROR,
        ];
        let mut all = Readiness::NONE;
        for one in EACH {
            assert!(!all.intersects(one), "two names for one bit: {one:?}");
            assert_eq!(Readiness::from_bits(one.bits()), one);
            all |= one;
            assert!(!all.difference(one).contains(one) && all.difference(one).union(one) == all);
        }
        assert_eq!(Readiness::from_bits(u16::MAX), all, "bits without a name are left out");
    }
}
