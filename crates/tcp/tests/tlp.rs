//! Tail loss probes (RFC 8985 section 7). The path takes 100 ms: a probe is due after 202 ms, the first RTO is 300 ms.

mod support;

use observe::Counter;
use support::endpoint::Setup;
use support::ms;
use support::script::{Peer, Script, peer};
use tcp::RecoveryState;
use tcp::congestion::Kind;

fn setup() -> Setup {
    let mut setup = Setup::default();
    setup.config.congestion = Kind::NewReno;
    setup
}

fn connected() -> Script {
    Script::connected_over(setup(), ms(100), Peer::sack_permitted)
}

//= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
//= type=test
//# The sender MUST follow the RACK transmission procedures in the "Upon Transmitting a Data Segment" section upon
//# sending either a retransmission or a new data loss probe.
#[test]
fn a_lost_tail_is_probed_after_two_round_trips_and_repaired_without_a_time_out() {
    let mut t = connected();
    t.send(5000);
    t.take();
    t.pass(ms(100));
    t.inject(peer(".").ack(2001));
    // The last three are lost.
    let waited = t.until_sent(ms(1000)).unwrap();
    assert!(ms(200) <= waited && waited <= ms(203), "{waited:?}");
    assert_eq!(t.ranges(), ["4001:5001"], "the end of the flight");
    assert_eq!(t.us.count(Counter::TailLossProbes), 1);
    t.pass(ms(100));
    t.inject(peer(".").ack(2001).sack(&[(4001, 5001)]));
    t.pass(ms(30));
    assert_eq!(t.ranges(), ["2001:3001"], "one segment arrived, one leaves");
    t.pass(ms(100));
    t.inject(peer(".").ack(3001).sack(&[(4001, 5001)]));
    assert_eq!(t.ranges(), ["3001:4001"]);
    t.pass(ms(100));
    t.inject(peer(".").ack(5001));
    let status = t.us.status();
    assert_eq!((status.recovery, status.unacknowledged), (RecoveryState::Open, 0));
    assert_eq!((t.us.count(Counter::Timeouts), t.us.count(Counter::Retransmits)), (0, 3));
}

//= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
//= type=test
//# After attempting to send a loss probe, regardless of whether a loss probe was sent, the sender MUST re-arm the RTO
//# timer, not the PTO timer, if the FlightSize is not zero.
#[test]
fn a_segment_alone_waits_for_a_delayed_acknowledgement_but_not_beyond_the_rto() {
    let mut t = connected();
    t.send(500);
    t.take();
    assert_eq!(t.until_sent(ms(1000)), Some(ms(300)));
    assert_eq!(t.ranges(), ["1:501"]);
    assert_eq!((t.us.count(Counter::TailLossProbes), t.us.count(Counter::Timeouts)), (1, 0));
    // One probe only; the time-out follows with its full length.
    assert_eq!(t.until_sent(ms(1000)), Some(ms(300)));
    assert_eq!((t.us.count(Counter::TailLossProbes), t.us.count(Counter::Timeouts)), (1, 1));
}

#[test]
fn new_data_is_the_better_probe_and_may_exceed_the_window() {
    let mut t = connected();
    t.send(15_000);
    assert_eq!(t.ranges().len(), 10);
    assert_eq!(t.until_sent(ms(1000)), Some(ms(202)));
    assert_eq!(t.ranges(), ["10001:11001"]);
    t.inject(peer(".").ack(11_001));
    assert_eq!(t.us.status().recovery, RecoveryState::Open);
    assert_eq!((t.us.count(Counter::Retransmits), t.us.count(Counter::CongestionEvents)), (0, 0));
}

//= https://www.rfc-editor.org/rfc/rfc8985#section-7.4.2
//= type=test
//# If the TLP sender does not receive such an indication, then it MUST assume that the original data segment, the TLP
//# retransmission, or a corresponding ACK was lost for congestion control purposes.
#[test]
fn a_probe_that_repaired_a_loss_is_paid_for_and_a_needless_one_is_not() {
    for needless in [false, true] {
        let mut t = connected();
        t.send(3000);
        t.take();
        t.pass(ms(202));
        assert_eq!(t.ranges(), ["2001:3001"]);
        t.pass(ms(50));
        t.inject(peer(".").ack(3001));
        if needless {
            t.inject(peer(".").ack(3001).sack(&[(2001, 3001)]));
        }
        t.send(1000);
        t.take();
        t.pass(ms(100));
        t.inject(peer(".").ack(4001));
        let cuts = u64::from(!needless);
        assert_eq!(t.us.count(Counter::CongestionEvents), cuts, "needless: {needless}");
        assert_eq!(t.us.status().recovery, RecoveryState::Open);
        assert_eq!(t.us.count(Counter::SpuriousRetransmits), 1 - cuts);
    }
}

