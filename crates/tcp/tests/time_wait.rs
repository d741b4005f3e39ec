//! A PCB in TIME-WAIT that was kept as a [`TimeWait`] and revived does what it would have done otherwise: the same
//! events give the same segments, the same counters, the same drops and the same end.

mod support;

use std::time::Duration;

use observe::{Counter, DropReason, Time};
use support::endpoint::{Driver, Endpoint, Setup};
use support::link::Random;
use support::script::{Peer, Script, peer};
use support::{data, ms};
use tcp::config::Ecn;
use tcp::{
    Close, Disposition, IcmpError, IcmpKind, LinkDown, PathMtu, Reclaim, RouteChanged, State, TimeWait, Timeouts,
    TransmitReady,
};
use wire::SeqNumber;

/// A connection before it is closed.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    ipv6: bool,
    timestamps: bool,
    sack: bool,
    /// The peer's window shift; `None`: neither end scales.
    scale: Option<u8>,
    passive: bool,
    class: u8,
    /// Its receive buffer is larger than any window without scaling.
    wide: bool,
    /// Bytes that it receives and sends.
    received: usize,
    sent: usize,
    /// The peer closes at the same time.
    together: bool,
    ecn: bool,
}

impl Kind {
    fn drawn(random: &mut Random) -> Kind {
        Kind {
            ipv6: random.chance(500),
            timestamps: random.chance(500),
            sack: random.chance(500),
            scale: [None, Some(0), Some(2), Some(7), Some(14)][random.below(5) as usize],
            passive: random.chance(500),
            class: [0, 0xb8][random.below(2) as usize],
            wide: random.chance(500),
            received: [0, 1, 900, 5000][random.below(4) as usize],
            sent: [0, 1, 900, 70_000][random.below(4) as usize],
            together: random.chance(300),
            ecn: false,
        }
    }

    fn setup(self) -> Setup {
        let mut setup = Setup { config: tcp::Config::default(), ..Setup::default() };
        if self.ipv6 {
            setup.tuple.local_addr = "2001:db8::1".parse().unwrap();
            setup.tuple.remote_addr = "2001:db8::2".parse().unwrap();
            setup.mss = 1440;
        }
        setup.options.traffic_class = self.class;
        setup.options.receive_buffer = self.wide.then_some(150_000);
        setup.config.ecn = if self.ecn { Ecn::Request } else { setup.config.ecn };
        setup
    }

    fn syn(self, mut syn: Peer) -> Peer {
        syn = if self.timestamps { syn.ts(1000, 1000) } else { syn };
        syn = if self.sack { syn.sack_permitted() } else { syn };
        syn.flags = if self.ecn { syn.flags | peer("E").flags } else { syn.flags };
        self.scale.map_or(syn.clone(), |shift| syn.scale(shift))
    }
}

/// A connection in TIME-WAIT, whose user has closed it, and the peer's view of it.
struct Waiting {
    script: Script,
    /// The next number of the peer's, and the next of ours.
    next: u32,
    ours: u32,
    /// The latest timestamp of the peer.
    latest: u32,
    timestamps: bool,
}

impl Waiting {
    fn new(kind: Kind) -> Waiting {
        let open = if kind.passive { Script::accepted } else { Script::connected };
        let mut script = open(kind.setup(), |syn| kind.syn(syn));
        script.us.listening = true;
        let mut it = Waiting { script, next: 1, ours: 1, latest: 1000, timestamps: kind.timestamps };
        while it.next < 1 + kind.received as u32 {
            let len = (1 + kind.received - it.next as usize).min(1000);
            it.arrives(peer("P.").len(len));
            it.next += len as u32;
        }
        it.script.read();
        let now = it.script.now;
        while it.ours < 1 + kind.sent as u32 {
            let len = (1 + kind.sent - it.ours as usize).min(900);
            it.ours += it.script.us.send(&data(0, len), now) as u32;
            it.arrives(peer("."));
        }
        it.script.pass(ms(1500));
        it.script.run(Close);
        if !kind.together {
            it.ours += 1;
            it.arrives(peer("."));
        }
        it.arrives(peer("F."));
        it.next += 1;
        if kind.together {
            it.ours += 1;
            it.arrives(peer("."));
        }
        assert_eq!(it.script.state(), State::TimeWait, "{kind:?}");
        it
    }

    /// A segment with the present numbers arrives.
    fn arrives(&mut self, segment: Peer) {
        let segment = segment.seq(self.next).ack(self.ours);
        self.latest += 10;
        let segment = if self.timestamps { segment.ts(self.latest, 1000) } else { segment };
        self.script.inject(segment);
    }

    fn kept(&self) -> Option<TimeWait> {
        let Some(Driver::Whole(pcb)) = &self.script.us.driver else { return None };
        TimeWait::of(pcb, None, &self.script.us.setup.config, self.script.now)
    }

