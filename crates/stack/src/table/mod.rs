//! Connection tables: from a tuple to a slot, by a keyed hash, in constant time.
//!
//! [`private`] is the one structure; whoever owns it decides who may touch it. A cell keeps one for itself; the
//! shared-table architecture keeps one of shared connections behind its global lock.

pub mod private;
