//! A handler that threads run in turn: one thread takes it out, and bits that rise meanwhile are left for it.
//!
//! It is *ready* while bits are left for it and no thread has it. [`HandlerTurns::leave`] and
//! [`HandlerTurns::put_back`] report when it becomes ready, each time to one thread, which runs it or passes it on. So
//! a ready handler waits in one place, and one thread at a time has it. Generic over the handler, so that models run it
//! with numbers.
//!
//! A connection that is given up takes its handler along ([`HandlerTurns::abort`]): from the thread that has it, at the
//! end of its turn.
//!
//! What may never happen: two threads have the handler; bits were left, no thread has it, and none was notified; the
//! connection was given up, and no thread got the handler for its last callback.

use sync::{Lock, LockClass, LockKind, PlantedMistake, Platform};
use tcp::Readiness;

/// See the head of this file. Any thread.
pub struct HandlerTurns<H, P: Platform>(Lock<Turn<H>, P>);

struct Turn<H> {
    /// `None` while a thread has it, and after its last callback.
    handler: Option<H>,
    left: Readiness,
    aborted: bool,
}

impl<H, P: Platform> HandlerTurns<H, P> {
    /// A handler without bits.
    pub fn new(handler: H) -> Self {
        let turn = Turn { handler: Some(handler), left: Readiness::NONE, aborted: false };
        HandlerTurns(Lock::new(LockKind::Blocking, LockClass::SocketBuffer, turn))
    }

    /// Leaves bits, at least one, for the handler. True: it is ready from now on.
    pub fn leave(&self, bits: Readiness) -> bool {
        let mut turn = self.0.lock();
        let ready = turn.handler.is_some() && turn.left.is_empty();
        turn.left |= bits;
        ready
    }

    /// Takes the handler, and the bits left for it. `None`: another thread has it, or it has ended.
    pub fn take(&self) -> Option<(H, Readiness)> {
        let mut turn = self.0.lock();
        let handler = turn.handler.take()?;
        Some((handler, std::mem::replace(&mut turn.left, Readiness::NONE)))
    }

    /// The connection is given up: takes the handler for its last callback. `None`: a thread has it, which gets it from
    /// [`HandlerTurns::put_back`]; or it has ended.
    pub fn abort(&self) -> Option<H> {
        let mut turn = self.0.lock();
        turn.aborted = true;
        turn.handler.take()
    }

    /// Ends the calling thread's turn. True: bits were left meanwhile, and the handler is ready again.
    ///
    /// # Errors
    /// The connection was given up meanwhile: the handler, for its last callback.
    pub fn put_back(&self, handler: H) -> Result<bool, H> {
        let mut turn = self.0.lock();
        if turn.aborted {
            return Err(handler);
        }
        let ready = !turn.left.is_empty();
        if P::makes(PlantedMistake::ReturnInTwoSteps) {
            drop(turn);
            turn = self.0.lock();
        }
        turn.handler = Some(handler);
        Ok(ready)
    }
}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;

    /// ZygOS, 4.2: a connection is idle, ready or busy; one that is busy and gets an event is ready again when its handler
    /// has returned.
    #[test]
    fn a_handler_becomes_ready_once_and_never_while_a_thread_has_it() {
        let turns = HandlerTurns::<u32, Real>::new(7);
        let (read, write) = (Readiness::READABLE, Readiness::WRITABLE);
        assert_eq!([turns.leave(read), turns.leave(write)], [true, false], "it is ready already");
        assert_eq!(turns.take(), Some((7, read | write)));
        assert_eq!((turns.leave(read), turns.take()), (false, None), "a thread has it");
        assert_eq!(turns.put_back(7), Ok(true), "something was left meanwhile");
        assert!(!turns.leave(read), "that thread was told");
        assert_eq!(turns.take(), Some((7, read)));
        assert_eq!(turns.put_back(7), Ok(false));
        assert!(turns.leave(write));
    }

    #[test]
    fn a_connection_that_is_given_up_takes_its_handler_along() {
        let turns = HandlerTurns::<u32, Real>::new(7);
        assert_eq!((turns.abort(), turns.abort(), turns.take()), (Some(7), None, None));
        let turns = HandlerTurns::<u32, Real>::new(7);
        assert!(turns.take().is_some());
        assert_eq!((turns.abort(), turns.leave(Readiness::READABLE)), (None, false), "a thread has it");
        assert_eq!((turns.put_back(7), turns.take()), (Err(7), None));
    }

    #[test]
    fn a_handler_that_is_over_is_never_ready() {
        let turns = HandlerTurns::<u32, Real>::new(7);
        assert!(turns.take().is_some());
        assert_eq!((turns.leave(Readiness::READABLE), turns.take()), (false, None));
    }
}
