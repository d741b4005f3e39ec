//! Pairs of real programs that communicate through Heddle: with its own server, its own client, or its relay in both
//! roles; over IPv4 and IPv6. `docs/interop.md` has the table.
//!
//! Each pair takes a second or two, under one architecture that differs from pair to pair; `HEDDLE_REAL=full` runs all
//! architectures and larger loads. For files the SHA-256 is compared.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::thread;

use heddle::ALL_ARCHITECTURES;
use serde_json::Value;
use testbed::limit::HANG;

use crate::namespace::{KERNEL_V4, KERNEL_V6, Namespace, OURS_V4, OURS_V6, in_namespace};
use crate::process::{Process, most_files, output, run};
use crate::programs::{self, Ssh};
use crate::relaying::{Relaying, Target, routes, targets};
use crate::serving::{Serving, Site, bracketed, curl, sha256_of};
use crate::{MIB, full};

/// The architectures for the pair number `pair`.
fn archs(pair: usize) -> Vec<&'static str> {
    if full() { ALL_ARCHITECTURES.to_vec() } else { vec![ALL_ARCHITECTURES[pair * 5 % ALL_ARCHITECTURES.len()]] }
}

/// Seconds that a load lasts.
fn seconds() -> &'static str {
    if full() { "3" } else { "1" }
}

/// How long `wrk` waits for an answer before it counts an error. Its default, two seconds, is not enough for as many
/// connections on a busy machine.
pub const PATIENCE: &str = "60s";

fn site(space: &Namespace) -> Site {
    space.site(if full() { 64 * MIB } else { 8 * MIB })
}

/// Heddle's web server as a target for clients.
fn served() -> [Target; 2] {
    [OURS_V4, OURS_V6].map(|host| Target { host, port: 80 })
}

