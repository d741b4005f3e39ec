//! The handling of connections, written once for every process architecture.
//!
//! These are provided methods over a [`Place`], which defines where the connection is kept and how
//! a thread gets access to it.
//!
//! | file | what happens |
//! |---|---|
//! | `place.rs` ([`Place`]) | the interface to the place: how a connection is found, used, inserted and removed |
//! | `datagram_access.rs` ([`DatagramAccess`]) | the part of it for datagram sockets |
//! | `arrivals.rs` ([`Arrivals`]) | a segment, a datagram or an ICMP error arrives: look-up order, half-open connections, cookies, adoption |
//! | `events.rs` ([`Events`]) | an event runs, and its effects on timers, tables and listeners; containment of a panic |
//! | `calls.rs` ([`Calls`]) | a user's call, active opens included |
//! | `handlers.rs` ([`HandledConnections`]) | connections with handlers: accepting one, and calls other than for TCP's events |
//! | `datagrams.rs` ([`Datagrams`]) | datagram sockets: a datagram or an ICMP error arrives, a user calls |
//! | `upkeep.rs` ([`Upkeep`]) | timers, changes that concern every connection, statistics |
//!
//! Called by architectures, for a place to which they have exclusive access. What may never happen: a wait, or a
//! wake-up; wake-ups are stored in [`DeferredEffects`](crate::deferred::DeferredEffects) until no guard is held.

mod arrivals;
mod calls;
mod datagram_access;
mod datagrams;
mod events;
mod handlers;
mod place;
mod upkeep;

pub use arrivals::Arrivals;
pub use calls::Calls;
pub use datagram_access::DatagramAccess;
pub use datagrams::Datagrams;
pub use events::Events;
pub(crate) use events::ResetOnPanic;
pub use handlers::HandledConnections;
pub use place::{Directory, DirectoryOf, Effects, NewConnection, Place, Site, UnawaitedEvent};
pub use upkeep::Upkeep;
