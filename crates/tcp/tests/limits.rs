//! Limits of time and memory: user time-outs for every cause of delay, black holes, and memory pressure.

mod support;

use observe::Counter;
use support::endpoint::Setup;
use support::ms;
use support::script::{Peer, Script, peer};
use tcp::config::{BufferSizes, MtuProbing};
use tcp::{Error, Pressure, Scarcity, SetOption, SocketOption, State};

fn connected(change: impl FnOnce(&mut Setup)) -> Script {
    let mut setup = Setup::default();
    change(&mut setup);
    Script::connected(setup, |syn| syn)
}

#[test]
fn a_user_timeout_runs_while_the_device_takes_nothing() {
    let mut t = connected(|setup| setup.options.user_timeout = Some(ms(5000)));
    t.pass(ms(60_000));
    t.us.credit = 0;
    t.send(500);
    t.pass(ms(4900));
    assert_eq!(t.state(), State::Established, "the time began with the data, not with the last acknowledgement");
    t.pass(ms(150));
    assert_eq!(t.us.status().error, Some(Error::TimedOut));
    assert!(t.take().is_empty(), "nobody is told by a device that takes nothing");
}

#[test]
fn a_user_timeout_before_a_closed_window_counts_from_the_data() {
    let mut t = connected(|_| {});
    t.run(SetOption(SocketOption::UserTimeout(Some(ms(3000))))).expect("set");
    t.inject(peer(".").win(0));
    t.pass(ms(100_000));
    t.send(500);
    for _ in 0..28 {
        t.pass(ms(100));
        t.inject(peer(".").win(0));
    }
    assert_eq!(t.state(), State::Established);
    t.pass(ms(300));
    assert_eq!(t.us.status().error, Some(Error::TimedOut), "though the peer answers");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# An application MUST (MUST-21) be able to set the value for R2 for a particular connection.
#[test]
fn a_user_timeout_set_late_counts_from_the_last_progress() {
    let mut t = connected(|_| {});
    t.send(500);
    t.pass(ms(4000));
    t.run(SetOption(SocketOption::UserTimeout(Some(ms(4500))))).expect("set");
    t.pass(ms(400));
    assert_eq!(t.state(), State::Established);
    t.pass(ms(200));
    assert_eq!(t.us.status().error, Some(Error::TimedOut));
}

#[test]
fn a_user_timeout_takes_the_place_of_the_number_of_keep_alive_probes() {
    let mut t = connected(|setup| {
        setup.options.keep_alive = Some(tcp::config::KeepAlive { idle: ms(10_000), interval: ms(1000), probes: 2 });
        setup.options.user_timeout = Some(ms(15_000));
    });
    t.pass(ms(14_500));
    assert_eq!((t.state(), t.us.count(Counter::KeepAlivesOut)), (State::Established, 5));
    t.pass(ms(1000));
    assert_eq!(t.us.status().error, Some(Error::TimedOut));
}

#[test]
fn large_segments_that_vanish_become_small_at_r1() {
    let mut t = connected(|setup| {
        setup.config.mtu_probing = MtuProbing::AfterBlackHole;
        setup.config.base_mss = 512;
    });
    t.send(3000);
    t.pass(ms(700));
    assert_eq!(t.us.status().mss, 1000, "two time-outs happen");
    t.pass(ms(800));
    assert_eq!(t.us.status().mss, 512);
    assert_eq!(t.us.count(Counter::BlackHoles), 1);
    assert!(t.take().last().is_some_and(|last| last.contains(":513(512)")), "and it is tried with those");
    let mut t = connected(|_| {});
    t.send(3000);
    t.pass(ms(20_000));
    assert_eq!(t.us.status().mss, 1000, "not unless it was asked for");
}

/// `segments` full segments in order, each read at once.
fn receive(t: &mut Script, segments: u32) {
    for _ in 0..segments {
        let seq = t.us.status().traffic.bytes_received as u32 + 1;
        t.inject(peer("P.").seq(seq).len(1000));
        t.read();
        t.take();
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//= type=test
//# A TCP receiver SHOULD NOT shrink the window, i.e., move the right window edge to the left (SHLD-14).
#[test]
fn a_receive_buffer_stops_growing_under_pressure_and_shrinks_without_taking_a_window_back() {
    let small = |setup: &mut Setup| {
        setup.config.receive_buffer = BufferSizes { min: 2000, initial: 10_000, max: 1 << 20 };
    };
    let mut t = connected(small);
    receive(&mut t, 40);
    let grown = t.us.status().receive_buffer;
    assert!(grown > 10_000, "without pressure it grows: {grown}");
    t.us.setup.scarcity = Scarcity::new(Pressure::Moderate, false, false);
    receive(&mut t, 200);
    assert_eq!(t.us.status().receive_buffer, grown);
    t.us.setup.scarcity = Scarcity::new(Pressure::Severe, false, false);
    let mut edge = 0;
    for _ in 0..300 {
        receive(&mut t, 1);
        let status = t.us.status();
        let now = status.traffic.bytes_received + u64::from(status.receive_window);
        assert!(now >= edge, "an announced window is honoured");
        edge = now;
    }
    assert_eq!(t.us.status().receive_buffer, 2000);
    t.us.setup.scarcity = Scarcity::new(Pressure::None, false, false);
    receive(&mut t, 100);
    assert!(t.us.status().receive_buffer > 2000, "and it recovers");
}

#[test]
fn data_out_of_order_is_given_up_when_memory_is_short_and_never_called_a_duplicate() {
    let mut t = Script::connected(Setup::default(), |syn| syn.sack_permitted());
    for n in 1..6 {
        t.inject(peer("P.").seq(1 + n * 1000).len(1000));
    }
    assert!(t.us.status().out_of_order == 5000);
    t.take();
    t.us.setup.scarcity = Scarcity::new(Pressure::Severe, false, false);
    t.inject(peer("P.").seq(7001).len(1000));
    assert_eq!((t.us.status().out_of_order, t.us.count(Counter::ReassemblyPruned)), (1000, 1));
    assert!(t.take().last().is_some_and(|ack| ack.contains("sack 7001:8001")), "only what is held is reported");
    t.us.setup.scarcity = Scarcity::new(Pressure::None, false, false);
    for n in 0..8 {
        t.inject(peer("P.").seq(1 + n * 1000).len(1000));
    }
    assert_eq!(t.read(), 8000);
    assert!(t.take().iter().all(|ack| !ack.contains("sack 1001:") && !ack.contains("sack 2001:")));
}

/// A connection with much data to send, whose segments begin small.
fn searching(options: impl Fn(Peer) -> Peer) -> Script {
    let mut setup = Setup::default();
    setup.config.mtu_probing = MtuProbing::Always;
    setup.config.base_mss = 512;
    setup.config.initial_window = 20;
    setup.config.tail_loss_probe = false;
    let mut t = Script::connected_over(setup, ms(100), options);
    assert_eq!(t.us.status().mss, 512);
    t.send(40_000);
    t
}

/// RFC 8899: probes of data in flight find the largest segment that the path carries, and all later segments have that
/// size.
#[test]
fn larger_segments_are_searched_for_and_used() {
    let mut t = searching(Peer::sack_permitted);
    let ranges = t.ranges();
    assert_eq!((ranges[0].as_str(), ranges[1].as_str()), ("1:757", "757:1269"), "one probe, then what passes");
    let mut una = 1;
    for _ in 0..20 {
        t.send(20_000);
        una += t.us.status().unacknowledged;
        t.pass(ms(100));
        t.inject(peer(".").ack(una));
        t.take();
    }
    assert!(t.us.status().mss > 1000 - 8, "{}", t.us.status().mss);
    assert!(t.us.count(Counter::MtuProbesOut) >= 5 && t.us.count(Counter::MtuRaises) >= 5);
    assert_eq!((t.us.count(Counter::Retransmits), t.us.count(Counter::CongestionEvents)), (0, 0));
}

/// A lost probe is no congestion, with SACK and without: its data is sent again in two segments, and the window stays.
#[test]
fn a_probe_that_is_lost_costs_nothing_but_itself() {
    for sack in [true, false] {
        let mut t = searching(|syn| if sack { syn.sack_permitted() } else { syn });
        t.take();
        let cwnd = t.us.status().cwnd;
        t.pass(ms(100));
        for right in [1269, 1781, 2293] {
            let ack = peer(".").ack(1);
            t.inject(if sack { ack.sack(&[(757, right)]) } else { ack });
        }
        let old = |range: &String| {
            range.split(':').next().and_then(|left| left.parse().ok()).is_some_and(|left: u32| left < 9000)
        };
        let mut again: Vec<String> = t.ranges().into_iter().filter(old).collect();
        assert_eq!(again.first().map(String::as_str), Some("1:513"), "sack: {sack}");
        if !sack {
            // Nothing reports that any segment has left the network.
            t.pass(ms(100));
            t.inject(peer(".").ack(513));
            again = t.ranges();
        }
        assert!(again.contains(&"513:757".to_owned()), "{again:?}");
        assert_eq!(t.us.count(Counter::CongestionEvents), 0);
        let end = t.us.status().unacknowledged + if sack { 1 } else { 513 };
        t.pass(ms(100));
        t.inject(peer(".").ack(end));
        let status = t.us.status();
        assert_eq!((status.recovering, status.mss), (false, 512));
        assert!(status.cwnd >= cwnd, "{} after {cwnd}", status.cwnd);
        let next = t.ranges();
        assert!(next.contains(&format!("{end}:{}", end + 634)), "halfway to what was lost: {next:?}");
    }
}

/// After a black hole segments are small, and then the search continues.
#[test]
fn a_black_hole_begins_a_search() {
    let mut t = connected(|setup| {
        setup.config.mtu_probing = MtuProbing::AfterBlackHole;
        setup.config.base_mss = 512;
    });
    t.send(40_000);
    t.pass(ms(1500));
    assert_eq!(t.us.status().mss, 512);
    let mut una = 1;
    for _ in 0..30 {
        t.send(20_000);
        una += t.us.status().unacknowledged;
        t.take();
        t.pass(ms(50));
        t.inject(peer(".").ack(una));
    }
    assert!(t.us.status().mss > 992, "{}", t.us.status().mss);
}
