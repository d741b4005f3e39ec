//! The frames that tests send: Ethernet, 802.1Q, ARP, IPv4 and IPv6 with their options, extension headers and
//! fragments, ICMP, UDP and TCP.
//!
//! A frame is built from plain values: a [`Segment`], a [`Datagram`], an [`Icmp`] message or bytes are the [`Payload`]
//! of a [`Packet`], and a packet or an ARP packet is the [`Body`] of a [`Frame`]. Lengths, protocol numbers and
//! checksums are right by default; a test can set each of them to any value, right or not.
//!
//! ```
//! use frames::{Checksum, Ends, Segment};
//!
//! // From the peer to the stack, over IPv4 and IPv6.
//! let syn = Segment::syn(2000, 80);
//! assert_eq!(syn.frame().len(), 14 + 20 + 20);
//! assert_eq!(syn.frame_over(Ends::PEER_TO_STACK_V6).len(), 14 + 40 + 20);
//! // With a checksum that is wrong, and a total length that is too large.
//! let bad = Segment { checksum: Checksum::OffBy(1), ..syn };
//! let mut packet = Ends::PEER_TO_STACK.packet(bad);
//! packet.len = Some(4000);
//! let frame = Ends::PEER_TO_STACK.frame(packet).bytes();
//! assert_eq!(frame[16..18], 4000u16.to_be_bytes());
//! ```
//!
//! **Users.** The tests, benches and fuzz targets of every crate from `wire` up; so it is beside `wire` and imports
//! nothing else. The product does not use it: `dev::peer` writes its segments into packet buffers without a copy, which
//! its benchmarks measure, and `drill` reads its packets from scripts.
//!
//! **What may never happen.** Headers and checksums taken from `wire`: they are written here independently, byte by
//! byte, because the tests check the emitters of `wire` with them.
#![forbid(unsafe_code)]

mod checksum;
mod ends;
mod link;
mod packet;
mod transport;

pub use checksum::{Checksum, pseudo_header, repair, sum};
pub use ends::{Ends, ISS, PEER, PEER_MAC, PEER6, STACK, STACK_MAC, STACK6};
pub use link::{Body, Frame, arp};
pub use packet::{Extension, Fragment, Packet, neighbour_discovery};
pub use transport::{Datagram, Icmp, Payload, Segment, TcpOptions};
