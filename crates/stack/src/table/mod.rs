//! Connection tables: from a tuple to a slot, by a keyed hash, in constant time ([`index`]).
//!
//! The owner of a table decides which thread may touch it.

pub mod index;
