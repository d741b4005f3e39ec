//! Against the kernel: a TAP device in a network namespace created by the test.
//!
//! Each test runs on a thread of its own that first leaves the machine's network namespace; if that is not permitted,
//! it prints one line and passes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use dev::conformance::{Conformance, ContractRule};
use dev::layout::Layout;
use dev::{Device, QueuePair, WaitOutcome};
use dev_tap::packet::{PacketOptions, PacketPort};
use dev_tap::{Offloads, Tap, TapError, TapOptions};
use frames::{Datagram, Ends, Payload, Segment};
use observe::DropReason;
use pktbuf::{Checksum, PktBuf};
use testbed::limit::HANG;
use wire::ethernet::MacAddr;
use wire::tcp::{Header, Options, TcpFlags};
use wire::{checksum, protocol, tcp, udp};

/// The kernel's address in the namespace, and ours.
const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// Runs `test` in a new network namespace.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let inside = move || {
        // SAFETY: unshare takes a plain integer and, for network namespaces, affects this thread only.
        let permitted = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
        if !permitted || !std::path::Path::new("/dev/net/tun").exists() || ip("link set lo up").is_err() {
            println!("skipped: a network namespace, /dev/net/tun or the command `ip` is not available here");
            return;
        }
        test();
    };
    std::thread::spawn(inside).join().expect("the test in the namespace failed");
}

/// Runs `ip` with the words of `arguments`, in the calling thread's namespace.
fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("ip: {error}")),
    }
}

/// Opens `tap0` with an address on the kernel's side and a neighbour entry for ours.
fn open(options: TapOptions) -> Tap {
    // A process that another test starts holds a copy of the previous descriptor between its fork and its exec.
    let deadline = std::time::Instant::now() + HANG;
    while ip("link show tap0").is_ok() {
        assert!(std::time::Instant::now() < deadline, "the last tap0 is still there");
    }
    let tap = Tap::open("tap0", options).expect("the device opens");
    ip("addr add 10.9.0.1/24 dev tap0").expect("an address");
    let mac = tap.capabilities().mac;
    ip(&format!("neigh replace 10.9.0.2 lladdr {} dev tap0", text(mac))).expect("a neighbour");
    tap
}

fn text(mac: MacAddr) -> String {
    mac.0.map(|byte| format!("{byte:02x}")).join(":")
}

/// Waits for a frame that `wanted` recognises, on any queue; skips others.
fn await_frame<T>(queues: &mut [QueuePair], mut wanted: impl FnMut(&PktBuf) -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + HANG;
    let mut batch = Vec::new();
    loop {
        // One frame at a time, so that later ones remain for the next call.
        for queue in queues.iter_mut() {
            while queue.rx.receive(&mut batch, 1) == 1 {
                if let Some(found) = batch.pop().and_then(|frame| wanted(&frame)) {
                    return found;
                }
            }
        }
        assert!(std::time::Instant::now() < deadline, "the frame did not come");
        for queue in queues.iter_mut() {
            queue.rx.wait(Some(Duration::from_millis(20)));
        }
    }
}

/// From us to the kernel.
fn ends(host: MacAddr, ours: MacAddr) -> Ends {
    Ends { src_mac: ours, dst_mac: host, src: OURS.into(), dst: KERNEL.into() }
}

/// A frame to the kernel, with a packet buffer around it.
fn frame<'a>(ends: Ends, payload: impl Into<Payload<'a>>) -> PktBuf {
    PktBuf::from_slice(&ends.bytes(payload)).expect("a buffer")
}

/// A UDP frame whose checksum is left to the kernel.
fn udp_frame(host: MacAddr, ours: MacAddr, to: u16, data: &[u8]) -> PktBuf {
    let datagram = Datagram { checksum: frames::Checksum::Pseudo, ..Datagram::new(7, to, data) };
    let mut frame = frame(ends(host, ours), datagram);
    frame.meta_mut().checksum = Checksum::Partial { start: 34, offset: 6 };
    frame
}

/// The destination port and data of a UDP frame to us.
fn udp_to_us(frame: &PktBuf) -> Option<(u16, Vec<u8>)> {
    let layout = Layout::of(frame).filter(|layout| layout.protocol == protocol::UDP)?;
    let header = udp::parse(&frame[layout.l4..layout.end]).ok()?;
    Some((header.dst_port, frame[layout.data..layout.end].to_vec()))
}

