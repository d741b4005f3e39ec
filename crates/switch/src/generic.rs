//! [`Generic`]: the exclusion of NetBSD's GENERIC kernel (Nakahara 2015, sections 2.3 and 6.2): one processor does
//! everything, so the rules are used by `&mut`.
//!
//! A poll is one hardware interrupt and the software interrupt behind it. The handler takes frames from the receive
//! queues into the bounded queue of the software interrupt: all there are, which is what the paper found to cost it two
//! thirds of its frames under load, or a bounded number ([`Work`]). What finds that queue full is dropped. Then the
//! software interrupt forwards what is in it.
//!
//! One thread polls; the ports are those it was built with.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bridge::{
    Arrival, Bridge, Decision, FdbConfig, FdbControl, Flood, ForwardedFrame, PortConfig, PortNumber, PortState,
};
use dev::{Device, RxQueue};
use observe::{Counters, DropReason, Time};
use path::{Dirty, Emitter, Framing, Port, Ports, VECTOR_LEN};
use pktbuf::PktBuf;
use sync::{LockKind, Platform};

use crate::tag::retag;

/// How many frames one interrupt takes from a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// All there are.
    Drain,
    /// At most so many, at least 1.
    Frames(usize),
}

/// What a bridge of this kind is like.
#[derive(Clone, Copy, Debug)]
pub struct GenericConfig {
    /// Size and ageing of the forwarding database.
    pub fdb: FdbConfig,
    /// Work per interrupt.
    pub work: Work,
    /// Frames that wait for the software interrupt at most.
    pub input_queue: usize,
}

impl Default for GenericConfig {
    /// As NetBSD: drain, and a queue of 256.
    fn default() -> GenericConfig {
        GenericConfig { fdb: FdbConfig::default(), work: Work::Drain, input_queue: 256 }
    }
}

/// Why a device cannot be a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortError {
    /// Its queues are taken already.
    NoQueues,
    /// Its frames have no Ethernet header.
    NotEthernet,
    /// It merges received segments into super-segments, which are longer than the other ports' frames.
    Coalesces,
    /// More ports than a bridge may have.
    TooMany,
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortError::NoQueues => "the device has no queue left; it is in use elsewhere",
            PortError::NotEthernet => "the device carries bare packets; a bridge needs Ethernet frames (TAP, not TUN)",
            PortError::Coalesces => "the device merges received segments; turn its receive offload off",
            PortError::TooMany => "a bridge has at most 4095 ports",
        })
    }
}

impl std::error::Error for PortError {}

/// A receive queue, and its port.
struct Receiver {
    port: PortNumber,
    queue: Box<dyn RxQueue>,
}

/// How often entries that have aged are looked for: NetBSD's period.
const PRUNE: Duration = Duration::from_secs(300);

/// See the head of the file.
pub struct Generic<P: Platform> {
    bridge: Bridge,
    receivers: Vec<Receiver>,
    /// The queue of the software interrupt.
    input: VecDeque<(PortNumber, PktBuf)>,
    work: Work,
    limit: usize,
    next_prune: Time,
    /// Empty between polls, kept for its memory.
    batch: Vec<PktBuf>,
    way_out: WayOut<P>,
}

/// What a frame leaves through.
struct WayOut<P: Platform> {
    ports: Ports<P, ()>,
    counters: Counters,
    dirty: Dirty,
    /// Something waits for room in a transmit queue.
    waits: bool,
}