/// The number in the first line that has `label`.
fn number_after(report: &str, label: &str) -> u64 {
    let rest = report.lines().find_map(|line| line.trim().strip_prefix(label));
    let word = rest.and_then(|rest| rest.split_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {label:?} in {report}"))
}

#[test]
fn wget_from_heddle() {
    in_namespace(&["wget"], |space| {
        let (site, file) = (site(space), space.directory("fetched") + "/big");
        for arch in archs(0) {
            let serving = Serving::start(space, &site, arch, &[]);
            for target in served() {
                run(&["wget", "-q", "-T", "60", "-t", "1", "-O", &file, &target.url("big")]);
                assert_eq!(sha256_of(&file), site.big, "{arch}: {target:?}");
            }
            serving.stop();
        }
    });
}

#[test]
fn ab_against_heddle() {
    in_namespace(&["ab"], |space| {
        let site = site(space);
        for arch in archs(1) {
            let serving = Serving::start(space, &site, arch, &[]);
            for (target, keep_alive) in served().iter().zip([&["-k"][..], &[]]) {
                let url = target.url("small");
                let number = if full() { "20000" } else { "1000" };
                let words = [&["ab", "-q", "-n", number, "-c", "50", "-s", "60"][..], keep_alive, &[&url]].concat();
                let report = output(&words);
                assert_eq!(number_after(&report, "Complete requests:").to_string(), number, "{arch}: {report}");
                assert_eq!(number_after(&report, "Failed requests:"), 0, "{arch}: {report}");
            }
            serving.stop();
        }
    });
}

#[test]
fn h2load_against_heddle_and_over_http2_through_the_relay() {
    in_namespace(&["h2load", "nginx", "curl"], |space| {
        let site = site(space);
        let number = if full() { "50000" } else { "2000" };
        let succeeded = format!("{number} succeeded, 0 failed, 0 errored, 0 timeout");
        // h2load writes IPv6 addresses into `:authority`, and so into Host, without brackets, which is not a valid
        // host.
        let authority = ["-H", ":authority: heddle.example"];
        for arch in archs(2) {
            let serving = Serving::start(space, &site, arch, &[]);
            for target in served() {
                let words = ["h2load", "--h1", "-n", number, "-c", "50", "-m", "4", &target.url("small")];
                let report = output(&[&words[..], &authority].concat());
                assert!(report.contains(&succeeded), "{arch}: {report}");
            }
            serving.stop();
        }
        let nginx = programs::nginx(&site);
        for arch in archs(3) {
            let relaying = Relaying::start(space, nginx.port + 1, arch, &[]);
            for target in relaying.targets() {
                let words = ["h2load", "-n", number, "-c", "20", "-m", "10", &target.url("small")];
                let report = output(&[&words[..], &authority].concat());
                assert!(report.contains(&succeeded), "{arch}: {target:?}: {report}");
            }
            relaying.stop();
        }
    });
}

#[test]
fn wrk_through_the_relay_to_lighttpd() {
    in_namespace(&["wrk", "lighttpd", "curl"], |space| {
        let site = site(space);
        let lighttpd = programs::lighttpd(&site);
        for arch in archs(4) {
            let relaying = Relaying::start(space, lighttpd.port, arch, &[]);
            for target in relaying.targets() {
                let report = output(&[
                    "wrk",
                    "-t",
                    "2",
                    "-c",
                    "64",
                    "-d",
                    seconds(),
                    "--timeout",
                    PATIENCE,
                    &target.url("small"),
                ]);
                let failed = report.contains("Socket errors") || report.contains("Non-2xx");
                assert!(!failed && report.contains("requests in"), "{arch}: {target:?}: {report}");
            }
            relaying.stop();
        }
    });
}

#[test]
fn get_from_lighttpd() {
    in_namespace(&["lighttpd", "curl"], |space| {
        let (site, file) = (site(space), space.directory("fetched") + "/big");
        let lighttpd = programs::lighttpd(&site);
        for arch in archs(5) {
            for host in [KERNEL_V4, KERNEL_V6] {
                let url = format!("http://{}:{}/big", bracketed(host), lighttpd.port);
                run(&space.heddle(&["get", &url, "-o", &file, "--arch", arch]));
                assert_eq!(sha256_of(&file), site.big, "{arch}: {url}");
            }
        }
    });
}

#[test]
fn curl_through_the_relay_to_nginx() {
    in_namespace(&["curl", "nginx"], |space| {
        let site = site(space);
        let nginx = programs::nginx(&site);
        for arch in archs(6) {
            let relaying = Relaying::start(space, nginx.port, arch, &[]);
            for target in relaying.targets() {
                assert_eq!(curl(&[&target.url("big")]), site.big, "{arch}: {target:?}");
                let urls = [target.url("small"), target.url("small"), target.url("small")];
                assert_eq!(curl(&["-r", "0-99999", &urls[0]]), site.small, "{arch}: {target:?}");
                crate::serving::many_curls(if full() { 64 } else { 16 }, &urls, &site.small);
            }
            relaying.stop();
        }
    });
}

#[test]
fn haproxy_before_heddle() {
    in_namespace(&["haproxy", "curl", "wrk"], |space| {
        let site = site(space);
        for arch in archs(7) {
            let serving = Serving::start(space, &site, arch, &[]);
            let [v4, v6] = served();
            let haproxy = programs::haproxy(&site, &[&v4, &v6]);
            for host in ["127.0.0.1", "::1"] {
                let target = Target { host, port: haproxy.port };
                for _ in 0..2 {
                    assert_eq!(curl(&[&target.url("big")]), site.big, "{arch}: {target:?}");
                }
                let report = output(&[
                    "wrk",
                    "-t",
                    "2",
                    "-c",
                    "32",
                    "-d",
                    seconds(),
                    "--timeout",
                    PATIENCE,
                    &target.url("small"),
                ]);
                let failed = report.contains("Socket errors") || report.contains("Non-2xx");
                assert!(!failed && report.contains("requests in"), "{arch}: {target:?}: {report}");
            }
            drop(haproxy);
            serving.stop();
        }
    });
}

/// Each direction by itself, and both at once with a server for each. iperf3's own `--bidir` cannot pass a relay: its
/// server takes the first connections that it accepts as those on which the client sends, and a relay that connects for
/// several clients at once does not keep their order; both ends then send on the same connections and none reads.
#[test]
fn iperf3_through_the_relay() {
    in_namespace(&["iperf3"], |space| {
        let (server, second) = (programs::iperf3(5201), programs::iperf3(5301));
        let more = routes(second.port);
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        for arch in archs(8) {
            let relaying = Relaying::start(space, server.port, arch, &more);
            for (target, other) in relaying.targets().iter().zip(&targets(second.port)) {
                measure(target, &[], arch);
                server.until_it_says(programs::LISTENING);
                measure(target, &["-R"], arch);
                server.until_it_says(programs::LISTENING);
                thread::scope(|scope| {
                    scope.spawn(|| measure(other, &["-R"], arch));
                    measure(target, &[], arch);
                });
                server.until_it_says(programs::LISTENING);
                second.until_it_says(programs::LISTENING);
            }
            relaying.stop();
        }
    });
}

/// Limited by amount and not by time, so that the result does not depend on the machine's load, except for buffered
/// data at the end of the sender.
fn measure(target: &Target, direction: &[&str], arch: &str) {
    let (port, amount) = (target.port.to_string(), if full() { "256M" } else { "64M" });
    let words = ["iperf3", "-c", target.host, "-p", &port, "-J", "-P", "2", "-n", amount, "--connect-timeout", "60000"];
    let report = output(&[&words[..], direction].concat());
    let report: Value = serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {report}"));
    let received = report["end"]["sum_received"]["bytes"].as_u64();
    let enough = received.is_some_and(|bytes| bytes > 16 * MIB as u64);
    assert!(enough && report["error"].is_null(), "{arch}: {target:?} {direction:?}: {report}");
}

#[test]
fn redis_through_the_relay() {
    in_namespace(&["redis-server", "redis-benchmark", "redis-cli"], |space| {
        let site = site(space);
        let server = programs::redis(&site);
        for arch in archs(9) {
            let relaying = Relaying::start(space, server.port, arch, &[]);
            for target in relaying.targets() {
                let port = target.port.to_string();
                let at = ["-h", target.host, "-p", &port];
                let number = if full() { "20000" } else { "5000" };
                let load = ["-n", number, "-c", "50", "-d", "1000", "-t", "set,get,lpush,lrange_100", "--csv"];
                for pipeline in ["1", "16"] {
                    let report = output(&[&["redis-benchmark"][..], &at, &load, &["-P", pipeline]].concat());
                    assert!(report.matches("\"LRANGE_100").count() == 1, "{arch}: {target:?}: {report}");
                    assert!(!report.to_lowercase().contains("error"), "{arch}: {target:?}: {report}");
                }
                let file = site.path("small");
                let stored = format!("redis-cli -h {} -p {port} -x set key < {file}", target.host);
                assert_eq!(output(&["sh", "-c", &stored]).trim(), "OK", "{arch}: {target:?}");
                let length = output(&[&["redis-cli"][..], &at, &["strlen", "key"]].concat());
                assert_eq!(length.trim(), "100000", "{arch}: {target:?}");
            }
            relaying.stop();
        }
    });
}

#[test]
fn rsync_over_ssh_through_the_relay() {
    in_namespace(&["rsync", "ssh", "ssh-keygen", "sshd"], |space| {
        let site = site(space);
        let ssh = Ssh::start(space);
        for arch in archs(10) {
            let relaying = Relaying::start(space, ssh.server.port, arch, &[]);
            for (index, target) in relaying.targets().iter().enumerate() {
                let shell = ssh.command(target.port, &[]).join(" ");
                let there = space.directory(&format!("there{index}{}", arch.replace(':', "-")));
                let back = space.directory(&format!("back{index}{}", arch.replace(':', "-")));
                let remote = format!("root@{}:{there}/", target.bracketed());
                let words = ["rsync", "-a", "--timeout", "60", "-e", &shell];
                run(&[&words[..], &[&site.path("big"), &site.path("small"), &remote]].concat());
                assert_eq!(sha256_of(&format!("{there}/big")), site.big, "{arch}: {target:?}");
                run(&[&words[..], &[&remote, &format!("{back}/")]].concat());
                assert_eq!(sha256_of(&format!("{back}/big")), site.big, "{arch}: {target:?}");
                assert_eq!(sha256_of(&format!("{back}/small")), site.small, "{arch}: {target:?}");
            }
            relaying.stop();
        }
    });
}

#[test]
fn python_from_heddle_and_through_the_relay() {
    // Three requests on one connection, one of them cut into two pieces in the middle of its head.
    const CLIENT: &str = "\
import hashlib, http.client, socket, sys
host, port = sys.argv[1], int(sys.argv[2])
c = http.client.HTTPConnection(host, port, timeout=60)
hashes = []
for name in ('big', 'small'):
    c.request('GET', '/' + name)
    hashes.append(hashlib.sha256(c.getresponse().read()).hexdigest())
s = socket.create_connection((host, port), 60)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for piece in (b'GET /small HT', b'TP/1.0\\r\\n', b'\\r\\n'):
    s.send(piece)
s.shutdown(socket.SHUT_WR)
text = b''
while piece := s.recv(5000):
    text += piece
hashes.append(hashlib.sha256(text.split(b'\\r\\n\\r\\n', 1)[1]).hexdigest())
print(*hashes)
";
    in_namespace(&["python3", "curl"], |space| {
        let site = site(space);
        let expected = format!("{} {} {}", site.big, site.small, site.small);
        let ask = |target: &Target, arch: &str| {
            let hashes = output(&["python3", "-c", CLIENT, target.host, &target.port.to_string()]);
            assert_eq!(hashes.trim(), expected, "{arch}: {target:?}");
        };
        let python = crate::serving::python(&site);
        for arch in archs(11) {
            let serving = Serving::start(space, &site, arch, &[]);
            served().iter().for_each(|target| ask(target, arch));
            serving.stop();
            if let Some((_server, port)) = &python {
                let relaying = Relaying::start(space, *port, arch, &[]);
                relaying.targets().iter().for_each(|target| ask(target, arch));
                relaying.stop();
            }
        }
    });
}

/// A relay with few descriptors relays as many connections as these allow, and reports the number; other connections
/// wait, and are served when one has ended.
#[test]
fn a_relay_with_few_files_serves_everybody_in_turn() {
    const FILES: u64 = 64;
    in_namespace(&["curl", "nginx", "sh"], |space| {
        let site = site(space);
        let nginx = programs::nginx(&site);
        let to = format!("kernel:127.0.0.1:{}", nginx.port);
        for (number, more) in [&[][..], &["--max-connections", "1000"]].into_iter().enumerate() {
            let words = [&["relay", "--json", "--listen", "[::]:80", "--to", &to, "--arch", archs(13)[0]][..], more];
            let limited = format!("ulimit -n {FILES}; exec \"$@\"");
            let shell = ["sh", "-c", &limited, "sh"].map(str::to_owned);
            let process = Process::start(&[&shell[..], &space.heddle(&words.concat())].concat());
            let Some(line) = process.line() else { panic!("{:?}", process.end()) };
            let ready: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let at_once = ready["max_connections"].as_u64().expect("a number");
            assert!((8..FILES).contains(&at_once), "{line}");
            for target in served() {
                // Clients that keep their connections open and send nothing: as many as are relayed at a time.
                let held: Vec<_> = (0..at_once - 1)
                    .map(|_| std::net::TcpStream::connect((target.host, target.port)).expect("it is accepted"))
                    .collect();
                drop(held);
                crate::serving::many_curls(2 * FILES as usize, &[target.url("small")], &site.small);
            }
            process.interrupt();
            let (status, said) = process.end();
            assert!(status.success(), "{status}: {said}");
            let expected = format!("{at_once} connections are relayed at a time, not 1000");
            match number {
                0 => assert!(said.is_empty(), "the ready line has said so: {said}"),
                _ => assert!(said.contains(&expected) && said.lines().count() == 1, "{said}"),
            }
        }
    });
}

#[test]
fn a_thousand_connections_at_once_through_the_relay() {
    // All of them are open before the first request, and each gets an answer: `ab` may finish before the relay has
    // accepted all its connections.
    const CLIENT: &str = "\
import resource, socket, sys
host, port, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
connections = [socket.create_connection((host, port), 60) for _ in range(number)]
for c in connections:
    c.sendall(b'HEAD /small HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n')
answers = [c.recv(5000)[:12] for c in connections]
print(answers.count(b'HTTP/1.1 200'))
";
    in_namespace(&["python3", "ab", "nginx", "curl"], |space| {
        let site = site(space);
        // By number and not by time: all of them must be served.
        let number = if full() { "50000" } else { "5000" };
        // Each of the programs needs a descriptor for each connection: use fewer if the limit is lower.
        let at_once = 1000.min(most_files() / 2);
        let many = at_once.to_string();
        let nginx = programs::nginx(&site);
        for arch in archs(12) {
            let relaying = Relaying::start(space, nginx.port, arch, &[]);
            for target in [&relaying.targets()[0], &relaying.targets()[3]] {
                let answered = output(&["python3", "-c", CLIENT, target.host, &target.port.to_string(), &many]);
                assert_eq!(answered.trim(), many, "{arch}: {target:?}");
                let words = ["ab", "-q", "-k", "-n", number, "-c", &many, "-s", "120", &target.url("small")];
                let report = output(&words);
                assert_eq!(number_after(&report, "Complete requests:").to_string(), number, "{arch}: {report}");
                assert_eq!(number_after(&report, "Failed requests:"), 0, "{arch}: {target:?}: {report}");
                assert!(!report.contains("Non-2xx"), "{arch}: {target:?}: {report}");
            }
            let ended = relaying.stop();
            assert!(
                ended["connections"].as_u64().is_some_and(|connections| connections > 2 * at_once as u64),
                "{ended}"
            );
        }
    });
}

#[test]
fn a_relay_names_the_program_that_is_not_there() {
    in_namespace(&[], |space| {
        let words = ["relay", "--json", "--listen", "0.0.0.0:81", "--to", "kernel:127.0.0.1:81"];
        let relay = Process::start(&space.heddle(&words));
        assert!(relay.line().is_some_and(|line| line.contains("listening")));
        // It sends nothing: whether a request would still be taken depends on when the reset arrives.
        let read = TcpStream::connect((OURS_V4, 81)).and_then(|mut stream| {
            stream.set_read_timeout(Some(HANG))?;
            stream.read(&mut [0])
        });
        assert_eq!(read.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
        relay.interrupt();
        let (status, error) = relay.end();
        assert!(status.success(), "{status}: {error}");
        assert!(error.contains("kernel:127.0.0.1:81: Connection refused") && error.lines().count() == 1, "{error}");
    });
}
