//! The owner of a cell that waits for another cell's answer, and a thread that sends to its cell. See `handoff.rs`.
//!
//! Generic over the platform: shuttle runs this here, and loom, which models weak memory, in `tests/loom.rs`.

use std::sync::Arc;

use stack::call::Reply;
use stack::handoff::{OwnerWait, ReplySlot};
use sync::{Atomic, Ordering, Platform, ThreadClass};

/// The owner of a cell waits for an answer that only comes once it has read its own mail.
pub fn mail_while_waiting<P: Platform>() {
    let (slot, wait) = (ReplySlot::<P>::new(), Arc::new(OwnerWait::<P>::default()));
    let mail = Arc::new(P::AtomicBool::new(false));
    let (sends, tells) = (mail.clone(), wait.clone());
    let sender = P::spawn("sender", None, ThreadClass::Application, move || {
        sends.store(true, Ordering::Relaxed);
        tells.interrupt();
    });
    wait.set(Some(slot.clone()));
    let answer = slot.wait_interrupted(|| {
        let found = mail.load(Ordering::Relaxed);
        if found {
            mail.store(false, Ordering::Relaxed);
            slot.fill(Reply::Done);
        }
        found
    });
    assert!(matches!(answer, Reply::Done));
    wait.set(None);
    P::join(sender).expect("the sender ends well");
}
