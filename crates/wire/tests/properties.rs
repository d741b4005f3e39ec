//! Properties for every input: parsing undoes emitting, no bytes make a parser panic, and the fast sums and hashes
//! agree with their definitions.

mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use wire::ethernet::{self, EtherType, VlanTag};
use wire::icmpv6::{Message, PrefixInfo, Prefixes, RouterAdvert};
use wire::rss::{SYMMETRIC_KEY, Toeplitz};
use wire::tcp::{Cookie, EcnCounters, ExtraOptions, FastOpen, OptionOrder, Options, UserTimeout};
use wire::{FourTuple, SeqNumber, arp, checksum, icmpv4, icmpv6, ipv4, ipv6, protocol, tcp, udp};

/// RFC 1071's definition: 16-bit big-endian words, the last padded with zero, end-around carry after every addition.
fn naive_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The definition of the hash: the key slides along the input one bit at a time.
fn naive_toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let key_bit = |i: usize| u32::from(key[i / 8] >> (7 - i % 8) & 1);
    let mut hash = 0;
    for i in 0..input.len() * 8 {
        if input[i / 8] >> (7 - i % 8) & 1 != 0 {
            hash ^= (0..32).fold(0, |window, j| window << 1 | key_bit(i + j));
        }
    }
    hash
}

fn image(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    }
}

fn tuple() -> impl Strategy<Value = FourTuple> {
    let addrs = prop_oneof![
        any::<(Ipv4Addr, Ipv4Addr)>().prop_map(|(a, b)| (IpAddr::V4(a), IpAddr::V4(b))),
        any::<(Ipv6Addr, Ipv6Addr)>().prop_map(|(a, b)| (IpAddr::V6(a), IpAddr::V6(b))),
    ];
    (addrs, any::<u16>(), any::<u16>()).prop_map(|((local_addr, remote_addr), local_port, remote_port)| FourTuple {
        local_addr,
        remote_addr,
        local_port,
        remote_port,
    })
}

/// A network card's input to the hash.
fn hash_input(tuple: &FourTuple) -> Vec<u8> {
    let mut input = image(tuple.remote_addr);
    input.extend(image(tuple.local_addr));
    input.extend(tuple.remote_port.to_be_bytes());
    input.extend(tuple.local_port.to_be_bytes());
    input
}

/// Every length across several blocks of the kernel, at every alignment.
#[test]
fn sum_is_the_definition_at_every_length_and_alignment() {
    let mut state = 1u32;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(340)
    .collect();
    for start in 0..8 {
        for len in 0..=bytes.len() - start {
            let run = &bytes[start..start + len];
            assert_eq!(checksum::sum(run).fold(), naive_sum(run), "{start} {len}");
        }
    }
}

fn extra_options() -> impl Strategy<Value = ExtraOptions> {
    let cookie = prop_oneof![Just(0..0usize), (2..=8usize).prop_map(|half| 0..2 * half)];
    let fast_open = (cookie, any::<[u8; 16]>(), any::<bool>()).prop_map(|(range, bytes, experimental)| FastOpen {
        cookie: Cookie::new(&bytes[range]).unwrap(),
        experimental,
    });
    let ecn = (any::<[u32; 3]>(), 0..=3u8, any::<bool>())
        .prop_map(|([ect0, ce, ect1], len, first)| EcnCounters::new(ect0, ce, ect1, len, first));
    let times = prop_oneof![1..=32_767u64, (547..=32_767u64).prop_map(|minutes| 60 * minutes)];
    let user_timeout = times.prop_map(|seconds| UserTimeout::new(Duration::from_secs(seconds)).unwrap());
    (prop::option::of(fast_open), prop::option::of(ecn), prop::option::of(user_timeout))
        .prop_map(|(fast_open, ecn, user_timeout)| ExtraOptions { fast_open, ecn, user_timeout })
}

