//! Operation of `heddle serve`: correct totals, refused requests as in HTTP, limits per client, counters of a running
//! service, and least privilege.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::str::FromStr;

use testbed::limit::HANG;

use crate::namespace::{OURS_V4, OURS_V6, in_namespace};
use crate::process::{Process, run};
use crate::serving::{Serving, curl};

const MIB: usize = 1 << 20;

/// A field of the JSON object that a service prints at its end.
fn field(ended: &str, name: &str) -> u64 {
    let ended: serde_json::Value = serde_json::from_str(ended).expect("one JSON object");
    ended[name].as_u64().unwrap_or_else(|| panic!("no number {name} in {ended}"))
}

/// Sends `request` to port 80 and reads to the end of the connection.
fn exchange(host: &str, request: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect((host, 80)).expect("a connection");
    stream.set_read_timeout(Some(HANG)).expect("a time-out");
    stream.write_all(request.as_bytes()).expect("written");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer and its end");
    answer
}

/// Linux's numbers of signals.
const SIGKILL: i32 = 9;
/// See [`SIGKILL`].
const SIGSEGV: i32 = 11;

/// With every limit of address space the service either works, or ends with the reason.
#[test]
fn a_service_with_too_little_memory_says_so() {
    in_namespace(&["curl", "sh"], |space| {
        let site = space.site(MIB);
        let mut served = Vec::new();
        for mebibytes in (20..100).step_by(6) {
            let limited = format!("ulimit -v {}; exec \"$@\"", mebibytes * 1024);
            let words = space.heddle(&["serve", "http", "--json", "--root", &site.path("."), "--threads", "2"]);
            let shell = ["sh", "-c", &limited, "sh"].map(str::to_owned);
            let process = Process::start(&[&shell[..], &words].concat());
            let Some(line) = process.line() else {
                let (status, error) = process.end();
                // The system's loader has no memory for the program, and reports that itself.
                if status.code() == Some(127) && served.is_empty() && error.contains("error while loading") {
                    continue;
                }
                // The kernel has no room for the program itself, and ends the process before its first instruction.
                let unloaded = matches!(status.signal(), Some(SIGKILL | SIGSEGV)) && error.is_empty();
                if unloaded && served.is_empty() && mebibytes < 30 {
                    continue;
                }
                assert_eq!(status.code(), Some(1), "{mebibytes} MiB: {error}");
                assert!(error.contains("too little memory") && error.lines().count() == 1, "{mebibytes} MiB: {error}");
                assert!(served.is_empty(), "{mebibytes} MiB are too little, {served:?} are not");
                continue;
            };
            assert!(line.contains("listening"), "{line}");
            assert_eq!(curl(&[&format!("http://{OURS_V4}/big")]), site.big, "{mebibytes} MiB");
            served.push(mebibytes);
            process.interrupt();
            assert!(process.end().0.success(), "{mebibytes} MiB");
        }
        assert!(!served.is_empty() && served[0] > 20, "{served:?}");
    });
}

/// A request over a persistent connection; returns the body of the answer.
fn ask_again(stream: &mut TcpStream, path: &str) -> Vec<u8> {
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n").expect("written");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("a head").to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    let mut body = vec![0; length.trim().parse().expect("a number")];
    stream.read_exact(&mut body).expect("the whole body");
    body
}

