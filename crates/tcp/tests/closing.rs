//! Closing in every order, half-close, TIME-WAIT, resets, linger, keep-alive, and the transition graph.

mod support;

use std::time::Duration;

use observe::DropReason;
use support::endpoint::Setup;
use support::ms;
use support::script::{Script, peer};
use tcp::config::KeepAlive;
use tcp::{
    Abort, Close, Disposition, Error, IcmpError, IcmpKind, Readiness, Receive, SetOption, Shutdown, SocketOption, State,
};
use wire::SeqNumber;

fn plain() -> Script {
    Script::connected(Setup::default(), |syn| syn)
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
//= type=test
//# When a connection is closed actively, it MUST linger in the TIME-WAIT state for a time 2xMSL (Maximum Segment
//# Lifetime) (MUST-13).
#[test]
fn we_close_first() {
    let mut t = plain();
    t.run(Close);
    t.expect(&["F. 1:1(0) ack 1 win 65535"]);
    assert_eq!(t.state(), State::FinWait1);
    t.inject(peer(".").ack(2));
    assert_eq!(t.state(), State::FinWait2);
    t.inject(peer("F.").ack(2));
    t.expect(&[". 2:2(0) ack 2 win 65534"]);
    assert_eq!(t.state(), State::TimeWait);
    assert!(!t.us.removed);
    t.pass(ms(59_999));
    assert_eq!(t.state(), State::TimeWait);
    t.pass(ms(1));
    assert!(t.us.removed);
    t.expect(&[]);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.6
//= type=test
//# If the local TCP connection is closed by the remote side due to a FIN or RST received from the remote side, then the
//# local application MUST be informed whether it closed normally or was aborted (MUST-12).
#[test]
fn the_peer_closes_first() {
    let mut t = plain();
    t.us.ready = Readiness::NONE;
    t.inject(peer("F."));
    assert_eq!(t.state(), State::CloseWait);
    assert!(t.us.ready.contains(Readiness::READABLE | Readiness::PEER_CLOSED));
    // RFC 9293 section 3.8.6.3: its acknowledgement may be delayed, by less than half a second.
    t.expect(&[]);
    assert_eq!(t.until_sent(ms(499)), Some(ms(40)));
    t.expect(&[". 1:1(0) ack 2 win 65534"]);
    let received = t.run(Receive { max: 10 }).unwrap();
    assert!(received.end && received.data.is_empty());
    t.send(10);
    t.expect(&["P. 1:11(10) ack 2 win 65534"]);
    t.run(Close);
    t.expect(&["F. 11:11(0) ack 2 win 65534"]);
    assert_eq!(t.state(), State::LastAck);
    t.inject(peer(".").seq(2).ack(12));
    assert_eq!(t.state(), State::Closed);
    assert!(t.us.removed);
}

#[test]
fn both_close_at_once() {
    let mut t = plain();
    t.run(Close);
    t.take();
    t.inject(peer("F.").ack(1));
    t.expect(&[". 2:2(0) ack 2 win 65534"]);
    assert_eq!(t.state(), State::Closing);
    t.inject(peer(".").seq(2).ack(2));
    assert_eq!(t.state(), State::TimeWait);
}

#[test]
fn fin_and_acknowledgement_of_ours_in_one_segment() {
    let mut t = plain();
    t.run(Close);
    t.take();
    t.inject(peer("F.").ack(2));
    assert_eq!(t.state(), State::TimeWait);
    t.expect(&[". 2:2(0) ack 2 win 65534"]);
}

#[test]
fn fin_on_the_last_data_segment() {
    let mut t = plain();
    t.us.credit = 0;
    t.send(1500);
    t.run(Close);
    t.expect(&[]);
    t.us.credit = 10;
    t.run(tcp::TransmitReady);
    t.expect(&[". 1:1001(1000) ack 1 win 65535", "FP. 1001:1501(500) ack 1 win 65535"]);
    t.inject(peer(".").ack(1502));
    assert_eq!(t.state(), State::FinWait2);
}

#[test]
fn a_fin_out_of_order_waits_for_the_data_before_it() {
    for staged in [false, true] {
        let mut t = Script::connected(Setup { staged, ..Setup::default() }, |syn| syn);
        t.inject(peer("F.").seq(1001).len(500));
        assert_eq!(t.state(), State::Established);
        t.inject(peer(".").len(1000));
        assert_eq!(t.state(), State::CloseWait);
        assert_eq!(t.take().last().unwrap(), ". 1:1(0) ack 1502 win 64034");
        assert_eq!(t.read(), 1500);
        assert_eq!(t.us.received, support::data(1, 1500));
    }
}

#[test]
fn half_close_still_receives() {
    let mut t = plain();
    t.run(Shutdown::Write).unwrap();
    t.take();
    t.inject(peer("P.").ack(2).len(300));
    assert_eq!(t.state(), State::FinWait2);
    assert_eq!(t.read(), 300);
    t.pass(ms(100_000));
    assert_eq!(t.state(), State::FinWait2, "its user is there: no time-out");
    t.run(Close);
    t.pass(ms(60_000));
    assert!(t.us.removed, "nobody is there any more");
}

#[test]
fn shutdown_of_reading_discards() {
    let mut t = plain();
    t.inject(peer("P.").len(300));
    t.run(Shutdown::Read).unwrap();
    t.inject(peer("P.").seq(301).len(300));
    assert!(t.take().last().unwrap().contains("ack 601"));
    let received = t.run(Receive { max: 1000 }).unwrap();
    assert!(received.end && received.data.is_empty());
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
//= type=test
//# When a connection is closed actively, it MUST linger in the TIME-WAIT state for a time 2xMSL (Maximum Segment
//# Lifetime) (MUST-13).
#[test]
fn time_wait_acknowledges_a_repeated_fin_and_begins_again() {
    let mut t = plain();
    t.run(Close);
    t.inject(peer("F.").ack(2));
    t.take();
    t.pass(ms(40_000));
    t.inject(peer("F.").ack(2));
    t.expect(&[". 2:2(0) ack 2 win 65534"]);
    t.pass(ms(40_000));
    assert_eq!(t.state(), State::TimeWait);
    t.pass(ms(20_000));
    assert!(t.us.removed);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
//= type=test
//# However, it MAY accept a new SYN from the remote TCP endpoint to reopen the connection directly from TIME-WAIT state
//# (MAY-2), if it:
#[test]
fn time_wait_ignores_a_reset_and_gives_way_to_a_new_syn() {
    let mut t = plain();
    t.run(Close);
    t.inject(peer("F.").ack(2));
    t.take();
    t.inject(peer("R").seq(2));
    assert_eq!(t.state(), State::TimeWait);
    // An old SYN is answered with a challenge only.
    t.inject(peer("S").seq(0));
    assert_eq!(t.state(), State::TimeWait);
    t.take();
    t.us.listening = true;
    t.us.setup.iss = t.us.setup.iss.wrapping_add(7777);
    t.inject(peer("S").seq(5000).mss(1000));
    assert_eq!(t.state(), State::SynReceived);
    t.expect(&["S. 0:0(0) ack 5001 win 65535 <mss 1460>"]);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
//= type=test
//# A host MAY implement a "half-duplex" TCP close sequence, so that an application that has called CLOSE cannot
//# continue to read data from the connection (MAY-1).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
//= type=test
//# If such a host issues a CLOSE call while received data is still pending in the TCP connection, or if new data is
//# received after CLOSE is called, its TCP implementation SHOULD send a RST to show that data was lost (SHLD-3).
#[test]
fn closing_with_unread_data_resets() {
    let mut t = plain();
    t.inject(peer("P.").len(10));
    t.take();
    t.run(Close);
    t.expect(&["R. 1:1(0) ack 11 win 0"]);
    assert!(t.us.removed);
}

#[test]
fn data_after_close_is_answered_with_a_reset() {
    let mut t = plain();
    t.run(Close);
    t.inject(peer(".").ack(2));
    t.take();
    t.inject(peer("P.").ack(2).len(10));
    t.expect(&["R 2:2(0)"]);
    assert!(t.us.removed);
    assert!(matches!(t.us.last, Some(Disposition::Dropped(DropReason::TcpAfterClose))));
}

#[test]
fn linger_zero_resets_and_drops_what_is_queued() {
    let mut t = plain();
    t.run(SetOption(SocketOption::Linger(Some(ms(0))))).unwrap();
    t.us.credit = 0;
    t.send(5000);
    t.run(Close);
    t.expect(&["R. 1:1(0) ack 1 win 0"]);
    assert!(t.us.removed);
}

#[test]
fn an_orphan_before_a_closed_window_does_not_stay_for_ever() {
    let mut t = plain();
    t.inject(peer(".").win(0));
    t.send(5000);
    t.run(Close);
    let start = t.now;
    while !t.us.removed {
        if t.until_sent(ms(200_000)).is_some() {
            t.take();
            t.inject(peer(".").win(0));
        }
    }
    assert!((ms(30_000)..ms(120_000)).contains(&(t.now - start)), "{:?}", t.now - start);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
//= type=test
//# The sender MUST generate it (MUST-2)
#[test]
fn ipv6_is_only_another_pseudo_header() {
    let mut setup = Setup::default();
    setup.tuple.local_addr = "2001:db8::1".parse().unwrap();
    setup.tuple.remote_addr = "2001:db8::2".parse().unwrap();
    let mut t = Script::connected(setup, |syn| syn);
    t.inject(peer("P.").len(5));
    t.send(5);
    t.run(Close);
    // The script checks the checksum of everything that we send.
    assert_eq!(t.take().len(), 3);
    assert!(t.us.removed, "unread text resets");
}

#[test]
fn abort_in_every_state_leaves_nothing() {
    type Reach = fn(&mut Script);
    let states: [(State, Reach); 6] = [
        (State::Established, |_| {}),
        (State::CloseWait, |t| t.inject(peer("F."))),
        (State::FinWait1, |t| t.run(Close)),
        (State::FinWait2, |t| {
            t.run(Close);
            t.inject(peer(".").ack(2));
        }),
        (State::Closing, |t| {
            t.run(Close);
            t.inject(peer("F."));
        }),
        (State::LastAck, |t| {
            t.inject(peer("F."));
            t.run(Close);
        }),
    ];
    for (state, reach) in states {
        let mut t = plain();
        reach(&mut t);
        assert_eq!(t.state(), state);
        t.take();
        t.run(Abort);
        assert!(t.take()[0].starts_with("R."), "{state}");
        assert!(t.us.removed, "{state}");
        t.pass(ms(1_000_000));
        t.expect(&[]);
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.6
//= type=test
//# If the local TCP connection is closed by the remote side due to a FIN or RST received from the remote side, then the
//# local application MUST be informed whether it closed normally or was aborted (MUST-12).
#[test]
fn a_reset_ends_it_and_the_reason_is_told_once() {
    let mut t = plain();
    t.inject(peer("P.").len(10));
    t.inject(peer("R").seq(11));
    assert_eq!(t.state(), State::Closed);
    assert!(t.us.ready.contains(Readiness::ERROR | Readiness::CLOSED));
    assert_eq!(t.read(), 10, "what had arrived can still be read");
    assert_eq!(t.us.try_send(b"x", t.now), Err(Error::Reset));
    assert_eq!(t.run(Receive { max: 1 }).unwrap_err(), Error::Reset);
    assert_eq!(t.run(Receive { max: 1 }).unwrap_err(), Error::NotConnected);
    assert!(!t.us.removed);
    t.run(Close);
    assert!(t.us.removed);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//= type=test
//# Implementers MAY include "keep-alives" in their TCP implementations (MAY-5), although this practice is not
//# universally accepted.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//= type=test
//# This interval MUST be configurable (MUST-27)
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//= type=test
//# Consequently, if a keep-alive mechanism is implemented it MUST NOT interpret failure to respond to any specific
//# probe as a dead connection (MUST-29).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//= type=test
//# An implementation SHOULD send a keep-alive segment with no data (SHLD-12);
#[test]
fn keep_alive_probes_and_gives_up() {
    let timing = KeepAlive { idle: ms(10_000), interval: ms(1000), probes: 3 };
    let mut setup = Setup::default();
    setup.options.keep_alive = Some(timing);
    let mut t = Script::connected(setup, |syn| syn);
    t.pass(ms(9_000));
    t.inject(peer("P.").len(5));
    t.take();
    t.read();
    // The time of the last arrival is known to about a millisecond.
    let ten_seconds = |waited: Option<Duration>| waited.is_some_and(|waited| waited.abs_diff(ms(10_000)) <= ms(2));
    assert!(ten_seconds(t.until_sent(ms(100_000))));
    t.expect(&[". 0:0(0) ack 6 win 65530"]);
    t.inject(peer(".").seq(6).ack(1));
    assert!(ten_seconds(t.until_sent(ms(100_000))), "an answer is life");
    t.take();
    assert_eq!(t.until_sent(ms(100_000)), Some(ms(1000)));
    assert_eq!(t.until_sent(ms(0)), Some(ms(0)));
    t.pass(ms(2000));
    assert_eq!(t.us.status().error, Some(Error::TimedOut));
    assert!(t.take().last().unwrap().starts_with("R."));
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
//= type=test
//# Since these Unreachable messages indicate soft error conditions, a TCP implementation MUST NOT abort the connection
//# (MUST-56),
#[test]
fn icmp_errors_are_believed_only_if_they_quote_what_is_in_flight_and_never_end_a_connection() {
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    let iss = SeqNumber(t.us.setup.iss);
    assert!(!t.run(IcmpError { kind: IcmpKind::PortUnreachable, seq: iss + 1 }));
    assert!(t.run(IcmpError { kind: IcmpKind::HostUnreachable, seq: iss }));
    assert_eq!(t.state(), State::SynSent);
    t.pass(ms(200_000));
    assert_eq!(t.us.status().error, Some(Error::HostUnreachable), "it explains the time-out");
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    assert!(t.run(IcmpError { kind: IcmpKind::PortUnreachable, seq: iss }));
    assert_eq!(t.us.status().error, Some(Error::Refused));
    let mut t = plain();
    t.send(10);
    assert!(t.run(IcmpError { kind: IcmpKind::PortUnreachable, seq: iss + 1 }));
    assert_eq!(t.state(), State::Established);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
//= type=test
//# These are hard error conditions, so TCP implementations SHOULD abort the connection (SHLD-26).
#[test]
fn a_hard_error_ends_an_established_connection_where_the_letter_of_the_rfc_is_wanted() {
    let mut setup = Setup::default();
    setup.config.hard_errors_abort = true;
    let mut t = Script::connected(setup, |syn| syn);
    t.send(10);
    let seq = SeqNumber(t.us.setup.iss) + 1;
    assert!(!t.run(IcmpError { kind: IcmpKind::PortUnreachable, seq: seq + 100_000 }), "not what is in flight");
    assert!(t.run(IcmpError { kind: IcmpKind::HostUnreachable, seq }), "a soft one ends nothing");
    assert_eq!(t.state(), State::Established);
    assert!(t.run(IcmpError { kind: IcmpKind::PortUnreachable, seq }));
    assert_eq!((t.state(), t.us.status().error), (State::Closed, Some(Error::Refused)));
}

#[test]
fn the_transition_graph_is_the_committed_one() {
    let committed = include_str!("state_graph.dot");
    assert_eq!(tcp::state::graph(), committed, "the table in state.rs and tests/state_graph.dot must change together");
}
