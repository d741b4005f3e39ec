//! Interrupts as objects (Nakahara 2015, section 4 and appendix A): the vectors of a port, and the processor of each.
//!
//! A worker is a processor, and a poll of a receive queue that finds frames is an interrupt of that queue's vector: moving
//! a vector to another processor moves the polling of its queue to another worker. The paper's interface in our terms:
//!
//! | paper | here |
//! |---|---|
//! | `pci_msi_count`, `pci_msix_count` | [`InterruptKind::most_vectors`] |
//! | `pci_msi_alloc`, `pci_msix_alloc` | [`InterruptController::allocate`]: as many as there are, up to a number |
//! | `..._alloc_exact` | [`InterruptController::allocate_exact`]: all of them, or none |
//! | `..._release` | [`InterruptController::release`] |
//! | `..._establish_xname` | `VectorSet::establish`, with the purpose of the vector, which is its name |
//! | `..._disestablish` | the end of the port, whose `InterruptVector` it is |
//! | `intr_distribute(9)`, `intrctl(8)` | [`SharedBridge::set_affinity`](crate::SharedBridge::set_affinity) and its neighbours |
//!
//! - *MSI-X*: a vector for each receive queue, one for each transmit queue, one for changes of the link (figure 2 of the
//!   paper); each has its own processor.
//! - *MSI*: as many, a power of two, at most 32; but one message address, so they move together.
//! - *INTx*: one line for everything. A port falls back from one to the next if there are not enough vectors, as the
//!   paper's drivers do (section 5.2).
//!
//! A transmit queue has no processor of its own: frames leave by the transmit queue that belongs to their receive
//! queue; otherwise frames could overtake each other when the receive queue moves.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sync::{Atomic, CachePadded, Ordering, Platform};

/// How an interrupt is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterruptKind {
    /// A line.
    Intx,
    /// A message; all vectors of a device have one address, and so one processor.
    Msi,
    /// A message with an address for each vector.
    Msix,
}

impl InterruptKind {
    /// All of them.
    pub const ALL: [InterruptKind; 3] = [InterruptKind::Intx, InterruptKind::Msi, InterruptKind::Msix];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            InterruptKind::Intx => "intx",
            InterruptKind::Msi => "msi",
            InterruptKind::Msix => "msix",
        }
    }

    /// The maximum number of vectors of a device (PCI Local Bus Specification 3.0, section 6.8).
    pub const fn most_vectors(self) -> usize {
        match self {
            InterruptKind::Intx => 1,
            InterruptKind::Msi => 32,
            InterruptKind::Msix => 2048,
        }
    }

    /// Whether each vector has a processor of its own.
    pub const fn moves_one_by_one(self) -> bool {
        matches!(self, InterruptKind::Msix)
    }
}

/// The name of an unknown kind; [`InterruptKind::ALL`] has the known ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownInterruptKind;

impl fmt::Display for UnknownInterruptKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the kinds of interrupts are intx, msi and msix")
    }
}

impl std::error::Error for UnknownInterruptKind {}

impl FromStr for InterruptKind {
    type Err = UnknownInterruptKind;

    fn from_str(name: &str) -> Result<InterruptKind, UnknownInterruptKind> {
        InterruptKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or(UnknownInterruptKind)
    }
}

/// The purpose of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VectorRole {
    /// A receive queue.
    Rx(usize),
    /// A transmit queue.
    Tx(usize),
    /// Changes of the link.
    Link,
    /// All of these.
    Line,
}

impl fmt::Display for VectorRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VectorRole::Rx(queue) => write!(f, "rx{queue}"),
            VectorRole::Tx(queue) => write!(f, "tx{queue}"),
            VectorRole::Link => f.write_str("link"),
            VectorRole::Line => f.write_str("line"),
        }
    }
}

/// The name is not the name of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownVector;

impl FromStr for VectorRole {
    type Err = UnknownVector;

    fn from_str(name: &str) -> Result<VectorRole, UnknownVector> {
        let number = |digits: &str| digits.parse().map_err(|_| UnknownVector);
        match (name, name.split_at_checked(2)) {
            ("link", _) => Ok(VectorRole::Link),
            ("line", _) => Ok(VectorRole::Line),
            (_, Some(("rx", digits))) => Ok(VectorRole::Rx(number(digits)?)),
            (_, Some(("tx", digits))) => Ok(VectorRole::Tx(number(digits)?)),
            _ => Err(UnknownVector),
        }
    }
}

/// The interrupt messages of the processors, from which devices allocate.
#[derive(Debug)]
pub struct InterruptController {
    free: usize,
}

