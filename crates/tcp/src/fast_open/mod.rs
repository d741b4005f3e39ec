//! TCP Fast Open (RFC 7413): text in the SYN, for a peer that shows a cookie which it got before.
//!
//! | file | content |
//! |---|---|
//! | `client.rs` | an active open whose SYN carries payload, and which falls back ([`crate::Pcb::open_fast`]) |
//! | `destinations.rs` ([`Destinations`]) | what a client remembers of servers |
//! | `server.rs` | a passive open that takes the payload of its SYN ([`crate::handshake::accept`] makes it) |
//! | `cookie.rs` ([`CookieKeys`]) | the cookies of a server |
//! | `pending.rs` ([`PendingRequests`]) | how many connections may be open early |
//!
//! Where destinations and pending requests are kept, and behind which lock, is the `stack`'s business. What may never happen:
//! payload of a SYN that reaches the user without a good cookie or a configuration that wants none, or twice.

mod client;
mod cookie;
mod destinations;
mod pending;
mod server;

pub(crate) use client::{Asked, answered, failure, sent_again, settle_text, silent, too_large, user_waits};
pub use client::{FastOpenFailure, News, Offer, Outcome, Start, TakeNews};
pub use cookie::CookieKeys;
pub(crate) use cookie::Verdict;
pub use destinations::Destinations;
pub use pending::PendingRequests;
pub(crate) use server::{complete, covers};
