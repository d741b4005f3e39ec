//! [`FlowMemory`]: where the frames of recent flows went, so that the next frame of each goes there without a look-up.
//!
//! A flow is an input port with the destination, the source and the EtherType of a frame. A decision is remembered only if it
//! changed nothing: the source was known, and heard of in the present unit of the table's time stamps (17 ms). It is valid as
//! long as the same would be decided: the caller states the versions of the table and of the member list for each batch, and if
//! one differs, or a new unit has begun, all that is remembered is void. So each station is heard of in each unit.
//!
//! A set of two flows is a cache line. A flow is remembered in the set beside its own if that one is full and there is room: so the
//! memory has room for flows that share a set until it is nearly full. If most frames of [`PATIENCE`] batches were not
//! remembered, because there are too many flows, the memory is consulted in few batches only, until it helps in more of these
//! than it does not.
//!
//! Most batches leave by one port: [`FlowMemory::run`] tells how many of their frames do, in a loop that does nothing else, so
//! that a processor looks several frames up at once.
//!
//! *What may never happen.* A frame leaves by a port by which the rules would not send it now.

use core::ops::Deref;

use observe::Time;
use wire::ethernet::{HEADER_LEN, TAG_LEN};

use crate::PortNumber;
use crate::fdb;

/// Flows for which a memory has room.
const FLOWS: usize = 8192;
/// Flows of a set.
const OF_SET: usize = 2;
/// Batches in which a memory may not help: in so many, as many flows as it has places are seen.
const PATIENCE: u32 = 128;
/// Batches for which it is not consulted then.
const RESTS: u32 = 15;
/// An odd number with mixed bits: 2^64 divided by the golden ratio.
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Copy, Debug, Default)]
struct RememberedFlow {
    words: (u64, u64),
    /// The epoch, and in the lowest 16 bits the input port.
    valid: u64,
    /// Bytes of the longest frame that leaves by the port.
    longest: u32,
    exit: PortNumber,
}

impl RememberedFlow {
    /// Whether it is this flow, and valid.
    #[inline(always)]
    fn is(&self, words: (u64, u64), valid: u64) -> bool {
        (self.words.0 ^ words.0) | (self.words.1 ^ words.1) | (self.valid ^ valid) == 0
    }

    /// The port by which this frame of the flow leaves as it is.
    #[inline(always)]
    fn exit_of(&self, frame: &[u8]) -> Option<PortNumber> {
        if frame.len() <= self.longest as usize { Some(self.exit) } else { None }
    }
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct FlowSet([RememberedFlow; OF_SET]);

/// What the decisions of a batch depend on besides the frames, as numbers that change with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// Of the table: changes when an entry is removed, or gets another port or other flags, or the ageing time changes; not
    /// when one is added.
    pub table: u64,
    /// Of the member list.
    pub members: u64,
}

/// See the head of the file. Of one thread.
#[derive(Debug)]
pub struct FlowMemory {
    sets: Box<[FlowSet]>,
    /// Number of the epoch, in which versions and stamps are these.
    epoch: u64,
    versions: Versions,
    stamp: u64,
    /// What the valid flows of the present batch have.
    valid: u64,
    /// Frames of the batch that were not remembered.
    missed: usize,
    /// How many more batches it did not help in than it did, lately.
    useless: u32,
    /// For how many batches it is not consulted.
    resting: u32,
}

impl Default for FlowMemory {
    /// Nothing is remembered; there is room for 8192 flows.
    fn default() -> FlowMemory {
        FlowMemory::with_room(FLOWS)
    }
}

impl FlowMemory {
    /// A memory that is empty, with room for so many flows, rounded up to a power of two of at least 4.
    pub fn with_room(flows: usize) -> FlowMemory {
        let (versions, stamp) = (Versions::default(), 0);
        let sets = vec![FlowSet::default(); flows.div_ceil(OF_SET).max(2).next_power_of_two()].into();
        FlowMemory { sets, epoch: 1, versions, stamp, valid: 1 << 16, missed: 0, useless: 0, resting: 0 }
    }
}

/// The addresses and the EtherType of a frame in two words. `None`: it is so short that it may end in a tag.
#[inline(always)]
fn words(frame: &[u8]) -> Option<(u64, u64)> {
    let head = frame.first_chunk::<{ HEADER_LEN + TAG_LEN }>()?;
    Some((u64::from_ne_bytes(*head.first_chunk()?), u64::from_ne_bytes(*head[6..].first_chunk()?)))
}

/// The set of a flow, before it is reduced to the number of sets.
#[inline(always)]
fn home((first, second): (u64, u64)) -> usize {
    ((first.wrapping_mul(MIXER) ^ second).wrapping_mul(MIXER) >> 40) as usize
}

