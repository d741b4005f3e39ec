use super::*;
use crate::input::Input;
use crate::output::Fragmentation;
use crate::testing::*;
use proptest::prelude::*;
use wire::protocol;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// The fragments of a UDP packet from the peer to us, as input returns them. The payload is not parsed as UDP here.
fn fragments(v6: bool, payload: &[u8], mtu: usize, ident: u32) -> Vec<Fragment> {
    let packet = if v6 { packet_v6(protocol::UDP, payload) } else { packet_v4(protocol::UDP, payload) };
    let pieces = output::fragment(packet, mtu, ident).unwrap();
    pieces.into_iter().map(|piece| taken(framed(piece))).collect()
}

fn taken(frame: PktBuf) -> Fragment {
    match received(frame) {
        Input::Fragment(fragment) => fragment,
        other => panic!("{other:?}"),
    }
}

/// One IPv4 fragment with `bytes` at `offset`.
fn piece(offset: u32, more: bool, bytes: &[u8]) -> Fragment {
    let mut datagram = udp_datagram(false, bytes);
    datagram.protocol = protocol::UDP;
    Fragment { datagram, ident: 9, offset, more }
}

fn whole(reassembled: Reassembled) -> Option<Datagram> {
    match reassembled {
        Reassembled::Whole(datagram) => Some(datagram),
        Reassembled::Pending => None,
        Reassembled::Refused(refused) => panic!("{refused:?}"),
    }
}

proptest! {
    #[test]
    fn cutting_and_putting_together_in_any_order_is_the_identity(
        len in 1300usize..20_000,
        mtu in 600usize..1290,
        v6: bool,
        order in any::<prop::sample::Index>(),
        swaps in proptest::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..20),
        repeat in any::<prop::sample::Index>(),
    ) {
        let (counters, payload) = (Counters::new(), pattern(len));
        let mut table = ReassemblyTable::new();
        let mut pieces = fragments(v6, &payload, mtu, 5);
        let count = pieces.len();
        for (a, b) in swaps {
            pieces.swap(a.index(count), b.index(count));
        }
        pieces.rotate_left(order.index(count));
        // One fragment arrives twice before the last.
        let twin = repeat.index(count - 1);
        let copy = duplicate(&pieces[twin]);
        pieces.insert(twin + 1, copy);
        let mut results: Vec<_> =
            pieces.into_iter().filter_map(|p| whole(table.insert(Time::ZERO, p, &counters))).collect();
        prop_assert_eq!(results.len(), 1);
        let datagram = results.remove(0);
        prop_assert_eq!(&*datagram.buf, &payload[..]);
        prop_assert_eq!(datagram.packet().len(), payload.len() + if v6 { 40 } else { 20 });
        prop_assert!(matches!(crate::input::reassembled(datagram), Input::Udp(_)));
        prop_assert!(table.is_empty());
        prop_assert_eq!((table.memory(), counters.snapshot().dropped_total()), (0, 0));
    }

    #[test]
    fn random_fragments_never_panic_and_stay_within_the_cap(
        pieces in proptest::collection::vec((0u32..40, any::<bool>(), 1usize..40, 0u32..3), 1..200),
    ) {
        let counters = Counters::new();
        let cap = 64 << 10;
        let mut table = ReassemblyTable::with_cap(cap);
        for (n, (offset, more, len, ident)) in pieces.into_iter().enumerate() {
            let mut fragment = piece(offset * 8, more, &pattern(len));
            fragment.ident = ident;
            let now = Time::from_secs(n as u64);
            table.insert(now, fragment, &counters);
            table.timeouts(now, &counters);
            prop_assert!(table.memory() <= cap);
        }
        table.timeouts(Time::MAX, &counters);
        prop_assert!(table.is_empty() && table.memory() == 0);
    }
}

