//! `heddle bridge` between TAP interfaces: the kernel's stacks in two network namespaces reach each other over it.

use std::path::Path;

use serde_json::Value;

use crate::namespace::{in_namespace, installed};
use crate::process::{Process, output, run};

const HEDDLE: &str = env!("CARGO_BIN_EXE_heddle");

/// Makes TAP interfaces; the first two get addresses, the second in a namespace of its own, which `NSENTER` enters.
fn make_taps(names: &[&str]) {
    for name in names {
        run(&["ip", "tuntap", "add", "mode", "tap", "multi_queue", "vnet_hdr", "name", name]);
        run(&["ip", "link", "set", name, "up"]);
    }
}

struct Bridge {
    process: Process,
    control: String,
}

impl Bridge {
    fn start(control: &Path, arguments: &[&str]) -> Bridge {
        let control = control.display().to_string();
        let words = [&[HEDDLE, "bridge", "run", "--control", &control], arguments].concat();
        let process = Process::start(&words);
        process.line_with("control socket");
        Bridge { process, control }
    }

    fn ask(&self, words: &[&str]) -> Value {
        let shown = output(&[&[HEDDLE, "bridge"], words, &["--control", &self.control, "-j"]].concat());
        serde_json::from_str(&shown).unwrap_or_else(|error| panic!("{error}: {shown}"))
    }

    fn stop(self) {
        self.process.interrupt();
        let (status, errors) = self.process.end();
        assert!(status.success() && errors.is_empty(), "{status}: {errors}");
        assert!(!Path::new(&self.control).exists(), "the control socket is removed");
    }
}

/// Two of the kernel's stacks, one of them in a namespace of its own with the end of `tap-b`, communicate over each
/// kind of bridge.
#[test]
fn a_bridge_connects_two_kernels() {
    in_namespace(&["ping", "unshare", "nsenter"], |space| {
        if !installed("sleep") {
            return;
        }
        // A process that keeps the second namespace.
        let keeper = Process::start(&["unshare", "--net", "sh", "-c", "echo ready; exec sleep 600"]);
        keeper.line_with("ready");
        let pid = keeper.id().to_string();
        let inside = |words: &[&str]| run(&[&["nsenter", "-t", &pid, "-n"], words].concat());
        let directory = space.directory("bridge");
        let control = Path::new(&directory).join("control.sock");
        for (n, exclusion) in ["generic", "mpsafe", "rcu"].into_iter().enumerate() {
            let taps = [format!("bra{n}"), format!("brb{n}"), format!("brc{n}")];
            let names: Vec<&str> = taps.iter().map(String::as_str).collect();
            let devices = taps.each_ref().map(|name| format!("tap:{name}"));
            make_taps(&names);
            let bridge =
                Bridge::start(&control, &["--port", &devices[0], "--port", &devices[1], "--exclusion", exclusion]);
            run(&["ip", "addr", "add", "10.77.0.1/24", "dev", names[0]]);
            run(&["ip", "addr", "add", "fd77::1/64", "dev", names[0], "nodad"]);
            run(&["ip", "link", "set", names[1], "netns", &pid]);
            inside(&["ip", "addr", "add", "10.77.0.2/24", "dev", names[1]]);
            inside(&["ip", "addr", "add", "fd77::2/64", "dev", names[1], "nodad"]);
            inside(&["ip", "link", "set", names[1], "up"]);
            run(&["ping", "-q", "-c", "5", "-i", "0.05", "-w", "20", "10.77.0.2"]);
            run(&["ping", "-6", "-q", "-c", "5", "-i", "0.05", "-w", "20", "fd77::2"]);
            looked_at(&bridge, &names, exclusion);
            // A port comes and goes.
            bridge.ask(&["add", &devices[2]]);
            assert_eq!(bridge.ask(&["show"])["ports"].as_array().map(Vec::len), Some(3));
            bridge.ask(&["del", &devices[2]]);
            bridge.ask(&["add", &devices[2]]);
            bridge.ask(&["fdb", "flush"]);
            run(&["ping", "-q", "-c", "2", "-i", "0.05", "-w", "20", "10.77.0.2"]);
            bridge.stop();
            inside(&["ip", "link", "del", names[1]]);
            run(&["ip", "link", "del", names[0]]);
            run(&["ip", "link", "del", names[2]]);
        }
    });
}