impl<P: Platform> Generic<P> {
    /// A bridge over these devices, which become ports 0, 1, ... and forward. The MTU of a port is that of its device
    /// if that is smaller than the configured one.
    ///
    /// # Errors
    /// See [`PortError`], with the number of the device.
    pub fn build(
        config: GenericConfig,
        devices: Vec<(Box<dyn Device>, PortConfig)>,
    ) -> Result<Generic<P>, (usize, PortError)> {
        let (mut bridge, mut receivers, mut ports) = (Bridge::new(config.fdb), Vec::new(), Vec::new());
        let mut queues = 0;
        for (number, (mut device, port_config)) in devices.into_iter().enumerate() {
            let (port, rx) = open::<P>(&mut *device, queues).map_err(|error| (number, error))?;
            let place = u16::try_from(number).ok().and_then(PortNumber::new).ok_or((number, PortError::TooMany))?;
            queues += port.queues().len();
            let mtu = port_config.mtu.min(port.capabilities().mtu);
            bridge.add_port(place, PortConfig { mtu, ..port_config }, PortState::Forwarding);
            receivers.extend(rx.into_iter().map(|queue| Receiver { port: place, queue }));
            ports.push(port);
        }
        let way_out = WayOut { ports: Ports::new(ports), counters: Counters::new(), dirty: Dirty::new(), waits: false };
        let (input, limit) = (VecDeque::with_capacity(config.input_queue), config.input_queue.max(1));
        let (batch, next_prune) = (Vec::with_capacity(VECTOR_LEN), Time::ZERO);
        Ok(Generic { bridge, receivers, input, work: config.work, limit, next_prune, batch, way_out })
    }

    /// The rules: to configure ports, VLANs and addresses, and to look.
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// The same, to change them.
    pub fn bridge_mut(&mut self) -> &mut Bridge {
        &mut self.bridge
    }

    /// What was dropped, learned, and so on.
    pub fn counters(&self) -> &Counters {
        &self.way_out.counters
    }

    /// A port goes down, or comes up. Nothing is transmitted by a port that is down, and what it receives is dropped.
    pub fn set_up(&mut self, port: PortNumber, up: bool, now: Time) {
        if let Some(path) = self.way_out.ports.get(port.index()) {
            path.set_down(!up);
            self.bridge.set_up(port, up, now);
            self.transmit_bpdus();
        }
    }

    /// Takes frames in and forwards them; returns how many were taken. Does what is due at `now`.
    pub fn poll(&mut self, now: Time) -> usize {
        self.due(now);
        let taken = self.hardware_interrupt(now);
        self.software_interrupt(now);
        let WayOut { ports, dirty, waits, .. } = &mut self.way_out;
        *waits = false;
        ports.notify(dirty, |_, _| *waits = true);
        taken
    }

    /// When [`Generic::poll`] has something to do though no frame arrives; [`Time::MAX`]: never.
    pub fn next_deadline(&self) -> Time {
        let prune = if self.bridge.table().is_empty() { Time::MAX } else { self.next_prune };
        self.bridge.next_deadline().unwrap_or(Time::MAX).min(prune)
    }

    fn due(&mut self, now: Time) {
        if self.bridge.next_deadline().is_some_and(|due| due <= now) {
            self.bridge.advance(now);
        }
        self.transmit_bpdus();
        if self.next_prune <= now {
            self.bridge.table_mut().age(now);
            self.next_prune = now + PRUNE;
        }
        if self.way_out.waits {
            self.way_out.drain();
        }
    }

    /// The handler: from the receive queues to the queue of the software interrupt.
    fn hardware_interrupt(&mut self, now: Time) -> usize {
        let mut taken = 0;
        let most = match self.work {
            Work::Drain => usize::MAX,
            Work::Frames(frames) => frames.max(1),
        };
        for receiver in &mut self.receivers {
            let mut left = most;
            while left > 0 {
                let count = receiver.queue.receive(&mut self.batch, VECTOR_LEN.min(left));
                if count == 0 {
                    break;
                }
                (taken, left) = (taken + count, left - count);
                let room = self.limit - self.input.len();
                let refused = self.batch.len().saturating_sub(room);
                self.way_out.counters.count_drops(DropReason::InputQueueFull, refused as u64);
                self.input.extend(self.batch.drain(..).take(room).map(|frame| (receiver.port, frame)));
            }
            let path = &self.way_out.ports[receiver.port.index()];
            if receiver.queue.gone() && !path.is_down() {
                path.set_down(true);
                self.bridge.set_up(receiver.port, false, now);
            }
        }
        taken
    }