fn duplicate(fragment: &Fragment) -> Fragment {
    let Datagram { src, dst, protocol, tos, ttl, cast, .. } = fragment.datagram;
    let buf = fragment.datagram.buf.duplicate().unwrap();
    Fragment { datagram: Datagram { buf, src, dst, protocol, tos, ttl, cast }, ..*fragment }
}

/// The policy, one row a case: the fragments held (offset, length), the one that arrives, and whether the packet
/// survives. The packet is 64 bytes long; survivors are completed to show it.
#[test]
fn overlap_policy() {
    let held = (16u32, 16usize);
    let table: [(&str, (u32, usize), bool); 9] = [
        ("adjacent before", (0, 16), true),
        ("adjacent after", (32, 16), true),
        ("exact duplicate", (16, 16), true),
        ("head overlap", (8, 16), false),
        ("tail overlap", (24, 16), false),
        ("inside, at the start", (16, 8), false),
        ("inside, at the end", (24, 8), false),
        ("around", (8, 32), false),
        ("same start, longer", (16, 24), false),
    ];
    let bytes = pattern(64);
    let cut = |(offset, len): (u32, usize)| piece(offset, true, &bytes[offset as usize..offset as usize + len]);
    for (name, arrives, survives) in table {
        let (counters, mut reassembly) = (Counters::new(), ReassemblyTable::new());
        let mut insert = |fragment| whole(reassembly.insert(Time::ZERO, fragment, &counters));
        assert!(insert(cut(held)).is_none() && insert(cut(arrives)).is_none(), "{name}");
        let rest = [(0, 8), (8, 8), (32, 16), (48, 16)];
        let mut done = None;
        for (offset, len) in rest {
            let covered = survives && offset >= arrives.0 && offset < arrives.0 + arrives.1 as u32;
            if !covered {
                let last = offset == 48;
                let at = offset as usize;
                done = done.or(insert(piece(offset, !last, &bytes[at..at + len])));
            }
        }
        assert_eq!(done.map(|d| d.buf.to_vec()), survives.then(|| bytes.clone()), "{name}");
        assert_eq!(counters.dropped(DropReason::FragmentOverlap) > 0, !survives, "{name}");
        assert_eq!(reassembly.len(), usize::from(!survives), "{name}: a tombstone stays until the deadline");
    }
}

#[test]
fn a_duplicate_with_other_bytes_kills() {
    let (counters, mut table) = (Counters::new(), ReassemblyTable::new());
    table.insert(Time::ZERO, piece(0, true, &[1; 16]), &counters);
    table.insert(Time::ZERO, piece(0, true, &[2; 16]), &counters);
    assert!(whole(table.insert(Time::ZERO, piece(16, false, &[3; 8]), &counters)).is_none());
    assert_eq!(counters.dropped(DropReason::FragmentOverlap), 3);
}

#[test]
fn faulty_fragments_end_in_a_reason() {
    type Pieces = Vec<Fragment>;
    let many = || (0..=MAX_PIECES as u32).map(|n| piece(n * 16, true, &[0; 8])).collect::<Pieces>();
    let cases: [(&str, Pieces, DropReason); 7] = [
        ("not a multiple of eight", vec![piece(0, true, &[0; 15])], DropReason::FragmentBadLength),
        ("empty", vec![piece(8, false, &[])], DropReason::FragmentBadLength),
        ("ping of death", vec![piece(65_528, false, &[0; 8])], DropReason::FragmentTooBig),
        ("two ends", vec![piece(8, false, &[0; 8]), piece(24, false, &[0; 8])], DropReason::FragmentInconsistent),
        ("beyond the end", vec![piece(8, false, &[0; 8]), piece(16, true, &[0; 8])], DropReason::FragmentInconsistent),
        (
            "an end before what is held",
            vec![piece(24, true, &[0; 8]), piece(8, false, &[0; 8])],
            DropReason::FragmentInconsistent,
        ),
        ("too many pieces", many(), DropReason::FragmentTooMany),
    ];
    for (name, pieces, reason) in cases {
        let (counters, mut table) = (Counters::new(), ReassemblyTable::new());
        let count = pieces.len() as u64;
        for fragment in pieces {
            assert!(whole(table.insert(Time::ZERO, fragment, &counters)).is_none(), "{name}");
        }
        assert_eq!(counters.dropped(reason), count, "{name}: {counters:?}");
    }
}

