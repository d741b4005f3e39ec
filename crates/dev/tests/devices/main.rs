//! The in-process devices: the frames that they carry, their order, and the frames that they refuse.

mod batch;
mod build;
mod channel;
mod conformance;
mod fault;
mod mem;
mod pcap;
mod peer;
