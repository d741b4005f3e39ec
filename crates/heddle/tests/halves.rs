//! Features of tokio's sockets besides reading and writing: halves, `try_` methods, readiness; and the traits of
//! futures-io.

mod pair;

use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::pin::Pin;

use every_arch::every_arch;
use heddle::tokio::{Interest, TcpListener, TcpStream, UdpSocket};
use heddle::{Architecture, Stack};
use pair::{pattern, stacks};
use testbed::limit::within;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{LocalSet, spawn_local};

/// The server's address, for both families.
const SERVERS: [&str; 2] = ["10.0.0.1:80", "[fd00::1]:80"];

/// Runs `test` between two stacks, over both families, on a runtime of one thread that has no I/O driver.
fn between<F: Future<Output = ()>>(arch: Architecture, test: impl Fn(TcpStream, TcpStream) -> F + Send + 'static) {
    on_stacks(arch, async move |a, b| {
        for server in SERVERS {
            let listener = TcpListener::bind(&a, server).expect("it is free");
            let client = TcpStream::connect(&b, server).await.expect("it answers");
            let (server, _) = listener.accept().await.expect("it waits");
            test(client, server).await;
        }
    });
}

fn on_stacks(arch: Architecture, test: impl AsyncFnOnce(Stack, Stack) + Send + 'static) {
    within(move || {
        let (a, b) = stacks(arch);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, test(a, b));
    });
}

#[every_arch]
fn owned_halves_go_to_two_tasks_and_come_together_again(arch: Architecture) {
    const LENGTH: usize = 300_000;
    between(arch, |client, mut server| async move {
        let (mut reading, mut writing) = client.into_split();
        let writer = spawn_local(async move {
            writing.write_all(&pattern(1, LENGTH)).await.expect("it lives");
            writing
        });
        let reader = spawn_local(async move {
            let mut came = vec![0; LENGTH];
            reading.read_exact(&mut came).await.expect("it lives");
            assert!(came == pattern(1, LENGTH));
            reading
        });
        let (mut from, mut to) = server.split();
        assert_eq!(
            tokio::io::copy(&mut (&mut from).take(LENGTH as u64), &mut to).await.expect("it lives"),
            LENGTH as u64
        );
        let (reading, writing) = (reader.await.expect("no panic"), writer.await.expect("no panic"));
        let mut whole = reading.reunite(writing).expect("they are of one connection");
        whole.write_all(b"whole").await.expect("it lives");
        let mut came = [0; 5];
        server.read_exact(&mut came).await.expect("it lives");
        assert_eq!(&came, b"whole");
    });
}

/// tokio: "Dropping the write half will shut down the write half of the TCP stream"; `forget`: "without shutting down".
#[every_arch]
fn a_half_that_writes_ends_its_direction_unless_it_is_forgotten(arch: Architecture) {
    between(arch, |client, mut server| async move {
        let (mut reading, writing) = client.into_split();
        drop(writing);
        assert_eq!(server.read(&mut [0; 8]).await.expect("the end"), 0);
        server.write_all(b"answer").await.expect("the other direction is open");
        let mut came = [0; 6];
        reading.read_exact(&mut came).await.expect("it lives");
        assert_eq!(&came, b"answer");
        let (_reading, writing) = server.into_split();
        writing.forget();
        assert_eq!(reading.try_read(&mut came).expect_err("no end").kind(), ErrorKind::WouldBlock);
    });
}

#[every_arch]
fn halves_of_two_connections_are_given_back(arch: Architecture) {
    between(arch, |client, server| async move {
        let ((reading, mut writing), (mut other_reading, other_writing)) = (client.into_split(), server.into_split());
        let refused = reading.reunite(other_writing).expect_err("two connections");
        let (_reading, _other_writing) = (refused.0, refused.1);
        writing.write_all(b"x").await.expect("nothing has ended");
        assert_eq!(other_reading.read(&mut [0; 8]).await.expect("nothing has ended"), 1);
    });
}

