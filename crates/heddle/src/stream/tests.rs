//! The memory of streams, which the thread that closes them uses again.

use std::net::Ipv4Addr;

use super::*;
use crate::{Interface, mem};

/// A stack with a device; its other end is never read.
fn stack() -> Stack {
    let (device, _) = mem::pair(mem::MemConfig::default());
    let interface = Interface::new(device).address("10.0.0.1/24").expect("an address");
    Stack::builder().interface(interface).architecture("up").build_polled().expect("a stack").0
}

fn open(stack: &Stack, port: u16) -> TcpStream {
    Connect::new().start(stack, (Ipv4Addr::new(10, 0, 0, 2), port)).expect("a port is free")
}

fn place(stream: &TcpStream) -> *const StreamInner {
    &raw const *stream.inner
}

fn kept() -> usize {
    SPARE_STREAMS.with_borrow(SpareMemory::len)
}

#[test]
fn a_stream_has_the_memory_of_a_closed_one_and_nothing_else_of_it() {
    let stack = stack();
    let references = Arc::strong_count(&stack.inner);
    let first = open(&stack, 1);
    first.set_read_timeout(Some(Duration::from_secs(1))).expect("not zero");
    first.inner.ended.store(true, Ordering::Relaxed);
    let memory = place(&first);
    drop(first);
    assert_eq!((kept(), Arc::strong_count(&stack.inner)), (1, references), "memory alone is kept");
    let second = open(&stack, 2);
    assert_eq!((place(&second), kept()), (memory, 0));
    assert_eq!((second.remote().port(), second.read_timeout().expect("it never fails")), (2, None));
    assert!(!second.inner.ended.load(Ordering::Relaxed) && second.inner.nonblocking.load(Ordering::Relaxed));
}

#[test]
fn another_handle_keeps_the_connection() {
    let stack = stack();
    let one = open(&stack, 1);
    let other = one.clone();
    drop(one);
    assert_eq!((stack.stats().connections, kept()), (1, 0));
    drop(other);
    assert_eq!((stack.stats().connections, kept()), (0, 1), "it was in SYN-SENT, which CLOSE ends");
}

#[test]
fn any_thread_may_close_a_stream() {
    let stack = stack();
    let stream = open(&stack, 1);
    let kept_there = std::thread::spawn(move || {
        drop(stream);
        kept()
    });
    assert_eq!(kept_there.join().expect("no panic"), 1);
    assert_eq!((stack.stats().connections, kept()), (0, 0));
}

#[test]
fn of_many_streams_little_memory_is_kept() {
    let stack = stack();
    let many: Vec<TcpStream> = (0..2 * SPARE as u16).map(|port| open(&stack, 1 + port)).collect();
    drop(many);
    assert_eq!((stack.stats().connections, kept()), (0, SPARE));
}
