//! A work stream: packets that wait in a bounded queue, and one thread at a time that processes them.
//!
//! FreeBSD has one for each CPU (`netisr_workstream`), with three flags. RUNNING: its own thread (the *swi*) processes
//! the waiting packets. DISPATCHING: the thread that received a packet processes it directly. SCHEDULED: the swi has
//! been woken and has not begun. The first two are one flag here, and the third is a queue that is not empty and that
//! no thread processes.
//!
//! A thread processes a packet directly only where none of the three holds, and keeps the swi out meanwhile. The swi
//! takes all waiting packets at once, so that up to twice the bound may be in the stream. Packets that arrive while
//! another is processed directly are left to the swi.
//!
//! What may never happen: two threads process packets of one stream; a packet overtakes one that was received earlier;
//! packets wait, no thread processes the stream, and none is about to wake the swi.

use std::collections::VecDeque;

use sync::{Lock, LockClass, LockKind, Parker, PlantedMistake, Platform, model_is_over};

use crate::charge;

/// See the head of this file. Generic over the packets, so that models run it with numbers.
pub struct WorkStream<T, P: Platform> {
    state: Lock<StreamState<T>, P>,
    swi: Parker<P>,
    limit: usize,
}

struct StreamState<T> {
    waiting: VecDeque<T>,
    /// Empty; kept for its memory.
    spare: VecDeque<T>,
    /// A thread processes packets of the stream.
    processed: bool,
}

impl<T, P: Platform> WorkStream<T, P> {
    /// An empty stream, in which `limit` packets may wait; a lock of this kind guards it.
    pub fn new(kind: LockKind, limit: usize) -> Self {
        let state = StreamState { waiting: VecDeque::new(), spare: VecDeque::new(), processed: false };
        WorkStream { state: Lock::new(kind, LockClass::Handoff, state), swi: Parker::new(), limit }
    }

    /// Leaves a packet for the swi. True: the caller wakes it ([`WorkStream::wake`]), at the end of its batch at the latest.
    ///
    /// # Errors
    /// The queue is full; returns the packet.
    pub fn leave(&self, packet: T) -> Result<bool, T> {
        let mut state = self.state.lock();
        if state.waiting.len() >= self.limit {
            return Err(packet);
        }
        state.waiting.push_back(packet);
        state.waiting.back().into_iter().for_each(|packet| charge::left::<P, _>(packet, true));
        sync::profile::handoff::<P>(1);
        // The thread that processes the stream looks for more before it leaves it.
        Ok(!state.processed)
    }

    /// The calling thread processes a packet that it has received, until it drops the value. `None`: another thread
    /// processes the stream, or packets wait.
    pub fn dispatch(&self) -> Option<Processing<'_, T, P>> {
        let mut state = self.state.lock();
        if (state.processed || !state.waiting.is_empty()) && !P::makes(PlantedMistake::DirectDespiteWork) {
            return None;
        }
        state.processed = true;
        Some(Processing { stream: self, taken: VecDeque::new(), over: false })
    }

    /// The calling thread, which is the swi or does its work, takes and processes all packets that wait. `None`: none waits, or
    /// another thread processes the stream, and wakes the swi if it leaves something.
    pub fn turn(&self) -> Option<Processing<'_, T, P>> {
        let mut state = self.state.lock();
        if state.processed || state.waiting.is_empty() {
            return None;
        }
        state.processed = true;
        let mut turn = Processing { stream: self, taken: std::mem::take(&mut state.spare), over: false };
        turn.take(&mut state);
        Some(turn)
    }

    /// Wakes the swi if it sleeps.
    pub fn wake(&self) {
        self.swi.unpark();
    }

    /// The swi sleeps until it is woken. It may have been woken since it last looked for packets, and returns at once then.
    pub fn wait(&self) {
        self.swi.park(None);
    }

    /// Whether no packet waits, and no thread processes one.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.waiting.is_empty() && !state.processed
    }

    /// Takes the packets that wait, which the stream will not process. No other thread uses it.
    pub fn withdraw(&self) -> VecDeque<T> {
        std::mem::take(&mut self.state.lock().waiting)
    }
}

/// The calling thread processes packets of a stream, and no other thread does, until this is dropped. Packets that were taken
/// and have not been processed wait again then, before the others: a panic loses one.
#[must_use = "the stream is free again when it is dropped"]
pub struct Processing<'a, T, P: Platform> {
    stream: &'a WorkStream<T, P>,
    /// Packets that were taken, in their order.
    pub taken: VecDeque<T>,
    /// Another thread may process the stream already.
    over: bool,
}

