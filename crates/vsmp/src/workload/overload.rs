//! More datagrams than can be processed (Mogul and Ramakrishnan 1997; Nakahara et al. 2015, section 3.3): they arrive at a fixed
//! rate whether or not earlier ones have been taken, and one CPU must take them from the card, process them, and run
//! the application that reads them.
//!
//! The thread that takes frames from the card is a hardware interrupt handler, or a thread with the application's
//! priority ([`Overload::interrupts`]). A handler runs before all other threads; the architecture's own threads come
//! next, and the application last ([`interrupts_first`]). The machine has a second CPU, for the thread that measures.
//!
//! Tests and examples run this. What may never happen: the rate of arrivals depends on the processing of frames.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use dev::peer::PeerConfig;
use observe::DropReason;
use stack::socket::Readiness;
use stack::{Addressing, Architecture, InterfaceConfig, Stack, StackConfig};
use sync::{Atomic, LockKind, Ordering, Platform, Step, ThreadClass};

use super::nap;
use crate::card::{Card, CardConfig};
use crate::{Costs, Vsmp};

/// CPUs of the machine.
pub const CPUS: usize = 2;

/// `costs` with the priorities of a kernel: hardware interrupts, soft interrupts, applications.
pub fn interrupts_first(costs: Costs) -> Costs {
    let mut priorities = costs.priorities;
    priorities[ThreadClass::Receive as usize] = 0;
    priorities[ThreadClass::Protocol as usize] = 1;
    priorities[ThreadClass::Worker as usize] = 1;
    priorities[ThreadClass::Application as usize] = 3;
    Costs { priorities, ..costs }
}

/// A card whose queue pair interrupts every 40 microseconds at most, and holds 256 frames.
pub fn card() -> CardConfig {
    CardConfig {
        queues: 1,
        ring: 256,
        megabits: 10_000,
        dma: 1_000,
        latency: 5_000,
        interrupt_gap: 40_000,
        client_delay: 10_000,
        mtu: 1500,
        segmentation: None,
    }
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Overload {
    /// The architecture.
    pub arch: Architecture,
    /// The card, which has one queue pair.
    pub card: CardConfig,
    /// The frame that arrives again and again: a datagram for `to`.
    pub frame: Vec<u8>,
    /// The socket.
    pub to: SocketAddr,
    /// The address of the sender.
    pub from: IpAddr,
    /// Frames that arrive in a second.
    pub rate: u64,
    /// Whether a hardware interrupt handler takes them from the card, and not a thread with the application's priority.
    pub interrupts: bool,
    /// Virtual time before the measurement.
    pub warm_up: Duration,
    /// Virtual time of the measurement.
    pub time: Duration,
}

/// The frames of the measured time by outcome, in frames a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Goodput {
    /// Read by the application.
    pub read: u64,
    /// Lost by the card, whose ring was full, at no cost.
    pub lost: u64,
    /// Dropped in front of the threads that process frames, whose queue was full.
    pub unprocessed: u64,
    /// Dropped at the socket, which the application did not read.
    pub unread: u64,
}

impl Overload {
    /// Runs the workload. Must be called by the first thread of a machine with [`CPUS`] CPUs.
    ///
    /// # Panics
    /// The stack cannot be built, or a thread of the run panics.
    pub fn run(&self) -> Goodput {
        let card = Card::new("card0", self.card.clone(), PeerConfig::new(self.from));
        let (totals, arrive) = (card.totals(), card.arrivals());
        let mut config = StackConfig::<Vsmp>::new(self.arch);
        (config.cpus, config.seed) = (1, Some(1));
        // A thread that waits for one without a CPU yields its own, as in a kernel.
        config.lock_kind = LockKind::Adaptive;
        let prefix = if self.to.is_ipv6() { 64 } else { 24 };
        let (addresses, addressing) = (vec![(self.to.ip(), prefix)], Addressing::default());
        let interface = InterfaceConfig { device: Box::new(card), addresses, gateways: vec![], addressing };
        let (stack, mut drivers) = Stack::build(config, vec![interface]).expect("the stack builds");
        let mut driver = drivers.pop().expect("the card has a queue pair");
        let counters = driver.counters().clone();
        let stop = Arc::new(<Vsmp as Platform>::AtomicBool::new(false));
        let read = Arc::new(AtomicU64::new(0));
        let class = if self.interrupts { ThreadClass::Receive } else { ThreadClass::Application };
        let threads = [
            self.application(&stack, &stop, &read),
            Vsmp::spawn("driver", Some(0), class, {
                let stop = stop.clone();
                move || driver.serve(&stop, || {})
            }),
        ];
        arrive(&self.frame, self.rate);
        nap::<Vsmp>(self.warm_up);
        let count = || {
            let dropped = |reason| stack.stats().counters.dropped(reason);
            let unprocessed = dropped(DropReason::InputQueueFull) + counters.dropped(DropReason::InputQueueFull);
            [read.load(Relaxed), totals().lost, unprocessed, dropped(DropReason::SocketQueueFull)]
        };
        let before = count();
        let start = Vsmp::now();
        nap::<Vsmp>(self.time);
        let (after, nanos) = (count(), Vsmp::now() - start);
        let rate = |n: usize| (u128::from(after[n] - before[n]) * 1_000_000_000 / u128::from(nanos)) as u64;
        // Frames continue to arrive, so the driver wakes and notices the end.
        stop.store(true, Ordering::Release);
        for thread in threads.into_iter().rev() {
            if let Err(panic) = Vsmp::join(thread) {
                std::panic::resume_unwind(panic);
            }
        }
        Goodput { read: rate(0), lost: rate(1), unprocessed: rate(2), unread: rate(3) }
    }

    /// Reads all datagrams of the socket, one in each call.
    fn application(
        &self,
        stack: &Stack<Vsmp>,
        stop: &Arc<<Vsmp as Platform>::AtomicBool>,
        read: &Arc<AtomicU64>,
    ) -> usize {
        let socket = stack.bind_udp(self.to).expect("the port is free");
        let (stack, stop, read) = (stack.clone(), stop.clone(), read.clone());
        Vsmp::spawn("application", Some(0), ThreadClass::Application, move || {
            while !stop.load(Ordering::Acquire) {
                socket.ready.wait(Readiness::READABLE, Some(Duration::from_millis(1)));
                while !stop.load(Ordering::Acquire) && stack.receive_udp(&socket).is_ok() {
                    Vsmp::work(Step::Application, 1);
                    read.fetch_add(1, Relaxed);
                }
            }
            stack.unbind_udp(&socket);
        })
    }
}
