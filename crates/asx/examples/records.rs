//! Records over a connection: modules pushed onto a socket, from text, and one more while the connection is in use.
//!
//! ```text
//! cargo run -p heddle-asx --example records
//! cargo run -p heddle-asx --example records -- layer "trace | frame max=4096"
//! ```

use std::error::Error;
use std::thread;

use asx::{Catalogue, ProcessArchitecture, Stream, TcpBottom, WaterMarks};
use heddle::{Stack, TcpListener, TcpStream};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let architecture: ProcessArchitecture = arguments.next().as_deref().unwrap_or("connection").parse()?;
    let text = arguments.next().unwrap_or_else(|| "trace | frame max=4096".to_owned());

    let catalogue = Catalogue::default();
    let over = |connection: TcpStream| -> Result<Stream, Box<dyn Error>> {
        let bottom = TcpBottom::new(connection)?;
        Ok(Stream::over(bottom, architecture, catalogue.modules(&text)?, WaterMarks::default())?)
    };

    let stack = Stack::builder().build()?;
    let listener = TcpListener::bind(&stack, "127.0.0.1:0")?;
    let client = over(TcpStream::connect(&stack, listener.local_addr()?)?)?;
    let server = over(listener.accept()?.0)?;

    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let echo = scope.spawn(|| -> Result<(), Box<dyn Error + Send + Sync>> {
            while let Some(message) = server.read()? {
                server.write(message)?;
            }
            Ok(server.end()?)
        });
        for text in ["hello", "hello again", "with a checksum"] {
            if text == "with a checksum" {
                // No message is in flight, so both ends change between the same two messages.
                client.push(catalogue.module("checksum")?)?;
                server.push(catalogue.module("checksum")?)?;
            }
            client.write(text.as_bytes())?;
            let answer = client.read()?.and_then(|answer| answer.into_bytes().ok()).unwrap_or_default();
            println!("{:<16} through {}", String::from_utf8_lossy(&answer), client.modules().join(" | "));
        }
        client.end()?;
        println!("the end: {}", client.read()?.is_none());
        echo.join().expect("the server has not panicked").map_err(|error| error.to_string())?;
        Ok(())
    })
}
