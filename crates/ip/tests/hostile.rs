//! Hostile input, class by class: lengths that lie, extension headers, fragments, impossible addresses, floods.
//!
//! The oracle is the same everywhere: nothing panics, what is answered is answered only as a host may, no reply is much
//! longer than its cause, work and memory stay within their bounds, and every buffer is given back. The host under test
//! is this crate alone, put together as the stack does it ([`Host::takes`]).

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
