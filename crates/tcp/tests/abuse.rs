//! Random segments and user calls in random order cause no panic, no overflow, no busy timer, no unbounded answers, and
//! no memory leak. The data read is always a prefix of the peer's stream.

mod support;

use std::time::Duration;

use proptest::prelude::*;
use support::endpoint::Setup;
use support::script::{Peer, Script, peer};
use tcp::{
    Abort, Close, IcmpError, IcmpKind, PathMtu, SetOption, Shutdown, SocketOption, State, Status, TransmitReady,
};
use wire::tcp::TcpFlags;

#[derive(Clone, Debug)]
enum Act {
    /// A segment of the peer, its numbers relative to the correct ones.
    Segment {
        flags: u8,
        seq: i32,
        ack: i32,
        len: u16,
        window: u16,
        urgent: u16,
        stamp: Option<i32>,
        sack: Vec<(i32, u16)>,
    },
    Send(u16),
    Read(u16),
    Pass(u32),
    Close,
    ShutdownWrite,
    ShutdownRead,
    Abort,
    Credit(u8),
    Option(u8, u32),
    Icmp(u8, i32, u16),
}

fn near() -> impl Strategy<Value = i32> {
    prop_oneof![
        8 => Just(0),
        4 => -3i32..4,
        2 => -3000i32..3000,
        1 => -70_000i32..70_000,
        1 => any::<i32>(),
    ]
}

fn flags() -> impl Strategy<Value = u8> {
    prop_oneof![12 => Just(0x10u8), 6 => Just(0x18), 2 => Just(0x11), 1 => Just(0x14), 1 => Just(0x02), 1 => any::<u8>()]
}

fn act() -> impl Strategy<Value = Act> {
    let sack = prop::collection::vec((near(), 0u16..3000), 0..4);
    let stamp = prop::option::weighted(0.9, near());
    let length = prop_oneof![4 => Just(0u16), 4 => 1u16..1460, 1 => 1u16..9000];
    let window = prop_oneof![6 => 5000u16..60_000, 1 => 0u16..2000, 1 => Just(0)];
    prop_oneof![
        30 => (flags(), near(), near(), length, window, any::<u16>(), stamp, sack).prop_map(
            |(flags, seq, ack, len, window, urgent, stamp, sack)| Act::Segment {
                flags, seq, ack, len, window, urgent, stamp, sack
            }
        ),
        6 => (1u16..20_000).prop_map(Act::Send),
        6 => any::<u16>().prop_map(Act::Read),
        6 => prop_oneof![0u32..300, 0u32..100_000].prop_map(Act::Pass),
        1 => Just(Act::Close),
        1 => Just(Act::ShutdownWrite),
        1 => Just(Act::ShutdownRead),
        1 => Just(Act::Abort),
        2 => any::<u8>().prop_map(Act::Credit),
        2 => (any::<u8>(), any::<u32>()).prop_map(|(which, value)| Act::Option(which, value)),
        2 => (any::<u8>(), near(), any::<u16>()).prop_map(|(kind, seq, mss)| Act::Icmp(kind, seq, mss)),
    ]
}

/// The peer's view: it has sent `sent` bytes in sequence, and may send from any position of its stream.
struct Attacker {
    t: Script,
    acked: u32,
    got: u32,
}

impl Attacker {
    fn segment(&mut self, act: &Act) {
        let Act::Segment { flags, seq, ack, len, window, urgent, stamp, sack } = act else { return };
        let mut segment: Peer = peer("").seq(self.got.wrapping_add_signed(*seq)).win(*window).urgent(*urgent);
        segment.ack = self.acked.wrapping_add_signed(*ack);
        segment.flags = TcpFlags(u16::from(*flags));
        segment = segment.len(usize::from(*len));
        if let Some(stamp) = stamp {
            segment = segment.ts((self.t.now.as_millis() as u32).wrapping_add_signed(*stamp), 1000);
        }
        let blocks: Vec<(u32, u32)> = sack
            .iter()
            .map(|&(left, len)| {
                let left = self.acked.wrapping_add_signed(left);
                (left, left.wrapping_add(u32::from(len)))
            })
            .take(3)
            .collect();
        self.t.inject(segment.sack(&blocks));
    }

