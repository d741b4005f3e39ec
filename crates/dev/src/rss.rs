//! Receive-side scaling: which receive queue a frame goes to.
//!
//! The hash is Toeplitz over the four-tuple as the frame's receiver sees it. With a key whose two halves repeat every
//! 16 bits (`wire::rss::SYMMETRIC_KEY`, the default) both directions of a connection hash alike, so a hash computed by
//! the sender (`Meta::flow_hash`) is valid at the receiver too; with any other key it is not, and is ignored. The
//! redirection table is the identity: queue = hash mod queues. Frames that are not TCP or UDP go to queue 0, as do
//! fragments, so that all fragments of a datagram arrive on one queue.

use pktbuf::PktBuf;
use wire::rss::Toeplitz;
use wire::{Framing, Headers, ethernet};

/// Chooses receive queues for frames.
pub struct Rss {
    toeplitz: Toeplitz,
    queues: u32,
    reversed: bool,
    framing: Framing,
}

impl Rss {
    /// A selector over `queues` (at least 1) receive queues.
    ///
    /// # Panics
    ///
    /// If `queues` is 0.
    pub fn new(key: &[u8; 40], queues: usize) -> Rss {
        assert!(queues > 0, "a device has at least one queue pair");
        Rss { toeplitz: Toeplitz::new(key), queues: queues as u32, reversed: false, framing: Framing::Ethernet }
    }

    /// The same, hashing every frame as its sender sees the connection: the queue on which the *answers* arrive.
    pub fn reversed(mut self) -> Rss {
        self.reversed = true;
        self
    }

    /// The same for frames of this framing; the default is Ethernet.
    pub fn framed(mut self, framing: Framing) -> Rss {
        self.framing = framing;
        self
    }

    /// The frame's flow hash, `None` when it has no flow. A hash in the frame's metadata is used if the key makes it
    /// valid in both directions.
    #[inline]
    pub fn hash(&self, frame: &PktBuf) -> Option<u32> {
        if self.toeplitz.is_symmetric()
            && let Some(hash) = frame.meta().flow_hash
        {
            return Some(hash);
        }
        if self.framing == Framing::Ethernet && ethernet::is_other_than_ip(frame) {
            return None;
        }
        self.hash_bytes(frame)
    }

    /// The hash computed from the frame's bytes.
    pub fn hash_bytes(&self, frame: &[u8]) -> Option<u32> {
        let mut tuple = Headers::of(self.framing, frame).receiver_tuple(frame)?;
        if self.reversed {
            tuple = tuple.reversed();
        }
        Some(self.toeplitz.hash_tcp(&tuple))
    }

    /// How many queues there are to choose from.
    #[inline]
    pub fn queues(&self) -> usize {
        self.queues as usize
    }

    /// The queue for a hash.
    #[inline]
    pub fn queue(&self, hash: Option<u32>) -> usize {
        if self.queues == 1 { 0 } else { (hash.unwrap_or(0) % self.queues) as usize }
    }
}
