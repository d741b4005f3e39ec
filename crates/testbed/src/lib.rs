//! What tests and fuzz targets of whole stacks share: one stack on one thread in virtual time ([`node`]), the frames of
//! the host that the test plays to it ([`frames`]), steps that happen to it ([`subject`]), a device that looks at what
//! crosses it ([`order_check`]), one that panics on request ([`panicking`]), a model checker's platform that sleeps or
//! counts in another way ([`over`]), and how long tests wait ([`limit`]).
//!
//! What a thread spends in locks and read-modify-writes is counted by [`counting`]. Two stacks on one link are a
//! [`world`].
//!
//! Nothing here belongs to the product; no crate of it depends on this one but for its tests.
#![forbid(unsafe_code)]

pub mod counting;
pub mod frames;
pub mod limit;
pub mod node;
pub mod order_check;
pub mod over;
pub mod panicking;
pub mod subject;
pub mod world;
