//! The planted bugs: one for each kind that the search must find. Some are planted in the shipped stack, from below (by
//! the platform or the device) or where [`sync::PlantedMistake`] says; two are mistakes in the use of a count, in small,
//! because the stack leaves such counts to the standard library.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use dev::{Capabilities, Device, QueuePair, TxQueue};
use pktbuf::PktBuf;
use planted::{Mistake, choose};
use stack::Architecture;
use sync::{Atomic, Ordering, PlantedMistake, Platform, ShareCount};

use crate::models::{arrival_order, connection, crowd};
use crate::platform::Explored;
use crate::scene::{caller, join};
use crate::{Model, invariants};

/// A bug, and the scene that must show it.
pub struct Bug {
    pub name: &'static str,
    /// Where it is planted.
    pub planted: &'static str,
    arch: &'static str,
    mistake: Mistake,
    pub model: Model,
}

impl Bug {
    /// The architecture that the scene has.
    pub fn arch(&self) -> Architecture {
        self.arch.parse().expect("an architecture")
    }

    /// The mistake of the platform.
    pub fn mistake(&self) -> Mistake {
        self.mistake
    }
}

/// All of them.
pub const ALL: [Bug; 9] = [
    Bug {
        name: "lost wake-up",
        planted: "the protocol thread of connp-t sleeps without a last look at its queue",
        arch: "connp-t",
        mistake: Mistake::BlindSleep("heddle-pt"),
        model: |arch, _| crowd::<Explored>(arch),
    },
    Bug {
        name: "owner not announced",
        planted: "the receive thread of connp-t tells no owner of what it has queued",
        arch: "connp-t",
        mistake: Mistake::NoWake("receiver", "heddle-pt"),
        model: |arch, _| connection::<Explored>(arch),
    },
    Bug {
        name: "missing reference",
        planted: "an object is handed to a thread that counts itself only when it has it",
        arch: "up",
        mistake: Mistake::Nothing,
        model: |_, _| missing_reference(),
    },
    Bug {
        name: "reordering",
        planted: "frames of msgp:1 wait by thread until the device is notified of them",
        arch: "msgp:1",
        mistake: Mistake::Nothing,
        model: |arch, ends| invariants::exchange(arch, ends, |device| Box::new(Overtaken(device))),
    },
    Bug {
        name: "double free",
        planted: "two threads that close look at the mark of the first in one step and set it in another",
        arch: "up",
        mistake: Mistake::Nothing,
        model: |_, _| double_free(),
    },
    Bug {
        name: "close forgets a replica",
        planted: "closing a listener of connp-l:4 leaves out the last group",
        arch: "connp-l:4",
        mistake: Mistake::Nothing,
        model: |arch, ends| {
            invariants::close(arch, ends, || choose(Mistake::Above(PlantedMistake::ForgottenReplica)));
        },
    },
    Bug {
        name: "look-up without reference",
        planted: "the look-up of msgp:1 drops the table lock before it has a reference",
        arch: "msgp:1",
        mistake: Mistake::Above(PlantedMistake::LookUpWithoutReference),
        model: invariants::abort,
    },
    Bug {
        name: "late ticket",
        planted: "a worker of msgp-pool draws its ticket after it has released the lock of the input",
        arch: "msgp-pool",
        mistake: Mistake::Above(PlantedMistake::TicketAfterRelease),
        model: |arch, _| arrival_order::<Explored>(arch),
    },
    Bug {
        name: "no ticket",
        planted: "workers of msgp-pool race for their connection, as in msgp-pool+unordered",
        arch: "msgp-pool+unordered",
        mistake: Mistake::Nothing,
        model: |arch, _| arrival_order::<Explored>(arch),
    },
];

/// An object with a count of holders.
struct Shared {
    holders: ShareCount<Explored>,
    /// The last holder has freed it.
    freed: AtomicBool,
    handed_over: <Explored as Platform>::AtomicBool,
}

impl Shared {
    fn new() -> Arc<Shared> {
        let handed_over = <Explored as Platform>::AtomicBool::new(false);
        Arc::new(Shared { holders: ShareCount::new(), freed: AtomicBool::new(false), handed_over })
    }

    fn share(&self) {
        assert!(!self.freed.load(Relaxed), "an object is shared after it has been freed");
        self.holders.share();
    }

    fn release(&self) {
        if self.holders.release() {
            assert!(!self.freed.swap(true, Relaxed), "an object is freed twice");
        }
    }
}

/// The thread that passes the object on should have counted the receiver as a holder.
fn missing_reference() {
    let object = Shared::new();
    let given = object.clone();
    let gets = caller(move || {
        while !given.handed_over.load(Ordering::Acquire) {
            Explored::yield_now();
        }
        given.share();
        given.release();
    });
    object.handed_over.store(true, Ordering::Release);
    object.release();
    join(gets);
}

/// Closing should set its mark and learn whether it was set in one step.
fn double_free() {
    let object = Shared::new();
    object.share();
    let closers = [0, 1].map(|_| {
        let object = object.clone();
        caller(move || {
            if !object.handed_over.load(Ordering::Acquire) {
                object.handed_over.store(true, Ordering::Release);
                assert!(!object.freed.swap(true, Relaxed), "an object is freed twice");
            }
        })
    });
    closers.into_iter().for_each(join);
}

/// A device that keeps each thread's frames in a separate queue until that thread flushes it, so that frames do not
/// leave in the order in which the connection transmitted them.
struct Overtaken(Box<dyn Device>);

impl Device for Overtaken {
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        let keep = |pair: QueuePair| {
            let tx = Box::new(OvertakenTx { tx: pair.tx, kept: Vec::new() });
            QueuePair { rx: pair.rx, tx }
        };
        self.0.take_queues().into_iter().map(keep).collect()
    }
}

struct OvertakenTx {
    tx: Box<dyn TxQueue>,
    /// Frames, each with the thread that gave it.
    kept: Vec<(usize, PktBuf)>,
}

impl TxQueue for OvertakenTx {
    fn credit(&self) -> usize {
        self.tx.credit().saturating_sub(self.kept.len())
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        self.kept.push((Explored::thread_index(), frame));
        Ok(())
    }

    fn flush(&mut self) {
        let me = Explored::thread_index();
        self.kept.sort_by_key(|(thread, _)| *thread != me);
        for (_, frame) in self.kept.drain(..) {
            assert!(self.tx.transmit(frame).is_ok(), "there was credit");
        }
        self.tx.flush();
    }
}