#[test]
fn datagrams_cross_in_both_directions_with_every_kind_of_offload() {
    in_namespace(|| {
        for offloads in [Offloads::None, Offloads::Checksum, Offloads::All] {
            let mut tap = open(TapOptions { queues: 2, offloads, mtu: Some(1400), ..TapOptions::default() });
            let (host, ours) = (tap.host_mac(), tap.capabilities().mac);
            let capabilities = tap.capabilities().clone();
            assert_ne!(host, ours);
            assert_eq!((capabilities.mtu, capabilities.queue_pairs), (1400, 2));
            assert_eq!(capabilities.tx_checksum, offloads != Offloads::None);
            assert_eq!(capabilities.segmentation.is_some(), offloads == Offloads::All);
            let mut queues = tap.take_queues();
            let socket = UdpSocket::bind((KERNEL, 0)).expect("a socket");
            socket.set_read_timeout(Some(HANG)).expect("a timeout");
            let port = socket.local_addr().expect("bound").port();
            socket.send_to(b"from the kernel", (OURS, 4711)).expect("sent");
            let received = await_frame(&mut queues, |frame| {
                let (port, data) = udp_to_us(frame).filter(|(port, _)| *port == 4711)?;
                let layout = Layout::of(frame)?;
                assert!(layout.checksum_is_good(frame), "the checksum is right or vouched for");
                Some((port, data, frame.meta().checksum))
            });
            assert_eq!(received.1, b"from the kernel");
            let left_open = matches!(received.2, Checksum::Partial { start: 34, offset: 6 });
            assert_eq!(left_open, offloads != Offloads::None, "{:?}", received.2);
            for (index, queue) in queues.iter_mut().enumerate() {
                assert!(queue.tx.credit() > 0);
                let data = format!("to the kernel, queue {index}");
                queue.tx.transmit(udp_frame(host, ours, port, data.as_bytes())).expect("room");
                queue.tx.flush();
                let mut buffer = [0; 100];
                let len = socket.recv(&mut buffer).expect("the kernel took the frame, so its checksum is right");
                assert_eq!(&buffer[..len], data.as_bytes());
            }
        }
    });
}

/// The kernel reads the bytes where all holders do. Only a checksum that has to be completed here takes a copy.
#[test]
fn a_frame_that_others_hold_is_written_without_a_copy() {
    in_namespace(|| {
        for (offloads, copies) in [(Offloads::Checksum, 0), (Offloads::None, 1)] {
            let mut tap = open(TapOptions { offloads, ..TapOptions::default() });
            let (host, ours) = (tap.host_mac(), tap.capabilities().mac);
            let mut queues = tap.take_queues();
            let socket = UdpSocket::bind((KERNEL, 0)).expect("a socket");
            socket.set_read_timeout(Some(HANG)).expect("a timeout");
            let port = socket.local_addr().expect("bound").port();
            let held = udp_frame(host, ours, port, b"held by others").share();
            let bytes = held.to_vec();
            pktbuf::refuse(copies, u64::MAX);
            let sent = queues[0].tx.transmit_shared(held.clone());
            let refused = u64::MAX - pktbuf::refusals_left();
            pktbuf::refuse(0, 0);
            assert!(sent.is_ok() && refused == 0, "{offloads:?}: {sent:?}");
            assert!(held.is_unique() && *held == *bytes, "{offloads:?}");
            let mut buffer = [0; 100];
            let len = socket.recv(&mut buffer).expect("the kernel took the frame, so its checksum is right");
            assert_eq!(&buffer[..len], b"held by others");
        }
    });
}

#[test]
fn an_echo_request_of_the_kernel_is_seen_as_a_frame() {
    in_namespace(|| {
        let mut tap = open(TapOptions::default());
        let mut queues = tap.take_queues();
        // An unprivileged echo socket would suffice; a raw one needs no configuration of the namespace.
        let patience = HANG.as_secs().to_string();
        let ping = Command::new("ping").args(["-c", "1", "-W", &patience, "10.9.0.2"]).stdout(Stdio::null()).spawn();
        let Ok(mut ping) = ping else {
            println!("skipped: the command `ping` is not available here");
            return;
        };
        let (host, ours) = (tap.host_mac(), tap.capabilities().mac);
        let mut request = await_frame(&mut queues, |frame| {
            let is_echo = frame.len() > 42 && frame[23] == protocol::ICMP && frame[34] == 8;
            is_echo.then(|| frame.duplicate().expect("a buffer"))
        });
        // The echo reply: type 0, so the checksum grows by the 8 that the type loses.
        request[34] = 0;
        let sum = u16::from_be_bytes([request[36], request[37]]);
        let reply = checksum::update_u16(sum, 0x0800, 0);
        request[36..38].copy_from_slice(&reply.to_be_bytes());
        let answer = frame(ends(host, ours), Payload::Other(protocol::ICMP, &request[34..]));
        queues[0].tx.transmit(answer).expect("room");
        assert!(ping.wait().expect("ping ends").success(), "the kernel accepted the reply");
    });
}

