//! Reading a recorded walk: the locks that a thread took, those that it held then, and its events, messages and
//! wake-ups.

use sync::LockClass;
use sync::walk::WalkStep;

use crate::scene::WAKES;

/// A kind of step in a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A lock is taken.
    Takes(LockClass),
    /// A lock is released; it is not held any more.
    Releases(LockClass),
    /// An event of TCP is run on a connection.
    Runs,
    /// A message is put into another thread's queue.
    HandsOver,
    /// A thread that sleeps is woken.
    Wakes,
}

/// One moment of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    pub what: What,
    /// The locks that are held, outermost first; those of devices and of users' sockets are left out.
    pub held: Vec<LockClass>,
}

/// The locks of the architecture are those of the stack's tables, connections and queues. Locks of devices and of
/// sockets' users are not.
fn counts(class: LockClass) -> bool {
    !matches!(class, LockClass::DeviceTx | LockClass::SocketBuffer | LockClass::AcceptQueue)
}

/// The moments of a walk.
pub fn moments(steps: &[WalkStep]) -> Vec<Moment> {
    let mut held: Vec<LockClass> = Vec::new();
    let mut moments = Vec::new();
    for step in steps {
        let what = match step {
            WalkStep::Take(class) if counts(*class) => What::Takes(*class),
            WalkStep::Release(class) if counts(*class) => {
                let place = held.iter().rposition(|other| other == class).expect("a lock that was taken");
                held.remove(place);
                What::Releases(*class)
            }
            WalkStep::Note { text, .. } if *text == WAKES => What::Wakes,
            WalkStep::Note { text, .. } if text.starts_with("runs the event") => What::Runs,
            WalkStep::HandOff => What::HandsOver,
            _ => continue,
        };
        moments.push(Moment { what, held: held.clone() });
        if let What::Takes(class) = what {
            held.push(class);
        }
    }
    moments
}

/// The classes of the locks that a walk takes, in order.
pub fn taken(moments: &[Moment]) -> Vec<LockClass> {
    moments
        .iter()
        .filter_map(|moment| match moment.what {
            What::Takes(class) => Some(class),
            _ => None,
        })
        .collect()
}

/// The number of matching steps.
pub fn count(moments: &[Moment], what: What) -> usize {
    moments.iter().filter(|moment| moment.what == what).count()
}

/// The locks held whenever an event is run.
pub fn held_by_events(moments: &[Moment]) -> Vec<&[LockClass]> {
    moments.iter().filter(|moment| moment.what == What::Runs).map(|moment| &moment.held[..]).collect()
}

/// The locks of connections that a walk takes, in order, each with the locks held then.
pub fn connection_locks(moments: &[Moment]) -> Vec<(LockClass, &[LockClass])> {
    let of_connection = |class: LockClass| (LockClass::PcbHeaderIn..=LockClass::PcbHeaderOut).contains(&class);
    moments
        .iter()
        .filter_map(|moment| match moment.what {
            What::Takes(class) if of_connection(class) => Some((class, &moment.held[..])),
            _ => None,
        })
        .collect()
}
