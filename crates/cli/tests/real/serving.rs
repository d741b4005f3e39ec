//! Services, ours and others', and clients that compare the SHA-256 of the content.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use sha2::{Digest, Sha256};

use crate::namespace::{KERNEL_V4, KERNEL_V6, Namespace, OURS_V4, installed, say};
use crate::process::{Process, output};

/// Ports of third-party servers.
const PYTHON: u16 = 8000;
const NGINX: u16 = 8001;

/// A directory to be served.
pub struct Site {
    root: PathBuf,
    /// SHA-256 of the file `big`.
    pub big: String,
    /// SHA-256 of the file `small`.
    pub small: String,
}

impl Site {
    /// Fills `root/site`.
    pub fn new(root: &Path, size: usize) -> Site {
        let root = root.join("site");
        fs::create_dir_all(&root).expect("a directory");
        let (big, small) = (content(size, 1), content(100_000, 2));
        fs::write(root.join("big"), &big).expect("room for the file");
        fs::write(root.join("small"), &small).expect("room for the file");
        fs::write(root.join("index.html"), "<!doctype html><title>Heddle</title><p>A page.").expect("room");
        Site { root, big: hex(&Sha256::digest(&big)), small: hex(&Sha256::digest(&small)) }
    }

    /// The path of a file in it.
    pub fn path(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }

    /// The path of `small`.
    pub fn small_path(&self) -> String {
        self.path("small")
    }

    /// `big` as an argument of curl's `--data-binary`.
    pub fn big_at(&self) -> String {
        format!("@{}", self.path("big"))
    }
}

/// Pseudo-random bytes without a period that could hide an error in the stack (xorshift; Marsaglia 2003).
fn content(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(mut input: impl Read) -> String {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match input.read(&mut buffer).expect("read") {
            0 => return hex(&hash.finalize()),
            count => hash.update(&buffer[..count]),
        }
    }
}

/// The SHA-256 of a file.
pub fn sha256_of(path: &str) -> String {
    sha256(fs::File::open(path).expect("the file"))
}

/// An address in URL notation.
pub fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

/// Runs curl, which must succeed; returns the SHA-256 of the content.
pub fn curl(arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["-sSf", "-m", "300"]).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("curl");
    let hash = sha256(child.stdout.take().expect("a pipe"));
    let status = child.wait().expect("a status");
    assert!(status.success(), "curl {arguments:?}: {status}");
    hash
}

/// `count` curls at the same time; each must get `expected`.
pub fn many_curls(count: usize, urls: &[String], expected: &str) {
    let fetch = |n: usize| {
        let mut command = Command::new("curl");
        command.args(["-sSf", "-m", "300", &urls[n % urls.len()]]).stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().expect("curl")
    };
    // All are started before the first is read.
    let mut children: Vec<_> = (0..count).map(fetch).collect();
    let hashes: Vec<String> = std::thread::scope(|scope| {
        let readers: Vec<_> = children
            .iter_mut()
            .map(|child| child.stdout.take().expect("a pipe"))
            .map(|pipe| scope.spawn(move || sha256(pipe)))
            .collect();
        readers.into_iter().map(|reader| reader.join().expect("read")).collect()
    });
    for (child, hash) in children.iter_mut().zip(hashes) {
        let status = child.wait().expect("a status");
        assert!(status.success() && hash == expected, "{status}, {hash}");
    }
}

/// `heddle serve` in the background.
pub struct Serving {
    process: Process,
}

impl Serving {
    /// Serves `site` over HTTP and waits until it is ready.
    pub fn start(space: &Namespace, site: &Site, arch: &str, more: &[&str]) -> Serving {
        let root = site.root.display().to_string();
        let words = [&["serve", "http", "--json", "--root", &root, "--arch", arch][..], more].concat();
        Serving::ready(Process::start(&space.heddle(&words)), arch)
    }