    /// Forwards what waits.
    fn software_interrupt(&mut self, now: Time) {
        while let Some((port, frame)) = self.input.pop_front() {
            if self.way_out.ports[port.index()].is_down() {
                self.way_out.counters.count_drop(DropReason::InterfaceDown);
                continue;
            }
            self.forward(port, frame, now);
        }
        self.transmit_bpdus();
    }

    fn forward(&mut self, port: PortNumber, frame: PktBuf, now: Time) {
        let decision = match Arrival::of(port, &frame) {
            Ok(arrival) => self.bridge.decide(&arrival, &self.way_out.counters, now),
            Err(reason) => Decision::Drop(reason),
        };
        match decision {
            Decision::Forward(egress) => self.way_out.transmit(egress, frame),
            Decision::Flood(flood) => self.flood(flood, frame),
            Decision::Bpdu => {
                self.bridge.take_bpdu(port, &frame, &self.way_out.counters, now);
                // Before another frame is forwarded, so that no agreement waits behind data.
                self.transmit_bpdus();
            }
            Decision::Drop(reason) => self.way_out.counters.count_drop(reason),
        }
    }

    /// One copy for each port; the last gets the frame itself.
    fn flood(&mut self, flood: Flood, frame: PktBuf) {
        let way_out = &mut self.way_out;
        let mut egress = flood.egress(self.bridge.members(), &way_out.counters).peekable();
        let mut frame = Some(frame);
        while let Some(to) = egress.next() {
            let copy = if egress.peek().is_some() { frame.as_ref().and_then(PktBuf::duplicate) } else { frame.take() };
            match copy {
                Some(copy) => transmit(&way_out.ports, &way_out.counters, &mut way_out.dirty, to, copy),
                None => way_out.counters.count_drop(DropReason::NoBuffer),
            }
        }
    }

    fn transmit_bpdus(&mut self) {
        while let Some((port, bytes)) = self.bridge.next_bpdu() {
            match PktBuf::from_slice(&bytes) {
                Some(frame) => self.way_out.transmit(ForwardedFrame { port, tag: bridge::TagAction::Keep }, frame),
                None => self.way_out.counters.count_drop(DropReason::NoBuffer),
            }
        }
    }
}

impl<P: Platform> WayOut<P> {
    fn transmit(&mut self, egress: ForwardedFrame, frame: PktBuf) {
        transmit(&self.ports, &self.counters, &mut self.dirty, egress, frame);
    }

    /// Gives devices what waited for room.
    fn drain(&mut self) {
        for queue in self.ports.iter().flat_map(Port::queues) {
            if queue.drain() {
                self.dirty.mark(queue.number());
                queue.flush();
            }
        }
    }
}

/// Transmits a frame by a port, with its tag and checksum as they are to be there.
fn transmit<P: Platform>(
    ports: &Ports<P, ()>,
    counters: &Counters,
    dirty: &mut Dirty,
    egress: ForwardedFrame,
    frame: PktBuf,
) {
    let port = egress.port.index();
    let path = &ports[port];
    if path.is_down() {
        return counters.count_drop(DropReason::InterfaceDown);
    }
    let Some(mut frame) = retag(frame, egress.tag) else { return counters.count_drop(DropReason::NoBuffer) };
    if !path.capabilities().tx_checksum {
        dev::layout::complete_checksum(&mut frame);
    }
    let hash = frame.meta().flow_hash.unwrap_or(0);
    Emitter::new(ports, counters, dirty).transmit_one(port, hash, frame);
}

/// A port, and its receive queues.
type OpenedPort<P> = (Port<P, ()>, Vec<Box<dyn RxQueue>>);

/// Opens a device as a port whose transmit queues are numbered from `first`.
fn open<P: Platform>(device: &mut dyn Device, first: usize) -> Result<OpenedPort<P>, PortError> {
    let capabilities = device.capabilities();
    if capabilities.framing != Framing::Ethernet {
        return Err(PortError::NotEthernet);
    }
    if capabilities.coalescing {
        return Err(PortError::Coalesces);
    }
    Port::open(device, LockKind::Blocking, first).ok_or(PortError::NoQueues)
}
