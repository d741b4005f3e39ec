//! Loss detection by time (RFC 8985 section 6): the reordering window, its timer, lost retransmissions, and the effects
//! of reordering and D-SACKs. The path takes 100 ms, so the window is 25 ms and the first RTO 300 ms.

mod support;

use observe::Counter;
use support::endpoint::Setup;
use support::ms;
use support::script::{Peer, Script, peer};
use tcp::RecoveryState;
use tcp::congestion::Kind;

fn connected() -> Script {
    connected_over(100)
}

/// Over a path with this round-trip time in milliseconds.
fn connected_over(rtt: u64) -> Script {
    let mut setup = Setup::default();
    setup.config.congestion = Kind::NewReno;
    Script::connected_over(setup, ms(rtt), Peer::sack_permitted)
}

/// Ten segments out, and their round trip over.
fn ten_out() -> Script {
    ten_out_over(100)
}

fn ten_out_over(rtt: u64) -> Script {
    let mut t = connected_over(rtt);
    t.send(10_000);
    assert_eq!(t.ranges().len(), 10);
    t.pass(ms(rtt));
    t
}

/// Slack of the reordering timer once reordering was seen, in ms.
const SLACK: u64 = 2;

#[test]
fn one_sacked_segment_is_enough_after_the_reordering_window() {
    let mut t = connected();
    t.send(3000);
    t.take();
    t.pass(ms(100));
    t.inject(peer(".").ack(1).sack(&[(1001, 2001)]));
    assert_eq!(t.us.status().recovery, RecoveryState::Disorder);
    assert_eq!(t.until_sent(ms(1000)), Some(ms(25)), "a quarter of the least round trip");
    assert_eq!(t.ranges(), ["1:1001"]);
    let status = t.us.status();
    assert_eq!((status.recovery, status.sacked, status.resent), (RecoveryState::Recovery, 1000, 1000));
    t.pass(ms(100));
    t.inject(peer(".").ack(3001));
    assert_eq!(t.us.status().recovery, RecoveryState::Open);
    assert_eq!((t.us.count(Counter::Timeouts), t.us.count(Counter::FastRetransmits)), (0, 1));
}

#[test]
fn three_sacked_segments_wait_for_nothing() {
    let mut t = ten_out();
    for right in [2001, 3001] {
        t.inject(peer(".").ack(1).sack(&[(1001, right)]));
        assert_eq!(t.ranges(), [""; 0]);
    }
    t.inject(peer(".").ack(1).sack(&[(1001, 4001)]));
    assert_eq!(t.ranges(), ["1:1001"]);
}

#[test]
fn what_left_after_the_newest_delivered_is_not_lost() {
    let mut t = ten_out();
    t.inject(peer(".").ack(1).sack(&[(3001, 4001), (1001, 2001)]));
    t.pass(ms(25));
    assert_eq!(t.ranges(), ["1:1001"]);
    assert_eq!(t.us.status().lost, 1000, "2001..3001; nothing says that 4001..10001 is");
}

//= https://www.rfc-editor.org/rfc/rfc6675#section-4
//= type=test
//# If no sequence number 'S2' per rule (1) exists but there exists available unsent data and the receiver's advertised
//# window allows, the sequence range of one segment of up to SMSS octets of previously unsent data starting with
//# sequence number HighData+1 MUST be returned.
#[test]
fn a_lost_retransmission_is_sent_again_without_a_time_out() {
    let mut t = ten_out();
    t.send(10_000);
    t.inject(peer(".").ack(1).sack(&[(1001, 5001)]));
    assert_eq!(t.ranges(), ["1:1001"]);
    t.pass(ms(1));
    // The rest of the first flight arrives; new data is sent after the retransmission.
    t.inject(peer(".").ack(1).sack(&[(1001, 10_001)]));
    let new = t.ranges();
    assert!(new.len() >= 2 && new[0] == "10001:11001", "{new:?}");
    t.pass(ms(100));
    // It arrives, but the earlier retransmission does not.
    t.inject(peer(".").ack(1).sack(&[(1001, 11_001)]));
    assert_eq!(t.ranges()[0], "1:1001");
    assert_eq!((t.us.count(Counter::Timeouts), t.us.count(Counter::FastRetransmits)), (0, 1));
}

