//! The papers whose designs Heddle has: every figure, table and claim, the paper's numbers, and ours beside them.
//!
//! A paper is a data file (`papers/*.toml`): figures with the numbers that the text gives and their places in it, and
//! claims with the tests that decide them. [`run`](mod@run) measures what is missing in a [`Store`], point by point;
//! [`book`] writes the pages. The command line (`heddle paper`) is the only caller; it starts processes, shows
//! progress and listens for signals.
//!
//! | module | owns |
//! |---|---|
//! | [`data`] | the data files and their checks |
//! | [`claim`] | the tests of a claim, as conditions on samples; verdicts |
//! | [`point`] | a single measurement and its result |
//! | [`store`] | finished points on disk, each once |
//! | [`plan`] | which points a selection of figures needs; how long that takes |
//! | [`run`](mod@run) | the points of a plan that are missing, one after the other |
//! | [`simulated`], [`host`] | a point on the simulated machine; a load on this host |
//! | [`array`](mod@array) | a plan as a job array of a cluster, its tasks, and the collection of their results |
//! | [`findings`] | a paper's figures filled with samples: rows, verdicts |
//! | [`book`] | pages, JSON, CSV |
//! | [`list`], [`summary`] | `heddle paper list`; `docs/claims.md` |
//!
//! # What may never happen
//! A number of a paper without its place, or a number of ours that was not measured. A verdict from samples of two
//! commits, or of two machines. A finished point that is lost or measured twice.
#![forbid(unsafe_code)]

pub mod array;
pub mod book;
pub mod claim;
pub mod data;
pub mod findings;
pub mod host;
pub mod list;
pub mod plan;
pub mod point;
pub mod run;
pub mod simulated;
pub mod store;
pub mod summary;

pub use data::Paper;
pub use store::Store;