/// A host reads no header before the packet is whole, so a header in two pieces does no harm (RFC 3128 is for filters).
#[test]
fn tiny_fragments_of_a_segment_are_legal_over_ipv4() {
    let (counters, mut table) = (Counters::new(), ReassemblyTable::new());
    let segment = pattern(40);
    let pieces = segment.chunks(8).enumerate().map(|(n, chunk)| {
        let mut fragment = piece(n as u32 * 8, n < 4, chunk);
        fragment.datagram.protocol = protocol::TCP;
        fragment
    });
    let done = pieces.into_iter().find_map(|piece| whole(table.insert(Time::ZERO, piece, &counters)));
    assert_eq!(done.unwrap().buf.to_vec(), segment);
}

#[test]
fn ipv6_senders_are_told_where_the_fault_is() {
    let fault = |offset_more: u16, len: usize| {
        let [high, low] = offset_more.to_be_bytes();
        let header = [protocol::UDP, 0, high, low, 0, 0, 0, 1];
        let frame = framed(packet_v6(protocol::IPV6_FRAGMENT, &[&header[..], &pattern(len)].concat()));
        match ReassemblyTable::new().insert(Time::ZERO, taken(frame), &Counters::new()) {
            Reassembled::Refused(refused) => (refused.error, refused.reason),
            other => panic!("{other:?}"),
        }
    };
    let bad_length = (ErrorKind::BadHeader { pointer: 4 }, DropReason::FragmentBadLength);
    assert_eq!(fault(1, 15), bad_length);
    let too_big = (ErrorKind::BadHeader { pointer: 42 }, DropReason::FragmentTooBig);
    assert_eq!(fault(65_528, 16), too_big);
}

#[test]
fn deadlines_run_from_the_first_fragment_and_beginnings_are_reported() {
    let (counters, mut table) = (Counters::new(), ReassemblyTable::new());
    let start = Time::from_secs(100);
    let v6 = fragments(true, &pattern(3000), 1280, 1).remove(0);
    table.insert(start, v6, &counters);
    let v4 = fragments(false, &pattern(3000), 1280, 1).remove(1);
    table.insert(start, v4, &counters);
    assert_eq!(table.next_deadline(), Some(start + LIFETIME_V4));
    table.insert(start + LIFETIME_V4 / 2, fragments(false, &pattern(3000), 1280, 1).remove(2), &counters);
    assert_eq!(table.next_deadline(), Some(start + LIFETIME_V4), "later fragments extend nothing");
    assert!(table.timeouts(start + LIFETIME_V4, &counters).is_empty(), "the IPv4 beginning never came");
    assert_eq!(counters.dropped(DropReason::ReassemblyTimeout), 2);
    assert_eq!(table.next_deadline(), Some(start + LIFETIME_V6));
    let expired = table.timeouts(start + LIFETIME_V6, &counters);
    assert_eq!(expired.len(), 1);
    assert_eq!((expired[0].src, expired[0].packet()[0] >> 4), (PEER6.into(), 6));
    assert!(table.is_empty() && table.next_deadline().is_none());
}

#[test]
fn a_flood_evicts_the_oldest_and_a_fresh_packet_still_gets_through() {
    let (counters, mut table) = (Counters::new(), ReassemblyTable::with_cap(256 << 10));
    for ident in 0..5000 {
        let mut junk = piece(8, true, &[0; 8]);
        junk.ident = ident;
        table.insert(Time::from_millis(ident.into()), junk, &counters);
        assert!(table.memory() <= 256 << 10);
    }
    let payload = pattern(5000);
    let now = Time::from_secs(6);
    let done = fragments(true, &payload, 1280, 7)
        .into_iter()
        .find_map(|fragment| whole(table.insert(now, fragment, &counters)));
    assert_eq!(done.map(|d| d.buf.to_vec()), Some(payload));
    assert!(counters.dropped(DropReason::ReassemblyFull) > 4000);
}

