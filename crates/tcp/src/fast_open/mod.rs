//! TCP Fast Open (RFC 7413): data in the SYN, for a peer that shows a cookie which it got before.
//!
//! | file | content |
//! |---|---|
//! | `client.rs` | what an active open may put on its SYN, and what it learns; the events are in `event/fast_open.rs` |
//! | `destinations.rs` ([`Destinations`]) | what a client remembers of servers |
//! | `cookie.rs` ([`CookieKeys`]) | the cookies of a server |
//! | `pending.rs` ([`PendingRequests`]) | how many connections may be open early |
//!
//! Where destinations and pending requests are kept, and behind which lock, is the `stack`'s business. What may never
//! happen: payload of a SYN that reaches the user without a good cookie or a configuration that wants none, or twice.

mod client;
mod cookie;
mod destinations;
mod pending;

pub(crate) use client::Asked;
pub use client::{FastOpenFailure, News, Offer, Outcome};
pub use cookie::CookieKeys;
pub(crate) use cookie::Verdict;
pub use destinations::Destinations;
pub use pending::PendingRequests;
