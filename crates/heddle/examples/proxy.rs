//! Proxy: joins each client to a connection to a server of its own. Both connections have handlers, which run where their
//! data arrives: one posts its received data to the other, which may be in another cell, on another thread. Buffers are
//! passed on without a copy. One thread opens the connections to the server, because handlers call nothing.
//!
//! ```text
//! cargo run --example proxy
//! cargo run --example proxy -- --tap tap0 --addr 10.9.0.2/24 --to 10.9.0.1:80      # then: curl http://10.9.0.2:7/
//! ```

mod ends;
mod handlers;

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::mpsc;
use std::thread;

use clap::Parser;
use ends::Ends;
use handlers::{Echo, Relay};
use heddle::handler::Service;
use heddle::{Connect, Stack, TcpStream};

#[derive(Parser)]
#[command(about = "Proxy made of handlers")]
struct Arguments {
    #[command(flatten)]
    place: ends::Place,
    /// On a TAP device: the server that clients are joined to
    #[arg(long, value_name = "ADDRESS", requires = "tap")]
    to: Option<SocketAddr>,
    /// Port of the proxy
    #[arg(long, default_value_t = 7)]
    port: u16,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    match arguments.place.open()? {
        Ends::Memory { server, client } => {
            // The server behind the proxy is on the client's stack.
            let echo = client.serve("10.0.0.2:80", |_| Echo::default())?;
            let (proxy, _worker) = proxy(&server, ends::memory_address(arguments.port), echo.local_addr())?;
            let mut stream = TcpStream::connect(&client, proxy.local_addr())?;
            stream.write_all(b"there and back, twice through the proxy")?;
            stream.shutdown(Shutdown::Write)?;
            let mut back = String::new();
            stream.read_to_string(&mut back)?;
            println!("client: {back}");
        }
        Ends::Tap { stack, address } => {
            let to = arguments.to.ok_or("give the server's address: --to 10.9.0.1:80")?;
            let (proxy, worker) = proxy(&stack, SocketAddr::new(address, arguments.port), to)?;
            println!("{} leads to {to}", proxy.local_addr());
            worker.join().expect("the thread that opens connections does not panic");
        }
    }
    Ok(())
}

/// Serves clients at `at`, and joins each to a connection to `to`, which the returned thread opens.
fn proxy(stack: &Stack, at: SocketAddr, to: SocketAddr) -> Result<(Service, thread::JoinHandle<()>), Box<dyn Error>> {
    let (ask, asked) = mpsc::channel();
    let service = stack.serve(at, move |_| Relay::of_client(ask.clone()))?;
    let stack = stack.clone();
    let worker = thread::spawn(move || {
        for client in asked {
            if let Err(error) = Connect::new().start_with_handler(&stack, to, Relay::of_server(client)) {
                eprintln!("{error}");
            }
        }
    });
    Ok((service, worker))
}