    fn option(&mut self, which: u8, value: u32) {
        let on = value & 1 == 1;
        let option = match which % 8 {
            0 => SocketOption::NoDelay(on),
            1 => SocketOption::Cork(on),
            2 => SocketOption::SendBuffer(value % 100_000),
            3 => SocketOption::ReceiveBuffer(value % 100_000),
            4 => SocketOption::UserTimeout(on.then(|| Duration::from_millis(u64::from(value)))),
            5 => SocketOption::WindowClamp(value),
            6 => SocketOption::MaxSegment(value as u16),
            _ => SocketOption::KeepAlive(on.then(|| tcp::config::KeepAlive {
                idle: Duration::from_millis(u64::from(value % 10_000) + 1),
                interval: Duration::from_millis(u64::from(value % 1_000) + 1),
                probes: value as u8,
            })),
        };
        let _ = self.t.run(SetOption(option));
    }

    fn act(&mut self, act: &Act) {
        let before = self.t.us.sent.len();
        match *act {
            Act::Segment { .. } => {
                self.segment(act);
                assert!(self.t.us.sent.len() - before <= 4000, "an answer without bound");
            }
            Act::Send(len) => {
                let _ = self.t.us.try_send(&support::data(0, usize::from(len)), self.t.now);
            }
            Act::Read(max) => {
                self.t.us.read_up_to(usize::from(max), self.t.now);
            }
            Act::Pass(millis) => self.t.pass(Duration::from_millis(u64::from(millis))),
            Act::Close => self.t.run(Close),
            Act::ShutdownWrite => drop(self.t.run(Shutdown::Write)),
            Act::ShutdownRead => drop(self.t.run(Shutdown::Read)),
            Act::Abort => self.t.run(Abort),
            Act::Credit(credit) => {
                self.t.us.credit = u32::from(credit);
                self.t.run(TransmitReady);
            }
            Act::Option(which, value) => self.option(which, value),
            Act::Icmp(kind, seq, mss) => {
                let seq = wire::SeqNumber(self.t.us.setup.iss.wrapping_add(self.acked).wrapping_add_signed(seq));
                if kind % 2 == 0 {
                    self.t.run(PathMtu { mss, seq: Some(seq) });
                } else {
                    self.t.run(IcmpError { kind: IcmpKind::PortUnreachable, seq });
                }
            }
        }
        self.learn();
    }

    /// Learns the correct next numbers from our answers.
    fn learn(&mut self) {
        for segment in self.t.us.sent.drain(..) {
            let header = wire::tcp::parse(&segment).expect("we send good segments");
            let len = segment.len() as u32 - u32::from(header.header_len);
            let end = header.seq.0.wrapping_add(len).wrapping_sub(self.t.us.setup.iss);
            if !header.flags.contains(TcpFlags::RST) && end.wrapping_sub(self.acked) as i32 > 0 {
                self.acked = end;
            }
            if header.flags.contains(TcpFlags::ACK) {
                self.got = header.ack.0.wrapping_sub(support::script::IRS);
            }
        }
    }
}

fn run(setup: Setup, modern: bool, passive: bool, acts: &[Act]) {
    let live = pktbuf::live();
    let negotiate = |syn: Peer| if modern { syn.sack_permitted().scale(3).ts(1000, 1000) } else { syn };
    let t = if passive { Script::accepted(setup, negotiate) } else { Script::connected(setup, negotiate) };
    let mut attacker = Attacker { t, acked: 1, got: 1 };
    for act in acts {
        attacker.act(act);
        if attacker.t.us.removed || attacker.t.us.driver.is_none() {
            break;
        }
        let status = attacker.t.run(Status);
        assert!(status.mss >= 200 && status.cwnd >= 1, "{status:?}");
        assert!(status.state != State::Closed || status.send_queue == 0, "{status:?}");
    }
    let mut got = attacker.t.us.received.clone();
    got.truncate(1 << 20);
    assert_eq!(got, support::data(1, got.len()), "what is read is what the peer's stream holds");
    drop(attacker);
    assert_eq!(pktbuf::live(), live, "buffers left behind");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn anything_goes(
        acts in prop::collection::vec(act(), 1..80),
        modern in any::<bool>(),
        passive in any::<bool>(),
        staged in any::<bool>(),
        iss in prop_oneof![any::<u32>(), (u32::MAX - 50_000)..u32::MAX],
    ) {
        run(Setup { staged, iss, ..Setup::default() }, modern, passive, &acts);
    }
}
