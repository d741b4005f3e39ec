//! A connection of `heddle` as the bottom: records of every length over TCP, under each process architecture, with modules that
//! change while it is in use.

use std::thread;

use asx::{Catalogue, Stream, StreamError, TcpBottom, WaterMarks};
use heddle::{Stack, TcpListener, TcpStream};
use testbed::limit::within;

fn connected() -> (TcpStream, TcpStream) {
    let stack = Stack::builder().build().expect("a stack");
    let listener = TcpListener::bind(&stack, "127.0.0.1:0").expect("a listener");
    let client = TcpStream::connect(&stack, listener.local_addr().expect("an address")).expect("a connection");
    (client, listener.accept().expect("the same connection").0)
}

fn over(connection: TcpStream, architecture: &str, text: &str) -> Stream {
    let modules = Catalogue::default().modules(text).expect("modules");
    let bottom = TcpBottom::new(connection).expect("blocking mode");
    Stream::over(bottom, architecture.parse().expect("a name"), modules, WaterMarks::default()).expect("a stream")
}

#[test]
fn records_come_back_over_tcp_while_a_module_is_replaced() {
    within(|| {
        for architecture in ["caller", "connection", "message:2", "layer"] {
            let (client, server) = connected();
            let text = "checksum | frame max=100000 fragment=3000";
            let (client, server) = (over(client, architecture, text), over(server, "caller", text));
            let lengths = || (0..40_usize).map(|n| n * n * 50);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while let Some(message) = server.read().expect("a record") {
                        server.write(message).expect("it is written");
                    }
                    server.end().expect("it ends");
                });
                scope.spawn(|| {
                    lengths().for_each(|length| client.write(vec![length as u8; length]).expect("it is written"));
                    client.end().expect("it ends");
                });
                for length in lengths() {
                    let message = client.read().expect("a record").expect("not the end");
                    assert_eq!(message.as_bytes(), Some(&vec![length as u8; length][..]), "{architecture}");
                    let new = Catalogue::default().module("checksum").expect("a module");
                    client.replace("checksum", new).expect("it is replaced");
                }
                assert!(client.read().expect("the end").is_none());
            });
        }
    });
}

#[test]
fn closing_a_stream_wakes_the_threads_that_wait_for_the_connection() {
    within(|| {
        for architecture in ["connection", "message:2", "layer"] {
            let (client, _server) = connected();
            let stream = over(client, architecture, "frame");
            thread::scope(|scope| {
                let reader = scope.spawn(|| stream.read());
                thread::yield_now();
                stream.close();
                assert_eq!(reader.join().expect("no panic").unwrap_err(), StreamError::Closed);
            });
        }
    });
}
