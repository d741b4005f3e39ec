//! The platform that is explored: virtual CPUs, memory that checks its own accesses, sleeps without time-outs, and the
//! mistake that was chosen, if any.

use std::cell::{Cell, UnsafeCell};

use planted::{ChosenFault, Planted};
use sync::{CellLike, NoDoorbell, Ordering, Platform};
use testbed::over::Patient;
use vsmp::Vsmp;

/// The platform of the scenes: correct until a mistake is chosen.
pub type Explored = Planted<Patient<Watched>, ChosenFault>;

/// Virtual CPUs with [`WatchedCell`]s: two threads in one cell of the stack are found (G1).
#[derive(Clone, Copy, Debug, Default)]
pub struct Watched;

impl Platform for Watched {
    sync::forward_platform!(Vsmp: atomics futex join spawn spin now random thread runs priority fences held);

    const EXPLORED: bool = true;
    const TURNS_BEFORE_SLEEP: u32 = 0;
    type Cell<T> = WatchedCell<T>;
    type Doorbell = NoDoorbell<Self>;
}

/// Memory that checks its own accesses: several readers or one writer at a time, with a visible step in the middle of
/// each.
#[derive(Debug)]
pub struct WatchedCell<T> {
    /// Readers inside, or -1 for a writer. All threads of a machine run on one thread of the kernel.
    inside: Cell<i32>,
    value: UnsafeCell<T>,
}

/// Ends an access, also on panic.
struct Access<'a>(&'a Cell<i32>, i32);

impl<'a> Access<'a> {
    fn begin(inside: &'a Cell<i32>, change: i32) -> Access<'a> {
        if std::thread::panicking() {
            // The run has failed and is unwinding, so accesses are no longer checked.
            return Access(inside, 0);
        }
        let free = if change > 0 { inside.get() >= 0 } else { inside.get() == 0 };
        assert!(free, "data race: a cell is written while another thread uses it");
        inside.set(inside.get() + change);
        Vsmp::fence(Ordering::Relaxed);
        Access(inside, change)
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - self.1);
    }
}

impl<T> CellLike<T> for WatchedCell<T> {
    fn new(value: T) -> Self {
        WatchedCell { inside: Cell::new(0), value: UnsafeCell::new(value) }
    }

    fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        let _access = Access::begin(&self.inside, 1);
        read(self.value.get())
    }

    fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        let _access = Access::begin(&self.inside, -1);
        write(self.value.get())
    }

    fn into_inner(self) -> T {
        self.value.into_inner()
    }
}
