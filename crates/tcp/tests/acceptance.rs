//! Acceptance of segments and acknowledgements, and their effects: RFC 9293 sections 3.4 and 3.10.7.4, RFC 5681 section
//! 2, over IPv4 and IPv6.

mod support;

use observe::Counter;
use support::endpoint::Setup;
use support::ms;
use support::script::{Script, peer};
use tcp::{Disposition, Readiness, SetOption, SocketOption, State};

fn families() -> [Setup; 2] {
    let mut v6 = Setup::default();
    v6.tuple.local_addr = "2001:db8::1".parse().expect("an address");
    v6.tuple.remote_addr = "2001:db8::2".parse().expect("an address");
    [Setup::default(), v6]
}

/// Without SACK and timestamps, MSS 1000, in both families.
fn plain() -> [Script; 2] {
    families().map(|setup| Script::connected(setup, |syn| syn))
}

/// RFC 9293, 3.4, table 6, with RCV.NXT 1 and RCV.WND 65,535: "RCV.NXT =< SEG.SEQ < RCV.NXT+RCV.WND, or RCV.NXT =<
/// SEG.SEQ+SEG.LEN-1 < RCV.NXT+RCV.WND". 3.10.7.4: "If an incoming segment is not acceptable, an acknowledgment should
/// be sent in reply".
#[test]
fn a_segment_is_acceptable_if_its_first_or_last_byte_lies_in_the_window() {
    for (seq, len, acceptable) in [
        (1, 1, true),
        (0, 1, false),
        (0, 2, true),
        (0xffff_ff00, 200, false),
        (0xffff_ff00, 257, false),
        (0xffff_ff00, 258, true),
        (65_535, 1, true),
        (65_536, 1, false),
        (65_530, 100, true),
        (1, 0, true),
        (65_535, 0, true),
        (0, 0, false),
        (65_537, 0, false),
        (0x8000_0001, 0, false),
    ] {
        for mut t in plain() {
            t.inject(peer(".").seq(seq).len(len));
            let dropped = matches!(t.us.last, Some(Disposition::Dropped(_)));
            assert_eq!(!dropped, acceptable, "{len} bytes at {seq}");
            if !acceptable {
                t.expect(&[". 1:1(0) ack 1 win 65535"]);
                assert_eq!(t.read(), 0);
            }
        }
    }
}

/// RFC 5681, 2: a duplicate acknowledgement is one where "(b) the incoming acknowledgment carries no data" and "(e) the
/// advertised window in the incoming acknowledgment equals the advertised window in the last incoming acknowledgment".
#[test]
fn segments_with_data_or_another_window_are_no_duplicate_acknowledgements() {
    for mut t in plain() {
        t.send(5000);
        t.take();
        for n in 0..4 {
            t.inject(peer("P.").seq(1 + 10 * n).len(10));
        }
        for n in 1..5 {
            t.inject(peer(".").seq(41).win(60_000 - n));
        }
        assert!(t.take().iter().all(|line| !line.contains("(1000)")), "nothing is sent again");
        assert_eq!(t.us.count(Counter::Retransmits), 0);
        // And those that are duplicates are noticed.
        for _ in 0..4 {
            t.inject(peer(".").seq(41).win(59_996));
        }
        assert_eq!(t.us.count(Counter::Retransmits), 1);
    }
}

/// A user that has requested notification of acknowledged data is notified neither of a window update nor of a
/// repetition.
#[test]
fn an_acknowledgement_of_nothing_new_is_reported_to_no_user() {
    for mut t in plain() {
        t.run(SetOption(SocketOption::NotifyAcknowledged)).expect("it is an option");
        t.us.ready = Readiness::NONE;
        t.inject(peer(".").win(50_000));
        t.send(1000);
        t.inject(peer(".").win(51_000));
        t.inject(peer(".").win(51_000));
        assert!(!t.us.ready.contains(Readiness::ACKNOWLEDGED));
        t.inject(peer(".").ack(1001));
        assert!(t.us.ready.contains(Readiness::ACKNOWLEDGED));
    }
}

/// The counter's sentence: times the peer closed its window, not segments with or without a window.
#[test]
fn a_window_that_closes_is_counted_once() {
    for mut t in plain() {
        t.inject(peer(".").win(50_000));
        assert_eq!(t.us.count(Counter::ZeroWindowsIn), 0);
        for _ in 0..3 {
            t.inject(peer(".").win(0));
        }
        assert_eq!(t.us.count(Counter::ZeroWindowsIn), 1);
        t.inject(peer(".").win(50_000));
        t.inject(peer(".").win(0));
        assert_eq!(t.us.count(Counter::ZeroWindowsIn), 2);
    }
}

