//! Loss recovery: fast retransmit, SACK (RFC 6675), NewReno (RFC 6582), limited transmit (RFC 3042), time-outs (RFC
//! 6298), and their effect on the congestion window.

mod support;

use observe::Counter;
use support::endpoint::Setup;
use support::ms;
use support::script::{Peer, Script, peer};
use tcp::Error;
use tcp::congestion::Kind;

fn setup() -> Setup {
    let mut setup = Setup::default();
    setup.config.congestion = Kind::NewReno;
    setup
}

fn with_sack() -> Script {
    Script::connected(setup(), Peer::sack_permitted)
}

fn without_sack() -> Script {
    Script::connected(setup(), |syn| syn)
}

fn ranges(t: &mut Script) -> Vec<String> {
    t.ranges()
}

//= https://www.rfc-editor.org/rfc/rfc8985#section-4
//= type=test
//# The connection MUST use selective acknowledgment (SACK) options [RFC2018], and the sender MUST keep SACK scoreboard
//# information on a per-connection basis ("SACK scoreboard" has the same meaning here as in [RFC6675], Section 3).
//= https://www.rfc-editor.org/rfc/rfc9937#section-6.2
//= type=test
//# For non-SACK-enabled connections, instead of subtracting out bytes SACKed in the SACK scoreboard, senders MUST
//# subtract out: min(RecoverFS, 1 SMSS for each preceding duplicate ACK in the fast recovery episode)
#[test]
fn the_third_duplicate_sends_again_and_the_first_two_send_new_data() {
    let mut t = without_sack();
    t.send(20_000);
    assert_eq!(t.take().len(), 10);
    let duplicate = || peer(".").ack(1);
    t.inject(duplicate());
    assert_eq!(ranges(&mut t), ["10001:11001"], "limited transmit");
    t.inject(duplicate());
    assert_eq!(ranges(&mut t), ["11001:12001"]);
    t.inject(duplicate());
    // Twelve were out, three arrived and one was retransmitted; the window becomes half of ten, because limited
    // transmit does not count.
    assert_eq!(ranges(&mut t), ["1:1001"]);
    let status = t.us.status();
    assert_eq!((status.cwnd, status.ssthresh, status.recovering), (9000, 5000, true));
    let sent: Vec<_> = (0..6).map(|_| (t.inject(duplicate()), ranges(&mut t)).1).collect();
    assert_eq!(
        sent.concat(),
        ["12001:13001", "13001:14001"],
        "every other duplicate lets a segment out, and at last each: {sent:?}"
    );
    t.inject(peer(".").ack(14_001));
    let status = t.us.status();
    assert_eq!((status.cwnd, status.recovering), (5000, false));
    assert_eq!(ranges(&mut t).len(), 5);
}

#[test]
fn a_partial_acknowledgement_sends_the_next_hole_without_waiting() {
    let mut t = without_sack();
    t.send(10_000);
    t.take();
    for _ in 0..8 {
        t.inject(peer(".").ack(1));
    }
    assert_eq!(ranges(&mut t), ["1:1001"]);
    // The first and the fifth were lost.
    t.inject(peer(".").ack(4001));
    assert_eq!(ranges(&mut t), ["4001:5001"]);
    assert!(t.us.status().recovering);
    t.inject(peer(".").ack(10_001));
    assert!(!t.us.status().recovering);
    assert_eq!(t.us.count(Counter::FastRetransmits), 1);
    assert_eq!(t.us.count(Counter::Timeouts), 0);
}

#[test]
fn duplicates_that_are_none_start_nothing() {
    let mut t = without_sack();
    t.send(10_000);
    t.take();
    for i in 0..5 {
        t.inject(peer(".").ack(1).win(50_000 + i));
    }
    for _ in 0..5 {
        t.inject(peer(".").ack(1).len(10));
    }
    t.take();
    assert!(!t.us.status().recovering, "a window update or text is no duplicate acknowledgement");
}

