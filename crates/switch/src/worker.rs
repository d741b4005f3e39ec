//! [`BridgeWorker`]: a thread that receives, decides and transmits; the paper's processor.
//!
//! A poll gives each receive queue an interrupt: a number of frames, or all ([`Work`]). `mpsafe.rs` or `rcu.rs`
//! forwards the frames of an interrupt. After that the queue's stopping flag is checked: frames that were taken from a
//! stopping queue are dropped and counted, and the queue is given up.
//!
//! A worker that ends, even by a panic in a device, gives up its queues and its references. So a port can be removed
//! afterwards, and no thread waits for one that is gone.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use bridge::{Arrival, Decision, Exception, InputPort};
use observe::{Counters, DropReason, Time};
use path::VECTOR_LEN;
use pktbuf::PktBuf;
use sync::{DoorbellLike, Platform, SectionReader};

use crate::charge;
use crate::mpsafe::Mpsafe;
use crate::port::{self, BridgePort, SharedStorm};
use crate::rcu::Rcu;
use crate::shared::{HouseMail, Inlet, MemberList, SeatDelivery, SharedBridge, Sharing};

/// See the head of the file. Made and used by one thread.
pub struct BridgeWorker<P: Platform> {
    seat: WorkerSeat<P>,
    inlets: Vec<Inlet<P>>,
    way: Way<P>,
    /// Receive queues to pass to other workers, in the order of the orders.
    parting: VecDeque<Parting<P>>,
    /// Empty between polls, kept for its memory.
    batch: Vec<PktBuf>,
}

/// An order to pass a receive queue of a port to another worker.
pub(crate) struct Parting<P: Platform> {
    pub(crate) port: Arc<BridgePort<P>>,
    pub(crate) index: usize,
    pub(crate) to: usize,
}

/// The state of each way of sharing.
pub(crate) struct WorkerSeat<P: Platform> {
    pub(crate) shared: Arc<SharedBridge<P>>,
    pub(crate) number: usize,
    pub(crate) reader: SectionReader<P>,
}

enum Way<P: Platform> {
    Mpsafe(Mpsafe<P>),
    Rcu(Rcu<P>),
}

/// Number of polls without a frame before the worker sleeps.
const IDLE_POLLS: u32 = 64;
/// How long a worker sleeps if one of its devices cannot wake it.
const NAP: Duration = Duration::from_millis(1);

impl<P: Platform> BridgeWorker<P> {
    /// The worker of this number, for the calling thread. `None`: there is no such worker, or it has begun already.
    pub fn begin(shared: &Arc<SharedBridge<P>>, number: usize) -> Option<BridgeWorker<P>> {
        let posts = shared.take_seat(number)?;
        let way = match shared.sharing {
            Sharing::Mpsafe => Way::Mpsafe(Mpsafe::new()),
            Sharing::Rcu => Way::Rcu(Rcu::new(posts)),
        };
        let reader = shared.domain.section_reader();
        let seat = WorkerSeat { shared: shared.clone(), number, reader };
        let (parting, batch) = (VecDeque::new(), Vec::with_capacity(VECTOR_LEN));
        Some(BridgeWorker { seat, inlets: Vec::new(), way, parting, batch })
    }

    /// Gives each receive queue an interrupt; returns how many frames were taken.
    pub fn poll(&mut self, now: Time) -> usize {
        self.accept_deliveries();
        let BridgeWorker { seat, inlets, way, batch, .. } = self;
        let (mut taken, mut stopping) = (0, false);
        for inlet in inlets.iter_mut() {
            let interrupt = interrupt(seat, way, inlet, batch, now);
            taken += interrupt.taken;
            stopping |= interrupt.is_stopping;
        }
        if stopping {
            inlets.retain(|inlet| !inlet.is_stopping());
        }
        taken
    }

    /// Polls until the bridge stops; sleeps while there is nothing to do.
    pub fn run(mut self) {
        let mut idle = 0;
        while !self.seat.shared.is_stopping() {
            let taken = self.poll(Time::from_nanos(P::now()));
            idle = if taken > 0 { 0 } else { idle + 1 };
            if idle > IDLE_POLLS {
                self.sleep();
                idle = 0;
            }
        }
        self.poll(Time::from_nanos(P::now()));
    }

    fn sleep(&mut self) {
        let shared = self.seat.shared.clone();
        let bell = &shared.seats[self.seat.number].bell;
        bell.arm();
        // Polls once more: frames that arrived before arming do not wake the worker.
        if self.poll(Time::from_nanos(P::now())) == 0 && !shared.is_stopping() {
            let queues = self.inlets.iter().filter(|inlet| !inlet.gone);
            let descriptors: Vec<RawFd> = queues.clone().filter_map(|inlet| inlet.queue.pollable()).collect();
            let silent = descriptors.len() < queues.count();
            bell.sleep(&descriptors, silent.then_some(NAP));
        }
        bell.drain();
    }

    #[inline]
    fn accept_deliveries(&mut self) {
        if self.seat.shared.has_deliveries(self.seat.number) {
            self.take_deliveries();
        }
        if !self.parting.is_empty() {
            self.part();
        }
        if let Way::Rcu(way) = &mut self.way {
            way.give_up_stopped();
        }
    }

