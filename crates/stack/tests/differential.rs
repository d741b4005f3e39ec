//! One input, every architecture, the same bytes (invariant G3).
//!
//! A seeded generator simulates two hosts over a link that loses, repeats, delays and damages frames, with users that
//! open, listen, write, read and close, and a third party that sends resets, ICMP errors and garbage. The inputs of one
//! host - frames, user calls, the passing of time, one at a time - are recorded from a stack under `up`, with every
//! frame that it sent and every answer that its users got. The record is then replayed into a stack under each
//! architecture, on one thread.
//!
//! # Comparison
//! After each step the test compares the frames that the stack sent since the step before, byte for byte and in order, and
//! the answer to the user. One comparison is weaker: when the clock is moved and timers of *several* connections fire
//! in the same step, frames are compared in order within each connection. The order of two connections that are due at
//! the same instant is unspecified: one wheel serves all connections under `up`, a thousand serve them under
//! `connp-l:1024`. For the same reason the device has room for every frame; otherwise the first of the two would take
//! the room that the second has to wait for.

use std::sync::LazyLock;
use std::time::Duration;

use every_arch::every_arch;
use stack::Architecture;
use tcp::SocketOption;
use testbed::dice::Dice;
use testbed::frames::{self, Segment, tcp_of};
use testbed::subject::{Outcome, Step, Subject, differ, name};
use wire::icmpv4;
use wire::tcp::TcpFlags;

/// Frames in transit, with the turn in which they arrive.
#[derive(Default)]
struct Wire(Vec<(usize, Vec<u8>)>);

impl Wire {
    fn send(&mut self, turn: usize, frame: Vec<u8>, dice: &mut Dice) {
        if dice.chance(20) {
            return;
        }
        let delay = 1 + if dice.chance(30) { dice.below(12) } else { 0 };
        if dice.chance(10) {
            self.0.push((turn + 1 + dice.below(5), frame.clone()));
        }
        let mut frame = frame;
        if dice.chance(5) {
            let at = dice.below(frame.len());
            frame[at] ^= 0x10;
        }
        self.0.push((turn + delay, frame));
    }

    fn due(&mut self, turn: usize) -> Vec<Vec<u8>> {
        let (due, later) = std::mem::take(&mut self.0).into_iter().partition(|(at, _)| *at <= turn);
        self.0 = later;
        due.into_iter().map(|(_, frame)| frame).collect()
    }
}

/// A recorded run.
struct Trace {
    seed: u64,
    steps: Vec<(Step, Outcome)>,
    counters: observe::CounterSnapshot,
    connections: usize,
}

const TURNS: usize = 6000;
const PORTS: [u16; 3] = [80, 81, 82];
/// Ports that no host listens on, and from which the third party sends.
const STRANGE: u16 = 60_000;

/// Both hosts, while the trace is recorded.
struct Play {
    dice: Dice,
    subject: Subject,
    other: Subject,
    to_other: Wire,
    to_subject: Wire,
    steps: Vec<(Step, Outcome)>,
    turn: usize,
    /// The last frame that the subject sent, for the third party to quote.
    last: Vec<u8>,
}

impl Play {
    fn new(seed: u64) -> Play {
        Play {
            dice: Dice(seed ^ 0x9e37_79b9_7f4a_7c15),
            subject: Subject::new(Architecture::named("up"), seed),
            other: Subject::opposite(seed + 1),
            to_other: Wire::default(),
            to_subject: Wire::default(),
            steps: Vec::new(),
            turn: 0,
            last: Vec::new(),
        }
    }

    fn happen(&mut self, step: Step) {
        let outcome = self.subject.step(&step);
        for frame in &outcome.frames {
            let strange = tcp_of(frame).is_some_and(|(header, _)| header.dst_port >= STRANGE && header.src_port < 1024);
            if tcp_of(frame).is_some() {
                self.last = frame.clone();
            }
            if !strange {
                self.to_other.send(self.turn, frame.clone(), &mut self.dice);
            }
        }
        self.steps.push((step, outcome));
    }

    fn happen_there(&mut self, step: &Step) {
        for frame in self.other.step(step).frames {
            self.to_subject.send(self.turn, frame, &mut self.dice);
        }
    }

    /// One turn: due frames arrive, users act, the third party may act, time passes.
    fn turn(&mut self) {
        self.turn += 1;
        for frame in self.to_subject.due(self.turn) {
            self.happen(Step::Frame(frame));
        }
        for frame in self.to_other.due(self.turn) {
            self.happen_there(&Step::Frame(frame));
        }
        if self.dice.chance(400)
            && let Some(step) = user(&mut self.dice, &self.subject)
        {
            self.happen(step);
        }
        if self.dice.chance(400)
            && let Some(step) = user(&mut self.dice, &self.other)
        {
            self.happen_there(&step);
        }
        if self.dice.chance(30)
            && let Some(frame) = self.strange()
        {
            self.happen(Step::Frame(frame));
        }
        let span = match self.dice.below(1000) {
            0..970 => 1,
            970..997 => 40,
            _ => 1500,
        };
        self.pass(Duration::from_millis(span));
    }

