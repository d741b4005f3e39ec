//! Which architecture a stack has now, and where drivers and callers find it.
//!
//! A driver reads the slot once per batch, a caller at each call: one load. A switch publishes a new version.

use std::sync::Arc;

use sync::{Platform, Versioned};

use super::RunningArchitecture;
use super::select::Architecture;

/// The architecture that a stack has now.
pub struct Running<P: Platform> {
    /// The running architecture.
    pub active: Arc<dyn RunningArchitecture<P>>,
    /// Its name.
    pub arch: Architecture,
    /// Incremented by each switch.
    pub version: u32,
}

impl<P: Platform> Clone for Running<P> {
    fn clone(&self) -> Self {
        Running { active: self.active.clone(), arch: self.arch, version: self.version }
    }
}

impl<P: Platform> PartialEq for Running<P> {
    fn eq(&self, other: &Self) -> bool {
        self.version == other.version
    }
}

/// Where drivers and callers find the architecture.
pub(crate) type ArchitectureSlot<P> = Versioned<Running<P>, P>;