/// A flood of one source evicts its own packets; another source's packet begun before is completed during the flood.
#[test]
fn a_flood_of_one_source_leaves_the_packets_of_others() {
    let (counters, cap) = (Counters::new(), 256 << 10);
    let mut table = ReassemblyTable::with_cap(cap);
    let payload = pattern(5000);
    let mut honest = fragments(true, &payload, 1280, 7).into_iter();
    assert!(whole(table.insert(Time::ZERO, honest.next().unwrap(), &counters)).is_none());
    for ident in 0..5000 {
        let mut junk = piece(8, true, &[0; 8]);
        junk.ident = ident;
        table.insert(Time::from_millis(ident.into()), junk, &counters);
        assert!(table.memory_of(PEER.into()) <= cap / 4, "{} of one source", table.memory_of(PEER.into()));
    }
    let now = Time::from_secs(6);
    let done = honest.find_map(|fragment| whole(table.insert(now, fragment, &counters)));
    assert_eq!(done.map(|d| d.buf.to_vec()), Some(payload));
    table.timeouts(Time::MAX, &counters);
    assert_eq!((table.memory(), table.memory_of(PEER.into()), table.len()), (0, 0, 0));
    assert_eq!(sources::source_of(ip("2001:db8::5")), ip("2001:db8::"));
    assert_eq!(sources::source_of(ip("fe80::5")), ip("fe80::5"));
}

#[test]
fn an_expired_packet_does_not_mix_with_a_new_one_of_its_name() {
    let (counters, mut table) = (Counters::new(), ReassemblyTable::new());
    table.insert(Time::ZERO, piece(0, true, &[1; 16]), &counters);
    let late = Time::ZERO + LIFETIME_V4;
    assert!(whole(table.insert(late, piece(16, false, &[2; 8]), &counters)).is_none());
    let done = whole(table.insert(late, piece(0, true, &[3; 16]), &counters)).unwrap();
    assert_eq!(*done.buf, [&[3; 16][..], &[2; 8]].concat());
}

#[test]
fn congestion_marks_survive_and_contradictions_do_not() {
    let marked = |offset, more, tos| {
        let mut fragment = piece(offset, more, &[0; 8]);
        fragment.datagram.tos = tos;
        fragment
    };
    for (first, second, joined) in [(2, 2, Some(2)), (2, 3, Some(3)), (3, 2, Some(3)), (0, 0, Some(0)), (0, 3, None)] {
        let (counters, mut table) = (Counters::new(), ReassemblyTable::new());
        table.insert(Time::ZERO, marked(0, true, first), &counters);
        let done = whole(table.insert(Time::ZERO, marked(8, false, second), &counters));
        assert_eq!(done.map(|d| d.tos), joined, "{first} with {second}");
        assert_eq!(counters.dropped(DropReason::FragmentEcnMixed), if joined.is_none() { 2 } else { 0 });
    }
}

#[test]
fn the_largest_packet_is_put_together() {
    let (counters, mut table) = (Counters::new(), ReassemblyTable::new());
    let payload = pattern(65_515);
    let mut packet = PktBuf::from_slice(&payload).unwrap();
    let fragmentation = Fragmentation::Allowed { ident: 0 };
    output::ipv4_header(&mut packet, PEER, OURS, protocol::UDP, 0, 64, fragmentation);
    let pieces = output::fragment(packet, 1500, 3).unwrap();
    let done = pieces.into_iter().find_map(|p| whole(table.insert(Time::ZERO, taken(framed(p)), &counters)));
    assert_eq!(done.unwrap().buf.to_vec(), payload);
}