impl<T, P: Platform> Processing<'_, T, P> {
    /// All packets that were taken have been processed: takes those that have come meanwhile. False: there are none, and the
    /// stream is free.
    pub fn more(&mut self) -> bool {
        let mut state = self.stream.state.lock();
        self.over = state.waiting.is_empty();
        if self.over {
            state.spare = std::mem::take(&mut self.taken);
            state.processed = false;
        } else {
            self.take(&mut state);
        }
        !self.over
    }

    fn take(&mut self, state: &mut StreamState<T>) {
        std::mem::swap(&mut state.waiting, &mut self.taken);
        self.taken.iter().for_each(|packet| charge::left::<P, _>(packet, false));
    }
}

impl<T, P: Platform> Drop for Processing<'_, T, P> {
    fn drop(&mut self) {
        if self.over || model_is_over::<P>() {
            return;
        }
        let mut state = self.stream.state.lock();
        while let Some(packet) = self.taken.pop_back() {
            state.waiting.push_front(packet);
        }
        state.processed = false;
        let left = !state.waiting.is_empty();
        drop(state);
        if left {
            self.stream.swi.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;

    const LIMIT: usize = 3;

    fn stream() -> WorkStream<u32, Real> {
        WorkStream::new(LockKind::Blocking, LIMIT)
    }

    /// `netisr_dispatch_src`: "(1) The netisr worker isn't already running".
    #[test]
    fn a_packet_is_not_processed_directly_while_the_swi_runs() {
        let stream = stream();
        assert_eq!(stream.leave(1), Ok(true));
        let mut turn = stream.turn().expect("a packet waits");
        assert_eq!(turn.taken.pop_front(), Some(1));
        assert!(stream.dispatch().is_none(), "the queue is empty, but the swi has not ended");
        assert!(!turn.more());
        assert!(stream.dispatch().is_some());
    }

    /// "(2) Another thread isn't already directly dispatching", the swi included.
    #[test]
    fn a_thread_that_processes_its_packet_keeps_all_others_out() {
        let stream = stream();
        let direct = stream.dispatch().expect("the stream is idle");
        assert!(stream.dispatch().is_none());
        assert_eq!(stream.leave(1), Ok(false), "the other thread wakes the swi");
        assert!(stream.turn().is_none(), "the swi was woken too early");
        drop(direct);
        assert!(stream.turn().is_some());
    }

    /// "(3) The netisr hasn't already been woken up": packets wait, and the swi has not begun.
    #[test]
    fn a_packet_is_not_processed_directly_while_others_wait() {
        let stream = stream();
        assert_eq!(stream.leave(1), Ok(true));
        assert!(stream.dispatch().is_none());
        assert_eq!(stream.leave(2), Ok(true), "a thread that leaves a packet for a swi that has not begun wakes it");
    }

    /// `netisr_queue_workstream`: "if (npwp->nw_len < npwp->nw_limit)"; and the swi detaches the queue as a whole.
    #[test]
    fn as_many_packets_wait_as_may_and_those_taken_wait_no_more() {
        let stream = stream();
        let left: Vec<_> = (1..=4).map(|packet| stream.leave(packet)).collect();
        assert_eq!(left, [Ok(true), Ok(true), Ok(true), Err(4)]);
        let mut turn = stream.turn().expect("packets wait");
        assert_eq!(turn.taken, [1, 2, 3]);
        let left: Vec<_> = (5..=8).map(|packet| stream.leave(packet)).collect();
        assert_eq!(left, [Ok(false), Ok(false), Ok(false), Err(8)]);
        turn.taken.clear();
        assert!(turn.more());
        assert_eq!(turn.taken, [5, 6, 7]);
    }

    /// The packets that a panic leaves are processed in their order, and the swi is woken for them.
    #[test]
    fn packets_that_were_taken_and_not_processed_wait_again() {
        let stream = stream();
        (1..=3).for_each(|packet| assert_eq!(stream.leave(packet), Ok(true)));
        let mut turn = stream.turn().expect("packets wait");
        assert_eq!(turn.taken.pop_front(), Some(1));
        assert_eq!(stream.leave(4), Ok(false));
        assert!(!stream.is_idle());
        drop(turn);
        assert!(stream.swi.park(Some(std::time::Duration::ZERO)), "the swi was woken");
        assert_eq!(stream.withdraw(), [2, 3, 4]);
        assert!(stream.is_idle());
    }

    /// "Two threads process packets of one stream": the first is done, and what it had is dropped while another one processes.
    #[test]
    fn a_thread_that_is_done_leaves_the_stream_to_the_next() {
        let stream = stream();
        assert_eq!(stream.leave(1), Ok(true));
        let mut done = stream.turn().expect("a packet waits");
        done.taken.clear();
        assert!(!done.more());
        let next = stream.dispatch().expect("the stream is free");
        drop(done);
        assert!(stream.dispatch().is_none(), "the next thread processes its packet");
        drop(next);
        assert!(stream.is_idle());
    }
}
