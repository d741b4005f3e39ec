//! One connection: the far end is opened, and data carried in both directions until both have ended.
//!
//! Each direction reads only after it has written the piece before, so that a slow reader slows its writer down. The
//! end of a stream is passed on as a half-close. An error at either end resets the other, even if that end is not being
//! read at the moment, because its data cannot be written or has ended.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio::task::consume_budget;

use super::Relay;
use super::end::{Accepted, End, Place, open_by_heddle, open_by_kernel};

/// Bytes read at a time; also the capacity of a pooled packet buffer, and the most that is buffered in a direction.
const PIECE: usize = 64 << 10;

thread_local! {
    /// Buffer between a read and a write, shared by all connections of a thread.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; PIECE].into_boxed_slice());
}

/// An end that is reset when it is dropped before both directions have ended, by an error or because the relay stops.
/// The program at the other side must not mistake a part for the whole.
struct ResetOnDrop<E: End> {
    end: E,
    whole: bool,
}

impl<E: End> ResetOnDrop<E> {
    fn new(end: E) -> ResetOnDrop<E> {
        ResetOnDrop { end, whole: false }
    }
}

impl<E: End> Drop for ResetOnDrop<E> {
    fn drop(&mut self) {
        if !self.whole {
            self.end.reset_when_dropped();
        }
    }
}

/// Opens the other half of `accepted` at `to` and carries data to the end.
pub async fn connection(relay: &Relay, accepted: Accepted, to: Place) {
    let open = relay.totals.accepted();
    match accepted {
        Accepted::Kernel(near, peer) => {
            let near = ResetOnDrop::new(near);
            let far = open_by_heddle(&relay.network.stack, to.address(), relay.timeout).await;
            both(relay, near, far, peer, to).await;
        }
        Accepted::Heddle(near, peer) => {
            let near = ResetOnDrop::new(near);
            let far = open_by_kernel(to.address(), relay.timeout).await;
            both(relay, near, far, peer, to).await;
        }
    }
    drop(open);
}

async fn both(
    relay: &Relay,
    mut near: ResetOnDrop<impl End>,
    far: Result<impl End, String>,
    peer: SocketAddr,
    to: Place,
) {
    let mut far = match far {
        Ok(far) => ResetOnDrop::new(far),
        Err(problem) => {
            relay.totals.not_opened();
            return relay.log.print(&format!("{peer} is not served: {problem}"));
        }
    };
    if relay.verbose {
        eprintln!("{peer} to {to}");
    }
    match carry(&near.end, &far.end, relay.totals.directions()).await {
        Ok(()) => (near.whole, far.whole) = (true, true),
        Err(error) => {
            relay.totals.reset();
            if relay.verbose {
                eprintln!("{peer} to {to}: {error}");
            }
        }
    }
}

/// Carries data between two ends until both directions have ended, or one end has failed.
async fn carry(near: &impl End, far: &impl End, (forth, back): (&AtomicU64, &AtomicU64)) -> io::Result<()> {
    near.prompt();
    far.prompt();
    let (there, here) = (Notify::new(), Notify::new());
    tokio::try_join!(direction(near, far, forth, &there, &here), direction(far, near, back, &here, &there))?;
    Ok(())
}

