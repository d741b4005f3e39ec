//! [`Generic`]: the exclusion of NetBSD's GENERIC kernel (Nakahara 2015, sections 2.3 and 6.2): one processor does
//! everything, so it uses the rules by `&mut`.
//!
//! A poll is one hardware interrupt and the software interrupt behind it. The handler moves frames from the receive
//! queues into the bounded queue of the software interrupt: either all frames, which in the paper costs it two thirds
//! of its frames under load, or a bounded number ([`Work`]). A frame that finds the queue full is dropped. Then the
//! software interrupt forwards the frames of the queue.
//!
//! One thread polls. If other threads configure the bridge, all of it is behind one lock ([`Switch`](crate::Switch)),
//! like the paper's KERNEL_LOCK.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use bridge::{Bridge, Decision, FdbConfig, FdbControl, Flood, ForwardedFrame, PortConfig, PortNumber, TagAction};
use dev::{Device, RxQueue, TxQueue};
use observe::{Counters, DropReason, Time};
use path::VECTOR_LEN;
use pktbuf::PktBuf;
use sync::Platform;

use crate::charge;
use crate::flood::{self, EgressFrame};
use crate::interrupt::{InterruptController, InterruptKind, InterruptReport};
use crate::port::{self, BridgePort, Opening, PortReport};
use crate::port_error::PortError;

/// The number of frames that one interrupt takes from a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// All frames in the ring.
    Drain,
    /// At most this many; at least 1.
    Frames(usize),
}

impl Work {
    /// The maximum number of frames.
    pub(crate) fn most(self) -> usize {
        match self {
            Work::Drain => usize::MAX,
            Work::Frames(frames) => frames.max(1),
        }
    }

    /// The inverse of [`Work::most`].
    pub(crate) fn of_most(most: usize) -> Work {
        if most == usize::MAX { Work::Drain } else { Work::Frames(most) }
    }
}

/// The configuration of a bridge of this kind.
#[derive(Clone, Copy, Debug)]
pub struct GenericConfig {
    /// Size and ageing of the forwarding database.
    pub fdb: FdbConfig,
    /// Work per interrupt.
    pub work: Work,
    /// Maximum number of frames that wait for the software interrupt.
    pub input_queue: usize,
}

impl Default for GenericConfig {
    /// As in NetBSD: drain, and a queue of 256.
    fn default() -> GenericConfig {
        GenericConfig { fdb: FdbConfig::default(), work: Work::Drain, input_queue: 256 }
    }
}

/// A receive queue, and its port.
struct Receiver<P: Platform> {
    port: Arc<BridgePort<P>>,
    index: usize,
    queue: Box<dyn RxQueue>,
    /// The device has vanished, and the port is therefore down.
    gone: bool,
}

/// Period of the search for aged entries, as in NetBSD.
const PRUNE: Duration = Duration::from_secs(300);
/// The one worker.
const CPU_0: usize = 0;

/// See the head of the file.
pub struct Generic<P: Platform> {
    bridge: Bridge,
    receivers: Vec<Receiver<P>>,
    /// The queue of the software interrupt.
    input: VecDeque<(PortNumber, PktBuf)>,
    work: Work,
    limit: usize,
    next_prune: Time,
    controller: InterruptController,
    /// Empty between polls, kept for its memory.
    batch: Vec<PktBuf>,
    way_out: WayOut<P>,
}

/// The output side of the bridge.
struct WayOut<P: Platform> {
    /// By number.
    ports: Vec<Option<Arc<BridgePort<P>>>>,
    /// The transmit queues of the ports, which need no lock of their own here.
    exits: Vec<Option<Exit>>,
    counters: Counters,
    /// Numbers of ports with frames of which the receivers were not notified yet.
    busy: Vec<PortNumber>,
}

/// A transmit queue, with what it was given since its receivers were notified.
struct Exit {
    queue: Box<dyn TxQueue>,
    frames: usize,
    bytes: usize,
    /// The port is among the busy ones.
    is_busy: bool,
}

impl<P: Platform> Generic<P> {
    /// A bridge without ports.
    pub fn new(config: GenericConfig) -> Generic<P> {
        let (input, limit) = (VecDeque::with_capacity(config.input_queue), config.input_queue.max(1));
        let way_out = WayOut { ports: Vec::new(), exits: Vec::new(), counters: Counters::new(), busy: Vec::new() };
        let (batch, next_prune) = (Vec::with_capacity(VECTOR_LEN), Time::ZERO);
        let bridge = Bridge::new(config.fdb);
        let controller = InterruptController::new(1);
        let (receivers, work) = (Vec::new(), config.work);
        Generic { bridge, receivers, input, work, limit, next_prune, controller, batch, way_out }
    }

    /// A bridge over these devices, which become ports 0, 1, ... and forward, under the names of the devices, with their
    /// number if two have the same.
    ///
    /// # Errors
    /// See [`PortError`], with the number of the device.
    pub fn build(
        config: GenericConfig,
        devices: Vec<(Box<dyn Device>, PortConfig)>,
    ) -> Result<Generic<P>, (usize, PortError)> {
        let mut generic = Generic::new(config);
        for (number, (mut device, port_config)) in devices.into_iter().enumerate() {
            let name = format!("{}.{number}", device.name());
            generic.add_port(&name, &mut *device, port_config, Time::ZERO).map_err(|error| (number, error))?;
        }
        Ok(generic)
    }

