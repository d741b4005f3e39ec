//! Requirements of RFC 9293 on one connection that no other test covers: windows that shrink, urgent data of any
//! length, the limits R1 and R2, the defaults of keep-alive, soft errors, and fields of the IP header.

mod support;

use std::time::Duration;

use observe::{Counter, Time};
use support::endpoint::Setup;
use support::ms;
use support::script::{Peer, Script, peer};
use tcp::config::KeepAlive;
use tcp::{Error, IcmpError, IcmpKind, Profile, Readiness, Receive, Send, SendUrgent, SetOption, SocketOption, State};
use wire::SeqNumber;

const DAY: u64 = 86_400_000;

fn plain() -> Script {
    Script::connected(Setup::default(), |syn| syn)
}

fn set(t: &mut Script, option: SocketOption) {
    t.run(SetOption(option)).expect("the value is in range");
}

/// Bytes of data sent since the last call, and their end.
fn sent(t: &mut Script) -> (usize, u32) {
    let iss = t.us.setup.iss;
    let segments = core::mem::take(&mut t.us.sent);
    let measure = |segment: &pktbuf::PktBuf| {
        let header = wire::tcp::parse(segment).expect("a good segment");
        let len = segment.len() - usize::from(header.header_len);
        (len, header.seq.0.wrapping_sub(iss) + len as u32)
    };
    segments.iter().map(measure).fold((0, 0), |(sum, end), (len, to)| (sum + len, end.max(to)))
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
//= type=test
//# The window size MUST be treated as an unsigned number, or else large window sizes will appear like negative windows
//# and TCP will not work (MUST-1).
#[test]
fn a_window_of_which_the_highest_bit_is_set_is_large() {
    let mut setup = Setup::default();
    setup.config.initial_window = 100;
    let mut t = Script::connected(setup, |syn| syn);
    t.inject(peer(".").win(0xfff0));
    t.send(100_000);
    assert_eq!(sent(&mut t), (65_000, 65_001), "all of a window of 65 520 that is whole segments");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
//= type=test
//# It is RECOMMENDED that implementations will reserve 32-bit fields for the send and receive window sizes in the
//# connection record and do all window computations with 32 bits (REC-1).
#[test]
fn windows_are_reckoned_in_32_bits() {
    let mut t = Script::connected(Setup::default(), |syn| syn.scale(14));
    t.inject(peer(".").win(0xffff));
    assert_eq!(t.us.status().send_window, 0xffff << 14);
    let mut setup = Setup::default();
    setup.options.receive_buffer = Some(1 << 30);
    setup.config.receive_buffer.max = 1 << 30;
    let mut t = Script::connected(setup, |syn| syn.scale(14));
    t.inject(peer("P.").len(1000));
    t.inject(peer("P.").seq(1001).len(1000));
    t.read();
    assert!(t.us.status().receive_window > 1 << 29, "{}", t.us.status().receive_window);
}

/// Four segments are out when the peer's window shrinks to less than half of that.
fn shrunk() -> Script {
    let mut t = plain();
    t.send(4000);
    assert_eq!(sent(&mut t), (4000, 4001));
    t.inject(peer(".").win(1500));
    t
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//= type=test
//# If this happens, the sender SHOULD NOT send new data (SHLD-15),
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//= type=test
//# but SHOULD retransmit normally the old unacknowledged data between SND.UNA and SND.UNA+SND.WND (SHLD-16).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//= type=test
//# However, a sending TCP peer MUST be robust against window shrinking, which may cause the "usable window" (see
//# Section 3.8.6.2.1) to become negative (MUST-34).
#[test]
fn a_window_that_shrinks_below_what_is_out_stops_new_data_and_nothing_else() {
    let mut t = shrunk();
    t.send(3000);
    t.expect(&[]);
    assert_eq!(t.us.status().send_window, 1500);
    // Half of it is within the window; the time-out sends the oldest segment, as always.
    assert_eq!(t.until_sent(ms(1000)), Some(ms(200)));
    t.expect(&[". 1:1001(1000) ack 1 win 65535"]);
    t.inject(peer(".").ack(1001).win(1500));
    assert!(sent(&mut t).1 <= 4001, "the window ends at 2501: nothing new");
    t.inject(peer(".").ack(4001).win(60_000));
    assert!(sent(&mut t).1 > 4001, "and when it opens again all goes on");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//= type=test
//# but SHOULD NOT time out the connection if data beyond the right window edge is not acknowledged (SHLD-17).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//= type=test
//# The sender MAY also retransmit old data beyond SND.UNA+SND.WND (MAY-7),
#[test]
fn data_beyond_a_window_that_shrank_is_sent_again_and_never_times_the_connection_out() {
    let mut t = plain();
    t.send(2000);
    t.take();
    t.inject(peer(".").win(0));
    let start = t.now;
    while t.now - start < Duration::from_secs(3600) {
        t.until_sent(ms(200_000)).expect("it is tried for as long as it takes");
        assert!(sent(&mut t).0 > 0, "beyond the window's edge, which is where it was");
        t.inject(peer(".").win(0));
    }
    assert_eq!((t.state(), t.us.status().error), (State::Established, None));
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
//= type=test
//# A TCP implementation MAY keep its offered receive window closed indefinitely (MAY-8).
#[test]
fn a_closed_window_stays_closed_for_as_long_as_nobody_reads() {
    let mut setup = Setup::default();
    setup.options.receive_buffer = Some(4000);
    let mut t = Script::connected(setup, |syn| syn);
    for i in 0..4 {
        t.inject(peer(".").seq(1 + 1000 * i).len(1000));
    }
    t.take();
    for _ in 0..24 {
        t.pass(ms(DAY / 24));
        t.inject(peer(".").seq(4001).len(1));
        t.expect(&[". 1:1(0) ack 4001 win 0"]);
    }
    assert_eq!(t.state(), State::Established);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.4
//= type=test
//# A TCP receiver MUST process the RST and URG fields of all incoming segments, even when the receive window is zero
//# (MUST-66).
#[test]
fn reset_and_urgent_pointer_count_though_the_window_is_closed() {
    let full = || {
        let mut setup = Setup::default();
        setup.options.receive_buffer = Some(1000);
        let mut t = Script::connected(setup, |syn| syn);
        t.inject(peer(".").len(1000));
        assert_eq!(t.us.status().receive_window, 0);
        t.us.ready = Readiness::NONE;
        t
    };
    let mut t = full();
    t.inject(peer("U.").seq(1001).len(1).urgent(1));
    assert!(t.us.ready.contains(Readiness::URGENT));
    assert_eq!(t.us.status().urgent, Some(1001), "behind what waits");
    let mut t = full();
    t.inject(peer("R").seq(1001));
    assert_eq!(t.us.status().error, Some(Error::Reset));
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.5.3
//= type=test
//# TCP implementations SHOULD allow a received RST segment to include data (SHLD-2).
#[test]
fn a_reset_with_data_resets() {
    let mut t = plain();
    t.inject(peer("R").data(b"why it was"));
    assert_eq!(t.us.status().error, Some(Error::Reset));
    assert_eq!(t.read(), 0, "and its text is none of the stream");
}

/// The urgent pointer of each segment, relative to our first byte; `None` without URG.
fn pointers(t: &mut Script) -> Vec<Option<u32>> {
    let iss = t.us.setup.iss;
    let segments = core::mem::take(&mut t.us.sent);
    let pointer = |segment: &pktbuf::PktBuf| {
        let header = wire::tcp::parse(segment).expect("a good segment");
        let urgent = header.flags.contains(wire::tcp::TcpFlags::URG);
        urgent.then(|| header.seq.0.wrapping_sub(iss) + u32::from(header.urgent))
    };
    segments.iter().map(pointer).collect()
}

fn urgently(t: &mut Script, len: usize) {
    let mut chunks = tcp::Chunks::new();
    chunks.push(pktbuf::Chunk::shared(support::data(0, len).into()));
    assert_eq!(t.run(SendUrgent(Send { chunks })).expect("it is open").accepted, len);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
//= type=test
//# The urgent pointer MUST point to the sequence number of the octet following the urgent data (MUST-62).
#[test]
fn the_urgent_pointer_points_behind_urgent_data() {
    let mut t = plain();
    urgently(&mut t, 10);
    assert_eq!(pointers(&mut t), [Some(11)]);
    t.inject(peer(".").ack(11));
    t.send(5);
    assert_eq!(pointers(&mut t), [None], "what follows is not urgent");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
//= type=test
//# A TCP implementation MUST support a sequence of urgent data of any length (MUST-31) [19].
#[test]
fn urgent_data_may_be_longer_than_a_pointer_reaches() {
    let mut setup = Setup::default();
    setup.config.initial_window = 200;
    let mut t = Script::connected(setup, |syn| syn.scale(4));
    t.inject(peer(".").win(60_000));
    urgently(&mut t, 100_000);
    let pointers = pointers(&mut t);
    assert_eq!(pointers.len(), 100);
    for (number, pointer) in (0u32..).zip(pointers) {
        let reach = 1 + number * 1000 + 65_535;
        assert_eq!(pointer, Some(reach.min(100_001)), "segment {number}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
//= type=test
//# A TCP implementation MUST (MUST-32) inform the application layer asynchronously whenever it receives an urgent
//# pointer and there was previously no pending urgent data, or whenever the urgent pointer advances in the data stream.
#[test]
fn the_user_hears_of_urgent_data_when_it_begins_and_whenever_it_grows() {
    let mut t = plain();
    for (seq, pointer, is_new) in [(1, 10, true), (11, 0, false), (21, 10, true), (31, 300, true), (41, 290, false)] {
        t.us.ready = Readiness::NONE;
        t.inject(peer("PU.").seq(seq).len(10).urgent(pointer));
        assert_eq!(t.us.ready.contains(Readiness::URGENT), is_new, "pointer {pointer} at {seq}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//= type=test
//# If an MSS Option is not received at connection setup, TCP implementations MUST assume a default send MSS of 536 (576
//# - 40) for IPv4 or 1220 (1280 - 60) for IPv6 (MUST-15).
#[test]
fn a_peer_without_mss_gets_1220_over_ipv6() {
    let mut setup = Setup::default();
    setup.tuple.local_addr = "2001:db8::1".parse().unwrap();
    setup.tuple.remote_addr = "2001:db8::2".parse().unwrap();
    let mut t = Script::new(setup);
    t.us.listening = true;
    t.inject(peer("S").seq(0).win(5000));
    t.inject(peer("."));
    assert_eq!(t.us.status().mss, 1220);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//= type=test
//# The maximum size of a segment that a TCP endpoint really sends, the "effective send MSS", MUST be the smaller
//# (MUST-16) of the send MSS (that reflects the available reassembly buffer size at the remote host, the EMTU_R [19])
//# and the largest transmission size permitted by the IP layer (EMTU_S [19]):
#[test]
fn a_segment_is_what_both_the_peer_and_the_route_carry_less_options() {
    for (peers, routes, expected) in [(9000, 1460, 1460), (1000, 1460, 1000), (1460, 576, 576)] {
        for stamps in [false, true] {
            let mut t = Script::new(Setup { mss: routes, ..Setup::default() });
            t.us.open(t.now);
            let syn_ack = peer("S.").seq(0).mss(peers);
            t.inject(if stamps { syn_ack.ts(1, 1000) } else { syn_ack });
            let options = if stamps { 12 } else { 0 };
            assert_eq!(t.us.status().mss, expected - options, "{peers} and {routes}");
        }
    }
}

/// In TIME-WAIT after both have closed, with timestamps and no reading user.
fn time_wait_with_timestamps() -> Script {
    let mut t = Script::connected(Setup::default(), |syn| syn.ts(100, 1000));
    t.run(tcp::Close);
    t.inject(peer("F.").ts(200, 1000).ack(2));
    t.take();
    t.us.listening = true;
    t.us.setup.iss = t.us.setup.iss.wrapping_add(7777);
    assert_eq!(t.state(), State::TimeWait);
    t
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
//= type=test
//# This algorithm for reducing TIME-WAIT is a Best Current Practice that SHOULD be implemented since Timestamp Options
//# are commonly used, and using them to reduce TIME-WAIT provides benefits for busy Internet servers (SHLD-4).
#[test]
fn time_wait_gives_way_to_a_syn_whose_timestamp_is_newer_though_its_number_is_lower() {
    let mut t = time_wait_with_timestamps();
    t.inject(peer("S").seq(0u32.wrapping_sub(50_000)).ts(200, 0).mss(1000));
    assert_eq!(t.state(), State::TimeWait, "neither is newer");
    let mut t = time_wait_with_timestamps();
    t.inject(peer("S").seq(0u32.wrapping_sub(50_000)).ts(201, 0).mss(1000));
    assert_eq!(t.state(), State::SynReceived);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.3
//= type=test
//# in particular, the delay MUST be less than 0.5 seconds (MUST-40).
#[test]
fn no_profile_delays_an_acknowledgement_for_half_a_second() {
    for &profile in Profile::ALL {
        let config = tcp::Config { quick_acks: 0, ..profile.config() };
        let mut t = Script::connected(Setup { config, ..Setup::default() }, |syn| syn);
        t.inject(peer("P.").len(100));
        let waited = t.until_sent(ms(500)).expect("it is acknowledged in time");
        assert!(waited < ms(500), "{profile}: {waited:?}");
    }
}

/// Time until a connection of this profile ends if the peer is silent, with data or in the handshake.
fn patience(profile: Profile, established: bool) -> Duration {
    let setup = Setup { config: profile.config(), ..Setup::default() };
    let mut t = if established { Script::connected(setup, |syn| syn) } else { Script::new(setup) };
    if established {
        t.send(500);
    } else {
        t.us.open(t.now);
    }
    let start = t.now;
    while t.us.status().error.is_none() {
        assert!(t.now - start < Duration::from_secs(7200), "{profile} never gives up");
        t.pass(ms(1000));
    }
    t.now - start
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# The value of R2 SHOULD correspond to at least 100 seconds (SHLD-11).
#[test]
fn data_is_tried_for_at_least_100_seconds() {
    for &profile in Profile::ALL {
        assert!(patience(profile, true) >= Duration::from_secs(100), "{profile}");
    }
}

/// Linux gives a SYN up after 127 seconds, and so does its profile; `tcp_syn_retries` is the knob.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# In particular, R2 for a SYN segment MUST be set large enough to provide retransmission of the segment for at least 3
//# minutes (MUST-23).
#[test]
fn a_syn_is_tried_for_at_least_three_minutes() {
    for profile in [Profile::FreeBsd, Profile::Rfc] {
        assert!(patience(profile, false) >= Duration::from_secs(180), "{profile}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# The following procedure MUST be used to handle excessive retransmissions of data segments (MUST-20):
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# TCP implementations SHOULD inform the application of the delivery problem (unless such information has been disabled
//# by the application; see the "Asynchronous Reports" section (Section 3.9.1.8)), when R1 is reached and before R2
//# (SHLD-9).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# The value of R1 SHOULD correspond to at least 3 retransmissions, at the current RTO (SHLD-10).
#[test]
fn r1_is_the_third_retransmission_and_the_user_and_ip_hear_of_it() {
    let mut t = plain();
    t.send(500);
    t.us.ready = Readiness::NONE;
    for retransmission in 1..=5 {
        t.take();
        assert!(t.until_sent(ms(100_000)).is_some());
        let told = t.us.ready.contains(Readiness::SOFT_ERROR);
        assert_eq!(told, retransmission >= 3, "retransmission {retransmission}");
        assert_eq!(t.us.suspected, u32::from(retransmission >= 3), "retransmission {retransmission}");
    }
    let status = t.us.status();
    assert_eq!((status.state, status.soft_error, status.error), (State::Established, Some(Error::Unanswered), None));
    t.pass(ms(1));
    t.inject(peer(".").ack(501));
    assert_eq!(t.us.status().soft_error, None, "the peer is there");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# SYN retransmissions MUST be handled in the general way just described for data retransmissions, including
//# notification of the application layer.
#[test]
fn r1_counts_for_a_syn_as_well() {
    let mut t = Script::new(Setup::default());
    t.us.open(t.now);
    t.pass(ms(6_900));
    assert_eq!((t.us.suspected, t.us.status().soft_error), (0, None));
    t.pass(ms(200));
    assert_eq!((t.us.suspected, t.us.status().soft_error), (1, Some(Error::Unanswered)));
    assert!(t.us.ready.contains(Readiness::SOFT_ERROR));
    t.pass(ms(200_000));
    assert_eq!(t.us.status().error, Some(Error::TimedOut), "the end has its own reason");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# An application MUST (MUST-21) be able to set the value for R2 for a particular connection.
#[test]
fn a_user_sets_r2_shorter_or_longer_than_the_stack_has_it() {
    for (limit, still, over) in [(3_000, 2_900, 3_100), (7_200_000, 7_190_000, 7_201_000)] {
        let mut t = plain();
        set(&mut t, SocketOption::UserTimeout(Some(ms(limit))));
        t.send(500);
        t.pass(ms(still));
        assert_eq!(t.us.status().error, None, "limit {limit} ms");
        t.pass(ms(over - still));
        assert_eq!(t.us.status().error, Some(Error::TimedOut), "limit {limit} ms");
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//= type=test
//# and they MUST default to off (MUST-25).
#[test]
fn without_keep_alive_an_idle_connection_is_silent() {
    let mut t = plain();
    t.pass(ms(30 * DAY));
    t.expect(&[]);
    assert_eq!(t.state(), State::Established);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//= type=test
//# If keep-alives are included, the application MUST be able to turn them on or off for each TCP connection (MUST-24),
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//= type=test
//# and MUST default to no less than two hours (MUST-28).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//= type=test
//# An implementation SHOULD send a keep-alive segment with no data (SHLD-12);
#[test]
fn keep_alive_is_switched_on_and_off_and_waits_for_two_hours() {
    let mut t = plain();
    set(&mut t, SocketOption::KeepsAlive(true));
    let waited = t.until_sent(ms(DAY)).expect("a probe");
    assert!(waited.abs_diff(Duration::from_secs(7200)) <= ms(2), "{waited:?}");
    t.expect(&[". 0:0(0) ack 1 win 65535"]);
    t.inject(peer("."));
    set(&mut t, SocketOption::KeepsAlive(false));
    assert_eq!(t.until_sent(ms(30 * DAY)), None);
    assert_eq!(t.state(), State::Established);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//= type=test
//# Keep-alive packets MUST only be sent when no sent data is outstanding, and no data or acknowledgment packets have
//# been received for the connection within an interval (MUST-26).
#[test]
fn keep_alive_does_not_probe_while_data_is_out() {
    let mut setup = Setup::default();
    setup.options.keep_alive = Some(KeepAlive { idle: ms(1000), interval: ms(1000), probes: 2 });
    let mut t = Script::connected(setup, |syn| syn);
    t.send(500);
    t.pass(ms(20_000));
    assert_eq!(t.us.count(Counter::KeepAlivesOut), 0, "retransmission has its own limit");
    assert_eq!(t.state(), State::Established);
    t.inject(peer(".").ack(501));
    for _ in 0..10 {
        t.pass(ms(900));
        t.inject(peer(".").ack(501));
    }
    assert_eq!(t.us.count(Counter::KeepAlivesOut), 0, "nor while the peer is heard");
}

/// A connection with data in flight, for which a router reports an error of `kind`.
fn told(kind: IcmpKind, reports: bool) -> Script {
    let mut t = plain();
    set(&mut t, SocketOption::ErrorReports(reports));
    t.send(10);
    t.us.ready = Readiness::NONE;
    let seq = SeqNumber(t.us.setup.iss + 1);
    t.pass(ms(2));
    assert!(t.run(IcmpError { kind, seq }), "it quotes what is in flight");
    t
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.8
//= type=test
//# There MUST be a mechanism for reporting soft TCP error conditions to the application (MUST-47).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
//= type=test
//# and it SHOULD make the information available to the application (SHLD-25).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2.2
//= type=test
//# Since these Unreachable messages indicate soft error conditions, a TCP implementation MUST NOT abort the connection
//# (MUST-56),
#[test]
fn soft_errors_are_told_and_end_nothing() {
    for (kind, error) in [
        (IcmpKind::NetworkUnreachable, Error::NetworkUnreachable),
        (IcmpKind::HostUnreachable, Error::HostUnreachable),
        (IcmpKind::Transient, Error::HostUnreachable),
        (IcmpKind::PortUnreachable, Error::Refused),
    ] {
        let mut t = told(kind, true);
        assert_eq!(t.us.ready, Readiness::SOFT_ERROR, "{kind:?}");
        let status = t.us.status();
        assert_eq!((status.state, status.error), (State::Established, None), "{kind:?}");
        assert_eq!(status.soft_error, Some(error), "{kind:?}");
        t.pass(ms(2));
        t.inject(peer(".").ack(11));
        assert_eq!(t.us.status().soft_error, None, "{kind:?}: the peer is reached again");
        t.send(10);
        t.pass(Duration::from_secs(3600));
        assert_eq!(t.us.status().error, Some(Error::TimedOut), "{kind:?}: forgotten");
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.8
//= type=test
//# However, an application program that does not want to receive such ERROR_REPORT calls SHOULD be able to effectively
//# disable these calls (SHLD-20).
#[test]
fn a_user_need_not_hear_of_soft_errors() {
    let mut t = told(IcmpKind::HostUnreachable, false);
    assert_eq!(t.us.ready, Readiness::NONE);
    t.pass(ms(10_000));
    assert_eq!(t.us.ready, Readiness::NONE, "nor of R1");
    assert_eq!(t.us.status().soft_error, Some(Error::HostUnreachable), "who asks is told");
    t.pass(Duration::from_secs(3600));
    assert_eq!(t.run(Receive { max: 1 }).unwrap_err(), Error::TimedOut);
}

/// Class and hop limit for the IP headers of the segments sent.
fn headers(t: &mut Script) -> Vec<(u8, u8)> {
    let sent = core::mem::take(&mut t.us.sent);
    sent.iter().map(|segment| (segment.meta().traffic_class, segment.meta().hop_limit)).collect()
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
//= type=test
//# The application layer MUST be able to specify the Differentiated Services field for segments that are sent on a
//# connection (MUST-48).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
//= type=test
//# It is not required, but the application SHOULD be able to change the Differentiated Services field during the
//# connection lifetime (SHLD-21).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
//= type=test
//# TCP implementations SHOULD pass the current Differentiated Services field value without change to the IP layer, when
//# it sends segments on the connection (SHLD-22).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2
//= type=test
//# The TTL value used to send TCP segments MUST be configurable (MUST-49).
#[test]
fn a_user_chooses_class_and_hop_limit_and_may_change_them() {
    let mut setup = Setup::default();
    setup.options.traffic_class = 0x28;
    setup.options.hop_limit = Some(3);
    let mut t = Script::new(setup);
    t.us.open(t.now);
    assert_eq!(headers(&mut t), [(0x28, 3)], "from the SYN on");
    t.inject(peer("S.").seq(0).mss(1000));
    assert_eq!(headers(&mut t), [(0x28, 3)]);
    set(&mut t, SocketOption::TrafficClass(0xb8));
    set(&mut t, SocketOption::HopLimit(Some(200)));
    t.send(1500);
    assert_eq!(headers(&mut t), [(0xb8, 200); 2]);
    assert_eq!(t.until_sent(ms(10_000)), Some(ms(200)));
    assert_eq!(headers(&mut t), [(0xb8, 200)], "what is sent again, too");
    t.inject(peer("F."));
    // Section 3.8.6.3: its acknowledgement may be delayed, by less than half a second.
    t.pass(ms(40));
    t.run(tcp::Abort);
    assert_eq!(headers(&mut t), [(0xb8, 200); 2], "an acknowledgement and a reset");
    assert_eq!(t.run(SetOption(SocketOption::HopLimit(Some(0)))), Err(Error::InvalidOption));
}

#[test]
fn a_listener_speaks_as_its_children_will() {
    let mut setup = Setup::default();
    setup.options.traffic_class = 0x2e << 2;
    setup.options.hop_limit = Some(255);
    let mut t = Script::new(setup);
    t.us.listening = true;
    t.inject(peer("S").seq(0).mss(1000));
    t.inject(peer("P.").len(10));
    t.send(1);
    let sent = headers(&mut t);
    assert!(sent.len() >= 2 && sent.iter().all(|header| *header == (0xb8, 255)), "{sent:?}");
}

/// The two bits of explicit congestion notification are the stack's, not the user's.
#[test]
fn the_class_leaves_congestion_marks_alone() {
    let mut t = Script::connected(Setup::default(), Peer::sack_permitted);
    set(&mut t, SocketOption::TrafficClass(0xff));
    t.send(10);
    assert_eq!(headers(&mut t), [(0xfc, 0)]);
    assert_eq!(t.us.status().options.traffic_class, 0xfc);
    assert!(t.now > Time::ZERO);
}
