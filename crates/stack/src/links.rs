//! The links of a stack: its interfaces, their ports, and the receive threads that serve the ports.
//!
//! One interface has no link and leads to the stack itself: [`loopback`](crate::loopback).
//!
//! Interfaces and ports are fixed when the stack is built; addresses come and go. Any thread. Only the wake-up of a
//! receive thread takes a lock here, and nothing sends: that is in [`tx`](crate::tx).

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;

use ip::InterfaceView;
use path::{Dirty, TransmitQueue};
use sync::{CachePadded, PerThread, Platform};

use crate::alarm::{Alarms, ROOM_NAP};
use crate::batch_checks::BatchChecks;
use crate::clock::{BatchClock, BatchTime, Clock};
use crate::flow::Target;
use crate::interface::{Ports, StackInterface};

/// How the receive queues of the devices are divided among drivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriverLayout {
    /// Driver `n` serves queue pair `n` of every device: a thread for each CPU, whatever devices there are.
    #[default]
    PerIndex,
    /// A driver for each device, which serves all its queue pairs: an interrupt thread for each card, as in Willmann,
    /// Rixner and Cox (2006).
    PerDevice,
    /// A driver for each queue pair of each device: an interrupt vector for each queue.
    PerQueue,
}

impl DriverLayout {
    /// The driver of a queue pair, by the number of its device, its index there, and its number among those of all
    /// devices.
    pub(crate) fn driver(self, port: usize, index: usize, number: usize) -> usize {
        match self {
            DriverLayout::PerIndex => index,
            DriverLayout::PerDevice => port,
            DriverLayout::PerQueue => number,
        }
    }
}

/// See the head of the file.
///
/// Laid out by use: the line after `batch` has the fields that a batch and a segment read.
#[repr(C)]
pub struct Links<P: Platform> {
    /// The clock's reading before the latest batch of each thread that polls.
    batch: CachePadded<PerThread<BatchTime<P>, P>>,
    clock: Clock<P>,
    /// By index. The last is the loopback interface.
    interfaces: Box<[StackInterface<P>]>,
    /// Devices, by number.
    ports: Ports<P>,
    /// The sleep of the receive threads.
    alarms: Arc<Alarms<P>>,
    checks: Arc<BatchChecks<P>>,
    /// By port.
    interface_of: Box<[Option<usize>]>,
    /// Which receive thread serves which queue of a device.
    drivers: DriverLayout,
}

impl<P: Platform> Links<P> {
    /// These interfaces over these ports, served by receive threads with these alarms.
    pub(crate) fn new(
        clock: Clock<P>,
        (interfaces, ports): (Vec<StackInterface<P>>, Ports<P>),
        (drivers, alarms): (DriverLayout, Arc<Alarms<P>>),
        checks: Arc<BatchChecks<P>>,
    ) -> Self {
        let owner =
            |port| interfaces.iter().position(|interface: &StackInterface<P>| interface.ports().contains(&port));
        let interface_of = (0..ports.iter().len()).map(owner).collect();
        let batch = CachePadded::new(PerThread::new(|_| BatchTime::default()));
        Links { batch, clock, interfaces: interfaces.into(), ports, alarms, checks, interface_of, drivers }
    }

