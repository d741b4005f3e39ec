//! Third-party servers on the kernel's addresses, each ready when its function returns, and ended when it is dropped.

use std::fs;

use crate::namespace::{KERNEL_V4, KERNEL_V6, Namespace};
use crate::process::{Process, most_files, output, run};
use crate::relaying::Target;
use crate::serving::{Site, bracketed};

/// A server and the port on which it listens, on every address.
pub struct Server {
    process: Process,
    /// The port.
    pub port: u16,
}

impl Server {
    /// Starts a web server that has a file `small`, and waits until it answers on both the kernel's addresses.
    fn web(words: &[&str], port: u16) -> Server {
        let process = Process::start(words);
        for host in [KERNEL_V4, KERNEL_V6] {
            let url = format!("http://{}:{port}/small", bracketed(host));
            // curl retries for as long as the connection is refused.
            let retry = ["--retry", "50", "--retry-delay", "1", "--retry-connrefused", "--retry-max-time", "60"];
            output(&[&["curl", "-sf", "-m", "60", "-o", "/dev/null"][..], &retry, &[&url]].concat());
        }
        Server { process, port }
    }

    /// Starts a server that reports on its standard output when it is ready.
    fn says(words: &[&str], ready: &str, port: u16) -> Server {
        let process = Process::start(words);
        process.line_with(ready);
        Server { process, port }
    }

    /// Waits until the server reports that (again).
    pub fn until_it_says(&self, ready: &str) {
        self.process.line_with(ready);
    }
}

/// nginx, with HTTP/2 without TLS on the port after.
pub fn nginx(site: &Site) -> Server {
    let (port, h2, path) = (8011, 8012, site.path("nginx2.conf"));
    let configuration = format!(
        "daemon off; master_process off; user root; pid {pid}; error_log stderr; events {{ worker_connections 10000; }}\n\
         http {{ access_log off; root {root}; keepalive_requests 1000000;\n\
         server {{ listen 0.0.0.0:{port}; listen [::]:{port}; }}\n\
         server {{ listen 0.0.0.0:{h2} http2; listen [::]:{h2} http2; }} }}\n",
        pid = site.path("nginx2.pid"),
        root = site.path("."),
    );
    fs::write(&path, configuration).expect("room");
    Server::web(&["nginx", "-p", "/", "-c", &path], port)
}

/// lighttpd.
pub fn lighttpd(site: &Site) -> Server {
    let (port, path) = (8021, site.path("lighttpd.conf"));
    let root = site.path(".");
    let configuration = format!(
        "server.document-root = \"{root}\"\nserver.port = {port}\nserver.max-keep-alive-requests = 1000000\n\
         index-file.names = (\"index.html\")\n$SERVER[\"socket\"] == \"[::]:{port}\" {{ }}\n"
    );
    fs::write(&path, configuration).expect("room");
    Server::web(&["lighttpd", "-D", "-f", &path], port)
}

/// haproxy, which forwards requests to a web server at `behind`, with health checks.
pub fn haproxy(site: &Site, behind: &[&Target]) -> Server {
    let (port, path) = (8031, site.path("haproxy.cfg"));
    // It does not start without two files for each connection.
    let most = 2000.min(most_files() / 3);
    let mut configuration = format!(
        "global\n  maxconn {most}\ndefaults\n  mode http\n  timeout connect 20s\n  timeout client 60s\n  timeout server 60s\n\
         \x20 option redispatch\nlisten web\n  bind :::{port} v4v6\n  option httpchk GET /small\n"
    );
    for (index, target) in behind.iter().enumerate() {
        configuration += &format!("  server s{index} {}:{} check inter 200ms\n", target.host, target.port);
    }
    fs::write(&path, configuration).expect("room");
    Server::web(&["haproxy", "-db", "-q", "-f", &path], port)
}

/// The message of iperf3's server when it is ready for the next client; it serves one at a time.
pub const LISTENING: &str = "Server listening";

/// iperf3's server.
pub fn iperf3(port: u16) -> Server {
    Server::says(&["iperf3", "-s", "-p", &port.to_string(), "--forceflush"], LISTENING, port)
}

/// redis, without persistence.
pub fn redis(site: &Site) -> Server {
    let port = 6379;
    let (number, directory) = (port.to_string(), site.path("."));
    let words = ["redis-server", "--port", &number, "--bind", "0.0.0.0", "::", "--save", "", "--appendonly", "no"];
    let rest = ["--protected-mode", "no", "--dir", &directory];
    Server::says(&[&words[..], &rest].concat(), "Ready to accept connections", port)
}

/// OpenSSH's server with test keys, and the matching command line of its client.
pub struct Ssh {
    /// The server.
    pub server: Server,
    key: String,
    /// The directory that sshd needs, if it was created here.
    made: Option<&'static str>,
}

impl Drop for Ssh {
    fn drop(&mut self) {
        self.made.map(fs::remove_dir);
    }
}

impl Ssh {
    /// Starts sshd and waits until a login succeeds.
    pub fn start(space: &Namespace) -> Ssh {
        const SEPARATION: &str = "/run/sshd";
        let directory = space.directory("ssh");
        let at = |name: &str| format!("{directory}/{name}");
        for key in ["host", "user"] {
            run(&["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", &at(key)]);
        }
        let port = 2222;
        let configuration = format!(
            "Port {port}\nHostKey {host}\nAuthorizedKeysFile {user}.pub\nPidFile none\nStrictModes no\nUsePAM no\n\
             PermitRootLogin prohibit-password\nMaxStartups 100\nUseDNS no\n",
            host = at("host"),
            user = at("user"),
        );
        fs::write(at("sshd_config"), configuration).expect("room");
        let made = fs::create_dir(SEPARATION).is_ok().then_some(SEPARATION);
        let process = Process::start(&["/usr/sbin/sshd", "-D", "-e", "-f", &at("sshd_config")]);
        let ssh = Ssh { server: Server { process, port }, key: at("user"), made };
        // ssh retries for as long as the connection is refused.
        let words = ssh.command(port, &["-o", "ConnectionAttempts=60"]);
        run(&[&words[..], &[format!("root@{KERNEL_V4}"), "true".to_owned()]].concat());
        ssh
    }

    /// The client's command line, up to the host.
    pub fn command(&self, port: u16, more: &[&str]) -> Vec<String> {
        let port = port.to_string();
        let own = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"];
        let words = ["ssh", "-F", "none", "-o", "BatchMode=yes", "-i", &self.key, "-p", &port];
        [&words[..], &own, more].concat().into_iter().map(str::to_owned).collect()
    }
}
