//! The fast lane changes nothing: the same inputs, with the lane on and off, give the same segments at the same times,
//! the same counters, and the same state of the connection after every step.

mod support;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use observe::{Counter, DropReason, Time};
use pktbuf::PktBuf;
use proptest::prelude::*;
use support::endpoint::{Driver, Endpoint, Setup};
use support::link::{Faults, Random, World};
use support::script::{Peer, Script, peer};
use support::{data, ms};
use tcp::{Close, SetOption, Shutdown, SocketOption, TcpEvent as _};

/// Steps of a run: enough for every connection here to end, or to be stuck in its last retransmissions.
const STEPS: usize = 4000;

fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// All that can be observed of one end.
fn state_of(end: &Endpoint) -> u64 {
    let pcb = match &end.driver {
        Some(Driver::Whole(pcb)) => format!("{pcb:?}"),
        _ => String::new(),
    };
    let counted: Vec<u64> = Counter::ALL.iter().map(|&counter| end.count(counter)).collect();
    let dropped: Vec<u64> = DropReason::ALL.iter().map(|&reason| end.counters.dropped(reason)).collect();
    let rest = (end.memory, end.wake, end.ready.bits(), end.credit, end.tx_blocked, end.end, end.received.len());
    digest(&(pcb, counted, dropped, rest, format!("{:?}", end.last)))
}

/// How two users use their connection.
#[derive(Clone, Debug)]
struct Use {
    len: [usize; 2],
    write: usize,
    /// Number of chances to read that are taken, of 1000.
    reads: u32,
    /// Frames that the device takes between two turns; 0: any number.
    credit: u32,
    seed: u64,
}

/// The observations of a run.
struct Observed {
    /// Both ends after each step.
    states: Vec<u64>,
    /// Every segment: when, by which end, its bytes.
    segments: Vec<(Time, usize, Vec<u8>)>,
    /// Segments of data that arrived in order.
    in_order: u64,
    /// Sends without an outbox.
    alone: u64,
}

/// Runs the two users.
fn run(setup: &Setup, faults: &Faults, usage: &Use, lane: bool) -> Observed {
    let mut setup = setup.clone();
    setup.config.fast_lane = lane;
    let mut world = World::pair(setup, faults.clone());
    world.trace = Some(Vec::new());
    let (mut written, mut shut, mut states) = ([0; 2], [false; 2], Vec::new());
    let mut random = Random::new(usage.seed);
    let end_of_time = world.now + Duration::from_secs(1000);
    let mut act = |ends: &mut [Endpoint; 2], now: Time| {
        for (i, end) in ends.iter_mut().enumerate() {
            if end.driver.is_none() || end.removed || !end.state().is_synchronised() {
                continue;
            }
            if usage.credit > 0 {
                end.credit = usage.credit;
                if std::mem::take(&mut end.tx_blocked) {
                    end.run(tcp::TransmitReady, now);
                }
            }
            if random.chance(usage.reads) {
                end.read(now);
            }
            while written[i] < usage.len[i] {
                let n = usage.write.min(usage.len[i] - written[i]);
                let accepted = end.try_send(&data(written[i] as u64, n), now).unwrap_or(0);
                written[i] += accepted;
                if accepted < n || random.chance(100) {
                    break;
                }
            }
            if written[i] == usage.len[i] && !shut[i] && random.chance(300) {
                shut[i] = true;
                let _ = end.run(Shutdown::Write, now);
            }
            if end.end && shut[i] {
                end.run(Close, now);
            }
        }
        states.push(digest(&(now, state_of(&ends[0]), state_of(&ends[1]))));
    };
    for _ in 0..STEPS {
        if !world.step(end_of_time, &mut act) {
            break;
        }
    }
    let in_order = world.ends.iter().map(|end| end.count(Counter::FastPathIn)).sum();
    let alone = world.ends.iter().map(|end| end.alone).sum();
    Observed { states, segments: world.trace.take().unwrap_or_default(), in_order, alone }
}

