//! What is run on a machine, on top of the crate `stack`: [`pair`], two stacks on a link in memory; [`senders`], one
//! stack that sends by several cards, as in Willmann, Rixner and Cox.

pub mod pair;
pub mod senders;

use std::time::Duration;

use sync::Platform;

use crate::Vsmp;

/// Sleeps in virtual time.
fn nap(time: Duration) {
    let (word, end) = (<Vsmp as Platform>::AtomicU32::default(), Vsmp::now() + time.as_nanos() as u64);
    loop {
        let left = end.saturating_sub(Vsmp::now());
        if left == 0 {
            return;
        }
        Vsmp::futex_wait(&word, 0, Some(Duration::from_nanos(left)));
    }
}
