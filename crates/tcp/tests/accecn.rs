//! Accurate explicit congestion notification (RFC 9768).

mod support;

use observe::Counter;
use support::endpoint::Setup;
use support::ms;
use support::script::{Peer, Script, peer};
use tcp::config::{Ecn, EcnOption};
use tcp::ecn::EcnMode;
use wire::tcp::{EcnCounters, ExtraOptions, TcpFlags};

const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const ECT_0: u8 = 2;
const CE: u8 = 3;

fn setup(ecn: Ecn) -> Setup {
    let mut setup = Setup::default();
    setup.config.ecn = ecn;
    setup.config.timestamps = false;
    setup
}

/// AE, CWR and ECE as a number.
fn flags(ace: u16) -> TcpFlags {
    TcpFlags((ace & 4) << 6 | (ace & 2) << 6 | (ace & 1) << 6)
}

fn ace(flags: TcpFlags) -> u16 {
    (flags.0 >> 6 & 4) | (flags.0 >> 6 & 2) | (flags.0 >> 6 & 1)
}

fn with(peer: Peer, bits: u16) -> Peer {
    let flags = peer.flags | flags(bits);
    Peer { flags, ..peer }
}

fn counters(peer: Peer, ect0: u32, ce: u32, ect1: u32) -> Peer {
    let ecn = Some(EcnCounters::new(ect0, ce, ect1, 3, true));
    Peer { rare: ExtraOptions { ecn, ..ExtraOptions::NONE }, ..peer }
}

/// A segment that was sent.
#[derive(Debug, PartialEq)]
struct Sent {
    ace: u16,
    mark: u8,
    len: usize,
    counters: Option<(u32, u32, u32)>,
}

fn sent(t: &mut Script) -> Vec<Sent> {
    let read = |buf: &pktbuf::PktBuf| {
        let header = wire::tcp::parse(buf).expect("a good segment");
        let rare = ExtraOptions::parse(&buf[20..usize::from(header.header_len)]);
        let counters = rare.ecn.map(|c| (c.ect0().unwrap(), c.ce().unwrap(), c.ect1().unwrap()));
        let len = buf.len() - usize::from(header.header_len);
        Sent { ace: ace(header.flags), mark: buf.meta().ecn(), len, counters }
    };
    core::mem::take(&mut t.us.sent).iter().map(read).collect()
}

/// An active open whose SYN-ACK has these bits and came with this mark.
fn opened(bits: u16, mark: u8) -> Script {
    let mut t = Script::new(setup(Ecn::Accurate));
    t.us.open(t.now);
    assert_eq!(sent(&mut t), [Sent { ace: 7, mark: NOT_ECT, len: 0, counters: None }]);
    t.inject(counters(with(peer("S.").seq(0).win(60_000).mss(1000), bits).marked(mark), 1, 0, 1));
    t
}

#[test]
fn every_answer_to_a_request_for_accurate() {
    // RFC 9768 table 2, from the client's side: the bits, the mode, and whether data may be marked.
    for (bits, mode, capable) in [
        (0b010, EcnMode::Accurate, true),
        (0b011, EcnMode::Accurate, false),
        (0b100, EcnMode::Accurate, false),
        (0b110, EcnMode::Accurate, false),
        (0b101, EcnMode::Accurate, true),
        (0b001, EcnMode::Classic, true),
        (0b000, EcnMode::Off, false),
        (0b111, EcnMode::Off, false),
    ] {
        let mut t = opened(bits, NOT_ECT);
        assert_eq!(t.us.status().ecn, mode, "SYN-ACK {bits:03b}");
        sent(&mut t);
        t.send(10);
        assert_eq!(sent(&mut t)[0].mark, if capable { ECT_0 } else { NOT_ECT }, "SYN-ACK {bits:03b}");
    }
}

