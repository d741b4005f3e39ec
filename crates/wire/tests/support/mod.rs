//! Generators of valid headers and addresses for the property tests.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::array::uniform6;
use proptest::prelude::*;
use wire::ethernet::MacAddr;
use wire::tcp::{Header, Options, SackBlocks, TcpFlags, Timestamps};
use wire::{SeqNumber, ipv4, ipv6};

pub fn mac() -> impl Strategy<Value = MacAddr> {
    uniform6(any::<u8>()).prop_map(MacAddr)
}

/// Whole headers of 20 bytes in front of `payload` bytes; any flags, any offset.
pub fn ipv4_header(payload: u16) -> impl Strategy<Value = ipv4::Header> {
    let fields = (any::<Ipv4Addr>(), any::<Ipv4Addr>(), any::<[u8; 3]>(), any::<u16>(), any::<[bool; 2]>(), 0..8192u16);
    fields.prop_map(move |(src, dst, [protocol, ttl, tos], ident, [dont_fragment, more_fragments], offset)| {
        ipv4::Header {
            src,
            dst,
            protocol,
            ttl,
            tos,
            ident,
            dont_fragment,
            more_fragments,
            fragment_offset: offset * 8,
            header_len: 20,
            total_len: 20 + payload,
        }
    })
}

pub fn ipv6_header(payload_len: u16) -> impl Strategy<Value = ipv6::Header> {
    let fields = (any::<Ipv6Addr>(), any::<Ipv6Addr>(), any::<[u8; 3]>(), 0..1u32 << 20);
    fields.prop_map(move |(src, dst, [next_header, hop_limit, traffic_class], flow_label)| ipv6::Header {
        src,
        dst,
        next_header,
        hop_limit,
        traffic_class,
        flow_label,
        payload_len,
    })
}

fn options() -> impl Strategy<Value = Options> {
    let timestamps = (any::<u32>(), any::<u32>()).prop_map(|(value, echo)| Timestamps { value, echo });
    let sack = prop::collection::vec((any::<u32>(), any::<u32>()), 0..=4);
    let fields =
        (prop::option::of(1..=u16::MAX), prop::option::of(0..=14u8), any::<bool>(), prop::option::of(timestamps), sack);
    fields.prop_map(|(mss, window_scale, sack_permitted, timestamps, sack)| {
        let sack: SackBlocks = sack.into_iter().map(|(l, r)| (SeqNumber(l), SeqNumber(r))).collect();
        Options { mss, window_scale, sack_permitted, timestamps, sack }
    })
}

/// Headers with options that all fit, with their emitted length.
pub fn tcp_header() -> impl Strategy<Value = Header> {
    let fields = (any::<[u16; 4]>(), any::<[u32; 2]>(), 0..512u16, options());
    fields.prop_map(|([src_port, dst_port, window, urgent], [seq, ack], flags, options)| {
        let mut header = Header {
            src_port,
            dst_port,
            seq: SeqNumber(seq),
            ack: SeqNumber(ack),
            flags: TcpFlags(flags),
            window,
            urgent,
            header_len: 20,
            options: Options { sack: SackBlocks::EMPTY, ..options },
        };
        let room = (60 - header.emitted_len()).saturating_sub(4) / 8;
        header.options.sack = options.sack.iter().take(room).collect();
        header.header_len = header.emitted_len() as u8;
        header
    })
}
