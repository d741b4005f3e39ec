//! [`BatchRelay`]: the decision about nearly every frame, which is from a known station to a known station, in a few comparisons.
//!
//! What the frames of a batch have in common is computed once, such as the word that the entry of a source has if the frame
//! changes nothing in it. Any other frame is decided about by `forward.rs`, rule by rule; a test compares the two. What may never
//! happen: a frame for which they differ.

use observe::{Counters, Time};
use wire::ethernet::{HEADER_LEN, TAG_LEN};

use crate::PortNumber;
use crate::fdb::{EntryFlags, Fdb, FdbEntry, FdbKey};
use crate::flows::FlowMemory;
use crate::forward::{self, Exception, InputPort};

/// Decides about the frames that one port receives at one time; see the head of the file and [`InputPort::at`].
#[derive(Clone, Copy, Debug)]
pub struct BatchRelay<'a> {
    input: &'a InputPort<'a>,
    now: Time,
    /// It forwards and learns, and no VLANs are distinguished.
    is_plain: bool,
    /// The entry of a station behind the port that is heard of at this time.
    heard: FdbEntry,
}

/// A frame between known stations.
struct KnownFlow {
    /// The port behind which its destination is.
    port: PortNumber,
    /// Nothing was learned from it.
    changed_nothing: bool,
}

/// Why a frame is not one between known stations.
enum NotBetweenStations {
    /// Other rules apply.
    Rules,
    /// Its destination is unknown.
    Table,
}

impl<'a> InputPort<'a> {
    /// The first part of the decision about a frame, from its Ethernet header on, and all of it for nearly every frame: learns
    /// the source, and finds the one port by which the frame leaves as it is. For several frames there is [`InputPort::at`].
    ///
    /// # Errors
    /// [`InputPort::decide`] has the decision.
    #[inline(always)]
    pub fn receive(
        &self,
        table: &mut impl Fdb,
        frame: &[u8],
        counters: &Counters,
        now: Time,
    ) -> Result<PortNumber, Exception> {
        self.at(now).receive(table, frame, counters)
    }

    /// Bytes of the longest frame that leaves by `port`.
    #[inline(always)]
    fn longest_to(&self, port: PortNumber) -> usize {
        self.rules.longest_to(self.members.rules(port), port == self.port)
    }

    /// For the frames that it receives at `now`.
    #[inline(always)]
    pub fn at(&'a self, now: Time) -> BatchRelay<'a> {
        BatchRelay {
            input: self,
            now,
            is_plain: self.rules.learns() && !self.members.is_filtering(),
            heard: FdbEntry::new(self.port, EntryFlags::default(), now),
        }
    }
}

/// Destination and source of a frame, as numbers. `None`: it is so short that it may end in a tag.
#[inline(always)]
fn stations(frame: &[u8]) -> Option<(u64, u64)> {
    let head = frame.first_chunk::<{ HEADER_LEN + TAG_LEN }>()?;
    // Two words, of which each has an address at the top.
    let (first, second) = (head.first_chunk()?, head[6..].first_chunk()?);
    Some((u64::from_be_bytes(*first) >> 16, u64::from_be_bytes(*second) >> 16))
}

impl<'a> BatchRelay<'a> {
    /// The port that has received the frames.
    #[inline]
    pub fn input(&self) -> InputPort<'a> {
        *self.input
    }

    /// The first part of the decision about a frame, as [`InputPort::receive`].
    ///
    /// # Errors
    /// [`InputPort::decide`] has the decision.
    #[inline(always)]
    pub fn receive(&self, table: &mut impl Fdb, frame: &[u8], counters: &Counters) -> Result<PortNumber, Exception> {
        self.decide(table, frame, counters, |_| ())
    }

    /// The same for a frame that `memory` has not recalled, but may recall from now on.
    ///
    /// # Errors
    /// [`InputPort::decide`] has the decision.
    #[inline]
    pub fn receive_new(
        &self,
        memory: &mut FlowMemory,
        table: &mut impl Fdb,
        frame: &[u8],
        counters: &Counters,
    ) -> Result<PortNumber, Exception> {
        self.decide(table, frame, counters, |exit| memory.add(frame, exit))
    }

    /// Calls `remember` with the port by which the frame leaves, and the length up to which others may, if the frame has changed
    /// nothing.
    #[inline(always)]
    fn decide(
        &self,
        table: &mut impl Fdb,
        frame: &[u8],
        counters: &Counters,
        remember: impl FnOnce(Option<(PortNumber, usize)>),
    ) -> Result<PortNumber, Exception> {
        match self.known_station(table, frame, counters) {
            Ok(KnownFlow { port, changed_nothing }) => {
                let longest = self.input.longest_to(port);
                let leaves = frame.len() <= longest;
                remember((leaves && changed_nothing).then_some((port, longest)));
                if leaves { Ok(port) } else { self.input.leave_by(port, frame) }
            }
            Err(beyond) => {
                remember(None);
                match beyond {
                    NotBetweenStations::Rules => self.input.apply(table, frame, counters, self.now),
                    NotBetweenStations::Table => Err(Exception::Flood(None)),
                }
            }
        }
    }

    /// Learns the source of a frame between stations, and looks its destination up.
    #[inline(always)]
    fn known_station(
        &self,
        table: &mut impl Fdb,
        frame: &[u8],
        counters: &Counters,
    ) -> Result<KnownFlow, NotBetweenStations> {
        let (dst, src) = stations(frame).filter(|_| self.is_plain).ok_or(NotBetweenStations::Rules)?;
        // No reserved address is that of a station.
        if forward::is_group(dst | src) || src == 0 {
            return Err(NotBetweenStations::Rules);
        }
        let key = FdbKey::of_station(src, None);
        let found = table.look_up_source(key);
        let changed_nothing = found.is_some_and(|entry| entry.is_current(self.heard));
        if !changed_nothing {
            self.input.learn(table, (key, found), counters, self.now);
        }
        match table.look_up(FdbKey::of_station(dst, None)) {
            Some(entry) if !table.has_aged(entry, self.now) => Ok(KnownFlow { port: entry.port(), changed_nothing }),
            _ => Err(NotBetweenStations::Table),
        }
    }
}