    /// Adds a device as a port, which forwards at once or, with spanning tree, when the tree allows it. The MTU of the
    /// port is that of the device if that is smaller than the configured one.
    ///
    /// # Errors
    /// See [`PortError`].
    pub fn add_port(
        &mut self,
        name: &str,
        device: &mut dyn Device,
        config: PortConfig,
        now: Time,
    ) -> Result<PortNumber, PortError> {
        let number = port::free_number(&self.way_out.ports, name)?;
        // An interrupt line for each device, as for the cards of the paper's GENERIC kernel.
        let (kind, controller) = (InterruptKind::Intx, &mut self.controller);
        let opening = Opening { workers: 1, give_away: true, kind, controller };
        let (opened, rx, tx) = BridgePort::open(number, name, device, opening)?;
        opened.vectors.arrive(0, CPU_0);
        port::enter(&mut self.bridge, &opened, config, now);
        let receiver = |(index, queue)| Receiver { port: opened.clone(), index, queue, gone: false };
        self.receivers.extend(rx.into_iter().enumerate().map(receiver));
        self.way_out.open(opened, tx);
        self.transmit_bpdus();
        Ok(number)
    }

    /// Removes a port; its waiting frames are dropped and counted. Returns whether the port existed.
    pub fn remove_port(&mut self, number: PortNumber, now: Time) -> bool {
        let Some(port) = self.way_out.ports.get_mut(number.index()).and_then(Option::take) else { return false };
        port.stop();
        self.bridge.remove_port(number, now);
        self.receivers.retain(|receiver| !Arc::ptr_eq(&receiver.port, &port));
        self.way_out.close(number);
        port.close();
        self.controller.release(port.vectors.allocated());
        self.transmit_bpdus();
        true
    }

    /// The vectors of its ports.
    pub fn interrupts(&self) -> Vec<InterruptReport> {
        self.way_out.ports.iter().flatten().flat_map(|port| port.interrupts()).collect()
    }

    /// Work per interrupt.
    pub fn work(&self) -> Work {
        self.work
    }

    /// Sets that.
    pub fn set_work(&mut self, work: Work) {
        self.work = work;
    }

    /// The ports by number, with their traffic.
    pub fn ports(&self) -> Vec<Option<PortReport>> {
        self.way_out.ports.iter().map(|port| port.as_deref().map(PortReport::of)).collect()
    }

    /// Descriptors that become readable when frames arrive, and whether every port has one; see
    /// [`dev::RxQueue::pollable`].
    pub fn descriptors(&self) -> (Vec<RawFd>, bool) {
        let queues = self.receivers.iter().filter(|receiver| !receiver.gone);
        let descriptors: Vec<RawFd> = queues.clone().filter_map(|receiver| receiver.queue.pollable()).collect();
        let all = descriptors.len() == queues.count();
        (descriptors, all)
    }

    /// The rules, with the configuration of ports, VLANs and addresses.
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// The same, to change them.
    pub fn bridge_mut(&mut self) -> &mut Bridge {
        &mut self.bridge
    }

    /// The counters: drops, learned addresses, and others.
    pub fn counters(&self) -> &Counters {
        &self.way_out.counters
    }

    /// Sets a port down, or up. A port that is down transmits no frame, and drops the frames that it receives.
    pub fn set_up(&mut self, port: PortNumber, up: bool, now: Time) {
        self.bridge.set_up(port, up, now);
        self.transmit_bpdus();
    }

    /// Takes frames and forwards them; returns how many were taken. Also runs the timers due at `now`.
    pub fn poll(&mut self, now: Time) -> usize {
        self.due(now);
        let taken = self.hardware_interrupt(now);
        self.software_interrupt(now);
        self.way_out.notify();
        taken
    }