/// The flow of a frame, if it is in its own set.
#[inline(always)]
fn find<'a>(sets: &'a [FlowSet], valid: u64, frame: &[u8]) -> Option<&'a RememberedFlow> {
    let words = words(frame)?;
    let [first, second] = &sets.get(home(words) & (sets.len() - 1))?.0;
    if first.is(words, valid) {
        Some(first)
    } else if second.is(words, valid) {
        Some(second)
    } else {
        None
    }
}

/// Puts a flow in front of a set instead of that at `at`.
fn place(flows: &mut [RememberedFlow; OF_SET], at: usize, flow: RememberedFlow) {
    flows.copy_within(..at, 1);
    flows[0] = flow;
}

impl FlowMemory {
    /// Begins a batch of frames that `input` has received, and that are decided about at `now`. False: the memory rests, and
    /// neither recalls nor remembers anything in this batch.
    #[inline]
    pub fn begin(&mut self, input: PortNumber, now: Time, versions: Versions) -> bool {
        let stamp = fdb::stamp(now);
        if self.versions != versions || self.stamp != stamp {
            (self.versions, self.stamp) = (versions, stamp);
            self.epoch += 1;
        }
        self.missed = 0;
        self.valid = self.epoch << 16 | u64::from(input.get());
        self.resting == 0
    }

    /// The port by which a frame leaves as it is, if its flow is remembered.
    #[inline(always)]
    pub fn recall(&self, frame: &[u8]) -> Option<PortNumber> {
        match find(&self.sets, self.valid, frame) {
            Some(flow) => flow.exit_of(frame),
            None => self.recall_beside(frame),
        }
    }

    /// The same for a flow that is not in its own set, but perhaps in the one beside it.
    #[inline(never)]
    fn recall_beside(&self, frame: &[u8]) -> Option<PortNumber> {
        let words = words(frame)?;
        let beside = self.sets.get((home(words) ^ 1) & (self.sets.len() - 1))?;
        beside.0.iter().find(|flow| flow.is(words, self.valid))?.exit_of(frame)
    }

    /// How many of the frames, from the first on, leave by `exit` as they are, and the sum of their lengths. `takes` is called for
    /// each of them, and ends the run if it returns false.
    #[inline(always)]
    pub fn run<F: Deref<Target = [u8]>>(
        &self,
        frames: &[F],
        exit: PortNumber,
        takes: impl Fn(&F) -> bool,
    ) -> (usize, usize) {
        let (sets, valid) = (&*self.sets, self.valid);
        let (mut count, mut bytes) = (0, 0);
        while let Some(frame) = frames.get(count) {
            let is_remembered = match find(sets, valid, frame) {
                Some(flow) => flow.exit == exit && frame.len() <= flow.longest as usize,
                None => self.recall_beside(frame) == Some(exit),
            };
            if !is_remembered || !takes(frame) {
                break;
            }
            (count, bytes) = (count + 1, bytes + frame.len());
        }
        (count, bytes)
    }

    /// The cache line in which the flow of a frame is, for a platform that charges for reading it.
    #[inline]
    pub fn line_of(&self, frame: &[u8]) -> Option<*const u8> {
        let set = self.sets.get(home(words(frame)?) & (self.sets.len() - 1))?;
        Some(core::ptr::from_ref(set).cast())
    }

    /// Counts a frame that was not recalled, and remembers its flow, if the decision about it has changed nothing: `exit` is the
    /// port by which it left, and the length up to which others may.
    #[inline]
    pub(crate) fn add(&mut self, frame: &[u8], exit: Option<(PortNumber, usize)>) {
        self.missed += 1;
        if let (Some(words), Some((exit, longest))) = (words(frame), exit) {
            let longest = u32::try_from(longest).unwrap_or(u32::MAX);
            self.put(home(words), RememberedFlow { words, valid: self.valid, longest, exit });
        }
    }

    /// Remembers a flow in its set, or in the one beside it if only that has room; else instead of the older one of its set.
    fn put(&mut self, home: usize, flow: RememberedFlow) {
        let (last, epoch) = (self.sets.len() - 1, self.epoch);
        for set in [home, home ^ 1] {
            let Some(FlowSet(flows)) = self.sets.get_mut(set & last) else { continue };
            if let Some(void) = flows.iter().position(|flow| flow.valid >> 16 != epoch) {
                place(flows, void, flow);
                return;
            }
        }
        if let Some(FlowSet(flows)) = self.sets.get_mut(home & last) {
            place(flows, OF_SET - 1, flow);
        }
    }

    /// Ends a batch of so many frames.
    #[inline]
    pub fn end(&mut self, frames: usize) {
        if self.resting > 0 {
            self.resting -= 1;
        } else if self.missed <= frames / 2 {
            self.useless = self.useless.saturating_sub(1);
        } else {
            self.useless = (self.useless + 1).min(PATIENCE);
            self.resting = if self.useless < PATIENCE { 0 } else { RESTS };
        }
    }
}
