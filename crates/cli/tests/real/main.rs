//! The binary against this machine's own kernel and unmodified programs: curl, wrk, ping, python's HTTP server and
//! nginx, over a TAP interface in a network namespace that each test makes for itself.
//!
//! This needs root and `/dev/net/tun`; without them, or without an installed program, a test prints one line and
//! passes. Everything is bounded in time and ends with the test, however it ends. `HEDDLE_REAL=full` runs everything
//! with the large file, under every architecture, or under those that `HEDDLE_REAL_ARCH` names (`up,connp-t`), and
//! prints the speed of the transfers with faults.

mod bridging;
mod capture;
mod cluster;
mod lossy;
mod namespace;
mod pairs;
mod process;
mod programs;
mod relaying;
mod service;
mod serving;
mod switching;
mod tun;
mod wire_image;

use std::io::{Read, Write};
use std::net::{Shutdown, UdpSocket};
use std::time::Instant;

use heddle::ALL_ARCHITECTURES;
use heddle::device::pcap::Reader;
use testbed::limit::HANG;

use self::namespace::{OURS_V4, OURS_V6, in_namespace};
use self::pairs::PATIENCE;
use self::process::{Process, output, run};
use self::serving::{Serving, curl};

const MIB: usize = 1 << 20;
/// The architectures that serve the large file in every run.
const THOROUGH: [&str; 2] = ["connp-l:128", "connp-t:spsc"];
/// The faults of the network in the tests with faults.
const FAULTS: &str = "loss 1% reorder 2% dup 1% seed 7";

fn full() -> bool {
    std::env::var("HEDDLE_REAL").is_ok_and(|value| value == "full")
}

/// Size of the file that an architecture serves.
fn size(arch: &str) -> usize {
    if full() || THOROUGH.contains(&arch) { 256 * MIB } else { 16 * MIB }
}

#[test]
fn curl_fetches_and_uploads_under_every_architecture() {
    in_namespace(&["curl", "ping"], |space| {
        for arch in ALL_ARCHITECTURES {
            let site = space.site(size(arch));
            let serving = Serving::start(space, &site, arch, &[]);
            for host in [OURS_V4, OURS_V6] {
                assert_eq!(curl(&[&serving.url(host, "big")]), site.big, "{arch}: GET from {host}");
                let uploaded =
                    output(&["curl", "-sSf", "-m", "120", "--data-binary", &site.big_at(), &serving.url(host, "x")]);
                assert!(uploaded.contains(&site.big), "{arch}: POST to {host}: {uploaded}");
            }
            let chunked = ["curl", "-sSf", "-m", "120", "-H", "Transfer-Encoding: chunked", "-T"];
            let uploaded = output(&[&chunked[..], &[&site.small_path(), &serving.url(OURS_V4, "x")]].concat());
            assert!(uploaded.contains(&site.small), "{arch}: chunked PUT: {uploaded}");
            run(&["ping", "-q", "-c", "3", "-i", "0.05", "-w", "20", OURS_V4]);
            run(&["ping", "-6", "-q", "-c", "3", "-i", "0.05", "-w", "20", OURS_V6]);
            serving.stop();
        }
    });
}

#[test]
fn sixty_four_curls_at_once_under_every_architecture() {
    in_namespace(&["curl"], |space| {
        let site = space.site(MIB);
        for arch in ALL_ARCHITECTURES {
            let serving = Serving::start(space, &site, arch, &[]);
            let urls = [serving.url(OURS_V4, "big"), serving.url(OURS_V6, "big")];
            serving::many_curls(64, &urls, &site.big);
            serving.stop();
        }
    });
}

/// The architectures of the tests that take longest.
fn chosen() -> Vec<&'static str> {
    let wanted = std::env::var("HEDDLE_REAL_ARCH").unwrap_or_default();
    let chosen = |arch: &&str| wanted.is_empty() || wanted.split(',').any(|name| name == *arch);
    ALL_ARCHITECTURES.into_iter().filter(chosen).collect()
}

/// Fetches the site's large file, and prints the speed in a full run.
fn fetch_big(serving: &Serving, site: &serving::Site, size: usize, host: &str, arch: &str) {
    let before = Instant::now();
    assert_eq!(curl(&[&serving.url(host, "big")]), site.big, "{arch}: GET from {host}");
    if full() {
        let seconds = before.elapsed().as_secs_f64();
        namespace::say(&format!("{arch}: {size} bytes from {host} in {seconds:.1} s with faults"));
    }
}