/// Returns the segments of data that arrived in order, and the sends without an outbox.
fn same_with_and_without(setup: &Setup, faults: &Faults, usage: &Use) -> (u64, u64) {
    let (with, without) = (run(setup, faults, usage, true), run(setup, faults, usage, false));
    for (at, (a, b)) in with.segments.iter().zip(&without.segments).enumerate() {
        assert_eq!(a, b, "segment {at}, with the lane and without");
    }
    assert_eq!(with.segments.len(), without.segments.len());
    for (step, (a, b)) in with.states.iter().zip(&without.states).enumerate() {
        assert_eq!(a, b, "state and counters after step {step}");
    }
    assert_eq!(with.states.len(), without.states.len());
    assert_eq!(without.alone, 0);
    (with.in_order, with.alone)
}

fn setup(ipv6: bool) -> Setup {
    let mut setup = Setup::default();
    if ipv6 {
        setup.tuple.local_addr = "2001:db8::1".parse().unwrap();
        setup.tuple.remote_addr = "2001:db8::2".parse().unwrap();
        setup.mss = 1440;
    }
    setup.config = tcp::Config::default();
    setup
}

#[test]
fn requests_and_bulk_over_a_clean_link() {
    for ipv6 in [false, true] {
        let setup = setup(ipv6);
        let usage = Use { len: [200_000, 100_000], write: 9_000, reads: 1000, credit: 0, seed: 1 };
        assert!(same_with_and_without(&setup, &Faults::default(), &usage).0 > 100);
        let small = Use { len: [6_400, 6_400], write: 64, ..usage };
        let (_, alone) = same_with_and_without(&setup, &Faults { delay: ms(1), ..Faults::default() }, &small);
        assert!(alone > 0, "the first write finds nothing in flight");
    }
}

/// A step of one end: a segment of the peer, by its difference from the predicted one, and then calls of the user.
#[derive(Clone, Debug)]
struct Arrival {
    flags: &'static str,
    /// Bytes from the next expected number.
    seq: i32,
    /// Of the bytes that this end has written, how many are acknowledged, less 2. [`ALL`]: all; [`FIN_TOO`]: its FIN as
    /// well.
    ack: usize,
    /// Ticks from the latest timestamp; `None`: there is none.
    ts: Option<i32>,
    len: usize,
    window: u16,
    /// ECN field of its IP header.
    mark: u8,
    /// The user writes this many bytes after it.
    write: usize,
    reads: bool,
    /// The user sends no more from now on.
    ends: bool,
    /// Milliseconds until the next.
    pause: u64,
}

const ALL: usize = usize::MAX;
const FIN_TOO: usize = usize::MAX - 1;

/// The user's settings, made before the first segment arrives.
const SETTINGS: [Option<SocketOption>; 6] = [
    None,
    Some(SocketOption::Cork(true)),
    Some(SocketOption::MaxPacingRate(1_000_000)),
    Some(SocketOption::EveryArrival(true)),
    Some(SocketOption::ReceiveLowWater(700)),
    Some(SocketOption::QuickAck(false)),
];

/// The kind of connection that gets the segments.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    /// Of [`SETTINGS`].
    settings: usize,
    /// Its user reads no more.
    deaf: bool,
    /// Both ends use ECN.
    ecn: bool,
    /// A listener's: the first segment completes its handshake, or does not.
    passive: bool,
}

/// Gives one end these segments; returns what it sent and its state after each, and how many were data in order.
fn given(arrivals: &[Arrival], kind: Kind, lane: bool) -> (Vec<(Vec<String>, u64)>, u64) {
    let way = Way { lane, runs: false, calls: Calls::Any };
    given_by(&arrivals.chunks(1).map(<[Arrival]>::to_vec).collect::<Vec<_>>(), kind, way)
}

/// How segments are processed that may be processed in several ways.
#[derive(Clone, Copy)]
struct Way {
    /// Through the fast lane, where that is possible.
    lane: bool,
    /// Those of a batch that form a run as one event.
    runs: bool,
    calls: Calls,
}

/// How the user sends and reads.
#[derive(Clone, Copy)]
enum Calls {
    /// Reads all there is.
    Any,
    /// Reads the first buffer.
    First,
    /// The same, by the events for a single buffer.
    Piece,
    /// The same, but bytes are sent by the event that copies them.
    Bytes,
}

