//! Records one received segment and one `write` through the stack, and renders both as text under several architectures.

#[allow(dead_code, reason = "the example prints the page only")]
pub mod figure4;

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};

use heddle::{Connect, TcpListener, TcpStream};
use stack::Architecture;
use sync::walk::{WalkStep, record};

use crate::world::World;

/// The architectures that are walked through.
pub const PLANS: [&str; 13] = [
    "connp-l:128",
    "connp-t:spsc",
    "connp-t:lwkt",
    "msgp:6",
    "msgp-pool",
    "squeue:process+poll",
    "backlog",
    "backlog:processor",
    "shared-nothing",
    "steal",
    "softint",
    "layer",
    "adaptive",
];

/// The page: the steps of a received segment and a write under each of [`PLANS`].
pub fn page() -> String {
    let mut page = String::from(
        "One received data segment and one write() under several architectures, as recorded by a debug build (`cargo xtask \
         walk`).\nEach line is a source file and what happens there; [class] is a lock taken, /class its release. Under \
         connp-t, msgp-pool, backlog:processor and\nsoftint the one thread of this recording plays caller, receive thread, and protocol thread, processor or worker in turn.\n",
    );
    for arch in PLANS {
        let Walk { received, written } = walk(arch);
        let _ = write!(page, "\n== {arch}: a data segment arrives ==\n{}", render(&received));
        let _ = write!(page, "\n== {arch}: write() of 100 bytes ==\n{}", render(&written));
    }
    let _ = write!(page, "\n== {}: write() of 100 bytes ==\n{}", figure4::MSGP, render(&walk(figure4::MSGP).written));
    let _ = write!(
        page,
        "\n== Willmann, Rixner and Cox (2006), figure 4: one send under MsgP, and the same write ==\n{}",
        figure4::text()
    );
    page
}

/// What was recorded under one architecture.
pub struct Walk {
    /// A receive thread takes a data segment from the device, for a socket whose user does not sleep.
    pub received: Vec<WalkStep>,
    /// A caller writes 100 bytes, which leave at once.
    pub written: Vec<WalkStep>,
}

/// Records both under `arch`.
pub fn walk(arch: &str) -> Walk {
    let arch = Architecture::named(arch);
    let mut world = World::new(arch);
    let listener = TcpListener::bind(&world.a, "10.0.0.1:80").expect("the port is free");
    listener.set_nonblocking(true).unwrap();
    let mut client = Connect::new().start(&world.b, "10.0.0.1:80").expect("a port");
    world.settle();
    let (mut server, _) = listener.accept().expect("the handshake is complete");
    server.set_nonblocking(true).unwrap();
    // Once each way first, so that the route look-up and a quick acknowledgement are not recorded.
    client.write_all(&[0; 100]).expect("there is room");
    world.settle();
    drain(&mut server);
    world.settle();
    // The caller is not a protocol thread, if there are any; where a thread owns what it polls, it is the caller.
    let caller_polls = arch.properties().polling_thread_owns;
    for (index, driver) in world.drivers().iter_mut().enumerate() {
        driver.rest();
        // What a thread takes once, when it begins to poll, is not part of a segment. The first stack receives.
        if index == 0 || caller_polls {
            driver.poll();
        }
    }
    let ((), written) = record(|| client.write_all(&[1; 100]).expect("there is room"));
    let ((), received) = record(|| {
        world.drivers()[0].poll();
    });
    world.settle();
    drain(&mut server);
    Walk { received, written }
}

fn drain(stream: &mut TcpStream) {
    let mut buffer = [0; 1000];
    while stream.read(&mut buffer).map_err(|error| assert_eq!(error.kind(), ErrorKind::WouldBlock)).is_ok() {}
}

/// A source file as the pages name it: `stack/rx.rs`.
pub fn place(file: &str) -> String {
    file.trim_start_matches("crates/").replace("/src/", "/")
}

fn render(steps: &[WalkStep]) -> String {
    let mut text = String::new();
    let mut depth = 0;
    for step in steps {
        match step {
            WalkStep::Note { file, text: what } => {
                let _ = writeln!(text, "{:indent$}{}: {what}", "", place(file), indent = 2 * depth);
            }
            WalkStep::Take(class) => {
                let _ = writeln!(text, "{:indent$}[{class}]", "", indent = 2 * depth);
                depth += 1;
            }
            WalkStep::Release(class) => {
                depth = depth.saturating_sub(1);
                let _ = writeln!(text, "{:indent$}/{class}", "", indent = 2 * depth);
            }
            WalkStep::Answer => {
                let _ = writeln!(text, "{:indent$}<-- answered", "", indent = 2 * depth);
            }
            WalkStep::HandOff => {
                let _ = writeln!(text, "{:indent$}--> handed to another thread's queue", "", indent = 2 * depth);
            }
        }
    }
    text
}