proptest! {
    #[test]
    fn sum_is_the_definition(bytes in vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 0..5000)) {
        prop_assert_eq!(checksum::sum(&bytes).fold(), naive_sum(&bytes));
    }

    #[test]
    fn sums_join_at_any_place(bytes in vec(any::<u8>(), 0..300), cuts in vec(0..300usize, 0..4)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut total = checksum::Sum::zero();
        for pair in cuts.windows(2) {
            total = total.add_at(checksum::sum(&bytes[pair[0]..pair[1]]), pair[0]);
        }
        prop_assert_eq!(total.fold(), naive_sum(&bytes));
    }

    #[test]
    fn update_equals_a_new_sum(mut bytes in vec(any::<u8>(), 8..64), at in 0..64usize, new in any::<u16>()) {
        // All-zero data has no valid checksum to update.
        bytes[0] |= 1;
        let at = 2 + at % (bytes.len() - 6) / 2 * 2;
        let before = checksum::sum(&bytes).finish();
        let old = u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap());
        bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
        prop_assert_eq!(checksum::update_u16(before, old, new), checksum::sum(&bytes).finish());
    }

    #[test]
    fn pseudo_header_is_its_bytes(tuple in tuple(), protocol in any::<u8>(), len in any::<u32>()) {
        let mut bytes = image(tuple.remote_addr);
        bytes.extend(image(tuple.local_addr));
        bytes.extend(len.to_be_bytes());
        bytes.extend([0, 0, 0, protocol]);
        let sum = checksum::pseudo_header(tuple.remote_addr, tuple.local_addr, protocol, len);
        prop_assert_eq!(sum.fold(), naive_sum(&bytes));
    }

    #[test]
    fn toeplitz_is_the_definition(tuple in tuple(), key in vec(any::<u8>(), 40), period in any::<[u8; 2]>()) {
        let general: [u8; 40] = key.try_into().unwrap();
        let periodic: [u8; 40] = std::array::from_fn(|i| period[i % 2]);
        for key in [general, periodic, SYMMETRIC_KEY] {
            let toeplitz = Toeplitz::new(&key);
            let input = hash_input(&tuple);
            prop_assert_eq!(toeplitz.hash_tcp(&tuple), naive_toeplitz(&key, &input));
            let addresses = &input[..input.len() - 4];
            prop_assert_eq!(toeplitz.hash_ip(tuple.remote_addr, tuple.local_addr), naive_toeplitz(&key, addresses));
        }
    }

    #[test]
    fn sequence_numbers_are_translation_invariant(a in any::<u32>(), d in -0x7fff_ffff..=0x7fff_ffffi32) {
        let (a, b) = (SeqNumber(a), SeqNumber(a.wrapping_add(d as u32)));
        prop_assert_eq!(b - a, d);
        prop_assert_eq!(a.lt(b), d > 0);
        prop_assert_eq!(a.le(b), d >= 0);
        prop_assert_eq!(a.gt(b), d < 0);
        prop_assert_eq!(a.ge(b), d <= 0);
        prop_assert_eq!(a.max(b), if d > 0 { b } else { a });
    }
}

