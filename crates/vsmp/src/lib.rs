//! The virtual multiprocessor: the shipped stack on simulated CPUs, in virtual time.
//!
//! [`Vsmp`] is a [`sync::Platform`]. The simulated code is the code that ships: stack, architectures, locks, device
//! rings. Its threads are coroutines on one thread of the kernel. Each virtual CPU has a clock, and steps that are
//! visible to other threads happen in the order of these clocks. Costs advance the clocks ([`Costs`]): plain work that
//! the stack announces, atomic operations, cache lines of other CPUs, wake-ups, switches, system calls. Nothing is
//! measured at run time, and all random choices come from a seed, so two runs of one build are equal operation by
//! operation ([`Account::trace`]).
//!
//! # Map
//!
//! | file | owns |
//! |---|---|
//! | `machine.rs` | [`Machine`]: the run loop, and the operations of its threads |
//! | `state.rs` | the state of a running machine: CPUs, threads, clocks, events |
//! | `scheduling.rs` | the scheduler: run queue, priorities, time slices, sleepers |
//! | `order.rs` | [`Order`]: which CPU goes next; by time, or at random to find bugs |
//! | `coroutine.rs` | the threads' stacks, and the switch |
//! | `memory/` | addresses ([`Arena`]), directory, caches |
//! | `platform.rs`, `word.rs` | [`Vsmp`], and its atomics |
//! | `card.rs`, `capture.rs` | network cards, and the clients at the other end of their wires; their frames as a file |
//! | `test_card.rs` | network cards whose other end offers frames at a rate, and checks those that come back |
//! | `memory_driver.rs` | the in-memory driver of Nahum et al., which plays the remote end |
//! | `costs.rs`, `account.rs`, `ledger.rs` | costs; totals; cycles of each CPU by purpose |
//! | `timeline.rs` | a stretch of a run, moment by moment |
//! | `preset.rs`, `presets/` | machines of the papers, each value with its origin |
//! | `simulation.rs` | a workload on a preset, over several seeds: means with intervals, as a page of text |
//! | `workload/` | workloads: two stacks on a link in memory, the experiments of three papers, receive overload |
//!
//! # What may never happen
//! A call that can let another thread run while the machine's state is borrowed: the state is in a `RefCell`, which
//! only functions of `machine.rs` borrow, and these call nothing outside `state.rs` and `scheduling.rs` meanwhile. A
//! loop that waits for another thread without using the platform: it never ends here.

pub mod account;
mod capture;
pub mod card;
mod coroutine;
pub mod costs;
pub mod ledger;
pub mod machine;
pub mod memory;
pub mod memory_driver;
pub mod order;
mod platform;
pub mod preset;
mod scheduling;
pub mod simulation;
mod state;
pub mod test_card;
pub mod timeline;
mod word;
pub mod workload;

pub use account::Account;
pub use capture::WireCapture;
pub use costs::{Costs, Footprint};
pub use ledger::{Ledger, Part, PartGroup, SwitchKind};
pub use machine::{Failed, Machine, Outcome};
pub use memory::Arena;
pub use order::Order;
pub use platform::{Vsmp, lock_profile};
pub use preset::Preset;
pub use timeline::Timeline;
pub use word::Word;
