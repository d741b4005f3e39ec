//! One end: a connection (or a listener that becomes one), its configuration, and the effects of its outbox.

use std::net::IpAddr;

use observe::{Counters, Time};
use pktbuf::{Chunk, PktBuf};
use tcp::config::WindowRule;
use tcp::handshake::ChildPrototype;
use tcp::{
    Config, Disposition, Error, HalfOpen, Isn, ListenParams, LocalEffects, OpenParams, Outbox, Pcb, Progress,
    Readiness, Receive, RunArrives, Scarcity, Segment, SegmentArrives, Send, SendContext, State, Status, StatusReport,
    TableChange, TcpEvent, Timeouts, Verify, listen,
};
use wire::{FourTuple, SeqNumber};

use super::staged::{InterleavedPcb, StagedPcb};

/// A connection under one of the drivers.
pub enum Driver {
    Whole(Box<Pcb>),
    Staged(Box<StagedPcb>),
    Interleaved(Box<InterleavedPcb>),
}

/// Initial settings of an endpoint.
#[derive(Clone)]
pub struct Setup {
    pub config: Config,
    /// The scarcity passed to every event.
    pub scarcity: Scarcity,
    pub options: tcp::config::ConnectionOptions,
    pub tuple: FourTuple,
    pub iss: u32,
    pub mss: u16,
    pub staged: bool,
    /// Interleave events, with this seed.
    pub interleave: Option<u64>,
    pub super_segments: usize,
    /// How many time-outs of the SYN-ACK a listener waits for data.
    pub defer_accept: u8,
}

pub fn tuple() -> FourTuple {
    FourTuple {
        local_addr: IpAddr::from([10, 0, 0, 1]),
        remote_addr: IpAddr::from([10, 0, 0, 2]),
        local_port: 1000,
        remote_port: 2000,
    }
}

impl Setup {
    pub fn listen_params(&self) -> ListenParams<'_> {
        ListenParams { mss: self.mss, options: &self.options, defer_accept: self.defer_accept }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            // The free bytes exactly: the rounding of profiles has its own tests.
            config: Config { window_rule: WindowRule::Rfc, ..Config::default() },
            scarcity: Scarcity::NONE,
            options: Default::default(),
            tuple: tuple(),
            iss: 0x1000_0000,
            mss: 1460,
            staged: false,
            interleave: None,
            super_segments: 0,
            defer_accept: 0,
        }
    }
}

pub struct Endpoint {
    pub setup: Setup,
    pub counters: Counters,
    pub driver: Option<Driver>,
    pub listening: bool,
    /// A handshake that the listener has answered.
    pub half_open: Option<HalfOpen>,
    /// Segments sent and not yet taken by the test.
    pub sent: Vec<PktBuf>,
    pub wake: Option<Time>,
    pub ready: Readiness,
    pub accepted: bool,
    pub removed: bool,
    /// It said that it is in TIME-WAIT without a user.
    pub waits: bool,
    /// It failed while it was open early: whether by a reset.
    pub unfinished: Option<bool>,
    /// It has learnt about its destination.
    pub learnt: bool,
    pub credit: u32,
    pub tx_blocked: bool,
    /// How many times the path was reported to IP as suspect.
    pub suspected: u32,
    pub received: Vec<u8>,
    pub end: bool,
    pub last: Option<Disposition>,
    /// Bytes of memory that its events have taken, less those that they have given back.
    pub memory: i64,
    /// Sends without an outbox.
    pub alone: u64,
    /// Arrivals without an outbox.
    pub local: u64,
}

impl Endpoint {
    pub fn new(setup: Setup) -> Endpoint {
        Endpoint {
            setup,
            counters: Counters::new(),
            driver: None,
            listening: false,
            half_open: None,
            sent: Vec::new(),
            wake: None,
            ready: Readiness::NONE,
            accepted: false,
            removed: false,
            waits: false,
            unfinished: None,
            learnt: false,
            credit: u32::MAX,
            tx_blocked: false,
            suspected: 0,
            received: Vec::new(),
            end: false,
            last: None,
            memory: 0,
            alone: 0,
            local: 0,
        }
    }

