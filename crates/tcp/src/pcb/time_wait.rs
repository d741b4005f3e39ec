//! A connection in TIME-WAIT in 44 bytes: all that its PCB can still be asked for, once no user holds it.
//!
//! [`TimeWait::of`] takes the values out of a PCB, and [`TimeWait::revive`] makes a PCB of them that reacts to every
//! later event as the first would have: the same segments, the same drops, the same end. So there is one implementation
//! of the state, that of the PCB. A PCB with something rare that has no place here (ECN, a hop limit of its own, a
//! duplicate to report, a setting, memory in a queue, a number that does not fit) is left as it is; `of` returns `None`.
//!
//! Three values are not kept, because nothing depends on them: what only a user could ask for (counts of segments, the
//! round trip), the segment size and the congestion window, since nothing is sent that has data (a change of the path is
//! not counted then), and the timestamp sent last: the clock has passed it.
//!
//! Times are kept as distances from the end of TIME-WAIT, which is rounded up to [`RESOLUTION`]. What may never happen:
//! a value that is rounded, or cut, and changes an answer.

use core::time::Duration;

use observe::{Counter, Counters, Time};
use wire::{FourTuple, SeqNumber};

use super::receive_window::{Fin, RecvSnapshot, WindowAdvertised};
use super::{Pcb, RecoveryMode};
use crate::config::{Config, ConnectionOptions};
use crate::ecn_state::Marks;
use crate::isn::Isn;
use crate::state::State;
use crate::tick::Tick;

/// The end of TIME-WAIT is a multiple of this: 2^20 ns, about a millisecond.
pub const RESOLUTION: Duration = Duration::from_nanos(1 << TICK_SHIFT);

const TICK_SHIFT: u32 = 20;
/// Ticks of the end of TIME-WAIT in one of a confirmed timestamp, as a shift.
const SECOND_SHIFT: u32 = 10;
/// Bits of a number of bytes. No window is larger, with the largest shift.
const BYTES: u32 = 30;
const MOST_BYTES: u32 = (1 << BYTES) - 1;
/// In `window`: the connection uses selective acknowledgements.
const SACK: u32 = 1 << BYTES;
/// In `window`: its segments have timestamps.
const TIMESTAMPS: u32 = 2 << BYTES;
/// In `acked`: `max_wnd` is in units of the peer's window.
const SCALED: u32 = 1 << BYTES;
/// In `since`: bits of the ticks, and of the seconds above them; the Differentiated Services field is above both.
const HEARD_BITS: u32 = 18;
const CONFIRMED_BITS: u32 = 8;
/// In `challenged`: so long ago that the next challenge need not wait.
const LONG_AGO: u16 = u16::MAX;
/// The smallest MSS with room for all SACK blocks of an acknowledgement, and more.
const ROOMY_MSS: u16 = 64;
/// The MSS for which a revived PCB is made. It does not announce it.
const ANY_MSS: u16 = 536;

/// See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWait {
    /// SND.NXT, which is also SND.UNA.
    snd_nxt: SeqNumber,
    /// RCV.NXT.
    rcv_nxt: SeqNumber,
    /// TS.Recent.
    ts_recent: u32,
    /// Offset of our timestamp clock, in ms.
    ts_offset: u32,
    /// The end of TIME-WAIT in units of [`RESOLUTION`], modulo 2^32.
    deadline: u32,
    /// Bytes from RCV.NXT to the right edge of our window; [`SACK`] and [`TIMESTAMPS`].
    window: u32,
    /// Bytes that were acknowledged to us, [`MOST_BYTES`] at most; [`SCALED`].
    acked: u32,
    /// Size of the receive buffer, by which old duplicates are known.
    limit: u32,
    /// How long before the end of TIME-WAIT the last segment arrived, in ticks, and TS.Recent was confirmed, in 2^30 ns;
    /// the Differentiated Services field.
    since: u32,
    /// The largest window that the peer ever offered.
    max_wnd: u16,
    /// How far SEG.SEQ of the last window update is before RCV.NXT.
    wl1: u16,
    /// How long before the end of TIME-WAIT the last challenge was sent, in ms; or [`LONG_AGO`].
    challenged: u16,
    /// Our window shift, and the peer's above it.
    shifts: u8,
    /// A byte that the owner of the value may use; the value does not depend on it.
    pub note: u8,
}

const _: () = assert!(size_of::<TimeWait>() == 44);

/// `value`, if it is less than 2^`bits`.
fn fits(value: u32, bits: u32) -> Option<u32> {
    (value >> bits == 0).then_some(value)
}

/// The ticks at the end of TIME-WAIT.
fn ticks(deadline: Time) -> u64 {
    deadline.as_nanos().saturating_add((1 << TICK_SHIFT) - 1) >> TICK_SHIFT
}

