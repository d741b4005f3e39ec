//! Tests of the statements of Linux's man pages on sockets, with quotations. The same body runs against the machine's
//! kernel on loopback and, under every process architecture, against two stacks on a link and one stack by loopback:
//! the kernel is the oracle.

// The test's own threads and locks are the machine's, as its kernel is.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod closing;
mod epoll;
mod groups;
mod kernel;
mod opening;
mod receiving;
mod sharing;
mod system;
mod vectors;
mod world;

/// A test of the body `$body(&World)`: against the kernel, and under every architecture with two stacks and one.
#[macro_export]
macro_rules! kernel_and_stacks {
    ($($(#[$doc:meta])* $name:ident = $body:ident;)+) => {$(
        mod $name {
            use every_arch::every_arch;
            use stack::Architecture;
            use $crate::world::World;

            $(#[$doc])*
            #[test]
            fn kernel() {
                super::$body(&World::kernel());
            }

            #[every_arch]
            fn stacks(arch: Architecture) {
                super::$body(&World::stacks(arch));
            }

            #[every_arch]
            fn itself(arch: Architecture) {
                super::$body(&World::itself(arch));
            }
        }
    )+};
}