/// Messages of a processor: 256 minus the exceptions (Intel SDM, volume 3, section 6.2).
const OF_A_PROCESSOR: usize = 256 - 32;

/// Vectors that a device has allocated.
#[derive(Debug, PartialEq, Eq)]
pub struct VectorSet {
    kind: InterruptKind,
    allocated: usize,
    established: usize,
}

impl InterruptController {
    /// The controller of a machine with this many processors.
    pub fn new(processors: usize) -> InterruptController {
        InterruptController { free: processors * OF_A_PROCESSOR }
    }

    /// The number of free messages.
    pub fn free(&self) -> usize {
        self.free
    }

    /// Allocates up to `wanted` vectors. `None`: there is no free one.
    pub fn allocate(&mut self, kind: InterruptKind, wanted: usize) -> Option<VectorSet> {
        let most = wanted.min(kind.most_vectors());
        let count = match kind {
            InterruptKind::Intx => most,
            InterruptKind::Msix => most.min(self.free),
            // A power of two, so that the messages differ in their lowest bits only.
            InterruptKind::Msi => [32, 16, 8, 4, 2, 1].into_iter().find(|n| *n <= most && *n <= self.free)?,
        };
        self.allocate_exact(kind, count)
    }

    /// Allocates `wanted` vectors, with MSI the next power of two. `None`: there are too few.
    pub fn allocate_exact(&mut self, kind: InterruptKind, wanted: usize) -> Option<VectorSet> {
        let allocated = if kind == InterruptKind::Msi { wanted.next_power_of_two() } else { wanted };
        // Lines take no message.
        let messages = if kind == InterruptKind::Intx { 0 } else { allocated };
        if wanted == 0 || allocated > kind.most_vectors() || messages > self.free {
            return None;
        }
        self.free -= messages;
        Some(VectorSet { kind, allocated, established: 0 })
    }

    /// Releases vectors.
    pub fn release(&mut self, vectors: VectorSet) {
        if vectors.kind != InterruptKind::Intx {
            self.free += vectors.allocated;
        }
    }
}

impl VectorSet {
    /// The way they are signalled.
    pub fn kind(&self) -> InterruptKind {
        self.kind
    }

    /// Gives the next vector its purpose. `None`: all vectors have one.
    pub(crate) fn establish(&mut self, role: VectorRole, processors: usize) -> Option<InterruptVector> {
        if self.established == self.allocated {
            return None;
        }
        self.established += 1;
        let counts = (0..=processors).map(|_| CachePadded::new(VectorCount::default())).collect();
        Some(InterruptVector { role, counts })
    }
}

/// A vector with a purpose.
pub(crate) struct InterruptVector {
    role: VectorRole,
    /// By worker; the last is the control plane's.
    counts: Box<[CachePadded<VectorCount>]>,
}

/// The worker that polls a receive queue.
struct PollingPlace<P: Platform> {
    /// The worker, or [`NO_WORKER`].
    processor: P::AtomicUsize,
    /// How many times a worker has begun to poll it.
    arrivals: P::AtomicU64,
}

/// No worker has polled yet.
const NO_WORKER: usize = usize::MAX;

/// Written by one worker.
#[derive(Default)]
struct VectorCount {
    interrupts: AtomicU64,
    frames: AtomicU64,
}

impl InterruptVector {
    #[inline]
    fn count(&self, worker: usize, frames: usize) {
        let count = &self.counts[worker];
        count.interrupts.store(count.interrupts.load(Relaxed) + 1, Relaxed);
        count.frames.store(count.frames.load(Relaxed) + frames as u64, Relaxed);
    }
}

/// The vectors of a port.
pub(crate) struct PortVectors<P: Platform> {
    set: VectorSet,
    /// Receive queues, transmit queues, link; or the line alone.
    vectors: Box<[InterruptVector]>,
    /// By receive queue.
    polled: Box<[PollingPlace<P>]>,
}

