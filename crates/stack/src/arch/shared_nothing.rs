//! One cell for each core, application included (Seastar, IX, mTCP).
//!
//! A core is a receive thread: it owns the cell of the flows that its queues receive ([`PolledCell`]), and the transmit queues
//! by which they leave. Segments, timers, handlers and its own calls run to completion on it, one after another, without a
//! lock and without a read-modify-write, and write no line that another core writes. A listener has a replica in each cell,
//! so each core answers the SYNs that it receives. An active open prefers local ports whose flow is received by the core
//! that opens ([`StackConfig::homing`](crate::StackConfig::homing)), and whose cell that core owns.
//!
//! Work for another core's cell is sent to that core as a message, by a ring: a call on its connection, a segment that
//! a device has brought to the wrong core, a change of the listeners. A core that waits for the answer reads its own
//! messages meanwhile, those of all stacks that it polls, or two cores that call each other would wait for ever. The
//! tables of IP are the stack's, behind locks; a connection caches its route, so that its segments use none of them.
//!
//! There are as many cells as receive threads, whatever the number of CPUs: no thread would poll another one. The cell
//! of a receive thread that has ended passes to the next that polls.

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
    name: "shared-nothing",
    options: "",
    variants: &[Variant {
        name: "shared-nothing",
        also: None,
        about: "each receive thread owns a cell, without locks; the application runs on it too",
        parameter: (),
    }],
    unlisted: &[],
    default: 0,
    numbers: None,
    faults: &[],
    properties: Properties {
        single_thread: false,
        polling_thread_owns: true,
        has_locks: false,
        groups: false,
        own_threads: false,
        keeps_batches_together: true,
        handlers: HandlersRun::Inside,
        complexity: 4,
    },
    exceptions: &[],
    rows: &[TableRow {
        names: "`shared-nothing`",
        cell: "the flows of one receive thread",
        exclusive_use: "nothing: that thread owns it; others send messages by rings",
        thread: "the thread that polls, application included",
        table: "private, listeners replicated; local ports chosen so that replies arrive at the same core",
        order: "structure",
    }],
};

/// The flows that one receive thread polls.
pub(super) struct CoreDomain<P: Platform> {
    shared: Arc<Shared<P>>,
    /// The number of the receive thread, and of the cell.
    index: usize,
}

impl<P: Platform> CoreDomain<P> {
    /// The flows of the receive thread of this number.
    pub(super) fn new(shared: &Arc<Shared<P>>, index: usize) -> Self {
        CoreDomain { shared: shared.clone(), index }
    }
}

/// A cell for each receive thread, not owned yet.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    (): (),
    _: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let (slab, cores) = (contents.slab.clone(), shared.links().alarms().threads());
    Arc::new(Cells::of_boxes(shared, cores, false, contents, |index| {
        let cell = boxed(|| Cell::new(shared, &slab, Writers::One));
        boxed(move || PolledCell::new(CoreDomain::new(shared, index), *cell, Mailbox::ring()))
    }))
}

impl<P: Platform> Domain<P> for CoreDomain<P> {
    const WHOLE: bool = false;
    type Counts = ();

    fn is_polled_here(&self) -> bool {
        let alarms = self.shared.links().alarms();
        alarms.is_run_here(self.index) || alarms.has_ended(self.index)
    }

    fn claim(&self) {
        self.shared.links().claim_served(self.index);
    }

    fn release_claims(&self) {
        let links = self.shared.links();
        links.release_served(self.index);
        if links.alarms().has_ended(self.index) {
            // For another thread to take the cell over.
            links.wake_drivers();
        }
    }

    fn wake(&self) {
        let links = self.shared.links();
        if links.alarms().has_ended(self.index) {
            links.wake_drivers();
        } else {
            links.alarms().due_at(self.index, 0);
        }
    }
}