/// Our end of a TCP connection with the kernel, made by hand.
struct ByHand {
    host: MacAddr,
    ours: MacAddr,
    port: u16,
    seq: u32,
    ack: u32,
}

impl ByHand {
    /// A segment whose checksum is left to the kernel.
    fn segment(&self, to: u16, flags: TcpFlags, options: Options, data: &[u8]) -> PktBuf {
        let segment = Segment { flags, data, ..Segment::ack((self.port, to), self.seq, self.ack) };
        let segment = Segment { checksum: frames::Checksum::Pseudo, ..segment }.options(options);
        let mut frame = frame(ends(self.host, self.ours), segment);
        frame.meta_mut().checksum = Checksum::Partial { start: 34, offset: 16 };
        frame
    }

    /// Waits for a segment to our port; returns its header, data and segment size.
    fn hear(&self, queues: &mut [QueuePair]) -> (Header, Vec<u8>, u16) {
        await_frame(queues, |frame| {
            let layout = Layout::of(frame).filter(|layout| layout.protocol == protocol::TCP)?;
            let header = tcp::parse(&frame[layout.l4..layout.end]).ok()?;
            let data = frame[layout.data..layout.end].to_vec();
            (header.dst_port == self.port).then_some((header, data, frame.meta().segment_size))
        })
    }
}

const SYN_ACK: TcpFlags = TcpFlags(0x12);
const MSS: Options = Options { mss: Some(1460), ..Options::NONE };

#[test]
fn the_kernel_hands_over_super_segments_when_segmentation_is_offloaded() {
    in_namespace(|| {
        for offloads in [Offloads::All, Offloads::Checksum] {
            let mut tap = open(TapOptions { offloads, ..TapOptions::default() });
            let mut hand = ByHand { host: tap.host_mac(), ours: tap.capabilities().mac, port: 80, seq: 1000, ack: 0 };
            let mut queues = tap.take_queues();
            // The connecting thread must be in this namespace too: threads inherit their parent's.
            let client = std::thread::spawn(|| {
                let mut stream = TcpStream::connect_timeout(&(OURS, 80).into(), HANG).expect("connected");
                stream.write_all(&[7; 10_000]).expect("written");
                stream
            });
            let (syn, _, _) = hand.hear(&mut queues);
            hand.ack = syn.seq.0.wrapping_add(1);
            let answer = hand.segment(syn.src_port, SYN_ACK, MSS, b"");
            queues[0].tx.transmit(answer).expect("room");
            let (mut received, mut longest) = (0, 0);
            while received < 10_000 {
                let (header, data, segment_size) = hand.hear(&mut queues);
                if data.is_empty() || header.seq.0 != hand.ack.wrapping_add(received as u32) {
                    continue;
                }
                assert_eq!(segment_size != 0, data.len() > 1460, "{} bytes in one frame", data.len());
                received += data.len();
                longest = longest.max(data.len());
            }
            assert_eq!(longest > 1460, offloads == Offloads::All, "longest segment {longest}");
            let stream = client.join().expect("the client ended");
            let reset = hand.segment(syn.src_port, TcpFlags::RST.union(TcpFlags::ACK), Options::NONE, b"");
            queues[0].tx.transmit(reset).expect("room");
            drop(stream);
        }
    });
}

#[test]
fn the_kernel_takes_super_segments_from_us() {
    in_namespace(|| {
        let mut tap = open(TapOptions::default());
        let mut hand = ByHand { host: tap.host_mac(), ours: tap.capabilities().mac, port: 999, seq: 1000, ack: 0 };
        let mut queues = tap.take_queues();
        let listener = TcpListener::bind((KERNEL, 8080)).expect("a listener");
        let syn = hand.segment(8080, TcpFlags::SYN, MSS, b"");
        queues[0].tx.transmit(syn).expect("room");
        let (syn_ack, _, _) = hand.hear(&mut queues);
        assert_eq!(syn_ack.flags, SYN_ACK);
        (hand.seq, hand.ack) = (1001, syn_ack.seq.0.wrapping_add(1));
        let data: Vec<u8> = (0..20_000).map(|i| (i % 251) as u8).collect();
        let mut whole = hand.segment(8080, TcpFlags(0x18), Options::NONE, &data);
        whole.meta_mut().segment_size = 1460;
        queues[0].tx.transmit(whole).expect("room");
        let (mut stream, _) = listener.accept().expect("accepted");
        stream.set_read_timeout(Some(HANG)).expect("a timeout");
        let mut received = vec![0; data.len()];
        stream.read_exact(&mut received).expect("all of it arrived");
        assert!(received == data);
        assert_eq!(tap.counters().expect("counters").snapshot().dropped_total(), 0);
    });
}