impl Calls {
    fn send(self, t: &mut Script, data: &[u8]) -> usize {
        if matches!(self, Calls::Bytes) && !data.is_empty() {
            let Ok(sent) = t.run(tcp::SendBytes { data, leaving: 0 }) else { return 0 };
            assert_eq!(sent.waits, (sent.accepted as usize) < data.len(), "what is left waits for room");
            return sent.accepted as usize;
        }
        let (Calls::Piece | Calls::Bytes) = self else { return t.us.try_send(data, t.now).unwrap_or(0) };
        let buffer = PktBuf::from_slice(data).expect("a buffer");
        let mut chunk = (!data.is_empty()).then(|| pktbuf::Chunk::Pooled(buffer));
        let Ok(taken) = t.run(tcp::SendChunk(&mut chunk)) else { return 0 };
        assert_eq!(taken as usize + chunk.map_or(0, |rest| rest.len()), data.len());
        taken as usize
    }

    fn read(self, t: &mut Script) {
        match self {
            Calls::Any => t.us.read(t.now),
            Calls::First => t.us.read_up_to(1, t.now),
            Calls::Piece | Calls::Bytes => {
                let mut rest = None;
                let piece = t.run(tcp::ReceivePiece { rest: &mut rest }).unwrap_or_default();
                let rest = rest.unwrap_or_default();
                assert!(piece.is_none() || rest.data.is_empty());
                let before = t.us.received.len();
                piece.iter().chain(&rest.data).for_each(|data| t.us.received.extend_from_slice(data));
                t.us.end |= rest.end;
                t.us.received.len() - before
            }
        };
    }
}

/// The same for segments of which several arrive directly after one another. The user acts after the last of them.
fn given_by(batches: &[Vec<Arrival>], kind: Kind, way: Way) -> (Vec<(Vec<String>, u64)>, u64) {
    let Way { lane, runs, calls } = way;
    let Kind { settings, deaf, ecn, passive } = kind;
    let mut setup = setup(false);
    (setup.config.fast_lane, setup.options.no_delay) = (lane, true);
    setup.config.ecn = if ecn { tcp::config::Ecn::Request } else { setup.config.ecn };
    let (syn, granted) = if ecn { ("SEC", "S.E") } else { ("S", "S.") };
    let options = |syn: Peer| syn.seq(0).win(60_000).mss(1000).sack_permitted().scale(7).ts(7, 1000);
    let mut t = Script::new(setup);
    if passive {
        t.us.listening = true;
        t.inject(options(peer(syn)));
    } else {
        t.us.open(t.now);
        t.take();
        t.inject(options(peer(granted).ack(1)));
    }
    let mut seen = vec![(t.take(), state_of(&t.us))];
    // Before its handshake a listener's connection has no user.
    if let Some(option) = SETTINGS[settings].filter(|_| !passive) {
        let _ = t.run(SetOption(option));
    }
    if deaf && !passive {
        let _ = t.run(Shutdown::Read);
    }
    let (mut next, mut latest, mut written) = (1u32, 7u32, 0usize);
    let (mut ended, mut peer_ended) = (false, false);
    for batch in batches {
        let (Some(arrival), mut segments) = (batch.last(), Vec::new()) else { continue };
        for (at, arrival) in batch.iter().enumerate() {
            let ack = match arrival.ack {
                ALL => 1 + written as u32,
                FIN_TOO => 1 + written as u32 + u32::from(ended),
                ack => (1 + ack.min(written + 3) as u32).wrapping_sub(2),
            };
            let (seq, value) =
                (next.wrapping_add_signed(arrival.seq), arrival.ts.map(|ts| latest.wrapping_add_signed(ts)));
            let mut segment = peer(arrival.flags).seq(seq).ack(ack).len(arrival.len).win(arrival.window);
            segment = segment.marked(arrival.mark);
            if let Some(value) = value {
                (segment, latest) = (segment.ts(value, 1000), if arrival.ts > Some(0) { value } else { latest });
            }
            let followed = batch.get(at + 1).is_some_and(|next| next.len > 0);
            segments.push(Some(t.segment_followed_by(&segment, followed)));
            if arrival.seq == 0 && matches!(arrival.flags, "." | "P.") {
                next = next.wrapping_add(arrival.len as u32);
            }
            if arrival.seq == 0 && arrival.flags == "F." && !peer_ended {
                (next, peer_ended) = (next.wrapping_add(arrival.len as u32 + 1), true);
            }
        }
        if let ([segment], true) = (&mut segments[..], t.us.driver.is_none()) {
            // Of a listener, which has no connection yet.
            t.us.segment_arrives(segment.take().expect("it is there"), t.now);
        } else {
            t.us.arrive_together(segments, runs, t.now);
        }
        if t.us.driver.is_none() {
            seen.push((t.take(), state_of(&t.us)));
            break;
        }
        written += calls.send(&mut t, &data(written as u64, arrival.write));
        if arrival.reads {
            calls.read(&mut t);
        }
        if arrival.ends && !ended {
            ended = true;
            // A user that has closed is an orphan's.
            if arrival.reads {
                t.us.run(Close, t.now)
            } else {
                let _ = t.run(Shutdown::Write);
            }
        }
        t.pass(ms(arrival.pause));
        let sent = t.take();
        seen.push((sent, state_of(&t.us)));
        if t.us.removed || !t.us.state().is_synchronised() {
            break;
        }
    }
    (seen, t.us.count(Counter::FastPathIn))
}

