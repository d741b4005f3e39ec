//! Bridges under the tests of RFC 2544: throughput, latency, frame loss rate, back-to-back frames (its section 26).
//!
//! | file | owns |
//! |---|---|
//! | `rfc2544/line.rs` | the generator and the counter of test frames, as devices in memory |
//! | `rfc2544/bench.rs` | a bridge between two such devices, and a trial on it |
//! | `rfc2544/wires.rs` | the kernel's interfaces of a test over TAP, in a network namespace |
//! | `rfc2544/tester.rs` | the generator and the counter at the kernel's interfaces |
//! | `rfc2544/network.rs` | a bridge between two such interfaces, Heddle's or the kernel's, and a trial on it |
//! | `rfc2544/method.rs` | the tests: their trials and the conclusions from them; uses no bridge and no clock |
//! | `rfc2544/run.rs` | all bridges, sizes and repetitions, in turn |
//! | `rfc2544/document.rs` | the results, as JSON |
//! | `report/rfc2544.rs` | the page with the figures |
//!
//! Three things differ from the RFC, because generator, bridge and counter share the processors of one machine. A trial
//! takes milliseconds instead of 60 seconds: in 60 seconds every general-purpose system preempts a thread for longer
//! than a receive ring lasts. For the same reason a rate counts as free of loss if one of a few trials at that rate is
//! ([`method::Limits::attempts`]; 1 is the RFC's rule). The test frame has an experimental EtherType instead of UDP; a
//! bridge does not look at it. The document states all of this.

pub mod bench;
pub mod document;
pub mod line;
pub mod method;
pub mod network;
pub mod run;
pub mod tester;
pub mod wires;