proptest! {
    #[test]
    fn ethernet_round_trip(dst in support::mac(), src in support::mac(), kind in any::<u16>(), tag in any::<u16>()) {
        prop_assume!(kind != 0x8100);
        let header = ethernet::Header { dst, src, ethertype: EtherType::from(kind) };
        prop_assert_eq!(u16::from(header.ethertype), kind);
        let mut plain = [0; 14];
        header.emit(&mut plain);
        prop_assert_eq!(ethernet::parse(&plain), Ok((header, 14)));
        let tag = VlanTag { priority: (tag >> 13) as u8, drop_eligible: tag & 0x1000 != 0, id: tag & 0xfff };
        let mut tagged = [0; 18];
        header.emit_tagged(tag, &mut tagged);
        prop_assert_eq!(ethernet::parse(&tagged), Ok((header, 18)));
        prop_assert_eq!(ethernet::vlan_tag(&tagged), Some(tag));
        prop_assert_eq!(dst.to_string().parse(), Ok(dst));
    }

    #[test]
    fn arp_round_trip(op in any::<u16>(), sha in support::mac(), tha in support::mac(), spa in any::<u32>(), tpa in any::<u32>()) {
        let packet = arp::Packet { op: op.into(), sha, spa: spa.into(), tha, tpa: tpa.into() };
        let mut out = [0; 28];
        packet.emit(&mut out);
        prop_assert_eq!(arp::parse(&out), Ok(packet));
    }

    #[test]
    fn ipv4_round_trip(header in support::ipv4_header(9)) {
        let mut out = [0; 29];
        header.emit(out.first_chunk_mut().unwrap());
        prop_assert_eq!(naive_sum(&out[..20]), 0xffff);
        prop_assert_eq!(ipv4::parse(&out), Ok(header));
    }

    #[test]
    fn ipv6_round_trip(header in support::ipv6_header(9), next in any::<u8>(), offset in 0..8192u16, more: bool, ident: u32) {
        let mut out = [0; 49];
        header.emit(out.first_chunk_mut().unwrap());
        prop_assert_eq!(ipv6::parse(&out), Ok(header));
        let fragment = ipv6::FragmentHeader { next_header: next, offset: offset * 8, more, ident };
        let mut out = [0; 8];
        fragment.emit(&mut out);
        prop_assert_eq!(ipv6::FragmentHeader::parse(&out), Ok(fragment));
    }

    #[test]
    fn udp_round_trip(src_port: u16, dst_port: u16, payload in 0..100u16, checksum: u16) {
        let header = udp::Header { src_port, dst_port, len: 8 + payload, checksum };
        let mut out = [0; 108];
        header.emit(out.first_chunk_mut().unwrap());
        prop_assert_eq!(udp::parse(&out), Ok(header));
    }

    #[test]
    fn tcp_round_trip(header in support::tcp_header()) {
        for order in [OptionOrder::Linux, OptionOrder::FreeBsd] {
            let mut out = [0; 60];
            prop_assert_eq!(header.emit_ordered(order, &mut out), header.emitted_len());
            prop_assert_eq!(tcp::parse(&out), Ok(header));
        }
    }

    /// Both ways of writing a header with its checksum give the same bytes.
    #[test]
    fn sealed_is_emitted_and_summed(header in support::tcp_header(), stamp in any::<[u32; 2]>(), text in any::<Vec<u8>>()) {
        let usual = Options { timestamps: Some(tcp::Timestamps { value: stamp[0], echo: stamp[1] }), ..Options::NONE };
        let syn = Options {
            mss: header.options.mss.or(Some(1460)),
            window_scale: header.options.window_scale.or(Some(7)),
            sack_permitted: true,
            ..usual
        };
        for header in [header, tcp::Header { options: usual, ..header }, tcp::Header { options: syn, ..header }] {
            let (mut plain, mut sealed) = ([0; 60], [0; 60]);
            let len = header.emit(&mut plain);
            let rest = checksum::sum(&text).add_u16(len as u16);
            let checksum = rest.add(checksum::sum(&plain[..len])).finish();
            plain[16..18].copy_from_slice(&checksum.to_be_bytes());
            prop_assert_eq!(header.emit_sealed(OptionOrder::Linux, rest, &mut sealed), len);
            prop_assert_eq!(plain, sealed);
        }
    }

    /// Both parsers find their own options among the other's, in any order.
    #[test]
    fn rare_options_round_trip(header in support::tcp_header(), extra in extra_options()) {
        for order in [OptionOrder::Linux, OptionOrder::FreeBsd] {
            let mut out = [0xee; 60];
            let len = header.emit_with(order, &extra, &mut out);
            if len == 0 {
                prop_assert!(header.emitted_len_with(&extra) > 60);
                continue;
            }
            prop_assert_eq!((len, len % 4), (header.emitted_len_with(&extra), 0));
            let read = tcp::parse(&out[..len]).unwrap();
            prop_assert_eq!(ExtraOptions::parse(&out[20..len]), extra);
            let kept = read.options.sack;
            prop_assert!(header.options.sack.iter().zip(kept.iter()).all(|(sent, read)| sent == read));
            let whole = wire::tcp::Header { header_len: len as u8, options: Options { sack: kept, ..header.options }, ..header };
            prop_assert_eq!(read, whole);
        }
    }

    #[test]
    fn rare_options_of_any_bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..40)) {
        let extra = ExtraOptions::parse(&bytes);
        if let Some(option) = extra.fast_open {
            let len = option.cookie.as_slice().len();
            prop_assert!(len == 0 || (4..=16).contains(&len) && len % 2 == 0);
        }
        let without = wire::tcp::Header { options: Options::NONE, ..tcp::parse(&[0x50; 84]).unwrap() };
        let mut out = [0; 60];
        let len = without.emit_with(OptionOrder::Linux, &extra, &mut out);
        prop_assert!(len == 0 || ExtraOptions::parse(&out[20..len]) == extra);
    }

    /// The fast path and the walk are equivalent: padding around the options changes nothing.
    #[test]
    fn option_padding_changes_nothing(header in support::tcp_header(), nops in 1..4usize) {
        let mut out = [0; 60];
        let len = header.emit(&mut out);
        let mut padded = vec![1; nops];
        padded.extend(&out[20..len]);
        prop_assert_eq!(Options::parse(&padded), header.options);
        padded.push(0);
        padded.extend([3, 3, 9]);
        prop_assert_eq!(Options::parse(&padded), header.options);
    }

    /// The usual SYN is read without the walk: with any of its bytes changed, as by the walk.
    #[test]
    fn the_options_of_a_syn_are_those_that_the_walk_finds(
        header in support::tcp_header(),
        (mss, shift, stamps) in (prop_oneof![1 => Just(0), 4 => any::<u16>()], any::<u8>(), any::<[u32; 2]>()),
        change in prop::option::of((0..20usize, any::<u8>())),
    ) {
        let timestamps = Some(tcp::Timestamps { value: stamps[0], echo: stamps[1] });
        let (mss, window_scale) = (Some(mss), Some(shift));
        let options = Options { mss, window_scale, sack_permitted: true, timestamps, ..Options::NONE };
        let mut out = [0; 40];
        prop_assert_eq!(tcp::Header { options, ..header }.emit(&mut out), 40);
        if let Some((at, byte)) = change {
            out[20 + at] = byte;
        }
        prop_assert_eq!(tcp::parse(&out).unwrap().options, Options::parse(&out[20..]));
    }

    #[test]
    fn icmpv4_round_trip(kind in 0..7u8, code in 0..16u8, rest: u32, body in vec(any::<u8>(), 0..64)) {
        let (ident, seq) = ((rest >> 16) as u16, rest as u16);
        let mtu = if code == icmpv4::unreachable::FRAGMENTATION_NEEDED { seq } else { 0 };
        let message = match kind {
            0 => icmpv4::Message::EchoRequest { ident, seq },
            1 => icmpv4::Message::EchoReply { ident, seq },
            2 => icmpv4::Message::Unreachable { code, mtu },
            3 => icmpv4::Message::Redirect { code, gateway: rest.into() },
            4 => icmpv4::Message::TimeExceeded { code },
            5 => icmpv4::Message::ParamProblem { code, pointer: rest as u8 },
            _ => icmpv4::Message::Other { kind: 13, code, rest },
        };
        let mut bytes = vec![0xee; 8];
        bytes.extend(&body);
        prop_assert_eq!(message.emit(&mut bytes), 8);
        prop_assert_eq!(naive_sum(&bytes), 0xffff);
        prop_assert_eq!(&bytes[8..], &body[..]);
        prop_assert_eq!(icmpv4::parse(&bytes), Ok(message));
    }

    #[test]
    fn icmpv6_round_trip(message in icmpv6_message(), global in any::<u64>(), body in vec(any::<u8>(), 0..64)) {
        let src = Ipv6Addr::from(0xfe80 << 112 | u128::from(global) | 1);
        let dst = Ipv6Addr::from(0x2001_0db8 << 96 | u128::from(global));
        let len = message.header_len();
        let mut bytes = vec![0xee; len];
        if !message.is_discovery() {
            bytes.extend(&body);
        }
        prop_assert_eq!(message.emit(src, dst, &mut bytes), len);
        prop_assert_eq!(icmpv6::parse(&bytes, src, dst), Ok(message));
        prop_assert_eq!(message.emit(src, dst, &mut vec![0; len - 1]), 0);
    }
}