/// A segment, and a user that is called when it makes the connection readable: takes one buffer, and sends `answer`, all with
/// one outbox. With the lane, and where one owner holds all parts, as the handler of a connection ([`handed_on`]). The reply is what it has taken and how many bytes it has sent.
struct Answered<'a> {
    segment: Option<tcp::Segment>,
    answer: &'a [u8],
}

impl tcp::TcpEvent for Answered<'_> {
    type Reply = (Vec<u8>, u32);

    fn run<A: tcp::PcbAccess>(mut self, pcb: &mut A, out: &mut tcp::Outbox<'_>, now: Time) -> Self::Reply {
        let mut piece = match pcb.all().filter(|_| out.config.fast_lane) {
            Some(pcb) => handed_on(&mut self.segment, pcb, out, now),
            None => {
                let _ = tcp::SegmentArrives(&mut self.segment).run(pcb, out, now);
                None
            }
        };
        if !out.ready.intersects(tcp::Readiness::READABLE) {
            assert!(piece.is_none(), "a user is called for what it is given");
            return (Vec::new(), 0);
        }
        let (mut taken, mut rest) = (Vec::new(), None);
        if piece.is_none() {
            piece = tcp::ReceivePiece { rest: &mut rest }.run(pcb, out, now).unwrap_or_default();
        }
        piece.iter().chain(rest.iter().flat_map(|rest| &rest.data)).for_each(|data| taken.extend_from_slice(data));
        if self.answer.is_empty() {
            return (taken, 0);
        }
        let sent = tcp::SendBytes { data: self.answer, leaving: 0 }.run(pcb, out, now);
        (taken, sent.map_or(0, |sent| sent.accepted))
    }
}

/// The segment arrives at an owner of all parts for a user that takes data at once; returns the data that was not queued.
fn handed_on(
    segment: &mut Option<tcp::Segment>,
    pcb: &mut tcp::Pcb,
    out: &mut tcp::Outbox<'_>,
    now: Time,
) -> Option<PktBuf> {
    let mut event = tcp::SegmentArrives(segment);
    match event.hand_on(pcb, out, now) {
        tcp::HandedOn::Taken => event.taken(),
        tcp::HandedOn::Passed(predicted) => {
            predicted.send(pcb, out, now);
            event.passed().map(|passed| passed.take(pcb, out, now))
        }
        tcp::HandedOn::Processed(predicted) => {
            predicted.send(pcb, out, now);
            None
        }
        tcp::HandedOn::Unpredicted => {
            let _ = event.unpredicted().run(pcb, out, now);
            None
        }
    }
}

/// What one end sent in a step, what its user took, and its state after it.
type AnsweredStep = (Vec<String>, Vec<u8>, u64);

/// Gives one end these segments, each answered with what its user writes; returns what it sent, took and its state after each,
/// and how many were data in order.
fn answered(arrivals: &[Arrival], kind: Kind, lane: bool) -> (Vec<AnsweredStep>, u64) {
    answered_without(arrivals, kind, lane, None)
}

