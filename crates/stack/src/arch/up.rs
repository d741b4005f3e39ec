//! One thread, no lock (Willmann's UP).
//!
//! The stack is one cell, which belongs to the thread that polls ([`PolledCell`]). The thread that first ticks owns the stack
//! from then on, with the transmit queues and the tables of IP. A call by any other thread costs a message, and the
//! one-thread rule holds.

use std::sync::Arc;

use sync::{Platform, Writers};

use super::RunningArchitecture;
use super::cells::Cells;
use super::declaration::{Declaration, Properties, TableRow, Variant};
use super::mailbox::Mailbox;
use super::polled::{Domain, PolledCell};
use super::select::ThreadConfig;
use crate::place::{Cell, Contents};
use crate::shared::{Shared, boxed};
use crate::socket::HandlersRun;

/// The declaration of this architecture.
pub const DECLARATION: Declaration<()> = Declaration {
    name: "up",
    options: "",
    variants: &[Variant {
        name: "up",
        also: None,
        about: "one thread owns the stack, without locks; others send it messages",
        parameter: (),
    }],
    unlisted: &[],
    default: 0,
    numbers: None,
    faults: &[],
    properties: Properties {
        single_thread: true,
        polling_thread_owns: true,
        has_locks: false,
        groups: false,
        own_threads: false,
        keeps_batches_together: true,
        handlers: HandlersRun::Inside,
        complexity: 0,
    },
    exceptions: &[],
    rows: &[TableRow {
        names: "`up`",
        cell: "the stack",
        exclusive_use: "nothing: one thread owns it; others send messages",
        thread: "the thread that polls",
        table: "plain",
        order: "structure",
    }],
};

/// The whole stack.
struct WholeStack<P: Platform>(Arc<Shared<P>>);

/// One cell, not owned yet.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    (): (),
    _: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let slab = contents.slab.clone();
    Arc::new(Cells::of_boxes(shared, 1, false, contents, |_| {
        let mailbox = Mailbox::list(shared.lock_kind_between_threads());
        let cell = boxed(|| Cell::new(shared, &slab, Writers::One));
        boxed(move || PolledCell::new(WholeStack(shared.clone()), *cell, mailbox))
    }))
}

impl<P: Platform> Domain<P> for WholeStack<P> {
    const WHOLE: bool = true;
    type Counts = ();

    fn is_polled_here(&self) -> bool {
        true
    }

    fn claim(&self) {
        self.0.claim();
    }

    fn release_claims(&self) {
        self.0.release_claims();
    }

    fn wake(&self) {
        self.0.links().wake_drivers();
    }
}
