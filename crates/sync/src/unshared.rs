//! Whether an `Arc` has one holder, without the read-modify-write by which `Arc::get_mut` excludes weak references.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Whether the caller is the only holder of a value of which no weak references are made; all uses by former holders happened
/// before. It may stop being so only by the caller.
///
/// ```
/// use std::sync::Arc;
/// let one = Arc::new(7);
/// let other = one.clone();
/// assert!(!sync::is_unshared(&one));
/// drop(other);
/// assert!(sync::is_unshared(&one));
/// ```
#[inline]
pub fn is_unshared<T>(value: &Arc<T>) -> bool {
    debug_assert_eq!(Arc::weak_count(value), 0, "a weak reference could be upgraded");
    let is_only = Arc::strong_count(value) == 1;
    // The count is Arc's, not the platform's, and so is the fence: a holder that has gone has lowered the count with `Release`.
    fence(Ordering::Acquire);
    is_only
}
