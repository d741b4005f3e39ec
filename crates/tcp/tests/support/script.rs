//! A scripted peer: the test gives the peer's segments, and reads our answers as text.
//!
//! Sequence numbers are relative: ours to our ISS, the peer's to its own. A line of ours reads
//! `flags seq:end(len) ack N win N <options>`; `ack` and `win` are there if ACK is set, the window is scaled.

use std::fmt::Write;
use std::time::Duration;

use observe::Time;
use pktbuf::PktBuf;
use wire::checksum::pseudo_header;
use wire::tcp::{ExtraOptions, Header, OptionOrder, Options, SackBlocks, TcpFlags, Timestamps};
use wire::{FourTuple, SeqNumber};

use super::endpoint::{Endpoint, Setup};

/// The peer's initial sequence number.
pub const IRS: u32 = 0x8000_0000;

/// A segment of the peer.
#[derive(Clone, Debug)]
pub struct Peer {
    pub flags: TcpFlags,
    pub seq: u32,
    pub ack: u32,
    pub data: Vec<u8>,
    pub window: u16,
    pub urgent: u16,
    pub options: Options,
    pub rare: ExtraOptions,
    /// ECN field of its IP header.
    pub mark: u8,
}

/// A segment with these flags, named by their letters: `S`, `F`, `R`, `P`, `U`, and `.` for ACK.
pub fn peer(flags: &str) -> Peer {
    let mut set = TcpFlags::NONE;
    for letter in flags.chars() {
        set.insert(match letter {
            'S' => TcpFlags::SYN,
            'F' => TcpFlags::FIN,
            'R' => TcpFlags::RST,
            'P' => TcpFlags::PSH,
            'E' => TcpFlags::ECE,
            'C' => TcpFlags::CWR,
            'U' => TcpFlags::URG,
            '.' => TcpFlags::ACK,
            other => panic!("no flag is called {other}"),
        });
    }
    Peer {
        flags: set,
        seq: 1,
        ack: 1,
        data: Vec::new(),
        window: 60_000,
        urgent: 0,
        options: Options::NONE,
        rare: ExtraOptions::NONE,
        mark: 0,
    }
}

impl Peer {
    pub fn seq(mut self, seq: u32) -> Self {
        self.seq = seq;
        self
    }
    pub fn ack(mut self, ack: u32) -> Self {
        self.ack = ack;
        self
    }
    pub fn win(mut self, window: u16) -> Self {
        self.window = window;
        self
    }
    pub fn data(mut self, data: &[u8]) -> Self {
        self.data = data.to_vec();
        self
    }
    /// Data of `len` bytes for this segment's position in the peer's stream.
    pub fn len(mut self, len: usize) -> Self {
        let at = |i: usize| super::data(u64::from(self.seq.wrapping_add(i as u32)), 1)[0];
        self.data = (0..len).map(at).collect();
        self
    }
    pub fn urgent(mut self, pointer: u16) -> Self {
        self.urgent = pointer;
        self
    }
    pub fn mss(mut self, mss: u16) -> Self {
        self.options.mss = Some(mss);
        self
    }
    pub fn scale(mut self, shift: u8) -> Self {
        self.options.window_scale = Some(shift);
        self
    }
    pub fn sack_permitted(mut self) -> Self {
        self.options.sack_permitted = true;
        self
    }
    pub fn ts(mut self, value: u32, echo: u32) -> Self {
        self.options.timestamps = Some(Timestamps { value, echo });
        self
    }
    pub fn marked(mut self, mark: u8) -> Self {
        self.mark = mark;
        self
    }
    /// Blocks in our sequence space.
    pub fn sack(mut self, blocks: &[(u32, u32)]) -> Self {
        let mut sack = SackBlocks::EMPTY;
        for &(left, right) in blocks {
            sack.push(SeqNumber(left), SeqNumber(right));
        }
        self.options.sack = sack;
        self
    }
}

pub struct Script {
    pub us: Endpoint,
    pub now: Time,
}

impl Script {
    pub fn new(setup: Setup) -> Script {
        Script { us: Endpoint::new(setup), now: Time::from_secs(1) }
    }

    /// Actively opened; MSS 1000, only the options given.
    pub fn connected(setup: Setup, options: impl Fn(Peer) -> Peer) -> Script {
        let mut script = Script::new(setup);
        script.us.open(script.now);
        script.take();
        script.inject(options(peer("S.").seq(0).ack(1).win(60_000).mss(1000)));
        script.take();
        script
    }

    /// Actively opened over a path with this round-trip time, which is the first sample.
    pub fn connected_over(setup: Setup, rtt: Duration, options: impl Fn(Peer) -> Peer) -> Script {
        let mut script = Script::new(setup);
        script.us.open(script.now);
        script.take();
        script.pass(rtt);
        script.inject(options(peer("S.").seq(0).ack(1).win(60_000).mss(1000)));
        script.take();
        script
    }

    /// The sequence ranges of our segments since the last call, without the rest of the lines.
    pub fn ranges(&mut self) -> Vec<String> {
        let range = |line: String| line.split(' ').nth(1).unwrap().split('(').next().unwrap().to_owned();
        self.take().into_iter().map(range).collect()
    }

    /// Passively opened by the same kind of peer.
    pub fn accepted(setup: Setup, options: impl Fn(Peer) -> Peer) -> Script {
        let mut script = Script::new(setup);
        script.us.listening = true;
        script.inject(options(peer("S").seq(0).win(60_000).mss(1000)));
        script.take();
        let syn = options(peer("S"));
        let mut ack = peer(".").win(1000);
        ack.options.timestamps = syn.options.timestamps;
        script.inject(ack);
        script.take();
        script
    }