//= https://www.rfc-editor.org/rfc/rfc6675#section-4
//= type=test
//# This routine traverses the sequence space from HighACK to HighData and MUST set the "pipe" variable to an estimate
//# of the number of octets that are currently in transit between the TCP sender and the TCP receiver.
//= https://www.rfc-editor.org/rfc/rfc6675#section-4
//= type=test
//# NextSeg () MUST return the sequence number range of the next segment that is to be transmitted, per the following
//# rules:
//= https://www.rfc-editor.org/rfc/rfc6675#section-4
//= type=test
//# If there exists a smallest unSACKed sequence number 'S2' that meets the following three criteria for determining
//# loss, the sequence range of one segment of up to SMSS octets starting with S2 MUST be returned.
//= https://www.rfc-editor.org/rfc/rfc6675#section-4
//= type=test
//# NextSeg () MUST indicate failure, and no segment is returned.
//= https://www.rfc-editor.org/rfc/rfc6675#section-5
//= type=test
//# Upon the receipt of any ACK containing SACK information, the scoreboard MUST be updated via the Update () routine.
//= https://www.rfc-editor.org/rfc/rfc6675#section-5
//= type=test
//# Once a TCP is in the loss recovery phase, the following procedure MUST be used for each arriving ACK:
//= https://www.rfc-editor.org/rfc/rfc6675#section-5
//= type=test
//# An incoming cumulative ACK for a sequence number greater than RecoveryPoint signals the end of loss recovery, and
//# the loss recovery phase MUST be terminated.
//= https://www.rfc-editor.org/rfc/rfc6675#section-5
//= type=test
//# Upon receipt of an ACK that does not cover RecoveryPoint, the following actions MUST be taken:
//= https://www.rfc-editor.org/rfc/rfc6675#section-5
//= type=test
//# The scoreboard MUST be queried via NextSeg () for the sequence number range of the next segment to transmit (if
//# any), and the given segment sent.
//= https://www.rfc-editor.org/rfc/rfc6675#section-5
//= type=test
//# If any of the data octets sent in (C.1) are below HighData, HighRxt MUST be set to the highest sequence number of
//# the retransmitted segment unless NextSeg () rule (4) was invoked for this retransmission.
#[test]
fn sack_fills_exactly_the_holes() {
    let mut t = with_sack();
    t.send(10_000);
    t.take();
    // 1, 3 and 5 of ten are lost.
    t.inject(peer(".").ack(1).sack(&[(1001, 2001)]));
    t.inject(peer(".").ack(1).sack(&[(3001, 4001), (1001, 2001)]));
    assert_eq!(ranges(&mut t), [""; 0]);
    t.inject(peer(".").ack(1).sack(&[(5001, 6001), (3001, 4001), (1001, 2001)]));
    assert_eq!(ranges(&mut t), ["1:1001"]);
    t.inject(peer(".").ack(1).sack(&[(5001, 8001), (3001, 4001), (1001, 2001)]));
    // Three segments are SACKed above both other holes now, and the pipe has room for two.
    assert_eq!(ranges(&mut t), ["2001:3001", "4001:5001"]);
    t.inject(peer(".").ack(1).sack(&[(5001, 10_001), (3001, 4001), (1001, 2001)]));
    assert_eq!(ranges(&mut t), [""; 0]);
    t.inject(peer(".").ack(10_001));
    let status = t.us.status();
    assert_eq!((status.recovering, status.unacknowledged, status.cwnd), (false, 0, 5000));
    assert_eq!(t.us.count(Counter::Retransmits), 3);
}

/// Segments sent within a part of the smoothed round trip must still be distinguished by the least one: else an
/// arriving retransmission hides the losses of all segments sent in that time, and they wait for an equally long
/// time-out.
//= https://www.rfc-editor.org/rfc/rfc8985#section-4
//= type=test
//# For each data segment sent, the sender MUST store its most recent transmission time with a timestamp whose
//# granularity is finer than 1/4 of the minimum RTT of the connection.
#[test]
fn a_loss_shows_though_a_round_trip_was_long_once() {
    let mut t = Script::connected_over(setup(), ms(900), Peer::sack_permitted);
    t.send(3000);
    t.take();
    t.pass(ms(1));
    t.inject(peer(".").ack(3001));
    t.send(30_000);
    assert_eq!(t.take().len(), 10);
    t.pass(ms(1));
    // The first is lost, and the eighth.
    t.inject(peer(".").ack(3001).sack(&[(4001, 7001)]));
    assert_eq!(ranges(&mut t), ["3001:4001"]);
    t.inject(peer(".").ack(3001).sack(&[(4001, 10_001)]));
    assert_eq!(ranges(&mut t), ["13001:14001"], "in the same millisecond as the retransmission");
    t.pass(ms(1));
    t.inject(peer(".").ack(10_001).sack(&[(11_001, 13_001)]));
    assert_eq!(ranges(&mut t)[0], "10001:11001");
}

