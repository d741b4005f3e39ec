//! An architecture of one's own: [`architecture`] declares it, `main` registers it and runs a stack under it.
//!
//! ```text
//! cargo run -p heddle-stack --example cpu_groups
//! ```
//!
//! The same file is part of the test programs that `crates/every-arch/src/also.txt` names, where every test marked
//! `#[every_arch]` covers it.

mod architecture;

use dev::{Device, mem};
use stack::{Addressing, Architecture, InterfaceConfig, Stack, StackConfig};
use sync::Real;

fn main() {
    stack::register::<Real, _>(&architecture::DECLARATION, architecture::new).expect("its name is its own");
    let arch = Architecture::named("cpu-groups");
    let (near, _far) = mem::pair::<Real>(mem::MemConfig::default());
    let interface = InterfaceConfig {
        device: Box::new(near) as Box<dyn Device>,
        addresses: vec![([10, 0, 0, 1].into(), 24)],
        gateways: Vec::new(),
        addressing: Addressing::default(),
    };
    let (stack, mut drivers) = Stack::<Real>::build(StackConfig::new(arch), vec![interface]).expect("it builds");
    let address = ([10, 0, 0, 1], 80).into();
    let listener = stack.listen(address, 16, Default::default()).expect("the port is free");
    drivers.iter_mut().for_each(|driver| _ = driver.poll());
    println!("{arch}: {}", arch.describe());
    println!("listens at {} with {} connections", listener.local(), stack.stats().connections);
}
