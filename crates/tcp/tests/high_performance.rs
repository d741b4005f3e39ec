//! Window scaling, timestamps and PAWS (RFC 7323), beyond opening and receiving data in order.

mod support;

use std::time::Duration;

use observe::{Counter, DropReason};
use support::endpoint::Setup;
use support::ms;
use support::script::{Script, peer};
use tcp::config::WindowRule;
use tcp::{Disposition, State};
use wire::tcp::Timestamps;

fn delayed() -> Setup {
    let mut setup = Setup::default();
    setup.config.quick_acks = 0;
    setup
}

fn with_timestamps() -> Script {
    Script::connected(delayed(), |syn| syn.ts(100, 1000))
}

fn dropped(t: &Script) -> Option<DropReason> {
    match t.us.last {
        Some(Disposition::Dropped(reason)) => Some(reason),
        _ => None,
    }
}

/// The timestamp echoed by the only segment sent since the last call.
#[track_caller]
fn echoed(t: &mut Script) -> u32 {
    let lines = t.take();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let echo = lines[0].split("<TS ").nth(1).and_then(|option| option.split([' ', '>', ',']).nth(1));
    echo.and_then(|echo| echo.parse().ok()).unwrap_or_else(|| panic!("no echo in {lines:?}"))
}

/// The timestamp of the only segment sent since the last call.
#[track_caller]
fn stamped(t: &mut Script) -> u32 {
    let lines = t.take();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let stamp = lines[0].split("<TS ").nth(1).and_then(|option| option.split(' ').next());
    stamp.and_then(|stamp| stamp.parse().ok()).unwrap_or_else(|| panic!("no timestamp in {lines:?}"))
}

