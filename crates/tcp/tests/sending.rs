//! Sending: segmentation, PSH, Nagle, cork, windows, probes, credit, buffers, path MTU.

mod support;

use observe::Counter;
use pktbuf::Chunk;
use support::endpoint::Setup;
use support::ms;
use support::script::{Peer, Script, peer};
use tcp::config::SendAccounting;
use tcp::{Error, PathMtu, Readiness, Send, SetOption, SocketOption, TransmitReady};
use wire::SeqNumber;

fn plain() -> Script {
    Script::connected(Setup::default(), |syn| syn)
}

/// With a send buffer that holds exactly this many bytes of data.
fn by_bytes() -> Setup {
    let mut setup = Setup::default();
    setup.config.send_accounting = SendAccounting::Bytes;
    setup
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
//= type=test
//# and (2) MUST set the PSH bit in the last buffered segment (i.e., when there is no more queued data to be sent)
//# (MUST-61).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
//= type=test
//# However, a TCP implementation SHOULD send a maximum-sized segment whenever possible (SHLD-28) to improve performance
//# (see Section 3.8.6.2.1).
#[test]
fn data_is_cut_into_segments_and_the_last_has_psh() {
    let mut t = plain();
    t.send(2500);
    t.expect(&[
        ". 1:1001(1000) ack 1 win 65535",
        ". 1001:2001(1000) ack 1 win 65535",
        "P. 2001:2501(500) ack 1 win 65535",
    ]);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
//= type=test
//# A TCP endpoint MUST implement the basic congestion control algorithms slow start, congestion avoidance, and
//# exponential backoff of RTO to avoid creating congestion collapse conditions (MUST-19).
#[test]
fn the_initial_window_is_ten_segments_and_doubles() {
    let mut t = plain();
    t.send(100_000);
    assert_eq!(t.take().len(), 10);
    t.pass(ms(10));
    t.inject(peer(".").ack(2001).win(60_000));
    assert_eq!(t.take().len(), 4);
    t.inject(peer(".").ack(10_001).win(60_000));
    assert_eq!(t.take().len(), 16);
}

#[test]
fn super_segments_are_pushed_where_that_is_wanted() {
    let mut setup = Setup { super_segments: 4_500, ..Setup::default() };
    setup.config.push_super_segments = true;
    let mut t = Script::connected(setup, |syn| syn);
    t.send(13_000);
    t.expect(&[
        "P. 1:4001(4000) ack 1 win 65535",
        "P. 4001:8001(4000) ack 1 win 65535",
        "P. 8001:10001(2000) ack 1 win 65535",
    ]);
    t.inject(peer(".").ack(1001).win(60_000));
    t.expect(&["P. 10001:12001(2000) ack 1 win 65535"]);
}

#[test]
fn a_super_segment_is_whole_segments() {
    let mut t = Script::connected(Setup { super_segments: 4_500, ..Setup::default() }, |syn| syn);
    t.send(6300);
    assert_eq!(t.us.sent[0].meta().segment_size, 1000);
    t.expect(&[". 1:4001(4000) ack 1 win 65535", "P. 4001:6301(2300) ack 1 win 65535"]);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
//= type=test
//# When an application issues a series of SEND calls without setting the PUSH flag, the TCP implementation MAY
//# aggregate the data internally without sending it (MAY-16).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
//= type=test
//# The transmitter SHOULD collapse successive bits when it packetizes data, to send the largest possible segment
//# (SHLD-27).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.4
//= type=test
//# A TCP implementation SHOULD implement the Nagle algorithm to coalesce short segments (SHLD-7).
#[test]
fn nagle_holds_the_second_small_segment() {
    let mut t = plain();
    t.send(10);
    t.expect(&["P. 1:11(10) ack 1 win 65535"]);
    t.send(10);
    t.send(10);
    t.expect(&[]);
    t.inject(peer(".").ack(11).win(60_000));
    t.expect(&["P. 11:31(20) ack 1 win 65535"]);
    // A full segment need not wait, but the rest must.
    t.send(1010);
    t.expect(&[". 31:1031(1000) ack 1 win 65535"]);
    t.inject(peer(".").ack(1031).win(60_000));
    t.expect(&["P. 1031:1041(10) ack 1 win 65535"]);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.4
//= type=test
//# However, there MUST be a way for an application to disable the Nagle algorithm on an individual connection
//# (MUST-17).
#[test]
fn no_delay_sends_small_segments_and_releases_held_ones() {
    let mut t = plain();
    t.send(10);
    t.send(10);
    t.take();
    t.run(SetOption(SocketOption::NoDelay(true))).unwrap();
    t.expect(&["P. 11:21(10) ack 1 win 65535"]);
    t.send(10);
    t.expect(&["P. 21:31(10) ack 1 win 65535"]);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
//= type=test
//# If PUSH flags are not implemented, then the sending TCP peer: (1) MUST NOT buffer data indefinitely (MUST-60),
#[test]
fn cork_holds_until_full_uncorked_or_late() {
    let mut t = plain();
    t.run(SetOption(SocketOption::Cork(true))).unwrap();
    t.send(600);
    t.expect(&[]);
    t.send(600);
    t.expect(&[". 1:1001(1000) ack 1 win 65535"]);
    t.run(SetOption(SocketOption::Cork(false))).unwrap();
    t.expect(&["P. 1001:1201(200) ack 1 win 65535"]);
    t.inject(peer(".").ack(1201).win(60_000));
    t.run(SetOption(SocketOption::Cork(true))).unwrap();
    t.send(5);
    assert_eq!(t.until_sent(ms(1000)), Some(ms(200)));
    t.expect(&["P. 1201:1206(5) ack 1 win 65535"]);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.2.1
//= type=test
//# A TCP implementation MUST include a SWS avoidance algorithm in the sender (MUST-38).
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.4
//= type=test
//# The initial transmission MUST be within the window announced by the most recent <ACK>.
#[test]
fn the_peers_window_limits() {
    let mut t = plain();
    t.inject(peer(".").win(2500));
    t.send(5000);
    // 500 bytes of window are left: less than a segment and less than half of the largest window.
    t.expect(&[". 1:1001(1000) ack 1 win 65535", ". 1001:2001(1000) ack 1 win 65535"]);
    t.inject(peer(".").ack(2001).win(3000));
    assert_eq!(t.take().len(), 3);
}

#[test]
fn half_of_the_largest_window_may_leave() {
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    t.inject(peer("S.").seq(0).win(600).mss(1000));
    t.take();
    t.send(5000);
    t.expect(&[". 1:601(600) ack 1 win 65535"]);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//= type=test
//# If the window shrinks to zero, the TCP implementation MUST probe it in the standard way (described below) (MUST-35).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
//= type=test
//# Probing of zero (offered) windows MUST be supported (MUST-36).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
//= type=test
//# The transmitting host SHOULD send the first zero-window probe when a zero window has existed for the retransmission
//# timeout period (SHLD-29)
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
//= type=test
//# and SHOULD increase exponentially the interval between successive probes (SHLD-30).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
//= type=test
//# As long as the receiving TCP peer continues to send acknowledgments in response to the probe segments, the sending
//# TCP peer MUST allow the connection to stay open (MUST-37).
#[test]
fn a_closed_window_is_probed_for_ever_while_the_peer_answers() {
    let mut t = plain();
    t.inject(peer(".").win(0));
    t.send(100);
    t.expect(&[]);
    let mut gap = 200;
    for _ in 0..40 {
        assert_eq!(t.until_sent(ms(200_000)), Some(ms(gap)));
        t.expect(&[". 0:0(0) ack 1 win 65535"]);
        t.inject(peer(".").win(0));
        gap = (gap * 2).min(120_000);
    }
    t.inject(peer(".").win(1000));
    t.expect(&["P. 1:101(100) ack 1 win 65535"]);
    assert_eq!(t.us.count(Counter::WindowProbesOut), 40);
}

#[test]
fn a_closed_window_whose_peer_is_silent_ends() {
    let mut setup = Setup::default();
    setup.config.retries = 4;
    setup.config.reset_on_timeout = true;
    let mut t = Script::connected(setup, |syn| syn);
    t.inject(peer(".").win(0));
    t.send(100);
    t.pass(ms(100_000));
    assert_eq!(t.take().len(), 5, "four probes and the reset");
    assert_eq!(t.us.status().error, Some(Error::TimedOut));
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
//= type=test
//# If PUSH flags are not implemented, then the sending TCP peer: (1) MUST NOT buffer data indefinitely (MUST-60),
#[test]
fn a_window_too_small_for_the_silly_window_rule_is_used_when_the_timer_expires() {
    let mut t = plain();
    t.inject(peer(".").win(100));
    t.send(3000);
    t.expect(&[]);
    assert_eq!(t.until_sent(ms(1000)), Some(ms(200)));
    t.expect(&[". 1:101(100) ack 1 win 65535"]);
}

#[test]
fn the_send_buffer_takes_what_fits_and_says_when_to_go_on() {
    let mut setup = by_bytes();
    setup.options.send_buffer = Some(5000);
    let mut t = Script::connected(setup, |syn| syn);
    t.us.ready = Readiness::NONE;
    assert_eq!(t.send(6000), 5000);
    assert_eq!(t.send(10), 0);
    assert!(!t.us.status().ready.contains(Readiness::WRITABLE));
    t.inject(peer(".").ack(1001).win(60_000));
    assert!(!t.us.ready.contains(Readiness::WRITABLE), "a fifth is not enough to wake for");
    t.inject(peer(".").ack(4001).win(60_000));
    assert!(t.us.ready.contains(Readiness::WRITABLE));
    assert_eq!(t.send(6000), 4000);
}

/// BSD's `SO_SNDLOWAT`: this many bytes of room wake a writer, however large the buffer is, and a buffer that is
/// smaller wakes it when it is empty.
#[test]
fn a_low_water_mark_says_when_a_writer_is_woken() {
    for (mark, buffer, first, second) in [(2048, 50_000, 2001, 3001), (9000, 3000, 2001, 3001)] {
        let mut setup = by_bytes();
        setup.options.send_buffer = Some(buffer);
        setup.config.send_low_water = Some(mark);
        let mut t = Script::connected(setup, |syn| syn);
        t.us.ready = Readiness::NONE;
        assert_eq!(t.send(60_000), buffer as usize);
        assert_eq!(t.send(10), 0);
        t.inject(peer(".").ack(first).win(60_000));
        assert!(!t.us.ready.contains(Readiness::WRITABLE), "{mark} bytes are not free yet");
        t.inject(peer(".").ack(second).win(60_000));
        assert!(t.us.ready.contains(Readiness::WRITABLE), "{mark} bytes are free");
    }
}

/// BSD's sendfile: a page is taken whole as soon as the low-water mark is free, also beyond the buffer, and the send after
/// which less is free leaves something, so that no further send is needed to learn it.
#[test]
fn data_is_taken_whole_or_not_at_all() {
    let mut setup = by_bytes();
    setup.options.send_buffer = Some(10_000);
    (setup.config.send_low_water, setup.config.send_whole) = (Some(2048), true);
    let mut t = Script::connected(setup, |syn| syn);
    t.us.ready = Readiness::NONE;
    let page = |t: &mut Script| {
        let sent = t.run(Send { chunks: tcp::Chunks::from_iter([Chunk::Static(&[7; 4096])]) }).expect("it takes data");
        (sent.accepted, sent.rest.len())
    };
    assert_eq!(
        [page(&mut t), page(&mut t)],
        [(4096, 0), (4096, 1)],
        "1808 of 10000 bytes are left, less than the mark"
    );
    assert_eq!(page(&mut t), (0, 1), "nothing is taken");
    t.inject(peer(".").ack(1 + 240).win(60_000));
    assert!(t.us.ready.contains(Readiness::WRITABLE), "2048 bytes are free");
    assert_eq!(page(&mut t), (4096, 1), "2048 bytes beyond the buffer");
    t.us.ready = Readiness::NONE;
    t.inject(peer(".").ack(1 + 240 + 4095).win(60_000));
    assert!(!t.us.ready.contains(Readiness::WRITABLE), "a byte is missing");
    t.inject(peer(".").ack(1 + 240 + 4096).win(60_000));
    assert!(t.us.ready.contains(Readiness::WRITABLE));
}

#[test]
fn the_send_buffer_grows_with_the_congestion_window() {
    let mut t = Script::connected(by_bytes(), |syn| syn);
    let before = t.us.status().send_buffer;
    let mut acked = 1;
    for _ in 0..400 {
        t.send(300_000);
        let sent = t.take().len() as u32;
        t.pass(ms(1));
        acked += 1000 * sent;
        t.inject(peer(".").ack(acked).win(60_000));
    }
    let status = t.us.status();
    assert!(status.cwnd <= 180_000, "the peer's window of 60 000 limits, so {} must not grow on", status.cwnd);
    assert!(status.send_buffer <= 2 * status.cwnd, "{}", status.send_buffer);
    let mut t = Script::connected(by_bytes(), |syn| syn.scale(10));
    let mut acked = 1;
    for _ in 0..12 {
        t.send(3_000_000);
        let sent = t.take().len() as u32;
        t.pass(ms(1));
        acked += 1000 * sent;
        t.inject(peer(".").ack(acked).win(60_000));
    }
    let status = t.us.status();
    assert!(status.send_buffer > before && status.send_buffer <= 4 << 20, "{}", status.send_buffer);
}

#[test]
fn without_credit_data_waits_and_acknowledgements_do_not() {
    let mut t = plain();
    t.us.credit = 1;
    t.send(3000);
    t.expect(&[". 1:1001(1000) ack 1 win 65535"]);
    assert!(t.us.tx_blocked);
    t.inject(peer("P.").len(10));
    t.expect(&[". 1001:1001(0) ack 11 win 65525"]);
    t.us.credit = 10;
    t.us.run(TransmitReady, t.now);
    t.expect(&[". 1001:2001(1000) ack 11 win 65525", "P. 2001:3001(1000) ack 11 win 65525"]);
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-5.7
//= type=test
//# Setting the DF bit implies the use of Path MTU Discovery as described in [RFC1191], [RFC1981], and [RFC4821]; thus,
//# any TCP implementation that implements PAWS MUST also implement Path MTU Discovery.
#[test]
fn a_smaller_path_mtu_is_used_at_once() {
    let mut t = plain();
    t.send(2000);
    t.take();
    let quoted = SeqNumber(t.us.setup.iss + 1);
    assert!(!t.run(PathMtu { mss: 500, seq: Some(quoted + 100_000) }), "what is not in flight proves nothing");
    t.expect(&[]);
    let cwnd = t.us.status().cwnd;
    assert!(t.run(PathMtu { mss: 500, seq: Some(quoted) }));
    t.expect(&[
        ". 1:501(500) ack 1 win 65535",
        ". 501:1001(500) ack 1 win 65535",
        ". 1001:1501(500) ack 1 win 65535",
        "P. 1501:2001(500) ack 1 win 65535",
    ]);
    let status = t.us.status();
    assert_eq!((status.mss, status.cwnd), (500, cwnd));
    t.inject(peer(".").ack(2001).win(60_000));
    t.send(700);
    t.expect(&[". 2001:2501(500) ack 1 win 65535", "P. 2501:2701(200) ack 1 win 65535"]);
    assert!(!t.run(PathMtu { mss: 1400, seq: None }), "it is never raised");
    t.run(PathMtu { mss: 8, seq: None });
    assert_eq!(t.us.status().mss, 216);
}

#[test]
fn of_what_is_in_flight_only_what_is_too_large_is_sent_again() {
    let mut t = plain();
    t.run(SetOption(SocketOption::NoDelay(true))).expect("it is known");
    for bytes in [400, 2000, 500] {
        t.send(bytes);
        t.take();
    }
    let quoted = SeqNumber(t.us.setup.iss + 401);
    assert!(t.run(PathMtu { mss: 600, seq: Some(quoted) }));
    t.expect(&[
        ". 401:1001(600) ack 1 win 65535",
        ". 1001:1601(600) ack 1 win 65535",
        ". 1601:2201(600) ack 1 win 65535",
        ". 2201:2401(200) ack 1 win 65535",
    ]);
    assert_eq!((t.us.status().mss, t.us.count(Counter::Retransmits)), (600, 4));
    t.inject(peer(".").ack(2901).win(60_000));
    t.send(700);
    t.expect(&[". 2901:3501(600) ack 1 win 65535", "P. 3501:3601(100) ack 1 win 65535"]);
}

#[test]
fn what_the_path_still_carries_is_not_sent_again() {
    let mut t = plain();
    t.send(600);
    t.take();
    assert!(t.run(PathMtu { mss: 700, seq: None }));
    t.expect(&[]);
    t.inject(peer(".").ack(601).win(60_000));
    assert_eq!(t.us.status().mss, 700);
}

#[test]
fn shared_and_static_chunks_are_sent_as_they_are() {
    let mut t = plain();
    let mut chunks = tcp::Chunks::new();
    chunks.push(pktbuf::Chunk::Static(b"header, odd"));
    chunks.push(pktbuf::Chunk::shared(vec![7u8; 5000].into()));
    chunks.push(pktbuf::Chunk::Static(b"tail"));
    assert_eq!(t.run(Send { chunks }).unwrap().accepted, 5015);
    let segments: Vec<u8> = t.us.sent.iter().flat_map(|segment| segment[20..].to_vec()).collect();
    assert_eq!(segments, [b"header, odd".as_slice(), &[7; 5000], b"tail"].concat());
    assert_eq!(t.take().len(), 6);
}

#[test]
fn an_idle_connection_begins_with_the_initial_window_again() {
    let mut t = plain();
    let mut acked = 1;
    for _ in 0..3 {
        t.send(40_000);
        let sent = t.take().len() as u32;
        t.pass(ms(10));
        acked += 1000 * sent;
        t.inject(peer(".").ack(acked).win(60_000));
    }
    assert!(t.us.status().cwnd > 30_000);
    while !t.take().is_empty() {
        acked = 1 + t.us.status().unacknowledged + (acked - 1);
        t.inject(peer(".").ack(acked).win(60_000));
    }
    t.pass(ms(5000));
    t.take();
    t.send(60_000);
    assert_eq!(t.take().len(), 10);
}

#[test]
fn calls_out_of_place_say_so() {
    let mut t = plain();
    assert_eq!(t.run(SetOption(SocketOption::ReceiveBuffer(0))), Err(Error::InvalidOption));
    assert_eq!(t.run(SetOption(SocketOption::MaxSegment(8))), Err(Error::InvalidOption));
    t.run(tcp::Shutdown::Write).unwrap();
    assert_eq!(t.us.try_send(b"x", t.now), Err(Error::Shutdown));
    t.run(tcp::Abort);
    assert_eq!(t.us.try_send(b"x", t.now), Err(Error::Shutdown));
}

#[test]
fn data_that_waits_for_the_device_is_no_closed_window() {
    let mut t = plain();
    t.us.credit = 0;
    t.send(3000);
    assert!(t.us.tx_blocked);
    assert_eq!(t.until_sent(ms(600_000)), None, "no probe: the stack continues a connection that found no room");
    assert_eq!(t.us.count(Counter::WindowProbesOut), 0);
    t.us.credit = 10;
    t.us.run(TransmitReady, t.now);
    assert_eq!(t.take().len(), 3);
}

#[test]
fn a_window_that_opens_while_the_device_is_full_is_probed_no_more() {
    let mut t = plain();
    t.inject(peer(".").win(0));
    t.send(100);
    assert_eq!(t.until_sent(ms(1000)), Some(ms(200)));
    t.take();
    t.us.credit = 0;
    t.inject(peer(".").win(1000));
    assert!(t.us.tx_blocked);
    assert_eq!(t.until_sent(ms(600_000)), None);
    t.us.credit = 10;
    t.us.run(TransmitReady, t.now);
    t.expect(&["P. 1:101(100) ack 1 win 65535"]);
}

#[test]
fn a_probe_with_data_waits_for_the_device() {
    let mut t = plain();
    t.inject(peer(".").win(100));
    t.send(3000);
    t.us.credit = 0;
    assert_eq!(t.until_sent(ms(600_000)), None, "the window has room: a probe of it would learn nothing");
    assert!(t.us.tx_blocked);
    t.us.credit = 10;
    t.us.run(TransmitReady, t.now);
    assert!(t.until_sent(ms(1000)).is_some());
    t.expect(&[". 1:101(100) ack 1 win 65535"]);
}

#[test]
fn probes_do_not_slow_down_what_follows_them() {
    let mut t = plain();
    t.inject(peer(".").win(0));
    t.send(3000);
    for gap in [200, 400, 800, 1600] {
        assert_eq!(t.until_sent(ms(10_000)), Some(ms(gap)));
        t.take();
        t.inject(peer(".").win(0));
    }
    t.inject(peer(".").win(10_000));
    assert_eq!(t.take().len(), 3);
    assert_eq!(t.until_sent(ms(10_000)), Some(ms(200)), "the first retransmission");
}

#[test]
fn a_probe_repeats_no_d_sack() {
    let mut t = Script::connected(Setup::default(), Peer::sack_permitted);
    t.inject(peer(".").len(1000));
    t.inject(peer(".").len(1000));
    assert!(t.take()[1].ends_with("<sack 1:1001>"));
    t.inject(peer(".").seq(2001).len(1000));
    t.inject(peer(".").seq(2001).len(1000));
    assert!(t.take()[1].ends_with("<sack 2001:3001,sack 2001:3001>"), "reported once, and held");
    t.inject(peer(".").seq(2001).win(0));
    t.send(100);
    assert_eq!(t.until_sent(ms(1000)), Some(ms(200)));
    let probe = t.take();
    assert!(probe[0].ends_with("<sack 2001:3001>"), "{probe:?}");
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-4.1
//= type=test
//# Values of this clock MUST be at least approximately proportional to real time, in order to measure actual RTT.
//= https://www.rfc-editor.org/rfc/rfc7323#section-5.4
//= type=test
//# The recycling time of the timestamp clock MUST be greater than MSL seconds.
#[test]
fn a_month_of_silence_does_not_stop_the_timestamp_clock() {
    let mut t = Script::connected(Setup::default(), |syn| syn.ts(1, 1000));
    let days = 30 * 86_400_000;
    t.pass(ms(days));
    t.send(10);
    let value = (t.now.as_millis() as u32).to_string();
    assert!(t.take()[0].contains(&format!("TS {value} ")), "a clock that stands still breaks the peer's PAWS");
}

/// No segment has data from both sides of the end of a record, and its last bytes do not wait for more data.
#[test]
fn segments_end_where_records_end() {
    let mut t = Script::connected(Setup::default(), |syn| syn.mss(1000));
    let record = |t: &mut Script, len: usize| {
        let chunks = tcp::Chunks::from_iter([pktbuf::Chunk::shared(support::data(0, len).into())]);
        assert_eq!(t.run(tcp::SendRecord(tcp::Send { chunks })).expect("it is open").accepted, len);
    };
    t.us.credit = 0;
    record(&mut t, 300);
    record(&mut t, 1200);
    t.send(400);
    t.us.credit = 64;
    t.run(tcp::TransmitReady);
    let sent: Vec<String> = t.take().iter().map(|line| line[..line.find(" ack").unwrap()].to_owned()).collect();
    assert_eq!(sent, ["P. 1:301(300)", ". 301:1301(1000)", "P. 1301:1501(200)"], "the last is Nagle's");
    t.inject(peer(".").ack(1501));
    assert_eq!(t.take().len(), 1);
    t.inject(peer(".").ack(1901));
    assert_eq!(t.us.status().send_queue, 0);
}

/// Found by the soak: two ends that had each sent beyond the other's window refused each other's acknowledgements for
/// ever.
#[test]
fn data_that_fills_a_hole_moves_the_window_with_its_acknowledgement() {
    let mut t = Script::connected(Setup::default(), |syn| syn);
    t.inject(peer(".").ack(1).win(3000));
    t.send(8000);
    assert_eq!(t.ranges(), ["1:1001", "1001:2001", "2001:3001"]);
    t.inject(peer(".").seq(11).len(10).ack(1001).win(2000));
    t.inject(peer(".").seq(1).len(10).ack(2001).win(1000));
    t.pass(ms(100));
    assert!(t.ranges().iter().all(|range| range == "3001:3001"), "the right edge is 3001");
    t.inject(peer(".").seq(21).ack(3001).win(1000));
    assert_eq!(t.ranges(), ["3001:4001"]);
}

/// RFC 9293 section 3.10.7.4: SND.WL1 and SND.WL2 are there "to prevent using old segments to update the window". Data
/// behind a hole is newer than the data that fills it.
#[test]
fn the_window_is_that_of_the_newest_segment() {
    let mut t = plain();
    t.send(2000);
    t.inject(peer(".").seq(1001).len(1000).ack(1001).win(5000));
    assert_eq!(t.us.status().send_window, 5000, "SND.WL1 < SEG.SEQ");
    t.inject(peer(".").seq(1).len(500).ack(1001).win(7000));
    assert_eq!(t.us.status().send_window, 5000, "SEG.SEQ < SND.WL1: it was sent before");
    t.inject(peer(".").seq(1001).len(1000).ack(1001).win(6000));
    assert_eq!(t.us.status().send_window, 6000, "SND.WL1 = SEG.SEQ and SND.WL2 =< SEG.ACK");
    t.inject(peer(".").seq(1001).len(1000).ack(2001).win(8000));
    t.inject(peer(".").seq(1001).len(1000).ack(1001).win(9000));
    assert_eq!(t.us.status().send_window, 8000, "SEG.ACK < SND.WL2: it was sent before");
}

#[test]
fn a_window_that_closes_is_counted_once() {
    let mut t = plain();
    for (window, closed) in [(0, 1), (0, 1), (1, 1), (5000, 1), (0, 2)] {
        t.inject(peer(".").win(window));
        assert_eq!(t.us.count(Counter::ZeroWindowsIn), closed, "after a window of {window}");
    }
}