/// RFC 9293, 3.8.3: "When the number of transmissions of the same segment reaches a threshold R2 [...] close the
/// connection." Another segment begins at nothing.
#[test]
fn retransmissions_of_one_segment_do_not_count_for_the_next() {
    for setup in families() {
        let mut setup = setup;
        setup.config.retries = 4;
        let mut t = Script::connected(setup, |syn| syn);
        t.send(3000);
        let time_outs = |t: &mut Script, wanted: u64| {
            for _ in 0..10_000 {
                if t.us.count(Counter::Timeouts) >= wanted {
                    return;
                }
                t.pass(ms(10));
            }
            panic!("{wanted} time-outs do not come");
        };
        time_outs(&mut t, 3);
        t.inject(peer(".").ack(1001));
        time_outs(&mut t, 6);
        assert_eq!(t.state(), State::Established);
        t.inject(peer(".").ack(2001));
        time_outs(&mut t, 9);
        assert_eq!(t.state(), State::Established);
        t.pass(ms(2_000_000));
        assert_eq!(t.state(), State::Closed, "the same segment, more than four times");
    }
}

/// RFC 5681, 3.1: the window grows by at most "the number of previously unacknowledged bytes acknowledged in the incoming
/// ACK": bytes that a SACK block has reported before are counted once.
#[test]
fn bytes_reported_before_do_not_open_the_congestion_window_twice() {
    for setup in families() {
        let window = |reordered: bool| {
            let mut t = Script::connected(setup.clone(), |syn| syn.sack_permitted());
            t.send(60_000);
            t.pass(ms(50));
            if reordered {
                t.inject(peer(".").sack(&[(1001, 2001)]));
            } else {
                t.inject(peer(".").ack(1001));
            }
            t.inject(peer(".").ack(2001));
            t.us.status().cwnd
        };
        assert!(window(true) <= window(false), "{} and {} bytes", window(true), window(false));
    }
}

/// Both have closed, the peer last: TIME-WAIT until 60 s after the peer's FIN.
fn time_wait(setup: Setup) -> Script {
    let mut t = Script::connected(setup, |syn| syn);
    t.run(tcp::Close);
    t.inject(peer("F.").ack(2));
    t.take();
    assert_eq!(t.state(), State::TimeWait);
    t
}

/// RFC 9293, 3.10.7.4, eighth: in TIME-WAIT, a FIN restarts "the 2 MSL time-wait timeout"; seventh: "Ignore the segment
/// text."
#[test]
fn in_time_wait_a_fin_in_the_window_begins_the_wait_again_and_data_does_not() {
    for (flags, lasts) in [("F.", true), ("P.", false)] {
        for setup in families() {
            let mut t = time_wait(setup);
            t.pass(ms(40_000));
            t.inject(peer(flags).seq(2).ack(2).len(if lasts { 0 } else { 10 }));
            t.pass(ms(40_000));
            assert_eq!(t.us.removed, !lasts, "{flags}");
            t.pass(ms(21_000));
            assert!(t.us.removed, "{flags}");
        }
    }
}

/// The same place, in other states after the peer's FIN: "Remain in the CLOSE-WAIT state", "the CLOSING state", "the
/// LAST-ACK state".
#[test]
fn another_fin_changes_no_state_after_the_first() {
    for setup in families() {
        let mut t = Script::connected(setup, |syn| syn);
        t.inject(peer("F."));
        t.inject(peer("F.").seq(2));
        assert_eq!(t.state(), State::CloseWait);
        t.pass(ms(3_600_000));
        assert_eq!(t.state(), State::CloseWait, "the user may send for as long as it likes");
        assert_eq!(t.send(100), 100);
    }
}

/// RFC 9293, 3.10.7.4, second: a reset of a connection "initiated with an active OPEN (i.e., came from SYN-SENT state)
/// [...] then the connection was refused"; later, "connection reset". If the peer had closed before, Linux reports a
/// broken pipe to the user.
#[test]
fn a_reset_is_reported_by_the_state_that_it_meets() {
    for setup in families() {
        let mut t = Script::new(setup.clone());
        t.us.open(t.now);
        t.inject(peer("S").seq(0).win(60_000).mss(1000));
        assert_eq!(t.state(), State::SynReceived, "both opened at once");
        t.inject(peer("R").seq(1));
        assert_eq!(t.us.status().error, Some(tcp::Error::Refused));
        let mut t = Script::connected(setup.clone(), |syn| syn);
        t.inject(peer("R").seq(1));
        assert_eq!(t.us.status().error, Some(tcp::Error::Reset));
        let mut t = Script::connected(setup, |syn| syn);
        t.inject(peer("F."));
        t.inject(peer("R").seq(2));
        assert_eq!(t.us.status().error, Some(tcp::Error::Shutdown));
    }
}

/// RFC 6191, 2: if timestamps were not used by the previous incarnation and are by the new one, the SYN is accepted,
/// whatever its timestamp and its number are.
#[test]
fn time_wait_without_timestamps_gives_way_to_any_syn_with_one() {
    for setup in families() {
        for value in [1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
            let mut t = time_wait(setup.clone());
            t.us.listening = true;
            t.us.setup.iss = t.us.setup.iss.wrapping_add(7777);
            t.inject(peer("S").seq(0u32.wrapping_sub(50_000)).ts(value, 0).mss(1000));
            assert_eq!(t.state(), State::SynReceived, "TSval {value:#x}");
        }
    }
}