#[test]
fn udp_super_segments_arrive_as_single_datagrams() {
    in_namespace(|| {
        let mut tap = open(TapOptions::default());
        let mut queues = tap.take_queues();
        let socket = UdpSocket::bind((KERNEL, 0)).expect("a socket");
        let size: libc::c_int = 1000;
        // SAFETY: UDP_SEGMENT takes an int, which the pointer and length describe.
        let set = unsafe {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
            libc::setsockopt(fd, libc::SOL_UDP, libc::UDP_SEGMENT, (&raw const size).cast(), 4)
        };
        assert_eq!(set, 0, "kernels since 4.18 have UDP_SEGMENT");
        let data: Vec<u8> = (0..4500).map(|i| (i / 1000) as u8).collect();
        socket.send_to(&data, (OURS, 4711)).expect("sent");
        let mut lengths = Vec::new();
        await_frame(&mut queues, |frame| {
            if let Some((4711, data)) = udp_to_us(frame) {
                assert!(data.iter().all(|byte| *byte == lengths.len() as u8));
                assert_eq!(frame.meta().segment_size, 0);
                lengths.push(data.len());
            }
            (lengths.len() == 5).then_some(())
        });
        assert_eq!(lengths, [1000, 1000, 1000, 1000, 500]);
    });
}

#[test]
fn a_deleted_interface_is_gone_for_waiters_readers_and_writers() {
    in_namespace(|| {
        let mut tap = open(TapOptions { queues: 2, ..TapOptions::default() });
        let (host, ours) = (tap.host_mac(), tap.capabilities().mac);
        let counters = tap.counters().expect("counters");
        let mut queues = tap.take_queues();
        let waker = queues[0].rx.waker();
        waker.wake();
        assert_eq!(queues[0].rx.wait(Some(HANG)), WaitOutcome::Woken);
        assert!(!queues[0].rx.gone() && tap.gone_because().is_none());
        ip("link set tap0 down").expect("down");
        queues[0].tx.transmit(udp_frame(host, ours, 9, b"x")).expect("taken");
        assert_eq!(counters.dropped(DropReason::InterfaceDown), 1);
        assert!(!queues[0].rx.gone(), "an interface that is down is not gone");
        ip("link del tap0").expect("deleted");
        let mut batch = Vec::new();
        while queues[1].rx.receive(&mut batch, 8) > 0 {
            batch.clear();
        }
        assert_eq!(queues[1].rx.wait(Some(HANG)), WaitOutcome::Gone);
        assert!(queues.iter().all(|queue| queue.rx.gone()), "one queue's discovery is everybody's");
        queues[0].tx.transmit(udp_frame(host, ours, 9, b"x")).expect("taken");
        assert_eq!(counters.dropped(DropReason::InterfaceDown), 2);
        assert!(tap.gone_because().is_some());
    });
}

#[test]
fn open_descriptors_can_be_handed_in() {
    in_namespace(|| {
        let not_a_tap = std::fs::File::open("/dev/null").expect("opened");
        let error = Tap::from_fds(vec![not_a_tap.into()], TapOptions::default()).expect_err("no TAP");
        assert!(matches!(error, TapError::NotATap { index: 0 }));
        assert!(error.to_string().contains("TUNSETIFF"));
        let fds = attached_elsewhere("tap0");
        let mut tap = Tap::from_fds(fds, TapOptions { queues: 77, ..TapOptions::default() }).expect("taken over");
        assert_eq!((tap.name(), tap.capabilities().queue_pairs), ("tap0", 1));
        // Attached without a header, so there is no offload.
        assert_eq!((tap.capabilities().tx_checksum, tap.capabilities().segmentation), (false, None));
        ip("addr add 10.9.0.1/24 dev tap0").expect("an address");
        let (host, ours) = (tap.host_mac(), tap.capabilities().mac);
        let mut queues = tap.take_queues();
        let socket = UdpSocket::bind((KERNEL, 0)).expect("a socket");
        socket.set_read_timeout(Some(HANG)).expect("a timeout");
        let port = socket.local_addr().expect("bound").port();
        queues[0].tx.transmit(udp_frame(host, ours, port, b"plain")).expect("room");
        let mut buffer = [0; 10];
        assert_eq!(socket.recv(&mut buffer).expect("received"), 5);
    });
}

