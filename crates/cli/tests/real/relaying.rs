//! `heddle relay` in the background, in front of a server on the kernel's side, in both roles and over both families.

use serde_json::Value;

use crate::namespace::{KERNEL_V4, KERNEL_V6, Namespace, OURS_V4, OURS_V6};
use crate::process::Process;

/// Offset to a server's port at which programs reach it through Heddle's active opens.
const ENTRANCE: u16 = 1000;

/// Where a client connects.
#[derive(Clone, Debug)]
pub struct Target {
    /// The address, without brackets.
    pub host: &'static str,
    /// The port.
    pub port: u16,
}

impl Target {
    /// The address in the notation of URLs and scp-like tools.
    pub fn bracketed(&self) -> String {
        crate::serving::bracketed(self.host)
    }

    /// The URL of `path` there.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}:{}/{path}", self.bracketed(), self.port)
    }
}

/// The relay's arguments for the routes to a server that listens on `port` of all the kernel's addresses.
pub fn routes(port: u16) -> Vec<String> {
    let entrance = port + ENTRANCE;
    [
        (format!("[::]:{port}"), format!("kernel:127.0.0.1:{port}")),
        (format!("kernel:127.0.0.1:{entrance}"), format!("{KERNEL_V4}:{port}")),
        (format!("kernel:[::1]:{entrance}"), format!("[{KERNEL_V6}]:{port}")),
    ]
    .into_iter()
    .flat_map(|(listen, to)| ["--listen".to_owned(), listen, "--to".to_owned(), to])
    .collect()
}

/// Where a client reaches that server: Heddle listens (v4, v6), Heddle connects (v4, v6).
pub fn targets(port: u16) -> [Target; 4] {
    let entrance = port + ENTRANCE;
    [(OURS_V4, port), (OURS_V6, port), ("127.0.0.1", entrance), ("::1", entrance)]
        .map(|(host, port)| Target { host, port })
}

/// A relay that runs.
pub struct Relaying {
    process: Process,
    port: u16,
}

impl Relaying {
    /// Relays to the server that listens on `port` of all the kernel's addresses, four ways.
    pub fn start(space: &Namespace, port: u16, arch: &str, more: &[&str]) -> Relaying {
        let mut words = vec!["relay", "--json", "--arch", arch];
        let routes = routes(port);
        words.extend(routes.iter().map(String::as_str));
        words.extend(more);
        let process = Process::start(&space.heddle(&words));
        let Some(line) = process.line() else { panic!("{arch}: {:?}", process.end()) };
        assert!(line.contains("\"event\":\"listening\""), "{line}");
        Relaying { process, port }
    }

    /// Where a client reaches the server: Heddle listens (v4, v6), Heddle connects (v4, v6).
    pub fn targets(&self) -> [Target; 4] {
        targets(self.port)
    }

    /// Ends it as Ctrl-C does; returns its totals. Every connection must have reached its server.
    pub fn stop(self) -> Value {
        self.process.interrupt();
        let ended = self.process.line().unwrap_or_default();
        let (status, error) = self.process.end();
        assert!(status.success() && error.is_empty(), "{status}: {error}");
        let ended: Value = serde_json::from_str(&ended).unwrap_or_else(|error| panic!("{error}: {ended}"));
        assert_eq!((&ended["event"], &ended["reason"]), (&"ended".into(), &"signal".into()), "{ended}");
        assert_eq!(ended["connections_not_opened"], 0, "{ended}");
        ended
    }
}
