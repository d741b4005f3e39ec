//! The frames on an interface, recorded by tcpdump and analysed by tshark.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::UdpSocket;
use std::time::Instant;

use testbed::limit::HANG;

use crate::namespace::{KERNEL_V4, KERNEL_V6, OURS_V4};
use crate::process::{Process, output};

/// The port of the datagram that ends a recording (RFC 863).
const DISCARD: u16 = 9;

/// tcpdump on an interface.
pub struct Capture {
    tcpdump: Process,
    file: String,
}

/// A datagram with this text is the last that is recorded.
const END: &[u8] = b"and here the recording ends";

impl Capture {
    /// Starts to record the TCP frames of `interface` to `file`, complete except for super-segments.
    pub fn start(interface: &str, file: &str) -> Capture {
        let what = format!("-i {interface} -w {file} 'tcp or udp port {DISCARD}'");
        let words = format!("exec tcpdump -n -U --immediate-mode -B 100000 -s 2000 {what} 2>&1");
        let tcpdump = Process::start(&["sh", "-c", &words]);
        tcpdump.line_with("listening on");
        Capture { tcpdump, file: file.to_owned() }
    }

    /// Ends the recording; returns its file. No frame may be missing.
    pub fn stop(self) -> String {
        // When it is ended, tcpdump drops unprocessed frames: so it must have seen the end before.
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.send_to(END, (OURS_V4, DISCARD)).expect("sent");
        let asked = Instant::now();
        while !self.ends() {
            assert!(asked.elapsed() < HANG, "tcpdump does not see the end");
            std::thread::yield_now();
        }
        self.tcpdump.interrupt();
        let lost = self.tcpdump.line_with("dropped by kernel");
        assert!(lost.starts_with("0 packets"), "{lost}");
        let (status, _) = self.tcpdump.end();
        assert!(status.success(), "tcpdump: {status}");
        self.file
    }

    /// Whether the end marker is at the file's end, or shortly before.
    fn ends(&self) -> bool {
        let mut tail = Vec::new();
        let mut file = File::open(&self.file).expect("the recording");
        let length = file.metadata().expect("its length").len();
        file.seek(SeekFrom::Start(length.saturating_sub(10_000))).expect("a place in it");
        file.read_to_end(&mut tail).expect("its end");
        tail.windows(END.len()).any(|window| window == END)
    }
}

/// The frames of a recording that match a display filter, one line each.
pub fn frames(file: &str, filter: &str) -> Vec<String> {
    let checks = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"];
    // Payload is plain data: tshark would otherwise guess protocols from ports.
    let text = ["-d", "tcp.port==1-65535,data"];
    let words = [&["tshark", "-n", "-r", file, "-Y", filter][..], &checks, &text].concat();
    output(&words).lines().map(str::to_owned).collect()
}

/// The frames with remarks of tshark's analysis, and malformed ones.
pub fn complaints(file: &str) -> Vec<String> {
    // Linux writes a checksum of zero as 0xffff, which is correct for UDP only, but has the same sum.
    let mangled = format!("tcp.checksum == 0xffff && (ip.src == {KERNEL_V4} || ipv6.src == {KERNEL_V6})");
    let sums = format!("(tcp.checksum.status == 0 && !({mangled})) || ip.checksum.status == 0");
    frames(file, &format!("{} || {sums} || _ws.malformed", analysis()))
}

/// The frames with remarks of the analysis, except those that match `excused`; their checksums are not finished.
pub fn stumbles(file: &str, excused: &str) -> Vec<String> {
    frames(file, &format!("({} || _ws.malformed) && !({excused})", analysis()))
}

/// Window updates and keep-alives are not faults, nor is a full or closed window, when a writer is faster than its
/// reader.
fn analysis() -> String {
    const HARMLESS: [&str; 7] = [
        "window_update",
        "keep_alive",
        "keep_alive_ack",
        "window_full",
        "zero_window",
        "zero_window_probe",
        "zero_window_probe_ack",
    ];
    // The kernel decides which ports its clients reuse.
    let again = format!("(tcp.analysis.reused_ports && (ip.src == {KERNEL_V4} || ipv6.src == {KERNEL_V6}))");
    let harmless = HARMLESS.iter().map(|flag| format!("tcp.analysis.{flag}"));
    let harmless: Vec<String> = harmless.chain([again]).collect();
    format!("(tcp.analysis.flags && !({}))", harmless.join(" || "))
}