/// A descriptor attached by hand, without offload headers, as a management daemon might pass it.
fn attached_elsewhere(name: &str) -> Vec<std::os::fd::OwnedFd> {
    attached_with(name, 0x1002)
}

/// `IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE`.
const MULTI_QUEUE: u16 = 0x1102;

/// A descriptor attached by hand with these flags.
fn attached_with(name: &str, flags: u16) -> Vec<std::os::fd::OwnedFd> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").expect("opened");
    let mut request = [0u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes an `ifreq` of 40 bytes: a name of 16, then flags.
    let attached = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&file), 0x4004_54ca, request.as_mut_ptr()) };
    assert_eq!(attached, 0, "{}", std::io::Error::last_os_error());
    vec![file.into()]
}

#[test]
fn errors_say_what_is_wrong_and_what_to_do() {
    for name in ["", "sixteen-letters-", "a/b", "a b", "%s", ".."] {
        let error = Tap::open(name, TapOptions::default()).expect_err(name);
        assert!(matches!(error, TapError::BadName { .. }), "{name}: {error}");
    }
    let none = TapOptions { queues: 0, ..TapOptions::default() };
    assert!(matches!(Tap::open("tap0", none), Err(TapError::BadQueueCount { .. })));
    assert!(matches!(Tap::from_fds(Vec::new(), TapOptions::default()), Err(TapError::BadQueueCount { .. })));
    in_namespace(|| {
        let wrong = TapOptions { mtu: Some(1_000_000), ..TapOptions::default() };
        let error = Tap::open("tap0", wrong).expect_err("no such MTU");
        assert!(matches!(error, TapError::BadMtu { mtu: 1_000_000, .. }), "{error}");
        let single = attached_elsewhere("tap1");
        let error = Tap::open("tap1", TapOptions::default()).expect_err("attached by somebody else");
        assert!(matches!(error, TapError::Busy { .. } | TapError::WrongKind { .. }), "{error}");
        drop(single);
        let error = Tap::open("lo", TapOptions::default()).expect_err("no TAP device");
        assert!(error.to_string().contains("ip link del lo"), "{error}");
    });
}

/// A second opener would get some of the first one's frames: the kernel spreads them over all queues of the interface.
#[test]
fn an_interface_that_is_open_is_refused_to_everyone_else() {
    in_namespace(|| {
        let options = TapOptions { queues: 2, ..TapOptions::default() };
        ip("tuntap add mode tap multi_queue vnet_hdr name tap1").expect("a persistent interface");
        // One that is deleted with its last descriptor, and one that is persistent.
        for name in ["tap0", "tap1"] {
            let first = Tap::open(name, options.clone()).expect("nobody has it");
            for queues in [1, 2, 8] {
                let error = Tap::open(name, TapOptions { queues, ..options.clone() }).expect_err("it is in use");
                assert!(matches!(error, TapError::Busy { .. }), "{name}, {queues} queues: {error}");
                let said = error.to_string();
                assert!(said.contains(name) && said.contains("in use") && said.contains("stop"), "{said}");
            }
            drop(first);
            // A process that another test starts holds copies of the descriptors between its fork and its exec.
            let deadline = std::time::Instant::now() + HANG;
            while let Err(error) = Tap::open(name, options.clone()) {
                assert!(matches!(error, TapError::Busy { .. }) && std::time::Instant::now() < deadline, "{error}");
            }
        }
    });
}

/// All queues of an interface must be passed, or none.
#[test]
fn descriptors_of_an_interface_that_has_more_queues_are_refused() {
    in_namespace(|| {
        let mut fds = attached_with("tap0", MULTI_QUEUE);
        fds.append(&mut attached_with("tap0", MULTI_QUEUE));
        let kept = fds.pop();
        let error = Tap::from_fds(fds, TapOptions::default()).expect_err("one queue is somebody else's");
        assert!(matches!(error, TapError::Busy { .. }), "{error}");
        drop(kept);
    });
}