#[test]
fn every_hash_agrees_in_spite_of_loss_reordering_and_duplicates() {
    in_namespace(&["curl"], |space| {
        for arch in chosen() {
            let size = if full() { 256 * MIB } else { 8 * MIB };
            let site = space.site(size);
            let serving = Serving::start(space, &site, arch, &["--fault", FAULTS]);
            for host in [OURS_V4, OURS_V6] {
                fetch_big(&serving, &site, size, host, arch);
            }
            let uploaded =
                output(&["curl", "-sSf", "-m", "300", "--data-binary", &site.big_at(), &serving.url(OURS_V4, "x")]);
            assert!(uploaded.contains(&site.big), "{arch}: POST: {uploaded}");
            if full() || THOROUGH.contains(&arch) {
                serving::many_curls(64, &[serving.url(OURS_V4, "small")], &site.small);
            }
            serving.stop();
        }
    });
}

#[test]
fn wrk_sees_no_failed_request() {
    in_namespace(&["wrk"], |space| {
        let site = space.site(MIB);
        let archs = if full() { &ALL_ARCHITECTURES[..] } else { &THOROUGH[..1] };
        let many = 256.min(process::most_files() / 2).to_string();
        for arch in archs {
            let serving = Serving::start(space, &site, arch, &[]);
            let url = serving.url(OURS_V4, "index.html");
            let report = output(&["wrk", "-t", "2", "-c", &many, "-d", "10s", "--timeout", PATIENCE, &url]);
            let failed = report.contains("Socket errors") || report.contains("Non-2xx");
            assert!(!failed && report.contains("requests in"), "{arch}: {report}");
            serving.stop();
        }
    });
}

#[test]
fn get_fetches_from_other_peoples_servers() {
    in_namespace(&["curl"], |space| {
        let site = space.site(64 * MIB);
        let servers = [serving::python(&site), serving::nginx(&site)];
        for (_server, port) in servers.iter().flatten() {
            for arch in ALL_ARCHITECTURES {
                let host = if arch.contains(':') { namespace::KERNEL_V6 } else { namespace::KERNEL_V4 };
                let file = site.path("fetched");
                let url = format!("http://{}:{port}/big", serving::bracketed(host));
                run(&space.heddle(&["get", &url, "-o", &file, "--arch", arch]));
                assert_eq!(serving::sha256_of(&file), site.big, "{arch}: {url}");
            }
        }
        for host in [namespace::KERNEL_V4, namespace::KERNEL_V6] {
            let report = output(&space.heddle(&["ping", host, "-c", "3", "-i", "0.05", "-s", "3000", "--json"]));
            assert!(report.contains("\"received\":3"), "{report}");
        }
    });
}

#[test]
fn the_classic_services_do_what_their_rfcs_say() {
    in_namespace(&[], |space| {
        let data: Vec<u8> = (0..2 * MIB as u32).map(|n| (n >> 7) as u8).collect();
        let echo = Serving::service(space, "echo", "connp-l:128");
        let mut stream = echo.connect(7);
        let reader = {
            let (mut stream, len) = (stream.try_clone().expect("a clone"), data.len());
            std::thread::spawn(move || {
                let mut echoed = Vec::with_capacity(len);
                stream.read_to_end(&mut echoed).map(|_| echoed)
            })
        };
        stream.write_all(&data).expect("written");
        stream.shutdown(Shutdown::Write).expect("shut down");
        assert!(reader.join().expect("the reader").expect("read") == data, "what comes back is what was sent");
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.set_read_timeout(Some(HANG)).expect("a time-out");
        socket.send_to(b"one datagram", (OURS_V4, 7)).expect("sent");
        let mut answer = [0; 100];
        let (len, _) = socket.recv_from(&mut answer).expect("an answer");
        assert_eq!(&answer[..len], b"one datagram");
        echo.stop();

        let discard = Serving::service(space, "discard", "squeue:process");
        let mut stream = discard.connect(9);
        stream.write_all(&data).expect("written");
        stream.shutdown(Shutdown::Write).expect("shut down");
        assert_eq!(stream.read(&mut answer).expect("the end"), 0, "nothing is said");
        let ended = discard.stop();
        assert!(ended.contains(&format!("\"bytes_in\":{}", data.len())), "{ended}");

        let chargen = Serving::service(space, "chargen", "giant");
        let mut text = [0; 100_000];
        chargen.connect(19).read_exact(&mut text).expect("text");
        assert!(text.starts_with(b" !\"#$%&'()*+,-./0123456789"));
        assert_eq!(&text[72..77], b"\r\n!\"#");
        chargen.stop();
    });
}

