//! Receiving: acknowledgements and their delay, windows, order, SACK blocks, PAWS, urgent data.

mod support;

use observe::{Counter, DropReason};
use support::endpoint::Setup;
use support::ms;
use support::script::{Peer, Script, peer};
use tcp::{Disposition, Error, Profile, Readiness, Receive, Received, ReportUnread, SetOption, SocketOption};

fn delayed() -> Setup {
    let mut setup = Setup::default();
    setup.config.quick_acks = 0;
    setup
}

fn plain() -> Script {
    Script::connected(delayed(), |syn| syn)
}

fn modern(syn: Peer) -> Peer {
    syn.sack_permitted().scale(0)
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.3
//= type=test
//# A TCP endpoint SHOULD implement a delayed ACK (SHLD-18),
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.3
//= type=test
//# An ACK SHOULD be generated for at least every second full-sized segment or 2*RMSS bytes of new data (where RMSS is
//# the MSS specified by the TCP endpoint receiving the segments to be acknowledged, or the default value if not
//# specified) (SHLD-19).
#[test]
fn every_second_full_segment_is_acknowledged_at_once_and_a_single_one_after_the_delay() {
    let mut t = plain();
    t.inject(peer(".").len(1000));
    t.expect(&[]);
    t.inject(peer(".").seq(1001).len(1000));
    t.expect(&[". 1:1(0) ack 2001 win 63535"]);
    t.inject(peer("P.").seq(2001).len(1000));
    assert_eq!(t.until_sent(ms(1000)), Some(ms(40)));
    t.expect(&[". 1:1(0) ack 3001 win 62535"]);
    assert_eq!(t.until_sent(ms(10_000)), None);
    assert_eq!(t.us.count(Counter::DelayedAckTimeouts), 1);
}

/// The peer's `count` full segments, which came in one batch.
fn batch(t: &mut Script, count: u32) {
    for number in 0..count {
        let mut segment = t.segment(&peer(".").seq(1 + number * 1000).len(1000));
        segment.followed = number + 1 < count;
        let _ = t.run(tcp::SegmentArrives(&mut Some(segment)));
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# For example, if the TCP endpoint is processing a series of queued segments, it MUST process them all before sending
//# any ACK segments (MUST-59).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# In general, the processing of received segments MUST be implemented to aggregate ACK segments whenever possible
//# (MUST-58).
#[test]
fn a_batch_is_acknowledged_once() {
    let mut t = plain();
    batch(&mut t, 10);
    t.expect(&[". 1:1(0) ack 10001 win 55535"]);
    assert_eq!(t.until_sent(ms(10_000)), None);
}

/// The following segment was damaged: the acknowledgement is delayed, not lost.
#[test]
fn a_batch_whose_last_segment_is_missing_is_acknowledged_after_the_delay() {
    let mut t = plain();
    let mut segment = t.segment(&peer(".").len(1000));
    segment.followed = true;
    let _ = t.run(tcp::SegmentArrives(&mut Some(segment)));
    t.expect(&[]);
    assert_eq!(t.until_sent(ms(1000)), Some(ms(40)));
    t.expect(&[". 1:1(0) ack 1001 win 64535"]);
}

/// A peer that waits for window is not delayed by the following segments.
#[test]
fn a_quarter_of_the_buffer_is_acknowledged_whatever_is_behind() {
    let mut setup = delayed();
    setup.config.receive_buffer.initial = 8000;
    setup.config.receive_buffer.max = 8000;
    let mut t = Script::connected(setup, |syn| syn);
    batch(&mut t, 6);
    t.expect(&[". 1:1(0) ack 3001 win 5000", ". 1:1(0) ack 6001 win 2000"]);
}

#[test]
fn data_carries_the_delayed_acknowledgement() {
    let mut t = plain();
    t.inject(peer("P.").len(100));
    t.send(5);
    t.expect(&["P. 1:6(5) ack 101 win 65435"]);
    t.inject(peer(".").seq(101).ack(6));
    assert_eq!(t.until_sent(ms(10_000)), None, "nothing is left to acknowledge");
}

#[test]
fn the_first_segments_are_acknowledged_at_once() {
    let mut setup = Setup::default();
    setup.config.quick_acks = 2;
    let mut t = Script::connected(setup, |syn| syn);
    for (seq, answers) in [(1, 1), (101, 1), (201, 0)] {
        t.inject(peer("P.").seq(seq).len(100));
        assert_eq!(t.take().len(), answers, "segment at {seq}");
    }
}

#[test]
fn readiness_rises_once() {
    let mut t = plain();
    t.us.ready = Readiness::NONE;
    t.inject(peer("P.").len(10));
    assert_eq!(t.us.ready, Readiness::READABLE);
    t.us.ready = Readiness::NONE;
    t.inject(peer("P.").seq(11).len(10));
    assert_eq!(t.us.ready, Readiness::NONE, "it was readable already");
    assert_eq!(t.read(), 20);
    t.inject(peer("P.").seq(21).len(10));
    assert_eq!(t.us.ready, Readiness::READABLE);
}

#[test]
fn receive_hands_out_whole_buffers() {
    let mut t = plain();
    assert_eq!(t.run(Receive { max: 1 }).unwrap_err(), Error::WouldBlock);
    for i in 0..3 {
        t.inject(peer(".").seq(1 + 1000 * i).len(1000));
    }
    let received = t.run(Receive { max: 1 }).unwrap();
    assert_eq!((received.data.len(), received.more, received.end), (1, true, false));
    let received = t.run(Receive { max: 1001 }).unwrap();
    assert_eq!((received.data.len(), received.more), (2, false));
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.2.2
//= type=test
//# A TCP implementation MUST include a SWS avoidance algorithm in the receiver (MUST-39).
#[test]
fn a_full_buffer_closes_the_window_and_reading_opens_it_again() {
    let mut setup = delayed();
    setup.options.receive_buffer = Some(4000);
    let mut t = Script::connected(setup, |syn| syn);
    for i in 0..4 {
        t.inject(peer(".").seq(1 + 1000 * i).len(1000));
    }
    assert_eq!(t.take().last().unwrap(), ". 1:1(0) ack 4001 win 0");
    // A probe of one byte.
    t.inject(peer(".").seq(4001).len(1));
    t.expect(&[". 1:1(0) ack 4001 win 0"]);
    assert!(matches!(t.us.last, Some(Disposition::Dropped(DropReason::TcpZeroWindow))));
    // One segment of room is not worth an update, two are.
    t.us.read_up_to(1000, t.now);
    t.expect(&[]);
    t.us.read_up_to(1000, t.now);
    t.expect(&[". 1:1(0) ack 4001 win 2000"]);
    t.read();
    assert_eq!(t.us.received, support::data(1, 4000));
}

/// Its buffer is larger than the unscaled window of a SYN, and the first acknowledgement of data advertises it.
#[test]
fn a_short_dialogue_has_no_window_update() {
    for open in [Script::connected, Script::accepted] {
        let mut setup = delayed();
        setup.options.receive_buffer = Some(256 << 10);
        let mut t = open(setup, modern);
        t.take();
        t.read();
        t.expect(&[]);
        t.inject(peer("P.").len(100));
        assert_eq!(t.read(), 100);
        t.expect(&[]);
        t.send(5);
        assert_eq!(t.take().len(), 1, "the answer tells the window");
        t.inject(peer("F.").seq(101).ack(6));
        t.read();
        assert_eq!(t.us.count(Counter::WindowUpdatesOut), 0);
    }
}

#[test]
fn the_receive_buffer_grows_while_its_user_keeps_up() {
    let mut t = Script::connected(delayed(), |syn| syn.scale(7));
    let before = t.us.status().receive_buffer;
    let mut seq = 1u32;
    for i in 0..400 {
        t.inject(peer(".").seq(seq).len(1000));
        seq += 1000;
        t.read();
        t.us.sent.clear();
        if i % 10 == 0 {
            t.pass(ms(1));
        }
    }
    let status = t.us.status();
    assert!(status.receive_buffer > before, "{} of {before}", status.receive_buffer);
    assert!(status.receive_window > before);
}

#[test]
fn the_receive_buffer_does_not_grow_for_a_user_who_does_not_read() {
    let mut t = Script::connected(delayed(), |syn| syn.scale(7));
    let before = t.us.status().receive_buffer;
    for i in 0..120 {
        t.inject(peer(".").seq(1 + 1000 * i).len(1000));
        t.us.sent.clear();
    }
    assert_eq!(t.us.status().receive_buffer, before);
}

#[test]
fn the_window_clamp_holds() {
    let mut setup = delayed();
    setup.options.window_clamp = Some(3000);
    let mut t = Script::connected(setup, |syn| syn);
    t.inject(peer(".").len(1000));
    t.inject(peer(".").seq(1001).len(1000));
    t.expect(&[". 1:1(0) ack 2001 win 3000"]);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# Segments with higher beginning sequence numbers SHOULD be held for later processing (SHLD-31).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# A TCP implementation MAY send an ACK segment acknowledging RCV.NXT when a valid segment arrives that is in the
//# window but not at the left window edge (MAY-13).
#[test]
fn out_of_order_data_is_reported_and_delivered_in_order() {
    let mut t = Script::connected(delayed(), modern);
    t.inject(peer(".").seq(1001).len(1000));
    t.expect(&[". 1:1(0) ack 1 win 512 <sack 1001:2001>"]);
    t.inject(peer(".").seq(3001).len(1000));
    t.expect(&[". 1:1(0) ack 1 win 512 <sack 3001:4001,sack 1001:2001>"]);
    assert_eq!(t.read(), 0);
    t.inject(peer(".").len(1000));
    assert_eq!(t.take(), [". 1:1(0) ack 2001 win 497 <sack 3001:4001>"]);
    t.inject(peer(".").seq(2001).len(1000));
    assert_eq!(t.take(), [". 1:1(0) ack 4001 win 482"]);
    t.read();
    assert_eq!(t.us.received, support::data(1, 4000));
}

#[test]
fn a_duplicate_is_reported_with_a_d_sack_block() {
    let mut t = Script::connected(delayed(), modern);
    t.inject(peer(".").len(1000));
    t.inject(peer(".").seq(1001).len(1000));
    t.take();
    t.inject(peer(".").len(1000));
    let answer = t.take();
    assert!(answer[0].ends_with("ack 2001 win 497 <sack 1:1001>"), "{answer:?}");
    assert!(matches!(t.us.last, Some(Disposition::Dropped(DropReason::TcpOldDuplicate))));
    // Overlapping on the left: the rest is new.
    t.inject(peer(".").seq(1501).len(1000));
    let answer = t.take();
    assert!(answer[0].contains("ack 2501") && answer[0].contains("sack 1501:2001"), "{answer:?}");
    t.read();
    assert_eq!(t.us.received, support::data(1, 2500));
}

#[test]
fn without_sack_there_are_only_duplicate_acknowledgements() {
    let mut t = plain();
    for i in 1..4 {
        t.inject(peer(".").seq(1 + 1000 * i).len(1000));
        t.expect(&[". 1:1(0) ack 1 win 65535"]);
    }
}

#[test]
fn data_beyond_the_window_is_cut() {
    let mut setup = delayed();
    setup.options.receive_buffer = Some(1500);
    let mut t = Script::connected(setup, |syn| syn);
    t.inject(peer(".").len(1000));
    t.inject(peer(".").seq(1001).len(1000));
    t.expect(&[". 1:1(0) ack 1501 win 0"]);
    t.inject(peer(".").seq(9001).len(100));
    t.expect(&[". 1:1(0) ack 1501 win 0"]);
    assert!(matches!(t.us.last, Some(Disposition::Dropped(DropReason::TcpOutOfWindow))));
    t.read();
    assert_eq!(t.us.received, support::data(1, 1500));
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
//= type=test
//# When the ACK bit is set in an outgoing segment, the sender MUST echo a recently received TSval sent by the remote
//# TCP in the TSval field of a Timestamps option.
//= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
//= type=test
//# The exact rules on which TSval MUST be echoed are given in Section 4.3.
#[test]
fn the_timestamp_echoed_is_that_of_the_oldest_unacknowledged_segment() {
    let mut t = Script::connected(delayed(), |syn| syn.ts(100, 1000));
    t.inject(peer(".").ts(110, 1000).len(500));
    t.inject(peer(".").ts(120, 1000).seq(501).len(500));
    // RFC 7323 section 4.3: the delayed acknowledgement covers both and echoes the first.
    t.expect(&[". 1:1(0) ack 1001 win 64535 <TS 1000 110>"]);
    t.inject(peer(".").ts(130, 1000).seq(1001).len(600));
    t.pass(ms(40));
    t.expect(&[". 1:1(0) ack 1601 win 63935 <TS 1040 130>"]);
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
//= type=test
//# A TCP MUST NOT abort a TCP connection because any segment lacks an expected TSopt.
//= https://www.rfc-editor.org/rfc/rfc7323#section-5.2
//= type=test
//# The choice of incoming timestamps to be saved for this comparison MUST guarantee a value that is monotonically
//# non-decreasing.
//= https://www.rfc-editor.org/rfc/rfc7323#section-5.3
//= type=test
//# If the PAWS algorithm is used, the following processing MUST be performed on all incoming segments for a
//# synchronized connection.
#[test]
fn an_old_timestamp_is_refused() {
    let mut setup = delayed();
    (setup.config.strict_timestamps, setup.config.paws_window) = (true, 0);
    let mut t = Script::connected(setup, |syn| syn.ts(100, 1000));
    t.inject(peer(".").ts(200, 1000).len(100));
    t.pass(ms(50));
    t.take();
    t.inject(peer(".").ts(199, 1000).seq(101).len(100));
    assert!(matches!(t.us.last, Some(Disposition::Dropped(DropReason::TcpPaws))));
    t.expect(&[". 1:1(0) ack 101 win 65435 <TS 1050 200>"]);
    // Without a timestamp it is dropped silently.
    t.inject(peer(".").seq(101).len(100));
    assert!(matches!(t.us.last, Some(Disposition::Dropped(DropReason::TcpMissingTimestamp))));
    t.expect(&[]);
    // After 24 days the old value is no longer compared.
    t.pass(std::time::Duration::from_secs(25 * 86_400));
    t.inject(peer(".").ts(5, 1000).seq(101).len(100));
    assert!(matches!(t.us.last, Some(Disposition::Done)));
    assert_eq!(t.read(), 200);
}

/// A retransmission may overtake data sent just before it. The profile decides how much older that may be, and
/// separately whether data may have no timestamp.
#[test]
fn a_timestamp_may_be_older_by_as_many_ticks_as_the_profile_says() {
    for (profile, value, taken) in [
        (Profile::Linux, 199, true),
        (Profile::Linux, 198, false),
        (Profile::FreeBsd, 200, true),
        (Profile::FreeBsd, 199, false),
        (Profile::Rfc, 199, false),
    ] {
        let mut setup = delayed();
        (setup.config.paws_window, setup.config.strict_timestamps) = {
            let config = profile.config();
            (config.paws_window, config.strict_timestamps)
        };
        let mut t = Script::connected(setup, |syn| syn.ts(100, 1000));
        t.inject(peer(".").ts(200, 1000).len(100));
        t.inject(peer(".").ts(value, 1000).seq(101).len(100));
        assert_eq!(t.read() == 200, taken, "{value} under {profile}");
        // TS.Recent never goes back.
        t.inject(peer(".").ts(value.min(198), 1000).seq(201).len(100));
        assert!(matches!(t.us.last, Some(Disposition::Dropped(DropReason::TcpPaws))));
        // This is only the tolerance: `strict_timestamps` decides about data without a timestamp.
        t.inject(peer(".").seq(201).len(100));
        let missing = matches!(t.us.last, Some(Disposition::Dropped(DropReason::TcpMissingTimestamp)));
        assert_eq!(missing, profile == Profile::Rfc, "{profile}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
//= type=test
//# However, TCP implementations MUST still include support for the urgent mechanism (MUST-30).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
//= type=test
//# The TCP implementation MUST (MUST-33) provide a way for the application to learn how much urgent data remains to be
//# read from the connection, or at least to determine whether more urgent data remains to be read [19].
#[test]
fn urgent_data_stays_in_line_and_its_mark_is_kept() {
    let mut t = plain();
    t.us.ready = Readiness::NONE;
    t.inject(peer("PU.").len(10).urgent(4));
    assert!(t.us.ready.contains(Readiness::URGENT | Readiness::READABLE));
    let received = t.run(Receive { max: 100 }).unwrap();
    assert_eq!((received.data[0].len(), received.urgent), (10, Some(4)));
    t.inject(peer("P.").seq(11).len(10));
    assert_eq!(t.run(Receive { max: 100 }).unwrap().urgent, None);
    // A pointer beyond the data: the mark lies ahead.
    t.inject(peer("PU.").seq(21).len(10).urgent(15));
    assert_eq!(t.run(Receive { max: 100 }).unwrap().urgent, Some(15));
    t.inject(peer("P.").seq(31).len(10));
    assert_eq!(t.run(Receive { max: 100 }).unwrap().urgent, Some(5));
    assert!(!t.us.status().ready.contains(Readiness::URGENT));
}

#[test]
fn any_urgent_pointer_is_harmless() {
    for pointer in [0, 1, 9, 10, 11, 999, u16::MAX] {
        let mut t = plain();
        t.inject(peer("PU.").len(10).urgent(pointer));
        t.inject(peer("PU.").seq(5).len(10).urgent(pointer));
        t.read();
        assert_eq!(t.us.received, support::data(1, 14), "pointer {pointer}");
    }
}

#[test]
fn quick_acknowledgement_on_demand() {
    let mut t = plain();
    t.run(SetOption(SocketOption::QuickAck(true))).unwrap();
    t.us.setup.config.quick_acks = 16;
    t.run(SetOption(SocketOption::QuickAck(true))).unwrap();
    t.inject(peer("P.").len(10));
    assert_eq!(t.take().len(), 1);
    t.run(SetOption(SocketOption::QuickAck(false))).unwrap();
    t.inject(peer("P.").seq(11).len(10));
    assert_eq!(t.take().len(), 0);
}

/// A read that ends inside a packet frees the part it took; the rest takes room until the user has read it.
#[test]
fn what_is_left_of_a_packet_takes_room_until_it_is_read() {
    let mut setup = delayed();
    setup.options.receive_buffer = Some(5000);
    let mut t = Script::connected(setup, |syn| syn);
    for number in 0..2 {
        t.inject(peer(".").seq(1 + number * 2500).len(2500));
    }
    assert!(t.take().last().is_some_and(|last| last.ends_with("ack 5001 win 0")));
    let received = t.run(Receive { max: 100 }).unwrap();
    assert_eq!((received.data.len(), received.window_clamped), (1, true));
    t.run(ReportUnread { bytes: 1000 });
    t.expect(&[]);
    assert_eq!(t.us.status().receive_window, 0, "1500 bytes are less than a segment of the peer, and than half");
    t.run(ReportUnread { bytes: 0 });
    t.expect(&[". 1:1(0) ack 5001 win 2500"]);
    let received = t.run(Receive { max: usize::MAX }).unwrap();
    assert_eq!((received.data.len(), received.window_clamped), (1, false));
    t.expect(&[]);
    assert_eq!(t.us.status().receive_window, 5000, "half of the window was left: the next acknowledgement says so");
}

/// While the peer has half of the window left, the user's progress need not be reported: the next read implies it.
#[test]
fn the_next_read_says_that_the_packet_before_is_used_up() {
    let mut setup = delayed();
    setup.options.receive_buffer = Some(10_000);
    let mut t = Script::connected(setup, |syn| syn);
    t.inject(peer(".").len(2000));
    let received = t.run(Receive { max: 500 }).unwrap();
    assert_eq!((received.data.len(), received.window_clamped), (1, false));
    t.inject(peer(".").seq(2001).len(1000));
    let status = t.us.status();
    assert_eq!((status.receive_queue, status.receive_window), (1000, 7000), "500 bytes are no reason to open it");
    assert!(t.run(Receive { max: 1000 }).is_ok());
    t.inject(peer("P.").seq(3001).len(1000));
    assert_eq!(t.us.status().receive_window, 9000);
}

/// `TCP_INFO` reports how long windows take, and how much of them is read.
#[test]
fn the_receiver_s_round_trip_and_space_are_measured() {
    let mut setup = delayed();
    setup.config.receive_buffer.initial = 20_000;
    let mut t = Script::connected(setup, |syn| syn.scale(7));
    let info = |t: &mut Script| {
        let info = tcp::TcpInfo::of(&t.us.status());
        (info.rcv_rtt, info.rcv_space)
    };
    assert_eq!(info(&mut t), (0, 10_000), "ten segments, or half of the buffer");
    let mut seq = 1;
    for _ in 0..4 {
        // One full window from the peer in each round trip.
        let window = t.us.status().receive_window / 1000;
        for _ in 0..window {
            t.inject(peer(".").seq(seq).len(1000));
            seq += 1000;
            t.read();
        }
        t.take();
        t.pass(ms(50));
    }
    let (rtt, space) = info(&mut t);
    assert!((45_000..=51_000).contains(&rtt) && space >= 40_000, "{rtt} us, {space} bytes");
    assert!(t.us.status().receive_buffer >= 2 * space, "{}", t.us.status().receive_buffer);
}

#[test]
fn data_out_of_order_does_not_close_the_window() {
    let mut setup = delayed();
    setup.options.receive_buffer = Some(10_000);
    let mut t = Script::connected(setup, |syn| syn);
    t.inject(peer(".").seq(3001).len(5000));
    t.inject(peer(".").seq(1).len(2000));
    assert_eq!(t.read(), 2000);
    let status = t.us.status();
    assert_eq!((status.out_of_order, status.receive_window), (5000, 10_000));
}

/// A read with segments processed by another thread between its two halves: both then have something to advertise.
struct ReadWhile(Vec<tcp::Segment>);

impl tcp::TcpEvent for ReadWhile {
    type Reply = usize;

    fn run<A: tcp::PcbAccess>(self, pcb: &mut A, out: &mut tcp::Outbox<'_>, now: observe::Time) -> usize {
        let mut received = Received::default();
        let unfinished = Receive { max: usize::MAX }.take(pcb, &mut received).expect_err("a window to tell of");
        // The first half has no outbox: its caller reports the freed memory, as a place does.
        out.memory -= i64::from(received.memory);
        for segment in self.0 {
            let _ = tcp::SegmentArrives(&mut Some(segment)).run(pcb, out, now);
        }
        unfinished.run(pcb, out, now).expect("text");
        received.data.iter().map(|chunk| chunk.len()).sum()
    }
}

#[test]
fn what_another_thread_has_told_already_is_not_told_again() {
    let mut setup = delayed();
    setup.options.receive_buffer = Some(10_000);
    let mut t = Script::connected(setup, |syn| syn);
    for number in 0..8 {
        t.inject(peer(".").seq(1 + number * 1000).len(1000));
    }
    assert!(t.take().last().is_some_and(|last| last.ends_with("ack 8001 win 2000")));
    let two = [8001, 9001].map(|seq| t.segment(&peer(".").seq(seq).len(1000)));
    assert_eq!(t.run(ReadWhile(two.into())), 8000);
    t.expect(&[". 1:1(0) ack 10001 win 8000"]);
}
