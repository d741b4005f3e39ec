//! The other side of the link: many hosts behind one link address.

use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use stack::Architecture;
use sync::Real;
use testbed::frames::PEER;
use testbed::node::{Node, NodeConfig};
use wire::{ethernet, ipv4, tcp};

/// The port that listens.
pub const PORT: u16 = 80;

/// Held while a test measures buffers or processor time, which are per process.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stack with the peer as its default router, so that it can answer every address.
pub fn routed(arch: Architecture, change: impl FnOnce(&mut NodeConfig)) -> Node<Real> {
    let mut terms = NodeConfig { gateways: vec![PEER.into()], ring_frames: 4096, ..NodeConfig::new(arch) };
    change(&mut terms);
    Node::with_known_peer(terms)
}

/// The destination, header and data of `frame`, if it is a segment.
pub fn answer(frame: &[u8]) -> Option<((Ipv4Addr, u16), tcp::Header, &[u8])> {
    let (header, data) = testbed::frames::tcp_of(frame)?;
    let ip = ipv4::parse(frame.get(ethernet::HEADER_LEN..)?).ok()?;
    Some(((ip.dst, header.dst_port), header, data))
}

/// A generator of attackers' choices (SplitMix64; Steele, Lea, Flood 2014).
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A host that does not exist, and one of its ports.
    pub fn stranger(&mut self) -> (Ipv4Addr, u16) {
        let bits = self.next();
        let [a, b, c, d] = (bits as u32).to_be_bytes();
        (Ipv4Addr::new(20 + a % 80, b, c, d), 1024 | (bits >> 32) as u16)
    }
}
