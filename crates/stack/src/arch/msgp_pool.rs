//! A pool of workers: any thread, any packet of any connection (Nahum et al. 1994; Message Parallelism of Schmidt and Suda).
//!
//! # Model
//! N pinned workers share one input. Each takes the next packet there, whatever its connection, and carries it alone
//! through all layers up to the application. Connections, tables and locks are those of [`msgp`](super::msgp): one lock for
//! a connection, two or six (TCP-1, TCP-2, TCP-6), of the stack's kind, or of one of the two kinds of the paper. Calls run on the thread of their caller, which shepherds what it sends down to the device. Receive threads only move
//! frames from devices into the input. A stack whose architecture starts no threads has its receive threads as the pool: they carry
//! up what they take, and the input is a device that gives each of them the next frame, as in the paper.
//!
//! # Counts
//! A look-up takes a reference to the connection that it finds, under the table's lock, and the thread drops it when the event
//! is over. By default the count is that of `Arc`. With [`StackConfig::counting`](crate::StackConfig::counting) it is an atomic
//! word of the platform, which the simulator charges, or a number under a lock of its own, which costs two more acquisitions for
//! each event (the paper's "atomic increment/decrement").
//!
//! # Order
//! Packets of one connection leave the input in order, and then race for the connection. With *arrival tickets*
//! ([`FrameInput`]) each waits for its turn before it is looked up, and they run in the order of arrival; without them
//! (`+unordered`) the order is that in which the connection's lock is granted, and a worker that was delayed between the
//! input and the lock is overtaken. Workers never see several packets of a connection as one run.
//!
//! The workers are in [`frame_workers`](super::frame_workers).

use std::sync::Arc;

use sync::{CountedRef, LockKind, Platform};

use super::RunningArchitecture;
use super::declaration::{Declaration, Properties, TableRow, Variant};
use super::frame_input::FrameInput;
use super::frame_workers::{FrameWorkers, WorkerThreads};
use super::msgp::{AtOnce, MsgP};
use super::select::ThreadConfig;
use crate::place::locked::{ConnectionRef, LockedConnection};
use crate::place::pcb::{ConnectionLocks, LockPlan};
use crate::place::{Contents, Habits};
use crate::shared::Shared;
use crate::socket::HandlersRun;

/// The most frames that wait in the input.
const MOST_WAITING: usize = 4096;

/// The declaration of this architecture.
pub const DECLARATION: Declaration<PoolVariant> = Declaration {
    name: "msgp-pool",
    options: "[:1|2|6][+tas|mcs][+unordered]",
    variants: VARIANTS.split_at(1).0,
    unlisted: VARIANTS.split_at(1).1,
    default: 0,
    numbers: None,
    faults: &[],
    properties: Properties {
        single_thread: false,
        polling_thread_owns: false,
        has_locks: true,
        groups: false,
        own_threads: true,
        keeps_batches_together: false,
        handlers: HandlersRun::After,
        complexity: 6,
    },
    exceptions: &[],
    rows: &[
        TableRow {
            names: "`msgp-pool`, `:2`, `:6`",
            cell: "a connection, its halves, its six parts",
            exclusive_use: "arrival ticket, then global table lock, then connection lock(s); `+tas`, `+mcs`: of that kind",
            thread: "any worker of a pool, for any packet; callers",
            table: "global, locked",
            order: "ticket drawn where the packet is taken",
        },
        TableRow {
            names: "`msgp-pool:N+unordered`",
            cell: "the same",
            exclusive_use: "global table lock, then connection lock(s)",
            thread: "the same",
            table: "the same",
            order: "nothing: packets overtake each other",
        },
    ],
};

/// The locks of a connection, their kind if it is not the stack's, and the order.
pub type PoolVariant = (LockPlan, Option<LockKind>, PoolOrder);

