//! SEND without an outbox: the user's piece of data that leaves as the one segment in flight.
//!
//! Of all that an event can leave in an outbox, such a send has a segment, the memory of the piece, and rarely a wake. So
//! an owner of all parts of a connection asks whether a call is one ([`Send::piece_alone`]), and if it is, gets these as
//! the result of [`Send::leave_alone`]. Every other call is run as an event.

use observe::{Counters, Time};
use pktbuf::{Chunk, PktBuf, RegionId};
use wire::checksum::Sum;
use wire::tcp::TIMESTAMPED_LEN;

use super::Send;
use crate::config::Config;
use crate::lane::{begin_alone, fits_alone, is_plain, piece};
use crate::pcb::{Pcb, Push};

/// What a send without an outbox reads of the stack and of the device that it leaves by. The device has room for a frame and
/// does not split super-segments, and memory is not scarce ([`Scarcity::is_severe`](crate::Scarcity::is_severe)).
pub struct SendContext<'c> {
    /// The stack's parameters.
    pub config: &'c Config,
    /// The counters of this thread.
    pub counters: &'c Counters,
    /// The region in which segments must be made for the device; `None`: the heap.
    pub region: Option<RegionId>,
}

/// A piece that leaves alone: what was computed to find that.
pub struct PieceAlone {
    window: u16,
    len: usize,
}

/// The effects of a send that left alone.
pub struct SentAlone {
    /// The segment, as in [`Outbox::segments`](crate::Outbox::segments). To be given to the device before the connection is
    /// released.
    pub segment: PktBuf,
    /// Bytes of data taken: all.
    pub accepted: u32,
    /// Bytes of memory by which the connection's buffers have grown.
    pub memory: u32,
    /// Run [`Timeouts`](crate::Timeouts) no later than this.
    pub wake: Option<Time>,
}

/// Data of up to this many bytes is mostly a request or an answer, and leaves alone; more of it mostly follows other data.
const SHORT: usize = 1024;

impl Send {
    /// Whether the data is worth asking for [`Send::piece_alone`]: one buffer, and short.
    #[inline(always)]
    pub fn is_short(&self) -> bool {
        matches!(&self.chunks[..], [Chunk::Pooled(buffer)] if buffer.len() <= SHORT)
    }

    /// Whether all of the data is one buffer that may leave at once, as the only segment in flight, on a connection about
    /// which nothing is rare: then [`Send::leave_alone`] has all effects of the event. `None`: run the event. Nothing has
    /// changed yet.
    #[inline(always)]
    pub fn piece_alone(&self, pcb: &Pcb, context: &SendContext<'_>) -> Option<PieceAlone> {
        let Pcb { send_window: sw, retransmit_queue: rq, header_out: ho, .. } = pcb;
        let [Chunk::Pooled(buffer)] = &self.chunks[..] else { return None };
        let (window, len) = (ho.window_field(), buffer.len());
        let alone = rq.len == 0
            && len != 0
            && fits_alone(sw, len as u32)
            && sw.fits_easily(rq, len, context.config)
            && window != 0
            && is_plain(ho, context.config);
        alone.then_some(PieceAlone { window, len })
    }

    /// Takes the data and makes its segment. `None`: there is no buffer, and nothing has changed.
    #[inline(always)]
    pub fn leave_alone(
        &mut self,
        PieceAlone { window, len }: PieceAlone,
        pcb: &mut Pcb,
        context: &SendContext<'_>,
        now: Time,
    ) -> Option<SentAlone> {
        let Pcb { send_window: sw, retransmit_queue: rq, header_out: ho, receive_window: rw, .. } = pcb;
        let mut buffer = PktBuf::alloc_around(context.region, TIMESTAMPED_LEN, len)?;
        let Some(Chunk::Pooled(data)) = self.chunks.pop() else { return None };
        let memory = rq.push_alone(data);
        begin_alone(sw, context.config, now);
        let sum = buffer.get_mut(TIMESTAMPED_LEN..).map_or(Sum::zero(), |data| rq.copy_first(data));
        let (segment, advertised) = piece(sw, rq, ho, (buffer, sum), window, (context.config, context.counters), now);
        sw.hold.set_push(Push::Asked.after_call());
        if let Some(advertised) = advertised {
            rw.data_sent(advertised, context.config, now);
        }
        Some(SentAlone { segment, accepted: len as u32, memory, wake: sw.wake() })
    }
}
