//! What is run on a machine, on top of the crate `stack`: [`pair`], two stacks on a link in memory.

pub mod pair;