    fn pass(&mut self, span: Duration) {
        self.happen(Step::Pass(span));
        self.happen_there(&Step::Pass(span));
    }

    /// A frame of the third party: of no connection, or about one.
    fn strange(&mut self) -> Option<Vec<u8>> {
        let dice = &mut self.dice;
        let from = STRANGE + dice.below(2000) as u16;
        let (header, data) = tcp_of(&self.last)?;
        let v4 = self.last[12..14] == [8, 0];
        let spoof = |flags, seq, ack| {
            let ports = (header.dst_port, header.src_port);
            Segment { flags, data: b"nonsense", ..Segment::ack(ports, seq, ack) }.frame()
        };
        let next = header.seq.0.wrapping_add(data.len() as u32);
        Some(match dice.below(8) {
            0 | 1 => Segment::syn(from, PORTS[dice.below(3)]).frame(),
            2 => Segment { flags: TcpFlags::ACK, ..Segment::syn(from, PORTS[dice.below(3)]) }.frame(),
            3 if v4 && dice.chance(300) => spoof(TcpFlags::RST, header.ack.0, 0),
            3 => spoof(TcpFlags::RST | TcpFlags::ACK, header.ack.0.wrapping_add(1000), next),
            4 => spoof(TcpFlags(dice.below(256) as u16), header.ack.0.wrapping_add(dice.below(3000) as u32), next),
            5 if v4 => frames::icmp_error(icmpv4::Message::Unreachable { code: 4, mtu: 900 }, &self.last),
            6 if v4 => frames::icmp_error(icmpv4::Message::Unreachable { code: 1, mtu: 0 }, &self.last),
            _ => frames::datagram(from, 53 + dice.below(2) as u16, &[1; 40]),
        })
    }
}

/// The next action of a user.
fn user(dice: &mut Dice, host: &Subject) -> Option<Step> {
    let some = |dice: &mut Dice, n: usize| (n > 0).then(|| dice.below(n));
    let socket = some(dice, host.sockets.len());
    let most = if dice.chance(300) { 30_000 } else { 1500 };
    Some(match dice.below(100) {
        0..3 => Step::Listen { port: PORTS[dice.below(3)], backlog: 1 + dice.below(4) },
        3 if dice.chance(300) => Step::Unlisten(some(dice, host.listeners.len())?),
        4..18 => Step::Accept(some(dice, host.listeners.len())?),
        18..22 => Step::Connect { v6: dice.chance(300), port: PORTS[dice.below(3)] },
        24 if dice.chance(300) => Step::Connect { v6: false, port: 9 },
        25..61 => Step::Send { socket: socket?, len: 1 + dice.below(most) },
        61..92 => Step::Receive { socket: socket?, max: 1 + dice.below(20_000) },
        92 => Step::Shutdown(socket?),
        93 => Step::Set { socket: socket?, option: SocketOption::NoDelay(true) },
        94 => Step::Close(socket?),
        95 if dice.chance(300) => Step::Abort(socket?),
        96 if host.datagrams.is_empty() => Step::Bind(53),
        97 | 98 => Step::SendDatagram {
            socket: some(dice, host.datagrams.len())?,
            port: 53 + dice.below(2) as u16,
            len: dice.below(4000),
        },
        _ => return None,
    })
}

fn record(seed: u64) -> Trace {
    let mut play = Play::new(seed);
    for port in PORTS {
        play.happen(Step::Listen { port, backlog: 3 });
        play.happen_there(&Step::Listen { port, backlog: 3 });
    }
    while play.turn < TURNS {
        play.turn();
    }
    // The end: everything is closed, and the rest times out.
    for socket in 0..play.subject.sockets.len() {
        play.happen(Step::Close(socket));
    }
    for _ in 0..600 {
        play.turn += 1;
        for frame in play.to_subject.due(play.turn) {
            play.happen(Step::Frame(frame));
        }
        for frame in play.to_other.due(play.turn) {
            play.happen_there(&Step::Frame(frame));
        }
        play.pass(Duration::from_millis(500));
    }
    let stats = play.subject.node.stack.stats();
    Trace { seed, steps: play.steps, counters: stats.counters, connections: stats.connections }
}

/// Replays a trace into a stack; returns the first difference from the recording.
fn replay(trace: &Trace, subject: &mut Subject) -> Result<(), String> {
    for (number, (step, expected)) in trace.steps.iter().enumerate() {
        let outcome = subject.step(step);
        if let Some(difference) = differ(step, &outcome, expected) {
            return Err(format!("at {:?}, step {number} {difference}", subject.node.clock.now()));
        }
    }
    Ok(())
}