/// Two threads, whose batches are of different age, use a connection in turn: the clock that its peer sees never goes back.
#[test]
fn timestamps_do_not_go_back_with_the_time_of_an_older_batch() {
    let mut t = Script::connected(Setup::default(), |syn| syn.ts(100, 1000));
    let (older, mut last) = (t.now, 0);
    for step in 1..20 {
        t.now = older + Duration::from_millis(50 * step);
        t.send(10);
        let newer = stamped(&mut t);
        assert!(newer > last, "{newer} follows {last}");
        t.now = older + Duration::from_millis(7 * step);
        t.inject(peer("P.").seq(1 + 10 * (step as u32 - 1)).len(10).ack(1 + 10 * step as u32).ts(100, newer));
        // What is sent at the older time.
        for line in t.take() {
            assert!(line.contains(&format!("<TS {newer} ")), "{line} follows {newer}");
        }
        last = newer;
    }
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
//= type=test
//# A Window Scale option in a segment without a SYN bit MUST be ignored.
#[test]
fn a_scale_behind_the_handshake_changes_nothing() {
    for agreed in [None, Some(2)] {
        let mut t = Script::connected(Setup::default(), |syn| match agreed {
            Some(shift) => syn.scale(shift),
            None => syn,
        });
        t.inject(peer(".").win(1000).scale(7));
        let status = t.us.status();
        let shift = agreed.unwrap_or(0);
        assert_eq!((status.send_shift, status.send_window), (shift, 1000 << shift));
        t.inject(peer(".").win(500));
        assert_eq!(t.us.status().send_window, 500 << shift);
    }
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//= type=test
//# The window field (SEG.WND) in the header of every incoming segment, with the exception of <SYN> segments, MUST be
//# left-shifted by Snd.Wind.Shift bits before updating SND.WND:
#[test]
fn every_window_behind_the_handshake_is_scaled_by_what_the_peer_said() {
    let mut t = Script::connected(Setup::default(), |syn| syn.scale(3));
    assert_eq!(t.us.status().send_window, 60_000, "that of the SYN-ACK is not");
    for window in [5000, 1, u16::MAX] {
        t.inject(peer(".").win(window));
        assert_eq!(t.us.status().send_window, u32::from(window) * 8);
    }
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//= type=test
//# Thus, the shift count MUST be limited to 14 (which allows windows of 2^30 = 1 GiB).
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//= type=test
//# If a Window Scale option is received with a shift.cnt value larger than 14, the TCP SHOULD log the error but MUST
//# use 14 instead of the specified value.
#[test]
fn no_shift_is_above_fourteen() {
    let mut setup = Setup::default();
    setup.config.receive_buffer.max = u32::MAX;
    assert_eq!(setup.config.window_shift(), 14);
    let mut t = Script::new(setup);
    t.us.open(t.now);
    let syn = t.take();
    assert!(syn[0].contains("wscale 14"), "{syn:?}");
    t.inject(peer("S.").seq(0).win(60_000).mss(1000).scale(15));
    assert_eq!(t.us.status().send_shift, 14);
    t.inject(peer(".").win(2));
    assert_eq!(t.us.status().send_window, 2 << 14);
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-2.4
//= type=test
//# Implementations MUST ensure that they handle a shrinking window, as specified in Section 4.2.2.16 of [RFC1122].
#[test]
fn a_window_that_shrinks_below_what_is_out_holds_new_data_and_loses_none() {
    let mut t = Script::connected(Setup::default(), |syn| syn);
    t.send(12_000);
    assert_eq!(t.ranges().len(), 10);
    t.inject(peer(".").ack(1001).win(2000));
    assert_eq!(t.ranges(), [""; 0], "7000 bytes are beyond the edge");
    // Data sent beyond it is lost, and is retransmitted nevertheless.
    let mut acked = 1001;
    for _ in 0..40 {
        let end = |range: &String| range.split(':').nth(1).and_then(|end| end.parse().ok());
        let sent = t.ranges().iter().filter_map(end).max().unwrap_or(acked);
        acked = acked.max(sent);
        t.inject(peer(".").ack(acked).win(2000));
        t.pass(ms(500));
    }
    assert_eq!((acked, t.us.status().unacknowledged), (12_001, 0));
}

/// A scaled window is rounded up on the wire.
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.4
//= type=test
//# The receiver MUST honor, as in window, any segment that would have been in window for any <ACK> sent by the
//# receiver.
#[test]
fn data_within_what_the_window_field_said_is_taken() {
    let mut setup = delayed();
    setup.options.receive_buffer = Some(8000);
    let mut t = Script::connected(setup, |syn| syn.scale(0));
    t.inject(peer(".").len(2000));
    t.pass(ms(100));
    let line = t.take().pop().expect("an acknowledgement");
    assert!(line.contains("ack 2001 win 48"), "63 units from 1 on end 47.4 units of 128 from 2001 on: {line}");
    let (edge, mut seq) = (2001 + 48 * 128, 2001);
    while seq < edge {
        let len = (edge - seq).min(1000);
        t.inject(peer(".").seq(seq).len(len as usize));
        seq += len;
    }
    assert_eq!(t.read(), edge as usize - 1, "every byte that the peer was told it may send");
}

/// ACK number and right edge of every acknowledgement since the last call, with windows in units of 128.
fn edges(t: &mut Script) -> Vec<(u32, u32)> {
    let number = |line: &str, name: &str| {
        let rest = line.split(name).nth(1).and_then(|rest| rest.split([' ', '<']).next());
        rest.and_then(|rest| rest.parse::<u32>().ok()).unwrap_or_else(|| panic!("no{name}in {line}"))
    };
    let edge = |line: String| (number(&line, " ack "), number(&line, " ack ") + number(&line, " win ") * 128);
    t.take().into_iter().map(edge).collect()
}

/// The peer sends segments of `len` bytes until the window has no room for another, or `most` bytes have arrived; the
/// user reads now and then if `reads`. Returns the ACK numbers and edges that the peer saw.
fn seen(rule: WindowRule, len: u32, most: u32, reads: bool) -> Vec<(u32, u32)> {
    let mut setup = Setup::default();
    setup.config.window_rule = rule;
    let mut t = Script::new(setup);
    t.us.open(t.now);
    t.take();
    t.inject(peer("S.").seq(0).ack(1).win(60_000).mss(1000).scale(0));
    let mut all = edges(&mut t);
    let mut seq = 1;
    while seq + len <= all[all.len() - 1].1 && seq <= most {
        t.inject(peer(".").seq(seq).len(len as usize));
        seq += len;
        t.pass(ms(300));
        if reads && seq % 3 == 0 {
            t.read();
        }
        all.extend(edges(&mut t));
    }
    all
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//= type=test
//# A TCP receiver SHOULD NOT shrink the window, i.e., move the right window edge to the left (SHLD-14).
#[test]
fn the_edge_of_a_scaled_window_never_moves_left() {
    for rule in [WindowRule::Linux, WindowRule::FreeBsd, WindowRule::Rfc] {
        // Short segments use the whole window beyond the buffer.
        for (len, most) in [(1, 3000), (127, 16_000), (129, 16_000), (255, 32_000), (1000, 1 << 20), (1448, 1 << 20)] {
            for reads in [false, true] {
                let seen = seen(rule, len, most, reads);
                assert!(seen.len() > 20, "{rule:?}: segments of {len}: {} acknowledgements", seen.len());
                let left = seen.windows(2).find(|pair| pair[1].1 < pair[0].1);
                assert_eq!(left, None, "{rule:?}: segments of {len}, reads: {reads}");
            }
        }
    }
}

/// The window closes for any size of the peer's segments.
#[test]
fn small_segments_fill_no_more_than_a_quarter_beyond_the_buffer() {
    for rule in [WindowRule::Linux, WindowRule::FreeBsd, WindowRule::Rfc] {
        for len in [31, 127, 255] {
            let seen = seen(rule, len, 1 << 20, false);
            let (acked, edge) = seen[seen.len() - 1];
            assert!(
                acked <= 65_536 / 4 * 5 + 256 && edge < acked + len,
                "{rule:?}: segments of {len}: {acked}, {edge}"
            );
        }
    }
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
//= type=test
//# When the ACK bit is not set, the receiver MUST ignore the value of the TSecr field.
#[test]
fn the_echo_of_a_syn_means_nothing() {
    for echo in [0, 1, 900, u32::MAX] {
        let mut t = Script::new(Setup::default());
        t.us.listening = true;
        let mut syn = peer("S").seq(0).mss(1000);
        syn.options.timestamps = Some(Timestamps { value: 7, echo });
        t.inject(syn);
        t.take();
        t.pass(ms(30));
        t.inject(peer(".").ts(8, 1000));
        let status = t.us.status();
        assert_eq!((status.state, status.srtt), (State::Established, Some(ms(30))), "echo {echo}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
//= type=test
//# Once TSopt has been successfully negotiated, that is both <SYN> and <SYN,ACK> contain TSopt, the TSopt MUST be sent
//# in every non-<RST> segment for the duration of the connection, and SHOULD be sent in an <RST> segment (see Section
//# 5.2 for details).
#[test]
fn once_agreed_upon_every_segment_carries_timestamps() {
    let mut t = Script::new(delayed());
    t.us.open(t.now);
    t.inject(peer("S.").seq(0).win(2000).mss(1000).ts(100, 1000));
    t.send(1900);
    // Retransmissions, the acknowledgement of duplicate data, a probe, new data, and the FIN.
    t.pass(ms(1000));
    t.inject(peer("P.").len(10).ack(1901).ts(101, 1000).win(0));
    t.inject(peer("P.").seq(1).len(10).ack(1901).ts(101, 1000).win(0));
    t.send(100);
    t.pass(ms(3000));
    assert!(t.us.count(Counter::Retransmits) > 0 && t.us.count(Counter::WindowProbesOut) > 0);
    t.inject(peer(".").seq(11).ack(1901).ts(102, 1000));
    t.read();
    t.run(tcp::Close);
    let lines = t.take();
    assert!(lines.iter().any(|line| line.starts_with('F')) && lines.iter().any(|line| line.contains("(0)")));
    assert!(lines.iter().all(|line| line.contains("TS ")), "{lines:#?}");
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
//= type=test
//# If a TSopt is received on a connection where TSopt was not negotiated in the initial three-way handshake, the TSopt
//# MUST be ignored and the packet processed normally.
#[test]
fn timestamps_that_were_not_agreed_upon_are_ignored() {
    let mut t = Script::connected(delayed(), |syn| syn);
    t.inject(peer("P.").len(100).ts(500, 3));
    t.inject(peer("P.").seq(101).len(100).ts(400, 9));
    assert_eq!((t.read(), dropped(&t)), (200, None), "an older one is no reason to refuse text");
    t.send(10);
    assert!(t.take().iter().all(|line| !line.contains("TS")));
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-4.3
//= type=test
//# Thus, the timestamp from the latest segment (which filled the hole) MUST be echoed.
#[test]
fn the_timestamp_of_what_filled_the_hole_is_echoed() {
    let mut t = with_timestamps();
    t.inject(peer(".").ts(110, 1000).len(500));
    t.pass(ms(100));
    assert_eq!(echoed(&mut t), 110);
    t.inject(peer(".").ts(120, 1000).seq(1001).len(500));
    assert_eq!(echoed(&mut t), 110, "text behind a hole leaves the echo");
    t.inject(peer(".").ts(130, 1000).seq(501).len(500));
    assert_eq!(echoed(&mut t), 130);
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-5.2
//= type=test
//# The choice of incoming timestamps to be saved for this comparison MUST guarantee a value that is monotonically
//# non-decreasing.
#[test]
fn the_timestamp_to_echo_never_goes_back() {
    let mut t = with_timestamps();
    let mut seq = 1;
    let mut highest = 100;
    for value in [150, 140, 150, 148, 200, 100, 201] {
        t.inject(peer("P.").ts(value, 1000).seq(seq).len(1500));
        if value >= highest {
            (highest, seq) = (value, seq + 1500);
        } else {
            assert_eq!(dropped(&t), Some(DropReason::TcpPaws));
        }
        t.pass(ms(100));
        assert_eq!(echoed(&mut t), highest, "after {value}");
        t.read();
        t.take();
    }
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-5.2
//= type=test
//# When an <RST> segment is received, it MUST NOT be subjected to the PAWS check by verifying an acceptable value in
//# SEG.TSval, and information from the Timestamps option MUST NOT be used to update connection state information.
#[test]
fn a_reset_is_not_asked_for_its_timestamp() {
    for value in [None, Some(1), Some(u32::MAX)] {
        let mut t = with_timestamps();
        let mut reset = peer("R");
        reset.options.timestamps = value.map(|value| Timestamps { value, echo: 0 });
        t.inject(reset);
        assert_eq!(t.state(), State::Closed, "timestamp {value:?}");
    }
    // And one that resets nothing changes nothing.
    let mut t = with_timestamps();
    t.inject(peer("R").seq(2).ts(50_000, 0));
    assert_eq!((t.state(), echoed(&mut t)), (State::Established, 100));
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-5.3
//= type=test
//# Also, PAWS processing MUST take precedence over the regular TCP acceptability check (Section 3.3 in [RFC0793]),
//# which is performed after verification of the received Timestamps option:
#[test]
fn an_old_timestamp_is_found_before_the_place_in_the_window_is_looked_at() {
    for seq in [1, 5000, 200_000] {
        let mut t = with_timestamps();
        t.inject(peer("P.").ts(98, 1000).seq(seq).len(10));
        assert_eq!((dropped(&t), t.read()), (Some(DropReason::TcpPaws), 0), "text at {seq}");
        t.inject(peer("P.").ts(100, 1000).seq(200_000).len(10));
        assert_eq!(dropped(&t), Some(DropReason::TcpOutOfWindow));
    }
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-5.3
//= type=test
//# It is important to note that the timestamp MUST be checked only when a segment first arrives at the receiver,
//# regardless of whether it is in sequence or it must be queued for later delivery.
#[test]
fn data_that_waited_for_a_hole_is_not_checked_again() {
    let mut t = with_timestamps();
    t.inject(peer(".").ts(110, 1000).seq(501).len(500));
    t.inject(peer(".").ts(900, 1000).seq(1).len(500));
    assert_eq!(t.read(), 1000, "110 is older than 900, and was new when it arrived");
}
