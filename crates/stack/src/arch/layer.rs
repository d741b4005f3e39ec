//! A thread for each layer, with queues between them: the alternative to message-based architectures in Schmidt and
//! Suda (1995, section 2), processes associated "with protocol layers or protocol tasks".
//!
//! # Model
//! The receive thread is the link's: it takes frames from the device, and puts them, without examining them, into the
//! queue of IP. One thread is IP's: it checks a packet, answers what concerns IP itself, and sends the segment or
//! datagram that the packet carries as a message to the thread of the transport protocols. That one owns all
//! connections and sockets, in one cell that no other thread touches: no lock guards a connection. The application's
//! thread sends its calls as messages, and the data of a stream over a channel.
//!
//! Each queue is bounded. A frame that finds the queue of IP full, and a segment that finds that of the transport protocols
//! full, is dropped and counted; a caller waits.
//!
//! # Order
//! One thread per layer takes messages from the front of its queue, so packets of all connections keep the order of the
//! device.
//!
//! # Simplifications
//! TCP and UDP are one layer with one thread. Downwards, the thread of the transport protocols puts IP and link headers in
//! front of a segment itself, from a template that its connection keeps, and puts the frame into the device's transmit queue,
//! which is the queue to the link. A presentation layer is above the stack, in the application.
//!
//! What may never happen: a thread of one layer waits for the one above; a connection is used by a thread other than
//! its layer's.

use std::sync::Arc;

use sync::Platform;

use super::RunningArchitecture;
use super::connp_t::{self, Owners, QueueKind};
use super::declaration::{Declaration, Properties, TableRow, Variant};
use super::frame_input::FrameInput;
use super::frame_workers::{FrameWorkers, WorkerThreads};
use super::select::ThreadConfig;
use crate::place::Contents;
use crate::shared::Shared;

/// The most frames that wait for the thread of IP.
const QUEUE_LIMIT: usize = 4096;

/// The declaration of this architecture.
pub const DECLARATION: Declaration<()> = Declaration {
    name: "layer",
    options: "",
    variants: &[Variant {
        name: "layer",
        also: None,
        about: "a thread for each layer: link, IP, and one that owns all connections; messages between them",
        parameter: (),
    }],
    unlisted: &[],
    default: 0,
    numbers: None,
    faults: &[],
    properties: Properties { complexity: 6, ..connp_t::DECLARATION.properties },
    exceptions: &[],
    rows: &[TableRow {
        names: "`layer`",
        cell: "all connections",
        exclusive_use: "message to the owner, as under `connp-t`; a frame waits in the bounded queue of IP before",
        thread: "receive thread: frames; one thread: IP; one thread: TCP and UDP",
        table: "private",
        order: "queue",
    }],
};

/// A thread for IP and one for the transport protocols; or neither, and receive threads do their work.
pub fn new<P: Platform>(
    shared: &Arc<Shared<P>>,
    (): (),
    ThreadConfig { own_threads, .. }: ThreadConfig,
    contents: Box<Contents<P>>,
) -> Arc<dyn RunningArchitecture<P>> {
    let transport =
        connp_t::cells(shared, Owners::waiting(QueueKind::Ring), ThreadConfig { cpus: 1, own_threads }, contents);
    let each = usize::from(own_threads);
    let input = FrameInput::new(shared.lock_kind_between_threads(), each, QUEUE_LIMIT, false);
    // Beside the thread of the transport protocols, which is on CPU 0.
    let threads = WorkerThreads { name: "heddle-ip", each, cpu: 1 };
    FrameWorkers::start(transport, Box::new([input]), threads, None)
}
