//! What crosses an interface, as tcpdump records it and tshark judges it.

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
    /// Starts to record the TCP frames of `interface` to `file`, whole as long as they are no super-segments.
    pub fn start(interface: &str, file: &str) -> Capture {
        let what = format!("-i {interface} -w {file} 'tcp or udp port {DISCARD}'");
        let words = format!("exec tcpdump -n -U --immediate-mode -B 100000 -s 2000 {what} 2>&1");
        let tcpdump = Process::start(&["sh", "-c", &words]);
        tcpdump.line_with("listening on");
        Capture { tcpdump, file: file.to_owned() }
    }

    /// Ends the recording; its file. Not one frame may have escaped it.
    pub fn stop(self) -> String {
        // When told to end tcpdump leaves what it has not looked at yet: so it must have seen the end before.
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

    /// Whether the end stands at the file's end, or at least shortly before.
    fn ends(&self) -> bool {
        let mut tail = Vec::new();
        let mut file = File::open(&self.file).expect("the recording");
        let length = file.metadata().expect("its length").len();
        file.seek(SeekFrom::Start(length.saturating_sub(10_000))).expect("a place in it");
        file.read_to_end(&mut tail).expect("its end");
        tail.windows(END.len()).any(|window| window == END)
    }
}

/// The frames of a recording that a display filter shows, one line each.
pub fn frames(file: &str, filter: &str) -> Vec<String> {
    let checks = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"];
    // Text is text: what more it means is guessed from ports, and not always well.
    let text = ["-d", "tcp.port==1-65535,data"];
    let words = [&["tshark", "-n", "-r", file, "-Y", filter][..], &checks, &text].concat();
    output(&words).lines().map(str::to_owned).collect()
}

/// The frames at which tshark's analysis stumbles, and those that are wrong in themselves.
pub fn complaints(file: &str) -> Vec<String> {
    // Linux writes a checksum of zero as 0xffff, as is right for UDP only; it sums up all the same.
    let mangled = format!("tcp.checksum == 0xffff && (ip.src == {KERNEL_V4} || ipv6.src == {KERNEL_V6})");
    let sums = format!("(tcp.checksum.status == 0 && !({mangled})) || ip.checksum.status == 0");
    frames(file, &format!("{} || {sums} || _ws.malformed", analysis()))
}

/// The frames at which the analysis stumbles, but for those that `excused` shows; nobody has finished their checksums.
pub fn stumbles(file: &str, excused: &str) -> Vec<String> {
    frames(file, &format!("({} || _ws.malformed) && !({excused})", analysis()))
}

/// Window updates and keep-alives are no fault, and neither is it when a writer is faster than its reader, which is
/// what a full or closed window says.
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
    // Which ports its clients take again the kernel decides.
    let again = format!("(tcp.analysis.reused_ports && (ip.src == {KERNEL_V4} || ipv6.src == {KERNEL_V6}))");
    let harmless = HARMLESS.iter().map(|flag| format!("tcp.analysis.{flag}"));
    let harmless: Vec<String> = harmless.chain([again]).collect();
    format!("(tcp.analysis.flags && !({}))", harmless.join(" || "))
}
