//! [`Relay`]: the decision about nearly every frame, which is from a known station to a known station, in a few comparisons.
//!
//! What the frames of a batch have in common is computed once: the word that the entry of a source has if the frame changes
//! nothing in it, and what may leave by the port by which the last frame left. Any other frame is decided about by
//! `forward.rs`, rule by rule; a test compares the two. What may never happen: a frame for which they differ.

use observe::{Counters, Time};
use wire::ethernet::{HEADER_LEN, TAG_LEN};

use crate::PortNumber;
use crate::fdb::{EntryFlags, Fdb, FdbEntry, FdbKey};
use crate::forward::{self, Exception, InputPort};

/// Decides about the frames that one port receives at one time; see the head of the file and [`InputPort::at`].
#[derive(Clone, Copy, Debug)]
pub struct Relay<'a> {
    input: &'a InputPort<'a>,
    now: Time,
    /// It forwards and learns, and no VLANs are distinguished.
    is_plain: bool,
    /// The entry of a station behind the port that is heard of at this time.
    heard: FdbEntry,
    exit: Exit,
}

/// The port by which the last frame left, and the length up to which others may leave by it as they are.
#[derive(Clone, Copy, Debug, Default)]
struct Exit {
    port: PortNumber,
    /// 0: no frame has left.
    longest: usize,
}

/// Why a frame is not one between known stations.
enum Beyond {
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
        match self.at(now).known_station(table, frame, counters) {
            Ok(port) if frame.len() <= self.longest_to(port) => Ok(port),
            Ok(port) => self.leave_by(port, frame),
            Err(Beyond::Rules) => self.apply(table, frame, counters, now),
            Err(Beyond::Table) => Err(Exception::Flood(None)),
        }
    }

    /// Bytes of the longest frame that leaves by `port`.
    #[inline(always)]
    fn longest_to(&self, port: PortNumber) -> usize {
        self.rules.longest_to(self.members.rules(port), port == self.port)
    }

    /// For the frames that it receives at `now`.
    #[inline(always)]
    pub fn at(&'a self, now: Time) -> Relay<'a> {
        Relay {
            input: self,
            now,
            is_plain: self.rules.learns() && !self.members.is_filtering(),
            heard: FdbEntry::new(self.port, EntryFlags::default(), now),
            exit: Exit::default(),
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

impl<'a> Relay<'a> {
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
    pub fn receive(
        &mut self,
        table: &mut impl Fdb,
        frame: &[u8],
        counters: &Counters,
    ) -> Result<PortNumber, Exception> {
        let port = match self.known_station(table, frame, counters) {
            Ok(port) => port,
            Err(Beyond::Rules) => return self.input.apply(table, frame, counters, self.now),
            Err(Beyond::Table) => return Err(Exception::Flood(None)),
        };
        if port == self.exit.port && frame.len() <= self.exit.longest {
            return Ok(port);
        }
        let longest = self.input.longest_to(port);
        if frame.len() > longest {
            return self.input.leave_by(port, frame);
        }
        self.exit = Exit { port, longest };
        Ok(port)
    }

    /// Learns the source of a frame between stations; returns the port behind which its destination is.
    #[inline(always)]
    fn known_station(&self, table: &mut impl Fdb, frame: &[u8], counters: &Counters) -> Result<PortNumber, Beyond> {
        let (dst, src) = stations(frame).filter(|_| self.is_plain).ok_or(Beyond::Rules)?;
        // No reserved address is that of a station.
        if forward::is_group(dst | src) || src == 0 {
            return Err(Beyond::Rules);
        }
        let key = FdbKey::of_station(src, None);
        let found = table.look_up_source(key);
        if !found.is_some_and(|entry| entry.is_current(self.heard)) {
            self.input.learn(table, (key, found), counters, self.now);
        }
        match table.look_up(FdbKey::of_station(dst, None)) {
            Some(entry) if !table.has_aged(entry, self.now) => Ok(entry.port()),
            _ => Err(Beyond::Table),
        }
    }
}