/// A client repeatedly requests far more than the service's memory, and reads nothing. The process survives (a failed
/// allocation would abort it), an earlier connection is served meanwhile, and when the client is gone all clients are
/// served again.
#[test]
fn with_little_memory_a_client_that_does_not_read_takes_nothing_from_others() {
    const ATTEMPTS: usize = 1500;
    in_namespace(&["curl", "sh"], |space| {
        let site = space.site(8 * MIB);
        let small = std::fs::read(site.small_path()).expect("the file");
        for arch in ["connp-l:128", "connp-t", "msgp:2", "squeue:process", "up"] {
            let limited = format!("ulimit -v {}; exec \"$@\"", 128 * 1024);
            let shell = ["sh", "-c", &limited, "sh"].map(str::to_owned);
            let words = ["serve", "http", "--json", "--root", &site.path("."), "--threads", "2", "--arch", arch];
            let process = Process::start(&[&shell[..], &space.heddle(&words)].concat());
            assert!(process.line().is_some(), "{arch}: {:?}", process.end());
            let mut before = TcpStream::connect((OURS_V4, 80)).expect("a connection");
            before.set_read_timeout(Some(HANG)).expect("a time-out");
            assert_eq!(ask_again(&mut before, "small"), small, "{arch}");
            let (mut held, mut refused) = (Vec::new(), 0);
            let address = (std::net::Ipv4Addr::from_str(OURS_V4).expect("an address"), 80).into();
            while held.len() < ATTEMPTS && refused < 3 {
                // A connection that is not accepted retransmits its SYN; this is not waited for.
                match TcpStream::connect_timeout(&address, std::time::Duration::from_millis(500)) {
                    Ok(mut stream) => {
                        let sent = stream.write_all(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n".repeat(4).as_slice());
                        refused += usize::from(sent.is_err());
                        held.push(stream);
                    }
                    Err(_) => refused += 1,
                }
                if held.len() % 100 == 0 {
                    assert_eq!(ask_again(&mut before, "small"), small, "{arch}, beside {}", held.len());
                }
            }
            assert_eq!(ask_again(&mut before, "small"), small, "{arch}, beside {}", held.len());
            process.ask();
            let connections = held.len();
            drop(held);
            assert_eq!(
                curl(&["--retry", "30", "--retry-all-errors", &format!("http://{OURS_V4}/big")]),
                site.big,
                "{arch}"
            );
            process.interrupt();
            let (status, said) = process.end();
            assert!(status.success(), "{arch}: {status}, {said}");
            assert!(connections < ATTEMPTS, "{arch}: nothing was refused");
            let report: serde_json::Value = serde_json::from_str(said.lines().next().expect("a line")).expect("JSON");
            assert!(report["totals"]["connections"].as_u64() > Some(1), "{arch}: {said}");
        }
    });
}

/// A line of /proc/PID/status in bytes.
fn memory(id: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    let number = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    number.parse::<u64>().unwrap_or_else(|_| panic!("{name}{line}")) << 10
}

/// Clients of both families ask for far more than any buffer holds, and read one byte: the memory of the process grows
/// by no more than the limit for all buffers (`tcp_mem`) and the memory that this limit does not count. These are the
/// pieces of the file that wait to be sent or acknowledged or are being read (`serve/http/body.rs`), and for each
/// connection its own state and hyper's. Without the limit it would grow by the largest send buffer for each of them.
#[test]
fn slow_readers_take_no_more_of_a_process_than_its_limit() {
    const READERS: u64 = 150;
    const LIMIT: u64 = 16 << 20;
    /// A sixteenth of the memory that would give this limit, and for n readers 1 + ln n times as much.
    const PIECES: u64 = LIMIT * 32 / 3 / 16 * 6;
    const STATE: u64 = READERS * (64 << 10);
    /// Packet buffers of receive queues and free memory of the allocator.
    const SPARE: u64 = 8 << 20;
    in_namespace(&[], |space| {
        let site = space.site(32 * MIB);
        let small = std::fs::read(site.small_path()).expect("the file");
        let pages = LIMIT / 4096;
        let knob = format!("tcp_mem={} {} {pages}", pages / 2, pages * 3 / 4);
        for arch in ["connp-l:128", "connp-t", "msgp:6", "squeue:process", "up"] {
            let serving = Serving::start(space, &site, arch, &["--sysctl", &knob]);
            let mut beside = serving.connect(80);
            beside.set_read_timeout(Some(HANG)).expect("a time-out");
            assert_eq!(ask_again(&mut beside, "small"), small, "{arch}");
            let before = memory(serving.id(), "VmRSS");
            // All of them first: while memory is short no connection is accepted.
            let connect = |number| TcpStream::connect((if number % 2 == 0 { OURS_V4 } else { OURS_V6 }, 80));
            let mut held: Vec<_> = (0..READERS).map(|number| connect(number).expect("a connection")).collect();
            for stream in &mut held {
                stream.set_read_timeout(Some(HANG)).expect("a time-out");
                stream.write_all(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n").expect("asked");
            }
            held.iter_mut().for_each(|stream| stream.read_exact(&mut [0]).expect("an answer"));
            // Until it accepts no more data; meanwhile it answers another client.
            let (mut most, mut answers) = (0, 0);
            while answers < 100 {
                assert_eq!(ask_again(&mut beside, "small"), small, "{arch}");
                let peak = memory(serving.id(), "VmHWM");
                answers = if peak == most { answers + 1 } else { 0 };
                most = peak;
            }
            let grown = most - before;
            println!("{arch}: {before} bytes resident, and {grown} more with {READERS} readers");
            assert!(grown <= LIMIT + PIECES + STATE + SPARE, "{arch}: {grown} bytes for {READERS} readers");
            drop(held);
            serving.stop();
        }
    });
}

/// RFC 9112, section 3.2.
#[test]
fn requests_without_a_host_or_with_two_get_400() {
    in_namespace(&[], |space| {
        let site = space.site(1000);
        let serving = Serving::start(space, &site, "connp-l:128", &[]);
        for address in [OURS_V4, OURS_V6] {
            for (head, hosts, status) in [
                ("GET / HTTP/1.1", "", "400"),
                ("GET / HTTP/1.1", "Host: a\r\nHost: a\r\n", "400"),
                ("GET / HTTP/1.1", "Host: a b\r\n", "400"),
                ("POST /x HTTP/1.1", "Content-Length: 0\r\n", "400"),
                ("BREW / HTTP/1.1", "", "400"),
                ("GET / HTTP/1.1", "Host: a\r\n", "200"),
                ("GET / HTTP/1.1", "Host:\r\n", "200"),
                ("GET http://a/ HTTP/1.1", "Host: a\r\n", "200"),
                ("GET http://a/ HTTP/1.1", "", "400"),
                ("GET / HTTP/1.0", "", "200"),
                ("GET / HTTP/1.0", "Host: a\r\nHost: b\r\n", "400"),
            ] {
                let answer = exchange(address, &format!("{head}\r\n{hosts}Connection: close\r\n\r\n"));
                let line = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
                assert!(line.split(' ').nth(1) == Some(status), "{address}: {head}, {hosts:?}: {line}");
            }
        }
        assert_eq!(field(&serving.stop(), "requests_refused"), 14);
    });
}

/// A small MTU is for hosts without IPv6; the kernel's end then has no IPv6 either.
#[test]
fn a_small_mtu_serves_over_ipv4() {
    in_namespace(&["curl", "ip"], |space| {
        let site = space.site(200_000);
        for mtu in ["576", "68"] {
            let words = ["serve", "http", "--json", "--root", &site.path("."), "--mtu", mtu];
            let refused = Process::start(&space.heddle(&words)).end();
            assert!(refused.0.code() == Some(2) && refused.1.contains("1280"), "{}", refused.1);
            run(&["ip", "link", "set", "tap0", "mtu", mtu]);
            let refused = Process::start(&space.heddle(&["serve", "echo"])).end();
            assert!(refused.0.code() == Some(2) && refused.1.contains("MTU of tap0"), "{}", refused.1);
            let device = ["--dev", "tap:tap0", "--addr", "10.9.0.2/24", "--queues", "2"];
            let words = [&[env!("CARGO_BIN_EXE_heddle")][..], &words, &device].concat();
            let process = Process::start(&words);
            assert!(process.line().is_some_and(|line| line.contains("listening")), "{mtu}: {}", process.end().1);
            assert_eq!(curl(&[&format!("http://{OURS_V4}/big")]), site.big, "{mtu}");
            process.interrupt();
            assert!(process.end().0.success());
        }
    });
}

#[test]
fn totals_count_what_was_sent_and_not_what_was_promised() {
    in_namespace(&[], |space| {
        for arch in heddle::ALL_ARCHITECTURES {
            let site = space.site(16 * MIB);
            let serving = Serving::start(space, &site, arch, &[]);
            let request = "GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            let mut exact = 0;
            for host in [OURS_V4, OURS_V6] {
                exact += exchange(host, request).len() as u64;
                // A client that reads the first bytes of its answer and then no more.
                let mut idle = TcpStream::connect((host, 80)).expect("a connection");
                idle.write_all(request.as_bytes()).expect("written");
                idle.read_exact(&mut [0; 1000]).expect("the first bytes");
            }
            let ended = serving.stop();
            let counted = field(&ended, "bytes_out");
            assert!(counted >= exact, "{arch}: {counted} of {exact} bytes that arrived were counted");
            let idle = counted - exact;
            assert!(
                idle < 16 * MIB as u64,
                "{arch}: {idle} bytes for two clients that took no more than their buffers"
            );
            assert_eq!(field(&ended, "bytes_in"), 4 * request.len() as u64, "{arch}: {ended}");
        }
    });
}

#[test]
fn a_running_service_tells_its_counters() {
    in_namespace(&["curl"], |space| {
        for arch in heddle::ALL_ARCHITECTURES {
            let site = space.site(100_000);
            let serving = Serving::start(space, &site, arch, &[]);
            let url = serving.url(OURS_V4, "big");
            assert_eq!(curl(&[&url]), site.big);
            let _idle = serving.connect(80);
            // It continues: the second answer is sent after the report.
            let said = serving.ask_and_stop(|| assert_eq!(curl(&[&url]), site.big));
            let report: serde_json::Value = serde_json::from_str(said.lines().next().expect("a line")).expect("JSON");
            let totals = &report["totals"];
            assert_eq!(report["event"], "report", "{arch}: {said}");
            assert!(
                totals["connections"].as_u64() >= Some(1) && totals["bytes_out"].as_u64() >= Some(100_000),
                "{arch}: {said}"
            );
            assert!(totals["live"].is_u64() && totals["time_wait"].is_u64(), "{arch}: {said}");
            assert!(totals["counters"]["segments-in"].as_u64() > Some(1), "{arch}: {said}");
        }
    });
}

/// Whether a new connection is served, and not reset at once, which may fail the call that opens it.
fn is_served(host: &str) -> bool {
    TcpStream::connect((host, 7)).is_ok_and(|mut stream| echoes(&mut stream))
}

/// Whether a byte is echoed.
fn echoes(stream: &mut TcpStream) -> bool {
    let mut answer = [0];
    stream.set_read_timeout(Some(HANG)).expect("a time-out");
    stream.write_all(b"x").is_ok() && stream.read_exact(&mut answer).is_ok() && answer == *b"x"
}

#[test]
fn one_client_has_so_many_connections_and_no_more() {
    in_namespace(&[], |space| {
        for arch in ["connp-l:128", "connp-t", "msgp:2", "up"] {
            let words = space.heddle(&["serve", "echo", "--json", "--arch", arch, "--max-per-client", "3"]);
            let process = Process::start(&words);
            assert!(process.line().is_some(), "{arch}");
            for host in [OURS_V4, OURS_V6] {
                let mut held: Vec<TcpStream> =
                    (0..3).map(|_| TcpStream::connect((host, 7)).expect("a connection")).collect();
                assert!(held.iter_mut().all(echoes), "{arch}, {host}");
                assert!((0..5).all(|_| !is_served(host)), "{arch}, {host}: the fourth is reset");
                assert!(held.iter_mut().all(echoes), "{arch}, {host}: the others stay");
                drop(held.pop());
                // Its end is noticed only after it has arrived.
                assert!((0..1000).any(|_| is_served(host)), "{arch}, {host}: there is room again");
            }
            process.interrupt();
            let ended = process.line().expect("totals");
            assert!(field(&ended, "connections_refused_as_too_many") >= 10, "{ended}");
            assert_eq!(field(&ended, "connections"), 8, "{ended}");
        }
    });
}

/// The exact rate is tested with a virtual clock (`serve/clients.rs`). Here: a client that is too fast is refused, is
/// served again later, and both are counted, regardless of the time this takes.
#[test]
fn a_client_that_opens_connections_too_fast_is_refused_for_a_while() {
    in_namespace(&[], |space| {
        let words = space.heddle(&["serve", "echo", "--json", "--rate-per-client", "1/s"]);
        let process = Process::start(&words);
        assert!(process.line().is_some());
        assert!(is_served(OURS_V4), "the first");
        let limit = std::time::Instant::now() + testbed::limit::HANG;
        let (mut served, mut refused) = (1, 0);
        for wanted in [false, true] {
            loop {
                let is_served = is_served(OURS_V4);
                if is_served {
                    served += 1
                } else {
                    refused += 1
                }
                if is_served == wanted {
                    break;
                }
                assert!(std::time::Instant::now() < limit, "never {}", if wanted { "served again" } else { "refused" });
            }
        }
        process.interrupt();
        let ended = process.line().expect("totals");
        assert_eq!(field(&ended, "connections_refused_as_too_fast"), refused, "{ended}");
        assert_eq!(field(&ended, "connections"), served, "{ended}");
    });
}

/// Every thread of the process has given up root's privileges, and it still serves.
#[test]
fn with_user_root_is_given_up() {
    in_namespace(&["curl"], |space| {
        for arch in heddle::ALL_ARCHITECTURES {
            let site = space.site(MIB);
            run(&["chmod", "-R", "a+rX", &space.directory("")]);
            let serving = Serving::start(space, &site, arch, &["--user", "65534:65533"]);
            assert_eq!(curl(&[&serving.url(OURS_V6, "big")]), site.big, "{arch}");
            let tasks = std::fs::read_dir(format!("/proc/{}/task", serving.id())).expect("it runs");
            let statuses: Vec<String> =
                tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok()).collect();
            assert!(statuses.len() > 2, "{arch}: {} threads", statuses.len());
            for status in statuses {
                let has = |line: &str| assert!(status.contains(line), "{arch}: no {line:?} in {status}");
                has("\nUid:\t65534\t65534\t65534\t65534\n");
                has("\nGid:\t65533\t65533\t65533\t65533\n");
                has("\nNoNewPrivs:\t1\n");
                for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                    has(&format!("\n{set}:\t0000000000000000\n"));
                }
                let groups = status.lines().find(|line| line.starts_with("Groups:")).expect("a line");
                assert_eq!(groups["Groups:".len()..].trim(), "", "{arch}");
            }
            serving.stop();
        }
        // Without the right to change users there is an error, and nothing is served.
        let bound = ["setpriv", "--bounding-set", "-setuid,-setgid,-setpcap"].map(str::to_owned);
        let words = space.heddle(&["serve", "echo", "--user", "65533:65533"]);
        let (status, error) = Process::start(&[&bound[..], &words].concat()).end();
        assert!(status.code() == Some(1) && error.contains("start as root") && error.lines().count() == 1, "{error}");
    });
}