/// RFC 7323, 4.3 and 5.2: TS.Recent is monotonically non-decreasing, also where a tick of disorder is tolerated; 5.5:
/// after 24 days of silence it is invalid, and the next timestamp takes its place, whatever it is.
#[test]
fn ts_recent_goes_back_only_after_24_days() {
    for setup in families() {
        let mut t = Script::connected(setup, |syn| syn.ts(100, 1000));
        let echo = |t: &mut Script| {
            t.pass(ms(200));
            let line = t.take().pop().expect("an acknowledgement");
            line.trim_end_matches('>').rsplit(' ').next().and_then(|echo| echo.parse::<u32>().ok())
        };
        t.inject(peer("P.").ts(200, 1000).len(10));
        assert_eq!(echo(&mut t), Some(200));
        t.inject(peer("P.").ts(199, 1000).seq(11).len(10));
        assert_eq!((echo(&mut t), t.read()), (Some(200), 20), "one tick is tolerated, and not echoed");
        t.take();
        t.pass(std::time::Duration::from_secs(25 * 86_400));
        t.inject(peer("P.").ts(5, 1000).seq(21).len(10));
        assert_eq!((echo(&mut t), t.read()), (Some(5), 10));
    }
}

/// RFC 2883, 4: a D-SACK block reports "a duplicate contiguous sequence of data": not what lies beyond the window, what
/// no connection could have sent lately, a SYN, or a segment without data; and none where the user has switched it off.
/// The counted reason distinguishes them.
#[test]
fn only_a_duplicate_of_data_is_reported_as_one() {
    use observe::DropReason::{TcpOldDuplicate, TcpOutOfWindow, TcpUnexpectedSyn};
    for (segment, dsack, reason, block) in [
        (peer("P.").seq(1).len(100), true, TcpOldDuplicate, true),
        (peer("P.").seq(51).len(50), true, TcpOldDuplicate, true),
        (peer("P.").seq(1).len(100), false, TcpOldDuplicate, false),
        (peer("P.").seq(101u32.wrapping_sub(60_000)).len(100), true, TcpOldDuplicate, true),
        (peer("P.").seq(101u32.wrapping_sub(1 << 20)).len(100), true, TcpOutOfWindow, false),
        (peer("P.").seq(0x8000_0100).len(100), true, TcpOutOfWindow, false),
        (peer("P.").seq(200_000).len(100), true, TcpOutOfWindow, false),
        (peer(".").seq(50), true, TcpOutOfWindow, false),
        (peer("F.").seq(50), true, TcpOldDuplicate, false),
        (peer("S.").seq(1).len(10), true, TcpOldDuplicate, false),
    ] {
        for mut setup in families() {
            setup.config.dsack = dsack;
            setup.config.receive_buffer = tcp::config::BufferSizes { min: 20_000, initial: 20_000, max: 20_000 };
            let mut t = Script::connected(setup, |syn| syn.sack_permitted());
            t.inject(peer("P.").len(100));
            t.pass(ms(200));
            t.take();
            t.inject(segment.clone());
            let Some(Disposition::Dropped(counted)) = t.us.last else { panic!("{segment:?} is taken") };
            assert!(counted == reason || counted == TcpUnexpectedSyn, "{counted:?} for {segment:?}");
            let answer = t.take();
            assert_eq!(answer.len(), 1, "{segment:?}");
            assert_eq!(answer[0].contains("sack"), block, "{answer:?} to {segment:?}");
        }
    }
}

/// RFC 7323, 3.2: "If a TSopt is received on a connection where TSopt was not negotiated in the initial three-way
/// handshake, the TSopt MUST be ignored". A SYN-ACK that echoes nothing is an answer as well; and one that comes within
/// the tick of the SYN, or just after it, echoes the SYN's own value.
#[test]
fn an_answer_to_our_syn_is_not_refused_for_its_timestamp_without_need() {
    for setup in families() {
        for (timestamps, echo) in [(false, Some(123_456)), (false, Some(0)), (true, Some(0)), (true, None)] {
            for between in [200, 1_800] {
                let mut setup = setup.clone();
                setup.config.timestamps = timestamps;
                let mut t = Script::new(setup);
                t.pass(std::time::Duration::from_micros(900));
                t.us.open(t.now);
                let syn = t.take().pop().expect("a SYN");
                let own = syn.split("TS ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
                t.pass(std::time::Duration::from_micros(between));
                let echo = echo.unwrap_or_else(|| own.expect("our SYN has a timestamp"));
                t.inject(peer("S.").seq(0).ack(1).mss(1000).ts(5, echo));
                assert_eq!(t.state(), State::Established, "echo {echo} with timestamps {timestamps}");
            }
        }
    }
}
