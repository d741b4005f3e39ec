//! The header-out part: the template of every header that the connection sends, and the receive side's values that were
//! last advertised to the peer.
//!
//! Only [`crate::output`] makes segments from it. Values of the receive side arrive as snapshots and are merged so that
//! they never move back: under a staged driver two threads may deliver theirs in either order.

use core::net::IpAddr;

use observe::Time;
use pktbuf::Meta;
use wire::checksum::{Sum, pseudo_header};
use wire::tcp::SackBlocks;
use wire::{FourTuple, SeqNumber};

use super::receive_window::RecvSnapshot;
use crate::config::ConnectionOptions;
use crate::ecn_state::{EcnState, Marks, NOT_ECT};
use crate::isn::{ChildIdentity, Isn};

/// Bits of `HeaderOut::class` that hold the class.
const CLASS: u8 = !3;
const SCALES: u8 = 1;
const TIMESTAMPS: u8 = 2;

/// Bit of `HeaderOut::shift`: the receive side acknowledges quickly, as of the last snapshot, and no data was sent since.
const QUICK: u8 = 0x80;

/// See the module documentation.
#[derive(Debug)]
#[repr(C)]
pub struct HeaderOut {
    // Written by an arrival: the snapshot of the receive side.
    /// Blocks of the last snapshot, if there are any.
    pub(crate) sack: Option<Box<SackBlocks>>,
    /// RCV.NXT as merged.
    pub(crate) nxt: SeqNumber,
    /// Right edge of our window as merged.
    pub(crate) edge: SeqNumber,
    pub(crate) ts_recent: u32,
    /// Our window shift, once both sides agreed to scale, at most 14; and [`QUICK`].
    shift: u8,
    // Fields that a transmission touches.
    /// Differentiated Services field in the high six bits; [`SCALES`] and [`TIMESTAMPS`] in the low two.
    class: u8,
    /// Time to live or hop limit; 0: IP's default.
    pub(crate) hop_limit: u8,
    /// The ECN bits of our headers.
    pub(crate) marks: Marks,
    /// The acknowledgement number sent last.
    pub(crate) acked: SeqNumber,
    /// The right edge sent last.
    pub(crate) advertised_edge: SeqNumber,
    /// Offset of our timestamp clock, in ms.
    pub(crate) ts_offset: u32,
    /// The timestamp sent last, initially that of the PCB's creation: the clock that peers see never goes back,
    /// although two threads with batches of different age may alternate here.
    pub(crate) ts_sent: u32,
    /// Segments sent, modulo 2^32.
    pub(crate) segments_out: u32,
    /// 0: none.
    pub(crate) flow_hash: u32,
    /// Sum of the pseudo-header without its length, folded to 16 bits.
    pub(crate) pseudo: u16,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    /// MSS that we announce.
    pub(crate) announce_mss: u16,
    /// The ECN counters, if both ends use ECN.
    pub(crate) ecn: Option<Box<EcnState>>,
}

impl HeaderOut {
    /// `first`: the window of our SYN, before there is anything to acknowledge. `options` are for the IP header.
    #[inline(always)]
    pub(crate) fn new(
        tuple: &FourTuple,
        (announce_mss, first): (u16, u32),
        isn: &Isn,
        options: &ConnectionOptions,
        now: Time,
    ) -> Self {
        HeaderOut {
            nxt: SeqNumber(0),
            edge: SeqNumber(first),
            acked: SeqNumber(0),
            advertised_edge: SeqNumber(0),
            ts_recent: 0,
            ts_offset: isn.ts_offset,
            ts_sent: (now.as_millis() as u32).wrapping_add(isn.ts_offset),
            segments_out: 0,
            flow_hash: isn.flow_hash.unwrap_or(0),
            pseudo: !pseudo(tuple.local_addr, tuple.remote_addr).finish(),
            local_port: tuple.local_port,
            remote_port: tuple.remote_port,
            announce_mss,
            shift: 0,
            class: options.traffic_class & CLASS,
            hop_limit: options.hop_limit.unwrap_or(0),
            marks: Marks::default(),
            ecn: None,
            sack: None,
        }
    }

