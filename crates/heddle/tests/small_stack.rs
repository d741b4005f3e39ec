//! A stack can be built, used and dropped by a thread with little memory for its own stack, as an embedding program may
//! have many of.

mod pair;

use std::io::{Read, Write};
use std::time::Duration;

use every_arch::every_arch;
use heddle::{Architecture, TcpListener, TcpStream};

/// Bytes for the stack of the thread: a quarter of musl's default, a sixty-fourth of std's.
const SMALL: usize = 32 << 10;

/// `HEDDLE_STACK_SIZE` tries another size, in bytes.
fn on_a_small_stack(job: impl FnOnce() + Send + 'static) {
    let size = std::env::var("HEDDLE_STACK_SIZE").map_or(SMALL, |text| text.parse().expect("a number of bytes"));
    std::thread::Builder::new().stack_size(size).spawn(job).unwrap().join().unwrap();
}

/// If this overflows the stack, the process ends by a signal.
#[every_arch]
fn a_stack_is_built_used_and_dropped_on_a_stack_of_32_kib(arch: Architecture) {
    on_a_small_stack(move || {
        let (server, client) = pair::stacks(arch);
        for address in ["10.0.0.1:80", "[fd00::1]:80"] {
            let listener = TcpListener::bind(&server, address).unwrap();
            let mut stream = TcpStream::connect(&client, address).unwrap();
            let (mut peer, _) = listener.accept().unwrap();
            stream.set_linger(Some(Duration::from_secs(5))).unwrap();
            stream.write_all(b"little").unwrap();
            let mut came = [0; 6];
            peer.read_exact(&mut came).unwrap();
            assert_eq!(&came, b"little");
        }
        assert_eq!(client.stats().counters.get(heddle::Counter::ConnectionsOpened), 2);
        drop((server, client));
    });
}
