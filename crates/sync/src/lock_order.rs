//! The lock-order check of debug builds: each thread's list of held locks, and the rule a new one must keep.
//!
//! Called by [`Lock`](crate::Lock) before it waits and after it has the lock. A lock obtained by `try_lock` is listed
//! but not checked: a thread that does not wait cannot close a cycle. What may never happen: a cost in release builds,
//! or a check that is skipped because the list is full.

use std::cell::{Cell, RefCell};

use crate::platform::model_is_over;
use crate::{LockClass, Platform, walk};

/// A lock's place among locks of its own class, where it has one.
pub(crate) type LockIndex = Option<u32>;

/// One thread's held locks, in the order they were taken, and the one that it waits for.
#[derive(Debug, Default)]
pub struct HeldLocks(RefCell<Vec<(LockClass, LockIndex)>>, Cell<Option<LockClass>>);

impl HeldLocks {
    /// A thread that holds nothing.
    pub const fn new() -> Self {
        Self(RefCell::new(Vec::new()), Cell::new(None))
    }

    /// The classes held, in the order they were taken.
    pub fn classes(&self) -> Vec<LockClass> {
        self.0.borrow().iter().map(|&(class, _)| class).collect()
    }

    /// The class of the lock that the thread tries to take now, or waits for.
    pub fn wanted(&self) -> Option<LockClass> {
        self.1.get()
    }

    fn check(&self, class: LockClass, index: LockIndex) {
        let broken = self.0.borrow().iter().copied().find(|&held| !may_follow(held, (class, index)));
        if let Some((held, held_index)) = broken {
            // The borrow has ended: the panic unwinds through guards that remove themselves from the list.
            panic!("{}", sentence(held, held_index, class, index));
        }
        self.1.set(Some(class));
    }

    fn push(&self, class: LockClass, index: LockIndex) {
        self.0.borrow_mut().push((class, index));
        self.1.set(None);
    }

    fn remove(&self, class: LockClass, index: LockIndex) {
        let mut held = self.0.borrow_mut();
        if let Some(at) = held.iter().rposition(|&entry| entry == (class, index)) {
            held.remove(at);
        }
    }
}

fn may_follow((held, held_index): (LockClass, LockIndex), (class, index): (LockClass, LockIndex)) -> bool {
    held < class || (held == class && matches!((held_index, index), (Some(a), Some(b)) if a < b))
}

fn sentence(held: LockClass, held_index: LockIndex, class: LockClass, index: LockIndex) -> String {
    if held != class {
        return format!(
            "lock order: `{class}` may not be taken while `{held}` is held; \
             take `{class}` first, or release `{held}`"
        );
    }
    match (held_index, index) {
        (Some(held), Some(wanted)) => format!(
            "lock order: `{class}` number {wanted} may not be taken while `{class}` number {held} is held; \
             take locks of one class in rising order of their numbers"
        ),
        _ => format!(
            "lock order: a second `{class}` lock may not be taken while a `{class}` lock is held; \
             take both with lock_nested, in rising order of their numbers"
        ),
    }
}

/// Checks that the calling thread may wait for a lock of this class now.
///
/// # Panics
/// In debug builds, with a message that names both classes, if it may not.
#[inline(always)]
pub(crate) fn waiting<P: Platform>(class: LockClass, index: LockIndex) {
    if cfg!(debug_assertions) && !model_is_over::<P>() {
        P::with_held(|held| held.check(class, index));
    }
}

/// Records that the calling thread now holds the lock.
#[inline(always)]
pub(crate) fn acquired<P: Platform>(class: LockClass, index: LockIndex) {
    if cfg!(debug_assertions) {
        P::with_held(|held| held.push(class, index));
        walk::step(|| walk::WalkStep::Take(class));
    }
}

/// Records that the calling thread no longer holds the lock.
#[inline(always)]
pub(crate) fn released<P: Platform>(class: LockClass, index: LockIndex) {
    if cfg!(debug_assertions) {
        P::with_held(|held| held.remove(class, index));
        walk::step(|| walk::WalkStep::Release(class));
    }
}

/// Asserts that the calling thread holds no lock, at a point where none may be held (`what`: "parking", "copying to
/// the application", ...). Nothing in release builds.
///
/// # Panics
/// In debug builds, naming the innermost lock held, if one is held.
#[inline(always)]
pub fn assert_none_held<P: Platform>(what: &str) {
    if cfg!(debug_assertions) && !model_is_over::<P>() {
        P::with_held(|held| {
            let innermost = held.0.borrow().last().copied();
            if let Some((class, _)) = innermost {
                panic!("lock order: `{class}` is held while {what}; release it first");
            }
        });
    }
}

/// Asserts that the calling thread holds no lock of the stack: none that comes after a user's own locks, up to
/// [`LockClass::UserHandle`], in the order. Where users call, they may hold those. Nothing in release builds.
///
/// # Panics
/// In debug builds, naming the innermost lock of the stack that is held, if there is one.
#[inline(always)]
pub fn assert_only_users_held<P: Platform>(what: &str) {
    if cfg!(debug_assertions) && !model_is_over::<P>() {
        P::with_held(|held| {
            let of_the_stack = |&&(class, _): &&(LockClass, LockIndex)| class > LockClass::UserHandle;
            let innermost = held.0.borrow().iter().rfind(of_the_stack).copied();
            if let Some((class, _)) = innermost {
                panic!("lock order: `{class}` is held while {what}; release it first");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_wanted_until_it_is_held() {
        let locks = HeldLocks::new();
        assert_eq!(locks.wanted(), None);
        locks.check(LockClass::Group, None);
        assert_eq!((locks.wanted(), locks.classes()), (Some(LockClass::Group), vec![]));
        locks.push(LockClass::Group, None);
        assert_eq!((locks.wanted(), locks.classes()), (None, vec![LockClass::Group]));
    }
}