    /// Where `now` comes from, and the time of the current batch.
    #[inline]
    pub(crate) fn clock(&self) -> BatchClock<'_, P> {
        BatchClock::new(&self.clock, &self.batch)
    }

    /// The checks of receive threads once a batch.
    pub(crate) fn checks(&self) -> &Arc<BatchChecks<P>> {
        &self.checks
    }

    /// Interfaces by index: the configured ones, and last the loopback interface.
    pub fn interfaces(&self) -> &[StackInterface<P>] {
        &self.interfaces
    }

    /// The current addresses of an interface, with the values derived from them.
    #[inline]
    pub fn view(&self, interface: usize) -> &InterfaceView {
        self.interfaces[interface].view.get()
    }

    /// Devices, by number.
    #[inline]
    pub fn ports(&self) -> &Ports<P> {
        &self.ports
    }

    /// The sleep of the receive threads.
    #[inline]
    pub fn alarms(&self) -> &Arc<Alarms<P>> {
        &self.alarms
    }

    /// The number of the receive thread that serves a queue of a port. Those of the loopback port have the numbers of
    /// their receive threads.
    #[inline]
    pub(crate) fn driver_of(&self, port: usize, queue: usize) -> usize {
        if port + 1 == self.ports.iter().len() {
            return queue;
        }
        let number = || self.ports[port].queues()[queue].number();
        match self.drivers {
            DriverLayout::PerIndex => queue,
            drivers => drivers.driver(port, queue, number()),
        }
    }

    /// Whether the calling thread polls a queue, but not every one: to it, local ports make a difference.
    pub(crate) fn polls_some(&self) -> bool {
        let threads = self.alarms.threads();
        let own = || (0..threads).filter(|thread| self.alarms.is_run_here(*thread)).count();
        threads > 1 && (1..threads).contains(&own())
    }

    /// Whether the calling thread polls the queue by which a flow of this hash is received, if that is by `interface`
    /// and the device distributes as [`path::index`] does. True also where that cannot be known.
    pub(crate) fn comes_home(&self, interface: usize, hash: u32) -> bool {
        let Some(port) = self.port_of(interface, hash) else { return true };
        let queue = path::index(hash, self.ports[port].queues().len());
        self.alarms.is_run_here(self.driver_of(port, queue))
    }

    /// The queues of a port that a receive thread serves.
    pub(crate) fn served(&self, driver: usize, port: usize) -> Range<usize> {
        let mut queues = (0..self.ports[port].queues().len()).filter(|queue| self.driver_of(port, *queue) == driver);
        queues.next().map_or(0..0, |first| first..queues.last().unwrap_or(first) + 1)
    }

    /// The calling thread claims the transmit queues that a receive thread serves, and uses them without locks.
    pub(crate) fn claim_served(&self, driver: usize) {
        self.served_queues(driver).for_each(|queue| _ = queue.claim());
    }

    /// Ends the calling thread's claims of these queues.
    pub(crate) fn release_served(&self, driver: usize) {
        self.served_queues(driver).for_each(TransmitQueue::release_claim);
    }

    /// The calling thread claims the transmit queues that a receive thread serves, until other threads have left so many frames for
    /// it in one of them ([`TransmitQueue::claim_until`]).
    pub(crate) fn claim_served_until(&self, driver: usize, most_mail: usize) {
        self.served_queues(driver).for_each(|queue| _ = queue.claim_until(most_mail));
    }

    /// Whether the calling thread has claimed all transmit queues that a receive thread serves.
    pub(crate) fn has_claimed_served(&self, driver: usize) -> bool {
        self.served_queues(driver).all(TransmitQueue::is_claimed_here)
    }

    /// Whether all devices have a queue for each receive thread, which serves it: the thread that serves the queue by which a flow
    /// arrives serves the one by which it leaves, too.
    pub(crate) fn flows_leave_where_they_arrive(&self) -> bool {
        let threads = self.alarms.threads();
        let queues_are_threads = || self.ports.iter().all(|port| port.queues().len() == threads);
        self.drivers == DriverLayout::PerIndex && queues_are_threads()
    }

    fn served_queues(&self, driver: usize) -> impl Iterator<Item = &TransmitQueue<P, Target>> {
        let ports = self.ports.iter().enumerate();
        ports.flat_map(move |(port, of)| &of.queues()[self.served(driver, port)])
    }

    /// The interface over a port.
    #[inline]
    pub fn interface_of(&self, port: usize) -> Option<usize> {
        self.interface_of.get(port).copied().flatten()
    }

    /// The number of the port by which flows of this hash leave an interface; `None`: it has none.
    #[inline]
    pub fn port_of(&self, interface: usize, hash: u32) -> Option<usize> {
        self.ports.choose(self.interfaces[interface].ports(), hash)
    }

    /// Whether every device of an interface has vanished. One without devices is never down.
    pub fn is_down(&self, interface: usize) -> bool {
        let mut ports = self.interfaces[interface].ports().iter();
        ports.len() > 0 && ports.all(|port| self.ports[*port].is_down())
    }

    /// Whether every device that could receive a packet to `address` from another host has vanished. False for loopback
    /// addresses, and for a stack without interfaces.
    pub(crate) fn is_down_at(&self, address: IpAddr) -> bool {
        let brings = |interface: &usize| address.is_unspecified() || self.view(*interface).is_local(address);
        let mut down = (0..self.attached().len()).filter(brings).map(|interface| self.is_down(interface));
        down.next().is_some_and(|first| first && down.all(|down| down))
    }

    /// Whether a single host can have `address`: it is not a broadcast address of a local network, a group, or
    /// unspecified.
    pub fn may_be_host(&self, address: IpAddr) -> bool {
        let broadcast = |address| self.interfaces.iter().any(|interface| interface.view.get().is_broadcast(address));
        ip::interface::is_unicast(address) && !matches!(address, IpAddr::V4(v4) if broadcast(v4))
    }

    /// The interface to a link that has `address`, unless the address has a different meaning on every link.
    #[cold]
    pub(crate) fn owner_of(&self, address: IpAddr) -> Option<usize> {
        if matches!(address, IpAddr::V6(address) if address.is_unicast_link_local()) {
            return None;
        }
        self.attached().iter().position(|interface| interface.view.get().is_local(address))
    }

    /// Whether `address` is one of this stack's, including loopback addresses.
    pub fn is_local(&self, address: IpAddr) -> bool {
        self.interfaces.iter().any(|interface| interface.view.get().is_local(address))
    }

    /// Wakes all receive threads.
    pub fn wake_drivers(&self) {
        self.alarms.wake_all();
    }

    /// Notifies the devices that were given frames. The caller holds no guard.
    #[inline]
    pub(crate) fn notify(&self, dirty: &mut Dirty) {
        self.ports.notify(dirty, |number, mail| self.check_room(number, mail));
    }

    /// The same, if one queue was given frames. False: several were, or none.
    #[inline(always)]
    pub(crate) fn notify_only(&self, dirty: &mut Dirty) -> bool {
        self.ports.notify_only(dirty, |number, mail| self.check_room(number, mail))
    }

    /// The driver of the transmit queue of this number must check for room in it, and may be asleep. With `mail`, the
    /// thread that has claimed the queue must check, whichever driver it runs.
    #[cold]
    #[inline(never)]
    fn check_room(&self, number: usize, mail: bool) {
        let place = self.ports.place_of(number);
        if let Some((port, _)) = place {
            self.checks.note_waiting(port);
        }
        if mail {
            self.wake_drivers();
        }
        if let Some((port, queue)) = place {
            self.alarms.due_at(self.driver_of(port, queue), (self.clock.now() + ROOM_NAP).as_nanos());
        }
    }
}