#[test]
fn every_request_to_every_listener() {
    use EcnMode::{Accurate, Classic, Off};
    for (ecn, grants) in [
        (Ecn::Off, [Off; 8]),
        (Ecn::Accept, [Off, Off, Off, Classic, Off, Off, Off, Classic]),
        (Ecn::AccurateAccept, [Off, Accurate, Accurate, Classic, Accurate, Accurate, Accurate, Accurate]),
        (Ecn::Accurate, [Off, Accurate, Accurate, Classic, Accurate, Accurate, Accurate, Accurate]),
    ] {
        for (bits, granted) in (0..8).zip(grants) {
            let mut t = Script::new(setup(ecn));
            t.us.listening = true;
            t.inject(with(peer("S").seq(0).mss(1000), bits));
            let answer = sent(&mut t);
            let expected = match granted {
                Off => 0b000,
                Classic => 0b001,
                Accurate => 0b010,
            };
            assert_eq!(answer[0].ace, expected, "{ecn:?} {bits:03b}");
            assert_eq!(answer[0].counters, (granted == Accurate).then_some((1, 0, 1)));
        }
    }
}

#[test]
fn the_mark_of_a_syn_is_told_and_so_is_that_of_the_syn_ack() {
    for (mark, told) in [(NOT_ECT, 0b010), (ECT_1, 0b011), (ECT_0, 0b100), (CE, 0b110)] {
        let mut t = Script::new(setup(Ecn::AccurateAccept));
        t.us.listening = true;
        t.inject(with(peer("S").seq(0).mss(1000), 7).marked(mark));
        assert_eq!(sent(&mut t)[0].ace, told);
        let mut t = opened(0b010, mark);
        let first = sent(&mut t);
        assert_eq!((first.len(), first[0].ace, first[0].len), (1, told, 0));
        assert_eq!(first[0].counters, Some((1, 0, 1)), "the option of the SYN-ACK is answered");
        t.send(10);
        let count = if mark == CE { 6 } else { 5 };
        assert_eq!(sent(&mut t)[0].ace, count, "from then on marks are counted");
    }
}

/// A listener with accurate ECN whose SYN-ACK the peer acknowledges with these bits.
fn accepted(bits: u16, option: bool) -> Script {
    accepted_with(setup(Ecn::AccurateAccept), bits, option)
}

fn accepted_with(setup: Setup, bits: u16, option: bool) -> Script {
    let mut t = Script::new(setup);
    t.us.listening = true;
    t.inject(with(peer("S").seq(0).mss(1000), 7));
    sent(&mut t);
    let ack = with(peer(".").win(60_000), bits);
    t.inject(if option { counters(ack, 1, 0, 1) } else { ack });
    assert_eq!(t.us.status().ecn, EcnMode::Accurate);
    t
}

#[test]
fn the_third_segment_tells_what_the_path_did() {
    for (bits, capable) in
        [(0b010, true), (0b000, false), (0b011, false), (0b100, false), (0b110, false), (0b001, true), (0b111, true)]
    {
        let mut t = accepted(bits, true);
        t.send(10);
        assert_eq!(sent(&mut t)[0].mark, if capable { ECT_0 } else { NOT_ECT }, "ACK {bits:03b}");
        // RFC 9768 table 4: s.cep is 6 where the SYN-ACK arrived marked, else 5.
        assert_eq!(t.us.status().marks.delivered_ce, u32::from(bits == 0b110), "ACK {bits:03b}");
    }
}

/// RFC 9768 section 3.2.2.2: a SYN that arrived marked makes the first window smaller, and is not counted.
#[test]
fn a_marked_syn_cuts_the_first_window() {
    let (unmarked, marked) = (opened(0b010, NOT_ECT).us.status(), opened(0b110, NOT_ECT).us.status());
    assert!(marked.cwnd < unmarked.cwnd && marked.ssthresh < unmarked.ssthresh, "{} {}", marked.cwnd, unmarked.cwnd);
    assert_eq!(marked.marks.delivered_ce, 0);
}

/// RFC 9768 section 3.2.2.5.2 and appendix A.2, by its own formula.
#[test]
fn a_large_acknowledgement_may_hide_a_full_circle() {
    for (packets, bits, marks) in [(2, 5, 0), (7, 4, 7), (8, 5, 8), (9, 5, 8), (9, 7, 2), (10, 7, 10), (17, 5, 16)] {
        let mut setup = setup(Ecn::AccurateAccept);
        setup.config.initial_window = 30;
        let mut t = accepted_with(setup, 0b010, false);
        t.send(20_000);
        t.inject(with(peer(".").ack(1001), 5));
        assert_eq!(t.us.status().marks.delivered_ce, 0);
        t.inject(with(peer(".").ack(1001 + packets * 1000), bits));
        assert_eq!(t.us.status().marks.delivered_ce, marks, "{packets} packets, {bits:03b}");
    }
}

