//! What an architecture is built from.

use std::sync::Arc;

use sync::Platform;

use super::connection::{Connections, connections};

/// Connections, and what belongs to them, between two architectures; or nothing, for the first.
pub struct Contents<P: Platform> {
    /// Where the connections of the stack lie.
    pub slab: Arc<Connections<P>>,
}

impl<P: Platform> Contents<P> {
    /// Of a stack without connections.
    pub fn empty() -> Self {
        Contents { slab: connections() }
    }
}
