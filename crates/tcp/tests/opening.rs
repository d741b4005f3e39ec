//! Opening: active, passive, simultaneous; options; retransmission of SYN and SYN-ACK; refusal.

mod support;

use std::time::Duration;

use observe::{Counter, DropReason, Time};
use support::endpoint::Setup;
use support::link::{Faults, World, mirrored};
use support::ms;
use support::script::{Script, peer};
use tcp::{Disposition, Error, Profile, Readiness, Receive, State};

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//= type=test
//# TCP endpoints MUST implement both sending and receiving the MSS Option (MUST-14).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//= type=test
//# TCP implementations SHOULD send an MSS Option in every SYN segment when its receive MSS differs from the default 536
//# for IPv4 or 1220 for IPv6 (SHLD-5),
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//= type=test
//# and MAY send it always (MAY-3).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.2
//= type=test
//# and MUST NOT be sent in other segments (MUST-65).
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
//= type=test
//# This option is an offer, not a promise; both sides MUST send Window Scale options in their <SYN> segments to enable
//# window scaling in either direction.
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
//= type=test
//# The window field in a segment where the SYN bit is set (i.e., a <SYN> or <SYN,ACK>) MUST NOT be scaled.
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//= type=test
//# The Window Scale option MUST be sent with shift.cnt = R, where R is the value that the TCP would like to use for its
//# receive window.
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//= type=test
//# Upon receiving a <SYN> segment with a Window Scale option containing shift.cnt = S, a TCP MUST set Snd.Wind.Shift to
//# S and MUST set Rcv.Wind.Shift to R; otherwise, it MUST set both Snd.Wind.Shift and Rcv.Wind.Shift to zero.
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//= type=test
//# The window field (SEG.WND) of every outgoing segment, with the exception of <SYN> segments, MUST be right-shifted by
//# Rcv.Wind.Shift bits:
//= https://www.rfc-editor.org/rfc/rfc7323#section-5.4
//= type=test
//# It MUST tick at least once for each 2^31 bytes sent.
#[test]
fn active_open_offers_everything_and_acknowledges_at_once() {
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    t.expect(&["S 0:0(0) <mss 1460,sackOK,TS 1000 0,wscale 7>"]);
    assert_eq!(t.state(), State::SynSent);
    t.pass(ms(30));
    t.inject(peer("S.").seq(0).win(5000).mss(1000).sack_permitted().scale(3).ts(77, 1000));
    t.expect(&[". 1:1(0) ack 1 win 512 <TS 1030 77>"]);
    let counted = [Counter::SegmentsIn, Counter::SlowPathIn, Counter::FastPathIn, Counter::ConnectionsEstablished];
    assert_eq!(counted.map(|counter| t.us.count(counter)), [1, 1, 0, 1]);
    assert!(t.us.ready.contains(Readiness::CONNECTED | Readiness::WRITABLE));
    let status = t.us.status();
    assert_eq!((status.state, status.mss, status.send_window), (State::Established, 988, 5000));
    assert_eq!((status.srtt, status.send_shift, status.receive_shift), (Some(ms(30)), 3, 7));
    assert_eq!((status.cwnd, status.rto), (9880, ms(230)));
}

