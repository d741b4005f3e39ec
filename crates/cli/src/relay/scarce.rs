//! A relay in a process without free descriptors: connections that it cannot accept wait, the relay reports that, and
//! serves them when others have ended. The limit is per process, so the relay is this test program again, as a child.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use clap::Parser;
use heddle::mem::MemConfig;
use heddle::{Interface, Stack};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use testbed::limit::HANG;

use super::{Args, CONNECTIONS, Relay, routes};
use crate::runtime;

/// Marks the child process.
const CHILD: &str = "HEDDLE_TEST_RELAYS_WITH_FEW_DESCRIPTORS";
const NAME: &str = "relay::scarce::what_cannot_be_accepted_now_is_accepted_later";
/// Free descriptors of the relay when it starts: for its signals, its listener and some connections.
const LEFT: u64 = 14;
const CLIENTS: usize = 40;

#[derive(Parser)]
struct Words {
    #[command(flatten)]
    args: Args,
}

/// Echoes data, with a thread for each connection.
fn echo(stack: &Stack) {
    let listener = heddle::TcpListener::bind(stack, "10.0.0.9:7").expect("the port is free");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("it blocks");
            std::thread::spawn(move || {
                let mut text = Vec::new();
                if stream.read_to_end(&mut text).is_ok() {
                    // The test may end before.
                    let _ = stream.write_all(&text);
                }
            });
        }
    });
}

/// The child: a relay between the kernel and a stack in this process, with few descriptors.
fn relay() {
    let words = "relay --json --listen kernel:127.0.0.1:0 --to 10.0.0.9:7 --addr 10.0.0.1/24";
    let Words { args } = Words::parse_from(words.split(' '));
    let (left, right) = heddle::mem::pair(MemConfig::default());
    let network = args.network.build(Box::new(left), &args.network.addr).expect("a stack");
    let peer = Stack::builder()
        .interface(Interface::new(right).address("10.0.0.9/24").expect("an address"))
        .build()
        .expect("its peer");
    echo(&peer);
    let runtime = runtime::new().expect("threads");
    let open = std::fs::read_dir("/proc/self/fd").expect("it is there").count() as u64;
    let limit = Rlimit { current: Some(open + LEFT), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).expect("a lower limit");
    let relay = Arc::new(Relay::new(network, &args, CONNECTIONS));
    runtime.block_on(relay.run(&routes(&args).expect("a route"), true)).expect("it runs until it is told to end");
}

fn start() -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([NAME, "--exact", "--nocapture"]).env(CHILD, "1");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a child")
}

/// The port on which the child listens, from the line that announces it.
fn port(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> u16 {
    let line = lines.map_while(Result::ok).find(|line| line.contains("listening")).expect("it listens");
    let (_, rest) = line.split_once("kernel:127.0.0.1:").expect("the door");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a port")
}

#[test]
fn what_cannot_be_accepted_now_is_accepted_later() {
    if std::env::var_os(CHILD).is_some() {
        return relay();
    }
    let mut child = start();
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let port = port(&mut lines);
    // All of them at once; each ends only in its turn.
    let clients: Vec<TcpStream> =
        (0..CLIENTS).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("queued")).collect();
    for (number, mut client) in clients.into_iter().enumerate() {
        client.set_read_timeout(Some(HANG)).expect("a time-out");
        let text = vec![number as u8; 10_000];
        client.write_all(&text).expect("room");
        client.shutdown(Shutdown::Write).expect("the end");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap_or_else(|error| panic!("client {number}: {error}"));
        assert!(answer == text, "client {number}: {} bytes", answer.len());
    }
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    lines.map_while(Result::ok).for_each(drop);
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    assert!(child.wait().expect("its end").success(), "{said}");
    assert!(said.contains("raise the limit of open files") && !said.contains("panicked"), "{said}");
}
