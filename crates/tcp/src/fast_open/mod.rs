//! TCP Fast Open (RFC 7413): data in the SYN, for a peer that presents a cookie obtained before.
//!
//! | file | content |
//! |---|---|
//! | `client.rs` | the parts of an active open's SYN, and the information from its answer; the events are in `event/fast_open.rs` |
//! | `destinations.rs` ([`Destinations`]) | a client's cache of servers |
//! | `cookie.rs` ([`CookieKeys`]) | the cookies of a server |
//! | `pending.rs` ([`PendingRequests`]) | how many connections may be open early |
//!
//! The `stack` decides where destinations and pending requests are kept, and under which lock. What may never happen:
//! payload of a SYN that reaches the user twice, or without a valid cookie or a configuration that requires none.

mod client;
mod cookie;
mod destinations;
mod pending;

pub(crate) use client::SentOffer;
pub use client::{DestinationUpdate, FastOpenFailure, Offer, OfferOutcome};
pub(crate) use cookie::CookieDecision;
pub use cookie::CookieKeys;
pub use destinations::Destinations;
pub use pending::PendingRequests;
