//! Connection tables: from a tuple to a slot, by a keyed hash, in constant time ([`index`]); and from a flow to the cell that it is
//! bound to ([`flow_bindings`]).
//!
//! The owner of a table decides which thread may touch it; any thread may use the bindings.

pub mod flow_bindings;
pub mod index;