#[test]
fn what_leaves_later_has_its_own_two_round_trips() {
    let mut t = connected();
    t.send(2000);
    t.pass(ms(60));
    t.send(1000);
    t.take();
    assert_eq!(t.until_sent(ms(1000)), Some(ms(202)), "counted from the last transmission");
}

//= https://www.rfc-editor.org/rfc/rfc8985#section-4
//= type=test
//# The connection MUST use selective acknowledgment (SACK) options [RFC2018], and the sender MUST keep SACK scoreboard
//# information on a per-connection basis ("SACK scoreboard" has the same meaning here as in [RFC6675], Section 3).
#[test]
fn without_sack_there_is_no_probe() {
    let mut t = Script::connected_over(setup(), ms(100), |syn| syn);
    t.send(3000);
    t.take();
    assert_eq!(t.until_sent(ms(1000)), Some(ms(300)));
    assert_eq!((t.us.count(Counter::TailLossProbes), t.us.count(Counter::Timeouts)), (0, 1));
}

#[test]
fn a_fin_alone_is_probed_too() {
    let mut t = connected();
    t.send(100);
    t.take();
    t.pass(ms(100));
    t.inject(peer(".").ack(101));
    t.run(tcp::Close);
    assert_eq!(t.ranges(), ["101:101"]);
    assert!(t.until_sent(ms(1000)).is_some());
    assert!(t.take()[0].starts_with("F."));
    assert_eq!(t.us.count(Counter::TailLossProbes), 1);
}

//= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
//= type=test
//# When the PTO timer expires, the sender MUST check whether both of the following conditions are met before sending a
//# loss probe:
//= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
//= type=test
//# If either one of these two conditions is not met, then the sender MUST skip sending a loss probe and MUST proceed to
//# re-arm the RTO timer, as specified at the end of this section.
#[test]
fn a_probe_needs_a_round_trip_measured_since_the_one_before() {
    for measured in [true, false] {
        let mut t = connected();
        t.send(2000);
        t.pass(ms(202));
        // The end of the flight was sent twice: the acknowledgement is no sample (Karn).
        assert_eq!(t.ranges().last().map(String::as_str), Some("1001:2001"));
        t.inject(peer(".").ack(2001));
        t.inject(peer(".").ack(2001).sack(&[(1001, 2001)]));
        assert_eq!(t.us.status().recovery, RecoveryState::Open);
        let mut una = 2001;
        if measured {
            t.send(1000);
            t.pass(ms(100));
            una += 1000;
            t.inject(peer(".").ack(una));
        }
        t.take();
        t.send(2000);
        t.take();
        let waited = t.until_sent(ms(1000)).expect("a probe or a time-out");
        if measured {
            assert_eq!(t.ranges(), [format!("{}:{}", una + 1000, una + 2000)]);
            assert!(waited < ms(210), "{waited:?}");
        } else {
            assert_eq!((waited, t.ranges()), (ms(300), vec![format!("{una}:{}", una + 1000)]));
        }
        assert_eq!(t.us.count(Counter::TailLossProbes), 1 + u64::from(measured));
    }
}

#[test]
fn probes_can_be_switched_off() {
    let mut setup = Setup::default();
    tcp::knobs::assign(&mut setup.config, "tcp_early_retrans=0").expect("a knob");
    let mut t = Script::connected_over(setup, ms(100), Peer::sack_permitted);
    t.send(2000);
    t.take();
    assert_eq!(t.until_sent(ms(1000)), Some(ms(300)));
    assert_eq!((t.us.count(Counter::TailLossProbes), t.us.count(Counter::Timeouts)), (0, 1));
}

/// A thread that runs its timer late also processes arrivals late: the probe waits for two more round trips.
#[test]
fn a_late_thread_looks_at_what_has_arrived_before_a_probe() {
    let mut t = Script::connected_over(setup(), ms(10), Peer::sack_permitted);
    t.send(4000);
    t.take();
    // The probe was due after 22 ms.
    t.now += ms(40);
    t.us.tick(t.now);
    assert_eq!(t.ranges(), [""; 0]);
    t.inject(peer(".").ack(2001));
    t.take();
    // Late again: the delay is limited to a time-out.
    let mut late = 0;
    while t.us.sent.is_empty() {
        late += 40;
        t.now += ms(40);
        t.us.tick(t.now);
    }
    assert_eq!(t.ranges(), ["3001:4001"]);
    assert!((120..240).contains(&late), "after {late} ms");
    assert_eq!((t.us.count(Counter::TailLossProbes), t.us.count(Counter::Timeouts)), (1, 0));
}
