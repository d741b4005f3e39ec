//! Turns in the order of tickets: threads pass one point in the order in which their work was numbered, in whatever order
//! they reach it.
//!
//! Tickets are consecutive numbers from 0 on, wrapping, that the caller draws where the order is made (under the lock of
//! a queue, say), so this type has no counter. A thread waits for its ticket's turn and then passes the turn on, once
//! for each ticket, also for work that turned out to be none. Each ticket has a word that only its own thread waits for,
//! as in Anderson's queue lock (IEEE TPDS, 1990), as long as no more threads hold tickets than there are words; with
//! more of them, some threads are woken before their turn.
//!
//! A word is the ticket that has the turn, times two, plus one while a thread may sleep there. What may never happen: a
//! turn that is passed while its thread sleeps on; or two threads that have the turn at once.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::{Atomic, CachePadded, Platform, Real, lock_order, profile, yield_until};

/// Set while a thread may sleep on the word.
const ASLEEP: u32 = 1;

/// See the head of this file.
pub struct Turnstile<P: Platform = Real> {
    words: Box<[CachePadded<P::AtomicU32>]>,
}

impl<P: Platform> Turnstile<P> {
    /// Ticket 0 has the turn. `threads`: how many may hold tickets at once without being woken before their turn.
    pub fn new(threads: usize) -> Self {
        let count = threads.max(1).next_power_of_two() as u32;
        let word = |index: u32| {
            // A word that has not had its first turn holds the ticket before, which is never drawn again.
            let ticket = if index == 0 { 0 } else { index.wrapping_sub(count) };
            CachePadded::new(P::AtomicU32::new(ticket << 1))
        };
        Turnstile { words: (0..count).map(word).collect() }
    }

    #[inline]
    fn word(&self, ticket: u32) -> &P::AtomicU32 {
        &self.words[ticket as usize & (self.words.len() - 1)]
    }

    /// Waits until `ticket` has the turn: a few turns of the processor, then asleep. Returns at once if it has the turn
    /// already.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock and would sleep (invariant G4).
    #[inline]
    pub fn wait(&self, ticket: u32) {
        let word = self.word(ticket);
        if word.load(Acquire) & !ASLEEP != ticket << 1 {
            Self::wait_long(word, ticket << 1);
        }
    }

    #[cold]
    fn wait_long(word: &P::AtomicU32, mine: u32) {
        if yield_until::<P>(|| word.load(Acquire) & !ASLEEP == mine) {
            return;
        }
        lock_order::assert_none_held::<P>("waiting for a turn");
        loop {
            let seen = word.load(Acquire);
            if seen & !ASLEEP == mine {
                return;
            }
            let asleep = seen | ASLEEP;
            if seen == asleep || word.compare_exchange(seen, asleep, Relaxed, Relaxed).is_ok() {
                P::futex_wait(word, asleep, None);
            }
        }
    }

    /// The thread of `ticket`, which has the turn, passes it to the next ticket. Returns whether a thread had to be
    /// woken.
    #[inline]
    pub fn pass(&self, ticket: u32) -> bool {
        let next = ticket.wrapping_add(1);
        let word = self.word(next);
        let asleep = word.swap(next << 1, AcqRel) & ASLEEP != 0;
        if asleep {
            P::futex_wake(word, u32::MAX);
        }
        profile::wake::<P>(asleep);
        asleep
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn turns_come_in_the_order_of_the_tickets() {
        const THREADS: u32 = 4;
        const EACH: u32 = if cfg!(miri) { 5 } else { 500 };
        for words in [1, 2, 8] {
            let turnstile: Arc<Turnstile> = Arc::new(Turnstile::new(words));
            let seen = Arc::new(Mutex::new(Vec::new()));
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (turnstile, seen) = (turnstile.clone(), seen.clone());
                    std::thread::spawn(move || {
                        for turn in 0..EACH {
                            let ticket = turn * THREADS + thread;
                            turnstile.wait(ticket);
                            seen.lock().expect("no thread panics").push(ticket);
                            turnstile.pass(ticket);
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("the thread ends"));
            let expected: Vec<u32> = (0..THREADS * EACH).collect();
            assert_eq!(*seen.lock().expect("no thread panics"), expected);
        }
    }

    /// Looks until a thread sleeps on the word of `ticket`, or `waiter` is over.
    fn sleeps(turnstile: &Turnstile, ticket: u32, waiter: &std::thread::ScopedJoinHandle<'_, ()>) -> bool {
        while !waiter.is_finished() {
            if turnstile.word(ticket).load(Acquire) & ASLEEP != 0 {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    /// Words of these tickets differ in one bit, in all bits, and by the wrap.
    #[test]
    fn a_thread_sleeps_until_its_turn_and_is_woken_only_then() {
        for first in [4, (1 << 30) - 1, (1 << 31) - 1] {
            let turnstile = Turnstile::<Real>::new(1);
            assert!(!turnstile.pass(first - 1), "no thread sleeps");
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| turnstile.wait(first + 1));
                assert!(sleeps(&turnstile, first + 1, &waiter), "ticket {first} has the turn");
                assert!(turnstile.pass(first), "it had to be woken");
            });
            assert!(!turnstile.pass(first + 1));
        }
    }

    #[test]
    fn tickets_wrap() {
        let turnstile = Turnstile::<Real>::new(2);
        let last = u32::MAX / 2;
        turnstile.pass(last.wrapping_sub(1));
        turnstile.wait(last);
        turnstile.pass(last);
        turnstile.wait(last.wrapping_add(1));
    }
}
