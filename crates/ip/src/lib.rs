//! The Internet layer: IPv4 and IPv6 input and output, fragments, routes, neighbours and ICMP.
//!
//! Everything here is plain data with `&mut self` methods and a `now` argument. A packet is a
//! [`PktBuf`](pktbuf::PktBuf) on input and on output, and is copied only for fragmentation and reassembly. The `stack`
//! calls in, once per packet and once per deadline, and performs the returned effects; nothing here calls out.
//!
//! | file | owns |
//! |---|---|
//! | `interface.rs` | [`InterfaceView`]: addresses, groups, source selection |
//! | `datagram.rs` | [`Datagram`], [`Fragment`]: the results of input |
//! | `input.rs` | every check that a host makes on a packet (RFC 1122, RFC 8200), in order |
//! | `output.rs` | IP and link headers in front of a transport packet; fragmentation; identification (RFC 6864) |
//! | `reassembly.rs` | [`ReassemblyTable`]: fragments into packets; overlaps are discarded |
//! | `route.rs` | [`RouteTable`]: longest prefix match |
//! | `route_attributes.rs` | [`RouteAttributes`]: attributes of the path; [`Route`]: the text form of a route |
//! | `cidr.rs` | [`Cidr`]: an address with a prefix length |
//! | `neighbour.rs`, `neighbour/` | [`NeighbourTable`]: ARP and Neighbour Discovery in one state machine |
//! | `icmp.rs`, `icmp/` | echo, error messages and when not to send them, errors received |
//! | `autoconf.rs`, `autoconf/` | [`Autoconf`]: address detection and lifetimes, routers, group reports |
//! | `redirect.rs` | [`RedirectTable`]: better first hops from redirect messages |
//! | `path_mtu.rs`, `path_mtu/` | [`PathMtuTable`]: path MTUs that routers reported; [`KnownPath`]: what a path carries |
//!
//! **Counting drops.** A [`DropReason`](observe::DropReason) that a function *returns*, in any variant, is counted by
//! its caller; every other drop is counted where it happens, in the `counters` argument. Each dropped packet is counted
//! exactly once.
//!
//! **Sharing.** [`RouteAccess`], [`NeighbourAccess`], [`ReassemblyAccess`] and [`PathMtuAccess`] are the operations on the
//! four tables that the rules here and in the `stack` are written over. The plain tables implement them, for a user with
//! `&mut`; the `stack` implements them for tables that threads share, which the only thread of an architecture without locks
//! claims for itself (`stack/src/access`).
//!
//! What may never happen: a panic on bytes from the wire, work or memory that grows with untrusted input, an ICMP error
//! about an ICMP error.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(unreachable_pub))]

pub mod autoconf;
mod cidr;
mod datagram;
pub mod icmp;
pub mod igmp;
pub mod input;
pub mod interface;
mod link;
pub mod neighbour;
pub mod output;
pub mod path_mtu;
pub mod reassembly;
pub mod redirect;
pub mod route;
mod route_attributes;

pub use autoconf::{Autoconf, GroupQuery};
pub use cidr::{Cidr, ParseCidrError};
pub use datagram::{Datagram, Fragment};
pub use icmp::{ErrorKind, PerDestination, RateLimit, ReceivedIcmpError};
pub use input::{Input, Refused};
pub use interface::{Cast, InterfaceView};
pub use link::LinkHeader;
pub use neighbour::{NeighbourAccess, NeighbourEffects, NeighbourTable, Resolution};
pub use path_mtu::{KnownPath, PathMtuAccess, PathMtuTable};
pub use reassembly::{Reassembled, ReassemblyAccess, ReassemblyTable};
pub use redirect::{Redirect, RedirectTable};
pub use route::{NextHop, RouteAccess, RouteEntry, RouteTable};
pub use route_attributes::{ParseRouteError, Route, RouteAttributes, RouteName};

#[cfg(test)]
mod testing;