impl<P: Platform> PortVectors<P> {
    /// Allocates vectors of this kind, or of the next simpler one, for a port with this many queues, and gives them
    /// their purposes.
    pub(crate) fn establish(
        controller: &mut InterruptController,
        kind: InterruptKind,
        queues: usize,
        processors: usize,
    ) -> PortVectors<P> {
        let wanted = 2 * queues + 1;
        let mut set = None;
        if kind == InterruptKind::Msix {
            set = controller.allocate_exact(InterruptKind::Msix, wanted);
        }
        if kind != InterruptKind::Intx {
            set = set.or_else(|| controller.allocate_exact(InterruptKind::Msi, wanted));
        }
        let set = set.or_else(|| controller.allocate_exact(InterruptKind::Intx, 1));
        let mut set = set.unwrap_or(VectorSet { kind: InterruptKind::Intx, allocated: 1, established: 0 });
        let roles: Vec<VectorRole> = match set.kind {
            InterruptKind::Intx => vec![VectorRole::Line],
            InterruptKind::Msi | InterruptKind::Msix => {
                let (rx, tx) = ((0..queues).map(VectorRole::Rx), (0..queues).map(VectorRole::Tx));
                rx.chain(tx).chain([VectorRole::Link]).collect()
            }
        };
        let vectors = roles.into_iter().filter_map(|role| set.establish(role, processors)).collect();
        let polled = |_| PollingPlace { processor: P::AtomicUsize::new(NO_WORKER), arrivals: P::AtomicU64::new(0) };
        PortVectors { set, vectors, polled: (0..queues).map(polled).collect() }
    }

    pub(crate) fn kind(&self) -> InterruptKind {
        self.set.kind
    }

    /// The allocation, to be released.
    pub(crate) fn allocated(&self) -> VectorSet {
        VectorSet { kind: self.set.kind, allocated: self.set.allocated, established: 0 }
    }

    fn at(&self, index: usize) -> &InterruptVector {
        // A line has all purposes.
        self.vectors.get(index).unwrap_or(&self.vectors[0])
    }

    /// An interrupt of a receive queue has taken frames.
    #[inline]
    pub(crate) fn count_received(&self, queue: usize, worker: usize, frames: usize) {
        self.at(queue).count(worker, frames);
    }

    /// Frames were given to a transmit queue.
    #[inline]
    pub(crate) fn count_transmitted(&self, queue: usize, worker: usize, frames: usize) {
        if self.vectors.len() > 1 {
            self.at(self.polled.len() + queue).count(worker, frames);
        }
    }

    /// The link has changed.
    pub(crate) fn count_link(&self, worker: usize) {
        self.at(2 * self.polled.len()).count(worker, 0);
    }

    /// The receive queue is polled by this worker from now on.
    pub(crate) fn arrive(&self, queue: usize, worker: usize) {
        let Some(polled) = self.polled.get(queue) else { return };
        polled.processor.store(worker, Ordering::Relaxed);
        polled.arrivals.fetch_add(1, Ordering::Release);
    }

    /// How many times a worker has begun to poll a receive queue.
    pub(crate) fn arrivals(&self, queue: usize) -> u64 {
        self.polled.get(queue).map_or(0, |polled| polled.arrivals.load(Ordering::Acquire))
    }

    /// Whether there is such a vector.
    pub(crate) fn has(&self, role: VectorRole) -> bool {
        self.vectors.iter().any(|vector| vector.role == role)
    }

    /// The receive queues that move with a vector; `None`: there is no such vector, or it is not for receiving.
    pub(crate) fn moved_with(&self, role: VectorRole) -> Option<std::ops::Range<usize>> {
        if !self.has(role) {
            return None;
        }
        match role {
            VectorRole::Rx(queue) if self.set.kind.moves_one_by_one() => Some(queue..queue + 1),
            VectorRole::Tx(_) | VectorRole::Link if self.set.kind.moves_one_by_one() => None,
            _ => Some(0..self.polled.len()),
        }
    }

    /// All vectors in their current state.
    pub(crate) fn reports(&self, port: &str) -> Vec<InterruptReport> {
        let report = |vector: &InterruptVector| {
            let of = |count: &CachePadded<VectorCount>| {
                let (interrupts, frames) = (count.interrupts.load(Relaxed), count.frames.load(Relaxed));
                InterruptCount { interrupts, frames }
            };
            let queue = match vector.role {
                VectorRole::Rx(queue) => Some(queue),
                VectorRole::Tx(_) | VectorRole::Link if self.set.kind.moves_one_by_one() => None,
                // The vectors of one message address have one processor.
                VectorRole::Tx(_) | VectorRole::Link | VectorRole::Line => Some(0),
            };
            let polled = queue.and_then(|queue| self.polled.get(queue));
            let processor = polled.map_or(NO_WORKER, |polled| polled.processor.load(Ordering::Relaxed));
            InterruptReport {
                port: port.to_owned(),
                role: vector.role,
                kind: self.set.kind,
                processor: (processor != NO_WORKER).then_some(processor),
                by_processor: vector.counts[..vector.counts.len() - 1].iter().map(of).collect(),
            }
        };
        self.vectors.iter().map(report).collect()
    }
}

/// Interrupts of a vector on one processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterruptCount {
    /// Polls that found frames, or batches that were transmitted.
    pub interrupts: u64,
    /// Their frames.
    pub frames: u64,
}