    /// That of another connection, after a handshake like this one's.
    #[inline(always)]
    pub(crate) fn like(&self, identity: &ChildIdentity<'_>) -> Self {
        let ChildIdentity { tuple, isn, irs, ts_recent, now, .. } = identity;
        let nxt = *irs + 1;
        let edge = nxt + (self.edge - self.nxt) as u32;
        HeaderOut {
            sack: None,
            nxt,
            edge,
            ts_recent: *ts_recent,
            shift: self.shift,
            class: self.class,
            hop_limit: self.hop_limit,
            marks: self.marks,
            acked: nxt,
            advertised_edge: edge,
            ts_offset: isn.ts_offset,
            ts_sent: (now.as_millis() as u32).wrapping_add(isn.ts_offset),
            segments_out: self.segments_out,
            flow_hash: isn.flow_hash.unwrap_or(0),
            pseudo: !pseudo(tuple.local_addr, tuple.remote_addr).finish(),
            local_port: tuple.local_port,
            remote_port: tuple.remote_port,
            announce_mss: self.announce_mss,
            ecn: None,
        }
    }

    /// Sets the Differentiated Services field. The two bits of ECN are not the user's (RFC 3168 section 5).
    pub(crate) fn set_class(&mut self, class: u8) {
        self.class = class & CLASS | self.class & !CLASS;
    }

    /// The value set by [`HeaderOut::set_class`].
    #[inline]
    pub(crate) fn class(&self) -> u8 {
        self.class & CLASS
    }

    /// Describes a segment with this ECN mark to IP and to the device.
    #[inline(always)]
    pub(crate) fn describe(&self, meta: &mut Meta, mark: u8) {
        meta.flow_hash = (self.flow_hash != 0).then_some(self.flow_hash);
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
        //# TCP implementations SHOULD pass the current Differentiated Services field value without change to the IP layer,
        //# when it sends segments on the connection (SHLD-22).
        meta.traffic_class = mark | self.class();
        meta.hop_limit = self.hop_limit;
    }

    /// Both sides scale their windows, if only by 0; timestamps are on.
    pub(crate) fn set_features(&mut self, scales: bool, timestamps: bool) {
        self.class = self.class() | if scales { SCALES } else { 0 } | if timestamps { TIMESTAMPS } else { 0 };
    }

    /// Sets our window shift.
    pub(crate) fn set_shift(&mut self, shift: u8) {
        self.shift = shift;
    }

    /// Data was sent. Whether the receive side must know, because it acknowledges quickly.
    #[inline]
    pub(crate) fn take_quick(&mut self) -> bool {
        let quick = self.shift & QUICK != 0;
        self.shift &= !QUICK;
        quick
    }

    /// Whether both sides scale their windows, if only by 0.
    pub(crate) fn scales(&self) -> bool {
        self.class & SCALES != 0
    }

    /// Whether timestamps are on.
    #[inline]
    pub(crate) fn timestamps(&self) -> bool {
        self.class & TIMESTAMPS != 0
    }

    /// The peer's SYN arrived: start from this snapshot and discard the previous one.
    pub(crate) fn synchronise(&mut self, snapshot: &RecvSnapshot) {
        self.nxt = snapshot.nxt;
        self.edge = snapshot.edge;
        self.acked = snapshot.nxt;
        self.advertised_edge = snapshot.edge;
        self.ts_recent = snapshot.ts_recent;
    }

    /// Merge a snapshot of the receive side.
    #[inline]
    pub(crate) fn merge(&mut self, snapshot: RecvSnapshot) {
        if snapshot.nxt.ge(self.nxt) {
            // With new data the snapshot is the later one, even if the peer's clock advanced by half its range while it
            // was silent.
            if snapshot.nxt != self.nxt || snapshot.ts_recent.wrapping_sub(self.ts_recent) as i32 > 0 {
                self.ts_recent = snapshot.ts_recent;
            }
            self.nxt = snapshot.nxt;
            self.sack = snapshot.sack;
            self.shift = self.shift & !QUICK | if snapshot.quick { QUICK } else { 0 };
        }
        if snapshot.edge.gt(self.edge) {
            self.edge = snapshot.edge;
        }
    }

