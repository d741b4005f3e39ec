//! The adapters for tokio, under every architecture with threads of its own.

mod pair;

use std::future::Future;
use std::io::ErrorKind;
use std::time::Duration;

use every_arch::every_arch;
use heddle::tokio::{TcpListener, TcpStream, UdpSocket};
use heddle::{Architecture, Interface, Stack, mem};
use pair::{pattern, stacks};
use testbed::limit::within;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

/// Long enough to show that a future waits.
const SHORT: Duration = Duration::from_millis(5);

/// Runs `test` between two stacks on a runtime of one thread that has no I/O driver.
fn between<F: Future<Output = ()>>(arch: Architecture, test: impl FnOnce(Stack, Stack) -> F + Send + 'static) {
    within(move || {
        let (a, b) = stacks(arch);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        LocalSet::new().block_on(&runtime, test(a, b));
    });
}

async fn connect(a: &Stack, b: &Stack) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(a, "10.0.0.1:80").unwrap();
    let client = TcpStream::connect(b, "10.0.0.1:80").await.unwrap();
    let (server, peer) = listener.accept().await.unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    (client, server)
}

#[every_arch]
fn both_halves_at_once(arch: Architecture) {
    const LENGTH: usize = 2 << 20;
    between(arch, |a, b| async move {
        let (client, server) = connect(&a, &b).await;
        let mut tasks = Vec::new();
        for (stream, sends, expects) in [(client, 1, 2), (server, 2, 1)] {
            let (mut reading, mut writing) = tokio::io::split(stream);
            tasks.push(spawn_local(async move {
                writing.write_all(&pattern(sends, LENGTH)).await.unwrap();
                writing.shutdown().await.unwrap();
            }));
            tasks.push(spawn_local(async move {
                let mut received = Vec::new();
                reading.read_to_end(&mut received).await.unwrap();
                assert!(received == pattern(expects, LENGTH), "{} bytes, not what was sent", received.len());
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[every_arch]
fn a_hundred_connections_on_one_thread(arch: Architecture) {
    const MANY: usize = 100;
    between(arch, |a, b| async move {
        let listener = TcpListener::bind(&a, "10.0.0.1:80").unwrap();
        spawn_local(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                spawn_local(async move {
                    let mut buffer = [0; 3000];
                    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                        stream.write_all(&buffer[..count]).await.unwrap();
                    }
                });
            }
        });
        let client = |n: usize| {
            let b = b.clone();
            async move {
                let mut stream = TcpStream::connect(&b, "10.0.0.1:80").await.unwrap();
                let data = pattern(n, 10_000);
                stream.write_all(&data).await.unwrap();
                let mut echoed = vec![0; data.len()];
                stream.read_exact(&mut echoed).await.unwrap();
                assert!(echoed == data);
            }
        };
        // Opened first, so that the neighbour is known: only a few SYNs may wait for its address.
        client(MANY).await;
        let tasks: Vec<_> = (0..MANY).map(|n| spawn_local(client(n))).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[every_arch]
fn a_read_that_is_dropped_takes_nothing(arch: Architecture) {
    between(arch, |a, b| async move {
        let (mut client, mut server) = connect(&a, &b).await;
        let mut buffer = [0; 4];
        for round in 0..10u8 {
            assert!(timeout(SHORT, server.read(&mut buffer)).await.is_err(), "nothing has been sent");
            client.write_all(&[round; 4]).await.unwrap();
            server.read_exact(&mut buffer).await.unwrap();
            assert_eq!(buffer, [round; 4]);
        }
    });
}

#[every_arch]
fn a_writer_waits_until_the_peer_reads(arch: Architecture) {
    between(arch, |a, b| async move {
        let (mut client, mut server) = connect(&a, &b).await;
        let data = pattern(1, 1 << 20);
        let mut sent = 0;
        while let Ok(count) = timeout(SHORT, client.write(&data)).await {
            sent += count.unwrap();
            assert!(sent < 64 << 20, "the peer does not read, and the buffers have a limit");
        }
        let task = spawn_local(async move {
            let mut total = 0;
            let mut buffer = vec![0; 65_536];
            while let count @ 1.. = server.read(&mut buffer).await.unwrap() {
                total += count;
            }
            total
        });
        client.write_all(b"the end").await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(task.await.unwrap(), sent + 7);
        assert_eq!(client.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[every_arch]
fn a_reset_wakes_reader_and_writer(arch: Architecture) {
    between(arch, |a, b| async move {
        let (client, server) = connect(&a, &b).await;
        let (mut reading, mut writing) = tokio::io::split(client);
        let reader = spawn_local(async move { reading.read(&mut [0; 8]).await });
        let writer = spawn_local(async move {
            loop {
                if let Err(error) = writing.write(&[0; 65_536]).await {
                    return error;
                }
            }
        });
        tokio::time::sleep(SHORT).await;
        server.get_ref().set_linger(Some(Duration::ZERO)).unwrap();
        drop(server);
        // The first of the two gets the reason.
        let (read, written) = (reader.await.unwrap().unwrap_err(), writer.await.unwrap());
        let kinds = [read.kind(), written.kind()];
        assert!(kinds.contains(&ErrorKind::ConnectionReset), "{kinds:?}");
    });
}

#[every_arch]
fn an_open_that_fails_says_why(arch: Architecture) {
    between(arch, |a, b| async move {
        let error = TcpStream::connect(&b, "10.0.0.1:81").await.unwrap_err();
        assert!(error.to_string().contains("10.0.0.1:81"), "{error} names the address");
        assert_eq!(std::io::Error::from(error).kind(), ErrorKind::ConnectionRefused);
        let nobody = TcpStream::connect(&b, "10.0.0.9:80");
        assert!(timeout(SHORT, nobody).await.is_err());
        assert_eq!(b.stats().connections, 0, "a dropped future gives up its attempt");
        drop(a);
    });
}

#[every_arch]
fn several_tasks_accept(arch: Architecture) {
    const MANY: usize = 4;
    between(arch, |a, b| async move {
        let listener = std::rc::Rc::new(TcpListener::bind(&a, "10.0.0.1:80").unwrap());
        let accept = |_| {
            let listener = listener.clone();
            spawn_local(async move { listener.accept().await.unwrap().1 })
        };
        let tasks: Vec<_> = (0..MANY).map(accept).collect();
        tokio::task::yield_now().await;
        let mut clients = Vec::new();
        for _ in 0..MANY {
            clients.push(TcpStream::connect(&b, "10.0.0.1:80").await.unwrap());
        }
        let mut accepted = Vec::new();
        for task in tasks {
            accepted.push(task.await.unwrap());
        }
        accepted.sort();
        let mut expected: Vec<_> = clients.iter().map(|client| client.local_addr().unwrap()).collect();
        expected.sort();
        assert_eq!(accepted, expected);
    });
}

#[every_arch]
fn datagrams_wake_their_readers(arch: Architecture) {
    between(arch, |a, b| async move {
        let server = UdpSocket::bind(&a, "10.0.0.1:53").unwrap();
        let client = UdpSocket::bind(&b, "10.0.0.2:0").unwrap();
        client.connect("10.0.0.1:53").unwrap();
        let task = spawn_local(async move {
            let mut buffer = [0; 2000];
            for _ in 0..20 {
                let (length, from) = server.recv_from(&mut buffer).await.unwrap();
                server.send_to(&buffer[..length], from).await.unwrap();
            }
            drop(server);
        });
        let mut buffer = [0; 2000];
        for n in 0..20 {
            let data = pattern(n, 100 * n);
            client.send(&data).await.unwrap();
            let length = client.recv(&mut buffer).await.unwrap();
            assert!(buffer[..length] == data);
        }
        task.await.unwrap();
        client.send(b"gone").await.unwrap();
        assert_eq!(client.recv(&mut buffer).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}

/// A waiting task holds its socket, and the socket's wakers hold the task: dropping the runtime breaks the cycle.
#[test]
fn a_runtime_that_ends_lets_go_of_the_stack() {
    within(|| {
        let (left, right) = mem::pair(mem::MemConfig::default());
        let stack = Stack::builder()
            .interface(Interface::new(left).address("10.0.0.1/24").expect("an address"))
            .build()
            .unwrap();
        let (_peer, mut drivers) = Stack::builder()
            .interface(Interface::new(right).address("10.0.0.2/24").expect("an address"))
            .build_polled()
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let listener = TcpListener::bind(&stack, "10.0.0.1:80").unwrap();
        let socket = UdpSocket::bind(&stack, "10.0.0.1:53").unwrap();
        let connecting = stack.clone();
        runtime.spawn(async move { listener.accept().await.unwrap().1 });
        runtime.spawn(async move { socket.recv(&mut [0; 8]).await });
        runtime.spawn(async move { TcpStream::connect(&connecting, "10.0.0.2:80").await.is_ok() });
        runtime.block_on(tokio::task::yield_now());
        drop(stack);
        while drivers[0].poll() > 0 {}
        assert!(!drivers[0].gone(), "the tasks hold the stack");
        drop(runtime);
        while drivers[0].poll() > 0 {}
        assert!(drivers[0].gone(), "nobody holds it any more");
    });
}

#[every_arch]
fn a_task_that_does_not_read_hears_of_a_reset(arch: Architecture) {
    between(arch, |a, b| async move {
        let (client, server) = connect(&a, &b).await;
        assert!(timeout(SHORT, client.readable()).await.is_err(), "nothing came");
        assert!(timeout(SHORT, client.failed()).await.is_err(), "nothing happened");
        let mut written = 0;
        let piece = pattern(1, 64 << 10);
        // Fills the send queue, so that a write must wait.
        while timeout(SHORT, client.writable()).await.is_ok() {
            written += std::io::Write::write(&mut client.get_ref(), &piece).unwrap_or(0);
        }
        assert!(written > 0);
        let reset = async move {
            server.get_ref().set_linger(Some(Duration::ZERO)).unwrap();
            drop(server);
        };
        let ((), writable, _) = tokio::join!(client.failed(), client.writable(), reset);
        writable.unwrap();
        let error = std::io::Write::write(&mut client.get_ref(), &piece).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}
