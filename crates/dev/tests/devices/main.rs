//! The in-process devices: what they carry, in which order, and what they refuse.

mod batch;
mod build;
mod conformance;
mod fault;
mod mem;
mod pcap;
mod peer;
