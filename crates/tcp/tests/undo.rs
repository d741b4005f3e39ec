//! Undone reductions of the congestion window: Eifel (RFC 3522, 4015) and D-SACK (RFC 2883, 3708).

mod support;

use observe::Counter;
use support::endpoint::Setup;
use support::ms;
use support::script::{Peer, Script, peer};
use tcp::RecoveryState;
use tcp::congestion::Kind;

fn over(kind: Kind, options: impl Fn(Peer) -> Peer) -> Script {
    let mut setup = Setup::default();
    setup.config.congestion = kind;
    Script::connected_over(setup, ms(100), options)
}

fn stamped(syn: Peer) -> Peer {
    syn.sack_permitted().ts(1, 1000)
}

/// Our timestamp clock reads 1100 ms when the connection opens; data is sent then, and answered at 1200 ms.
#[test]
fn an_echo_from_before_the_retransmission_takes_the_cut_back() {
    for &kind in Kind::ALL {
        let mut t = over(kind, stamped);
        t.send(9880);
        assert_eq!(t.ranges().len(), 10);
        t.pass(ms(100));
        t.inject(peer(".").ack(1).ts(2, 1100).sack(&[(989, 3953)]));
        assert_eq!(t.ranges(), ["1:989"]);
        let cut = t.us.status();
        assert!(cut.recovering && cut.ssthresh < 10_000);
        t.pass(ms(5));
        // The first segment was only late: its own timestamp is echoed.
        t.inject(peer(".").ack(3953).ts(3, 1100));
        let status = t.us.status();
        assert_eq!(status.recovery, RecoveryState::Open, "{kind}");
        assert!(status.cwnd >= 9880 && status.ssthresh > 1 << 29, "{status:?}");
        assert_eq!(t.us.count(Counter::UndoneReductions), 1);
    }
}

#[test]
fn an_echo_of_the_retransmission_takes_nothing_back() {
    let mut t = over(Kind::NewReno, stamped);
    t.send(9880);
    t.take();
    t.pass(ms(100));
    t.inject(peer(".").ack(1).ts(2, 1100).sack(&[(989, 3953)]));
    t.pass(ms(100));
    t.inject(peer(".").ack(9881).ts(3, 1200));
    let status = t.us.status();
    assert_eq!((status.recovery, status.cwnd), (RecoveryState::Open, 4940));
    assert_eq!(t.us.count(Counter::UndoneReductions), 0);
}

#[test]
fn a_time_out_that_was_premature_is_taken_back() {
    for options in [stamped as fn(Peer) -> Peer, |syn| syn.ts(1, 1000)] {
        let mut t = over(Kind::NewReno, options);
        t.send(9880);
        t.take();
        t.pass(ms(1200));
        assert!(t.us.count(Counter::Timeouts) >= 1);
        assert_eq!(t.us.status().recovery, RecoveryState::Loss);
        let again = t.us.count(Counter::Retransmits);
        // The path had become slow: the first acknowledgement is that of the first transmission.
        t.inject(peer(".").ack(989).ts(2, 1100));
        let status = t.us.status();
        assert!(!status.recovering && status.cwnd >= 9880, "{status:?}");
        t.inject(peer(".").ack(9881).ts(3, 1100));
        assert_eq!(t.us.count(Counter::Retransmits), again, "nothing else is sent again");
        assert_eq!(t.us.count(Counter::UndoneReductions), 1);
    }
}

/// Without timestamps: every retransmission is reported as a duplicate.
#[test]
fn d_sacks_for_all_that_was_sent_again_take_the_cut_back() {
    let mut t = over(Kind::NewReno, Peer::sack_permitted);
    t.send(10_000);
    t.take();
    t.pass(ms(100));
    t.inject(peer(".").ack(1).sack(&[(2001, 5001)]));
    assert_eq!(t.ranges(), ["1:1001"]);
    t.inject(peer(".").ack(1).sack(&[(2001, 7001)]));
    assert_eq!(t.ranges(), ["1001:2001"]);
    t.pass(ms(5));
    t.inject(peer(".").ack(10_001));
    assert_eq!(t.us.status().cwnd, 5000);
    t.pass(ms(95));
    t.inject(peer(".").ack(10_001).sack(&[(1, 1001)]));
    assert_eq!(t.us.status().cwnd, 5000, "the other one may have been needed");
    t.inject(peer(".").ack(10_001).sack(&[(1001, 2001)]));
    let status = t.us.status();
    assert_eq!((status.cwnd, status.duplicates_reported), (10_000, 2));
    assert_eq!((t.us.count(Counter::UndoneReductions), t.us.count(Counter::SpuriousRetransmits)), (1, 2));
    assert_eq!(t.us.count(Counter::DsacksIn), 2);
}

#[test]
fn duplicates_that_the_network_made_are_no_evidence() {
    let mut t = over(Kind::NewReno, Peer::sack_permitted);
    t.send(10_000);
    t.take();
    t.pass(ms(100));
    for _ in 0..5 {
        t.inject(peer(".").ack(5001).sack(&[(1, 1001)]));
    }
    assert_eq!((t.us.count(Counter::DsacksIn), t.us.count(Counter::SpuriousRetransmits)), (5, 0));
    assert_eq!(t.us.status().recovery, RecoveryState::Open);
}

