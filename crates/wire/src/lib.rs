//! Wire formats as views and values: Ethernet, FDDI, ARP, IPv4, IPv6, ICMP, UDP and TCP, with their checksums and the RSS
//! hash.
//!
//! **Contents.** Every byte offset of the stack. A *view* is a `zerocopy` structure over received bytes and never
//! leaves its module; a *value* (`Header`, `Packet`, `Message`) is a plain `Copy` structure in host byte order, for the
//! other crates. `parse` turns bytes into a value and is the only place where lengths, versions and option lengths are
//! checked; `emit` turns a valid value into bytes.
//!
//! **Callers.** `pktbuf` (the checksum kernel), `ip`, `tcp` and `udp` (headers), `dev` (RSS), `stack` (four-tuples).
//!
//! **What may never happen.** A panic, an allocation or an unbounded loop on any received bytes. There are no locks,
//! threads or clocks here. Work per header is bounded: at most 40 bytes of TCP options, 8 IPv6 extension headers in 256
//! bytes, and neighbour-discovery options of one packet.
//!
//! | module | formats | source |
//! |---|---|---|
//! | [`ethernet`] | Ethernet II with one 802.1Q tag | IEEE 802.3, 802.1Q |
//! | [`fddi`] | FDDI with LLC and SNAP headers | ISO 9314-2, IEEE 802.2, RFC 1390, 2467 |
//! | [`Headers`] | offsets of a frame's headers | |
//! | [`arp`] | ARP for IPv4 over Ethernet and FDDI | RFC 826 |
//! | [`ipv4`] | header and its checksum | RFC 791 |
//! | [`ipv6`] | header, extension chain, fragment header | RFC 8200 |
//! | [`icmpv4`] | echo and errors | RFC 792, 1191 |
//! | [`icmpv6`] | echo, errors, neighbour discovery | RFC 4443, 4861 |
//! | [`igmp`] | group membership, all versions | RFC 1112, 2236, 3376 |
//! | [`mld`] | multicast listener discovery | RFC 2710, 3810 |
//! | [`udp`] | header | RFC 768 |
//! | [`tcp`] | header and options | RFC 9293, 7323, 2018 |
//! | [`stp`] | BPDUs of STP and RSTP, in LLC frames | IEEE 802.1D-2004 clause 9 |
//! | [`checksum`] | one's-complement sums | RFC 1071, 1624 |
//! | [`rss`] | Toeplitz hash | Microsoft RSS specification |
//! | [`FlowMark`] | that hash with the flow's ports | |
//! | [`siphash`] | keyed hash of a four-tuple | Aumasson, Bernstein 2012 |

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod arp;
pub mod checksum;
mod error;
pub mod ethernet;
pub mod fddi;
mod flow_mark;
mod headers;
pub mod icmpv4;
pub mod icmpv6;
pub mod igmp;
pub mod ipv4;
pub mod ipv6;
pub mod mld;
pub mod protocol;
pub mod rss;
mod seq;
pub mod siphash;
pub mod stp;
pub mod tcp;
mod tuple;
pub mod udp;

pub use error::ParseError;
pub use flow_mark::FlowMark;
pub use headers::{Framing, Headers};
pub use seq::SeqNumber;
pub use tuple::FourTuple;
