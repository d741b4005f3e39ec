//! Hard handlers that take a bounded number of frames, and a soft-interrupt thread for each CPU (NetBSD: Nakahara et al. 2015,
//! section 3.3).
//!
//! # Model
//! Connections, tables and locks are those of [`msgp`]. The receive thread of a CPU acts like a hardware interrupt
//! handler: at each interrupt of its device it takes a bounded number of frames from the receive queue, puts them into
//! the bounded queue of its CPU, and wakes the CPU's *soft-interrupt thread*. That thread does all work of the
//! protocols, one frame after the other. Frames for which the queue has no space are dropped and counted. Frames beyond
//! the bound stay in the device, and are lost there at no cost if more arrive than can be processed. `softint:N` takes
//! N frames, `softint:all` all frames in the ring: the handler then takes the CPU from the threads that must process
//! them, and drops the frames that it has taken (receive livelock; Mogul and Ramakrishnan 1997).
//!
//! With `+polling` there is no hard handler: the thread that polls a CPU's queue is its soft-interrupt thread. It takes
//! a bounded number of frames, processes them completely, and lets other threads run before it polls again (Linux:
//! NAPI).
//!
//! # Order
//! The frames of a receive queue go to one thread, in the order of arrival.
//!
//! # What differs from NetBSD
//! CPU *n* is the one of driver *n*, modulo their number, wherever the receive thread runs. A receive thread has
//! priority over others only on a simulated machine. Callers transmit their own segments; in NetBSD the soft-interrupt
//! thread does. Timers and loopback packets are run by receive threads.
//!
//! The threads and queues are in [`frame_workers`](super::frame_workers) and [`frame_input`](super::frame_input). What may never
//! happen: a hard handler processes a frame, or waits for the soft-interrupt thread; two threads process frames of one queue.

use std::sync::Arc;

use sync::Platform;

use super::RunningArchitecture;
use super::declaration::{Declaration, Properties, TableRow, Variant};
use super::frame_input::FrameBound::{self, All, AtMost};
use super::frame_input::FrameInput;
use super::frame_workers::{FrameWorkers, WorkerThreads};
use super::msgp::{self, AtOnce, MsgP};
use super::select::ThreadConfig;
use crate::place::pcb::{ConnectionLocks, LockPlan};
use crate::place::{Contents, Habits};
use crate::shared::Shared;

use ReceiveMode::{Hard, Polling};

/// The most frames that wait for a soft-interrupt thread (NetBSD: `IFQ_MAXLEN`).
const QUEUE_LIMIT: usize = 256;

/// The declaration of this architecture.
pub const DECLARATION: Declaration<SoftintVariant> = Declaration {
    name: "softint",
    options: "[:1|4|16|64|all][+polling]",
    variants: VARIANTS.split_at(2).0,
    unlisted: VARIANTS.split_at(2).1,
    default: 0,
    numbers: None,
    faults: &[],
    properties: Properties { own_threads: true, complexity: 5, ..msgp::DECLARATION.properties },
    exceptions: &[],
    rows: &[
        TableRow {
            names: "`softint`, `:1`, `:4`, `:64`, `:all`",
            cell: "a connection",
            exclusive_use: "global table lock, then connection lock; a frame waits in the bounded queue of its CPU before",
            thread: "soft-interrupt thread of the CPU that receives the frame; a hard handler takes at most 16 (or N) frames \
                     for it; callers",
            table: "global, locked",
            order: "queue",
        },
        TableRow {
            names: "`softint+polling`",
            cell: "the same",
            exclusive_use: "global table lock, then connection lock",
            thread: "the thread that polls, which lets others run after at most 16 (or N) frames; callers",
            table: "the same",
            order: "structure",
        },
    ],
};

/// Lists have the first two alone: the others differ in the number of frames.
const VARIANTS: &[Variant<SoftintVariant>] = &[
    Variant::new("softint", Some("softint:16"), HARD, (AtMost(16), Hard)),
    Variant::new("softint+polling", Some("softint:16+polling"), POLLING, (AtMost(16), Polling)),
    Variant::new("softint:1", None, HARD, (AtMost(1), Hard)),
    Variant::new("softint:4", None, HARD, (AtMost(4), Hard)),
    Variant::new("softint:64", None, HARD, (AtMost(64), Hard)),
    Variant::new("softint:all", None, HARD, (All, Hard)),
    Variant::new("softint:1+polling", None, POLLING, (AtMost(1), Polling)),
    Variant::new("softint:4+polling", None, POLLING, (AtMost(4), Polling)),
    Variant::new("softint:64+polling", None, POLLING, (AtMost(64), Polling)),
    Variant::new("softint:all+polling", None, POLLING, (All, Polling)),
];

const HARD: &str =
    "as msgp:1, but each frame waits for its CPU's thread; a hard handler takes a bounded number of them";
const POLLING: &str = "as msgp:1, but a thread that polls lets others run after a bounded number of frames";

/// The number of frames taken at once, and the thread that takes them.
pub type SoftintVariant = (FrameBound, ReceiveMode);

/// Which thread takes frames from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReceiveMode {
    /// A hard handler, which leaves them to the soft-interrupt thread.
    Hard,
    /// The soft-interrupt thread.
    Polling,
}

/// A queue and a soft-interrupt thread for each CPU; or no such threads, and receive threads do their work.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    (bound, handler): SoftintVariant,
    ThreadConfig { cpus, own_threads }: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let locks = ConnectionLocks::new(LockPlan::One, shared.lock_kind);
    let msgp = MsgP::<P>::of(shared, (locks, Habits::PLAIN), AtOnce, contents);
    let queues = if handler == Hard { cpus.max(1) } else { 0 };
    let each = usize::from(own_threads);
    let queue = |_| FrameInput::new(shared.lock_kind_between_threads(), each, QUEUE_LIMIT, false);
    let threads = WorkerThreads { name: "heddle-si", each, cpu: 0 };
    FrameWorkers::start(msgp, (0..queues).map(queue).collect(), threads, Some(bound))
}
