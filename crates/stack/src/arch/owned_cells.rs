//! The cells that a thread owns because it polls, of all stacks.
//!
//! Such a thread may make a call for which it waits: of another thread's cell in the same stack, or of another stack.
//! While it waits, it reads the messages to every cell that it owns. Otherwise two threads could wait for each other
//! for ever: one owns a cell of stack A and calls stack B, the other one owns a cell of stack B and calls stack A.
//!
//! A thread that becomes an owner enters the cell's stack into a list of its own ([`own`]), and a thread that waits goes
//! through its list ([`answer_of`]). An entry may outlast the ownership: a stack without a cell of the thread has no
//! messages for it. Threads of a simulated machine and of a model share one list, and each reads its own cells only.
//!
//! What may never happen: a thread asleep for an answer with mail in a cell that it owns.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use sync::Platform;

use crate::call::Reply;
use crate::handoff::{Interrupt, ReplySlot};

/// Where an owner waited before, by the index of its cell; see [`OwnedCells::wait_at`].
pub type Waits = Vec<(usize, Option<Arc<dyn Interrupt>>)>;

/// The cells of one stack, for a thread that owns some of them. Called by that thread.
pub trait OwnedCells: Send + Sync {
    /// The calling thread waits at `slot`, which is interrupted from now on when one of its cells gets mail. Returns where
    /// it waited before, further up its stack.
    fn wait_at(&self, slot: &Arc<dyn Interrupt>) -> Waits;

    /// The calling thread waits where it waited before.
    fn wait_again(&self, before: Waits);

    /// Runs the messages to the cells of the calling thread. True: there was something. It does not wait: while the
    /// stack's state moves to another architecture there is nothing to run.
    fn read_mail(&self) -> bool;

    /// Tells every cell, in the order of their indices, what concerns all of them (`Exclusion::hear`). The calling thread
    /// is in no cell.
    fn tell_all(&self);
}

thread_local! {
    static OWNED: RefCell<Vec<Weak<dyn OwnedCells>>> = const { RefCell::new(Vec::new()) };
}

/// The calling thread has become the owner of a cell of `cells`.
pub fn own(cells: &Weak<dyn OwnedCells>) {
    OWNED.with_borrow_mut(|owned| {
        owned.retain(|other| other.strong_count() != 0);
        if !owned.iter().any(|other| Weak::ptr_eq(other, cells)) {
            owned.push(cells.clone());
        }
    });
}

/// Empties the list of the calling thread of the kernel. For a checker that runs one simulated machine after another on it:
/// a machine that ended in a deadlock leaves its stacks behind, and they are none of the next one's.
pub fn forget_all() {
    OWNED.take();
}

/// The stacks in which the calling thread may own a cell. The list is free again when this returns, because the
/// messages that the thread then runs may use it.
fn owned() -> Vec<Arc<dyn OwnedCells>> {
    OWNED.with_borrow(|owned| owned.iter().filter_map(Weak::upgrade).collect())
}

/// Runs the messages to all cells of the calling thread. True: there was something.
pub fn read_mail() -> bool {
    // All of them, also after the first that had something.
    owned().iter().filter(|cells| cells.read_mail()).count() > 0
}

/// Waits for the answer, and meanwhile runs the messages to all cells of the calling thread.
pub fn answer_of<P: Platform>(slot: &Arc<ReplySlot<P>>) -> Reply {
    if slot.is_answered() {
        // By the calling thread itself, where it does the work of all cells.
        return slot.wait();
    }
    let owned = owned();
    let interrupt: Arc<dyn Interrupt> = slot.clone();
    let before: Vec<_> = owned.iter().map(|cells| cells.wait_at(&interrupt)).collect();
    let reply = slot.wait_interrupted(|| owned.iter().filter(|cells| cells.read_mail()).count() > 0);
    for (cells, before) in owned.iter().zip(before) {
        cells.wait_again(before);
    }
    reply
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use sync::Real;

    use super::*;

    /// Cells that count how often their mail is read.
    #[derive(Default)]
    struct Asked {
        times: AtomicUsize,
        have_mail: AtomicBool,
    }

    impl OwnedCells for Asked {
        fn wait_at(&self, _: &Arc<dyn Interrupt>) -> Waits {
            Waits::new()
        }
        fn wait_again(&self, _: Waits) {}
        fn read_mail(&self) -> bool {
            self.times.fetch_add(1, Ordering::Relaxed);
            self.have_mail.swap(false, Ordering::Relaxed)
        }
        fn tell_all(&self) {}
    }

    /// A thread that polls several stacks reads the mail of its cells in all of them, until their stack has gone or the list is
    /// emptied.
    #[test]
    fn a_thread_reads_the_mail_of_all_its_cells() {
        let [first, second] = [(); 2].map(|()| Arc::new(Asked::default()));
        let times = |asked: &Arc<Asked>| asked.times.load(Ordering::Relaxed);
        for cells in [&first, &second, &first] {
            let cells: Weak<dyn OwnedCells> = Arc::<Asked>::downgrade(cells);
            own(&cells);
        }
        first.have_mail.store(true, Ordering::Relaxed);
        assert!(read_mail(), "the first one had some");
        assert!(!read_mail(), "none is left");
        assert_eq!((times(&first), times(&second)), (2, 2));
        drop(first);
        let third: Arc<dyn OwnedCells> = Arc::new(Asked::default());
        own(&Arc::downgrade(&third));
        assert_eq!(OWNED.with_borrow(Vec::len), 2, "the first stack has gone");
        forget_all();
        assert!(!read_mail());
        assert_eq!(times(&second), 2, "it is forgotten");
    }

    /// Has mail for a number of times; the first brings the answer for which the thread waits.
    struct Answers {
        mail: AtomicUsize,
        slot: Arc<ReplySlot<Real>>,
    }

    impl OwnedCells for Answers {
        fn wait_at(&self, _: &Arc<dyn Interrupt>) -> Waits {
            Waits::new()
        }
        fn wait_again(&self, _: Waits) {}
        fn read_mail(&self) -> bool {
            let left = self.mail.load(Ordering::Relaxed);
            self.mail.store(left.saturating_sub(1), Ordering::Relaxed);
            self.slot.fill(Reply::Done);
            left > 0
        }
        fn tell_all(&self) {}
    }

    /// "A thread asleep for an answer with mail in a cell that it owns": it reads until there is none.
    #[test]
    fn a_thread_that_waits_reads_its_mail_until_there_is_none() {
        let slot = ReplySlot::<Real>::new();
        let cells = Arc::new(Answers { mail: AtomicUsize::new(3), slot: slot.clone() });
        let owned: Weak<dyn OwnedCells> = Arc::<Answers>::downgrade(&cells);
        own(&owned);
        assert!(matches!(answer_of(&slot), Reply::Done));
        assert_eq!(cells.mail.load(Ordering::Relaxed), 0, "mail is left");
        forget_all();
    }
}
