//! Waiting of two threads that answer each other: a thread gives up its processor a few times before it sleeps.
//!
//! Sleeping and waking cost two system calls and a pass through the scheduler on each side. A thread that is answered
//! within microseconds, as the caller of a protocol thread under load is, saves them: if the other thread runs on
//! another processor, its answer is seen between two turns; if it waits for this processor, a turn gives it. What may
//! never happen: a turn taken instead of the sleep. The caller still sleeps, by its own protocol, when this returns false.

use crate::Platform;

/// Gives up the processor until `ready` returns true, at most [`Platform::TURNS_BEFORE_SLEEP`] times. False: `ready` has
/// not returned true, and the caller should sleep.
#[inline]
pub fn yield_until<P: Platform>(mut ready: impl FnMut() -> bool) -> bool {
    for _ in 0..P::TURNS_BEFORE_SLEEP {
        if ready() {
            return true;
        }
        P::yield_now();
    }
    ready()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Real;

    #[test]
    fn a_condition_that_holds_costs_no_turn_and_one_that_never_holds_ends() {
        let asked = Cell::new(0_u32);
        assert!(yield_until::<Real>(|| {
            asked.set(asked.get() + 1);
            true
        }));
        assert_eq!(asked.replace(0), 1);
        let never = yield_until::<Real>(|| {
            asked.set(asked.get() + 1);
            false
        });
        assert_eq!((never, asked.get()), (false, Real::TURNS_BEFORE_SLEEP + 1));
    }

    #[test]
    fn it_ends_with_the_turn_after_which_the_condition_holds() {
        let mut asked = 0;
        let met = yield_until::<Real>(|| {
            asked += 1;
            asked == 3
        });
        assert_eq!((met, asked), (true, 3));
    }
}
