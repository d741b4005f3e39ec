//! N threads own the connections (Schmidt and Suda 1995: Connectional Parallelism; Yates et al. 1996).
//!
//! The receive thread demultiplexes *eagerly*: it finds the owner before anything else is done with a segment, and puts
//! it into that thread's queue, a list under a mutex with a condition variable. The owner takes it up through all
//! layers by itself, and no lock is taken above the queue. Connections are distributed over the threads when they begin, by the
//! hash of their flow, and never move (Yates: a static map).
//!
//! The threads are those of [`connp-t`](super::connp_t), except for their number, which does not depend on the number
//! of CPUs. The papers have up to one thread for each connection; their map is a table, so that no two connections
//! share a thread then, where here a hash may give one thread two and another none. In the papers a user's thread
//! carries its data down the stack; here it sends a message, because only the owner may touch the connection.
//!
//! What may never happen: a connection is used by two threads, or waits for a thread that sleeps.

use std::sync::Arc;

use sync::Platform;

use super::RunningArchitecture;
use super::connp_t::{self, Owners, QueueKind};
use super::declaration::{Declaration, NumericOption, Properties, TableRow, Variant};
use super::select::ThreadConfig;
use crate::place::Contents;
use crate::shared::Shared;

/// The declaration of this architecture.
pub const DECLARATION: Declaration<usize> = Declaration {
    name: "conn-thread",
    options: "[:1..1024]",
    variants: &[Variant {
        name: "conn-thread:2",
        also: None,
        about: "a chosen number of threads own connections; the receive thread demultiplexes to them",
        parameter: 2,
    }],
    unlisted: &[],
    default: 0,
    numbers: Some(NumericOption { unit: "threads", least: 1, most: 1024, parameter: usize::from }),
    faults: &[],
    properties: Properties { complexity: 6, ..connp_t::DECLARATION.properties },
    exceptions: &[],
    rows: &[TableRow {
        names: "`conn-thread:N`",
        cell: "the connections of a thread",
        exclusive_use: "message to the owner, as under `connp-t`",
        thread: "one of N threads, whatever the number of CPUs",
        table: "private, listeners replicated",
        order: "queue",
    }],
};

/// `threads` (at least 1) cells with a thread each; or as many cells, with the ticking thread doing their work.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    threads: usize,
    thread_config: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    connp_t::new(shared, Owners::waiting(QueueKind::Mutex), ThreadConfig { cpus: threads, ..thread_config }, contents)
}