fn icmpv6_message() -> impl Strategy<Value = Message> {
    let mac = || prop::option::of(support::mac());
    let unicast = || any::<u128>().prop_map(|bits| Ipv6Addr::from(bits >> 1));
    prop_oneof![
        any::<u8>().prop_map(|code| Message::Unreachable { code }),
        any::<u32>().prop_map(|mtu| Message::PacketTooBig { mtu }),
        any::<u8>().prop_map(|code| Message::TimeExceeded { code }),
        any::<(u8, u32)>().prop_map(|(code, pointer)| Message::ParamProblem { code, pointer }),
        any::<(u16, u16)>().prop_map(|(ident, seq)| Message::EchoRequest { ident, seq }),
        any::<(u16, u16)>().prop_map(|(ident, seq)| Message::EchoReply { ident, seq }),
        any::<(u8, u32)>().prop_map(|(code, rest)| Message::Other { kind: 143, code, rest }),
        mac().prop_map(|source| Message::RouterSolicit { source }),
        router_advert().prop_map(Message::RouterAdvert),
        (unicast(), mac()).prop_map(|(target, source)| Message::NeighbourSolicit { target, source }),
        (unicast(), mac(), any::<[bool; 3]>()).prop_map(|(target, target_mac, [router, solicited, override_flag])| {
            Message::NeighbourAdvert { target, target_mac, router, solicited, override_flag }
        }),
        (unicast(), mac()).prop_map(|(target, target_mac)| Message::Redirect {
            target,
            destination: target,
            target_mac
        }),
    ]
}

