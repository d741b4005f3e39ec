//! A mistake that is chosen at run time, so that what runs on the platform is compiled once for all of them.
//!
//! All threads of a model, and all of a machine of virtual CPUs, run on one thread of the kernel, which keeps the choice.

use std::cell::Cell;

use sync::PlantedMistake;

use crate::InjectedFault;

/// The mistake of the platform. Threads are identified by the beginning of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// It is correct.
    Nothing,
    /// A thread of the first kind does not wake those of the second.
    NoWake(&'static str, &'static str),
    /// A thread of this kind sleeps without a last check.
    BlindSleep(&'static str),
    /// Updates are two steps.
    TornUpdate,
    /// The code above the seam makes this one.
    Above(PlantedMistake),
}

thread_local! {
    static MISTAKE: Cell<Mistake> = const { Cell::new(Mistake::Nothing) };
}

/// From now on this mistake is made.
pub fn choose(mistake: Mistake) {
    MISTAKE.set(mistake);
}

/// The mistake that was chosen.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChosenFault;

impl InjectedFault for ChosenFault {
    fn no_wake() -> Option<(&'static str, &'static str)> {
        match MISTAKE.get() {
            Mistake::NoWake(by, of) => Some((by, of)),
            _ => None,
        }
    }
    fn blind_sleep() -> Option<&'static str> {
        match MISTAKE.get() {
            Mistake::BlindSleep(of) => Some(of),
            _ => None,
        }
    }
    fn torn_update() -> bool {
        MISTAKE.get() == Mistake::TornUpdate
    }
    fn makes(mistake: PlantedMistake) -> bool {
        MISTAKE.get() == Mistake::Above(mistake)
    }
}
