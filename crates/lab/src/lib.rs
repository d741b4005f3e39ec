//! The benchmark lab: workloads, sampling, and statistics.
//!
//! The way through it, in the order a comparison takes:
//!
//! | step | module | owns |
//! |---|---|---|
//! | 1 | [`machine`] | the machine before and after the run, and remarks on the reliability of its figures |
//! | 2 | [`kernel`] | the Linux kernel's own TCP as one of the contenders |
//! | - | `smoltcp` (a feature) | another TCP in user space as one of the contenders |
//! | 3 | [`sampling`] | contenders in short slices, side by side, in a fixed rotated order |
//! | 4 | [`cpu`], [`distance`] | CPU time and context switches of a slice; the distance of the processors |
//! | - | [`scheduler`] | samples of the CPUs during a slice: the kernel's scheduler, and where caches miss |
//! | 5 | [`stats`], [`usl`] | means, Student-t intervals; the scalability law |
//! | 6 | [`result`], [`csv`] | the document, as JSON and CSV |
//! | 7 | [`recommend`] | one sentence of advice |
//! | 8 | [`table`], [`units`] | the terminal |
//! | - | [`workload`] | Heddle's own contenders |
//! | - | [`confined`] | contenders on some of the processors only |
//! | - | [`compare`] | all of it in one run |
//! | 9 | [`report`] | the page with the figures |
//! | - | [`rfc2544`] | bridges under the tests of RFC 2544, with their own document |
//! | - | [`calibrate`] | this machine as a preset of the simulator, and the errors of its predictions |
//! | - | [`simulated`], [`timeline`] | results of the simulator as rows of the same document; a stretch of a run as a page |
//!
//! The lab contains no protocol and no lock of the stack; it runs slices of contenders and reads their counters.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod compare;
pub mod confined;
pub mod cpu;
pub mod csv;
pub mod distance;
pub mod kernel;
pub mod machine;
pub mod recommend;
pub mod report;
pub mod result;
pub mod rfc2544;
pub mod sampling;
pub mod scheduler;
pub mod simulated;
#[cfg(feature = "smoltcp")]
pub mod smoltcp;
pub mod stats;
pub mod table;
pub mod timeline;
pub mod units;
pub mod usl;
mod worker_pool;
pub mod workload;