    pub fn inject(&mut self, peer: Peer) {
        let tuple = self.us.setup.tuple;
        let segment = self.build(&peer, tuple);
        self.us.arrives(segment, self.now);
    }

    /// The segment of the peer, parsed, for a test of its arrival only.
    pub fn segment(&self, peer: &Peer) -> tcp::Segment {
        let tuple = self.us.setup.tuple;
        let buf = self.build(peer, tuple);
        tcp::Segment::parse(tuple.local_addr, tuple.remote_addr, buf, tcp::Verify::Now).expect("a good segment")
    }

    /// The same; `followed` as in the segment.
    pub fn segment_followed_by(&self, peer: &Peer, followed: bool) -> tcp::Segment {
        let mut segment = self.segment(peer);
        segment.followed = followed;
        segment
    }

    fn build(&self, peer: &Peer, tuple: FourTuple) -> PktBuf {
        let iss = self.us.setup.iss;
        let mut options = peer.options;
        options.sack = SackBlocks::EMPTY;
        for (left, right) in peer.options.sack.iter() {
            options.sack.push(left + iss, right + iss);
        }
        let ack = if peer.flags.contains(TcpFlags::ACK) { iss.wrapping_add(peer.ack) } else { 0 };
        let header = Header {
            src_port: tuple.remote_port,
            dst_port: tuple.local_port,
            seq: SeqNumber(IRS.wrapping_add(peer.seq)),
            ack: SeqNumber(ack),
            flags: peer.flags,
            window: peer.window,
            urgent: peer.urgent,
            header_len: 0,
            options,
        };
        let mut buf = PktBuf::from_slice(&peer.data).expect("a buffer");
        let len = header.emitted_len_with(&peer.rare);
        header.emit_with(OptionOrder::Linux, &peer.rare, buf.push_front(len));
        buf.meta_mut().traffic_class = peer.mark;
        let sum = pseudo_header(tuple.remote_addr, tuple.local_addr, 6, buf.len() as u32).add(pktbuf::sum(&buf));
        let checksum = sum.finish();
        buf[16..18].copy_from_slice(&checksum.to_be_bytes());
        buf
    }

    /// The segments we sent since the last call, one line each.
    pub fn take(&mut self) -> Vec<String> {
        let iss = self.us.setup.iss;
        let tuple = self.us.setup.tuple;
        let sent = core::mem::take(&mut self.us.sent);
        sent.iter().map(|segment| line(segment, iss, IRS, &tuple)).collect()
    }

    #[track_caller]
    pub fn expect(&mut self, lines: &[&str]) {
        assert_eq!(self.take(), lines);
    }

    /// Let time pass, running time-outs when they are due.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(wake) = self.us.wake.filter(|&wake| wake <= end) {
            self.now = self.now.max(wake);
            self.us.tick(self.now);
        }
        self.now = end;
    }

    /// The time until the next segment is sent, if one is sent within `limit`.
    pub fn until_sent(&mut self, limit: Duration) -> Option<Duration> {
        let start = self.now;
        let end = start + limit;
        while self.us.sent.is_empty() {
            let wake = self.us.wake.filter(|&wake| wake <= end)?;
            self.now = self.now.max(wake);
            self.us.tick(self.now);
        }
        Some(self.now - start)
    }

    pub fn send(&mut self, len: usize) -> usize {
        self.us.send(&super::data(0, len), self.now)
    }

    pub fn read(&mut self) -> usize {
        self.us.read(self.now)
    }

    pub fn run<E: tcp::TcpEvent>(&mut self, event: E) -> E::Reply {
        self.us.run(event, self.now)
    }

    pub fn state(&mut self) -> tcp::State {
        self.us.state()
    }
}

/// A segment sent by `tuple.local`, as text.
pub fn line(segment: &PktBuf, iss: u32, irs: u32, tuple: &FourTuple) -> String {
    let header = wire::tcp::parse(segment).expect("we send good segments");
    if segment.meta().checksum == pktbuf::Checksum::None {
        let pseudo = pseudo_header(tuple.local_addr, tuple.remote_addr, 6, segment.len() as u32);
        assert!(pktbuf::sum(segment).add(pseudo).is_valid(), "checksum of {header:?}");
    }
    assert!(segment.headroom() >= 64, "headroom {}", segment.headroom());
    let len = segment.len() as u32 - u32::from(header.header_len);
    let mut data = String::new();
    for (flag, letter) in
        [(TcpFlags::SYN, 'S'), (TcpFlags::FIN, 'F'), (TcpFlags::RST, 'R'), (TcpFlags::PSH, 'P'), (TcpFlags::ACK, '.')]
    {
        if header.flags.contains(flag) {
            data.push(letter);
        }
    }
    let seq = header.seq.0.wrapping_sub(iss);
    let _ = write!(data, " {}:{}({len})", seq as i32, seq.wrapping_add(len) as i32);
    if header.flags.contains(TcpFlags::ACK) {
        let _ = write!(data, " ack {} win {}", header.ack.0.wrapping_sub(irs) as i32, header.window);
    }
    describe(&header.options, irs, &mut data);
    data
}

fn describe(options: &Options, irs: u32, data: &mut String) {
    let mut list = Vec::new();
    if let Some(mss) = options.mss {
        list.push(format!("mss {mss}"));
    }
    if options.sack_permitted {
        list.push("sackOK".to_owned());
    }
    if let Some(Timestamps { value, echo }) = options.timestamps {
        list.push(format!("TS {value} {echo}"));
    }
    if let Some(shift) = options.window_scale {
        list.push(format!("wscale {shift}"));
    }
    for (left, right) in options.sack.iter() {
        list.push(format!("sack {}:{}", left.0.wrapping_sub(irs), right.0.wrapping_sub(irs)));
    }
    if !list.is_empty() {
        let _ = write!(data, " <{}>", list.join(","));
    }
}