/// The output of the commands after traffic.
fn looked_at(bridge: &Bridge, names: &[&str], exclusion: &str) {
    let shown = bridge.ask(&["show"]);
    assert_eq!((&shown["exclusion"], &shown["ports"][0]["state"]), (&exclusion.into(), &"forwarding".into()));
    let entries = bridge.ask(&["fdb"]);
    let ports: Vec<&str> =
        entries.as_array().expect("a list").iter().filter_map(|row| row["ifname"].as_str()).collect();
    assert!(names[..2].iter().all(|name| ports.contains(name)), "{exclusion}: both stations are learned: {entries}");
    bridge.ask(&["fdb", "add", "02:00:00:00:00:09", names[0], "--sticky"]);
    let entries = bridge.ask(&["fdb", "show"]).to_string();
    assert!(entries.contains("02:00:00:00:00:09") && entries.contains("static"), "{entries}");
    bridge.ask(&["fdb", "del", "02:00:00:00:00:09"]);
    bridge.ask(&["set", names[0], "isolated=on", "max_addresses=7"]);
    let port = &bridge.ask(&["show"])["ports"][0];
    assert_eq!((&port["isolated"], &port["max_addresses"]), (&true.into(), &7.into()));
    bridge.ask(&["set", names[0], "isolated=off", "storm_bcast=1000", "storm_unknown=50/7"]);
    let port = &bridge.ask(&["show"])["ports"][0];
    assert_eq!((&port["storm_bcast"], &port["storm_unknown"]), (&"1000/100".into(), &"50/7".into()));
    bridge.ask(&["set", names[0], "storm_bcast=none", "storm_unknown=none"]);
    bridge.ask(&["vlan", "add", names[0], "10", "--untagged"]);
    assert!(bridge.ask(&["vlan"]).to_string().contains("\"vlan\":10"));
    bridge.ask(&["vlan", "del", names[0], "10"]);
    assert_eq!(bridge.ask(&["stp"])["protocol"], "none");
    let stats = bridge.ask(&["stats"]);
    assert!(stats["ports"][1]["tx_frames"].as_u64() > Some(5), "{stats}");
}

/// A stack is a port of the bridge in its process (`--dev bridge:NAME`): kernels at two other ports reach its service, and
/// each other, over IPv4 and IPv6; `heddle bridge` shows all three ports.
#[test]
fn a_stack_and_two_kernels_are_on_one_bridge() {
    in_namespace(&["ping", "unshare", "nsenter", "curl"], |space| {
        let keeper = Process::start(&["unshare", "--net", "sh", "-c", "echo ready; exec sleep 600"]);
        keeper.line_with("ready");
        let pid = keeper.id().to_string();
        let second = ["nsenter", "-t", &pid, "-n"];
        let inside = |words: &[&str]| run(&[&second, words].concat());
        let site = space.site(1 << 20);
        let page = std::fs::read_to_string(site.path("index.html")).expect("the file");
        make_taps(&["brs0", "brs1"]);
        let words = ["serve", "http", "--root", &site.path("."), "--addr", "10.79.0.3/24", "--addr", "fd79::3/64"];
        let device = ["--dev", "bridge:brs", "--bridge-port", "tap:brs0", "--bridge-port", "tap:brs1"];
        let process = Process::start(&[&[HEDDLE], &words[..], &device].concat());
        process.line_with("10.79.0.3");
        run(&["ip", "addr", "add", "10.79.0.1/24", "dev", "brs0"]);
        run(&["ip", "addr", "add", "fd79::1/64", "dev", "brs0", "nodad"]);
        run(&["ip", "link", "set", "brs1", "netns", &pid]);
        inside(&["ip", "addr", "add", "10.79.0.2/24", "dev", "brs1"]);
        inside(&["ip", "addr", "add", "fd79::2/64", "dev", "brs1", "nodad"]);
        inside(&["ip", "link", "set", "brs1", "up"]);
        for url in ["http://10.79.0.3/index.html", "http://[fd79::3]/index.html"] {
            let fetch = ["curl", "-sSf", "-m", "60", url];
            assert_eq!(output(&fetch), page, "{url} from the first kernel");
            assert_eq!(output(&[&second[..], &fetch].concat()), page, "{url} from the second");
        }
        run(&["ping", "-q", "-c", "3", "-i", "0.05", "-w", "20", "10.79.0.2"]);
        run(&["ping", "-6", "-q", "-c", "3", "-i", "0.05", "-w", "20", "fd79::2"]);
        let shown = output(&[HEDDLE, "bridge", "show", "--name", "brs", "-j"]);
        let shown: Value = serde_json::from_str(&shown).unwrap_or_else(|error| panic!("{error}: {shown}"));
        let names: Vec<_> = shown["ports"].as_array().expect("a list").iter().map(|port| &port["ifname"]).collect();
        assert_eq!(names, ["brs", "brs0", "brs1"]);
        process.interrupt();
        let (status, errors) = process.end();
        assert!(status.success() && errors.contains("bridge brs with 3 ports"), "{status}: {errors}");
        inside(&["ip", "link", "del", "brs1"]);
        run(&["ip", "link", "del", "brs0"]);
    });
}