#[every_arch]
fn attempts_take_what_is_there_and_readiness_says_when(arch: Architecture) {
    between(arch, |client, server| async move {
        let mut buffer = [0; 16];
        assert_eq!(server.try_read(&mut buffer).expect_err("nothing came").kind(), ErrorKind::WouldBlock);
        let tried = server.try_io(Interest::READABLE, || -> std::io::Result<()> { panic!("it is not ready") });
        assert_eq!(tried.expect_err("it is not ready").kind(), ErrorKind::WouldBlock);
        let ready = server.ready(Interest::READABLE | Interest::WRITABLE).await.expect("it does not fail");
        assert!(ready.is_writable() && !ready.is_readable() && !ready.is_read_closed() && !ready.is_empty());
        client.writable().await.expect("it does not fail");
        assert_eq!(client.try_write(b"attempt").expect("there is room"), 7);
        server.readable().await.expect("it does not fail");
        assert_eq!(server.peek(&mut buffer).await.expect("data"), 7);
        assert_eq!(server.try_io(Interest::READABLE, || server.get_ref().peek(&mut buffer)).expect("data"), 7);
        assert_eq!(server.try_read(&mut buffer).expect("data"), 7);
        assert_eq!(&buffer[..7], b"attempt");
        while client.try_write(&[7; 1 << 16]).is_ok() {}
        drop(client);
        let mut rest = 0;
        loop {
            server.readable().await.expect("it does not fail");
            match server.try_read(&mut [0; 1 << 16]) {
                Ok(0) => break,
                Ok(count) => rest += count,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(rest >= 1 << 16, "{rest}");
        // Readiness is reported after the event: a read may have seen the end before.
        while !server.ready(Interest::READABLE).await.expect("it does not fail").is_read_closed() {
            tokio::task::yield_now().await;
        }
    });
}

#[every_arch]
fn datagrams_are_attempted_and_waited_for(arch: Architecture) {
    on_stacks(arch, async |a, b| {
        for (one, two) in [("10.0.0.1:0", "10.0.0.2:0"), ("[fd00::1]:0", "[fd00::2]:0")] {
            let (one, two) = (UdpSocket::bind(&a, one).expect("free"), UdpSocket::bind(&b, two).expect("free"));
            let mut buffer = [0; 16];
            assert_eq!(two.try_recv_from(&mut buffer).expect_err("none came").kind(), ErrorKind::WouldBlock);
            assert!(two.ready(Interest::READABLE | Interest::WRITABLE).await.expect("no failure").is_writable());
            one.writable().await.expect("no failure");
            let (from, to) = (one.local_addr().expect("bound"), two.local_addr().expect("bound"));
            assert_eq!(one.try_send_to(b"datagram", to).expect("a route"), 8);
            two.readable().await.expect("no failure");
            assert_eq!(two.peek_from(&mut buffer).await.expect("one"), (8, from));
            assert_eq!(
                two.try_io(Interest::READABLE, || two.get_ref().recv_from(&mut buffer)).expect("one"),
                (8, from)
            );
            two.connect(from).expect("a route");
            assert_eq!(two.try_send(b"answer").expect("a route"), 6);
            let mut space = [0; 16];
            let mut space = tokio::io::ReadBuf::new(&mut space);
            let came = poll_fn(|cx| one.poll_recv_from(cx, &mut space)).await.expect("one");
            assert_eq!((came, space.filled()), (to, &b"answer"[..]));
        }
    });
}

#[every_arch]
fn the_traits_of_futures_io_carry_a_stream(arch: Architecture) {
    use futures_io::{AsyncRead, AsyncWrite};
    between(arch, |mut client, server| async move {
        let (mut reading, _writing) = server.into_split();
        assert_eq!(poll_fn(|cx| AsyncWrite::poll_write(Pin::new(&mut client), cx, b"hello")).await.expect("room"), 5);
        poll_fn(|cx| AsyncWrite::poll_close(Pin::new(&mut client), cx)).await.expect("it lives");
        let (mut came, mut buffer) = (Vec::<u8>::new(), [0; 2]);
        loop {
            match poll_fn(|cx| AsyncRead::poll_read(Pin::new(&mut reading), cx, &mut buffer)).await.expect("it lives") {
                0 => break,
                count => came.extend(&buffer[..count]),
            }
        }
        assert_eq!(came, b"hello");
    });
}