    #[cold]
    fn take_deliveries(&mut self) {
        for delivery in self.seat.shared.deliveries(self.seat.number) {
            match (delivery, &mut self.way) {
                (SeatDelivery::Receive(inlet), _) => {
                    inlet.port.vectors.arrive(inlet.index, self.seat.number);
                    self.inlets.push(inlet);
                }
                (SeatDelivery::Part(parting), _) => self.parting.push_back(parting),
                (SeatDelivery::Transmit(port, queue), Way::Rcu(way)) => way.own(port, queue),
                (SeatDelivery::Frame(port, frame), Way::Rcu(way)) => way.transmit_now(&mut self.seat, &port, frame),
                // Only given to workers under `rcu`.
                (SeatDelivery::Transmit(..) | SeatDelivery::Frame(..), Way::Mpsafe(_)) => {}
            }
        }
    }

    /// Passes receive queues to other workers. Every frame that was taken from them has been transmitted: this is between
    /// two polls. A queue that has not arrived at this worker yet is passed on when it has.
    fn part(&mut self) {
        for _ in 0..self.parting.len() {
            let Some(parting) = self.parting.pop_front() else { return };
            let is_it = |inlet: &Inlet<P>| Arc::ptr_eq(&inlet.port, &parting.port) && inlet.index == parting.index;
            match self.inlets.iter().position(is_it) {
                Some(at) => {
                    let inlet = self.inlets.remove(at);
                    if let Way::Rcu(way) = &mut self.way
                        && inlet.lane == self.seat.number
                    {
                        way.share(self.seat.number);
                    }
                    self.seat.shared.deliver(parting.to, SeatDelivery::Receive(inlet));
                }
                None if parting.port.is_stopping(parting.index) => {}
                None => self.parting.push_back(parting),
            }
        }
    }
}

/// What an interrupt has found.
struct Interrupted {
    /// Frames that it has taken.
    taken: usize,
    /// The queue must be given up.
    is_stopping: bool,
}

/// An interrupt of a receive queue.
#[inline(always)]
fn interrupt<P: Platform>(
    seat: &mut WorkerSeat<P>,
    way: &mut Way<P>,
    inlet: &mut Inlet<P>,
    batch: &mut Vec<PktBuf>,
    now: Time,
) -> Interrupted {
    let mut taken = 0;
    let mut left = seat.shared.most_work();
    let mut is_stopping = inlet.is_stopping();
    while left > 0 && !is_stopping {
        let count = inlet.queue.receive(batch, VECTOR_LEN.min(left));
        if count == 0 {
            break;
        }
        if taken == 0 {
            charge::interrupt::<P>();
        }
        charge::received::<P>(batch);
        (taken, left) = (taken + count, left - count);
        match way {
            Way::Mpsafe(way) => {
                inlet.port.count_received(seat.number, count, port::bytes_of(batch));
                way.forward(seat, inlet, batch, now);
            }
            Way::Rcu(way) => way.forward(seat, inlet, batch, now),
        }
        is_stopping = inlet.is_stopping();
    }
    if taken > 0 {
        inlet.port.vectors.count_received(inlet.index, seat.number, taken);
    } else if !inlet.gone && inlet.queue.gone() {
        report_gone(seat, inlet);
    }
    Interrupted { taken, is_stopping }
}

/// The device of a port has vanished.
#[cold]
fn report_gone<P: Platform>(seat: &WorkerSeat<P>, inlet: &mut Inlet<P>) {
    inlet.port.vectors.count_link(seat.number);
    inlet.gone = true;
    seat.shared.send_mail(HouseMail::Gone(inlet.port.number), seat.counters());
}

impl<P: Platform> Drop for BridgeWorker<P> {
    fn drop(&mut self) {
        let number = self.seat.number;
        self.seat.shared.leave_seat(number);
        // A panic may have left references behind: to the input port of a frame and its output ports.
        self.inlets.iter().for_each(|inlet| inlet.port.release_all(number));
        if let Way::Mpsafe(way) = &self.way {
            way.known_ports().for_each(|port| port.release_all(number));
        }
    }
}

impl<P: Platform> WorkerSeat<P> {
    /// The worker's own.
    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.seats[self.number].counters
    }
}

impl<P: Platform> Inlet<P> {
    /// Whether it must be given up.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.port.is_stopping(self.index)
    }

    /// Its port in the member list. `None`: it is not there; the number may belong to another port by now.
    #[inline]
    pub(crate) fn ingress<'a>(&self, list: &'a MemberList<P>) -> Option<InputPort<'a>> {
        let listed = list.ports.get(self.port.number.index())?;
        if same(listed.as_ref(), &self.port) { InputPort::of(&list.members, self.port.number) } else { None }
    }

    /// The decision about a frame that does not leave by one port, and is not only dropped.
    pub(crate) fn decide(&self, ingress: InputPort<'_>, exception: Exception, frame: &PktBuf, now: Time) -> Decision {
        ingress.decide(exception, &mut SharedStorm(&self.port), frame, now)
    }

    /// Why a frame is dropped if the port is not in the member list.
    #[cold]
    pub(crate) fn refuse(&self, frame: &PktBuf) -> DropReason {
        Arrival::of(self.port.number, frame).err().unwrap_or(DropReason::InterfaceDown)
    }
}

#[inline]
pub(crate) fn same<P: Platform>(listed: Option<&Arc<BridgePort<P>>>, port: &Arc<BridgePort<P>>) -> bool {
    listed.is_some_and(|listed| Arc::ptr_eq(listed, port))
}