    /// When [`Generic::poll`] must be called even if no frame arrives; [`Time::MAX`]: never.
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
    }

    /// The handler: from the receive queues to the queue of the software interrupt.
    fn hardware_interrupt(&mut self, now: Time) -> usize {
        let mut taken = 0;
        for receiver in &mut self.receivers {
            let (before, mut left) = (taken, self.work.most());
            while left > 0 {
                let count = receiver.queue.receive(&mut self.batch, VECTOR_LEN.min(left));
                if count == 0 {
                    break;
                }
                if taken == before {
                    charge::interrupt::<P>();
                }
                charge::received::<P>(&self.batch);
                (taken, left) = (taken + count, left - count);
                receiver.port.count_received(CPU_0, count, port::bytes_of(&self.batch));
                let room = self.limit - self.input.len();
                let refused = self.batch.len().saturating_sub(room);
                self.way_out.counters.count_drops(DropReason::InputQueueFull, refused as u64);
                charge::queued::<P>(self.batch.len().min(room));
                let port = receiver.port.number;
                self.input.extend(self.batch.drain(..).take(room).map(|frame| (port, frame)));
            }
            if taken > before {
                receiver.port.vectors.count_received(receiver.index, CPU_0, taken - before);
            }
            if !receiver.gone && receiver.queue.gone() {
                receiver.port.vectors.count_link(CPU_0);
                receiver.gone = true;
                self.bridge.set_up(receiver.port.number, false, now);
            }
        }
        taken
    }

    /// Forwards the waiting frames.
    fn software_interrupt(&mut self, now: Time) {
        while let Some((port, frame)) = self.input.pop_front() {
            charge::queued::<P>(1);
            self.forward(port, frame, now);
        }
        self.transmit_bpdus();
    }

    fn forward(&mut self, port: PortNumber, frame: PktBuf, now: Time) {
        let decision = match self.bridge.relay(port, &frame, &self.way_out.counters, now) {
            Ok(to) => return self.way_out.transmit(ForwardedFrame { port: to, tag: TagAction::Keep }, frame),
            Err(exception) => self.bridge.explain(port, exception, &frame, now),
        };
        self.follow(port, decision, frame, now);
    }

    #[inline(never)]
    fn follow(&mut self, port: PortNumber, decision: Decision, frame: PktBuf, now: Time) {
        match decision {
            Decision::Forward(egress) => self.way_out.transmit(egress, frame),
            Decision::Flood(flood) => self.flood(flood, frame),
            Decision::Bpdu => {
                self.bridge.take_bpdu(port, &frame, &self.way_out.counters, now);
                // BPDUs are sent before the next frame is forwarded, so that no agreement waits behind data.
                self.transmit_bpdus();
            }
            Decision::Drop(reason) => self.way_out.counters.count_drop(reason),
        }
    }

    fn flood(&mut self, flood: Flood, frame: PktBuf) {
        let WayOut { ports, exits, counters, busy } = &mut self.way_out;
        let egress = flood.egress(self.bridge.members(), counters);
        flood::flood(frame, egress, |to, frame| transmit(ports, exits, counters, busy, to, frame));
    }

    fn transmit_bpdus(&mut self) {
        while let Some((port, bytes)) = self.bridge.next_bpdu() {
            match PktBuf::from_slice(&bytes) {
                Some(frame) => self.way_out.transmit(ForwardedFrame { port, tag: TagAction::Keep }, frame),
                None => self.way_out.counters.count_drop(DropReason::NoBuffer),
            }
        }
    }
}

impl<P: Platform> WayOut<P> {
    /// A new port, and its transmit queues, of which the first is used.
    fn open(&mut self, port: Arc<BridgePort<P>>, queues: Vec<Box<dyn TxQueue>>) {
        let at = port.number.index();
        if self.exits.len() <= at {
            self.exits.resize_with(at + 1, || None);
        }
        let exit = |queue| Exit { queue, frames: 0, bytes: 0, is_busy: false };
        self.exits[at] = queues.into_iter().next().map(exit);
        port::put(&mut self.ports, port);
    }

    /// Closes the transmit queue of a port that is removed.
    fn close(&mut self, number: PortNumber) {
        self.busy.retain(|busy| *busy != number);
        if let Some(mut exit) = self.exits.get_mut(number.index()).and_then(Option::take) {
            exit.queue.flush();
        }
    }

    #[inline(always)]
    fn transmit(&mut self, egress: ForwardedFrame, frame: PktBuf) {
        transmit(&self.ports, &mut self.exits, &self.counters, &mut self.busy, egress, frame);
    }

    /// Counts what was transmitted, and notifies the receivers at the other ends.
    fn notify(&mut self) {
        for number in self.busy.drain(..) {
            let (port, exit) = (self.ports.get(number.index()), self.exits.get_mut(number.index()));
            if let (Some(Some(port)), Some(Some(exit))) = (port, exit) {
                exit.queue.flush();
                exit.is_busy = false;
                let (frames, bytes) = (std::mem::take(&mut exit.frames), std::mem::take(&mut exit.bytes));
                port.count_sent(CPU_0, 0, frames, bytes);
            }
        }
    }
}

/// Transmits a frame by a port, with the tag and the checksum that the port requires.
#[inline(always)]
fn transmit<P: Platform>(
    ports: &[Option<Arc<BridgePort<P>>>],
    exits: &mut [Option<Exit>],
    counters: &Counters,
    busy: &mut Vec<PortNumber>,
    egress: ForwardedFrame,
    frame: impl EgressFrame,
) {
    let at = egress.port.index();
    let (Some(Some(port)), Some(Some(exit))) = (ports.get(at), exits.get_mut(at)) else {
        return counters.count_drop(DropReason::InterfaceDown);
    };
    let Some(frame) = frame.prepare(port, egress.tag, counters) else { return };
    let bytes = frame.bytes();
    charge::transmitted::<P>(1);
    match frame.transmit(&mut *exit.queue) {
        Ok(()) => (exit.frames, exit.bytes) = (exit.frames + 1, exit.bytes + bytes),
        Err(reason) => counters.count_drop(reason),
    }
    if !exit.is_busy {
        exit.is_busy = true;
        busy.push(egress.port);
    }
}