/// The echo of a timestamp that was never sent, from a stale or forged segment, is ignored.
#[test]
fn an_echo_from_nowhere_is_ignored() {
    let mut t = Script::connected(Setup::default(), |syn| syn.sack_permitted().ts(700, 1000));
    t.send(5000);
    t.take();
    for echo in [0, 1 << 31, u32::MAX, 0x7fff_ffff] {
        t.inject(peer(".").seq(1).ack(1).ts(701, echo).sack(&[(1449, 2897)]));
        t.inject(peer(".").seq(1).ack(1).ts(702, echo).sack(&[(2897, 4345), (1449, 2897)]));
    }
    assert_eq!(t.state(), tcp::State::Established);
}

/// Twenty segments of data, ten of them out, and then a time-out.
fn timed_out(frto: u8, options: impl Fn(Peer) -> Peer) -> Script {
    let mut setup = Setup::default();
    setup.config.congestion = Kind::NewReno;
    setup.config.frto = frto;
    setup.config.tail_loss_probe = false;
    let mut t = Script::connected_over(setup, ms(100), options);
    t.send(20_000);
    assert_eq!(t.ranges().len(), 10);
    assert_eq!(t.until_sent(ms(1000)), Some(ms(300)));
    assert_eq!(t.ranges(), ["1:1001"]);
    t
}

/// RFC 5682: after a spurious time-out only the first segment is sent twice, and the window is restored.
#[test]
fn new_data_after_a_time_out_shows_that_it_was_needless() {
    for options in [Peer::sack_permitted as fn(Peer) -> Peer, |syn| syn] {
        let mut t = timed_out(2, options);
        t.pass(ms(10));
        t.inject(peer(".").ack(1001));
        assert_eq!(t.ranges(), ["10001:11001", "11001:12001"]);
        t.pass(ms(10));
        t.inject(peer(".").ack(2001));
        let status = t.us.status();
        assert_eq!((status.recovery, t.us.count(Counter::UndoneReductions)), (RecoveryState::Open, 1));
        assert!(status.cwnd >= 10_000 && status.ssthresh > 1 << 29, "{status:?}");
        assert!(t.ranges().iter().all(|range| !range.starts_with("2001:")));
        assert_eq!(t.us.count(Counter::Retransmits), 1);
    }
}

#[test]
fn a_hole_behind_new_data_shows_that_the_time_out_was_needed() {
    let mut t = timed_out(2, Peer::sack_permitted);
    t.pass(ms(100));
    t.inject(peer(".").ack(1001));
    assert_eq!(t.ranges(), ["10001:11001", "11001:12001"]);
    t.pass(ms(100));
    t.inject(peer(".").ack(1001).sack(&[(10_001, 11_001)]));
    assert_eq!(t.ranges().first().map(String::as_str), Some("1001:2001"));
    let status = t.us.status();
    assert_eq!((status.recovery, t.us.count(Counter::UndoneReductions)), (RecoveryState::Loss, 0));
}

#[test]
fn a_time_out_is_not_doubted_without_leave_nor_without_new_data() {
    let mut t = timed_out(0, Peer::sack_permitted);
    t.inject(peer(".").ack(1001));
    assert_eq!(t.ranges(), ["1001:2001", "2001:3001"], "tcp_frto = 0");
    let mut t = timed_out(2, Peer::sack_permitted);
    t.inject(peer(".").ack(1001).win(9000));
    assert_eq!(t.ranges(), ["1001:2001", "2001:3001"], "the peer has no room for more");
}

/// Without SACK the first acknowledgement covers data that had arrived behind a real loss.
#[test]
fn what_one_retransmission_repairs_is_no_proof_without_sack() {
    let mut t = timed_out(2, |syn| syn);
    t.inject(peer(".").ack(4001));
    assert_eq!(t.us.status().recovery, RecoveryState::Loss);
    t.take();
    t.pass(ms(100));
    t.inject(peer(".").ack(4001));
    assert_eq!(t.ranges(), ["4001:5001"]);
    assert_eq!(t.us.count(Counter::UndoneReductions), 0);
}

/// Two recoveries in a row: a hole retransmitted by the first is filled after the second has retransmitted another one.
/// The acknowledgement echoes an earlier transmission, and proves nothing.
#[test]
fn an_echo_of_what_an_earlier_recovery_sent_takes_nothing_back() {
    let mut t = over(Kind::Cubic, stamped);
    t.send(40 * 988);
    assert_eq!(t.ranges().len(), 10);
    t.pass(ms(100));
    t.inject(peer(".").ack(1).ts(2, 1100).sack(&[(989, 9881)]));
    assert_eq!(t.ranges()[..5], ["1:989", "9881:10869", "10869:11857", "11857:12845", "12845:13833"]);
    // The first of the new ones is lost, and sent again in the same recovery.
    t.pass(ms(100));
    t.inject(peer(".").ack(1).ts(3, 1100).sack(&[(10869, 11857), (989, 9881)]));
    assert_eq!(t.ranges()[0], "9881:10869");
    let una = 9881;
    t.inject(peer(".").ack(una).ts(4, 1200).sack(&[(10869, 11857)]));
    let undone = t.us.count(Counter::UndoneReductions);
    assert!(t.us.status().recovering, "a second recovery");
    t.take();
    // Another one sent in between is lost, and is the first retransmission of the second recovery.
    t.pass(ms(50));
    t.inject(peer(".").ack(una).ts(5, 1200).sack(&[(12845, 15809), (10869, 11857)]));
    assert_eq!(t.ranges()[0], "11857:12845");
    t.pass(ms(50));
    t.inject(peer(".").ack(11857).ts(6, 1300).sack(&[(12845, 15809)]));
    assert_eq!(t.us.count(Counter::UndoneReductions), undone);
    assert!(t.us.status().recovering);
    assert!(!t.ranges().contains(&"11857:12845".to_string()), "it is under way");
}
