//! Hostile input, class by class: false lengths, extension headers, fragments, impossible addresses, floods.
//!
//! The oracle is the same everywhere: nothing panics, answers obey the rules for hosts, no reply is much longer than
//! its cause, work and memory are bounded, and every buffer is freed. The host under test is this crate alone,
//! assembled as in the stack ([`Host::takes`]).

#[path = "hostile/host.rs"]
mod host;

#[path = "hostile/addresses.rs"]
mod addresses;
#[path = "hostile/extensions.rs"]
mod extensions;
#[path = "hostile/floods.rs"]
mod floods;
#[path = "hostile/fragments.rs"]
mod fragments;
#[path = "hostile/input_edges.rs"]
mod input_edges;
#[path = "hostile/lengths.rs"]
mod lengths;
