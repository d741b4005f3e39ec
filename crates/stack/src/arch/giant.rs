//! One lock around the whole stack: NetBSD's `KERNEL_LOCK`, the x-kernel's master lock.
//!
//! It is [`connp-l`](super::connp_l) with a single group.

use std::sync::Arc;

use sync::Platform;

use super::RunningArchitecture;
use super::connp_l;
use super::declaration::{Declaration, Properties, TableRow, Variant};
use super::lazy_broadcast::Groups;
use super::select::ThreadConfig;
use crate::place::Contents;
use crate::shared::Shared;
use crate::socket::HandlersRun;

/// The declaration of this architecture.
pub const DECLARATION: Declaration<()> = Declaration {
    name: "giant",
    options: "",
    variants: &[Variant { name: "giant", also: None, about: "one lock around the stack", parameter: () }],
    unlisted: &[],
    default: 0,
    numbers: None,
    faults: &[],
    properties: Properties {
        single_thread: false,
        polling_thread_owns: false,
        has_locks: true,
        groups: false,
        own_threads: false,
        keeps_batches_together: true,
        handlers: HandlersRun::Inside,
        complexity: 1,
    },
    exceptions: &[],
    rows: &[TableRow {
        names: "`giant`",
        cell: "the stack",
        exclusive_use: "one lock",
        thread: "caller or receive thread",
        table: "plain",
        order: "structure",
    }],
};

/// One cell behind one lock of the stack's kind.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    (): (),
    thread_config: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    connp_l::new(shared, Groups::new(1), thread_config, contents)
}
