//! Receive queues whose frames stay in the device while the architecture says so
//! ([`polled_rings`](crate::arch::polled_rings)).

use sync::Platform;

use super::Driver;

impl<P: Platform> Driver<P> {
    /// Whether it may take frames from its queues now.
    #[inline]
    pub(super) fn opens_ring(&mut self) -> bool {
        self.shut = self.polled && !self.active.opens_ring(self.index);
        !self.shut
    }

    /// Whether it waits for the architecture to be let take frames: it then sleeps where frames do not wake it.
    pub(super) fn awaits_turn(&self) -> bool {
        self.shut && self.active.is_ring_shut(self.index)
    }

    /// Whether it has been let take frames, and has not taken any yet.
    pub(super) fn has_turn(&self) -> bool {
        self.shut && !self.active.is_ring_shut(self.index)
    }
}
