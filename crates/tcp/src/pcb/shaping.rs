//! Limits on sending that few connections have: pacing, a low-water mark of unsent data, urgent data, the user
//! time-out, the search for the path's MTU, and the account of what limited the sender. Boxed by the send window; a
//! connection without any of it pays for one comparison with null per segment.

use core::time::Duration;
use std::collections::VecDeque;

use observe::Time;
use wire::SeqNumber;

use super::MtuSearch;
use super::delivery_rate::DeliveryRate;
use crate::config::{Config, ConnectionOptions};

/// The pacer tolerates lateness up to this: timers and batches are coarser than the gaps between segments.
const CREDIT: Duration = Duration::from_millis(1);

/// Unpaced segments at the beginning of a connection: other stacks send the initial window in one burst as well.
const UNPACED: u32 = 10;

/// The limit of a sender, for the account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SenderLimit {
    /// Nothing is to be sent, or to be acknowledged.
    #[default]
    Idle,
    /// The network.
    Network,
    /// The peer's window.
    Window,
    /// The send buffer: the user would send more.
    Buffer,
}

/// How long a sender was busy, and its limits meanwhile (`tcpi_busy_time` and related fields).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LimitTimes {
    limit: SenderLimit,
    since: Time,
    busy: Duration,
    window: Duration,
    buffer: Duration,
}

/// Totals of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limited {
    /// Time with something to send or to be acknowledged.
    pub busy: Duration,
    /// Of this, held up by the peer's window.
    pub window: Duration,
    /// Of this, held up by a full send buffer.
    pub buffer: Duration,
}

impl LimitTimes {
    pub(crate) fn note(&mut self, limit: SenderLimit, now: Time) {
        if limit == self.limit {
            return;
        }
        let Limited { busy, window, buffer } = self.totals(now);
        *self = LimitTimes { limit, since: now, busy, window, buffer };
    }

    pub(crate) fn totals(&self, now: Time) -> Limited {
        let since = now - self.since;
        let part = |counted: bool| if counted { since } else { Duration::ZERO };
        Limited {
            busy: self.busy + part(self.limit != SenderLimit::Idle),
            window: self.window + part(self.limit == SenderLimit::Window),
            buffer: self.buffer + part(self.limit == SenderLimit::Buffer),
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Shaping {
    /// Unsent data at which the writer is blocked.
    pub(crate) not_sent_low_water: u32,
    /// Upper bound of the pacing rate in bytes per second; `u64::MAX` for none.
    pub(crate) max_rate: u64,
    /// Segments are paced.
    pub(crate) paced: bool,
    /// The pacer allows no segment before.
    next: Time,
    /// Congestion allows no new segment before, paced or not.
    held_until: Time,
    /// Something waits for `next` or `held_until`.
    pub(crate) waiting: bool,
    /// SND.UP, until it is acknowledged.
    pub(crate) urgent: Option<SeqNumber>,
    /// Ends of records that are not acknowledged, the first in front.
    pub(crate) records: VecDeque<SeqNumber>,
    /// The user time-out in ms; 0 for none. A copy of that in `HeaderIn`.
    pub(crate) user_timeout: u32,
    /// The account of what limited the sender, if enabled.
    pub(crate) account: Option<LimitTimes>,
    /// The delivery rate, if enabled.
    pub(crate) rate: Option<DeliveryRate>,
    /// The search for the path's MTU.
    pub(crate) mtu_search: Option<MtuSearch>,
    /// Initial window in segments; 0: the stack's.
    pub(crate) initial_window: u8,
}

impl Shaping {
    /// The stack's limits only.
    pub(crate) fn new(config: &Config) -> Box<Shaping> {
        Box::new(Shaping {
            not_sent_low_water: config.not_sent_low_water,
            max_rate: u64::MAX,
            paced: config.pacing.on,
            next: Time::ZERO,
            held_until: Time::ZERO,
            waiting: false,
            urgent: None,
            records: VecDeque::new(),
            user_timeout: 0,
            account: config.measure_limits.then(LimitTimes::default),
            rate: config.measure_limits.then(DeliveryRate::default),
            mtu_search: None,
            initial_window: 0,
        })
    }

    /// The limits set by `options` and the stack; `None` if there are none.
    pub(crate) fn of(options: &ConnectionOptions, config: &Config) -> Option<Box<Shaping>> {
        let own = options.not_sent_low_water.is_some()
            || options.max_pacing_rate.is_some()
            || options.initial_window.is_some();
        let all = config.not_sent_low_water != u32::MAX || config.pacing.on || config.measure_limits;
        if !own && !all && options.user_timeout.is_none() {
            return None;
        }
        let mut shaping = Shaping::new(config);
        shaping.not_sent_low_water = options.not_sent_low_water.unwrap_or(config.not_sent_low_water);
        shaping.initial_window = options.initial_window.unwrap_or(0);
        shaping.user_timeout = options.user_timeout.map_or(0, super::milliseconds);
        options.max_pacing_rate.into_iter().for_each(|rate| shaping.pace_at_most(rate));
        Some(shaping)
    }

    /// Pace, at `rate` bytes per second or less.
    pub(crate) fn pace_at_most(&mut self, rate: u64) {
        self.max_rate = rate;
        self.paced = true;
    }

    /// The part of `space` bytes in the buffer that may be filled while `unsent` bytes wait.
    pub(crate) fn space(&self, space: u32, unsent: u32) -> u32 {
        space.min(self.not_sent_low_water.saturating_sub(unsent))
    }

    /// The time for which a new segment must wait, if it must.
    pub(crate) fn hold_until(&mut self, sent: u32, now: Time) -> Option<Time> {
        let at = self.release(sent);
        self.waiting = now < at;
        self.waiting.then_some(at)
    }

    /// When the segment numbered `sent` may be sent.
    fn release(&self, sent: u32) -> Time {
        if self.paced && sent >= UNPACED { self.next.max(self.held_until) } else { self.held_until }
    }

    /// No new data is sent before `until`: the network is congested although the window has its least size.
    pub(crate) fn hold_back(&mut self, until: Time) {
        self.held_until = until;
    }

    /// Records that `bytes` were sent at `now`, in the segment numbered `sent`, at `rate` bytes per second.
    pub(crate) fn sent(&mut self, bytes: u32, sent: u32, rate: Option<u64>, now: Time) {
        let Some(rate) = rate.filter(|_| self.paced && sent >= UNPACED) else { return };
        let gap = u64::from(bytes).saturating_mul(1_000_000_000) / rate.max(1);
        self.next = self.next.max(now - CREDIT) + Duration::from_nanos(gap);
    }

    /// Everything up to `una` is acknowledged.
    pub(crate) fn acknowledged(&mut self, una: SeqNumber) {
        self.urgent = self.urgent.filter(|end| end.gt(una));
        while self.records.front().is_some_and(|end| end.le(una)) {
            self.records.pop_front();
        }
    }

    /// The part of `len` bytes from `seq` on that belongs to the first record.
    pub(crate) fn record(&self, seq: SeqNumber, len: u32) -> u32 {
        let end = self.records.iter().find(|end| end.gt(seq));
        end.map_or(len, |end| len.min((*end - seq) as u32))
    }

    /// When waiting data may be sent, if there is any, after `sent` segments.
    pub(crate) fn due(&self, sent: u32) -> Option<Time> {
        self.waiting.then(|| self.release(sent))
    }
}
