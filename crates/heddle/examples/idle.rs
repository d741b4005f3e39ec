//! The cost of an idle connection: opens many, both ends in this process, and prints the resident memory of one end.
//!
//! ```text
//! cargo run --release --example idle
//! cargo run --release --example idle -- --arch connp-l:128 --connections 100000
//! ```

use std::error::Error;
use std::net::SocketAddr;

use clap::Parser;
use heddle::{Cidr, Connect, Interface, Polled, Readiness, Stack, TcpListener, TcpStream, mem};

/// Connections from one source address: no more than it has dynamic ports.
const PER_SOURCE: usize = 16_000;
/// Handshakes in progress at a time: their frames fit the rings.
const AT_ONCE: usize = 128;
const TARGET: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 1, 1)), 80);

#[derive(Parser)]
#[command(about = "Opens idle connections and prints what one costs in memory")]
struct Arguments {
    /// Process architecture: up, giant, msgp:1, connp-l:128, squeue:process, ...
    #[arg(long, default_value = "up", value_name = "PLAN")]
    arch: String,
    /// Connections to open
    #[arg(long, default_value_t = 100_000, value_name = "COUNT")]
    connections: usize,
}

struct World {
    client: Stack,
    server: Stack,
    listener: TcpListener,
    drivers: Vec<Polled>,
    sources: usize,
    streams: Vec<TcpStream>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let mut world = build(&arguments)?;
    // The first connection of each source resolves the link addresses; its other costs (pools, queues) belong to no
    // connection.
    let first = world.sources;
    world.open(first, 1)?;
    let before = resident()?;
    world.open(arguments.connections, AT_ONCE)?;
    let grown = resident()?.saturating_sub(before);
    let ends = 2 * arguments.connections.saturating_sub(first).max(1);
    let tables = world.client.stats().bytes + world.server.stats().bytes;
    println!("{}: {} connections", arguments.arch, arguments.connections);
    println!("resident memory: {} bytes an end, handles included", grown / ends);
    println!("tables, PCBs and sockets by their own account: {} bytes an end", tables / ends);
    Ok(())
}

fn build(arguments: &Arguments) -> Result<World, Box<dyn Error>> {
    let (left, right) = mem::pair(mem::MemConfig::default());
    let sources = arguments.connections.div_ceil(PER_SOURCE).max(1);
    let mut sources_of_client = Interface::new(left);
    for number in 1..=sources {
        sources_of_client = sources_of_client.address(Cidr::new(([10, 9, 0, number as u8]).into(), 16)?)?;
    }
    let end = || Stack::builder().architecture(&arguments.arch).own_threads(false);
    let (client, mut drivers) = end().interface(sources_of_client).build_polled()?;
    let (server, more) = end().interface(Interface::new(right).address("10.9.1.1/16")?).build_polled()?;
    drivers.extend(more);
    let listener = TcpListener::bind(&server, TARGET)?;
    listener.set_nonblocking(true)?;
    Ok(World { client, server, listener, drivers, sources, streams: Vec::with_capacity(2 * arguments.connections) })
}

impl World {
    /// Opens connections, `at_once` at a time, until there are `count`, and waits until both ends are idle.
    fn open(&mut self, count: usize, at_once: usize) -> Result<(), Box<dyn Error>> {
        while self.streams.len() < 2 * count {
            let first = self.streams.len();
            for number in (first / 2..count).take(at_once) {
                let source = SocketAddr::from(([10, 9, 0, (1 + number % self.sources) as u8], 0));
                self.streams.push(Connect::new().local(source).start(&self.client, TARGET)?);
            }
            let opening = self.streams.len();
            self.rest();
            while let Ok((stream, _)) = self.listener.accept() {
                self.streams.push(stream);
            }
            let connected = |stream: &TcpStream| stream.readiness().intersects(Readiness::CONNECTED);
            if !self.streams[first..opening].iter().all(connected) || self.streams.len() != 2 * opening - first {
                return Err("a handshake on a link without loss did not end at once".into());
            }
        }
        Ok(())
    }

    fn rest(&mut self) {
        while self.drivers.iter_mut().map(Polled::poll).sum::<usize>() > 0 {}
    }
}

/// Bytes of this process that are in memory (`VmRSS` of proc(5)).
fn resident() -> Result<usize, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("this kernel tells no VmRSS")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<usize>()? << 10)
}