/// The same; `refused`: of the buffers that the last segment and its answer ask for, the one of this number is refused.
fn answered_without(arrivals: &[Arrival], kind: Kind, lane: bool, refused: Option<u64>) -> (Vec<AnsweredStep>, u64) {
    let mut setup = setup(false);
    (setup.config.fast_lane, setup.options.no_delay) = (lane, true);
    setup.config.ecn = if kind.ecn { tcp::config::Ecn::Request } else { setup.config.ecn };
    let granted = if kind.ecn { "S.E" } else { "S." };
    let mut t = Script::new(setup);
    t.us.open(t.now);
    t.take();
    t.inject(peer(granted).ack(1).seq(0).win(60_000).mss(1000).sack_permitted().scale(7).ts(7, 1000));
    if let Some(option) = SETTINGS[kind.settings] {
        let _ = t.run(SetOption(option));
    }
    let (mut seen, mut next, mut latest, mut written) = (Vec::new(), 1u32, 7u32, 0usize);
    for (at, arrival) in arrivals.iter().enumerate() {
        let ack = if arrival.ack == ALL {
            1 + written as u32
        } else {
            (1 + arrival.ack.min(written + 3) as u32).wrapping_sub(2)
        };
        let value = arrival.ts.map(|ts| latest.wrapping_add_signed(ts));
        let seq = next.wrapping_add_signed(arrival.seq);
        let mut segment =
            peer(arrival.flags).seq(seq).ack(ack).len(arrival.len).win(arrival.window).marked(arrival.mark);
        if let Some(value) = value {
            (segment, latest) = (segment.ts(value, 1000), if arrival.ts > Some(0) { value } else { latest });
        }
        if arrival.seq == 0 && matches!(arrival.flags, "." | "P.") {
            next = next.wrapping_add(arrival.len as u32);
        }
        let answer = data(written as u64, arrival.write);
        let segment = Some(t.segment_followed_by(&segment, false));
        if let Some(number) = refused.filter(|_| at + 1 == arrivals.len()) {
            pktbuf::refuse(number, 1);
        }
        let (taken, sent) = t.run(Answered { segment, answer: &answer });
        pktbuf::refuse(0, 0);
        written += sent as usize;
        t.pass(ms(arrival.pause));
        seen.push((t.take(), taken, state_of(&t.us)));
        if t.us.removed || !t.us.state().is_synchronised() {
            break;
        }
    }
    (seen, t.us.count(Counter::FastPathIn))
}

/// Requests are predicted, and their answers sent by the lane: without them the comparison would not test it.
#[test]
fn each_request_is_answered_in_its_event() {
    let request = |ack| Arrival {
        flags: "P.",
        seq: 0,
        ack,
        ts: Some(1),
        len: 64,
        window: 60_000,
        mark: 0,
        write: 64,
        reads: true,
        ends: false,
        pause: 1,
    };
    let requests: Vec<Arrival> = (0..40).map(|_| request(ALL)).collect();
    let (with, in_order) = answered(&requests, Kind::default(), true);
    assert_eq!((&with, in_order), (&answered(&requests, Kind::default(), false).0, 40));
    let answers = with.iter().map(|(sent, taken, _)| (sent.len(), taken.len()));
    // Before the first answer are the acknowledgement of the handshake, and that of the first data.
    assert_eq!(answers.skip(1).collect::<Vec<_>>(), [(1, 64); 39]);
}

/// The bytes that are kept of an answer are those that were sent.
#[test]
fn an_answer_that_is_lost_is_sent_again_as_it_was() {
    let mut t = Script::connected(setup(false), |syn| syn.sack_permitted().scale(7).ts(7, 1000));
    for n in 0..3 {
        let request = peer("P.").seq(1 + 64 * n).ack(1 + 64 * n).len(64).win(60_000).ts(8 + n, 1000);
        let (segment, answer) = (Some(t.segment_followed_by(&request, false)), data(64 * u64::from(n), 64));
        assert_eq!(t.run(Answered { segment, answer: &answer }).1, 64);
        t.take();
    }
    t.pass(ms(2000));
    let again: Vec<&[u8]> = t.us.sent.iter().map(|segment| &segment[wire::tcp::header_len(segment)..]).collect();
    assert!(!again.is_empty() && again.iter().all(|bytes| *bytes == &data(128, 64)[..]), "{again:?}");
}