/// The current state of a vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptReport {
    /// Its port.
    pub port: String,
    /// Its purpose.
    pub role: VectorRole,
    /// The way it is signalled.
    pub kind: InterruptKind,
    /// Its processor; `None`: it has none of its own, or its queue is being moved.
    pub processor: Option<usize>,
    /// Counts by processor.
    pub by_processor: Vec<InterruptCount>,
}

impl InterruptReport {
    /// Its name: `vm1:rx0`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.port, self.role)
    }
}

/// Why a vector cannot be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffinityError {
    /// There is no such vector.
    NoVector,
    /// It has no processor of its own: it follows the receive queues.
    Follows,
    /// There is no such processor, or its worker has ended.
    NoProcessor,
    /// The processor takes no interrupts.
    Shielded,
    /// The bridge has one thread.
    OneThread,
    /// No other processor takes interrupts.
    Last,
}

impl fmt::Display for AffinityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AffinityError::NoVector => "there is no such vector; `heddle intrctl list` shows them",
            AffinityError::Follows => {
                "this vector has no CPU of its own, because frames are sent by the worker that receives them; move rx vectors"
            }
            AffinityError::NoProcessor => "there is no such CPU: workers are the CPUs, numbered from 0",
            AffinityError::Shielded => "that CPU takes no interrupts; allow it with `heddle intrctl intr`",
            AffinityError::OneThread => "this bridge has one thread, like NetBSD's GENERIC kernel; use mpsafe or rcu",
            AffinityError::Last => "no other CPU takes interrupts",
        })
    }
}

impl std::error::Error for AffinityError {}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;

    #[test]
    fn vectors_are_allocated_and_released() {
        let mut controller = InterruptController::new(1);
        let all = controller.free();
        assert_eq!(controller.allocate_exact(InterruptKind::Msix, all + 1), None);
        let most = controller.allocate(InterruptKind::Msix, 4000).expect("what there is");
        assert_eq!((most.allocated, controller.free()), (all, 0));
        assert_eq!(controller.allocate(InterruptKind::Msi, 1), None);
        assert!(controller.allocate_exact(InterruptKind::Intx, 1).is_some(), "a line takes no message");
        controller.release(most);
        let some = controller.allocate(InterruptKind::Msi, 7).expect("messages");
        assert_eq!((some.allocated, controller.free()), (4, all - 4), "a power of two");
        assert_eq!(controller.allocate_exact(InterruptKind::Msi, 5).map(|set| set.allocated), Some(8));
        assert_eq!(controller.allocate_exact(InterruptKind::Msi, 33), None);
    }

    #[test]
    fn a_port_falls_back_to_what_there_is() {
        let mut controller = InterruptController::new(1);
        let mut kind_of = |kind, queues| {
            let vectors = PortVectors::<Real>::establish(&mut controller, kind, queues, 2);
            (vectors.kind(), vectors.reports("p").len())
        };
        assert_eq!(kind_of(InterruptKind::Msix, 100), (InterruptKind::Msix, 201));
        assert_eq!(kind_of(InterruptKind::Msix, 12), (InterruptKind::Intx, 1), "23 messages are left");
        assert_eq!(kind_of(InterruptKind::Msix, 8), (InterruptKind::Msix, 17));
        assert_eq!(kind_of(InterruptKind::Msi, 2), (InterruptKind::Intx, 1), "eight messages are needed");
        assert_eq!(kind_of(InterruptKind::Msi, 1), (InterruptKind::Msi, 3));
    }

    #[test]
    fn vectors_have_names() {
        for role in [VectorRole::Rx(0), VectorRole::Tx(12), VectorRole::Link, VectorRole::Line] {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        for wrong in ["", "r", "rx", "rxx", "ry1", "links"] {
            assert_eq!(wrong.parse::<VectorRole>(), Err(UnknownVector), "{wrong}");
        }
    }

    #[test]
    fn what_moves_together_is_a_matter_of_the_kind() {
        let moved = |kind, role| {
            let mut controller = InterruptController::new(1);
            PortVectors::<Real>::establish(&mut controller, kind, 4, 2).moved_with(role)
        };
        assert_eq!(moved(InterruptKind::Msix, VectorRole::Rx(2)), Some(2..3));
        assert_eq!(moved(InterruptKind::Msix, VectorRole::Tx(2)), None);
        assert_eq!(moved(InterruptKind::Msi, VectorRole::Rx(2)), Some(0..4));
        assert_eq!(moved(InterruptKind::Intx, VectorRole::Rx(2)), None);
        assert_eq!(moved(InterruptKind::Intx, VectorRole::Line), Some(0..4));
    }
}
