//! UDP (RFC 768, RFC 1122 section 4.1): datagrams, the protocol control block (PCB) and its events.
//!
//! Called by the `stack`, which finds the PCB, provides exclusive use of it and performs the [`UdpOutbox`]. As in TCP an
//! event is a value: it can be run here, run on another thread, queued or replayed.
//!
//! | file | owns |
//! |---|---|
//! | `input.rs` | [`parse`]: a packet from IP into a [`ReceivedDatagram`]; lengths and checksum |
//! | `output.rs` | [`emit`]: a UDP header in front of a payload; checksum |
//! | `pcb.rs` | [`UdpPcb`]: local and remote end, receive queue bounded in memory |
//! | `event.rs` | [`DatagramArrives`], [`SendTo`], [`ReceiveFrom`], [`UdpConnect`], [`Disconnect`], [`UdpIcmpError`], [`UdpClose`], [`JoinGroup`], [`LeaveGroup`], [`UdpTakeError`] |
//! | `outbox.rs` | [`UdpOutbox`], [`OutgoingDatagram`], [`UdpReadiness`] |
//! | `error.rs` | [`SendError`], [`ReceiveError`], [`JoinError`] |
//!
//! What may never happen: delivery of a datagram with a wrong length or checksum, a queue that holds more memory than
//! its limit, an error of one destination reported to a socket that is not connected to it.
#![forbid(unsafe_code)]

mod error;
mod event;
mod input;
mod outbox;
mod output;
mod pcb;

pub use error::{JoinError, ReceiveError, SendError};
pub use event::{
    DatagramArrives, Disconnect, JoinGroup, LeaveGroup, ReceiveFrom, SendTo, UdpClose, UdpConnect, UdpEvent,
    UdpIcmpError, UdpTakeError,
};
pub use input::{ReceivedDatagram, parse};
pub use outbox::{OutgoingDatagram, UdpOutbox, UdpReadiness};
pub use output::{Checksumming, emit, max_payload};
pub use pcb::{
    DEFAULT_RECEIVE_LIMIT, GroupEgress, LEAST_RECEIVE_LIMIT, MAX_MEMBERSHIPS, Membership, OthersGroups, UdpPcb,
};

#[cfg(test)]
mod tests;
