//! Random numbers from the kernel, fetched a batch at a time.

use std::cell::Cell;

const BATCH: usize = 32;

thread_local! {
    static DRAWN: Cell<([u64; BATCH], usize)> = const { Cell::new(([0; BATCH], 0)) };
}

/// The next 64 bits. Unpredictable even to an observer of all the others.
pub(super) fn next() -> u64 {
    let (mut batch, left) = DRAWN.get();
    let left = if left == 0 { refill(&mut batch) } else { left } - 1;
    // A returned number is erased, so that it cannot be read back.
    let number = std::mem::take(&mut batch[left]);
    DRAWN.set((batch, left));
    number
}

#[cold]
fn refill(batch: &mut [u64; BATCH]) -> usize {
    loop {
        // SAFETY: the kernel writes at most the size of the batch, into the batch; any bytes are valid integers.
        let got = unsafe { libc::getrandom(batch.as_mut_ptr().cast(), size_of_val(batch), 0) };
        // Requests of 256 bytes and less are answered whole (getrandom(2)); only a signal before the kernel's
        // generator is seeded can interrupt them.
        if got == size_of_val(batch) as isize {
            return BATCH;
        }
        let reason = std::io::Error::last_os_error();
        assert!(
            reason.kind() == std::io::ErrorKind::Interrupted,
            "the kernel gives no random numbers: {reason}; allow the getrandom system call"
        );
    }
}
