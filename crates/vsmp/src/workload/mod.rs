//! Workloads for a machine, on top of the crate `stack`: [`pair`], two stacks on a link in memory; [`senders`], one
//! stack that sends by several cards, as in Willmann, Rixner and Cox; [`messages`], one stack that receives messages
//! from a driver in memory, as in Schmidt and Suda; [`packets`], processors that take packets of a few connections from
//! an in-memory driver, as in Nahum et al.; [`bridges`], the crate `switch` between two gigabit ports, as in Nakahara
//! et al.; [`overload`], one stack that receives more than it can process.
//!
//! [`pair`] runs on every platform, and measures its rate in [`windows`]. [`packets`] runs on the real machine, too.

pub mod bridges;
pub mod measured;
pub mod messages;
pub mod overload;
pub mod packets;
pub mod pair;
pub mod senders;
pub mod windows;

use std::collections::VecDeque;
use std::time::Duration;

use sync::{Atomic, Platform};

/// Sleeps, in virtual time on a virtual machine.
fn nap<P: Platform>(time: Duration) {
    let (word, end) = (P::AtomicU32::new(0), P::now() + time.as_nanos() as u64);
    loop {
        let left = end.saturating_sub(P::now());
        if left == 0 {
            return;
        }
        P::futex_wait(&word, 0, Some(Duration::from_nanos(left)));
    }
}

/// The connections of an application's thread that can make progress, by token. They take turns: while the peer drains
/// the buffer, writing until it is full may never end, and the thread's other connections would starve.
#[derive(Default)]
struct Turns {
    queue: VecDeque<usize>,
    /// By token: whether it is in the queue.
    queued: Vec<bool>,
}

impl Turns {
    /// Adds a connection that can make progress. It keeps its place if it has one.
    fn add(&mut self, token: usize) {
        if token >= self.queued.len() {
            self.queued.resize(token + 1, false);
        }
        if !std::mem::replace(&mut self.queued[token], true) {
            self.queue.push_back(token);
        }
    }

    /// The next in turn.
    fn take(&mut self) -> Option<usize> {
        let token = self.queue.pop_front()?;
        self.queued[token] = false;
        Some(token)
    }

    fn len(&self) -> usize {
        self.queue.len()
    }
}