/// There is no buffer for the answer's segment: it waits in the send queue until the device, or a time-out, gives it a turn.
#[test]
fn an_answer_without_a_buffer_waits_as_it_does_without_the_lane() {
    let request = Arrival {
        flags: "P.",
        seq: 0,
        ack: ALL,
        ts: Some(1),
        len: 64,
        window: 60_000,
        mark: 0,
        write: 64,
        reads: true,
        ends: false,
        pause: 1,
    };
    let requests = vec![request; 5];
    let without = |lane, number| answered_without(&requests, Kind::default(), lane, number).0;
    let sent = |seen: &[AnsweredStep]| seen.last().map(|(sent, ..)| sent.len());
    for number in 0..2 {
        let (with, general) = (without(true, Some(number)), without(false, Some(number)));
        assert!(with == general, "buffer {number} is refused");
        assert_eq!(
            sent(&with),
            Some(usize::from(number > 0)),
            "the first is that of the segment: the acknowledgement has freed the other"
        );
    }
}

/// A segment that is the predicted one, or differs from it in a field or two.
fn arrival() -> impl Strategy<Value = Arrival> {
    let flags = prop_oneof![30 => Just("."), 20 => Just("P."), 1 => prop::sample::select(vec!["F.", "R.", "S.", "U.", "", "P", "FP."])];
    let seq = prop_oneof![20 => Just(0), 1 => -3i32..3, 1 => -2000i32..70_000];
    let ts = prop_oneof![20 => (0i32..3).prop_map(Some), 2 => (-3i32..0).prop_map(Some), 1 => any::<i32>().prop_map(Some), 1 => Just(None)];
    let len = prop_oneof![3 => Just(0), 2 => Just(1000), 2 => 1usize..1448];
    let window = prop_oneof![8 => Just(60_000), 1 => Just(0), 1 => any::<u16>()];
    let mark = prop_oneof![20 => Just(0), 1 => 1u8..4];
    let write = prop_oneof![3 => Just(0), 2 => 1usize..3000, 2 => Just(1448), 1 => Just(64)];
    let rest = (write, any::<bool>(), prop::bool::weighted(0.03), prop_oneof![4 => 0u64..3, 1 => 0u64..300]);
    // Nearly all of the written data, so that the connection is often idle, or any part of it.
    let ack = prop_oneof![2 => Just(ALL), 1 => 0usize..9000];
    (flags, seq, ack, ts, len, window, mark, rest).prop_map(
        |(flags, seq, ack, ts, len, window, mark, (write, reads, ends, pause))| Arrival {
            flags,
            seq,
            ack,
            ts,
            len,
            window,
            mark,
            write,
            reads,
            ends,
            pause,
        },
    )
}

/// A segment of the end of a connection, or one that differs from it: few have data, many have a FIN, and the user closes
/// soon.
fn last_arrival() -> impl Strategy<Value = Arrival> {
    let flags = prop_oneof![10 => Just("."), 8 => Just("F."), 1 => prop::sample::select(vec!["FP.", "P.", "R.", "S.", "FU.", "FE.", "F", ""])];
    let len = prop_oneof![6 => Just(0), 1 => Just(100)];
    let ack = prop_oneof![4 => Just(FIN_TOO), 2 => Just(ALL), 1 => 0usize..9];
    let write = prop_oneof![6 => Just(0), 1 => Just(64)];
    let mark = prop_oneof![6 => Just(0), 1 => 1u8..4];
    let rest = (len, ack, write, mark, prop::bool::weighted(0.4));
    (arrival(), flags, rest).prop_map(|(arrival, flags, (len, ack, write, mark, ends))| Arrival {
        flags,
        len,
        mark,
        ack,
        write,
        ends,
        ..arrival
    })
}