#[test]
fn marks_are_counted_and_told_with_every_segment() {
    let mut t = accepted(0b010, true);
    let mut seq = 1;
    for n in 1..=20u32 {
        t.inject(with(peer("P.").seq(seq).len(100), 5).marked(CE));
        seq += 100;
        let ack = sent(&mut t);
        assert_eq!((u32::from(ack[0].ace), ack[0].mark), ((5 + n) % 8, NOT_ECT));
        assert_eq!(ack[0].counters, Some((1, n * 100, 1)), "bytes by mark");
    }
    t.inject(with(peer("P.").seq(seq).len(50), 5).marked(ECT_0));
    t.inject(with(peer("P.").seq(seq + 50).len(70), 5).marked(ECT_1));
    t.pass(ms(100));
    assert_eq!(sent(&mut t).last().unwrap().counters, Some((51, 2000, 71)));
    t.send(10);
    assert_eq!(sent(&mut t)[0].ace, 25 % 8);
    assert_eq!(t.us.count(Counter::EcnMarksIn), 20);
}

#[test]
fn a_count_that_rises_cuts_the_window_once_per_window_of_data() {
    let mut t = accepted(0b010, true);
    t.us.setup.config.ecn_option_beacon = 0;
    t.send(20_000);
    assert!(sent(&mut t).iter().all(|sent| sent.mark == ECT_0 && sent.ace == 5 && sent.len == 1000));
    let before = t.us.status().cwnd;
    t.inject(with(peer(".").ack(2001), 7));
    let status = t.us.status();
    assert!(status.cwnd < before && !status.recovering);
    assert_eq!(status.marks.delivered_ce, 2);
    t.inject(with(peer(".").ack(4001), 1));
    assert_eq!((t.us.status().marks.delivered_ce, t.us.status().ssthresh), (4, status.ssthresh));
    // Overtaken: it reports less, and would look like seven more.
    t.inject(with(peer(".").ack(4001), 0));
    assert_eq!(t.us.status().marks.delivered_ce, 4);
    assert!(sent(&mut t).iter().all(|sent| sent.ace == 5), "CWR has another meaning here");
    assert_eq!(t.us.count(Counter::CongestionEvents), 1);
}

#[test]
fn the_option_alone_tells_of_marks_too() {
    let mut t = accepted(0b010, true);
    t.send(10_000);
    let before = t.us.status().cwnd;
    // Eight marks leave the three bits as they were.
    t.inject(counters(with(peer(".").ack(8001), 5), 1, 8000, 1));
    assert!(t.us.status().cwnd < before + 8000 && t.us.status().ssthresh < before);
}

#[test]
fn the_option_is_sent_as_configured_and_only_where_it_passes() {
    for (policy, option, expected) in [
        (EcnOption::Always, true, [true, true]),
        (EcnOption::Sparing, true, [true, false]),
        (EcnOption::Never, true, [false, false]),
        (EcnOption::Always, false, [false, false]),
    ] {
        let mut t = Script::new(setup(Ecn::AccurateAccept));
        t.us.setup.config.ecn_option = policy;
        t.us.setup.config.ecn_option_beacon = 0;
        t.us.listening = true;
        t.inject(with(peer("S").seq(0).mss(1000), 7));
        assert_eq!(sent(&mut t)[0].counters.is_some(), policy != EcnOption::Never);
        let ack = with(peer(".").win(60_000), 2);
        t.inject(if option { counters(ack, 1, 0, 1) } else { ack });
        t.inject(with(peer("P.").len(10), 5).marked(ECT_0));
        t.inject(with(peer("P.").seq(11).len(10), 5));
        let with_option: Vec<bool> = sent(&mut t).iter().map(|sent| sent.counters.is_some()).collect();
        assert_eq!(with_option, expected, "{policy:?}, path that passes it: {option}");
    }
}