/// Carries data from one end to the other; `ended` is notified at its end, `other` at the other direction's.
async fn direction(
    from: &impl End,
    to: &impl End,
    carried: &AtomicU64,
    ended: &Notify,
    other: &Notify,
) -> io::Result<()> {
    let mut rest = Vec::new();
    loop {
        if rest.is_empty() {
            from.readable().await;
        } else {
            tokio::select! {
                () = to.writable() => {}
                () = from.failed() => return Err(from.failure()),
            }
        }
        match step(from, to, &mut rest, carried) {
            Ok(true) => consume_budget().await,
            Ok(false) => break,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    to.finish()?;
    ended.notify_one();
    // This end is no longer read, but a reset may still arrive.
    tokio::select! {
        biased;
        () = other.notified() => Ok(()),
        () = from.failed() => Err(from.failure()),
    }
}

/// Writes the rest of the last piece, or reads a piece and writes it; data that does not fit becomes the new rest.
/// False: the stream has ended.
fn step(from: &impl End, to: &impl End, rest: &mut Vec<u8>, carried: &AtomicU64) -> io::Result<bool> {
    let count = |written: usize| carried.fetch_add(written as u64, Ordering::Relaxed);
    if !rest.is_empty() {
        let written = to.try_write(rest)?;
        count(written);
        if written == rest.len() {
            // An idle connection holds no buffer.
            *rest = Vec::new();
        } else {
            rest.drain(..written);
        }
        return Ok(true);
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let length = from.try_read(scratch)?;
        if length == 0 {
            return Ok(false);
        }
        let written = match to.try_write(&scratch[..length]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            written => written?,
        };
        count(written);
        rest.extend_from_slice(&scratch[written..length]);
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{IpAddr, Shutdown, TcpStream};
    use std::sync::Arc;
    use std::time::Duration;

    use clap::Parser;
    use heddle::{ALL_ARCHITECTURES, Stack};
    use testbed::limit::HANG;

    use super::super::end::Listener;
    use super::*;
    use crate::network::NetworkArgs;
    use crate::relay::{Args, CONNECTIONS};

    const OURS: &str = "10.0.0.2";
    const PEER: &str = "10.0.0.1";

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// A relay between the kernel's loopback and a stack at the other end of a cable in memory.
    struct Rig {
        relay: Arc<Relay>,
        peer: Stack,
        runtime: tokio::runtime::Runtime,
        /// The address to which programs of the kernel connect.
        entrance: SocketAddr,
        /// The target of the relay's Heddle listener.
        behind: std::net::TcpListener,
        /// The target of its kernel listener.
        far: heddle::TcpListener,
    }

    fn rig(arch: &str) -> Rig {
        let words = ["heddle", "--listen", "0.0.0.0:1", "--to", "kernel:127.0.0.1:1", "--addr", "10.0.0.2/24"];
        let words = words.iter().copied().chain(["--queues", "2", "--arch", arch]);
        let args = Line::parse_from(words).args;
        let (network, peer) = NetworkArgs::with_peer(&args.network, PEER.parse::<IpAddr>().unwrap()).unwrap();
        let far = heddle::TcpListener::bind(&peer, (PEER.parse::<IpAddr>().unwrap(), 80)).unwrap();
        let behind = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Arc::new(Relay::new(network, &args, CONNECTIONS));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let open = |listen: &str| {
            let place: Place = listen.parse().unwrap();
            runtime.block_on(Listener::open(place, &relay.network.stack)).unwrap()
        };
        let (kernels, ours) = (open("kernel:127.0.0.1:0"), open("10.0.0.2:80"));
        let entrance = kernels.address(true).unwrap().address();
        runtime.spawn(relay.clone().accept(kernels, format!("{PEER}:80").parse().unwrap()));
        runtime.spawn(relay.clone().accept(ours, Place::Kernel(behind.local_addr().unwrap())));
        Rig { relay, peer, runtime, entrance, behind, far }
    }

    impl Rig {
        /// A kernel's client and the peer's server, joined by the relay.
        fn out(&self) -> (TcpStream, heddle::TcpStream) {
            let near = TcpStream::connect(self.entrance).unwrap();
            near.set_read_timeout(Some(HANG)).unwrap();
            (near, self.far.accept_timeout(HANG).unwrap().0)
        }

        /// The peer's client and a kernel's server, joined by the relay.
        fn back(&self) -> (TcpStream, heddle::TcpStream) {
            let address = SocketAddr::new(OURS.parse().unwrap(), 80);
            let near = heddle::TcpStream::connect_timeout(&self.peer, address, HANG).unwrap();
            let (far, _) = self.behind.accept().unwrap();
            far.set_read_timeout(Some(HANG)).unwrap();
            (far, near)
        }

        /// Waits until no connection is open; returns how many were carried, and how many of them were reset.
        fn at_rest(self) -> (u64, u64) {
            let none_open = async { tokio::time::timeout(HANG, self.relay.totals.none_open()).await };
            self.runtime.block_on(none_open).expect("every connection ends");
            self.relay.totals.connections()
        }
    }

    fn pattern(seed: u32, length: u32) -> Vec<u8> {
        (0..length).map(|n| ((n ^ seed).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    /// Sends `data`, ends its direction, and reads until the end of the other.
    fn talk<S: Read + Write + Sync>(mut stream: S, data: &[u8], finish: impl Fn(&S) + Sync) -> Vec<u8>
    where
        for<'a> &'a S: Read + Write,
    {
        let mut heard = Vec::new();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                (&stream).write_all(data).unwrap();
                finish(&stream);
            });
            (&stream).read_to_end(&mut heard).unwrap();
            writer.join().unwrap();
        });
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "an end stays an end");
        heard
    }

    #[test]
    fn data_goes_both_ways_at_once_under_every_architecture() {
        let (up, down) = (pattern(1, 3 << 20), pattern(2, 2 << 20));
        for arch in ALL_ARCHITECTURES {
            let rig = rig(arch);
            for (kernels, heddles) in [rig.out(), rig.back()] {
                std::thread::scope(|scope| {
                    let kernels =
                        scope.spawn(|| talk(kernels, &up, |stream| stream.shutdown(Shutdown::Write).unwrap()));
                    let heard = talk(heddles, &down, |stream| stream.shutdown(Shutdown::Write).unwrap());
                    assert!(heard == up, "{arch}: {} bytes", heard.len());
                    assert!(kernels.join().unwrap() == down, "{arch}");
                });
            }
            assert_eq!(rig.at_rest(), (2, 0), "{arch}");
        }
    }

    #[test]
    fn a_direction_that_has_ended_leaves_the_other_open() {
        let rig = rig("connp-l:128");
        for (mut kernels, mut heddles) in [rig.out(), rig.back()] {
            kernels.write_all(b"a question").unwrap();
            kernels.shutdown(Shutdown::Write).unwrap();
            let mut data = Vec::new();
            heddles.read_to_end(&mut data).unwrap();
            assert_eq!(data, b"a question");
            heddles.write_all(b"an answer").unwrap();
            drop(heddles);
            data.clear();
            kernels.read_to_end(&mut data).unwrap();
            assert_eq!(data, b"an answer");
        }
        for (mut kernels, mut heddles) in [rig.out(), rig.back()] {
            heddles.write_all(b"a question").unwrap();
            heddles.shutdown(Shutdown::Write).unwrap();
            let mut data = Vec::new();
            kernels.read_to_end(&mut data).unwrap();
            kernels.write_all(&data).unwrap();
            drop(kernels);
            data.clear();
            heddles.read_to_end(&mut data).unwrap();
            assert_eq!(data, b"a question");
        }
        assert_eq!(rig.at_rest(), (4, 0));
    }

    #[test]
    fn a_reset_is_carried_over() {
        let rig = rig("connp-t");
        for (kernels, mut heddles) in [rig.out(), rig.back()] {
            carried(&kernels, &heddles);
            kernels_reset(kernels);
            assert_eq!(heddles.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
        for (mut kernels, heddles) in [rig.out(), rig.back()] {
            carried(&kernels, &heddles);
            heddles.set_linger(Some(Duration::ZERO)).unwrap();
            drop(heddles);
            assert_eq!(kernels.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
        assert_eq!(rig.at_rest(), (4, 4));
    }

    /// Waits until data passes: before that the relay would treat a reset as a refused connection.
    fn carried(mut kernels: &TcpStream, mut heddles: &heddle::TcpStream) {
        heddles.set_read_timeout(Some(HANG)).unwrap();
        kernels.write_all(b"?").unwrap();
        heddles.read_exact(&mut [0]).unwrap();
    }

    fn kernels_reset(stream: TcpStream) {
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    }

    #[test]
    fn a_reader_that_stops_stops_its_writer_and_a_reset_still_gets_through() {
        let rig = rig("giant");
        for (mut kernels, mut heddles) in [rig.out(), rig.back()] {
            // The kernel's buffers, the stack's and one piece of the relay are filled; then there is no more room.
            kernels.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
            let (mut sent, piece) = (0, pattern(3, 1 << 16));
            while let Ok(written) = kernels.write(&piece) {
                sent += written;
                assert!(sent < 256 << 20, "somebody keeps what nobody reads");
            }
            kernels_reset(kernels);
            heddles.set_read_timeout(Some(HANG)).unwrap();
            let mut heard = Vec::new();
            let error = heddles.read_to_end(&mut heard).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            assert!(heard.len() < sent, "what was in between is lost by a reset");
        }
        assert_eq!(rig.at_rest(), (2, 2));
    }

    #[test]
    fn who_finds_nobody_is_reset() {
        let rig = rig("squeue:process");
        let Rig { far, behind, relay, peer, runtime, entrance } = rig;
        drop((far, behind));
        // The reset may arrive before the call that opens the connection has returned.
        let kernels = TcpStream::connect(entrance).and_then(|mut near| {
            near.set_read_timeout(Some(HANG))?;
            near.read(&mut [0])
        });
        assert_eq!(kernels.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let address = SocketAddr::new(OURS.parse().unwrap(), 80);
        let near = heddle::TcpStream::connect_timeout(&peer, address, HANG).map_err(io::Error::from);
        let heddles = near.and_then(|mut near| {
            near.set_read_timeout(Some(HANG)).unwrap();
            near.read(&mut [0])
        });
        assert_eq!(heddles.unwrap_err().kind(), ErrorKind::ConnectionReset);
        runtime.block_on(relay.totals.none_open());
        assert_eq!(relay.totals.connections(), (2, 0));
    }

    #[test]
    fn a_relay_that_stops_resets_what_it_has_not_carried_to_the_end() {
        let rig = rig("connp-l:128");
        let (mut kernels, mut heddles) = rig.out();
        carried(&kernels, &heddles);
        drop(rig.runtime);
        assert_eq!(kernels.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(heddles.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}
