//! [`SharedBuf`]: a packet with several holders at once, without a copy.
//!
//! For a frame that is flooded to several ports, and for data that is sent and kept. The holders share the bytes and
//! the metadata, which cannot change meanwhile; each has a window of its own. A [`PktBuf`] remains a unique owner, and
//! its path through the stack involves no counts: sharing turns a `PktBuf` into a `SharedBuf`, and only the last holder
//! gets a `PktBuf` back. Another holder that needs to write gets a copy.
//!
//! What may never happen: bytes that change under a holder, or a block that is released before its last holder, or
//! twice.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;

use crate::block::Block;
use crate::buffer::{PacketBounds, PktBuf};
use crate::meta::Meta;

/// One of the holders of a packet. Dereferences to the bytes of its window. Cloning it makes another holder; dropping
/// the last one releases the block.
pub struct SharedBuf {
    block: Block,
    window: PacketBounds,
}

// SAFETY: a holder lends shared references to bytes and metadata that are not written.
unsafe impl Sync for SharedBuf {}

impl SharedBuf {
    /// Bytes in this holder's window.
    #[inline]
    pub fn len(&self) -> usize {
        self.window.len()
    }

    /// Whether the window has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.window.len() == 0
    }

    /// The packet's metadata, the same for all holders.
    #[inline]
    pub fn meta(&self) -> &Meta {
        &self.block.header().meta
    }

    /// Removes `n` bytes from the front of this holder's window.
    ///
    /// # Panics
    /// If the window has fewer.
    #[inline]
    pub fn pull_front(&mut self, n: usize) {
        assert!(n <= self.len(), "{n} bytes pulled from a packet of {}", self.len());
        self.window.advance(n as u32);
    }

    /// Shortens this holder's window to `len` bytes; does nothing if it is no longer than that.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.window.truncate(len);
    }

    /// Whether this is the only holder.
    pub fn is_unique(&self) -> bool {
        self.block.header().holders.is_unique()
    }

    /// The packet as a unique owner, with this holder's window.
    ///
    /// # Errors
    /// There are other holders: this one is returned.
    pub fn try_into_unique(self) -> Result<PktBuf, SharedBuf> {
        if !self.is_unique() {
            return Err(self);
        }
        let (block, window) = ManuallyDrop::new(self).parts();
        Ok(PktBuf::of_parts(block, window))
    }

    /// The packet as a unique owner: this holder's block if it is the last, otherwise a copy in the heap; `None`, with
    /// this holder dropped, if there is no buffer for one.
    pub fn into_unique(self) -> Option<PktBuf> {
        self.try_into_unique().map_or_else(|shared| shared.duplicate(), Some)
    }

    /// A copy of this holder's bytes, and of the metadata, in the heap; `None` as for [`PktBuf::alloc`].
    pub fn duplicate(&self) -> Option<PktBuf> {
        // Only read, as this holder may, and not dropped: there is no second owner.
        let view = ManuallyDrop::new(PktBuf::of_parts(self.block, self.window));
        view.duplicate()
    }

    fn parts(&self) -> (Block, PacketBounds) {
        (self.block, self.window)
    }
}

impl PktBuf {
    /// Makes the packet shareable.
    ///
    /// ```
    /// let one = pktbuf::PktBuf::from_slice(b"to all ports").unwrap().share();
    /// let two = one.clone();
    /// assert_eq!(one.as_ptr(), two.as_ptr());
    /// drop(one);
    /// assert!(two.try_into_unique().is_ok());
    /// ```
    #[inline]
    pub fn share(self) -> SharedBuf {
        let (block, window) = ManuallyDrop::new(self).parts();
        block.header().holders.reset();
        SharedBuf { block, window }
    }
}

impl Clone for SharedBuf {
    #[inline]
    fn clone(&self) -> SharedBuf {
        self.block.header().holders.share();
        SharedBuf { block: self.block, window: self.window }
    }
}

impl Deref for SharedBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the window lies inside the block, whose bytes are initialised and which no holder can write.
        unsafe { self.window.slice(self.block.data()) }
    }
}

impl AsRef<[u8]> for SharedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for SharedBuf {
    #[inline]
    fn drop(&mut self) {
        if self.block.header().holders.release() {
            drop(PktBuf::of_parts(self.block, self.window));
        }
    }
}

impl fmt::Debug for SharedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBuf({} bytes)", self.len())
    }
}
