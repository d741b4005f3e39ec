//! The kernel's interfaces for a test: cables between the tester and a bridge, in a network namespace of the run.
//!
//! ```text
//! Heddle's bridge   tester - packet socket - TAP interface | descriptor - bridge - descriptor | TAP interface - packet socket - tester
//! the Linux bridge  tester - packet socket - veth interface | veth interface - bridge - veth interface | veth interface - packet socket - tester
//! no bridge         tester - packet socket - veth interface | veth interface - packet socket - tester
//! ```
//!
//! A frame crosses two cables, `|`, between the generator and the counter, by either bridge. The far end of a TAP
//! interface is a descriptor; that of a veth interface is another interface, as the kernel's bridge needs it. Virtual machines
//! and containers are connected by these.
//!
//! The interfaces are made with `ip` of iproute2, and vanish with the namespace.

use std::fs;
use std::io::{self, Write};
use std::process::{Command, Stdio};

use dev_tap::packet::{PacketOptions, PacketPort, enter_new_namespace};

use super::line::{ETHERTYPE, PORTS};

/// Bytes of a received frame that the tester looks at.
const KEPT: usize = 62;
/// The kernel's setting of the CPUs that process received frames of interfaces made from then on (Linux 6.3).
const STEERING: &str = "/proc/sys/net/core/rps_default_mask";

/// Moves the calling thread to a network namespace for a run, in which the kernel sends nothing on its own account.
///
/// # Errors
/// It is not permitted; the text has the remedy.
pub fn enter_namespace() -> io::Result<()> {
    enter_new_namespace()?;
    // A kernel without IPv6 has no such file, and nothing to be switched off.
    let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    Ok(())
}

/// The names of the interfaces of one contender, by its number in the run.
pub(super) struct Wires {
    number: usize,
    mtu: usize,
    ring: usize,
}

impl Wires {
    /// Frames are at most `mtu` bytes long, without Ethernet header; a TAP interface holds `ring` of them.
    pub(super) fn new(number: usize, mtu: usize, ring: usize) -> Wires {
        Wires { number, mtu, ring }
    }

    /// The tester's end of a cable.
    pub(super) fn outer(&self, port: usize) -> String {
        format!("test{}{}", self.number, ["a", "b"][port % PORTS])
    }

    /// The bridge's end of a veth cable.
    pub(super) fn inner(&self, port: usize) -> String {
        format!("port{}{}", self.number, ["a", "b"][port % PORTS])
    }

    fn bridge(&self) -> String {
        format!("bridge{}", self.number)
    }

    /// The kernel's bridge with two cables. If `steered`, the first CPU processes the frames that arrive at any end of them,
    /// else the CPU that sends them does.
    pub(super) fn make_linux_bridge(&self, steered: bool) -> io::Result<()> {
        let Wires { mtu, .. } = self;
        let bridge = self.bridge();
        let mut lines = format!("link add {bridge} type bridge mcast_snooping 0 stp_state 0\n");
        for port in 0..PORTS {
            let (outer, inner) = (self.outer(port), self.inner(port));
            lines += &format!("link add {outer} mtu {mtu} type veth peer name {inner} mtu {mtu}\n");
            lines += &format!("link set {inner} master {bridge}\nlink set {inner} up\nlink set {outer} up\n");
        }
        lines += &format!("link set {bridge} mtu {mtu} up\n");
        if steered {
            steer("1")?;
        }
        let made = ip(&lines);
        if steered {
            steer("0")?;
        }
        made
    }

    /// One veth cable, with the tester at both ends.
    pub(super) fn make_cable(&self) -> io::Result<()> {
        let Wires { mtu, .. } = self;
        let [a, b] = [0, 1].map(|port| self.outer(port));
        ip(&format!("link add {a} mtu {mtu} type veth peer name {b} mtu {mtu}\nlink set {a} up\nlink set {b} up\n"))
    }

    /// Sets how many frames the TAP interfaces hold.
    pub(super) fn set_rings(&self) -> io::Result<()> {
        let line = |port| format!("link set {} txqueuelen {}\n", self.outer(port), self.ring);
        ip(&(0..PORTS).map(line).collect::<String>())
    }

    /// The tester's sockets, at the outer ends.
    pub(super) fn open_ports(&self) -> io::Result<[PacketPort; PORTS]> {
        // All frames that are in flight fit: those that a TAP holds, and those of the tester's turn.
        let options =
            PacketOptions { ethertype: u16::from_be_bytes(ETHERTYPE), ring: (4 * self.ring).max(8192), keep: KEPT };
        Ok([PacketPort::open(&self.outer(0), options)?, PacketPort::open(&self.outer(1), options)?])
    }
}

fn steer(mask: &str) -> io::Result<()> {
    fs::write(STEERING, mask).map_err(|error| {
        io::Error::new(error.kind(), format!("{STEERING} cannot be written ({error}): it needs Linux 6.3 or later"))
    })
}

/// Runs the commands of `ip`, one a line, in the namespace of the calling thread.
fn ip(lines: &str) -> io::Result<()> {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(error.kind(), "the command `ip` is not installed: install iproute2"),
        _ => io::Error::new(error.kind(), format!("the command `ip` cannot be run ({error})")),
    })?;
    if let Some(mut input) = process.stdin.take() {
        // A program that ends early says why on its standard error.
        let _ = input.write_all(lines.as_bytes());
    }
    let output = process.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("the interfaces of the test cannot be made: {}", said.trim().replace('\n', "; "))))
}
