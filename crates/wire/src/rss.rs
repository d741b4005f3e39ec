//! The Toeplitz hash of receive-side scaling, as network cards compute it (Microsoft RSS specification, "RSS Hashing
//! Types").
//!
//! Every set bit of the input at position *i* contributes the 32 key bits that begin at bit *i*; the hash is their
//! exclusive or. So the hash is linear, one table of 256 words per input byte replaces eight steps by one load, and a
//! key that repeats every 16 bits needs only two tables: all 16-bit words of the input can be folded into one first.
//! Under such a key both directions of a flow have the same hash.

use alloc::boxed::Box;
use alloc::vec;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr};

use crate::FourTuple;

/// Bytes of a key.
pub const KEY_LEN: usize = 40;

/// Bytes of the longest input: two IPv6 addresses and two ports.
const MAX_INPUT: usize = 36;

/// The key of the specification's verification suite. Directions hash differently.
pub const MICROSOFT_KEY: [u8; KEY_LEN] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// A key that repeats every 16 bits, so that both directions of a flow hash alike (Woo and Park, "Scalable TCP Session
/// Monitoring with Symmetric Receive-side Scaling", 2012). The default.
pub const SYMMETRIC_KEY: [u8; KEY_LEN] = {
    let mut key = [0x6d; KEY_LEN];
    let mut i = 1;
    while i < KEY_LEN {
        #[allow(clippy::indexing_slicing, reason = "`i` is below the array's length")]
        {
            key[i] = 0x5a;
        }
        i += 2;
    }
    key
};

/// A keyed hash with its tables: 36 KiB for a general key, of which IPv4 touches 12, and 2 KiB for one that repeats
/// every 16 bits.
#[derive(Clone)]
pub struct Toeplitz {
    tables: Tables,
    key: [u8; KEY_LEN],
}

#[derive(Clone)]
enum Tables {
    PerByte(Box<[[u32; 256]]>),
    Folded(Box<[[u32; 256]; 2]>),
}

impl Default for Toeplitz {
    /// The hash under [`SYMMETRIC_KEY`].
    fn default() -> Self {
        Self::new(&SYMMETRIC_KEY)
    }
}

impl fmt::Debug for Toeplitz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toeplitz").field("symmetric", &self.is_symmetric()).finish_non_exhaustive()
    }
}

impl Toeplitz {
    /// Builds the tables for `key`. Allocates; call it once per interface.
    pub fn new(key: &[u8; KEY_LEN]) -> Self {
        let periodic = key.iter().zip(key.iter().skip(2)).all(|(a, b)| a == b);
        let tables = if periodic {
            Tables::Folded(Box::new([byte_table(key, 0), byte_table(key, 1)]))
        } else {
            let mut tables = vec![[0; 256]; MAX_INPUT].into_boxed_slice();
            for (position, table) in tables.iter_mut().enumerate() {
                *table = byte_table(key, position);
            }
            Tables::PerByte(tables)
        };
        Self { tables, key: *key }
    }

    /// The key it was made with, for a device that hashes on its own.
    pub const fn key(&self) -> &[u8; KEY_LEN] {
        &self.key
    }

    /// Whether both directions of every flow hash alike.
    pub const fn is_symmetric(&self) -> bool {
        matches!(self.tables, Tables::Folded(_))
    }

    /// The hash of a flow over addresses and ports, as a card computes it for a packet received on it: source first,
    /// and the source is the remote end. For TCP and UDP.
    #[inline]
    pub fn hash_tcp(&self, tuple: &FourTuple) -> u32 {
        let ports = u32::from(tuple.remote_port) << 16 | u32::from(tuple.local_port);
        match (tuple.remote_addr, tuple.local_addr) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.hash_v4(src.to_bits(), dst.to_bits(), Some(ports)),
            (IpAddr::V6(src), IpAddr::V6(dst)) => self.hash_v6(src, dst, Some(ports)),
            (src, dst) => self.hash_v6(mapped(src), mapped(dst), Some(ports)),
        }
    }

    /// The hash over addresses alone, as a card computes it for fragments and for protocols without ports.
    #[inline]
    pub fn hash_ip(&self, src: IpAddr, dst: IpAddr) -> u32 {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.hash_v4(src.to_bits(), dst.to_bits(), None),
            (src, dst) => self.hash_v6(mapped(src), mapped(dst), None),
        }
    }

    #[inline]
    fn hash_v4(&self, src: u32, dst: u32, ports: Option<u32>) -> u32 {
        match &self.tables {
            Tables::Folded(tables) => folded(tables, src ^ dst ^ ports.unwrap_or(0)),
            Tables::PerByte(tables) => {
                let hash = look_up(tables, 0, &src.to_be_bytes()) ^ look_up(tables, 4, &dst.to_be_bytes());
                match ports {
                    Some(ports) => hash ^ look_up(tables, 8, &ports.to_be_bytes()),
                    None => hash,
                }
            }
        }
    }

    #[inline]
    fn hash_v6(&self, src: Ipv6Addr, dst: Ipv6Addr, ports: Option<u32>) -> u32 {
        match &self.tables {
            Tables::Folded(tables) => {
                // Bytes of different words never meet, so their order in a word matters at the end only.
                let both = u128::from_ne_bytes(src.octets()) ^ u128::from_ne_bytes(dst.octets());
                let both = (both >> 64) as u64 ^ both as u64;
                folded(tables, u32::from_be((both >> 32) as u32 ^ both as u32) ^ ports.unwrap_or(0))
            }
            Tables::PerByte(tables) => {
                let hash = look_up(tables, 0, &src.octets()) ^ look_up(tables, 16, &dst.octets());
                match ports {
                    Some(ports) => hash ^ look_up(tables, 32, &ports.to_be_bytes()),
                    None => hash,
                }
            }
        }
    }
}

/// An IPv4 address paired with an IPv6 one is converted to its mapped form (RFC 4291 section 2.5.5.2).
fn mapped(addr: IpAddr) -> Ipv6Addr {
    match addr {
        IpAddr::V4(a) => a.to_ipv6_mapped(),
        IpAddr::V6(a) => a,
    }
}

/// The contribution of each value of the input byte at `position`.
fn byte_table(key: &[u8; KEY_LEN], position: usize) -> [u32; 256] {
    // The 40 key bits that begin at the byte: bit b of the byte (0 = most significant) contributes bits b to b+31.
    let mut window = 0u64;
    for &byte in key.iter().skip(position).take(5) {
        window = window << 8 | u64::from(byte);
    }
    core::array::from_fn(|value| {
        (0..8).filter(|bit| value & (0x80 >> bit) != 0).fold(0, |hash, bit| hash ^ (window >> (8 - bit)) as u32)
    })
}

#[inline]
fn folded(tables: &[[u32; 256]; 2], words: u32) -> u32 {
    let word = (words >> 16) as u16 ^ words as u16;
    let [high, low] = word.to_be_bytes();
    let [even, odd] = tables;
    entry(even, high) ^ entry(odd, low)
}

#[inline]
fn look_up(tables: &[[u32; 256]], position: usize, input: &[u8]) -> u32 {
    tables.iter().skip(position).zip(input).fold(0, |hash, (table, &byte)| hash ^ entry(table, byte))
}

#[inline]
fn entry(table: &[u32; 256], byte: u8) -> u32 {
    #[allow(clippy::indexing_slicing, reason = "a byte is below 256; the compiler drops the check")]
    table[usize::from(byte)]
}