    /// Do something with an outbox, and perform its effects.
    fn with_outbox<R>(&mut self, f: impl FnOnce(&mut Option<Driver>, &mut Outbox<'_>, &Setup) -> R) -> R {
        let mut out = Outbox::new(&self.setup.config, &self.counters).with_scarcity(self.setup.scarcity);
        out.credit = self.credit;
        out.prefer_super_segments = self.setup.super_segments;
        let reply = f(&mut self.driver, &mut out, &self.setup);
        match &mut self.driver {
            Some(Driver::Staged(pcb)) => self.sent.append(&mut pcb.emitted),
            Some(Driver::Interleaved(pcb)) => {
                self.sent.append(&mut pcb.staged.emitted);
                let effects = core::mem::take(&mut pcb.effects);
                out.ready |= effects.ready;
                out.deadline = [out.deadline, effects.deadline].into_iter().flatten().min();
                self.removed |= effects.table.contains(&TableChange::Remove);
            }
            _ => {}
        }
        self.memory += out.memory;
        if let Some(Driver::Whole(pcb)) = &self.driver {
            assert_eq!(self.memory, pcb.memory(), "what was taken and not given back is what the queues hold");
        }
        self.sent.extend(out.segments.drain(..));
        if self.credit != u32::MAX {
            self.credit = out.credit;
        }
        self.tx_blocked |= out.tx_blocked;
        self.suspected += u32::from(out.path == tcp::outbox::PathUpdate::Suspect);
        self.ready |= out.ready;
        if let TableChange::Opened { learnt } = out.table {
            (self.wake, self.learnt) = (None, self.learnt | learnt);
        }
        if let Some(deadline) = out.deadline {
            self.wake = Some(self.wake.map_or(deadline, |wake| wake.min(deadline)));
        }
        match out.table {
            TableChange::None | TableChange::Opened { .. } => {}
            TableChange::Waits => self.waits = true,
            TableChange::Established => self.accepted = true,
            TableChange::Remove => {
                self.removed = true;
            }
            TableChange::Unfinished { reset, remove } => {
                self.unfinished = Some(reset);
                self.removed |= remove;
            }
            TableChange::DestinationLearnt => self.learnt = true,
        }
        reply
    }

    fn adopt(pcb: Pcb, setup: &Setup) -> Driver {
        match setup.interleave {
            Some(seed) => Driver::Interleaved(Box::new(InterleavedPcb::new(pcb, setup.config.clone(), seed))),
            None if setup.staged => Driver::Staged(Box::new(StagedPcb::new(pcb))),
            None => Driver::Whole(Box::new(pcb)),
        }
    }

    /// Several segments arrive at once; threads process them in any order.
    pub fn burst(&mut self, segments: Vec<PktBuf>, now: Time) {
        let (local, remote) = (self.setup.tuple.local_addr, self.setup.tuple.remote_addr);
        let parse = |buf| Segment::parse(local, remote, buf, Verify::Now).expect("a good segment");
        let mut segments: Vec<Segment> = segments.into_iter().map(parse).collect();
        if let Some(Driver::Interleaved(pcb)) = &mut self.driver {
            let first = segments.remove(0);
            pcb.pending = segments;
            pcb.now = now;
            self.segment_arrives(first, now);
            while let Some(Driver::Interleaved(pcb)) = &mut self.driver
                && !pcb.pending.is_empty()
            {
                let next = pcb.pending.remove(0);
                self.segment_arrives(next, now);
            }
        } else {
            for segment in segments {
                self.segment_arrives(segment, now);
            }
        }
    }

    pub fn open(&mut self, now: Time) {
        self.with_outbox(|driver, out, setup| {
            let params = OpenParams {
                tuple: setup.tuple,
                iss: SeqNumber(setup.iss),
                ts_offset: 0,
                flow_hash: None,
                mss: setup.mss,
                options: setup.options.clone(),
            };
            *driver = Some(Self::adopt(Pcb::open_active(&params, out, now), setup));
        });
    }

    pub fn run<E: TcpEvent>(&mut self, event: E, now: Time) -> E::Reply {
        self.with_outbox(|driver, out, _| match driver.as_mut().expect("a connection") {
            Driver::Whole(pcb) => event.run(&mut **pcb, out, now),
            Driver::Staged(pcb) => event.run(&mut **pcb, out, now),
            Driver::Interleaved(pcb) => event.run(&mut **pcb, out, now),
        })
    }

    /// A segment arrives from the wire, as bytes from the TCP header on.
    pub fn arrives(&mut self, segment: PktBuf, now: Time) {
        let (local, remote) = (self.setup.tuple.local_addr, self.setup.tuple.remote_addr);
        let segment = Segment::parse(local, remote, segment, Verify::Now).expect("a good segment");
        self.segment_arrives(segment, now);
    }

    /// Segments arrive directly after one another: as runs, each followed by the segment that ends it, or one by one.
    pub fn arrive_together(&mut self, mut segments: Vec<Option<Segment>>, runs: bool, now: Time) {
        let mut rest = &mut segments[..];
        while !rest.is_empty() && self.driver.is_some() && !self.removed {
            let taken = if runs { self.run(RunArrives(rest), now) } else { 0 };
            if taken > 0 {
                self.last = Some(Disposition::Done);
                rest = &mut rest[taken..];
            } else if let Some((next, behind)) = core::mem::take(&mut rest).split_first_mut() {
                self.segment_arrives(next.take().expect("it has not arrived yet"), now);
                rest = behind;
            }
        }
    }

    pub fn segment_arrives(&mut self, segment: Segment, now: Time) {
        if self.driver.is_none() {
            if self.half_open.is_some() {
                self.half_open_arrives(segment, now);
            } else if self.listening {
                self.syn_arrives(&segment, now);
            } else {
                self.sent.extend(tcp::closed::segment_arrives(&segment));
            }
            return;
        }
        let disposition = self.predict_or_run(&mut Some(segment), now);
        if let Disposition::Recycled(segment) = disposition {
            assert!(self.removed, "a recycled connection leaves the table");
            self.removed = false;
            self.accepted = false;
            self.driver = None;
            self.segment_arrives(*segment, now);
        } else {
            self.last = Some(disposition);
        }
    }

    /// Has the segment predicted before there is an outbox, as the owner of a whole connection does. Without the lane nothing
    /// is predicted, and the event has an outbox from the beginning.
    fn predict_or_run(&mut self, segment: &mut Option<Segment>, now: Time) -> Disposition {
        let event = SegmentArrives(segment);
        let Some(Driver::Whole(pcb)) = self.driver.as_mut().filter(|_| self.setup.config.fast_lane) else {
            return self.run(event, now);
        };
        let mut local = LocalEffects::new(&self.setup.config, &self.counters, self.setup.scarcity);
        let predicted = match event.predict(pcb, &mut local, now) {
            Ok(predicted) => predicted,
            Err(event) => return self.run(event, now),
        };
        if !predicted.has_to_send() {
            self.local += 1;
        }
        let (ready, deadline, memory, spare) = (local.ready, local.deadline, local.memory, local.spare.take());
        self.with_outbox(|driver, out, _| {
            (out.ready, out.deadline, out.memory, out.spare) = (ready, deadline, memory, spare);
            if let (true, Some(Driver::Whole(pcb))) = (predicted.has_to_send(), driver) {
                predicted.send(pcb, out, now);
            }
        });
        Disposition::Done
    }

    fn syn_arrives(&mut self, segment: &Segment, now: Time) {
        self.half_open = self.with_outbox(|_, out, setup| {
            let params = setup.listen_params();
            let isn = Isn { iss: SeqNumber(setup.iss), ts_offset: 0, flow_hash: None };
            listen::syn_arrives(&params, segment, isn, None, out, now).ok()
        });
        self.watch_half_open(now);
    }

    fn half_open_arrives(&mut self, segment: Segment, now: Time) {
        let Some(mut half_open) = self.half_open.take() else { return };
        self.half_open = self.with_outbox(|driver, out, setup| {
            let (mut child, params) = (None, setup.listen_params());
            // As where many connections are accepted.
            let prototype = ChildPrototype::of(&half_open, &params, out.config, now);
            let params = (&params, prototype.as_ref());
            match half_open.segment_arrives(params, &mut Some(segment), (&mut child, out), now) {
                Progress::Waiting => Some(half_open),
                Progress::Ended => {
                    out.table = TableChange::Remove;
                    None
                }
                Progress::Established => {
                    *driver = child.map(|pcb| Self::adopt(pcb, setup));
                    None
                }
            }
        });
        self.watch_half_open(now);
    }

    fn half_open_timed_out(&mut self, now: Time) {
        let Some(mut half_open) = self.half_open.take() else { return };
        if half_open.deadline(&self.setup.config, now) <= now {
            let limit = self.setup.config.syn_ack_retries;
            let kept = self.with_outbox(|_, out, setup| half_open.timed_out(&setup.listen_params(), limit, out, now));
            self.removed = !kept;
        }
        if !self.removed {
            self.half_open = Some(half_open);
        }
        self.watch_half_open(now);
    }

    fn watch_half_open(&mut self, now: Time) {
        if let Some(half_open) = &self.half_open {
            self.wake = Some(half_open.deadline(&self.setup.config, now));
        }
    }

    /// Run the time-outs if they are due.
    pub fn tick(&mut self, now: Time) {
        if self.half_open.is_some() && self.wake.is_some_and(|wake| wake <= now) {
            self.wake = None;
            return self.half_open_timed_out(now);
        }
        if self.wake.is_some_and(|wake| wake <= now) && self.driver.is_some() {
            self.wake = None;
            let next = self.run(Timeouts, now);
            assert_eq!(next, self.wake, "the reply is the deadline");
            assert!(next.is_none_or(|next| next > now), "a deadline in the past is a busy loop");
        }
    }

    /// Send `data`; the bytes taken.
    pub fn send(&mut self, data: &[u8], now: Time) -> usize {
        self.try_send(data, now).expect("a connection that takes text")
    }

    pub fn try_send(&mut self, data: &[u8], now: Time) -> Result<usize, Error> {
        let mut chunks = tcp::Chunks::new();
        for piece in data.chunks(16 << 10) {
            chunks.push(Chunk::Pooled(PktBuf::from_slice(piece).expect("a buffer")));
        }
        let mut event = Send { chunks };
        if let Some(accepted) = self.send_alone(&mut event, now) {
            return Ok(accepted);
        }
        let sent = self.run(event, now)?;
        let rest: usize = sent.rest.iter().map(|chunk| chunk.len()).sum();
        assert_eq!(sent.accepted + rest, data.len(), "no byte is lost between accepted and rest");
        Ok(sent.accepted)
    }

    /// Sends without an outbox, as the owner of a whole connection does where it can; the bytes taken.
    fn send_alone(&mut self, event: &mut Send, now: Time) -> Option<usize> {
        let usual = self.credit > 0 && self.setup.super_segments == 0 && !self.setup.scarcity.is_severe();
        let Some(Driver::Whole(pcb)) = self.driver.as_mut().filter(|_| usual) else { return None };
        let context = SendContext { config: &self.setup.config, counters: &self.counters, region: None };
        let piece = event.piece_alone(pcb, &context)?;
        let sent = event.leave_alone(piece, pcb, &context, now).expect("a buffer");
        assert!(event.chunks.is_empty(), "all was taken");
        self.alone += 1;
        if self.credit != u32::MAX {
            self.credit -= 1;
        }
        self.memory += i64::from(sent.memory);
        self.sent.push(sent.segment);
        if let Some(at) = sent.wake {
            self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
        }
        Some(sent.accepted as usize)
    }

    /// Reads all available data; returns the number of bytes.
    pub fn read(&mut self, now: Time) -> usize {
        self.read_up_to(usize::MAX, now)
    }

    pub fn read_up_to(&mut self, max: usize, now: Time) -> usize {
        if self.driver.is_none() {
            return 0;
        }
        let Ok(received) = self.run(Receive { max }, now) else { return 0 };
        let before = self.received.len();
        for buf in &received.data {
            self.received.extend_from_slice(buf);
        }
        self.end |= received.end;
        self.received.len() - before
    }

    pub fn status(&mut self) -> StatusReport {
        self.run(Status, Time::ZERO)
    }

    pub fn state(&mut self) -> State {
        match (&self.driver, &self.half_open) {
            (Some(_), _) => self.status().state,
            (None, Some(_)) => State::SynReceived,
            (None, None) => State::Listen,
        }
    }

    pub fn count(&self, counter: observe::Counter) -> u64 {
        self.counters.get(counter)
    }
}
