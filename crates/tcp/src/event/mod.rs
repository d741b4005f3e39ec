//! Everything that can happen to a connection, as values (RFC 9293 section 3.10).
//!
//! An event can be run here and now, queued, sent to another thread, replayed or scripted: it is only data until
//! [`TcpEvent::run`] is called with a connection. Opening is not an event because there is no connection yet: see
//! [`crate::Pcb::open_active`] and [`crate::handshake`].

mod abort;
mod close;
mod damaged;
pub(crate) mod early;
mod expect_answers;
pub(crate) mod fast_open;
mod icmp;
mod open;
mod options;
mod promised;
mod receive;
mod reclaim;
mod route_changed;
pub mod segment_arrives;
mod send;
mod set_option;
mod status;
mod take_error;
mod timeouts;
mod transmit_ready;

pub use abort::{Abort, LinkDown};
pub use close::{Close, Shutdown};
pub use damaged::DamagedData;
pub use expect_answers::ExpectAnswers;
pub use fast_open::{Start, TakeDestinationUpdate};
pub use icmp::{IcmpError, IcmpKind, PathMtu};
pub(crate) use open::Negotiation;
pub use open::Open;
pub use options::OptionValues;
pub use promised::{SendPromised, SendRoom};
pub use receive::{
    PassedData, Peek, Peeked, Receive, ReceiveInOrder, ReceiveInto, ReceivePiece, ReceiveReady, ReceiveRemainder,
    Received, ReceivedInOrder, ReportUnread,
};
pub use reclaim::Reclaim;
pub use route_changed::RouteChanged;
pub use segment_arrives::{Disposition, HandedOn, Predicted, RunArrives, SegmentArrives, UnpredictedArrives};
pub use send::{
    BytesSent, Chunks, PieceAlone, Send, SendBytes, SendChunk, SendContext, SendMore, SendRecord, SendUrgent, Sent,
    SentAlone,
};
pub use set_option::{SetOption, SocketOption};
pub use status::{RecoveryState, Status, StatusReport, Traffic};
pub use take_error::TakeError;
pub use timeouts::Timeouts;
pub use transmit_ready::TransmitReady;

use observe::Time;

use crate::access::PcbAccess;
use crate::outbox::Outbox;

/// Something that happens to a connection.
pub trait TcpEvent {
    /// The result of `run`.
    type Reply;

    /// Runs the event at time `now`. Time never runs backwards between two events of one connection by more than the
    /// time a segment may wait in a queue.
    fn run<A: PcbAccess>(self, pcb: &mut A, out: &mut Outbox<'_>, now: Time) -> Self::Reply;

    /// Its weight where work is counted by segments: 1, or the number of parts of an arriving super-segment.
    #[inline]
    fn segments(&self) -> usize {
        1
    }

    /// The number of hold-sets in which its work is done, where the parts of a connection are held one after the other. An
    /// estimate for the usual path.
    #[inline]
    fn hold_sets(&self) -> usize {
        1
    }

    /// Data that the event sums first, because its checksum has not been checked
    /// ([`ChecksumPlacement::Inside`](crate::config::ChecksumPlacement::Inside)).
    #[inline]
    fn unchecked(&self) -> &[u8] {
        &[]
    }

    /// Data that the event sums if the check of its checksum cannot wait
    /// ([`ChecksumPlacement::After`](crate::config::ChecksumPlacement::After)), which
    /// [`Counter::ChecksumsInside`](observe::Counter::ChecksumsInside) then counts.
    #[inline]
    fn checked_late(&self) -> &[u8] {
        &[]
    }
}
