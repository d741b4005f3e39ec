//! TCP (RFC 9293) as values: a connection is a PCB of six parts, everything that can happen to it is an event, and all
//! effects are returned in an outbox.
//!
//! Nothing in this crate locks, waits, reads a clock, draws a random number or calls up or down. The caller of an event
//! has exclusive use of the parts that [`PcbAccess`] hands out, passes `now`, and performs the effects in the
//! [`Outbox`] afterwards. So one protocol runs under every process architecture of the `stack` crate.
//!
//! # Map
//!
//! | file | RFC 9293 | content |
//! |---|---|---|
//! | [`access`] | | the hold-sets that TCP requires |
//! | [`pcb`] | 3.3.1 | the six parts of a connection |
//! | [`state`] | 3.3.2 | states, and the transition table as data |
//! | [`event`] | 3.10 | open, send, receive, close, abort, status, segment arrives, time-outs |
//! | `lane` | 3.10 | the fast lane: the steps of nearly every segment, in a straight line |
//! | `output` | 3.7, 3.8 | the only place, beside the lane, that makes segments of a connection |
//! | [`handshake`] | 3.10.7.2, 3.10.7.4 | a listener's answers to SYNs, and its state: SYN cache, SYN cookies |
//! | [`fast_open`] | | payload in the SYN (RFC 7413) |
//! | [`closed`] | 3.10.7.1 | the answer to a segment that belongs to no connection |
//! | [`config`], [`profile`], [`knobs`] | | parameters: by field, as whole sets, by Linux's names |
//! | [`mss`] | 3.7.1 | sizes of segments: the capacity of a packet, the announced MSS |
//! | [`rtt`], [`sack`], `rack`, `undo` | | RFC 6298, RFC 2018/2883, RFC 8985, RFC 3522/4015 |
//! | `user_timeout` | | user time-outs, and the option that advertises them (RFC 5482) |
//! | [`congestion`] | | RFC 5681/9438, RFC 9937, RFC 9406 |
//!
//! # Vocabulary
//!
//! | RFC | here | meaning |
//! |---|---|---|
//! | SND.UNA | `SendWindow::una` | oldest byte not yet acknowledged |
//! | SND.NXT | `SendWindow::nxt` | next byte to send for the first time; never moves back |
//! | SND.WND | `SendWindow::wnd` | the peer's window in bytes, scaled |
//! | RCV.NXT | `ReceiveWindow::nxt` | next byte expected |
//! | RCV.NXT + RCV.WND | `ReceiveWindow::edge` | right edge of the window, as the peer may know it |
//! | TS.Recent | `ReceiveWindow::ts_recent` | the timestamp to echo (RFC 7323) |
//! | Last.ACK.sent | `ReceiveWindow::last_ack_sent` | RCV.NXT of the last acknowledgement known to be sent |
//! | RecoveryPoint | `Loss::recover` | SND.NXT when loss recovery began (RFC 6675) |
//! | HighRxt | `Loss::high_rxt` | end of the highest byte retransmitted in this recovery (RFC 6675) |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(unreachable_pub))]

pub mod access;
pub mod closed;
pub mod config;
pub mod congestion;
pub mod ecn;
mod ecn_state;
pub mod error;
pub mod event;
pub mod fast_open;
pub mod handshake;
pub mod info;
mod isn;
pub mod knobs;
mod lane;
pub mod mss;
pub mod outbox;
mod output;
pub mod pcb;
pub mod profile;
mod rack;
pub mod rtt;
pub mod sack;
mod scarcity;
pub mod segment;
pub mod state;
mod tick;
mod undo;
mod user_timeout;
mod window_rule;

pub use access::{PcbAccess, PcbMut};
pub use config::{Config, ConnectionOptions, ListenParams, OpenParams};
pub use error::Error;
pub use event::{
    Abort, BytesSent, Chunks, Close, DamagedData, Disposition, ExpectAnswers, HandedOn, IcmpError, IcmpKind, LinkDown,
    Open, OptionValues, PassedData, PathMtu, Peek, Peeked, PieceAlone, Predicted, Receive, ReceiveInOrder, ReceiveInto,
    ReceivePiece, ReceiveReady, ReceiveRemainder, Received, ReceivedInOrder, Reclaim, RecoveryState, ReportUnread,
    RouteChanged, RunArrives, SegmentArrives, Send, SendBytes, SendChunk, SendContext, SendMore, SendPromised,
    SendRecord, SendRoom, SendUrgent, Sent, SentAlone, SetOption, Shutdown, SocketOption, Start, Status, StatusReport,
    TakeDestinationUpdate, TakeError, TcpEvent, Timeouts, Traffic, TransmitReady, UnpredictedArrives,
};
pub use handshake::{HalfOpen, Progress, listen, syn_cookie};
pub use info::TcpInfo;
pub use isn::{Isn, IsnKey};
pub use outbox::{LocalEffects, Outbox, PathUpdate, Readiness, TableChange};
pub use pcb::Pcb;
pub use pcb::Rate;
pub use pcb::TimeWait;
pub use pcb::shaping::Limited;
pub use profile::Profile;
pub use scarcity::{LimitClass, Pressure, Scarcity};
pub use segment::{Checked, Segment, Verify};
pub use state::State;