    /// As [`Serving::start`], in a process limited to `most` descriptors.
    pub fn start_with_descriptors(space: &Namespace, site: &Site, arch: &str, most: u32) -> Serving {
        let root = site.root.display().to_string();
        let limited = format!("ulimit -n {most}; exec \"$@\"");
        let shell = ["sh", "-c", &limited, "sh"].map(str::to_owned);
        let words = space.heddle(&["serve", "http", "--json", "--root", &root, "--arch", arch]);
        Serving::ready(Process::start(&[&shell[..], &words].concat()), arch)
    }

    /// Starts one of the classic services and waits until it is ready.
    pub fn service(space: &Namespace, name: &str, arch: &str) -> Serving {
        Serving::ready(Process::start(&space.heddle(&["serve", name, "--json", "--arch", arch])), arch)
    }

    fn ready(process: Process, arch: &str) -> Serving {
        let Some(line) = process.line() else { panic!("{arch}: {:?}", process.end()) };
        assert!(line.contains("\"event\":\"listening\""), "{line}");
        Serving { process }
    }

    /// The URL of `path` on `host`, one of our addresses.
    pub fn url(&self, host: &str, path: &str) -> String {
        format!("http://{}/{path}", bracketed(host))
    }

    /// Connects with the kernel's TCP.
    pub fn connect(&self, port: u16) -> TcpStream {
        TcpStream::connect((OURS_V4, port)).expect("a connection")
    }

    /// Ends it as Ctrl-C does; it must succeed, and its final output is returned.
    pub fn stop(self) -> String {
        self.process.interrupt();
        let ended = self.process.line().unwrap_or_default();
        let (status, error) = self.process.end();
        assert!(status.success(), "{status}: {error}");
        assert!(ended.contains("\"reason\":\"signal\""), "{ended}");
        ended
    }

    /// Requests its report, ends it as Ctrl-C does, and returns its standard error.
    pub fn ask_and_stop(self, answered: impl FnOnce()) -> String {
        self.process.ask();
        answered();
        self.process.interrupt();
        let (status, error) = self.process.end();
        assert!(status.success(), "{status}: {error}");
        error
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it ends by itself; returns its status and its standard error.
    pub fn end(self) -> (ExitStatus, String) {
        self.process.end()
    }
}

/// Python's own HTTP server, and its port.
pub fn python(site: &Site) -> Option<(Process, u16)> {
    let port = PYTHON.to_string();
    let root = site.root.display().to_string();
    server("python3", &["python3", "-m", "http.server", "--bind", "::", "--directory", &root, &port], PYTHON)
}

/// nginx, and its port.
pub fn nginx(site: &Site) -> Option<(Process, u16)> {
    let path = site.path("nginx.conf");
    let (root, pid) = (site.root.display(), site.path("nginx.pid"));
    let configuration = format!(
        "daemon off; master_process off; user root; pid {pid}; error_log stderr; events {{}}\n\
         http {{ access_log off; server {{ listen 0.0.0.0:{NGINX}; listen [::]:{NGINX}; root {root}; }} }}\n"
    );
    fs::write(&path, configuration).expect("room");
    server("nginx", &["nginx", "-p", "/", "-c", &path], NGINX)
}

/// Starts a server and waits until its port is open on the kernel's addresses.
fn server(name: &str, words: &[&str], port: u16) -> Option<(Process, u16)> {
    if !installed(name) {
        say(&format!("without {name}, which is not installed"));
        return None;
    }
    let process = Process::start(words);
    // curl retries for as long as the connection is refused.
    for host in [KERNEL_V4, KERNEL_V6] {
        let url = format!("http://{}:{port}/small", bracketed(host));
        let retry = ["--retry", "50", "--retry-delay", "1", "--retry-connrefused", "--retry-max-time", "60"];
        output(&[&["curl", "-sf", "-o", "/dev/null"][..], &retry, &[&url]].concat());
    }
    Some((process, port))
}
