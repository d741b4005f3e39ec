//! The exclusion algorithms, by name.

use std::fmt;
use std::str::FromStr;

/// How a [`Lock`](crate::Lock) excludes. Chosen when the lock is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockKind {
    /// No waiting: the surrounding structure excludes contention, and the lock checks that.
    Null,
    /// Test-and-set: waiters keep writing the word. Random grant, heavy traffic. Nahum et al.'s default lock.
    Tas,
    /// Test-and-test-and-set: waiters read until the word looks free. Random grant.
    Ttas,
    /// Ticket: first come, first served; all waiters watch one word.
    Ticket,
    /// Mellor-Crummey and Scott's queue: first come, first served; each waiter watches its own word.
    Mcs,
    /// Spins briefly, then sleeps. Newcomers may overtake sleepers. The default. On two cores it loses the least time
    /// to a holder that is about to release, and to one that is not running no more than a sleep (docs/performance.md).
    #[default]
    SpinPark,
    /// Sleeps at once. Newcomers may overtake sleepers.
    Blocking,
    /// Sleeps at once; but a thread that has been the only user for a while takes the lock with plain stores.
    Reserved,
    /// Spins while the holder is running, otherwise sleeps: Solaris's and FreeBSD's mutexes. If the platform cannot
    /// tell, as on a real machine, like `SpinPark`.
    Adaptive,
    /// As `Adaptive`, with priority inheritance by the holder from sleeping waiters, if the platform has priorities.
    AdaptiveLending,
}

impl LockKind {
    /// Every kind, in the order of their declaration.
    pub const ALL: &'static [LockKind] = &[
        Self::Null,
        Self::Tas,
        Self::Ttas,
        Self::Ticket,
        Self::Mcs,
        Self::SpinPark,
        Self::Blocking,
        Self::Reserved,
        Self::Adaptive,
        Self::AdaptiveLending,
    ];

    /// The name used in reports and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Tas => "tas",
            Self::Ttas => "ttas",
            Self::Ticket => "ticket",
            Self::Mcs => "mcs",
            Self::SpinPark => "spin-park",
            Self::Blocking => "blocking",
            Self::Reserved => "reserved",
            Self::Adaptive => "adaptive",
            Self::AdaptiveLending => "adaptive-lending",
        }
    }

    /// Whether waiters are served in the order in which they came.
    pub const fn is_fifo(self) -> bool {
        matches!(self, Self::Ticket | Self::Mcs)
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no [`LockKind`]'s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLockKind(String);

impl fmt::Display for UnknownLockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown kind of lock `{}`; the kinds are", self.0)?;
        LockKind::ALL.iter().enumerate().try_for_each(|(i, kind)| {
            let separator = if i == 0 { " " } else { ", " };
            write!(f, "{separator}{kind}")
        })
    }
}

impl std::error::Error for UnknownLockKind {}

impl FromStr for LockKind {
    type Err = UnknownLockKind;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| UnknownLockKind(name.to_owned()))
    }
}
