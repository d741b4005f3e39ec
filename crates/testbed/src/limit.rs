//! How long tests wait in real time for an expected event.
//!
//! No limit here decides a test: without an error, the event occurs long before, even on a busy machine. The limits
//! only end a hang, so that such a test fails with a message. A test whose outcome depends on time runs in virtual
//! time.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// For one action of another thread, the kernel or another program: an answer, an end, a line of output. A thousand
/// times its duration on an idle machine, because a busy one may run all tests of the workspace at once.
pub const HANG: Duration = Duration::from_secs(60);

/// For a whole stress test, which takes seconds on an idle machine, and ten times that in the builds for model checkers
/// and sanitizers.
pub const LONG_HANG: Duration = Duration::from_secs(120);

/// Runs `test` on a thread of its own; returns its result, or resumes its panic.
///
/// # Panics
/// If it has not ended after [`LONG_HANG`].
pub fn within<R: Send + 'static>(test: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, finished) = channel();
    let thread = std::thread::spawn(move || done.send(test()));
    match finished.recv_timeout(LONG_HANG) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs: it has not ended after {LONG_HANG:?}"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("a thread that ends well has sent its result"),
        },
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_panic_is_the_panic_of_the_test() {
        let panicked = std::panic::catch_unwind(|| super::within(|| panic!("what the test says")));
        assert_eq!(panicked.expect_err("a panic").downcast_ref(), Some(&"what the test says"));
        assert_eq!(super::within(|| 7), 7);
    }
}
