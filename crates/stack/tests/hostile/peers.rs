//! The other side of the link: many hosts behind one link address, whose segments are made by hand.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stack::Plan;
use sync::Real;
use testbed::frames::{PEER, PEER_MAC, STACK, STACK_MAC};
use testbed::node::{Node, Terms};
use wire::ethernet::{self, EtherType};
use wire::tcp::{Options, TcpFlags};
use wire::{SeqNumber, checksum, ipv4, protocol, tcp};

/// The port that listens.
pub const PORT: u16 = 80;
/// Every client's initial sequence number.
pub const ISS: u32 = 0x1234_5678;

const L4: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;

/// Held while a test counts buffers or processor time, which are the process's.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stack whose default router is the peer, so that every address is one it can answer.
pub fn routed(plan: Plan, change: impl FnOnce(&mut Terms)) -> Node<Real> {
    let mut terms = Terms { gateways: vec![PEER.into()], ring_frames: 4096, ..Terms::new(plan) };
    change(&mut terms);
    Node::introduced(terms)
}

/// A segment of some host's to [`PORT`] of the stack.
#[derive(Clone, Copy, Debug)]
pub struct Wire<'a> {
    pub from: (Ipv4Addr, u16),
    pub flags: TcpFlags,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub options: Options,
    pub text: &'a [u8],
}

impl<'a> Wire<'a> {
    pub fn syn(from: (Ipv4Addr, u16)) -> Wire<'a> {
        Wire { from, flags: TcpFlags::SYN, seq: ISS, ack: 0, window: 0xffff, options: Options::NONE, text: &[] }
    }

    /// A segment of a connection, `at` octets behind the first.
    pub fn text(from: (Ipv4Addr, u16), at: u32, ack: u32, text: &'a [u8]) -> Wire<'a> {
        let seq = ISS.wrapping_add(1).wrapping_add(at);
        Wire { flags: TcpFlags::ACK, seq, ack, text, ..Wire::syn(from) }
    }

    /// The same with this window.
    pub fn window(self, window: u16) -> Wire<'a> {
        Wire { window, ..self }
    }

    /// The same with these options.
    pub fn options(self, options: Options) -> Wire<'a> {
        Wire { options, ..self }
    }

    /// The same with these bits, too.
    pub fn and(self, flags: TcpFlags) -> Wire<'a> {
        Wire { flags: self.flags | flags, ..self }
    }

    pub fn frame(&self) -> Vec<u8> {
        let header = tcp::Header {
            src_port: self.from.1,
            dst_port: PORT,
            seq: SeqNumber(self.seq),
            ack: SeqNumber(self.ack),
            flags: self.flags,
            window: self.window,
            urgent: 0,
            header_len: 20,
            options: self.options,
        };
        let mut transport = vec![0; header.emitted_len()];
        header.emit(&mut transport);
        transport.extend_from_slice(self.text);
        let (src, dst) = (IpAddr::V4(self.from.0), IpAddr::V4(STACK));
        let pseudo = checksum::pseudo_header(src, dst, protocol::TCP, transport.len() as u32);
        let sum = pseudo.add(checksum::sum(&transport)).finish();
        transport[tcp::CHECKSUM_OFFSET..tcp::CHECKSUM_OFFSET + 2].copy_from_slice(&sum.to_be_bytes());
        packet(self.from.0, &transport)
    }
}

fn packet(src: Ipv4Addr, transport: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; L4];
    let link = ethernet::Header { dst: STACK_MAC, src: PEER_MAC, ethertype: EtherType::Ipv4 };
    link.emit((&mut frame[..ethernet::HEADER_LEN]).try_into().expect("a frame begins with its link header"));
    let header = ipv4::Header {
        src,
        dst: STACK,
        protocol: protocol::TCP,
        ttl: 64,
        tos: 0,
        ident: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        header_len: ipv4::HEADER_LEN as u8,
        total_len: (ipv4::HEADER_LEN + transport.len()) as u16,
    };
    header.emit((&mut frame[ethernet::HEADER_LEN..]).try_into().expect("the frame was made this long"));
    frame.extend_from_slice(transport);
    frame
}

/// To whom the stack sent `frame`, if it is a segment; its header and its text.
pub fn answer(frame: &[u8]) -> Option<((Ipv4Addr, u16), tcp::Header, &[u8])> {
    let (header, text) = testbed::frames::tcp_of(frame)?;
    let ip = ipv4::parse(frame.get(ethernet::HEADER_LEN..)?).ok()?;
    Some(((ip.dst, header.dst_port), header, text))
}

/// A generator for what attackers draw (SplitMix64; Steele, Lea, Flood 2014).
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A host that exists nowhere, and one of its ports.
    pub fn stranger(&mut self) -> (Ipv4Addr, u16) {
        let bits = self.next();
        let [a, b, c, d] = (bits as u32).to_be_bytes();
        (Ipv4Addr::new(20 + a % 80, b, c, d), 1024 | (bits >> 32) as u16)
    }
}
