//! The platform seam, and the synchronisation built on it: locks, queues, parking.
//!
//! The crate knows no protocol. Each primitive is generic over [`Platform`], so that a model checker explores, and the
//! virtual multiprocessor simulates, the code that ships:
//!
//! | platform | atomics | scheduler |
//! |---|---|---|
//! | [`Real`] | the machine's | the kernel |
//! | `loom::Loom` (feature `loom`) | C11 memory model, every allowed reordering | loom, exhaustively within a bound |
//! | `shuttle::Shuttle` (feature `shuttle`) | sequentially consistent | shuttle, at random or by PCT |
//! | the simulator's (crate `vsmp`) | charged per cache line | virtual time |
//!
//! Types by need:
//!
//! | need | type | file |
//! |---|---|---|
//! | exclusive use, kind chosen at run time | [`Lock`], [`LockKind`], [`LockClass`] | `lock/` |
//! | exclusive use by structure (one thread) | [`ThreadOwned`] | `thread_owned.rs` |
//! | many values, each used by one owner at a time, never moved | [`slab`] | `slab/` |
//! | pass values between threads | [`ring::spsc`], [`ring::Mpsc`] | `ring/` |
//! | sleep until there is work | [`Parker`], [`Condvar`], [`Doorbell`] | one file each |
//! | a second stack for a thread | [`Coroutine`] | `coroutine.rs` |
//! | read without a lock values that a writer frees later | [`Qsbr`], [`SectionReader`] | `qsbr.rs` |
//! | the same for one value that is replaced as a whole | [`RcuCell`] | `rcu_cell.rs` |
//! | read often a value that hardly ever changes | [`Versioned`] | `versioned.rs` |
//! | a part that few of many objects have | [`OnceBox`] | once_cell's |
//! | count holders, of which the last frees | [`ShareCount`], [`UseCount`] | `share_count.rs`, `use_count.rs` |
//! | `Arc` with a count that the platform charges, or that a lock guards | [`CountedRef`] | `counted.rs` |
//! | ask whether an `Arc` has one holder | [`is_unshared`] | `unshared.rs` |
//! | `Arc` without a weak count; its memory is used again by the thread | [`ReusedRef`] | `reused_ref.rs` |
//! | take and return places of an array | [`IndexStack`] | `index_stack.rs` |
//! | pass a point in the order of tickets | [`Turnstile`] | `turnstile.rs` |
//! | a value per thread, summed on demand | [`PerThread`] | `per_thread.rs` |
//! | how often each lock was taken and waited for | [`profile`] | `profile.rs` |
//! | record the steps of one thread | [`walk`] | `walk.rs` |
//! | which lock may be taken under which | [`LockClass`], [`lock_order`] | `lock_class.rs`, `lock_order.rs` |

mod cache_padded;
mod charge;
mod claim_lock;
mod condvar;
mod coroutine;
mod counted;
mod doorbell;
mod forward_atomic;
mod forward_platform;
mod index_stack;
mod lock;
mod lock_class;
pub mod lock_order;
#[cfg(feature = "loom")]
pub mod loom;
#[cfg(any(feature = "loom", feature = "shuttle"))]
mod model_platform;
mod parker;
mod per_thread;
mod platform;
mod prefetch;
pub mod profile;
mod qsbr;
mod rcu_cell;
pub mod real;
mod reused_ref;
pub mod ring;
mod share_count;
#[cfg(feature = "shuttle")]
pub mod shuttle;
pub mod slab;
mod thread_owned;
mod turnstile;
mod unshared;
mod use_count;
mod versioned;
pub mod walk;
mod yield_until;

pub use cache_padded::CachePadded;
pub use charge::{LockStep, Object, Step, ThreadClass};
pub use claim_lock::{ClaimGuard, ClaimLock, Claimed, ClaimedUse};
pub use condvar::Condvar;
pub use coroutine::{Coroutine, Suspender};
pub use counted::{CountedRef, RefCounting};
pub use doorbell::{Armed, DoorbellLike, NoDoorbell};
pub use index_stack::IndexStack;
pub use lock::{Guard, Lock, LockKind, RawLock, UnknownLockKind, raw};
pub use lock_class::{Before, Class, LockClass, class};
/// A box that is made once, in 8 bytes: `OnceLock<Box<T>>` takes 16. If two threads make it at once, one of the two
/// values is dropped, so that no thread waits.
pub use once_cell::race::OnceBox;
pub use parker::Parker;
pub use per_thread::{PerThread, Writers};
pub use platform::{Atomic, CellLike, Integer, PlantedMistake, Platform, model_is_over};
pub use prefetch::{PrefetchHint, prefetch, prefetch_lines};
pub use qsbr::{Qsbr, QsbrReader, ReadSection, SectionReader};
pub use rcu_cell::RcuCell;
pub use real::{Doorbell, Real};
pub use reused_ref::{Reused, ReusedRef, SpareMemory};
pub use share_count::ShareCount;
pub use std::sync::atomic::Ordering;
pub use thread_owned::{NotOwner, OwnerGuard, ThreadOwned};
pub use turnstile::Turnstile;
pub use unshared::is_unshared;
pub use use_count::UseCount;
pub use versioned::{TooManyVersions, Versioned};
pub use yield_until::yield_until;