impl TimeWait {
    /// The values of a PCB in TIME-WAIT that no user holds, whose segments carry `flow_hash`. `None`: it is in another
    /// state, or something about it has no place here.
    pub fn of(pcb: &Pcb, flow_hash: Option<u32>, config: &Config, now: Time) -> Option<TimeWait> {
        if !is_plain(pcb) || pcb.header_out.flow_hash != flow_hash.unwrap_or(0) {
            return None;
        }
        let Pcb { header_in, receive_window: rw, send_window: sw, header_out: ho, .. } = pcb;
        let end = ticks(header_in.state_deadline);
        let heard = fits((end as u32).wrapping_sub(header_in.last_heard), HEARD_BITS)?;
        let confirmed = match rw.timestamps() {
            true => fits(((end >> SECOND_SHIFT) as u32).wrapping_sub(rw.ts_recent_at), CONFIRMED_BITS)?,
            false => 0,
        };
        let (max_wnd, scaled) = match u16::try_from(sw.max_wnd) {
            Ok(bytes) => (bytes, 0),
            Err(_) if sw.max_wnd & ((1 << sw.shift) - 1) != 0 => return None,
            Err(_) => (u16::try_from(sw.max_wnd >> sw.shift).ok()?, SCALED),
        };
        let open = fits(u32::try_from(rw.edge - rw.nxt).ok()?, BYTES)?;
        let flags = if rw.sack { SACK } else { 0 } | if rw.timestamps() { TIMESTAMPS } else { 0 };
        Some(TimeWait {
            snd_nxt: sw.nxt,
            rcv_nxt: rw.nxt,
            ts_recent: rw.ts_recent,
            ts_offset: ho.ts_offset,
            deadline: end as u32,
            window: open | flags,
            acked: u32::try_from(sw.bytes_acked).unwrap_or(u32::MAX).min(MOST_BYTES) | scaled,
            limit: rw.limit,
            since: heard | confirmed << HEARD_BITS | u32::from(ho.class() >> 2) << (HEARD_BITS + CONFIRMED_BITS),
            max_wnd,
            wl1: u16::try_from(rw.nxt - sw.wl1).ok()?,
            challenged: challenged(header_in.challenged, end, config, now)?,
            shifts: rw.shift | sw.shift << 4,
            note: 0,
        })
    }

    /// The end of TIME-WAIT, a multiple of [`RESOLUTION`]; `near`: any time less than 26 days before or after it.
    #[inline]
    pub fn deadline(&self, near: Time) -> Time {
        let near = near.as_nanos() >> TICK_SHIFT;
        let ahead = self.deadline.wrapping_sub(near as u32).cast_signed();
        Time::from_nanos(near.saturating_add_signed(ahead.into()) << TICK_SHIFT)
    }

    /// A PCB that goes on where the other one was, of the connection with this tuple and flow hash. `near` as in
    /// [`TimeWait::deadline`].
    pub fn revive(&self, tuple: &FourTuple, flow_hash: Option<u32>, config: &Config, near: Time) -> Pcb {
        let end = self.deadline(near);
        let isn = Isn { iss: self.snd_nxt, ts_offset: self.ts_offset, flow_hash };
        let mut pcb = Pcb::closed(*tuple, isn, ANY_MSS, &ConnectionOptions::default(), config, end);
        self.revive_receive_side(&mut pcb, end);
        self.revive_send_side(&mut pcb);
        let header_in = &mut pcb.header_in;
        header_in.state = State::TimeWait;
        header_in.state_deadline = end;
        header_in.set_held(false);
        header_in.last_heard = self.heard();
        header_in.challenged = match self.challenged {
            LONG_AGO => Tick::long_before(end),
            ms => Tick::of(end - Duration::from_millis(ms.into())),
        };
        // The clock that peers see has gone on at least to the last segment.
        let heard = end - RESOLUTION * self.since_heard();
        pcb.header_out.ts_sent = (heard.as_millis() as u32).wrapping_add(self.ts_offset);
        pcb
    }

    fn since_heard(&self) -> u32 {
        self.since & ((1 << HEARD_BITS) - 1)
    }

    fn heard(&self) -> u32 {
        self.deadline.wrapping_sub(self.since_heard())
    }

