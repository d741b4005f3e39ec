//! The defining property of each process architecture, seen from outside: which locks are held while an event runs,
//! which thread runs it, which threads wait for which, and which are woken. Each test is derived from the paper or the
//! system that the architecture is from (Willmann, Rixner and Cox 2006; Nahum et al. 1994; Solaris' squeues; DragonFly
//! BSD), and looks at nothing that is private to an architecture: at recorded walks, at what reaches the device, and at
//! the threads that sleep. Each is looked at over IPv4 and over IPv6.

mod agents;
mod bench;
mod contention;
mod datagrams;
mod events;
mod exclusion;
mod scene;
mod wakes;
mod walk;