fn router_advert() -> impl Strategy<Value = RouterAdvert> {
    let prefix = (any::<Ipv6Addr>(), 0..=128u8, any::<[bool; 2]>(), any::<[u32; 2]>()).prop_map(
        |(prefix, prefix_len, [on_link, autonomous], [valid_lifetime, preferred_lifetime])| PrefixInfo {
            prefix,
            prefix_len,
            on_link,
            autonomous,
            valid_lifetime,
            preferred_lifetime,
        },
    );
    let prefixes = vec(prefix, 0..=icmpv6::MAX_PREFIXES);
    let fields = (
        any::<u8>(),
        any::<[bool; 2]>(),
        any::<u16>(),
        any::<[u32; 2]>(),
        prop::option::of(support::mac()),
        prop::option::of(any::<u32>()),
        prefixes,
    );
    fields.prop_map(|(hop_limit, [managed, other_config], router_lifetime, [reachable, retrans], source, mtu, list)| {
        let mut prefixes = Prefixes::EMPTY;
        for prefix in list {
            assert!(prefixes.push(prefix));
        }
        RouterAdvert {
            hop_limit,
            managed,
            other_config,
            router_lifetime,
            reachable_time: reachable,
            retrans_timer: retrans,
            source,
            mtu,
            prefixes,
        }
    })
}