    fn revive_receive_side(&self, pcb: &mut Pcb, end: Time) {
        let (rw, ho) = (&mut pcb.receive_window, &mut pcb.header_out);
        let timestamps = self.window & TIMESTAMPS != 0;
        let confirmed = self.since >> HEARD_BITS & ((1 << CONFIRMED_BITS) - 1);
        rw.state = State::TimeWait;
        rw.nxt = self.rcv_nxt;
        rw.edge = rw.nxt + (self.window & MOST_BYTES);
        (rw.last_ack_sent, rw.advertised_edge) = (rw.nxt, rw.edge);
        (rw.limit, rw.shift, rw.sack) = (self.limit, self.shifts & 0xf, self.window & SACK != 0);
        (rw.ts_recent, rw.ts_recent_at) = (self.ts_recent, ((end.as_nanos() >> 30) as u32).wrapping_sub(confirmed));
        (rw.fin, rw.advertised, rw.bytes_received) = (Fin::Taken, WindowAdvertised::Data, 1);
        rw.set_timestamps(timestamps);
        rw.note_rare();
        let (nxt, edge, ts_recent) = (rw.nxt, rw.edge, rw.ts_recent);
        ho.synchronise(&RecvSnapshot { nxt, edge, ts_recent, sack: None, quick: false });
        ho.set_shift(rw.shift);
        ho.set_features(rw.shift != 0, timestamps);
        ho.set_class((self.since >> (HEARD_BITS + CONFIRMED_BITS) << 2) as u8);
    }

    fn revive_send_side(&self, pcb: &mut Pcb) {
        let sw = &mut pcb.send_window;
        sw.state = State::TimeWait;
        sw.shaping = None;
        // So small that no change of the path is one of the segment size.
        (sw.mss, pcb.retransmit_queue.largest) = (1, 1);
        sw.shift = self.shifts >> 4;
        let unit = if self.acked & SCALED != 0 { sw.shift } else { 0 };
        sw.max_wnd = u32::from(self.max_wnd) << unit;
        // It was not closed, which is all that counts.
        sw.wnd = 1;
        sw.bytes_acked = (self.acked & MOST_BYTES).into();
        (sw.wl1, sw.wl2) = (self.rcv_nxt - u32::from(self.wl1), self.snd_nxt);
        (sw.sack, sw.timestamps) = (self.window & SACK != 0, self.window & TIMESTAMPS != 0);
        sw.fin_sent = true;
        sw.queue_fin();
        sw.rare = sw.recomputed();
    }

    /// TIME-WAIT is over: what the time-out of the PCB would have counted. Nothing remains.
    pub fn expire(self, counters: &Counters) {
        counters.add(Counter::ConnectionsClosed, 1);
    }
}

/// The value for the last challenge, if it fits. A challenge that no longer limits the next one is long ago.
fn challenged(last: Tick, end: u64, config: &Config, now: Time) -> Option<u16> {
    if last.elapsed(now) >= config.challenge_ack_interval {
        return Some(LONG_AGO);
    }
    let before = last.elapsed_ms(Time::from_nanos(end << TICK_SHIFT));
    u16::try_from(before).ok().filter(|ms| *ms != LONG_AGO)
}

/// Whether a PCB is in TIME-WAIT without a user, and all that is not kept is as it nearly always is.
fn is_plain(pcb: &Pcb) -> bool {
    pcb.header_in.state == State::TimeWait
        && !pcb.header_in.is_held()
        && !pcb.header_in.exchanges()
        && pcb.header_in.settings.is_none()
        && is_plain_receiver(pcb)
        && is_plain_sender(pcb)
}

/// All was acknowledged and taken, and there is nothing more to report.
fn is_plain_receiver(pcb: &Pcb) -> bool {
    let (rw, ho) = (&pcb.receive_window, &pcb.header_out);
    let agree = (ho.nxt, ho.edge, ho.ts_recent) == (rw.nxt, rw.edge, rw.ts_recent);
    agree
        && (rw.last_ack_sent, rw.advertised_edge) == (rw.nxt, rw.edge)
        && (ho.acked, ho.advertised_edge) == (rw.nxt, rw.edge)
        && rw.finished()
        && rw.advertised == WindowAdvertised::Data
        && rw.ack_deadline == Time::MAX
        && rw.queue.len() == 0
        && !pcb.reassembly.has_blocks()
        && ho.sack.is_none()
        && ho.ecn.is_none()
        && ho.marks == Marks::default()
        && ho.hop_limit == 0
        && ho.announce_mss >= ROOMY_MSS
}

/// Nothing is in flight, and nothing limits what is sent.
fn is_plain_sender(pcb: &Pcb) -> bool {
    let sw = &pcb.send_window;
    (sw.una, sw.wl2) == (sw.nxt, sw.nxt)
        && sw.fin_sent
        && sw.fin_queued()
        && sw.mode == RecoveryMode::Open
        && sw.timer == Time::MAX
        && sw.wnd > 0
        && sw.loss.is_none()
        && sw.shaping.is_none()
        && pcb.retransmit_queue.len == 0
}
