//! Two stacks on one link, each with its own threads, in real time.

#![allow(dead_code)] // each test file uses its part

use heddle::{Architecture, Interface, Stack, TcpListener, TcpStream, mem};

/// Stacks at 10.0.0.1 and 10.0.0.2, with two queue pairs.
pub fn stacks(arch: Architecture) -> (Stack, Stack) {
    let (left, right) = mem::pair(mem::MemConfig { queues: 2, ..Default::default() });
    let build = |device, cidrs: [&str; 2]| {
        Stack::builder()
            .interface(Interface::new(device).addresses(cidrs).expect("addresses"))
            .architecture(arch)
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

/// A byte pattern that identifies its position: a different sequence for each `seed`.
pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    let mut state = seed as u32 ^ 0x9e37_79b9;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}
