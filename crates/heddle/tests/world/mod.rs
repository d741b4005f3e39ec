//! The test world with the library's stacks: see [`testbed::world`].

#![allow(dead_code)] // each test file uses its part

pub mod transfer;

use std::ops::{Deref, DerefMut};

use heddle::config::Config;
use heddle::{Cidr, Interface, Polled, Stack, mem};
use observe::CounterSnapshot;
use testbed::world::{self, End};

pub use testbed::world::WorldConfig;

pub const A: &str = "10.0.0.1";
pub const B: &str = "10.0.0.2";

pub struct World(world::World<Stack>);

impl World {
    pub fn new(arch: stack::Architecture) -> World {
        World::on(WorldConfig::new([arch; 2]))
    }

    pub fn with(arch: stack::Architecture, tune: impl Fn(&mut Config), link: mem::MemConfig) -> World {
        let mut terms = WorldConfig { link, ..WorldConfig::new([arch; 2]) };
        tune(&mut terms.tcp);
        World::on(terms)
    }

    /// On a link with faults in both directions.
    pub fn lossy(arch: stack::Architecture, faults: &str) -> World {
        World::on(WorldConfig { faults: faults.parse().expect("a fault plan"), ..WorldConfig::new([arch; 2]) })
    }

    pub fn on(terms: WorldConfig) -> World {
        World(world::World::built_by(terms, |mut end: End| {
            let device = end.device();
            let End { addresses, arch, cpus, tcp, seed, clock, .. } = end;
            let cidrs = addresses.map(|(address, prefix)| Cidr::new(address, prefix).expect("a prefix"));
            let interface = Interface::new(device).addresses(cidrs).expect("addresses");
            let builder = Stack::builder().interface(interface).architecture(arch).cpus(cpus).own_threads(false);
            let (stack, polled) = builder.tcp(tcp).seed(seed).clock(clock).build_polled().expect("the stack builds");
            (stack, polled.into_iter().map(Polled::into_driver).collect())
        }))
    }

    /// The counters of both stacks, including frames that reached no connection.
    pub fn counters(&self) -> CounterSnapshot {
        self.a.stats().counters + self.b.stats().counters + self.drivers_counters()
    }
}

impl Deref for World {
    type Target = world::World<Stack>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}