/// Found by the soak: as long as SND.UNA stays, the peer echoes the timestamp of before the hole. Segments SACKed
/// meanwhile were sent later nevertheless, and show that the first retransmission is lost, too.
#[test]
fn a_lost_retransmission_is_found_although_the_echo_stands_still() {
    let mut setup = Setup::default();
    setup.config.congestion = Kind::NewReno;
    let mut t = Script::connected_over(setup, ms(100), |peer| peer.sack_permitted().ts(1, 1000));
    t.send(9880);
    assert_eq!(t.ranges().len(), 10);
    t.pass(ms(100));
    t.inject(peer(".").ack(1).sack(&[(3953, 6917)]).ts(2, 1100));
    assert_eq!(t.ranges(), ["1:989", "989:1977"]);
    t.pass(ms(20));
    t.inject(peer(".").ack(1).sack(&[(3953, 9881)]).ts(3, 1100));
    assert_eq!(t.ranges(), ["1977:2965", "2965:3953"]);
    t.pass(ms(100));
    t.inject(peer(".").ack(1).sack(&[(1977, 9881)]).ts(4, 1100));
    assert_eq!(t.ranges(), ["1:989", "989:1977"], "at once, not after a time-out");
    assert_eq!((t.us.count(Counter::Timeouts), t.us.count(Counter::TailLossProbes)), (0, 0));
}

/// Found by the soak: a peer that sends and acknowledges nothing postponed the time-out with each of its segments, on a
/// path that had shown reordering: nothing was SACKed, and still the reordering window had the timer.
#[test]
fn a_peer_that_talks_does_not_put_off_the_time_out_behind_a_probe() {
    let mut t = ten_out();
    t.inject(peer(".").ack(1).sack(&[(1001, 2001)]));
    t.inject(peer(".").ack(10_001));
    assert_eq!(t.us.status().reorderings_seen, 1);
    t.send(50_000);
    t.take();
    assert!(t.until_sent(ms(300)).is_some());
    assert_eq!((t.ranges().len(), t.us.count(Counter::TailLossProbes)), (1, 1), "new text");
    for said in 0..10u32 {
        t.pass(ms(40));
        t.inject(peer(".").seq(1 + said).ack(10_001).len(1));
    }
    assert_eq!(t.us.count(Counter::Timeouts), 1, "after 300 ms");
}

/// Two segments arrive in the wrong order; from then on the third duplicate waits for the window as well.
//= https://www.rfc-editor.org/rfc/rfc8985#section-9.2
//= type=test
//# Therefore, the algorithm [RFC6675] MUST NOT be used with RACK-TLP; instead, a modified recovery algorithm that
//# carefully addresses such a case is needed.
#[test]
fn once_reordering_was_seen_the_window_applies_whatever_the_count() {
    let mut t = ten_out();
    t.inject(peer(".").ack(1).sack(&[(1001, 2001)]));
    t.inject(peer(".").ack(2001));
    let status = t.us.status();
    assert_eq!((status.recovery, status.reorderings_seen), (RecoveryState::Open, 1));
    assert!((3..=10).contains(&status.reordering), "in segments: {}", status.reordering);
    assert_eq!(t.us.count(Counter::ReordersSeen), 1);
    t.inject(peer(".").ack(2001).sack(&[(3001, 9001)]));
    assert_eq!(t.ranges(), [""; 0]);
    t.inject(peer(".").ack(9001));
    assert_eq!(t.us.count(Counter::Retransmits), 0);
    t.inject(peer(".").ack(10_001));
    t.pass(ms(1));
    t.send(4000);
    t.take();
    t.pass(ms(100));
    t.inject(peer(".").ack(10_001).sack(&[(11_001, 14_001)]));
    assert_eq!(t.until_sent(ms(1000)), Some(ms(25 + SLACK)));
}

