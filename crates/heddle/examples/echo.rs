//! Echo: returns what a client sends. Blocking sockets, one thread for each connection.
//!
//! ```text
//! cargo run --example echo
//! cargo run --example echo -- --tap tap0 --addr 10.9.0.2/24                            # then: nc 10.9.0.2 7
//! cargo run --example echo -- --tap tap0 --addr 10.9.0.2/24 --connect 10.9.0.1:7 hello
//! ```

mod ends;

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::thread;

use clap::Parser;
use ends::Ends;
use heddle::{Stack, TcpListener, TcpStream};

#[derive(Parser)]
#[command(about = "Echo server and client")]
struct Arguments {
    #[command(flatten)]
    place: ends::Place,
    /// On a TAP device: be the client of this server (default: be the server)
    #[arg(long, value_name = "ADDRESS", requires = "tap")]
    connect: Option<SocketAddr>,
    /// Port of the server
    #[arg(long, default_value_t = 7)]
    port: u16,
    /// Words that the client sends
    #[arg(default_values_t = ["hello".to_owned(), "is anybody there?".to_owned()])]
    words: Vec<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    match arguments.place.open()? {
        Ends::Memory { server, client } => {
            let listener = TcpListener::bind(&server, ends::memory_address(arguments.port))?;
            let address = listener.local_addr()?;
            let server = thread::spawn(move || -> Result<(), String> {
                let (stream, peer) = listener.accept().map_err(|error| error.to_string())?;
                println!("server: connection from {peer}");
                let count = echo(&stream).map_err(|error| error.to_string())?;
                println!("server: {peer} is done, {count} bytes echoed");
                Ok(())
            });
            talk(&client, address, &arguments.words)?;
            server.join().expect("the server does not panic")?;
        }
        Ends::Tap { stack, address } => match arguments.connect {
            Some(server) => talk(&stack, server, &arguments.words)?,
            None => serve(&stack, SocketAddr::new(address, arguments.port))?,
        },
    }
    Ok(())
}

/// Serves for ever.
fn serve(stack: &Stack, address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(stack, address)?;
    println!("server: listening; try `nc {} {}`, stop with Ctrl-C", address.ip(), address.port());
    for stream in listener.incoming() {
        let stream = stream?;
        let peer = stream.peer_addr()?;
        thread::spawn(move || {
            println!("server: connection from {peer}");
            match echo(&stream) {
                Ok(count) => println!("server: {peer} is done, {count} bytes echoed"),
                Err(error) => println!("server: {error}"),
            }
        });
    }
    Ok(())
}

/// Sends back received data until the peer closes; returns the number of bytes.
fn echo(mut stream: &TcpStream) -> std::io::Result<usize> {
    let mut buffer = vec![0; 64 << 10];
    let mut total = 0;
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(total);
        }
        stream.write_all(&buffer[..count])?;
        total += count;
    }
}

/// Sends each word and waits for its echo.
fn talk(stack: &Stack, server: SocketAddr, words: &[String]) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(stack, server)?;
    println!("client: connected to {server} from {}", stream.local_addr()?);
    for word in words {
        stream.write_all(word.as_bytes())?;
        let mut answer = vec![0; word.len()];
        stream.read_exact(&mut answer)?;
        println!("client: sent {word:?}, got {:?}", String::from_utf8_lossy(&answer));
    }
    if let Some(rtt) = stream.status().and_then(|status| status.srtt) {
        println!("client: a round trip took about {rtt:?}");
    }
    stream.shutdown(Shutdown::Write)?;
    // The end of the stream: the server has received ours.
    stream.read_to_end(&mut Vec::new())?;
    Ok(())
}
