//! The handshake of a passive open, as values: a listener's answer to a SYN, and the state it keeps until the peer
//! acknowledges.
//!
//! | file | content |
//! |---|---|
//! | `listen.rs` ([`listen`]) | the checks of LISTEN (RFC 9293 section 3.10.7.2), and which segments concern a listener at all |
//! | `admission.rs` ([`admit`], [`Backlog`], [`SynResponse`]) | how a SYN is answered where queues fill up (RFC 4987) or a Fast Open cookie is shown (RFC 7413) |
//! | `half_open.rs` ([`HalfOpen`]) | one half-open connection (RFC 9293 section 3.10.7.4, SYN-RECEIVED) |
//! | `prototype.rs` ([`ChildPrototype`]) | what the PCBs of similar handshakes have in common |
//! | `syn_cache.rs` ([`SynCache`]) | half-open connections by tuple, and the timer of their SYN-ACKs |
//! | `syn_cookie.rs` ([`syn_cookie`]) | SYN cookies: no state is kept |
//! | `early.rs` | a connection that opens with its SYN (Fast Open) |
//! | `secrets.rs` ([`HandshakeSecrets`]) | the keys of both kinds of cookies |
//!
//! The steps for a SYN: the caller passes the listener's load to [`admit`], and its [`SynResponse`] to [`syn_arrives`],
//! which makes the half-open connection; the SYN-ACK is in the outbox. The caller decides where half-open connections
//! are kept, under which lock the places of a listener are counted, and which listener a segment is for.

mod admission;
mod early;
mod half_open;
pub mod listen;
mod prototype;
mod secrets;
mod syn_cache;
pub mod syn_cookie;

use observe::{DropReason, Time};

pub use admission::{Backlog, Occupancy, SynResponse, admit};
pub use early::accept;
pub use half_open::{HalfOpen, Progress};
pub use prototype::ChildPrototype;
pub use secrets::HandshakeSecrets;
pub use syn_cache::SynCache;

use crate::config::ListenParams;
use crate::isn::Isn;
use crate::outbox::Outbox;
use crate::pcb::Pcb;
use crate::segment::Segment;

/// The result of a SYN.
#[derive(Debug)]
#[must_use]
pub enum SynOutcome {
    /// A half-open connection, to be stored ([`SynCache::insert`]).
    HalfOpen(HalfOpen),
    /// A connection in `child`, which may enter the accept queue before its handshake is complete (Fast Open).
    Early,
    /// Nothing: a SYN cookie was sent.
    CookieSent,
}

/// Answers a SYN as [`admit`] has decided; the SYN-ACK is in `out`. `arrival` is consumed only if the connection opens
/// at once; the connection is left in `child` then.
///
/// # Errors
/// The reason for which the segment was dropped, counted already; a reset may be in `out`.
pub fn syn_arrives(
    answer: SynResponse,
    params: &ListenParams<'_>,
    arrival: &mut Option<Segment>,
    (isn, secrets): (Isn, &HandshakeSecrets),
    (child, out): (&mut Option<Pcb>, &mut Outbox<'_>),
    now: Time,
) -> Result<SynOutcome, DropReason> {
    let Some(syn) = arrival.as_ref() else { return Ok(SynOutcome::CookieSent) };
    match answer {
        SynResponse::HalfOpen { cookie } => {
            listen::syn_arrives(params, syn, isn, cookie, out, now).map(SynOutcome::HalfOpen)
        }
        SynResponse::SynCookie => {
            syn_cookie::answer(params, syn, isn, secrets, out, now).map(|()| SynOutcome::CookieSent)
        }
        SynResponse::Early { cookie } => match arrival.take() {
            Some(syn) => accept(params, syn, isn, cookie, (child, out), now).map(|()| SynOutcome::Early),
            None => Ok(SynOutcome::CookieSent),
        },
    }
}
