//! Reductions of the congestion window that are taken back: Eifel (RFC 3522, 4015) and D-SACK (RFC 2883, 3708).

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

/// Our timestamp clock reads 1100 ms when the connection is open; text leaves then, and is answered at 1200 ms.
#[test]
fn an_echo_from_before_the_retransmission_takes_the_cut_back() {
    for kind in Kind::ALL {
        let mut t = over(kind, stamped);
        t.send(9880);
        assert_eq!(t.ranges().len(), 10);
        t.pass(ms(100));
        t.inject(peer(".").ack(1).ts(2, 1100).sack(&[(989, 3953)]));
        assert_eq!(t.ranges(), ["1:989"]);
        let cut = t.us.status();
        assert!(cut.recovering && cut.ssthresh < 10_000);
        t.pass(ms(5));
        // The first segment was only late: its own timestamp comes back.
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

/// The echo of a timestamp that was never sent, as a stale or forged segment brings it, is no age and no trouble.
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
