//! A conformance test of the device contract, for authors of devices to call from a test of their own.
//!
//! [`Conformance`] takes a closure that makes two linked devices (each receives what the other transmits), and checks
//! one [`ContractRule`] after another, each with a new pair and in both directions. A rule is a sentence in the documentation
//! of [`Device`], [`RxQueue`](crate::RxQueue) or [`TxQueue`](crate::TxQueue). Frames are TCP segments over IPv4 and
//! IPv6 with random sequence numbers, which are not coalesced by chance; other frames, such as those that a kernel
//! sends by itself, are ignored.
//!
//! ```
//! use dev::conformance::Conformance;
//! use dev::mem::{MemConfig, pair};
//!
//! Conformance::new(|| pair::<sync::Real>(MemConfig::default())).check().unwrap();
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `mod.rs` | the rules, and the API |
//! | `link.rs` | the two ends of a pair, the frames that cross it |
//! | `carrying.rs` | rules about frames |
//! | `shared.rs` | the rule about frames that others hold, too |
//! | `waiting.rs` | rules about waiting, waking, vanishing and threads |
//!
//! Not checked here: that a descriptor ([`RxQueue::pollable`](crate::RxQueue::pollable)) polls readable, and behaviour
//! in virtual time ([`RxQueue::next_due`](crate::RxQueue::next_due)).

mod carrying;
mod link;
mod shared;
mod waiting;

use std::fmt;
use std::time::Duration;

use self::link::{End, Findings};
use crate::Device;

/// How long a device may take for a required action. Far more than a correct device needs: it only ends a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// A sentence of the contract of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContractRule {
    /// The capabilities are in their ranges, the number of queue pairs is as stated, and they are returned once.
    Capabilities,
    /// A frame arrives as it was sent: each byte, once, on one queue, at any length up to the MTU.
    Intact,
    /// Frames of one flow that were sent by one queue arrive in the order in which they were sent.
    Order,
    /// `receive` appends at most `max` frames, returns how many, and leaves earlier frames in the batch unchanged.
    Batch,
    /// `credit` frames are accepted; a full queue returns frames unchanged, and `transmit_batch` leaves them in order;
    /// no accepted frame is lost.
    Room,
    /// A frame that others hold, too, arrives as any other does; a full queue returns it; and its bytes do not change for the
    /// other holders, before or after.
    Shared,
    /// A frame longer than the MTU does not arrive; it is dropped with a counted reason.
    Size,
    /// The checksum mark of a received frame is right.
    Checksum,
    /// Super-segments arrive with all their data in order, in pieces if the receiver does not coalesce.
    Segmentation,
    /// `wait` returns `TimedOut` if no frame arrived, and `Ready`, at each call, if one did.
    Wait,
    /// A wake ends one wait, the current or the next one; wakes do not accumulate.
    Wake,
    /// A receiver that sleeps is woken by `flush`, and by the notifier if there is one.
    Notify,
    /// A queue reports that its device has gone only after all frames were delivered; then it does not wait.
    Gone,
    /// Queues work on any thread, and buffers may be released on any thread.
    Threads,
}

impl ContractRule {
    /// All rules.
    pub const ALL: &'static [ContractRule] = &[
        ContractRule::Capabilities,
        ContractRule::Intact,
        ContractRule::Order,
        ContractRule::Batch,
        ContractRule::Room,
        ContractRule::Shared,
        ContractRule::Size,
        ContractRule::Checksum,
        ContractRule::Segmentation,
        ContractRule::Wait,
        ContractRule::Wake,
        ContractRule::Notify,
        ContractRule::Gone,
        ContractRule::Threads,
    ];
}

/// A device's violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: ContractRule,
    /// A description that names the device.
    pub what: String,
}

/// The violations of two linked devices; never empty.
#[derive(Clone, PartialEq, Eq)]
pub struct Violations(pub Vec<Violation>);

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the device breaks the contract of dev::Device:")?;
        self.0.iter().try_for_each(|violation| write!(f, "\n  {:?}: {}", violation.rule, violation.what))
    }
}

/// As [`Display`](fmt::Display): it is what a test that unwraps prints.
impl fmt::Debug for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Violations {}

type MakeLink<'a> = Box<dyn FnMut() -> (End, End) + 'a>;

/// The test: see the [module](self). It runs on the calling thread and on threads of its own.
pub struct Conformance<'a> {
    make: MakeLink<'a>,
    without: Vec<ContractRule>,
    patience: Duration,
}

impl fmt::Debug for Conformance<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conformance")
            .field("without", &self.without)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

impl<'a> Conformance<'a> {
    /// A test of the devices made by `make`: two linked ones at each call, not used elsewhere, with queues for at least
    /// 8 frames.
    pub fn new<A, B>(mut make: impl FnMut() -> (A, B) + 'a) -> Conformance<'a>
    where
        A: Device + 'static,
        B: Device + 'static,
    {
        let make = move || {
            let (a, b) = make();
            (End::new(Box::new(a)), End::new(Box::new(b)))
        };
        Conformance { make: Box::new(make), without: Vec::new(), patience: PATIENCE }
    }

    /// Leaves a rule out. The test should state why the device need not keep it.
    pub fn without(mut self, rule: ContractRule) -> Self {
        self.without.push(rule);
        self
    }

    /// How long to wait for a required action, 30 s by default. A correct device causes no such wait.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Checks all rules.
    ///
    /// # Errors
    /// The violations found.
    pub fn check(&mut self) -> Result<(), Violations> {
        let mut violations = Vec::new();
        for rule in ContractRule::ALL.iter().filter(|rule| !self.without.contains(rule)) {
            violations.extend(run(*rule, &mut self.make, self.patience));
        }
        if violations.is_empty() { Ok(()) } else { Err(Violations(violations)) }
    }

    /// Checks one rule.
    ///
    /// # Errors
    /// The violations found.
    pub fn check_one(&mut self, rule: ContractRule) -> Result<(), Violations> {
        let violations = run(rule, &mut self.make, self.patience);
        if violations.is_empty() { Ok(()) } else { Err(Violations(violations)) }
    }
}

/// Checks a rule in both directions. A rule that is broken in one is not checked in the other, to avoid duplicate
/// reports.
fn run(rule: ContractRule, make: &mut MakeLink<'_>, patience: Duration) -> Vec<Violation> {
    let check: fn(End, End, &mut Findings) = match rule {
        ContractRule::Capabilities => carrying::capabilities,
        ContractRule::Intact => carrying::intact,
        ContractRule::Order => carrying::order,
        ContractRule::Batch => carrying::batch,
        ContractRule::Room => carrying::room,
        ContractRule::Shared => shared::shared,
        ContractRule::Size => carrying::size,
        ContractRule::Checksum => carrying::checksum,
        ContractRule::Segmentation => carrying::segmentation,
        ContractRule::Wait => waiting::wait,
        ContractRule::Wake => waiting::wake,
        ContractRule::Notify => waiting::notify,
        ContractRule::Gone => waiting::gone,
        ContractRule::Threads => waiting::threads,
    };
    let mut found = Findings::new(rule, patience);
    let (a, b) = make();
    check(a, b, &mut found);
    if found.violations.is_empty() {
        let (a, b) = make();
        check(b, a, &mut found);
    }
    found.violations
}