#[test]
fn without_rights_the_error_names_the_ways_out() {
    in_namespace(|| {
        // SAFETY: takes plain integers; the bare system call changes the identity of this thread only.
        let dropped = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) } == 0;
        if !dropped {
            println!("skipped: the user cannot be changed here");
            return;
        }
        let error = Tap::open("tap0", TapOptions::default()).expect_err("not permitted");
        assert!(matches!(error, TapError::NotPermitted { .. }), "{error}");
        assert!(error.to_string().contains("ip tuntap add"), "{error}");
    });
}

/// Two devices on a bridge of the kernel's.
fn bridged(number: usize, offloads: Offloads) -> (Tap, Tap) {
    let open = |end: &str| {
        let name = format!("c{number}{end}");
        let tap = Tap::open(&name, TapOptions { offloads, ..TapOptions::default() }).expect("the device opens");
        ip(&format!("link set {name} master bridge")).expect("a member of the bridge");
        tap
    };
    (open("a"), open("b"))
}

#[test]
fn a_tap_device_keeps_the_contract_of_devices() {
    in_namespace(|| {
        if ip("link add bridge type bridge").and_then(|()| ip("link set bridge up")).is_err() {
            return println!("skipped: the kernel has no bridge");
        }
        for offloads in [Offloads::None, Offloads::Checksum, Offloads::All] {
            let number = std::cell::Cell::new(0);
            let make = || {
                number.set(number.get() + 1);
                bridged(number.get(), offloads)
            };
            // The kernel drops what a receiver does not take in time, so not every frame of many crosses it.
            let checked = Conformance::new(make).without(ContractRule::Threads).check();
            checked.unwrap_or_else(|said| panic!("{offloads:?}: {said}"));
        }
    });
}

/// A frame of an EtherType for experiments that consists of this byte.
fn bare(byte: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![byte; length];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// What is sent by a packet port is read from the descriptor, and what is written to the descriptor is received there.
#[test]
fn a_packet_port_is_the_other_side_of_the_descriptor() {
    in_namespace(|| {
        let mut tap =
            Tap::open("tapp", TapOptions { offloads: Offloads::None, ..TapOptions::default() }).expect("a TAP");
        ip("link set tapp txqueuelen 8").expect("a short ring");
        let mut queues = tap.take_queues();
        let options = PacketOptions { ethertype: 0x88b5, ring: 64, keep: 62 };
        let mut port = PacketPort::open("tapp", options).expect("a port");
        for length in [60, 1514] {
            let frames = [2, 4, 6].map(|byte| bare(byte, length));
            assert_eq!(port.send(&frames.concat(), length).expect("sent"), 3);
            for frame in &frames {
                let read = await_frame(&mut queues, |read| (read[12..14] == frame[12..14]).then(|| read.to_vec()));
                assert!(read == *frame, "{length} bytes");
            }
            let frame = bare(8, length);
            queues[0].tx.transmit(PktBuf::from_slice(&frame).expect("a buffer")).expect("room");
            // The kernel passes it on within the write.
            let (kept, whole) = port.receive(|kept, whole| (kept.to_vec(), whole)).expect("a frame");
            assert!(whole == length && kept.len() >= 60 && kept[..] == frame[..kept.len()], "{length} bytes");
            assert!(port.receive(|_, _| ()).is_none());
        }
        let taken = port.send(&bare(2, 60).repeat(20), 60).expect("the interface is up");
        assert!((8..20).contains(&taken), "{taken} of 20 frames in a ring of 8");
    });
}

/// A port that does not take its frames loses some, and counts them.
#[test]
fn a_packet_port_counts_what_its_ring_does_not_hold() {
    in_namespace(|| {
        let mut tap =
            Tap::open("tapo", TapOptions { offloads: Offloads::None, ..TapOptions::default() }).expect("a TAP");
        let mut queues = tap.take_queues();
        let options = PacketOptions { ethertype: 0x88b5, ring: 64, keep: 62 };
        let mut port = PacketPort::open("tapo", options).expect("a port");
        for _ in 0..2000 {
            queues[0].tx.transmit(PktBuf::from_slice(&bare(2, 60)).expect("a buffer")).expect("room");
        }
        let received = std::iter::from_fn(|| port.receive(|_, _| ())).count();
        let lost = port.overflow().expect("counters") as usize;
        assert!(received >= 64 && lost > 0 && received + lost == 2000, "{received} and {lost}");
        let nothing = PacketPort::open("nothing", options).expect_err("there is no such interface");
        assert!(nothing.to_string().contains("nothing"), "{nothing}");
    });
}
