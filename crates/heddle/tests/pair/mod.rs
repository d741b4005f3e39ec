//! Two stacks on one link, each with its own threads, in real time. Time-outs are guards against a hang, never waited
//! for when all is well.

#![allow(dead_code)] // each test file uses its part

use std::sync::mpsc;
use std::time::Duration;

use heddle::{Interface, Plan, Stack, TcpListener, TcpStream, mem};

/// Longer than anything here takes on a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Stacks at 10.0.0.1 and 10.0.0.2, with two queue pairs.
pub fn stacks(plan: Plan) -> (Stack, Stack) {
    let (left, right) = mem::pair(mem::MemConfig { queues: 2, ..Default::default() });
    let build = |device, cidrs: [&str; 2]| {
        Stack::builder()
            .interface(Interface::new(device).addresses(cidrs).expect("addresses"))
            .plan(plan)
            .cpus(2)
            .build()
            .expect("the stack builds")
    };
    (build(left, ["10.0.0.1/24", "fd00::1/64"]), build(right, ["10.0.0.2/24", "fd00::2/64"]))
}

/// A connection: the client's end at `b`, the server's at `a`.
pub fn connected(a: &Stack, b: &Stack) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(a, "10.0.0.1:80").expect("the port is free");
    let client = TcpStream::connect(b, "10.0.0.1:80").expect("the listener answers");
    let (server, _) = listener.accept().expect("a connection waits");
    (client, server)
}

/// Runs `test` on a thread of its own; fails if it hangs.
pub fn within<R: Send + 'static>(test: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, finished) = mpsc::channel();
    let thread = std::thread::spawn(move || done.send(test()));
    match finished.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("a thread that ends well has sent its result"),
        },
    }
}

/// Bytes that say where they belong: a different sequence for each `seed`.
pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    let mut state = seed as u32 ^ 0x9e37_79b9;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}