fn kind() -> impl Strategy<Value = Kind> {
    let flags = (prop::bool::weighted(0.05), prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    (0usize..6, flags).prop_map(|(settings, (deaf, ecn, passive))| Kind { settings, deaf, ecn, passive })
}

/// The predicted segments are among those that [`arrival`] makes: without them the comparison would not test the lane.
#[test]
fn predicted_segments_are_data_in_order_and_acknowledgements() {
    let plain = Arrival {
        flags: ".",
        seq: 0,
        ack: 2,
        ts: Some(1),
        len: 100,
        window: 60_000,
        mark: 0,
        write: 500,
        reads: true,
        ends: false,
        pause: 1,
    };
    let answer = Arrival { ack: 502, ..plain.clone() };
    let (with, in_order) = given(&[plain.clone(), answer.clone()], Kind::default(), true);
    assert_eq!((&with, in_order), (&given(&[plain, answer], Kind::default(), false).0, 2));
}

/// An owner of the whole connection makes an outbox for an arrival only if something is to be sent: not for data that is
/// acknowledged later, nor for an acknowledgement of all that was sent.
#[test]
fn an_arrival_that_sends_nothing_needs_no_outbox() {
    for lane in [true, false] {
        let mut setup = setup(false);
        (setup.config.fast_lane, setup.config.quick_acks, setup.options.no_delay) = (lane, 0, true);
        let mut t = Script::new(setup);
        t.us.open(t.now);
        t.take();
        t.inject(peer("S.").seq(0).ack(1).win(60_000).mss(1000).sack_permitted().scale(7).ts(7, 1000));
        let (mut seq, mut written, mut without) = (1, 0, Vec::new());
        // What the first data finds is rare; a second segment in a row is acknowledged at once.
        for (len, write) in [(100, 50), (100, 50), (0, 50), (100, 0), (600, 0)] {
            let before = t.us.local;
            t.inject(peer("P.").seq(seq).ack(1 + written).len(len).win(60_000).ts(8, 1000));
            (seq, without) = (seq + len as u32, [without, vec![t.us.local > before]].concat());
            written += t.us.try_send(&data(u64::from(written), write), t.now).unwrap_or(0) as u32;
            t.us.read(t.now);
        }
        let expected = if lane { [false, true, true, true, false] } else { [false; 5] };
        assert_eq!(without, expected, "the lane: {lane}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, failure_persistence: None, ..ProptestConfig::default() })]

    /// A few arbitrary segments at the boundary of the predicted ones.
    #[test]
    fn no_segment_tells_the_lane(
        arrivals in prop::collection::vec(arrival(), 1..24),
        kind in kind(),
    ) {
        let (with, without) = (given(&arrivals, kind, true).0, given(&arrivals, kind, false).0);
        for (step, (a, b)) in with.iter().zip(&without).enumerate() {
            prop_assert_eq!(a, b, "after segment {}", step);
        }
        prop_assert_eq!(with.len(), without.len());
    }

    /// Any few segments at the end of a connection, also behind data and holes.
    #[test]
    fn no_segment_of_a_close_tells_the_lane(
        before in prop::collection::vec(arrival(), 0..4),
        last in prop::collection::vec(last_arrival(), 1..8),
        kind in kind(),
    ) {
        let arrivals = [before, last].concat();
        let (with, without) = (given(&arrivals, kind, true).0, given(&arrivals, kind, false).0);
        for (step, (a, b)) in with.iter().zip(&without).enumerate() {
            prop_assert_eq!(a, b, "after segment {}", step);
        }
        prop_assert_eq!(with.len(), without.len());
    }
}

/// A run takes what [`arrival`] makes mostly, and what ends it arrives alone. Credit, time and the user's calls between
/// its segments are the only differences from arrivals one by one, and nobody can see them.
#[test]
fn a_run_is_one_event_until_something_must_be_done_first() {
    let plain = Arrival {
        flags: ".",
        seq: 0,
        ack: ALL,
        ts: Some(0),
        len: 100,
        window: 60_000,
        mark: 0,
        write: 0,
        reads: false,
        ends: false,
        pause: 1,
    };
    let taken = |arrivals: &[&Arrival]| {
        let mut t = Script::connected(setup(false), |syn| syn.sack_permitted().scale(7).ts(7, 1000));
        // The first data of a connection is not predicted.
        t.inject(peer(".").len(100).ts(7, 1000));
        t.pass(ms(300));
        let (mut next, before) = (101, t.us.count(Counter::FastPathIn));
        let mut segments: Vec<Option<tcp::Segment>> = Vec::new();
        for arrival in arrivals {
            let segment = peer(arrival.flags).seq(next + arrival.seq as u32).len(arrival.len).ts(7, 1000);
            segments.push(Some(t.segment_followed_by(&segment, true)));
            next += arrival.len as u32;
        }
        let taken = t.run(tcp::RunArrives(&mut segments));
        (taken, t.us.count(Counter::FastPathIn) - before)
    };
    assert_eq!(taken(&[&plain; 20]), (20, 20));
    let late = Arrival { seq: 50, ..plain.clone() };
    assert_eq!(taken(&[&plain, &plain, &late, &plain]), (2, 2), "the third leaves a hole");
    let last = Arrival { flags: "F.", ..plain.clone() };
    assert_eq!(taken(&[&plain, &last, &plain]), (1, 1), "the second ends the stream");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any few segments that arrive together, as a run and one by one.
    #[test]
    fn no_segment_tells_the_run(
        batches in prop::collection::vec(prop::collection::vec(arrival(), 1..12), 1..8),
        kind in kind(),
    ) {
        // The first completes a listener's handshake, or does not.
        let first = batches[0][..1].to_vec();
        let batches = [vec![first], batches].concat();
        let way = |runs| Way { lane: true, runs, calls: Calls::Any };
        let (with, without) = (given_by(&batches, kind, way(true)).0, given_by(&batches, kind, way(false)).0);
        for (step, (a, b)) in with.iter().zip(&without).enumerate() {
            prop_assert_eq!(a, b, "after batch {}", step);
        }
        prop_assert_eq!(with.len(), without.len());
    }

    /// Any few segments, and a user that sends and reads by the events for a single buffer, or by those for several.
    #[test]
    fn no_call_tells_that_it_is_about_one_buffer(
        arrivals in prop::collection::vec(arrival(), 1..30),
        kind in kind(),
    ) {
        let batches: Vec<_> = arrivals.chunks(1).map(<[Arrival]>::to_vec).collect();
        let way = |calls| Way { lane: true, runs: false, calls };
        let first = given_by(&batches, kind, way(Calls::First)).0;
        for calls in [Calls::Piece, Calls::Bytes] {
            let piece = given_by(&batches, kind, way(calls)).0;
            for (step, (a, b)) in piece.iter().zip(&first).enumerate() {
                prop_assert_eq!(a, b, "after segment {}", step);
            }
            prop_assert_eq!(piece.len(), first.len());
        }
    }

    /// Any few segments to a user that answers inside the event, as a handler does.
    #[test]
    fn no_answer_tells_the_lane(
        arrivals in prop::collection::vec(arrival(), 1..24),
        ecn in prop::bool::weighted(0.1),
        settings in 0usize..6,
    ) {
        let kind = Kind { settings, ecn, ..Kind::default() };
        let (with, without) = (answered(&arrivals, kind, true).0, answered(&arrivals, kind, false).0);
        for (step, (a, b)) in with.iter().zip(&without).enumerate() {
            prop_assert_eq!(a, b, "after segment {}", step);
        }
        prop_assert_eq!(with.len(), without.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any link, any use, and segments that no honest peer sends.
    #[test]
    fn no_input_tells_the_lane(
        link in (0u32..100, 0u32..60, 0u64..10, 0u32..80, any::<u64>()),
        usage in ((0usize..60_000, 0usize..30_000), 1usize..20_000, 100u32..1000, 0u32..6, any::<u64>()),
        features in any::<u16>(),
        iss in any::<u32>(),
    ) {
        let on = |bit: u32| features >> bit & 1 != 0;
        let mut setup = setup(on(0));
        (setup.iss, setup.staged) = (iss, on(1));
        setup.config.sack = on(2) || on(3);
        setup.config.timestamps = on(4) || on(5) || on(6);
        setup.options.no_delay = on(7);
        setup.options.cork = on(8) && on(9) && on(10);
        setup.config.ecn = if on(11) && on(12) { tcp::config::Ecn::Request } else { setup.config.ecn };
        setup.super_segments = if on(13) && on(14) { 20_000 } else { 0 };
        setup.config.slow_start_after_idle = on(15);
        if on(10) {
            setup.options.receive_buffer = Some(3_000 + u32::from(features));
        }
        let (loss, duplicate, jitter, forged, seed) = link;
        let faults = Faults { loss, duplicate, jitter: ms(jitter), forged, seed, ..Faults::default() };
        let ((a, b), write, reads, credit, seed) = usage;
        same_with_and_without(&setup, &faults, &Use { len: [a, b], write, reads, credit, seed });
    }
}