/// Lists have the first alone.
const VARIANTS: &[Variant<PoolVariant>] = &[
    Variant::new(
        "msgp-pool",
        Some("msgp-pool:1"),
        "a pool of workers, any packet; a connection's lock, in the order of arrival tickets",
        (LockPlan::One, None, PoolOrder::Arrival),
    ),
    Variant::new(
        "msgp-pool+unordered",
        Some("msgp-pool:1+unordered"),
        "a pool of workers, any packet; a connection's lock, in no order",
        (LockPlan::One, None, PoolOrder::Race),
    ),
    Variant::new(
        "msgp-pool+tas",
        Some("msgp-pool:1+tas"),
        "a pool of workers, any packet; a connection's lock, by test-and-set, in the order of arrival tickets",
        (LockPlan::One, Some(LockKind::Tas), PoolOrder::Arrival),
    ),
    Variant::new(
        "msgp-pool+tas+unordered",
        Some("msgp-pool:1+tas+unordered"),
        "a pool of workers, any packet; a connection's lock, by test-and-set, in no order",
        (LockPlan::One, Some(LockKind::Tas), PoolOrder::Race),
    ),
    Variant::new(
        "msgp-pool+mcs",
        Some("msgp-pool:1+mcs"),
        "a pool of workers, any packet; a connection's lock, by queue locks, in the order of arrival tickets",
        (LockPlan::One, Some(LockKind::Mcs), PoolOrder::Arrival),
    ),
    Variant::new(
        "msgp-pool+mcs+unordered",
        Some("msgp-pool:1+mcs+unordered"),
        "a pool of workers, any packet; a connection's lock, by queue locks, in no order",
        (LockPlan::One, Some(LockKind::Mcs), PoolOrder::Race),
    ),
    Variant::new(
        "msgp-pool:2",
        None,
        "a pool of workers, any packet; the locks of a connection's two halves, in the order of arrival tickets",
        (LockPlan::Two, None, PoolOrder::Arrival),
    ),
    Variant::new(
        "msgp-pool:2+unordered",
        None,
        "a pool of workers, any packet; the locks of a connection's two halves, in no order",
        (LockPlan::Two, None, PoolOrder::Race),
    ),
    Variant::new(
        "msgp-pool:2+tas",
        None,
        "a pool of workers, any packet; the locks of a connection's two halves, by test-and-set, in the order of arrival tickets",
        (LockPlan::Two, Some(LockKind::Tas), PoolOrder::Arrival),
    ),
    Variant::new(
        "msgp-pool:2+tas+unordered",
        None,
        "a pool of workers, any packet; the locks of a connection's two halves, by test-and-set, in no order",
        (LockPlan::Two, Some(LockKind::Tas), PoolOrder::Race),
    ),
    Variant::new(
        "msgp-pool:2+mcs",
        None,
        "a pool of workers, any packet; the locks of a connection's two halves, by queue locks, in the order of arrival tickets",
        (LockPlan::Two, Some(LockKind::Mcs), PoolOrder::Arrival),
    ),
    Variant::new(
        "msgp-pool:2+mcs+unordered",
        None,
        "a pool of workers, any packet; the locks of a connection's two halves, by queue locks, in no order",
        (LockPlan::Two, Some(LockKind::Mcs), PoolOrder::Race),
    ),
    Variant::new(
        "msgp-pool:6",
        None,
        "a pool of workers, any packet; the locks of a connection's six parts, in the order of arrival tickets",
        (LockPlan::Six, None, PoolOrder::Arrival),
    ),
    Variant::new(
        "msgp-pool:6+unordered",
        None,
        "a pool of workers, any packet; the locks of a connection's six parts, in no order",
        (LockPlan::Six, None, PoolOrder::Race),
    ),
    Variant::new(
        "msgp-pool:6+tas",
        None,
        "a pool of workers, any packet; the locks of a connection's six parts, by test-and-set, in the order of arrival tickets",
        (LockPlan::Six, Some(LockKind::Tas), PoolOrder::Arrival),
    ),
    Variant::new(
        "msgp-pool:6+tas+unordered",
        None,
        "a pool of workers, any packet; the locks of a connection's six parts, by test-and-set, in no order",
        (LockPlan::Six, Some(LockKind::Tas), PoolOrder::Race),
    ),
    Variant::new(
        "msgp-pool:6+mcs",
        None,
        "a pool of workers, any packet; the locks of a connection's six parts, by queue locks, in the order of arrival tickets",
        (LockPlan::Six, Some(LockKind::Mcs), PoolOrder::Arrival),
    ),
    Variant::new(
        "msgp-pool:6+mcs+unordered",
        None,
        "a pool of workers, any packet; the locks of a connection's six parts, by queue locks, in no order",
        (LockPlan::Six, Some(LockKind::Mcs), PoolOrder::Race),
    ),
];

/// The mechanism that keeps the packets of a connection in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolOrder {
    /// Tickets drawn where the packets are taken.
    Arrival,
    /// Nothing: they race for the connection, and a lock that serves its waiters in order keeps at most the order in which
    /// they reach it.
    Race,
}

/// One worker for each CPU; or none, and receive threads do their work.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    variant: PoolVariant,
    threads: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    match shared.counting() {
        None => start::<P, Arc<LockedConnection<P>>>(shared, variant, threads, contents),
        Some(_) => start::<P, CountedRef<LockedConnection<P>, P>>(shared, variant, threads, contents),
    }
}

fn start<P: Platform, R: ConnectionRef<P>>(
    shared: &Arc<Shared<P>>,
    (plan, kind, order): PoolVariant,
    ThreadConfig { cpus, own_threads }: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let locks = ConnectionLocks::new(plan, kind.unwrap_or(shared.lock_kind));
    let locks = ConnectionLocks { counting: shared.counting().unwrap_or(locks.counting), ..locks };
    let msgp = MsgP::<P, AtOnce, R>::of(shared, (locks, Habits::PLAIN), AtOnce, contents);
    let workers = if own_threads { cpus.max(1) } else { 0 };
    let ordered = order == PoolOrder::Arrival;
    let kind = shared.lock_kind_between_threads();
    // Without workers the receive threads are the pool, and where nothing has to be in order their devices are the input.
    let inputs: Box<[_]> = match workers {
        0 if !ordered => Box::new([]),
        _ => Box::new([FrameInput::new(kind, workers, MOST_WAITING, ordered)]),
    };
    FrameWorkers::start(msgp, inputs, WorkerThreads { name: "heddle-pw", each: workers, cpu: 0 }, None)
}