/// RFC 9768 section 3.2.3.3: so many acknowledgements of a round trip have the option, with data or without; never on a
/// path that does not pass it, nor where the option is off.
#[test]
fn the_option_is_repeated_within_a_round_trip_where_it_passes() {
    for (policy, option, expected) in [
        (EcnOption::Sparing, true, [true, false, true, true]),
        (EcnOption::Sparing, false, [false; 4]),
        (EcnOption::Never, true, [false; 4]),
    ] {
        let mut t = Script::new(setup(Ecn::AccurateAccept));
        t.us.setup.config.ecn_option = policy;
        t.us.setup.config.ecn_option_beacon = 4;
        t.us.listening = true;
        t.inject(with(peer("S").seq(0).mss(1000), 7));
        t.pass(ms(40));
        let ack = with(peer(".").win(60_000), 2);
        t.inject(if option { counters(ack, 1, 0, 1) } else { ack });
        sent(&mut t);
        let mut seen = Vec::new();
        for (seq, after) in [(1, 0), (11, 9), (21, 1)] {
            t.pass(ms(after));
            let data = with(peer("P.").seq(seq).len(10), 5);
            t.inject(if option { counters(data, 1, 0, 1) } else { data });
            seen.extend(sent(&mut t).iter().map(|sent| sent.counters.is_some()));
        }
        t.pass(ms(10));
        t.send(10);
        seen.extend(sent(&mut t).iter().map(|sent| sent.counters.is_some()));
        assert_eq!(seen, expected, "{policy:?}, path that passes it: {option}");
    }
}

#[test]
fn a_path_that_clears_the_bits_is_found_out() {
    let mut t = opened(0b010, NOT_ECT);
    sent(&mut t);
    t.inject(with(peer("P.").len(10), 0));
    t.send(10);
    assert_eq!(sent(&mut t).last().unwrap().mark, NOT_ECT);
}

#[test]
fn a_request_is_tried_twice_and_then_given_up() {
    let mut t = Script::new(setup(Ecn::Accurate));
    t.us.open(t.now);
    let mut tried = vec![sent(&mut t)[0].ace];
    for _ in 0..3 {
        t.until_sent(ms(10_000));
        tried.push(sent(&mut t)[0].ace);
    }
    assert_eq!(tried, [7, 7, 0, 0]);
    let mut t = Script::new(setup(Ecn::AccurateAccept));
    t.us.listening = true;
    t.inject(with(peer("S").seq(0).mss(1000), 7));
    let mut tried = vec![sent(&mut t)[0].ace];
    for _ in 0..3 {
        t.until_sent(ms(10_000));
        tried.push(sent(&mut t)[0].ace);
    }
    assert_eq!(tried, [2, 2, 0, 0]);
}

#[test]
fn data_queued_before_the_handshake_follows_its_last_segment() {
    let mut t = Script::new(setup(Ecn::Accurate));
    t.us.open(t.now);
    t.send(1500);
    sent(&mut t);
    t.inject(with(peer("S.").seq(0).win(60_000).mss(1000), 2).marked(CE));
    let all = sent(&mut t);
    let bits: Vec<_> = all.iter().map(|sent| (sent.ace, sent.len, sent.mark)).collect();
    assert_eq!(bits, [(0b110, 0, NOT_ECT), (6, 1000, ECT_0), (6, 500, ECT_0)]);
}

/// The acknowledgement of the SYN-ACK has been sent with its handshake encoding: no second one follows, and no dialogue
/// waits for another.
#[test]
fn the_syn_ack_is_acknowledged_once() {
    let mut t = opened(2, NOT_ECT);
    assert_eq!(sent(&mut t).len(), 1);
    t.pass(ms(1000));
    assert_eq!((sent(&mut t), t.us.count(Counter::DelayedAckTimeouts)), (vec![], 0));
}

/// RFC 9768 section 3.2.2.5.1: of segments without data, the third with a mark since anything was sent is answered.
#[test]
fn the_third_marked_acknowledgement_in_a_row_is_answered() {
    let mut t = Script::new(setup(Ecn::Accurate));
    t.us.open(t.now);
    sent(&mut t);
    t.inject(with(peer("S.").seq(0).win(60_000).mss(1000).sack_permitted(), 2));
    t.send(8000);
    assert_eq!(sent(&mut t).len(), 9);
    for (acked, answers) in (1..).zip([0, 0, 1, 0, 0, 1]) {
        t.inject(with(peer(".").ack(1 + 1000 * acked), 5).marked(CE));
        assert_eq!(sent(&mut t).len(), answers, "number {acked}");
    }
    t.send(500);
    sent(&mut t);
    t.inject(with(peer(".").ack(7001), 5).marked(CE));
    t.inject(with(peer(".").ack(8001), 5).marked(CE));
    assert_eq!(sent(&mut t), [], "what was sent in between has reported the others");
}