#[test]
fn one_ack_with_enough_sacked_bytes_is_enough() {
    let mut t = with_sack();
    t.send(10_000);
    t.take();
    t.inject(peer(".").ack(1).sack(&[(1001, 10_001)]));
    assert_eq!(ranges(&mut t), ["1:1001"], "RFC 6675: lost by bytes, not by the count of acknowledgements");
}

#[test]
fn sack_blocks_that_say_nothing_new_or_nonsense_change_nothing() {
    let mut t = with_sack();
    t.send(10_000);
    t.take();
    for _ in 0..10 {
        t.inject(peer(".").ack(1).sack(&[(1001, 2001)]));
        t.inject(peer(".").ack(1).sack(&[(90_001, 95_001)]));
        t.inject(peer(".").ack(1).sack(&[(5001, 2001)]));
    }
    assert_eq!(ranges(&mut t), [""; 0]);
    assert!(!t.us.status().recovering);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
//= type=test
//# A TCP endpoint MUST implement the basic congestion control algorithms slow start, congestion avoidance, and
//# exponential backoff of RTO to avoid creating congestion collapse conditions (MUST-19).
#[test]
fn a_lost_tail_is_rescued_by_the_timer() {
    let mut t = without_sack();
    t.send(3000);
    t.take();
    assert_eq!(t.until_sent(ms(10_000)), Some(ms(200)));
    assert_eq!(ranges(&mut t), ["1:1001"]);
    assert_eq!(t.us.status().cwnd, 1000);
    t.inject(peer(".").ack(1001));
    assert_eq!(ranges(&mut t), ["1001:2001", "2001:3001"], "slow start over what was lost");
    t.inject(peer(".").ack(3001));
    assert!(!t.us.status().recovering);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
//= type=test
//# A TCP endpoint MUST implement the basic congestion control algorithms slow start, congestion avoidance, and
//# exponential backoff of RTO to avoid creating congestion collapse conditions (MUST-19).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# The following procedure MUST be used to handle excessive retransmissions of data segments (MUST-20):
//= https://www.rfc-editor.org/rfc/rfc6298#section-5
//= type=test
//# The host MUST set RTO <- RTO * 2 ("back off the timer").
#[test]
fn time_outs_back_off_and_give_up() {
    let mut setup = setup();
    setup.config.retries = 5;
    setup.config.reset_on_timeout = true;
    let mut t = Script::connected(setup, |syn| syn);
    t.send(500);
    t.take();
    for gap in [200, 400, 800, 1600, 3200] {
        assert_eq!(t.until_sent(ms(100_000)), Some(ms(gap)));
        assert_eq!(ranges(&mut t), ["1:501"]);
    }
    assert_eq!(t.until_sent(ms(100_000)), Some(ms(6400)));
    assert!(t.take()[0].starts_with("R."));
    assert_eq!(t.us.status().error, Some(Error::TimedOut));
    assert_eq!(t.us.count(Counter::ConnectionsTimedOut), 1);
}

#[test]
fn a_user_timeout_ends_it_earlier() {
    let mut setup = setup();
    setup.options.user_timeout = Some(ms(1000));
    let mut t = Script::connected(setup, |syn| syn);
    t.send(500);
    t.pass(ms(2000));
    assert_eq!(t.us.status().error, Some(Error::TimedOut));
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.1
//= type=test
//# The RTO MUST be computed according to the algorithm in [10], including Karn's algorithm for taking RTT samples
//# (MUST-18).
//= https://www.rfc-editor.org/rfc/rfc6298#section-3
//= type=test
//# TCP MUST use Karn's algorithm [KP87] for taking RTT samples.
//= https://www.rfc-editor.org/rfc/rfc6298#section-3
//= type=test
//# That is, RTT samples MUST NOT be made using segments that were retransmitted (and thus for which it is ambiguous
//# whether the reply was for the first instance of the packet or a later instance).
#[test]
fn karn_no_sample_from_what_was_sent_twice() {
    let mut t = without_sack();
    t.pass(ms(20));
    t.send(500);
    let before = t.us.status().srtt;
    t.pass(ms(250));
    t.inject(peer(".").ack(501));
    let status = t.us.status();
    assert_eq!(status.srtt, before);
    assert_eq!(status.rto, ms(400), "the backed-off time-out stays until there is a sample");
    t.send(500);
    t.pass(ms(50));
    t.inject(peer(".").ack(1001));
    assert_eq!(t.us.count(Counter::RttSamples), 1);
    assert!(t.us.status().rto < ms(400));
}

#[test]
fn with_timestamps_what_was_sent_twice_gives_a_sample() {
    let mut t = Script::connected(setup(), |syn| syn.ts(1, 1000));
    t.send(500);
    t.pass(ms(250));
    t.take();
    // The echo is that of the second transmission, at 1200 ms.
    t.inject(peer(".").ts(2, 1200).ack(501));
    assert_eq!(t.us.count(Counter::RttSamples), 1);
    assert!(t.us.status().rto < ms(400));
}

#[test]
fn after_a_time_out_sacked_data_is_not_sent_again() {
    let mut t = with_sack();
    t.send(8000);
    t.take();
    t.pass(ms(2));
    assert_eq!(ranges(&mut t), ["7001:8001"], "a tail loss probe");
    t.pass(ms(200));
    assert_eq!(ranges(&mut t), ["1:1001"]);
    // All but the first two had arrived.
    t.inject(peer(".").ack(1001).sack(&[(2001, 8001)]));
    assert_eq!(ranges(&mut t), ["1001:2001"]);
    t.inject(peer(".").ack(8001));
    assert_eq!(t.us.count(Counter::Retransmits), 3);
}

//= https://www.rfc-editor.org/rfc/rfc6675#section-4
//= type=test
//# SACK information is advisory and therefore SACKed data MUST NOT be removed from the TCP's retransmission buffer
//# until the data is cumulatively acknowledged [RFC2018].
#[test]
fn a_reneging_peer_gets_everything_again() {
    let mut t = with_sack();
    t.send(4000);
    t.take();
    t.inject(peer(".").ack(1).sack(&[(1001, 4001)]));
    assert_eq!(ranges(&mut t), ["1:1001"]);
    // The peer then discards its data.
    t.inject(peer(".").ack(1001));
    let mut sent = Vec::new();
    for _ in 0..6 {
        t.pass(ms(2000));
        sent.extend(ranges(&mut t));
        let end = sent.iter().filter_map(|range| range.split(':').nth(1)?.parse().ok()).max().unwrap_or(1001);
        t.inject(peer(".").ack(end));
    }
    assert_eq!(t.us.status().unacknowledged, 0);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
//= type=test
//# An endpoint MAY implement such alternative algorithms provided that the algorithms are conformant with the TCP
//# specifications from the IETF Standards Track as described in RFC 2914, RFC 5033 [7], and RFC 8961 [15] (MAY-18).
//= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
//= type=test
//# In the case of packet loss, the sender MUST reduce _cwnd_ and _ssthresh_ immediately upon entering loss recovery,
//# similar to [RFC5681] (and [RFC6675]).
#[test]
fn cubic_cuts_to_seven_tenths() {
    let mut cubic = setup();
    cubic.config.congestion = Kind::Cubic;
    let mut t = Script::connected(cubic, |syn| syn);
    t.send(10_000);
    for _ in 0..3 {
        t.inject(peer(".").ack(1));
    }
    assert_eq!(t.us.status().ssthresh, 7000);
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut t = without_sack();
    t.send(100);
    t.run(tcp::Close);
    assert_eq!(t.take(), ["P. 1:101(100) ack 1 win 65535", "F. 101:101(0) ack 1 win 65535"]);
    t.inject(peer(".").ack(101));
    t.pass(ms(200));
    assert_eq!(t.take(), ["F. 101:101(0) ack 1 win 65535"]);
}

//= https://www.rfc-editor.org/rfc/rfc6298#section-5
//= type=test
//# An implementation MUST manage the retransmission timer(s) in such a way that a segment is never retransmitted too
//# early, i.e., less than one RTO after the previous transmission of that segment.
#[test]
fn the_timer_is_restarted_by_progress_and_stopped_at_the_end() {
    let mut t = without_sack();
    t.send(3000);
    t.take();
    t.pass(ms(150));
    t.inject(peer(".").ack(1001));
    t.pass(ms(190));
    assert_eq!(ranges(&mut t), [""; 0], "200 ms count from the last progress");
    t.inject(peer(".").ack(3001));
    assert_eq!(t.until_sent(ms(100_000)), None);
    assert_eq!(t.us.count(Counter::Timeouts), 0);
}

#[test]
fn the_acknowledgement_that_ends_a_time_out_opens_the_window_by_one_segment() {
    let mut t = without_sack();
    t.send(10_000);
    t.take();
    assert_eq!(t.until_sent(ms(1000)), Some(ms(200)));
    t.inject(peer(".").ack(10_001));
    let status = t.us.status();
    assert_eq!((status.recovering, status.cwnd, status.ssthresh), (false, 2000, 5000), "no burst");
}

#[test]
fn the_tail_is_sent_again_after_an_rto_that_has_shrunk() {
    let mut t = Script::new(setup());
    t.us.open(t.now);
    t.pass(ms(900));
    t.inject(peer("S.").seq(0).win(60_000).mss(1000));
    // The wake requested for the SYN is over.
    t.pass(ms(150));
    t.take();
    let mut sent = 1;
    for _ in 0..10 {
        sent += t.send(1000) as u32;
        t.pass(ms(1));
        t.inject(peer(".").ack(sent));
    }
    t.send(2000);
    let before = t.us.status().rto;
    t.pass(ms(1));
    t.take();
    t.inject(peer(".").ack(sent + 1000));
    let rto = t.us.status().rto;
    assert!(ms(250) < rto && rto + ms(10) < before, "from {before:?} to {rto:?}");
    assert_eq!(t.until_sent(ms(10_000)), Some(rto));
}

#[test]
fn a_peer_that_talks_but_never_acknowledges_is_given_up() {
    let mut setup = setup();
    setup.config.retries = 4;
    let mut t = Script::connected(setup, |syn| syn);
    t.send(500);
    for i in 0..40 {
        t.pass(ms(200));
        t.inject(peer(".").seq(1 + 10 * i).ack(1).len(10));
    }
    assert_eq!(t.us.status().error, Some(Error::TimedOut));
}

#[test]
fn without_sack_duplicates_of_the_recovery_point_start_no_second_recovery() {
    let mut t = without_sack();
    t.send(30_000);
    (0..3).for_each(|_| t.inject(peer(".").ack(1)));
    assert_eq!(t.us.count(Counter::FastRetransmits), 1);
    let recover = 12_001;
    t.inject(peer(".").ack(recover));
    assert!(!t.us.status().recovering);
    // Answers to spurious retransmissions: they must not count as a loss (RFC 6582 section 3.2 step 2).
    (0..4).for_each(|_| t.inject(peer(".").ack(recover)));
    assert_eq!(t.us.count(Counter::FastRetransmits), 1);
    t.inject(peer(".").ack(recover + 1000));
    (0..3).for_each(|_| t.inject(peer(".").ack(recover + 1000)));
    assert_eq!(t.us.count(Counter::FastRetransmits), 2);
}

//= https://www.rfc-editor.org/rfc/rfc6675#section-5
//= type=test
//# If the incoming ACK is a duplicate acknowledgment per the definition in Section 2 (regardless of its status as a
//# cumulative acknowledgment), and the TCP is not currently in loss recovery, the TCP MUST increase DupAcks by one and
//# take the following steps:
#[test]
fn with_sack_an_acknowledgement_that_sacks_more_counts_even_if_it_advances() {
    // RFC 6675 section 2: newly SACKed data makes the duplicate, whatever the acknowledgement number.
    let mut t = with_sack();
    t.send(10_000);
    t.take();
    t.inject(peer(".").ack(1001).sack(&[(2001, 2101)]));
    t.inject(peer(".").ack(1001).sack(&[(2001, 2201)]));
    assert!(!t.us.status().recovering);
    t.inject(peer(".").ack(1001).sack(&[(2001, 2301)]));
    assert!(t.us.status().recovering);
}

//= https://www.rfc-editor.org/rfc/rfc6675#section-5
//= type=test
//# If the incoming ACK is a cumulative acknowledgment, the TCP MUST reset DupAcks to zero.
#[test]
fn an_acknowledgement_that_advances_begins_the_count_of_duplicates_anew() {
    // With SACK such an advance shows reordering, after which the count decides nothing.
    let mut t = without_sack();
    t.send(10_000);
    t.take();
    (0..2).for_each(|_| t.inject(peer(".").ack(1)));
    t.inject(peer(".").ack(2001));
    (0..2).for_each(|_| t.inject(peer(".").ack(2001)));
    assert!(!t.us.status().recovering, "two of the four were before the advance");
    t.inject(peer(".").ack(2001));
    assert!(t.us.status().recovering);
}

//= https://www.rfc-editor.org/rfc/rfc6675#section-5.1
//= type=test
//# If an RTO occurs during loss recovery as specified in this document, RecoveryPoint MUST be set to HighData.
//= https://www.rfc-editor.org/rfc/rfc6675#section-5.1
//= type=test
//# Further, the new value of RecoveryPoint MUST be preserved and the loss recovery algorithm outlined in this document
//# MUST be terminated.
//= https://www.rfc-editor.org/rfc/rfc6675#section-5.1
//= type=test
//# a new recovery phase (as described in Section 5) MUST NOT be initiated until HighACK is greater than or equal to the
//# new value of RecoveryPoint.
#[test]
fn after_a_time_out_no_recovery_begins_before_all_that_was_out_is_acknowledged() {
    let mut t = with_sack();
    // Otherwise the arriving data would show that the time-out was spurious.
    t.us.setup.config.frto = 0;
    t.send(20_000);
    t.take();
    t.pass(ms(300));
    assert_eq!((t.us.count(Counter::Timeouts), t.us.status().recovery), (1, tcp::RecoveryState::Loss));
    t.take();
    // 11 segments are out, the probe included; duplicates below the recovery point are no new loss.
    let cut = t.us.status().ssthresh;
    for right in [4001, 5001, 6001, 7001] {
        t.inject(peer(".").ack(2001).sack(&[(3001, right)]));
    }
    t.inject(peer(".").ack(9001).sack(&[(10_001, 11_001)]));
    let status = t.us.status();
    assert_eq!((status.recovery, status.ssthresh), (tcp::RecoveryState::Loss, cut));
    assert_eq!((t.us.count(Counter::FastRetransmits), t.us.count(Counter::CongestionEvents)), (0, 1));
    t.inject(peer(".").ack(11_001));
    assert!(!t.us.status().recovering);
    // From there on a loss is a loss again.
    let new = t.ranges().len();
    t.send(10_000);
    let first = 11_001 + 1000;
    assert!(new + t.ranges().len() >= 2);
    t.inject(peer(".").ack(first - 1000).sack(&[(first, first + 1000)]));
    t.pass(ms(50));
    assert_eq!(t.us.count(Counter::FastRetransmits), 1);
}

//= https://www.rfc-editor.org/rfc/rfc6298#section-3
//= type=test
//# A TCP implementation MUST take at least one RTT measurement per RTT (unless that is not possible per Karn's
//# algorithm).
#[test]
fn every_round_trip_gives_a_sample() {
    let mut t = Script::connected_over(setup(), ms(100), |syn| syn);
    let mut acked = 1;
    for round in 1..=12 {
        t.send(30_000);
        let sent = t.take().len() as u32;
        t.pass(ms(100));
        for _ in 0..sent {
            acked += 1000;
            t.inject(peer(".").ack(acked));
        }
        assert!(t.us.count(Counter::RttSamples) >= round, "after {round} round trips");
    }
}

/// RFC 9438 section 4.6 lets CUBIC start from either; RFC 5681 does not.
#[test]
fn a_loss_leaves_a_share_of_the_window_or_of_what_is_in_flight() {
    for (kind, cuts_window, left) in
        [(Kind::Cubic, true, 7000), (Kind::Cubic, false, 2000), (Kind::NewReno, true, 2000)]
    {
        let mut setup = Setup::default();
        (setup.config.congestion, setup.config.cubic_cuts_window) = (kind, cuts_window);
        let mut t = Script::connected_over(setup, ms(100), |peer| peer);
        t.send(1000);
        t.take();
        assert_eq!(t.until_sent(ms(1000)), Some(ms(300)));
        assert_eq!((t.us.status().cwnd, t.us.status().ssthresh), (1000, left), "{kind}, {cuts_window}");
    }
}

/// One sample per round trip: an acknowledgement after it whose data was not timed is none, whatever it echoes (RFC 7323
/// section 4 has the echo for each; its appendix G warns of what that does to the estimate). After a fast retransmission
/// without SACK the echo alone tells which transmission has arrived.
#[test]
fn the_echo_is_a_sample_only_after_a_retransmission() {
    let mut t = Script::connected(setup(), |syn| syn.ts(1, 1000));
    t.send(5000);
    t.take();
    t.pass(ms(20));
    t.inject(peer(".").ts(2, 1000).ack(1001));
    t.inject(peer(".").ts(2, 1000).ack(2001));
    assert_eq!(t.us.count(Counter::RttSamples), 1, "the first segment was timed, and no other");
    for _ in 0..3 {
        t.inject(peer(".").ts(2, 1000).ack(2001));
    }
    assert_eq!(t.us.count(Counter::FastRetransmits), 1);
    t.pass(ms(20));
    t.inject(peer(".").ts(3, 1020).ack(3001));
    assert_eq!(t.us.count(Counter::RttSamples), 2, "the echo is of the second transmission");
}

//= https://www.rfc-editor.org/rfc/rfc6675#section-5
//= type=test
//# Upon the receipt of any ACK containing SACK information, the scoreboard MUST be updated via the Update () routine.
#[test]
fn blocks_of_an_overtaken_acknowledgement_are_taken() {
    let mut t = with_sack();
    t.send(5000);
    t.take();
    t.inject(peer(".").ack(2001));
    assert_eq!(t.us.status().recovery, tcp::RecoveryState::Open);
    // Sent before the one above, when the first segment had not arrived.
    t.inject(peer(".").ack(1).sack(&[(1001, 2001), (3001, 4001)]));
    let status = t.us.status();
    assert_eq!((status.recovery, status.sacked), (tcp::RecoveryState::Disorder, 1000));
    t.inject(peer(".").ack(5001));
    assert_eq!(t.us.status().sacked, 0);
}

/// RFC 5681 section 2: an acknowledgement is a duplicate only if its receiver has outstanding data. The peer's blocks were
/// not agreed on.
#[test]
fn without_outstanding_data_nothing_is_a_duplicate() {
    let mut t = without_sack();
    t.send(1000);
    t.take();
    t.inject(peer(".").ack(1001));
    for _ in 0..4 {
        t.inject(peer(".").ack(1001).sack(&[(1, 501)]));
    }
    assert_eq!((t.us.count(Counter::DupAcksIn), t.us.status().recovery), (0, tcp::RecoveryState::Open));
    t.send(5000);
    t.take();
    t.inject(peer(".").ack(1001).sack(&[(1, 501)]));
    assert_eq!(t.us.count(Counter::DupAcksIn), 1);
}

/// Bytes that were SACKed before do not count as outstanding at the acknowledgement that covers them: a window of which
/// less than half was used does not open.
#[test]
fn a_window_that_is_not_used_does_not_open_for_bytes_that_were_known() {
    let mut t = with_sack();
    t.send(6000);
    t.take();
    let before = t.us.status().cwnd;
    assert_eq!(before, 10_000);
    t.inject(peer(".").ack(1).sack(&[(4001, 6001)]));
    t.take();
    t.inject(peer(".").ack(6001));
    let status = t.us.status();
    assert_eq!((status.cwnd, status.recovery), (before, tcp::RecoveryState::Open));
}
