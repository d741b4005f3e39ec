//! Status reports: counts and rates in `TCP_INFO`.

mod support;

use std::time::Duration;

use support::endpoint::Setup;
use support::ms;
use support::script::{Peer, Script, peer};
use tcp::config::Ecn;
use tcp::event::Status;
use tcp::{SetOption, SocketOption, TcpInfo};
use wire::tcp::TcpFlags;

fn connected() -> Script {
    let mut setup = Setup::default();
    setup.config.measure_limits = true;
    Script::connected_over(setup, ms(100), Peer::sack_permitted)
}

fn info(t: &mut Script) -> TcpInfo {
    TcpInfo::of(&t.run(Status))
}

#[test]
fn what_is_delivered_counts_when_it_is_sacked_and_what_is_lost_until_it_arrives() {
    let mut t = connected();
    assert_eq!(info(&mut t).delivered, 1, "the SYN");
    t.send(10_000);
    assert_eq!((info(&mut t).delivered, info(&mut t).bytes_sent), (1, 10_000));
    t.pass(ms(100));
    t.inject(peer(".").ack(1001).sack(&[(3001, 7001)]));
    assert_eq!(t.ranges().len(), 10 + 2);
    let report = info(&mut t);
    assert_eq!((report.delivered, report.sacked), (1 + 1 + 4, 4));
    assert_eq!((report.lost, report.retrans), (2, 2), "sent again, and still lost");
    assert_eq!((report.bytes_retrans, report.bytes_sent, report.total_retrans), (2000, 12_000, 2));
    t.pass(ms(100));
    t.inject(peer(".").ack(10_001));
    let report = info(&mut t);
    assert_eq!((report.delivered, report.lost, report.bytes_acked), (11, 0, 10_000));
    assert_eq!(report.total_rto, 0);
}

#[test]
fn time_outs_are_counted_by_recovery_and_timed_until_it_is_over() {
    let mut t = connected();
    t.send(1000);
    t.take();
    // The tail loss probe, and two time-outs.
    while info(&mut t).total_rto < 2 {
        t.until_sent(ms(10_000)).expect("a retransmission");
        t.take();
    }
    t.pass(ms(100));
    let report = info(&mut t);
    assert_eq!((report.total_rto_recoveries, report.retransmits), (1, 2));
    assert!(report.total_rto_time > 100);
    t.inject(peer(".").ack(1001));
    let spent = info(&mut t).total_rto_time;
    t.pass(ms(5000));
    let report = info(&mut t);
    assert_eq!((report.total_rto_time, report.total_rto, report.bytes_retrans), (spent, 2, 3000));
}

/// SYNs without an answer count as well.
#[test]
fn a_late_opening_is_a_recovery() {
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    t.pass(ms(3500));
    assert_eq!(t.take().len(), 3);
    t.inject(peer("S.").seq(0).mss(1000));
    let report = info(&mut t);
    assert_eq!((report.total_rto, report.total_rto_recoveries, report.total_retrans), (2, 1, 2));
    assert_eq!(report.total_rto_time, 2500, "since the first time-out");
}

#[test]
fn segments_out_of_order_are_counted_though_the_queue_is_empty_again() {
    let mut t = connected();
    t.inject(peer(".").seq(1001).len(1000));
    t.inject(peer(".").seq(2001).len(1000));
    t.inject(peer(".").seq(1).len(1000));
    t.inject(peer(".").seq(1).len(1000));
    let report = info(&mut t);
    assert_eq!((report.rcv_ooopack, report.data_segs_in), (2, 3));
}

#[test]
fn the_windows_are_those_that_were_last_announced() {
    let mut t = connected();
    let first = info(&mut t).rcv_wnd;
    t.inject(peer(".").win(1234).len(1000));
    t.take();
    let report = info(&mut t);
    assert_eq!(report.snd_wnd, 1234);
    assert!(report.rcv_wnd <= first && t.us.status().receive_window <= first);
}

#[test]
fn silence_is_told_to_a_millisecond() {
    let mut t = connected();
    t.pass(ms(1000));
    assert_eq!(info(&mut t).last_data_recv, 1000, "since the connection was established");
    t.inject(peer(".").len(10));
    for past in [1, 2, 50, 333, 100_000] {
        t.pass(Duration::from_millis(past));
    }
    assert_eq!(info(&mut t).last_data_recv, 100_386);
}

#[test]
fn the_rate_of_delivery_is_that_of_a_flight_and_the_users() {
    let mut t = connected();
    assert_eq!((info(&mut t).delivery_rate, info(&mut t).flags & 1), (0, 0));
    t.send(10_000);
    t.pass(ms(100));
    t.inject(peer(".").ack(10_001));
    let report = info(&mut t);
    assert_eq!((report.delivery_rate, report.flags & 1), (100_000, 1), "the user had no more");
    t.send(100_000);
    let mut una = 10_001;
    for _ in 0..2 {
        let flight = t.run(Status).unacknowledged;
        t.pass(ms(100));
        una += flight;
        t.inject(peer(".").ack(una));
        let report = info(&mut t);
        assert_eq!((report.delivery_rate, report.flags & 1), (u64::from(flight) * 10, 0));
    }
}

#[test]
fn ecn_is_seen_with_the_first_segment_that_is_capable() {
    let mut setup = Setup::default();
    setup.config.ecn = Ecn::Request;
    let mut t = Script::new(setup);
    t.us.open(t.now);
    let answer = peer("S.").seq(0).mss(1000);
    t.inject(Peer { flags: answer.flags | TcpFlags::ECE, ..answer });
    assert_eq!(info(&mut t).options & 24, 8);
    t.inject(peer(".").len(100));
    assert_eq!(info(&mut t).options & 24, 8, "it need not make use of it");
    t.inject(peer(".").seq(101).len(100).marked(2));
    assert_eq!(info(&mut t).options & 24, 24);
    t.send(3000);
    let ack = peer(".").seq(201).ack(3001);
    t.inject(Peer { flags: ack.flags | TcpFlags::ECE, ..ack });
    assert_eq!(info(&mut t).delivered_ce, 3, "all that the acknowledgement tells of");
}

/// The flight is counted in segments of the present size, which has become smaller.
#[test]
fn segments_that_have_become_small_are_not_delivered_before_they_left() {
    let mut t = Script::connected(Setup::default(), |syn| syn);
    t.send(9000);
    t.run(SetOption(SocketOption::MaxSegment(300))).expect("set");
    let delivered = info(&mut t).delivered;
    assert!(delivered <= 1, "{delivered}: nothing but the SYN has arrived");
    t.inject(peer(".").ack(9001));
    assert_eq!(info(&mut t).delivered, 10);
}
