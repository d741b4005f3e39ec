//! Versions of tokio's `Interest` and `Ready`, which tokio has only with its I/O driver.

use std::ops::BitOr;

use stack::socket::Readiness;

const ENDED: Readiness = Readiness::ERROR.union(Readiness::CLOSED);
/// Bits after which a read should be tried.
const READABLE: Readiness = Readiness::READABLE.union(Readiness::PEER_CLOSED).union(ENDED);
/// Bits after which a write should be tried.
pub(super) const WRITABLE: Readiness = Readiness::WRITABLE.union(ENDED);

/// Directions that a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    read: bool,
    write: bool,
}

impl Interest {
    /// There is data to read, its end, or an error.
    pub const READABLE: Interest = Interest { read: true, write: false };
    /// There is room to write, or an error.
    pub const WRITABLE: Interest = Interest { read: false, write: true };

    /// Whether reading is waited for.
    pub const fn is_readable(self) -> bool {
        self.read
    }

    /// Whether writing is waited for.
    pub const fn is_writable(self) -> bool {
        self.write
    }

    /// Both interests combined.
    #[must_use]
    pub const fn add(self, other: Interest) -> Interest {
        Interest { read: self.read || other.read, write: self.write || other.write }
    }

    pub(super) fn bits(self) -> Readiness {
        let bits = |waited: bool, bits| if waited { bits } else { Readiness::NONE };
        bits(self.read, READABLE) | bits(self.write, WRITABLE)
    }
}

impl BitOr for Interest {
    type Output = Interest;

    fn bitor(self, other: Interest) -> Interest {
        self.add(other)
    }
}

/// The readiness of a socket: a hint, as another task may be faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready(pub(super) Readiness);

impl Ready {
    /// A read returns at once, with data, the end or an error.
    pub fn is_readable(self) -> bool {
        self.0.intersects(READABLE)
    }

    /// A write returns at once.
    pub fn is_writable(self) -> bool {
        self.0.intersects(WRITABLE)
    }

    /// The peer sends no more.
    pub fn is_read_closed(self) -> bool {
        self.0.intersects(Readiness::PEER_CLOSED | Readiness::CLOSED)
    }

    /// Nothing can be sent any more.
    pub fn is_write_closed(self) -> bool {
        self.0.intersects(ENDED)
    }

    /// There is an error to report.
    pub fn is_error(self) -> bool {
        self.0.intersects(Readiness::ERROR)
    }

    /// Whether nothing is ready.
    pub fn is_empty(self) -> bool {
        !self.is_readable() && !self.is_writable() && !self.is_error()
    }
}
