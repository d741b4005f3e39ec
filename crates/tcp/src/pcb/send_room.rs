//! The free space of the send buffer, the wake-up of a writer that found none, and the growth of the buffer. Evaluated
//! at a write and by an acknowledgement that a writer waits for, never per segment.
//!
//! Two ways of counting. With [`SendAccounting::Bytes`] the buffer holds exactly its size in bytes of data. With
//! [`SendAccounting::Runs`] it is a bound on memory, as programs written for Linux expect: data is kept in *runs* of
//! several segments, each run costs an overhead beside its data, a new run is begun whenever less than the bound is in
//! use, and a run once begun may be filled. Linux's runs are its socket buffers; here they exist only in this
//! calculation, which counts the flight and the unsent data as the fewest runs that can hold them.

use super::{RetransmitQueue, SendWindow};
use crate::config::{Config, SendAccounting};
use crate::scarcity::{Pressure, Scarcity};

/// Most data of a run: 65 535 less the longest headers.
const LARGEST_RUN: u32 = 65_215;

/// A peer whose largest window was no more than this gets runs as large as the window, others half of it.
const SMALL_WINDOW: u32 = 536;

/// Bytes of headers and of management beside a segment's data, before the sum is rounded up to a power of two, and
/// bytes added to that: the buffer needed for one segment in flight.
const BESIDE_SEGMENT: u32 = 640;
const BESIDE_BLOCK: u32 = 256;

/// Segments for which every buffer that grows by itself has room.
const LEAST_SEGMENTS: u32 = 10;

impl SendWindow {
    /// Bytes of data that were never sent.
    #[inline]
    pub(crate) fn unsent(&self, queue: &RetransmitQueue) -> u32 {
        queue.len.saturating_sub(self.sent_data())
    }

    /// Bytes that certainly fit into the send buffer. If memory use exceeds the limit, only the least buffer is
    /// available, whatever size the connection has set or grown to.
    #[inline]
    pub(crate) fn space(&self, queue: &RetransmitQueue, config: &Config, scarcity: Scarcity) -> u32 {
        let space = match config.send_accounting {
            SendAccounting::Bytes => self.free_bytes(queue),
            SendAccounting::Runs { overhead } => self.acceptable(queue, overhead),
        };
        if scarcity.is_severe() { space.min(config.send_buffer.min.saturating_sub(queue.len)) } else { space }
    }

    /// Whether data of `len` bytes certainly fits, without the full calculation. Runs are at least as long as a
    /// segment, so with their overhead data costs less than four times its length.
    #[inline]
    pub(crate) fn fits_easily(&self, queue: &RetransmitQueue, len: usize, config: &Config) -> bool {
        match config.send_accounting {
            SendAccounting::Bytes => !config.send_whole && len <= self.free_bytes(queue) as usize,
            SendAccounting::Runs { .. } => {
                len <= (self.limit / 4).saturating_sub(queue.len) as usize && self.shaping.is_none()
            }
        }
    }

    /// The number of the `space` bytes that are taken before anything is sent, even if the writer has more, because
    /// sending makes room. While a full segment waits already, more data causes no transmission, and all that fits is
    /// taken at once.
    pub(crate) fn portion(&self, queue: &RetransmitQueue, space: u32, config: &Config) -> u32 {
        let unsent = self.unsent(queue);
        let waits = unsent >= u32::from(self.mss);
        if waits || config.send_accounting == SendAccounting::Bytes { space } else { space.min(self.run() - unsent) }
    }

    fn free_bytes(&self, queue: &RetransmitQueue) -> u32 {
        let space = self.limit.saturating_sub(queue.len);
        match &self.shaping {
            None => space,
            Some(shaping) => shaping.space(space, self.unsent(queue)),
        }
    }

    /// Bytes of data in a run: whole segments, and no more than half of the largest window that the peer ever offered.
    fn run(&self) -> u32 {
        let half = if self.max_wnd > SMALL_WINDOW { self.max_wnd / 2 } else { self.max_wnd };
        let most = if half == 0 { LARGEST_RUN } else { half.min(LARGEST_RUN) };
        let mss = u32::from(self.mss);
        (most / mss).max(1) * mss
    }

