//! The thread that uses a connection: any, as in Willmann et al. 2006, or the one whose queue receives its segments.
//!
//! With affinity a thread opens connections from ports that the link's hash maps to its own queue, and an accepted end
//! is passed to the thread whose queue receives it, as with a card that steers flows (aRFS) or a program that reads
//! `SO_INCOMING_CPU`. The link's hash is symmetric, so both ends of a connection are on one thread, and every thread
//! has as many as without affinity. The remaining sharing is the architecture's.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use heddle::{TcpListener, TcpStream};
use sync::CachePadded;
use wire::FourTuple;
use wire::rss::Toeplitz;

/// Ports below this belong to services.
const FIRST_PORT: u16 = 1024;

/// Maps connections to threads, and passes accepted ends to their threads. May be used by any thread.
pub(super) struct Affinity {
    hash: Toeplitz,
    /// One for each thread, on lines of its own.
    waiting: Vec<CachePadded<Mutex<VecDeque<TcpStream>>>>,
}

impl Affinity {
    /// Of a link with the default hash and a queue for each thread.
    pub fn new(threads: u32) -> Affinity {
        Affinity {
            hash: Toeplitz::default(),
            waiting: (0..threads).map(|_| CachePadded::new(Mutex::default())).collect(),
        }
    }

    /// The thread whose queue receives segments between the two.
    pub fn thread_of(&self, local: SocketAddr, remote: SocketAddr) -> u32 {
        let tuple = FourTuple::new(local, remote);
        self.hash.hash_tcp(&tuple) % self.waiting.len() as u32
    }

    /// The first port from `from` on that maps to `thread`; `None` if there is none.
    pub fn port(&self, thread: u32, local: SocketAddr, remote: SocketAddr, from: u16) -> Option<u16> {
        let leads = |port: &u16| self.thread_of(SocketAddr::new(local.ip(), *port), remote) == thread;
        (from.max(FIRST_PORT)..=u16::MAX).find(leads)
    }

    /// Accepts an end at `listener`, which listens at `local`, for the calling thread, whose number is `thread`. An end for
    /// another thread is passed on.
    pub fn accept(&self, thread: u32, listener: &TcpListener, local: SocketAddr) -> Option<TcpStream> {
        loop {
            let Ok((stream, peer)) = listener.accept() else {
                return self.queue(thread).pop_front();
            };
            let owner = self.thread_of(local, peer);
            if owner == thread {
                return Some(stream);
            }
            self.queue(owner).push_back(stream);
        }
    }

    fn queue(&self, thread: u32) -> std::sync::MutexGuard<'_, VecDeque<TcpStream>> {
        self.waiting[thread as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_leads_to_its_thread_from_either_side() {
        let affinity = Affinity::new(3);
        let (local, remote) = (SocketAddr::from(([10, 9, 0, 1], 0)), SocketAddr::from(([10, 9, 1, 1], 5001)));
        for thread in 0..3 {
            let mut from = 0;
            for _ in 0..100 {
                let port = affinity.port(thread, local, remote, from).unwrap();
                let opened = SocketAddr::new(local.ip(), port);
                assert_eq!((affinity.thread_of(opened, remote), affinity.thread_of(remote, opened)), (thread, thread));
                assert!(port >= FIRST_PORT && port >= from);
                from = port + 1;
            }
        }
        assert_eq!(
            affinity.port(0, local, remote, u16::MAX).is_some(),
            affinity.thread_of(SocketAddr::new(local.ip(), u16::MAX), remote) == 0
        );
    }
}