/// Forty descriptors for sixty requests: some get a refusal with a retry, each gets an answer, and when files have been
/// closed everything works again.
#[test]
fn without_descriptors_requests_are_refused_and_the_service_goes_on() {
    in_namespace(&["curl", "sh"], |space| {
        let site = space.site(8 * MIB);
        let serving = Serving::start_with_descriptors(space, &site, "connp-l:128", 40);
        let url = serving.url(OURS_V4, "big");
        // Clients that read the status and no more: each answer keeps its file open.
        let mut held: Vec<_> = (0..60).map(|_| serving.connect(80)).collect();
        held.iter_mut().for_each(|stream| stream.write_all(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n").expect("asked"));
        let status = |stream: &mut std::net::TcpStream| {
            let mut line = [0; "HTTP/1.1 200".len()];
            stream.set_read_timeout(Some(HANG)).expect("a time-out");
            stream.read_exact(&mut line).expect("each gets an answer");
            String::from_utf8_lossy(&line).into_owned()
        };
        let codes: Vec<String> = held.iter_mut().map(status).collect();
        let count = |code: &str| codes.iter().filter(|line| line.ends_with(code)).count();
        assert!(count("200") > 0 && count("503") > 0 && count("200") + count("503") == codes.len(), "{codes:?}");
        drop(held);
        // The service notices the end of its clients in its own time.
        let served = curl(&["--retry", "30", "--retry-all-errors", &url]);
        assert_eq!(served, site.big, "with descriptors all is well again");
        serving.stop();
    });
}

/// A client that is killed in the middle: the kernel resets its connection, and others are not affected.
#[test]
fn a_peer_that_is_killed_takes_only_its_own_connection() {
    in_namespace(&["curl"], |space| {
        let site = space.site(16 * MIB);
        for arch in THOROUGH {
            let serving = Serving::start(space, &site, arch, &[]);
            let url = serving.url(OURS_V4, "big");
            for _ in 0..8 {
                let victim = Process::start(&[
                    "curl",
                    "-sN",
                    "-m",
                    "60",
                    "--limit-rate",
                    "200k",
                    "-D",
                    "-",
                    "-o",
                    "/dev/null",
                    &url,
                ]);
                // It is in the middle of the body once it has printed the header.
                assert!(victim.line().is_some());
                // Dropping a process kills it (SIGKILL).
                drop(victim);
            }
            assert_eq!(curl(&[&url]), site.big, "{arch}");
            serving.stop();
        }
    });
}

#[test]
fn a_device_that_vanishes_ends_the_service_with_a_sentence() {
    in_namespace(&[], |space| {
        for arch in ["up", "connp-l:128", "connp-t"] {
            let site = space.site(MIB);
            let serving = Serving::start(space, &site, arch, &[]);
            run(&["ip", "link", "del", namespace::INTERFACE]);
            let (status, error) = serving.end();
            assert_eq!(status.code(), Some(1), "{arch}: {error}");
            assert!(error.contains("tap0 was removed") && error.lines().count() == 1, "{arch}: {error}");
            space.restore();
        }
    });
}

/// The kernel itself would allow a second process to attach to a multi-queue interface.
#[test]
fn a_second_process_on_an_interface_is_refused_and_the_first_goes_on() {
    in_namespace(&["curl"], |space| {
        let site = space.site(MIB);
        let serving = Serving::start(space, &site, "connp-l:128", &[]);
        let calls = [&["serve", "echo"][..], &["ping", namespace::KERNEL_V4, "-c", "1"], &["get", "http://10.9.0.1/"]];
        for call in calls {
            let (status, error) = Process::start(&space.heddle(call)).end();
            assert_eq!(status.code(), Some(1), "{call:?}: {error}");
            assert!(error.contains("tap0 is in use by another process") && error.lines().count() == 1, "{error}");
        }
        assert_eq!(curl(&[&serving.url(OURS_V4, "big")]), site.big);
        // Dropping it kills it (SIGKILL): a crash leaves nothing locked.
        drop(serving);
        let again = Serving::start(space, &site, "connp-l:128", &[]);
        assert_eq!(curl(&[&again.url(OURS_V4, "big")]), site.big);
        again.stop();
    });
}

#[test]
fn an_interface_of_another_kind_is_named() {
    in_namespace(&[], |space| {
        run(&["ip", "tuntap", "add", "mode", "tap", "name", "plain0"]);
        let (status, error) = Process::start(&[
            env!("CARGO_BIN_EXE_heddle"),
            "serve",
            "echo",
            "--dev",
            "tap:plain0",
            "--addr",
            "10.8.0.2/24",
        ])
        .end();
        assert_eq!(status.code(), Some(1), "{error}");
        assert!(error.contains("plain0") && error.contains("ip link del"), "{error}");
        let (status, error) = Process::start(&space.heddle(&["serve", "echo", "--root", "/"])).end();
        assert_eq!(status.code(), Some(2), "{error}");
    });
}

#[test]
fn what_crosses_the_device_is_recorded() {
    in_namespace(&["curl"], |space| {
        let site = space.site(MIB);
        let capture = site.path("capture.pcapng");
        let serving = Serving::start(space, &site, "connp-l:128", &["--pcap", &capture]);
        assert_eq!(curl(&[&serving.url(OURS_V4, "big")]), site.big);
        serving.stop();
        let mut reader = Reader::new(std::fs::File::open(&capture).expect("the recording")).expect("a capture");
        let mut bytes = 0;
        while let Some(frame) = reader.next_frame().expect("whole to its end") {
            bytes += frame.data.len();
        }
        assert!(bytes > MIB, "{bytes} bytes were recorded");
    });
}