fn hash(trace: &Trace) -> u64 {
    // FNV-1a, because the hash must stay the same across versions.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut eat = |bytes: &[u8]| {
        bytes.iter().for_each(|byte| hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    };
    for (step, outcome) in &trace.steps {
        eat(name(step).as_bytes());
        eat(outcome.answer.as_bytes());
        outcome.frames.iter().for_each(|frame| eat(frame));
    }
    hash
}

static TRACES: LazyLock<Vec<Trace>> = LazyLock::new(|| vec![record(11), record(12)]);

#[every_arch]
fn the_same_input_gives_the_same_bytes(arch: Architecture) {
    for trace in &*TRACES {
        let mut subject = Subject::new(arch, trace.seed);
        if let Err(difference) = replay(trace, &mut subject) {
            panic!("trace {}, {arch}, {difference}", trace.seed);
        }
        let stats = subject.node.stack.stats();
        assert_eq!(stats.counters, trace.counters, "what {arch} counted, and what `up` counted");
        assert_eq!(stats.connections, trace.connections, "connections left");
    }
}

/// Header prediction and template headers are a shorter way to the same result: a stack without the fast lane sends the
/// same bytes, gives its users the same answers and counts the same.
#[test]
fn the_fast_lane_changes_no_byte() {
    for trace in &*TRACES {
        let mut subject = Subject::with(Architecture::reference(), trace.seed, |tcp| tcp.fast_lane = false);
        if let Err(difference) = replay(trace, &mut subject) {
            panic!("trace {}, without the lane, {difference}", trace.seed);
        }
        let stats = subject.node.stack.stats();
        assert_eq!(stats.counters, trace.counters, "what was counted without the lane, and with it");
    }
}

/// A walk from the reference architecture that covers every ordered pair of architectures once (Hierholzer 1873).
fn every_switch() -> Vec<Architecture> {
    let architectures: Vec<Architecture> = Architecture::all().collect();
    let mut left: Vec<usize> = vec![0; architectures.len()];
    let start = architectures.iter().position(|arch| *arch == Architecture::reference()).expect("it is one of them");
    let (mut path, mut walk) = (vec![start], Vec::new());
    while let Some(&at) = path.last() {
        if left[at] == architectures.len() {
            walk.push(architectures[at]);
            path.pop();
        } else {
            left[at] += 1;
            path.push(left[at] - 1);
        }
    }
    walk.reverse();
    walk
}

/// Invariant G9 in any state of the trace: the stack is switched from every architecture to every other, and to itself,
/// during the replay.
#[test]
fn switches_on_the_way_change_no_byte() {
    let walk = every_switch();
    assert_eq!(walk.len(), Architecture::all().count().pow(2) + 1);
    for trace in &*TRACES {
        let mut subject = Subject::new(walk[0], trace.seed);
        let every = trace.steps.len() / walk.len();
        for (number, (step, expected)) in trace.steps.iter().enumerate() {
            if number % every == 0
                && let Some(arch) = walk.get(number / every)
            {
                let refused = subject.node.stack.switch(*arch).err();
                assert_eq!(refused, None, "trace {}, step {number}, to {arch}", trace.seed);
            }
            let outcome = subject.step(step);
            if let Some(difference) = differ(step, &outcome, expected) {
                let arch = subject.node.stack.architecture();
                panic!("trace {}, {arch}, at {:?}, step {number} {difference}", trace.seed, subject.node.clock.now());
            }
        }
        assert_eq!(subject.node.stack.architecture(), walk[walk.len() - 1], "the whole walk was made");
        let stats = subject.node.stack.stats();
        assert_eq!(stats.counters, trace.counters, "what was counted, and what `up` counted");
        assert_eq!(stats.connections, trace.connections, "connections left");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    assert_eq!(hash(&record(11)), hash(&TRACES[0]));
    assert_ne!(hash(&TRACES[0]), hash(&TRACES[1]));
}

/// The oracle can fail: a stack with other secrets sends other sequence numbers.
#[test]
fn another_seed_is_told_apart() {
    let trace = &TRACES[0];
    assert!(replay(trace, &mut Subject::new(Architecture::named("up"), trace.seed + 100)).is_err());
}

/// The trace contains the events that it is meant to contain.
#[test]
fn the_trace_holds_what_it_promises() {
    use observe::Counter::*;
    let mut sum = TRACES[0].counters.clone();
    sum += &TRACES[1].counters;
    let expected = [
        ConnectionsOpened,
        ConnectionsAccepted,
        ConnectionsClosed,
        ConnectionsReset,
        ConnectionsRefused,
        Retransmits,
        FastRetransmits,
        Timeouts,
        OutOfOrderQueued,
        SacksIn,
        SacksOut,
        WindowUpdatesOut,
        TimeWaitEntered,
        ResetsIn,
        ResetsOut,
        DelayedAckTimeouts,
        ChallengeAcksOut,
        WindowProbesOut,
    ];
    for counter in expected {
        assert!(sum.get(counter) > 0, "no {counter:?} in the traces: {sum:#?}");
    }
    assert!(sum.dropped(observe::DropReason::TcpNoListener) > 0);
}