    /// Everything that was observed before is forgotten, and the PCB, if asked, replaced by one revived from `kept`.
    fn begin(&mut self, kept: Option<TimeWait>) {
        let setup = self.script.us.setup.clone();
        let near = self.script.now;
        let driver = match kept {
            Some(kept) => Some(Driver::Whole(Box::new(kept.revive(&setup.tuple, None, &setup.config, near)))),
            None => self.script.us.driver.take(),
        };
        self.script.us = Endpoint { driver, listening: true, ..Endpoint::new(setup) };
    }
}

/// A frame's bytes, traffic class and hop limit.
type Sent = (Vec<u8>, u8, u8);

/// All that can be observed of one end.
fn seen(end: &Endpoint) -> (Vec<Sent>, Vec<u64>, Vec<u64>, String) {
    let frames =
        end.sent.iter().map(|sent| (sent.to_vec(), sent.meta().traffic_class, sent.meta().hop_limit)).collect();
    let counted = Counter::ALL.iter().map(|&counter| end.count(counter)).collect();
    let dropped = DropReason::ALL.iter().map(|&reason| end.counters.dropped(reason)).collect();
    let rest = format!("{:?}", (&end.last, end.removed, end.waits, end.accepted, end.half_open.is_some(), end.memory));
    (frames, counted, dropped, rest)
}

/// A segment with numbers near to those of the connection.
fn any_segment(random: &mut Random, it: &Waiting) -> Peer {
    const FLAGS: [&str; 13] = [".", ".", "F.", "F.", "S", "S", "R", "R.", "P.", "S.", "", "FS", "U."];
    const FROM_NEXT: [i32; 16] =
        [0, 0, 0, 0, -1, -1, 1, 100, -1000, -66_000, -70_000, -140_000, 60_000, 65_000, 100_000, i32::MIN];
    const FROM_OURS: [i32; 10] = [0, 0, 0, 0, -1, 1, -900, -5001, -61_000, i32::MIN];
    const AGES: [i32; 9] = [0, 0, 1, 5, -1, -3, -2000, 1 << 30, -1 << 30];
    let one = |of: &[i32], random: &mut Random| of[random.below(of.len() as u64) as usize];
    let ack = it.ours.wrapping_add_signed(one(&FROM_OURS, random));
    let mut segment = peer(FLAGS[random.below(13) as usize])
        .seq(it.next.wrapping_add_signed(one(&FROM_NEXT, random)))
        .ack(ack)
        .len([0, 0, 0, 1, 900][random.below(5) as usize])
        .win([0, 1, 700, 60_000, 65_535][random.below(5) as usize]);
    if random.chance(if it.timestamps { 900 } else { 200 }) {
        segment = segment.ts(it.latest.wrapping_add_signed(one(&AGES, random)), 1000);
    }
    if random.chance(100) {
        let left = it.ours.wrapping_add_signed(one(&FROM_OURS, random));
        segment = segment.sack(&[(left, left.wrapping_add(500))]);
    }
    segment
}

/// Runs the same event on both.
fn same_event(random: &mut Random, ends: [&mut Waiting; 2]) -> bool {
    let (what, chosen) = (random.below(20), any_segment(random, ends[0]));
    let [one, other] = ends.map(|it| {
        let (script, seq) = (&mut it.script, SeqNumber(it.ours.wrapping_add(0x1000_0000 - 1)));
        let answer = match what {
            0 => format!("{:?}", script.run(Reclaim)),
            1 => format!("{:?}", script.run(IcmpError { kind: IcmpKind::PortUnreachable, seq })),
            2 => format!("{:?}", script.run(PathMtu { mss: 300, seq: Some(seq) })),
            3 => format!("{:?}", script.run(TransmitReady)),
            4 => format!("{:?}", script.run(RouteChanged { mss: Some(1460), lost: false })),
            5 if it.latest % 4 == 0 => format!("{:?}", script.run(LinkDown)),
            _ => {
                script.inject(chosen.clone());
                String::new()
            }
        };
        (answer, script.us.driver.is_none() || script.us.removed)
    });
    assert_eq!(one, other);
    one.1
}

/// What has happened in all runs, so that a test that tries nothing fails.
#[derive(Debug, Default)]
struct Tally {
    revived: usize,
    reopened: usize,
    expired: usize,
    answers: usize,
}

