//! A bad network: files arrive complete, and Heddle has no more spurious retransmissions than Linux over the same
//! network.
//!
//! For the comparison two kernels (two namespaces) are joined by two TAP interfaces and a thread that carries frames
//! between them through the same fault device as Heddle's. Receiver, capture and fault plan are the same; only the
//! sender differs.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use heddle::device::fault::FaultPlan;
use heddle::device::{Device, RxQueue, TxQueue, with_faults};
use heddle::tap::{Offloads, Tap, TapOptions};
use testbed::limit::HANG;

use crate::capture::{Capture, frames};
use crate::namespace::{INTERFACE, Namespace, OURS_V4, OURS_V6, in_namespace, say, second_namespace};
use crate::programs::{self, Ssh};
use crate::relaying::Relaying;
use crate::serving::{Serving, curl, sha256_of};
use crate::{FAULTS, MIB, full};

#[test]
fn files_arrive_whole_through_a_relay_on_a_bad_network() {
    in_namespace(&["curl", "nginx", "rsync", "ssh", "ssh-keygen", "sshd"], |space| {
        let site = space.site(if full() { 32 * MIB } else { 2 * MIB });
        let (nginx, ssh) = (programs::nginx(&site), Ssh::start(space));
        let archs = if full() { &heddle::ALL_ARCHITECTURES[..] } else { &["msgp:2", "connp-t"] };
        for arch in archs {
            let relaying = Relaying::start(space, nginx.port, arch, &["--fault", FAULTS]);
            for target in relaying.targets() {
                assert_eq!(curl(&[&target.url("big")]), site.big, "{arch}: {target:?}");
            }
            relaying.stop();
            let relaying = Relaying::start(space, ssh.server.port, arch, &["--fault", FAULTS]);
            let [listens, _, _, connects] = relaying.targets();
            for target in [listens, connects] {
                let (shell, there) = (ssh.command(target.port, &[]).join(" "), space.directory("there"));
                let remote = format!("root@{}:{there}/", target.bracketed());
                let words = ["rsync", "-a", "--timeout", "60", "-e", &shell, &site.path("big"), &remote];
                crate::process::run(&words);
                assert_eq!(sha256_of(&format!("{there}/big")), site.big, "{arch}: {target:?}");
                std::fs::remove_dir_all(there).expect("removed");
            }
            relaying.stop();
        }
    });
}

/// A transfer as seen by the receiver.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Segments with data.
    segments: usize,
    /// Of those, how many the receiver had acknowledged before.
    spurious: usize,
}

/// Fetches `bytes` from port 80 of the far end, and evaluates the frames on our interface meanwhile.
fn fetch(space: &Namespace, bytes: usize) -> Seen {
    let file = format!("{}/capture.pcap", space.directory("capture"));
    let capture = Capture::start(INTERFACE, &file);
    let mut stream = TcpStream::connect((OURS_V4, 80)).expect("a connection");
    stream.set_read_timeout(Some(HANG)).expect("a time-out");
    stream.write_all(b"GET /big HTTP/1.0\r\n\r\n").expect("asked");
    let mut data = Vec::with_capacity(bytes + 1000);
    stream.read_to_end(&mut data).expect("the answer");
    assert!(data.len() >= bytes, "{} bytes of {bytes}", data.len());
    drop(stream);
    let file = capture.stop();
    let of_sender = format!("ip.src == {OURS_V4} && tcp.len > 0");
    let segments = frames(&file, &of_sender).len();
    assert!(segments >= bytes / 1460, "{segments} segments for {bytes} bytes");
    Seen { segments, spurious: frames(&file, &format!("{of_sender} && tcp.analysis.spurious_retransmission")).len() }
}

fn from_heddle(space: &Namespace, plan: &str, bytes: usize) -> Seen {
    let site = space.site(bytes);
    let cable = ["--queues", "1", "--threads", "2", "--offload", "none", "--fault", plan];
    let serving = Serving::start(space, &site, "connp-l:128", &cable);
    let seen = fetch(space, bytes);
    serving.stop();
    seen
}

/// A TAP interface's end of the cable, in the namespace of the calling thread.
pub fn cable(interface: &str) -> Tap {
    let options = TapOptions { queues: 1, offloads: Offloads::None, ..TapOptions::default() };
    Tap::open(interface, options).expect("the interface")
}

fn from_linux(space: &Namespace, plan: &str, bytes: usize) -> Seen {
    let near = with_faults(Box::new(cable(INTERFACE)), plan.parse::<FaultPlan>().expect("a plan"));
    let (ready, far) = channel();
    let (served, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // There the kernel replaces Heddle at the other end of a cable.
            second_namespace(OURS_V4, OURS_V6);
            let listener = TcpListener::bind((OURS_V4, 80)).expect("a listener");
            ready.send(cable(INTERFACE)).expect("somebody waits");
            let (mut stream, _) = listener.accept().expect("a client");
            let _ = stream.read(&mut [0; 1000]).expect("a request");
            stream.write_all(&vec![7; bytes]).expect("sent");
            stream.shutdown(Shutdown::Write).expect("shut down");
            // The namespace, and with it the interface, lasts as long as its threads.
            let _ = stream.read(&mut [0; 1]);
            served.store(true, Ordering::Relaxed);
        });
        let (near, far) = (queues(near), queues(far.recv().expect("the other end")));
        scope.spawn(|| carry(near.0, far.1, &stop));
        scope.spawn(|| carry(far.0, near.1, &stop));
        let seen = fetch(space, bytes);
        stop.store(true, Ordering::Relaxed);
        seen
    })
}

pub fn queues(mut device: impl Device) -> (Box<dyn RxQueue>, Box<dyn TxQueue>) {
    let pair = device.take_queues().remove(0);
    (pair.rx, pair.tx)
}

/// Carries frames in one direction until `stop`.
pub fn carry(mut from: Box<dyn RxQueue>, mut to: Box<dyn TxQueue>, stop: &AtomicBool) {
    let mut batch = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        from.wait(Some(Duration::from_millis(20)));
        while from.receive(&mut batch, 64) > 0 {
            for frame in batch.drain(..) {
                // A queue without room is a loss on the cable.
                let _ = to.transmit(frame);
            }
            to.flush();
        }
    }
}

#[test]
fn heddle_sends_no_more_needlessly_than_linux() {
    in_namespace(&["tcpdump", "tshark"], |space| {
        let (bytes, seeds) = if full() { (16 * MIB, 1..=10) } else { (3 * MIB, 1..=3) };
        let mut worse = Vec::new();
        for faults in ["loss 1% delay 1ms", "loss 1% reorder 2% delay 1ms"] {
            let mut sums = [Seen::default(); 2];
            for seed in seeds.clone() {
                let plan = format!("{faults} seed {seed}");
                let seen = [from_heddle(space, &plan, bytes), from_linux(space, &plan, bytes)];
                for (sum, seen) in sums.iter_mut().zip(seen) {
                    sum.segments += seen.segments;
                    sum.spurious += seen.spurious;
                }
            }
            let [heddle, linux] = sums;
            let compared = format!("{faults}: Heddle {heddle:?}, Linux {linux:?}");
            say(&compared);
            // The two run at different times: one segment in a thousand is no difference.
            let chance = heddle.segments / 1000;
            worse.extend((heddle.spurious > linux.spurious + chance).then_some(compared));
        }
        assert!(worse.is_empty(), "{worse:?}");
    });
}