    /// [`HeaderOut::merge`] of a snapshot with new data and without SACK blocks, where no other can come between.
    #[inline(always)]
    pub(crate) fn advance(&mut self, nxt: SeqNumber, edge: SeqNumber, ts_recent: u32, quick: bool) {
        debug_assert!(nxt.gt(self.nxt), "there is new data");
        (self.nxt, self.ts_recent) = (nxt, ts_recent);
        if self.sack.is_some() {
            self.drop_blocks();
        }
        self.shift = self.shift & !QUICK | if quick { QUICK } else { 0 };
        if edge.gt(self.edge) {
            self.edge = edge;
        }
    }

    #[cold]
    fn drop_blocks(&mut self) {
        self.sack = None;
    }

    /// Merges the snapshot at the end of the peer's stream: there are no holes any more, so the only block that stays
    /// is a duplicate not reported yet.
    #[cold]
    pub(crate) fn merge_last(&mut self, snapshot: RecvSnapshot) {
        let blocks = self.sack.take();
        self.merge(snapshot);
        let duplicate = blocks.and_then(|blocks| crate::sack::dsack(&blocks, self.nxt));
        self.sack = duplicate.map(|block| Box::new([block].into_iter().collect()));
    }

    /// The timestamp to echo is `value`, unless a later segment was merged before.
    #[inline]
    pub(crate) fn echo(&mut self, value: u32) {
        if value.wrapping_sub(self.ts_recent) as i32 > 0 {
            self.ts_recent = value;
        }
    }

    /// Removes a leading duplicate block after it was reported; the peer would count it again (RFC 2883 section 4).
    #[cold]
    pub(crate) fn drop_dsack(&mut self) {
        let Some(blocks) = self.sack.as_deref_mut() else { return };
        if crate::sack::dsack(blocks, self.nxt).is_some() {
            *blocks = blocks.iter().skip(1).collect();
            if blocks.is_empty() {
                self.sack = None;
            }
        }
    }

    /// The window field: the open window beyond RCV.NXT, rounded up to a unit so that the edge never seems to move
    /// back.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
    //# The window field (SEG.WND) of every outgoing segment, with the exception of <SYN> segments, MUST be
    //# right-shifted by Rcv.Wind.Shift bits:
    #[inline]
    pub(crate) fn window_field(&self) -> u16 {
        let open = (self.edge - self.nxt).max(0) as u32;
        let shift = self.shift & !QUICK;
        let unit = 1u32 << shift;
        ((open + unit - 1) >> shift).min(u32::from(u16::MAX)) as u16
    }

    /// The peer's SYN-ACK needs an acknowledgement.
    pub(crate) fn require_syn_ack_ack(&mut self) {
        self.acked = self.nxt + u32::MAX;
    }

    /// Whether there is a value not advertised yet.
    #[inline]
    pub(crate) fn has_unadvertised(&self) -> bool {
        self.acked != self.nxt || self.advertised_edge != self.edge
    }
}

/// Describes the SYN-ACK of a listener with these options, which has no mark, as [`HeaderOut::describe`] would.
#[inline(always)]
pub(crate) fn describe(meta: &mut Meta, flow_hash: u32, options: &ConnectionOptions) {
    meta.flow_hash = (flow_hash != 0).then_some(flow_hash);
    meta.traffic_class = NOT_ECT | options.traffic_class & CLASS;
    meta.hop_limit = options.hop_limit.unwrap_or(0);
}

/// Sum of the pseudo-header with length 0.
#[inline]
pub(crate) fn pseudo(local: IpAddr, remote: IpAddr) -> Sum {
    pseudo_header(local, remote, 6, 0)
}