#[test]
fn a_reordering_window_that_ends_after_the_data_arrived_does_nothing() {
    let mut t = ten_out();
    t.inject(peer(".").ack(1).sack(&[(1001, 2001)]));
    t.pass(ms(10));
    t.inject(peer(".").ack(10_001));
    assert_eq!(t.until_sent(ms(10_000)), None);
    assert_eq!(t.us.status().recovery, RecoveryState::Open);
}

#[test]
fn a_peer_that_takes_back_what_it_had_is_found_out_by_its_acknowledgement() {
    let mut t = ten_out();
    t.inject(peer(".").ack(1).sack(&[(1001, 10_001)]));
    assert_eq!(t.ranges(), ["1:1001"]);
    t.pass(ms(100));
    // The peer has discarded 1001..10001.
    t.inject(peer(".").ack(1001));
    assert_eq!(t.us.count(Counter::SackReneges), 1);
    let mut end = 1001;
    for _ in 0..40 {
        for range in t.ranges() {
            let (left, right) = range.split_once(':').unwrap();
            if left.parse::<u32>().unwrap() <= end {
                end = end.max(right.parse().unwrap());
            }
        }
        t.pass(ms(100));
        t.inject(peer(".").ack(end));
    }
    assert_eq!((t.us.status().unacknowledged, t.us.count(Counter::Timeouts)), (0, 0));
}

/// Two threads alternate on a connection, and the second has the older clock reading: its segments were sent later
/// nevertheless, and are not lost because earlier ones have arrived.
#[test]
fn what_left_last_left_last_whatever_the_clock_of_its_thread_says() {
    let mut t = connected();
    t.send(5000);
    t.pass(ms(100));
    let read = t.now;
    t.now = read + ms(5);
    t.send(1000);
    t.take();
    t.now = read + ms(3);
    t.inject(peer(".").ack(1).sack(&[(1001, 5001)]));
    assert_eq!(t.ranges(), ["1:1001"]);
    t.now = read + ms(105);
    t.inject(peer(".").ack(1).sack(&[(1001, 6001)]));
    assert_eq!(t.ranges(), [""; 0], "it was sent behind the data that has arrived");
    assert_eq!(t.us.status().resent, 1000, "under way");
    // And new data behind a retransmission.
    let mut t = connected();
    t.send(5000);
    t.pass(ms(100));
    let read = t.now;
    t.now = read + ms(5);
    t.take();
    t.inject(peer(".").ack(1).sack(&[(1001, 5001)]));
    assert_eq!(t.ranges(), ["1:1001"]);
    t.now = read + ms(3);
    t.send(1000);
    assert_eq!(t.ranges(), ["5001:6001"]);
    t.now = read + ms(105);
    t.inject(peer(".").ack(5001));
    t.pass(ms(2));
    assert_eq!(t.ranges(), [""; 0], "its acknowledgement follows");
    t.inject(peer(".").ack(6001));
    assert_eq!((t.us.count(Counter::Timeouts), t.us.status().recovery), (0, RecoveryState::Open));
}

/// A silent recovery is probed with new data if there is any: its acknowledgement shows the loss, and no transmission
/// is wasted.
#[test]
fn silence_in_recovery_is_probed_with_new_data_first() {
    let mut t = ten_out_over(40);
    t.inject(peer(".").ack(1).sack(&[(1001, 10_001)]));
    assert_eq!(t.ranges(), ["1:1001"]);
    // More than the window allows.
    t.send(100_000);
    t.take();
    let next = 1 + t.us.status().unacknowledged;
    let waited = t.until_sent(ms(1000)).unwrap();
    assert!(ms(72) < waited && waited < ms(86), "two round trips, not {waited:?}");
    assert_eq!(t.ranges(), [format!("{next}:{}", next + 1000)], "beyond the window");
    t.pass(ms(40));
    t.inject(peer(".").ack(1).sack(&[(1001, 10_001), (next, next + 1000)]));
    assert!(t.ranges().contains(&"1:1001".to_owned()), "it left before the probe, and is lost");
    assert_eq!(t.us.count(Counter::Timeouts), 0);
}

