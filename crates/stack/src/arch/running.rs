//! Which architecture a stack has now, and where drivers and callers find it.
//!
//! A driver reads the slot once per batch, a caller at each call: one load. A switch publishes a new version.

use std::sync::Arc;

use sync::{Platform, Versioned};

use super::RunningArchitecture;
use super::select::{Architecture, ThreadConfig};

/// The architecture that a stack has now.
pub struct Running<P: Platform> {
    /// The running architecture.
    pub active: Arc<dyn RunningArchitecture<P>>,
    /// Its name.
    pub arch: Architecture,
    /// Incremented by each switch.
    pub version: u32,
    /// What it was built with.
    pub(crate) thread_config: ThreadConfig,
    /// [`RunningArchitecture::has_owners`].
    has_owners: bool,
}

impl<P: Platform> Running<P> {
    /// An architecture of this name, after `version` switches.
    pub fn new(
        active: Arc<dyn RunningArchitecture<P>>,
        arch: Architecture,
        thread_config: ThreadConfig,
        version: u32,
    ) -> Self {
        let has_owners = active.has_owners();
        Running { active, arch, version, thread_config, has_owners }
    }

    /// The architecture, if threads that poll own its connections.
    #[inline(always)]
    pub fn owned(&self) -> Option<&dyn RunningArchitecture<P>> {
        self.has_owners.then_some(&*self.active)
    }
}

impl<P: Platform> Clone for Running<P> {
    fn clone(&self) -> Self {
        Running { active: self.active.clone(), ..*self }
    }
}

impl<P: Platform> PartialEq for Running<P> {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version
    }
}

/// Where drivers and callers find the architecture.
pub(crate) type ArchitectureSlot<P> = Versioned<Running<P>, P>;