fn run(random: &mut Random, tally: &mut Tally) {
    let kind = Kind::drawn(random);
    let (mut plain, mut revived) = (Waiting::new(kind), Waiting::new(kind));
    let kept = revived.kept().unwrap_or_else(|| panic!("{kind:?} is kept as a value"));
    plain.begin(None);
    revived.begin(Some(kept));
    for _ in 0..30 {
        let pause = [ms(0), ms(1), ms(499), ms(500), ms(1100), ms(20_000)][random.below(6) as usize];
        let deadline = plain.kept().map(|kept| kept.deadline(plain.script.now));
        let now = plain.script.now + pause;
        let over = deadline.filter(|deadline| *deadline <= now);
        for it in [&mut plain, &mut revived] {
            it.script.now = over.unwrap_or(now);
        }
        let ended = match over {
            Some(_) => {
                [&mut plain, &mut revived].into_iter().for_each(|it| _ = it.script.run(Timeouts));
                tally.expired += 1;
                true
            }
            None => same_event(random, [&mut plain, &mut revived]),
        };
        assert_eq!(seen(&plain.script.us), seen(&revived.script.us), "{kind:?}");
        tally.answers += plain.script.us.sent.len();
        if ended {
            assert!(over.is_none() || plain.script.us.removed, "it is over");
            tally.reopened += usize::from(plain.script.us.half_open.is_some());
            return;
        }
        assert_eq!(plain.kept(), revived.kept(), "{kind:?}");
        plain.begin(None);
        let kept = revived.kept().filter(|_| random.chance(700));
        tally.revived += usize::from(kept.is_some());
        revived.begin(kept);
    }
}

#[test]
fn a_revived_connection_does_what_it_would_have_done() {
    let (mut random, mut tally) = (Random::new(11), Tally::default());
    (0..20_000).for_each(|_| run(&mut random, &mut tally));
    let Tally { revived, reopened, expired, answers } = tally;
    assert!(revived > 30_000 && reopened > 1000 && expired > 500 && answers > 10_000, "{tally:?}");
}

/// `waits` tells the table, once the user has closed and not before.
#[test]
fn a_connection_says_when_it_waits_without_a_user() {
    let mut held = Script::connected(Setup::default(), |syn| syn);
    held.run(tcp::Shutdown::Write).expect("it is connected");
    held.inject(peer("F.").ack(2));
    assert_eq!((held.state(), held.us.waits), (State::TimeWait, false), "a user may still read");
    held.run(Close);
    assert!(held.us.waits);
    assert!(Waiting::new(Kind::default()).script.us.waits);
}

#[test]
fn what_is_rare_stays_a_pcb() {
    let mut marked = Waiting::new(Kind { ecn: true, ..Kind::default() });
    assert!(marked.kept().is_none(), "counts of marks have no place");
    marked = Waiting::new(Kind { sack: true, timestamps: true, received: 900, ..Kind::default() });
    assert!(marked.kept().is_some());
    marked.script.us.setup.config.time_wait = Duration::from_secs(1000);
    marked.arrives(peer("F."));
    assert!(marked.kept().is_none(), "its end is too far away");
    let held = Script::connected(Setup::default(), |syn| syn);
    let Some(Driver::Whole(pcb)) = &held.us.driver else { panic!("it is there") };
    assert!(TimeWait::of(pcb, None, &held.us.setup.config, held.now).is_none(), "it is established");
}

/// The end is at the first millisecond (2^20 ns) that is not earlier, whichever time near it is known.
#[test]
fn the_end_is_found_from_any_time_near() {
    let it = Waiting::new(Kind::default());
    let (kept, now) = (it.kept().expect("it is kept"), it.script.now);
    let end = now + Duration::from_secs(60);
    let deadline = kept.deadline(now);
    assert!(deadline >= end && deadline < end + tcp::pcb::RESOLUTION, "{deadline:?}");
    for near in [Time::ZERO, end, end + Duration::from_secs(20 * 86_400)] {
        assert_eq!(kept.deadline(near), deadline);
    }
}

/// A challenge is not sent again at once by a revived connection, and TIME-WAIT begins again with a FIN.
#[test]
fn limits_and_deadlines_go_on() {
    let mut it = Waiting::new(Kind { timestamps: true, ..Kind::default() });
    let kept = it.kept();
    it.begin(kept);
    it.arrives(peer("S.").ack(9));
    assert_eq!(it.script.us.count(Counter::ChallengeAcksOut), 1);
    let kept = it.kept();
    it.begin(kept);
    it.arrives(peer("S.").ack(9));
    assert_eq!(it.script.us.count(Counter::ChallengeAcksLimited), 1);
    let before = it.kept().expect("it is kept").deadline(it.script.now);
    it.script.now += ms(30_000);
    it.next -= 1;
    it.arrives(peer("F."));
    assert!(matches!(it.script.us.last, Some(Disposition::Dropped(_))));
    let kept = it.kept().expect("it is kept");
    assert_eq!((kept.deadline(it.script.now).as_millis() - before.as_millis()).div_ceil(10), 3000);
}