/// If new data is not answered either, the first segment is sent once more, later; and then the time-out decides.
#[test]
fn silence_after_the_first_probe_of_recovery_repeats_what_is_lost() {
    let mut t = ten_out_over(40);
    t.inject(peer(".").ack(1).sack(&[(1001, 10_001)]));
    t.send(100_000);
    t.take();
    t.until_sent(ms(1000)).unwrap();
    t.take();
    let waited = t.until_sent(ms(1000)).unwrap();
    assert!(ms(120) < waited && waited < ms(140), "two round trips and a delayed acknowledgement, not {waited:?}");
    assert_eq!(t.ranges(), ["1:1001"]);
    assert_eq!((t.us.count(Counter::Timeouts), t.us.count(Counter::TailLossProbes)), (0, 2));
    assert!(t.until_sent(ms(1000)).is_some());
    assert_eq!(t.us.count(Counter::Timeouts), 1);
}

#[test]
fn silence_in_recovery_is_probed_before_the_time_out() {
    // Two round trips and the peer's delay; on the longer path the time-out would be earlier.
    for (rtt, least, most) in [(40, 125, 140), (100, 200, 206)] {
        let mut t = ten_out_over(rtt);
        t.inject(peer(".").ack(1).sack(&[(1001, 10_001)]));
        assert_eq!(t.ranges(), ["1:1001"]);
        // Nothing else is in flight: if that is lost, too, no acknowledgement will arrive.
        let waited = t.until_sent(ms(1000)).unwrap();
        assert!(ms(least) < waited && waited < ms(most), "{rtt} ms: {waited:?}");
        assert_eq!(t.ranges(), ["1:1001"]);
        assert_eq!((t.us.count(Counter::Timeouts), t.us.count(Counter::TailLossProbes)), (0, 1));
        let cwnd = t.us.status().cwnd;
        assert!(t.until_sent(ms(1000)).is_some());
        assert_eq!(t.us.count(Counter::Timeouts), 1, "one probe, then the time-out");
        assert!(t.us.status().cwnd < cwnd);
    }
}

/// If the time-out would be before two probes, there is one, a retransmission, even with data to send.
#[test]
fn a_long_path_has_time_for_one_probe_of_recovery() {
    let mut t = ten_out();
    t.inject(peer(".").ack(1).sack(&[(1001, 10_001)]));
    t.send(100_000);
    t.take();
    let waited = t.until_sent(ms(1000)).unwrap();
    assert!(ms(180) < waited && waited < ms(210), "two round trips, not {waited:?}");
    assert_eq!(t.ranges(), ["1:1001"]);
    t.until_sent(ms(1000)).unwrap();
    assert_eq!((t.us.count(Counter::Timeouts), t.us.count(Counter::TailLossProbes)), (1, 1));
}

/// A path that reorders, and then a segment sent long before the next: that alone does not make it lost.
#[test]
fn what_was_only_just_overtaken_is_waited_for() {
    let mut t = ten_out();
    t.inject(peer(".").ack(1).sack(&[(1001, 2001)]));
    t.inject(peer(".").ack(10_001));
    t.send(1000);
    t.pass(ms(60));
    t.send(2000);
    t.take();
    t.pass(ms(100));
    t.inject(peer(".").ack(10_001).sack(&[(11_001, 12_001)]));
    assert_eq!(t.ranges(), [""; 0], "it left 60 ms before what overtook it");
    assert_eq!(t.until_sent(ms(1000)), Some(ms(25 + SLACK)), "the window, from when that was seen");
    assert_eq!(t.ranges(), ["10001:11001"]);
}

/// A segment arrives before its retransmission can have: it was overtaken. From then on the reordering window applies,
/// also in the same recovery.
#[test]
fn a_needless_retransmission_shows_that_the_path_reorders() {
    let mut t = ten_out();
    t.inject(peer(".").ack(1).sack(&[(1001, 4001)]));
    assert_eq!(t.ranges(), ["1:1001"]);
    t.pass(ms(10));
    t.inject(peer(".").ack(4001));
    t.inject(peer(".").ack(4001).sack(&[(5001, 6001)]));
    assert_eq!(t.us.status().recovery, RecoveryState::Recovery);
    assert_eq!(t.ranges(), [""; 0]);
    let waited = t.until_sent(ms(1000)).expect("it is lost");
    assert!(ms(25 + SLACK) <= waited && waited < ms(26 + SLACK), "{waited:?}");
    assert_eq!(t.ranges(), ["4001:5001"]);
}

