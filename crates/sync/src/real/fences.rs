//! Two fences that order each other, one nearly free and one expensive.
//!
//! A sender stores and then checks whether the receiver sleeps; the receiver announces its sleep and then checks once
//! more. Each side needs a full fence between its two steps: the sender for every message, the receiver only before it
//! sleeps. Where the kernel offers membarrier(2), the receiver has it execute the fence on *all* processors that run
//! this process, and the sender needs only a compiler fence.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

const UNKNOWN: u8 = 0;
/// Both sides execute a fence of their own.
const SYMMETRIC: u8 = 1;
/// The heavy side fences for both.
const ASYMMETRIC: u8 = 2;

static WAY: AtomicU8 = AtomicU8::new(UNKNOWN);

const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

#[inline(always)]
pub(super) fn light() {
    // A thread that sees `ASYMMETRIC` was registered before; one that does not executes a full fence, which is always
    // correct.
    if WAY.load(Ordering::Relaxed) == ASYMMETRIC { compiler_fence(Ordering::SeqCst) } else { fence(Ordering::SeqCst) }
}

/// The heavy side always has the decision: it sees `ASYMMETRIC` if a light side did.
pub(super) fn heavy() {
    fence(Ordering::SeqCst);
    decide();
    if WAY.load(Ordering::SeqCst) == ASYMMETRIC && !membarrier(PRIVATE_EXPEDITED) {
        // A child of fork(2) must register again.
        let again = membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED);
        assert!(again, "membarrier worked before and does not now: allow the system call (seccomp), or never");
    }
}

/// The first thread that is given a number decides for the process, or the first heavy fence: before it, no thread can
/// have seen `ASYMMETRIC`. If two threads are first at once, one decides. A light side that has not seen the decision
/// executes a full fence, and makes no call, so that its caller's registers are preserved.
#[cold]
pub(super) fn decide() {
    if WAY.load(Ordering::Relaxed) != UNKNOWN {
        return;
    }
    let way = if membarrier(REGISTER_PRIVATE_EXPEDITED) { ASYMMETRIC } else { SYMMETRIC };
    let _ = WAY.compare_exchange(UNKNOWN, way, Ordering::SeqCst, Ordering::SeqCst);
}

fn membarrier(command: libc::c_int) -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: the call takes no pointer.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// Store, fence, load, on both sides: at least one sees the other (Dekker's test), whichever way was chosen.
    #[test]
    fn one_of_two_sees_the_other() {
        const ROUNDS: u32 = 2_000;
        heavy();
        let (light_word, heavy_word) = (AtomicU32::new(0), AtomicU32::new(0));
        let gate = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                (1..=ROUNDS)
                    .map(|round| {
                        gate.wait();
                        light_word.store(round, Ordering::Relaxed);
                        light();
                        heavy_word.load(Ordering::Relaxed) == round
                    })
                    .collect::<Vec<bool>>()
            });
            let receiver: Vec<bool> = (1..=ROUNDS)
                .map(|round| {
                    gate.wait();
                    heavy_word.store(round, Ordering::Relaxed);
                    heavy();
                    light_word.load(Ordering::Relaxed) == round
                })
                .collect();
            let sender = sender.join().expect("the sender ends");
            assert!(sender.iter().zip(&receiver).all(|(one, other)| *one || *other));
        });
    }
}
