//! The two ends of an example: two stacks on a link in memory, or one stack on a TAP device whose other end is the
//! kernel (or whatever the device is bridged to).

#![allow(dead_code, reason = "each example uses its part")]

use std::error::Error;
use std::net::SocketAddr;

use clap::Args;
use heddle::{Cidr, Interface, Stack, mem, tap};

/// Where the example runs.
#[derive(Args)]
pub struct Place {
    /// Run on this TAP device instead of a link in memory
    #[arg(long, requires = "addr", value_name = "NAME")]
    tap: Option<String>,
    /// Our address on the TAP device, as 10.9.0.2/24
    #[arg(long, requires = "tap", value_name = "CIDR")]
    addr: Option<Cidr>,
    /// Process architecture: giant, msgp:1, connp-l:128, connp-t, squeue:process, ...
    #[arg(long, default_value = "connp-l:128", value_name = "PLAN")]
    arch: String,
}

/// The stacks of an example.
pub enum Ends {
    /// Both ends are ours.
    Memory { server: Stack, client: Stack },
    /// One end is ours; its address.
    Tap { stack: Stack, address: std::net::IpAddr },
}

impl Place {
    /// Builds the stacks.
    pub fn open(&self) -> Result<Ends, Box<dyn Error>> {
        if let (Some(name), Some(cidr)) = (&self.tap, self.addr) {
            let device = tap::Tap::open(name, tap::TapOptions::default())?;
            let stack =
                Stack::builder().interface(Interface::new(device).address(cidr)?).architecture(&self.arch).build()?;
            println!("one stack under {} on {name}, address {cidr}", stack.architecture());
            return Ok(Ends::Tap { stack, address: cidr.address() });
        }
        let (left, right) = mem::pair(mem::MemConfig::default());
        let server = Stack::builder()
            .interface(Interface::new(left).address("10.0.0.1/24")?)
            .architecture(&self.arch)
            .build()?;
        let client = Stack::builder()
            .interface(Interface::new(right).address("10.0.0.2/24")?)
            .architecture(&self.arch)
            .build()?;
        println!("two stacks under {} on a link in memory: 10.0.0.1 and 10.0.0.2", server.architecture());
        Ok(Ends::Memory { server, client })
    }
}

/// Where the servers of the examples listen if both ends are ours.
pub fn memory_address(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}
