//! One lock around the whole stack: NetBSD's `KERNEL_LOCK`, the x-kernel's master lock.
//!
//! | cell | exclusive use by | thread | table | order |
//! |---|---|---|---|---|
//! | the stack | one lock | caller or receive thread | plain | structure |
//!
//! It is [`connp-l`](super::connp_l) with a single group.

use std::sync::Arc;

use sync::Platform;

use super::Architecture;
use super::connp_l;
use crate::shared::Shared;

/// One cell behind one lock of the stack's kind.
pub fn new<P: Platform>(shared: &Arc<Shared<P>>) -> Arc<dyn Architecture<P>> {
    connp_l::new(shared, 1)
}