/// A bridge configured from a file records its frames; its queues move from worker to worker while two kernels
/// communicate over it.
#[test]
fn a_bridge_of_a_file_whose_queues_move() {
    in_namespace(&["ping", "unshare", "nsenter"], |space| {
        let keeper = Process::start(&["unshare", "--net", "sh", "-c", "echo ready; exec sleep 600"]);
        keeper.line_with("ready");
        let pid = keeper.id().to_string();
        let inside = |words: &[&str]| run(&[&["nsenter", "-t", &pid, "-n"], words].concat());
        let directory = space.directory("file");
        let at = |name: &str| Path::new(&directory).join(name);
        make_taps(&["brf0", "brf1"]);
        let text = "exclusion = \"rcu\"\nworkers = 2\n[[port]]\ndevice = \"tap:brf0\"\nset = [\"max_addresses=9\"]\n\
                    [[port]]\ndevice = \"tap:brf1\"\n[[fdb]]\naddress = \"02:00:00:00:00:09\"\nport = \"brf0\"\n";
        std::fs::write(at("br.toml"), text).expect("a file");
        let [config, pcap] = [at("br.toml"), at("br.pcapng")].map(|path| path.display().to_string());
        let bridge = Bridge::start(&at("control.sock"), &["--config", &config, "--pcap", &pcap]);
        assert_eq!(bridge.ask(&["show"])["ports"][0]["max_addresses"], 9);
        assert!(bridge.ask(&["fdb"]).to_string().contains("02:00:00:00:00:09"));
        run(&["ip", "addr", "add", "10.78.0.1/24", "dev", "brf0"]);
        run(&["ip", "link", "set", "brf1", "netns", &pid]);
        inside(&["ip", "addr", "add", "10.78.0.2/24", "dev", "brf1"]);
        inside(&["ip", "link", "set", "brf1", "up"]);
        let ping = Process::start(&["ping", "-q", "-c", "100", "-i", "0.01", "-w", "60", "10.78.0.2"]);
        let interrupts = |words: &[&str]| {
            let shown = output(&[&[HEDDLE, "intrctl"], words, &["--control", &bridge.control, "-j"]].concat());
            serde_json::from_str::<Value>(&shown).unwrap_or_else(|error| panic!("{error}: {shown}"))
        };
        for _ in 0..10 {
            assert_eq!(interrupts(&["affinity", "brf0:rx0", "1"])["moved"], 1);
            assert_eq!(interrupts(&["nointr", "1"])["moved"], 2);
            interrupts(&["intr", "1"]);
            assert_eq!(interrupts(&["distribute"])["moved"], 1);
        }
        interrupts(&["work", "drain"]);
        let listed = interrupts(&["list"]);
        assert_eq!((&listed["work"], &listed["vectors"][0]["vector"]), (&"drain".into(), &"brf0:rx0".into()));
        let (status, errors) = ping.end();
        assert!(status.success(), "{errors}");
        bridge.stop();
        assert!(std::fs::metadata(&pcap).expect("a capture").len() > 10_000, "frames are in it");
        inside(&["ip", "link", "del", "brf1"]);
        run(&["ip", "link", "del", "brf0"]);
    });
}

/// `kill -9` leaves a socket behind, which the next bridge replaces. While one bridge runs, a second is refused.
#[test]
fn a_killed_bridge_is_restarted() {
    in_namespace(&[], |space| {
        make_taps(&["brk0"]);
        let directory = space.directory("killed");
        let control = Path::new(&directory).join("control.sock");
        let bridge = Bridge::start(&control, &["--port", "tap:brk0", "--stp", "rstp"]);
        let words = [HEDDLE, "bridge", "run", "--control", &control.display().to_string()];
        let second = Process::start(&words);
        let (status, errors) = second.end();
        assert!(status.code() == Some(1) && errors.contains("a bridge is running"), "{status}: {errors}");
        assert_eq!(bridge.ask(&["stp"])["protocol"], "rstp");
        // Kills it.
        drop(bridge);
        assert!(control.exists());
        let bridge = Bridge::start(&control, &["--port", "tap:brk0"]);
        assert_eq!(bridge.ask(&["show"])["ports"].as_array().map(Vec::len), Some(1));
        bridge.stop();
        run(&["ip", "link", "del", "brk0"]);
    });
}