    /// Bytes that the data in the buffer costs.
    fn charge(&self, queue: &RetransmitQueue, run: u32, overhead: u32) -> u32 {
        let sent = self.sent_data().min(queue.len);
        let runs = sent.div_ceil(run) + (queue.len - sent).div_ceil(run);
        queue.len.saturating_add(runs.saturating_mul(overhead))
    }

    /// Bytes that fill the last run begun, and all runs that may be begun.
    fn acceptable(&self, queue: &RetransmitQueue, overhead: u32) -> u32 {
        let run = self.run();
        let unsent = self.unsent(queue);
        let fill = unsent.next_multiple_of(run) - unsent;
        // As if that were full already.
        let free = self.limit.saturating_sub(self.charge(queue, run, overhead).saturating_add(fill));
        let more = free.div_ceil(run.saturating_add(overhead));
        let more = match &self.shaping {
            Some(shaping) => more.min(shaping.not_sent_low_water.saturating_sub(unsent + fill).div_ceil(run)),
            None => more,
        };
        fill.saturating_add(more.saturating_mul(run))
    }

    fn has_room(&self, queue: &RetransmitQueue, config: &Config) -> bool {
        match config.send_accounting {
            SendAccounting::Bytes => {
                let space = self.limit.saturating_sub(queue.len);
                let enough = match config.send_low_water {
                    Some(mark) => space >= mark.min(self.limit).max(1),
                    None => space > self.limit / 3,
                };
                // With a mark of unsent data, any room below it counts.
                enough && (self.shaping.is_none() || self.free_bytes(queue) > 0)
            }
            SendAccounting::Runs { overhead } => {
                let charge = self.charge(queue, self.run(), overhead);
                let below = |mark: u32| u64::from(self.unsent(queue)) * 2 < u64::from(mark);
                self.limit.saturating_sub(charge) >= charge / 2
                    && charge < self.limit
                    && self.shaping.as_ref().is_none_or(|shaping| below(shaping.not_sent_low_water))
            }
        }
    }

    /// Whether there is enough space to wake a writer: a third of the buffer, or the low-water mark; and unsent data of
    /// less than half of the mark that the user has set.
    // Needed only for a waiting writer: not inlined into the path of every segment.
    #[inline(never)]
    pub(crate) fn is_writable(&self, queue: &RetransmitQueue, config: &Config, scarcity: Scarcity) -> bool {
        self.state.accepts_send()
            && !self.fin_queued()
            && self.has_room(queue, config)
            && (!scarcity.is_severe() || queue.len < config.send_buffer.min)
    }

    /// A writer waits, and something was acknowledged: the buffer grows to twice the congestion window, unless it is
    /// not the buffer that limits the sender.
    pub(crate) fn grow(&mut self, queue: &RetransmitQueue, config: &Config, scarcity: Scarcity) {
        if !self.grows || scarcity.memory() != Pressure::None {
            return;
        }
        let (cwnd, mss) = (self.congestion.cwnd(), u32::from(self.mss));
        let wanted = match config.send_accounting {
            SendAccounting::Bytes => cwnd.saturating_mul(2),
            // All was acknowledged, and the data sent now fills the congestion window: the buffer is large enough.
            // (While something is in flight Linux coalesces the end of a window, and treats the buffer as the limit
            // meanwhile.)
            SendAccounting::Runs { .. } if self.flight() == 0 && queue.len.min(self.wnd) > cwnd.saturating_sub(mss) => {
                return;
            }
            SendAccounting::Runs { .. } => self.room_for(cwnd / mss),
        };
        self.limit = wanted.min(config.send_buffer.max).max(self.limit);
    }

    /// A buffer that grows by itself has room for the first segments of a connection, regardless of its initial size.
    pub(crate) fn grow_to_begin(&mut self, config: &Config, scarcity: Scarcity) {
        if self.grows && config.send_accounting != SendAccounting::Bytes && scarcity.memory() == Pressure::None {
            self.limit = self.room_for(LEAST_SEGMENTS).min(config.send_buffer.max).max(self.limit);
        }
    }

    /// Twice the cost of `segments` single segments.
    fn room_for(&self, segments: u32) -> u32 {
        let segment = (u32::from(self.mss) + BESIDE_SEGMENT).next_power_of_two() + BESIDE_BLOCK;
        segments.max(LEAST_SEGMENTS).saturating_mul(2 * segment)
    }
}
