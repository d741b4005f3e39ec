//! The defining property of each process architecture, observed from outside: which locks are held while an event runs,
//! which thread runs it, which threads wait for which, and which are woken. Each test is derived from the paper or
//! system that the architecture is from (Willmann, Rixner and Cox 2006; Nahum et al. 1994; Solaris' squeues; DragonFly
//! BSD; FreeBSD's netisr; NetBSD's soft interrupts; Linux' backlog; gVisor's processors). It uses nothing private to an architecture, only recorded walks, frames that reach the device, and threads
//! that sleep. Each runs over IPv4 and over IPv6.

mod agents;
mod arrival_tickets;
mod backlog;
mod bench;
mod contention;
mod counting;
mod datagrams;
mod deadlines;
mod events;
mod exclusion;
mod faults;
mod full_queues;
mod layer;
mod lwkt;
mod named_faults;
mod netisr;
mod processor;
mod scene;
mod softint;
mod squeue_binding;
mod squeue_polling;
mod squeue_upcalls;
mod threads;
mod two_queues;
mod wakes;
mod walk;

#[path = "../../examples/cpu_groups/architecture.rs"]
mod cpu_groups;

/// For `#[every_arch]`: the architectures that are declared outside the crate.
fn register_architectures() {
    stack::register::<scene::Observed, _>(&cpu_groups::DECLARATION, cpu_groups::new).expect("its name is its own");
}
