//! Proportional rate reduction (RFC 9937) as the wire shows it.

mod support;

use support::endpoint::Setup;
use support::ms;
use support::script::{Peer, Script, peer};
use tcp::congestion::Kind;

/// A window of 20 segments, all of them out, and their round trip over.
fn twenty_out() -> Script {
    let mut setup = Setup::default();
    setup.config.congestion = Kind::NewReno;
    setup.config.initial_window = 20;
    let mut t = Script::connected_over(setup, ms(100), Peer::sack_permitted);
    t.send(50_000);
    assert_eq!(t.ranges().len(), 20);
    t.pass(ms(100));
    t
}

//= https://www.rfc-editor.org/rfc/rfc9937#section-6.1
//= type=test
//# At the beginning of a congestion control response episode initiated by the congestion control algorithm, a data
//# sender using PRR MUST initialize the PRR state.
#[test]
fn one_loss_sends_one_segment_for_two_that_arrive_and_ends_at_the_threshold() {
    let mut t = twenty_out();
    let mut sent = 0;
    for i in 2..=19 {
        t.pass(ms(1));
        t.inject(peer(".").ack(1).sack(&[(1001, 1001 + 1000 * (i - 1))]));
        let now = t.ranges().len();
        assert!(now <= 2, "no burst: {now} segments at acknowledgement {i}");
        if i >= 4 {
            sent += now;
        }
    }
    let status = t.us.status();
    assert_eq!(status.ssthresh, 10_000);
    assert!((7..=9).contains(&sent), "{sent} segments for 16 delivered");
    t.pass(ms(100));
    t.inject(peer(".").ack(1 + status.unacknowledged));
    let status = t.us.status();
    assert!(!status.recovering && status.cwnd == 10_000, "{status:?}");
}

/// Heavy loss: the pipe is far below the threshold. Packets are conserved, and a safe acknowledgement adds a segment.
//= https://www.rfc-editor.org/rfc/rfc8985#section-9.3
//= type=test
//# A segment marked as lost by RACK-TLP MUST NOT be retransmitted until congestion control deems this appropriate.
//= https://www.rfc-editor.org/rfc/rfc9937#section-6.2
//= type=test
//# SACK-enabled connections using RACK-TLP loss detection [RFC8985] or other loss detection algorithms MUST calculate
//# inflight by starting with SND.NXT - SND.UNA, subtracting out bytes SACKed in the scoreboard, subtracting out bytes
//# marked lost in the scoreboard, and adding bytes in the scoreboard that have been retransmitted since they were last
//# marked lost.
#[test]
fn below_the_threshold_no_more_leaves_than_arrived_and_one_for_a_safe_acknowledgement() {
    let mut t = twenty_out();
    // 16 of 20 are lost, and nothing else is known.
    t.inject(peer(".").ack(1).sack(&[(16_001, 20_001)]));
    let first = t.ranges();
    assert_eq!(first, ["1:1001", "1001:2001", "2001:3001", "3001:4001"], "four arrived, four leave");
    t.pass(ms(100));
    t.inject(peer(".").ack(1001).sack(&[(16_001, 20_001)]));
    assert_eq!(t.ranges().len(), 2, "safe: slow start");
    t.inject(peer(".").ack(2001).sack(&[(16_001, 20_001)]));
    assert_eq!(t.ranges().len(), 2);
}

#[test]
fn the_end_of_recovery_lets_no_burst_out() {
    let mut setup = Setup::default();
    setup.config.congestion = Kind::NewReno;
    setup.config.initial_window = 60;
    let mut t = Script::connected_over(setup, ms(100), |syn| syn.sack_permitted().scale(4));
    t.inject(peer(".").ack(1).win(60_000));
    t.send(200_000);
    let out = t.ranges().len() as u32;
    assert_eq!(out, 60);
    t.pass(ms(100));
    // Everything but the first arrives, and then the retransmission: the flight is gone at once.
    t.inject(peer(".").ack(1).win(60_000).sack(&[(1001, 4001)]));
    assert_eq!(t.ranges()[0], "1:1001");
    t.pass(ms(100));
    t.us.sent.clear();
    t.inject(peer(".").ack(60_001).win(60_000));
    let burst = t.ranges().len();
    assert!(burst <= 10, "{burst} segments at once");
}