#[test]
fn switches_of_the_knob_are_obeyed() {
    for (value, waits) in [(1, 0), (4, 25)] {
        let mut t = connected();
        t.us.setup.config.recovery = value;
        t.send(10_000);
        t.take();
        t.pass(ms(100));
        t.inject(peer(".").ack(1).sack(&[(1001, 4001)]));
        assert_eq!(t.until_sent(ms(1000)), Some(ms(waits)), "tcp_recovery={value}");
    }
}

/// Ten segments are out, five of them lost, and all five sent again at 1200 ms; probes are off.
fn five_sent_again() -> Script {
    let mut setup = Setup::default();
    setup.config.tail_loss_probe = false;
    let mut t = Script::connected_over(setup, ms(100), |syn| syn.sack_permitted());
    t.send(10_000);
    assert_eq!(t.take().len(), 10);
    t.pass(ms(100));
    t.inject(peer(".").ack(1).sack(&[(1001, 2001), (3001, 4001), (5001, 6001), (7001, 8001)]));
    t.inject(peer(".").ack(1).sack(&[(9001, 10_001), (7001, 8001), (5001, 6001), (3001, 4001)]));
    t.take();
    t
}

/// Segments arriving behind the hole do not show RACK that the retransmission into it was lost: each arrived sooner
/// than the least round trip, and may be the original. Nor do they postpone the time-out.
#[test]
fn selective_acknowledgements_do_not_put_off_the_time_out_of_the_first_segment() {
    let mut t = five_sent_again();
    let again = t.us.count(Counter::Retransmits);
    assert!(again >= 3, "{again} were sent again");
    t.pass(ms(60));
    t.inject(peer(".").ack(1).sack(&[(1001, 4001), (9001, 10_001), (7001, 8001), (5001, 6001)]));
    t.pass(ms(35));
    t.inject(peer(".").ack(1).sack(&[(1001, 6001), (9001, 10_001), (7001, 8001)]));
    assert_eq!(t.us.count(Counter::Timeouts), 0);
    let rto = t.us.status().rto;
    t.pass(rto - ms(95) - ms(5));
    assert_eq!(t.us.count(Counter::Timeouts), 0, "not before its time-out");
    t.pass(ms(10));
    assert_eq!(t.us.count(Counter::Timeouts), 1, "but then");
}

/// A segment sent before the retransmission that arrives only now shows that the round trip has become longer.
#[test]
fn what_left_earlier_and_arrives_late_does_put_it_off() {
    let mut setup = Setup::default();
    setup.config.tail_loss_probe = false;
    let mut t = Script::connected_over(setup, ms(100), |syn| syn.sack_permitted());
    t.send(10_000);
    t.take();
    t.pass(ms(100));
    t.inject(peer(".").ack(1).sack(&[(1001, 4001)]));
    t.take();
    let rto = t.us.status().rto;
    t.pass(rto - ms(5));
    t.inject(peer(".").ack(1).sack(&[(1001, 5001)]));
    t.pass(ms(100));
    assert_eq!(t.us.count(Counter::Timeouts), 0);
}

/// An acknowledgement that was overtaken may be the only one with a block.
#[test]
fn the_blocks_of_an_acknowledgement_that_was_overtaken_count() {
    let mut t = Script::connected_over(Setup::default(), ms(100), |syn| syn.sack_permitted());
    t.send(10_000);
    t.take();
    t.pass(ms(100));
    t.inject(peer(".").ack(1).sack(&[(1001, 4001)]));
    t.take();
    t.pass(ms(100));
    t.inject(peer(".").ack(5001).sack(&[(8001, 9001)]));
    let before = t.us.status().sacked;
    t.inject(peer(".").ack(4001).sack(&[(6001, 7001)]));
    assert_eq!((before, t.us.status().sacked), (1000, 2000));
}