#[test]
fn options_that_the_peer_does_not_offer_are_off() {
    let mut t = Script::connected(Setup::default(), |syn| syn);
    t.send(10);
    t.expect(&["P. 1:11(10) ack 1 win 65535"]);
    let status = t.us.status();
    assert!(!status.timestamps && !status.sack);
    assert_eq!((status.send_shift, status.receive_shift, status.mss), (0, 0, 1000));
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.5
//= type=test
//# Note that a TCP implementation MUST keep track of whether a connection has reached SYN-RECEIVED state as the result
//# of a passive OPEN or an active OPEN (MUST-11).
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
//= type=test
//# The window field in a segment where the SYN bit is set (i.e., a <SYN> or <SYN,ACK>) MUST NOT be scaled.
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//= type=test
//# The window field (SEG.WND) in the header of every incoming segment, with the exception of <SYN> segments, MUST be
//# left-shifted by Snd.Wind.Shift bits before updating SND.WND:
#[test]
fn passive_open_answers_only_what_was_offered() {
    let mut t = Script::new(Setup::default());
    t.us.listening = true;
    t.inject(peer("S").seq(0).win(5000).mss(1000).scale(2));
    t.expect(&["S. 0:0(0) ack 1 win 65535 <mss 1460,wscale 7>"]);
    assert!(!t.us.accepted);
    t.inject(peer(".").win(100));
    t.expect(&[]);
    assert!(t.us.accepted && t.us.ready.contains(Readiness::ACCEPTABLE));
    let status = t.us.status();
    assert_eq!((status.state, status.send_window), (State::Established, 400));
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//= type=test
//# If an MSS Option is not received at connection setup, TCP implementations MUST assume a default send MSS of 536 (576
//# - 40) for IPv4 or 1220 (1280 - 60) for IPv6 (MUST-15).
#[test]
fn a_peer_without_mss_gets_536() {
    let mut t = Script::new(Setup::default());
    t.us.listening = true;
    t.inject(peer("S").seq(0).win(5000));
    t.inject(peer("."));
    assert_eq!(t.us.status().mss, 536);
}

#[test]
fn a_tiny_mss_is_not_believed() {
    let t = &mut Script::accepted(Setup::default(), |mut syn| {
        syn.options.mss = Some(8);
        syn
    });
    assert_eq!(t.us.status().mss, 216);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.5
//= type=test
//# A TCP implementation MUST support simultaneous open attempts (MUST-10).
#[test]
fn simultaneous_open() {
    let setup = Setup::default();
    let mut world = World::new(setup.clone(), mirrored(&setup), Faults::default());
    let now = world.now;
    world.ends[0].open(now);
    world.ends[1].open(now);
    world.run_for(ms(100));
    for end in &mut world.ends {
        assert_eq!(end.state(), State::Established);
        assert!(end.ready.contains(Readiness::CONNECTED));
    }
    let now = world.now;
    world.ends[0].send(b"both", now);
    world.run_for(ms(100));
    let now = world.now;
    world.ends[1].read(now);
    assert_eq!(world.ends[1].received, b"both");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.5
//= type=test
//# Note that a TCP implementation MUST keep track of whether a connection has reached SYN-RECEIVED state as the result
//# of a passive OPEN or an active OPEN (MUST-11).
#[test]
fn simultaneous_open_segment_by_segment() {
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    t.take();
    t.inject(peer("S").seq(0).mss(1000));
    t.expect(&["S. 0:0(0) ack 1 win 65535 <mss 1460>"]);
    assert_eq!(t.state(), State::SynReceived);
    t.inject(peer("S.").seq(0).ack(1));
    assert_eq!(t.state(), State::Established);
    assert!(!t.us.accepted, "an active open is not accepted");
}

/// "If there are other controls or data in the segment, queue them for processing after the ESTABLISHED state has been
/// reached" (RFC 9293 section 3.10.7.3): with data, urgent mark and FIN of a SYN that crosses ours.
#[test]
fn a_syn_that_crosses_ours_keeps_its_data() {
    for (flags, end, state) in [("S", 101, State::Established), ("SFU", 102, State::CloseWait)] {
        for answer in ["S.", "."] {
            let mut t = Script::new(Setup::default());
            t.us.open(t.now);
            t.take();
            // The urgent pointer counts from the SYN: the byte after the data.
            t.inject(peer(flags).seq(0).len(101).urgent(101).mss(1000));
            t.expect(&["S. 0:0(0) ack 1 win 65535 <mss 1460>"]);
            assert_eq!((t.state(), t.read()), (State::SynReceived, 0));
            t.us.ready = Readiness::NONE;
            t.inject(peer(answer).seq(if answer == "." { end + 1 } else { 0 }).ack(1));
            assert_eq!(t.state(), state, "{flags} and {answer}");
            assert!(t.us.ready.contains(Readiness::READABLE | Readiness::CONNECTED));
            assert_eq!(t.us.ready.contains(Readiness::URGENT), flags.contains('U'));
            let sent = t.take();
            assert_eq!(sent.len(), 1, "{sent:?}");
            assert!(sent[0].starts_with(&format!(". 1:1(0) ack {} ", end + 1)), "{sent:?}");
            assert_eq!(t.read(), 101);
        }
    }
}

/// The SYN is repeated before the handshake is complete, and its data is taken once; a reset, or a CLOSE, discards it.
#[test]
fn data_of_a_syn_that_crosses_ours_is_taken_once_or_not_at_all() {
    let opening = || {
        let mut t = Script::new(Setup::default());
        t.us.open(t.now);
        t.inject(peer("S").seq(0).len(100));
        t.take();
        t
    };
    let mut t = opening();
    t.inject(peer("S").seq(0).len(100));
    t.expect(&["S. 0:0(0) ack 1 win 65535 <mss 1460>"]);
    t.inject(peer("S.").seq(0).ack(1).len(150));
    assert_eq!((t.state(), t.read()), (State::Established, 150));
    t.inject(peer(".").seq(151).len(10));
    assert_eq!(t.read(), 10);
    let mut t = opening();
    t.inject(peer("R").seq(1));
    assert_eq!((t.state(), t.read()), (State::Closed, 0));
    // Data that the user will never read: the peer must be reset.
    let mut t = opening();
    t.run(tcp::Close);
    t.expect(&["R. 1:1(0) ack 1 win 0"]);
    assert_eq!(t.state(), State::Closed);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# SYN retransmissions MUST be handled in the general way just described for data retransmissions, including
//# notification of the application layer.
#[test]
fn syn_is_sent_again_with_back_off_and_then_given_up() {
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    t.take();
    for seconds in [1, 2, 4, 8, 16, 32] {
        assert_eq!(t.until_sent(ms(200_000)), Some(ms(1000 * seconds)));
        assert!(t.take()[0].starts_with("S 0:0(0)"));
    }
    assert_eq!(t.until_sent(ms(200_000)), None);
    assert_eq!(t.state(), State::Closed);
    assert!(t.us.ready.contains(Readiness::ERROR | Readiness::CLOSED));
    assert_eq!(t.run(Receive { max: 1 }).unwrap_err(), Error::TimedOut);
    assert!(!t.us.removed, "its user has not closed it");
    t.run(tcp::Close);
    assert!(t.us.removed);
}

#[test]
fn syn_ack_is_sent_again_and_the_child_removes_itself() {
    let mut t = Script::new(Setup::default());
    t.us.listening = true;
    t.inject(peer("S").seq(0).mss(1000));
    t.take();
    t.pass(ms(500_000));
    assert_eq!(t.take().len(), 5);
    assert!(t.us.removed && !t.us.accepted);
}

#[test]
fn a_repeated_syn_gets_the_syn_ack_again() {
    let mut t = Script::new(Setup::default());
    t.us.listening = true;
    t.inject(peer("S").seq(0).mss(1000));
    let first = t.take();
    t.inject(peer("S").seq(0).mss(1000));
    assert_eq!(t.take(), first);
}

//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# In all other cases the receiver MUST silently discard the segment.
#[test]
fn refusal() {
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    t.take();
    // Not acknowledging our SYN, it may come from anyone.
    t.inject(peer("R").seq(0));
    assert_eq!(t.state(), State::SynSent);
    t.inject(peer("R.").seq(0).ack(2));
    assert_eq!(t.state(), State::SynSent);
    t.inject(peer("R.").seq(0).ack(1));
    assert_eq!(t.state(), State::Closed);
    assert_eq!(t.run(Receive { max: 1 }).unwrap_err(), Error::Refused);
    t.expect(&[]);
}

#[test]
fn a_wrong_acknowledgement_of_a_syn_is_reset() {
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    t.take();
    t.inject(peer("S.").seq(0).ack(5));
    t.expect(&["R 5:5(0)"]);
    assert_eq!(t.state(), State::SynSent);
    let mut t = Script::new(Setup::default());
    t.us.listening = true;
    t.inject(peer("S").seq(0));
    t.take();
    t.inject(peer(".").ack(9));
    t.expect(&["R 9:9(0)"]);
    assert_eq!(t.state(), State::SynReceived);
}

#[test]
fn a_reset_in_syn_received_removes_the_child() {
    let mut t = Script::new(Setup::default());
    t.us.listening = true;
    t.inject(peer("S").seq(0));
    t.inject(peer("R").seq(1));
    assert!(t.us.removed && !t.us.accepted);
}

#[test]
fn a_listener_and_flags_that_are_no_syn() {
    for (flags, answer) in [
        (".", Some("R 1:1(0)")),
        ("S.", Some("R 1:1(0)")),
        ("F.", Some("R 1:1(0)")),
        ("SF", None),
        ("SR", None),
        ("R", None),
        ("F", None),
        ("", None),
        ("FPU", None),
    ] {
        let mut t = Script::new(Setup::default());
        t.us.listening = true;
        t.inject(peer(flags).seq(0));
        assert_eq!(t.take().first().map(String::as_str), answer, "flags {flags:?}");
        assert!(t.us.driver.is_none(), "flags {flags:?}");
    }
}

#[test]
fn no_connection_at_all() {
    let mut t = Script::new(Setup::default());
    t.inject(peer("S").seq(0).len(3));
    t.expect(&["R. -268435456:-268435456(0) ack 4 win 0"]);
    t.inject(peer("P.").ack(7).len(3));
    t.expect(&["R 7:7(0)"]);
    for (flags, span) in [("P", 3), ("", 3), ("F", 4), ("SF", 5)] {
        t.inject(peer(flags).seq(0).len(3));
        t.expect(&[&format!("R. -268435456:-268435456(0) ack {span} win 0")]);
    }
    t.inject(peer("R").seq(0));
    t.expect(&[]);
    t.inject(peer("R.").ack(7));
    t.expect(&[]);
}

#[test]
fn data_and_fin_on_the_syn_ack_count() {
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    t.take();
    // The urgent pointer counts from the SYN: the byte after the data.
    t.inject(peer("SFU.").seq(0).mss(1000).len(4).urgent(5));
    t.expect(&[". 1:1(0) ack 6 win 65530"]);
    assert!(t.us.ready.contains(Readiness::URGENT));
    assert_eq!((t.state(), t.read()), (State::CloseWait, 4));
}

#[test]
fn an_answer_that_echoes_no_timestamp_of_ours_is_another_connections() {
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    t.take();
    t.pass(ms(30));
    for echo in [900, 1032, 1 << 31] {
        t.inject(peer("S.").seq(0).mss(1000).ts(77, echo));
        t.expect(&["R 1:1(0)"]);
        assert!(matches!(t.us.last, Some(Disposition::Dropped(DropReason::TcpPaws))), "{echo}");
        assert_eq!(t.state(), State::SynSent);
    }
    t.inject(peer("S.").seq(0).mss(1000).ts(77, 1000));
    assert_eq!(t.state(), State::Established);
}

/// The thread that processes the answer may have begun its batch before another thread sent the SYN, or sent it again.
#[test]
fn an_answer_in_a_batch_that_is_older_than_a_syn_is_ours() {
    let opening = || {
        let mut t = Script::new(Setup::default());
        let opened = t.now;
        t.us.open(t.now);
        t.pass(ms(1100));
        t.expect(&["S 0:0(0) <mss 1460,sackOK,TS 1000 0,wscale 7>", "S 0:0(0) <mss 1460,sackOK,TS 2000 0,wscale 7>"]);
        (t, opened)
    };
    for echo in [1000, 2000] {
        for batch in [ms(0), ms(30), ms(999)] {
            let (mut t, opened) = opening();
            t.now = opened + batch;
            t.inject(peer("S.").seq(0).mss(1000).ts(77, echo));
            assert_eq!(t.state(), State::Established, "{echo} in a batch of {batch:?}");
        }
    }
    let (mut t, opened) = opening();
    t.now = opened + ms(30);
    for echo in [900, 2002] {
        t.inject(peer("S.").seq(0).mss(1000).ts(77, echo));
        assert_eq!(t.state(), State::SynSent, "{echo}");
    }
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    t.now = Time::from_nanos(t.now.as_nanos() - 5_000_000);
    t.inject(peer("S.").seq(0).mss(1000).ts(77, 1000));
    assert_eq!(t.state(), State::Established, "the batch is older than the first SYN");
}

#[test]
fn data_queued_before_the_connection_is_established_follows_the_handshake() {
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    t.send(1500);
    t.expect(&["S 0:0(0) <mss 1460,sackOK,TS 1000 0,wscale 7>"]);
    t.inject(peer("S.").seq(0).win(60_000).mss(1000));
    t.expect(&[". 1:1001(1000) ack 1 win 65535", "P. 1001:1501(500) ack 1 win 65535"]);
}

#[test]
fn closing_before_the_answer_leaves_nothing() {
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    t.take();
    t.run(tcp::Close);
    assert!(t.us.removed);
    t.expect(&[]);
}

#[test]
fn a_lost_syn_means_one_segment_to_begin_with() {
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    t.pass(ms(1500));
    t.take();
    t.inject(peer("S.").seq(0).win(60_000).mss(1000));
    assert_eq!(t.us.status().cwnd, 1000);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
//= type=test
//# and the receiver MUST check it (MUST-3).
#[test]
fn a_segment_with_a_bad_checksum_is_dropped_where_the_knob_says() {
    use tcp::config::ChecksumPlacement::{After, Before, Inside};
    for placement in [Before, Inside, After] {
        let mut t = Script::connected(Setup::default(), |syn| syn);
        t.us.setup.config.checksum_placement = placement;
        let tuple = t.us.setup.tuple;
        let header = wire::tcp::Header {
            src_port: tuple.remote_port,
            dst_port: tuple.local_port,
            seq: wire::SeqNumber(support::script::IRS + 1),
            ack: wire::SeqNumber(t.us.setup.iss + 1),
            flags: wire::tcp::TcpFlags::ACK,
            window: 1000,
            urgent: 0,
            header_len: 0,
            options: wire::tcp::Options::NONE,
        };
        let mut buf = pktbuf::PktBuf::from_slice(b"evil").unwrap();
        header.emit(buf.push_front(20));
        buf[16..18].copy_from_slice(&[0xde, 0xad]);
        let parsed = match placement {
            Before => tcp::Segment::parse(tuple.local_addr, tuple.remote_addr, buf, tcp::Verify::Now),
            Inside => tcp::Segment::parse_unverified(tuple.local_addr, tuple.remote_addr, buf),
            After => tcp::Segment::parse(tuple.local_addr, tuple.remote_addr, buf, tcp::Verify::After),
        };
        match placement {
            Before => assert_eq!(parsed.unwrap_err(), DropReason::TcpBadChecksum),
            // So little data is checked inside in any case.
            Inside | After => {
                t.us.segment_arrives(parsed.unwrap(), t.now);
                assert!(matches!(t.us.last, Some(Disposition::Dropped(DropReason::TcpBadChecksum))));
            }
        }
        assert_eq!(t.read(), 0);
    }
}

#[test]
fn a_lost_syn_ack_means_one_segment_to_begin_with() {
    let mut t = Script::new(Setup::default());
    t.us.listening = true;
    t.inject(peer("S").seq(0).win(60_000).mss(1000));
    t.pass(ms(1500));
    assert_eq!(t.take().len(), 2);
    t.inject(peer("."));
    assert_eq!(t.us.status().cwnd, 1000);
}

/// `TCP_DEFER_ACCEPT`: the listener accepts a connection once it has data.
#[test]
fn a_listener_may_wait_for_data() {
    let setup = Setup { defer_accept: 3, ..Setup::default() };
    let mut t = Script::new(setup);
    t.us.listening = true;
    t.inject(peer("S").seq(0).win(60_000).mss(1000));
    assert_eq!(t.take().len(), 1);
    t.inject(peer(".").win(1000));
    assert!(t.us.driver.is_none() && t.us.half_open.is_some());
    t.expect(&[]);
    // Two time-outs send nothing, the third sends the SYN-ACK again.
    t.pass(Duration::from_millis(6900));
    t.expect(&[]);
    t.inject(peer("P.").win(1000).len(20));
    assert_eq!((t.us.accepted, t.read()), (true, 20));
    let status = t.us.status();
    assert_eq!((status.traffic.timeouts, status.cwnd), (0, 10_000), "nothing was lost");
}

#[test]
fn a_listener_does_not_wait_for_data_for_ever() {
    let setup = Setup { defer_accept: 2, ..Setup::default() };
    let mut t = Script::new(setup);
    t.us.listening = true;
    t.inject(peer("S").seq(0).win(60_000).mss(1000));
    t.take();
    t.inject(peer(".").win(1000));
    t.pass(Duration::from_secs(3));
    assert_eq!(t.take().len(), 1, "the SYN-ACK, once");
    t.inject(peer(".").win(1000));
    assert!(t.us.accepted && t.state() == State::Established);
    // A peer that never answers is given up in the end.
    let mut t = Script::new(Setup { defer_accept: 2, ..Setup::default() });
    t.us.listening = true;
    t.inject(peer("S").seq(0).win(60_000).mss(1000));
    t.inject(peer(".").win(1000));
    t.pass(Duration::from_secs(200));
    assert!(t.us.removed && !t.us.accepted);
}

#[test]
fn seconds_of_waiting_for_data_are_counted_in_time_outs() {
    let config = tcp::Config::default();
    let count = |seconds| tcp::config::time_outs_in(Duration::from_secs(seconds), &config);
    assert_eq!([0, 1, 2, 3, 4, 7, 8].map(count), [0, 1, 2, 2, 3, 3, 4]);
    assert_eq!(count(u64::MAX / 4), u8::MAX);
}

/// Attributes of a route: the MSS and the window of our SYN, and the first flight.
#[test]
fn what_is_known_of_the_path_bounds_the_syn_and_the_first_flight() {
    let mut setup = Setup::default();
    setup.options.announced_mss = Some(600);
    setup.options.initial_window = Some(3);
    setup.options.initial_receive_window = Some(2);
    let mut t = Script::new(setup.clone());
    t.us.open(t.now);
    t.expect(&["S 0:0(0) <mss 600,sackOK,TS 1000 0,wscale 7>"]);
    t.pass(ms(30));
    t.inject(peer("S.").seq(0).mss(1460));
    t.expect(&[". 1:1(0) ack 1 win 1200"]);
    let status = t.us.status();
    assert_eq!((status.announced_mss, status.mss, status.cwnd), (600, 1460, 3 * 1460), "it bounds what comes");
    t.inject(peer("P.").len(500));
    t.expect(&[". 1:1(0) ack 501 win 65036"]);

    let mut t = Script::accepted(setup, |syn| syn.mss(1460).scale(7));
    assert_eq!(t.us.status().receive_window, 1200);
    t.send(10_000);
    assert_eq!(t.us.status().unacknowledged, 3 * 1460);
}

/// RFC 5681 section 3.1 and RFC 6928 section 2 count bytes too: large segments are fewer. A window set by the user is
/// used as set.
#[test]
fn the_initial_window_of_large_segments_is_what_the_profile_allows() {
    let segments = [536, 1460, 2190, 2200, 8960];
    let cases = [
        (Profile::Linux, None, [10, 10, 10, 10, 10]),
        (Profile::FreeBsd, None, [10, 10, 6, 6, 2]),
        (Profile::Rfc, None, [4, 3, 2, 2, 2]),
        (Profile::Rfc, Some(7), [7, 7, 7, 7, 7]),
    ];
    for (profile, own, windows) in cases {
        for (mss, window) in segments.into_iter().zip(windows) {
            let mut setup = Setup { mss, config: profile.config(), ..Setup::default() };
            (setup.config.timestamps, setup.options.initial_window) = (false, own);
            let mut s = Script::connected(setup, |syn| syn.mss(mss));
            assert_eq!(s.us.status().cwnd / u32::from(mss), window, "{profile}, segments of {mss}");
        }
    }
}