/// Runs every parser, and checks the guarantees on the lengths that it returns.
fn read_all(bytes: &[u8], first: u8) {
    let (src, dst) = (Ipv6Addr::UNSPECIFIED, Ipv6Addr::LOCALHOST);
    if let Ok((_, offset)) = ethernet::parse(bytes) {
        assert!(offset <= bytes.len());
    }
    let _ = (ethernet::vlan_tag(bytes), arp::parse(bytes), icmpv4::parse(bytes), icmpv6::parse(bytes, src, dst));
    if let Ok(header) = ipv4::parse(bytes) {
        assert!(usize::from(header.header_len) + header.payload_len() <= bytes.len());
    }
    if let Ok(header) = ipv6::parse(bytes) {
        assert!(40 + usize::from(header.payload_len) <= bytes.len());
    }
    if let Ok(chain) = ipv6::walk(first, bytes) {
        assert!(chain.offset <= bytes.len().min(ipv6::MAX_CHAIN_LEN));
        assert!(usize::from(chain.next_header_pointer) < 40 + ipv6::MAX_CHAIN_LEN);
    }
    let _ = (ipv4::parse_unverified(bytes), ipv6::parse_unverified(bytes), ipv6::FragmentHeader::parse(bytes));
    if let Ok(header) = udp::parse(bytes) {
        assert!((8..=bytes.len()).contains(&usize::from(header.len)));
    }
    if let Ok(header) = tcp::parse(bytes) {
        assert!((20..=bytes.len().min(60)).contains(&usize::from(header.header_len)));
        assert!(header.emitted_len() <= 60);
    }
    let (_, _) = (tcp::parse_quoted(bytes), Options::parse(bytes));
}

/// Puts a correct ICMP checksum into `bytes`, so that the code after the check is reached.
fn with_checksum(mut bytes: Vec<u8>, src: Ipv6Addr, dst: Ipv6Addr, v6: bool) -> Vec<u8> {
    if let Some(field) = bytes.get_mut(2..4) {
        field.fill(0);
        let len = bytes.len() as u32;
        let pseudo = checksum::pseudo_header(src.into(), dst.into(), protocol::ICMPV6, len);
        let sum = checksum::sum(&bytes);
        let sum = if v6 { pseudo.add(sum) } else { sum };
        bytes[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_make_a_parser_panic(bytes in vec(any::<u8>(), 0..300), first in prop_oneof![Just(0u8), Just(43), Just(44), Just(60)]) {
        read_all(&bytes, first);
    }

    /// Almost valid headers reach more code than random bytes.
    #[test]
    fn no_damaged_header_makes_a_parser_panic(
        tcp in support::tcp_header(),
        v4 in support::ipv4_header(0),
        v6 in support::ipv6_header(0),
        damage in vec((0..60usize, any::<u8>()), 0..4),
        cut in 0..=60usize,
    ) {
        let mut segment = [0; 60];
        tcp.emit(&mut segment);
        let mut four = [0; 60];
        v4.emit(four.first_chunk_mut().unwrap());
        let mut six = [0; 60];
        v6.emit(six.first_chunk_mut().unwrap());
        for mut bytes in [segment, four, six] {
            for (at, value) in &damage {
                bytes[*at] = *value;
            }
            read_all(&bytes[..cut], v6.next_header);
        }
    }

    #[test]
    fn no_extension_chain_makes_the_walk_panic(
        headers in vec((prop_oneof![Just(0u8), Just(43), Just(44), Just(60), Just(6)], 0..4u8, vec(any::<u8>(), 30)), 0..10),
        cut in 0..400usize,
    ) {
        let mut bytes = Vec::new();
        for (next, len8, body) in &headers {
            bytes.extend([*next, *len8]);
            bytes.extend(&body[..6 + 8 * usize::from(*len8)]);
        }
        bytes.truncate(cut);
        read_all(&bytes, 60);
    }

    #[test]
    fn no_discovery_message_makes_a_parser_panic(mut bytes in vec(any::<u8>(), 0..200), kind in 133..138u8, small: bool) {
        if small {
            // Option lengths small enough that several options fit.
            for length in bytes.iter_mut().skip(9).step_by(8) {
                *length %= 5;
            }
        }
        if let [first, code, ..] = &mut bytes[..] {
            (*first, *code) = (kind, 0);
        }
        let (src, dst) = (Ipv6Addr::from(0xfe80 << 112 | 1), Ipv6Addr::LOCALHOST);
        let six = with_checksum(bytes.clone(), src, dst, true);
        if let Ok(message) = icmpv6::parse(&six, src, dst) {
            prop_assert!(message.header_len() <= bytes.len());
        }
        let four = with_checksum(bytes, src, dst, false);
        prop_assert!(four.len() < 8 || icmpv4::parse(&four).is_ok());
    }
}
