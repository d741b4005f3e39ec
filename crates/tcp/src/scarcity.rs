//! Resources that the connections of one stack share, as values: an event receives their [`Scarcity`], sampled when the
//! event begins, and reports its own use in its outbox ([`LocalEffects::memory`](crate::LocalEffects::memory),
//! [`Outbox::standing`](crate::Outbox::standing)). The stack keeps the sums.
//!
//! What may never happen: an event that reads a sum that another connection changes meanwhile. The same PCB, event,
//! time, configuration and scarcity give the same result.

use pktbuf::{Chunk, PktBuf};

/// The memory pressure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// There is enough.
    #[default]
    None,
    /// Buffers do not grow.
    Moderate,
    /// Every connection gets only the minimum.
    Severe,
}

/// How a connection counts against the limits on connections without a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitClass {
    /// The connection counts against none of the limits.
    #[default]
    Free,
    /// Its user has closed it, and it still waits for its peer, except in TIME-WAIT
    /// ([`Config::max_orphans`](crate::Config)).
    Orphan,
    /// It is in TIME-WAIT ([`Config::max_time_wait`](crate::Config)).
    TimeWait,
}

/// The scarce resources of a stack at the time of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scarcity(u32);

const ORPHANS: u32 = 4;
const TIME_WAITS: u32 = 8;

impl Scarcity {
    /// Nothing is.
    pub const NONE: Scarcity = Scarcity(0);

    /// `orphans`: there are as many orphans as the configuration allows; `time_waits`: as many connections in
    /// TIME-WAIT.
    pub const fn new(memory: Pressure, orphans: bool, time_waits: bool) -> Scarcity {
        Scarcity(memory as u32 | if orphans { ORPHANS } else { 0 } | if time_waits { TIME_WAITS } else { 0 })
    }

    /// The value that [`Scarcity::bits`] was taken from.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Scarcity {
        Scarcity(bits)
    }

    /// As a word, which a stack can sample with one load.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The memory pressure.
    #[inline]
    pub const fn memory(self) -> Pressure {
        match self.0 & 3 {
            0 => Pressure::None,
            1 => Pressure::Moderate,
            _ => Pressure::Severe,
        }
    }

    /// Whether memory is so short that every connection gets only the minimum.
    #[inline(always)]
    pub const fn is_severe(self) -> bool {
        self.0 & 2 != 0
    }

    /// Whether the limit of connections without a user is reached.
    pub const fn no_more_orphans(self) -> bool {
        self.0 & ORPHANS != 0
    }

    /// Whether the limit of connections in TIME-WAIT is reached.
    pub const fn no_more_time_waits(self) -> bool {
        self.0 & TIME_WAITS != 0
    }
}

/// Bytes of memory that `buffer` occupies.
#[inline(always)]
pub(crate) fn of_buffer(buffer: &PktBuf) -> u32 {
    buffer.memory() as u32
}

/// Bytes of memory that `chunk` occupies; of memory shared with the application the part that waits to be sent.
#[inline(always)]
pub(crate) fn of_chunk(chunk: &Chunk) -> u32 {
    match chunk {
        Chunk::Pooled(buffer) => of_buffer(buffer),
        Chunk::Shared { len, .. } => *len,
        Chunk::Static(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_all_of_it() {
        for memory in [Pressure::None, Pressure::Moderate, Pressure::Severe] {
            for (orphans, time_waits) in [(false, false), (true, false), (false, true), (true, true)] {
                let scarcity = Scarcity::from_bits(Scarcity::new(memory, orphans, time_waits).bits());
                assert_eq!(scarcity.memory(), memory);
                assert_eq!(scarcity.is_severe(), memory == Pressure::Severe);
                assert_eq!((scarcity.no_more_orphans(), scarcity.no_more_time_waits()), (orphans, time_waits));
            }
        }
        assert_eq!(Scarcity::NONE, Scarcity::new(Pressure::None, false, false));
    }
}
