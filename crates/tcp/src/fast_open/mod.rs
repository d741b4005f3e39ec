//! TCP Fast Open (RFC 7413): text in the SYN, for a peer that shows a cookie which it got before.
//!
//! What is TCP's of it: a passive open that takes the text of its SYN and may send before the handshake is complete
//! ([`accept`]), and an active open whose SYN carries text, and which falls back ([`crate::Pcb::open_fast`]). Who gets which
//! cookie, how many connections may be open early, and what is remembered of destinations is the `stack`'s business; it
//! hears of it by [`News`]. What may never happen: text of a SYN that reaches the user before the handshake is complete
//! without the `stack` having said that it may, or twice.

mod client;
mod server;

pub(crate) use client::{Asked, answered, failure, sent_again, settle_text, silent, too_large, user_waits};
pub use client::{FastOpenFailure, News, Offer, Outcome, Start, TakeNews};
pub use server::accept;
pub(crate) use server::{complete, covers};
