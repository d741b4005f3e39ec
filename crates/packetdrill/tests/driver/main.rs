//! The plug-in is used as by packetdrill: loaded, its table filled, called from the script's thread and from one for
//! calls that block, with hand-made packets.

#[path = "interface.rs"]
mod interface;
#[path = "packet.rs"]
mod packet;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use interface::{Run, library};
use packet::{ACK, FIN, PSH, RST, SYN, Segment};

const MS: i64 = 1000;

/// Runs `call` on a separate thread, and returns when that thread sleeps in it, by the same file that packetdrill
/// reads. A test that fails meanwhile does not wait for the thread.
fn blocked<T: Send + 'static>(run: &Arc<Run>, call: impl FnOnce(&Run) -> T + Send + 'static) -> JoinHandle<T> {
    let (tx, rx) = mpsc::channel();
    let run = run.clone();
    let handle = thread::spawn(move || {
        // SAFETY: the call takes no arguments.
        tx.send(unsafe { libc::gettid() }).expect("the test listens");
        call(&run)
    });
    let stat = format!("/proc/self/task/{}/stat", rx.recv().expect("a thread"));
    // Before the call it may sleep for a moment, for the allocator's lock: so it must be seen asleep repeatedly.
    let mut looks = 0;
    while looks < 500 {
        let data = fs::read_to_string(&stat).expect("the thread lives while its call blocks");
        let sleeps = data.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'));
        looks = if sleeps { looks + 1 } else { 0 };
        thread::yield_now();
    }
    handle
}

/// A listener whose peer has sent its SYN; returns the SYN-ACK.
fn half_open(run: &Run) -> (i32, Segment) {
    let listener = run.socket();
    run.set_option(listener, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).expect("SO_REUSEADDR");
    run.bind(listener).expect("bind");
    run.listen(listener).expect("listen");
    run.inject(SYN, 0, 0, &[]);
    let (_, answer) = run.expect();
    assert_eq!((answer.flags, answer.ack), (SYN | ACK, 1));
    (listener, answer)
}

/// The descriptor of a connection that was accepted, and the stack's next sequence number.
fn accepted(run: &Run) -> (i32, u32) {
    let (listener, answer) = half_open(run);
    let next = answer.seq.wrapping_add(1);
    run.inject(ACK, 1, next, &[]);
    (run.accept(listener).expect("accept").0, next)
}

fn session(arch: &str) {
    let run = Run::begin(&format!("arch={arch},local=192.168.0.1/16,mtu=1500"));
    let began = run.now();
    let (listener, answer) = half_open(&run);
    let next = answer.seq.wrapping_add(1);
    let (fd, peer) = {
        let accept = blocked(&run, move |run| (run.accept(listener), run.now()));
        run.usleep(Duration::from_millis(100));
        run.inject(ACK, 1, next, &[]);
        // The thread may wake at any time: its clock reading is the end of its call.
        run.usleep(Duration::from_millis(7));
        let (accepted, at) = accept.join().expect("accept");
        assert!((100 * MS..101 * MS).contains(&(at - began)), "{arch}: accept was over after {} us", at - began);
        accepted.expect("accept")
    };
    assert_eq!(peer, run.peer_bytes());

    let data = {
        let read = blocked(&run, move |run| (run.read(fd, 1000), run.now()));
        run.usleep(Duration::from_millis(50));
        run.inject(ACK | PSH, 1, next, b"hello");
        let (data, at) = read.join().expect("read");
        assert!((157 * MS..158 * MS).contains(&(at - began)), "{arch}: read was over after {} us", at - began);
        data.expect("read")
    };
    assert_eq!(data, b"hello");
    let (_, ack) = run.expect();
    assert_eq!((ack.flags, ack.ack), (ACK, 6));
    assert_eq!(run.write(fd, &data), Ok(5));
    let (at, echo) = run.expect();
    assert_eq!((echo.flags, echo.seq, &echo.data[..]), (ACK | PSH, next, &b"hello"[..]));
    // Not acknowledged: it is retransmitted after the retransmission time-out, 200 ms plus the round trip.
    let (again, echo) = run.expect();
    assert_eq!(echo.seq, next);
    assert!((200 * MS..500 * MS).contains(&(again - at)), "{arch}: sent again after {} us", again - at);
    assert!(run.now() >= again, "the packet's time is on the clock that the script reads");
    run.inject(ACK, 6, next.wrapping_add(5), &[]);

    run.close(fd).expect("close");
    assert_eq!(run.close(fd), Err(libc::EBADF));
    let (_, fin) = run.expect();
    assert_eq!((fin.flags, fin.seq), (FIN | ACK, next.wrapping_add(5)));
    run.inject(FIN | ACK, 6, next.wrapping_add(6), &[]);
    let (_, last) = run.expect();
    assert_eq!((last.flags, last.ack), (ACK, 7));
    run.close(listener).expect("close");
    // As at the end of a script; after it nothing can send.
    run.inject(RST | ACK, 7, next.wrapping_add(6), &[]);
    let before = run.now();
    assert!(run.receive().is_none());
    assert!((199_000 * MS..201_000 * MS).contains(&(run.now() - before)), "gave up after {}", run.now() - before);
    run.end();
}

#[test]
fn a_session_is_the_same_under_every_architecture() {
    for arch in stack::ALL_ARCHITECTURES {
        session(arch);
    }
}

#[test]
fn a_connect_that_blocks_ends_when_the_peer_answers() {
    let run = Run::begin("");
    let fd = run.socket();
    run.bind(fd).expect("bind");
    let before = run.now();
    let connect = blocked(&run, move |run| (run.connect(fd), run.now()));
    let (began, syn) = run.expect();
    assert_eq!(syn.flags, SYN);
    assert!(began - before <= MS, "the SYN went out {} us after the call", began - before);
    run.usleep(Duration::from_millis(30));
    run.inject(SYN | ACK, 0, syn.seq.wrapping_add(1), &[]);
    let (at, ack) = run.expect();
    assert_eq!((ack.flags, ack.ack), (ACK, 1));
    let (connected, over) = connect.join().expect("connect");
    assert_eq!(connected, Ok(0));
    assert_eq!(over, at);
    assert!(at - began >= 30 * MS);
    run.end();
}

/// For a call that may block, packetdrill's waiting happens on the calling thread while the other sleeps.
#[test]
fn the_thread_for_calls_that_block_moves_the_clock_too() {
    for arch in stack::ALL_ARCHITECTURES {
        let run = Run::begin(&format!("arch={arch}"));
        let (fd, next) = accepted(&run);
        run.write(fd, b"x").expect("write");
        let (sent, _) = run.expect();
        let due = run.now() + 700 * MS;
        thread::scope(|scope| {
            scope.spawn(|| {
                run.usleep(Duration::from_micros(699_900));
                while run.now() < due {}
            });
        });
        let read = blocked(&run, move |run| (run.read(fd, 10), run.now()));
        run.usleep(Duration::from_millis(50));
        run.inject(ACK | PSH, 1, next, b"y");
        let (data, over) = read.join().expect("read");
        assert_eq!(data, Ok(b"y".to_vec()), "{arch}");
        assert!((due + 50 * MS..due + 51 * MS).contains(&over), "{arch}: over at {over}, due at {due}");
        // Meanwhile timers ran when they were due.
        let (at, again) = run.expect();
        assert_eq!((again.seq, &again.data[..]), (next, &b"x"[..]));
        assert!((sent + 200 * MS..sent + 300 * MS).contains(&at), "{arch}: sent at {sent}, again at {at}");
        run.end();
    }
}

#[test]
fn descriptors_are_the_kernels_and_calls_fail_as_linux_fails_them() {
    let run = Run::begin("arch=msgp:6");
    let (fd, next) = accepted(&run);
    // SAFETY: the call takes numbers only.
    assert!(unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0, "{fd} is not one of the kernel's");
    assert_eq!(run.fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK.into()), Ok(0));
    assert_eq!(run.fcntl(fd, libc::F_GETFL, 0), Ok((libc::O_RDWR | libc::O_NONBLOCK).into()));
    assert_eq!(run.read(fd, 10), Err(libc::EAGAIN));
    assert_eq!(run.bind(fd), Err(libc::EINVAL));
    assert_eq!(run.listen(9999), Err(libc::EBADF));
    run.set_option(fd, libc::IPPROTO_TCP, 36, 1).expect("TCP_INQ");
    run.inject(ACK | PSH, 1, next, b"abcdefgh");
    assert_eq!(run.ioctl(fd, libc::FIONREAD), Ok(8));
    assert_eq!(run.receive_message(fd, [2, 3]), Ok((b"abcde".to_vec(), Some(3))));
    assert_eq!(run.write_vector(fd, &[b"xy", b"", b"z"]), Ok(3));
    assert_eq!(run.ioctl(fd, libc::TIOCOUTQ), Ok(3));
    assert_eq!(run.option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, 512).expect("TCP_INFO").len(), 280);
    let name = run.option(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, 16).expect("TCP_CONGESTION");
    assert_eq!(name, b"cubic");
    let [reader, writer] = run.pipe();
    assert_eq!(run.splice(fd, writer, 100), Ok(3));
    assert_eq!(run.read(reader, 10).expect("read"), b"fgh");
    run.end();
}

/// A program that peeks until a whole header has arrived.
#[test]
fn a_peek_shows_all_that_has_come_so_far() {
    for arch in stack::ALL_ARCHITECTURES {
        let run = Run::begin(&format!("arch={arch}"));
        let (fd, next) = accepted(&run);
        run.inject(ACK | PSH, 1, next, b"abcd");
        assert_eq!(run.recv(fd, 20, libc::MSG_PEEK), Ok(b"abcd".to_vec()), "{arch}");
        run.inject(ACK | PSH, 5, next, b"efgh");
        assert_eq!(run.recv(fd, 20, libc::MSG_PEEK), Ok(b"abcdefgh".to_vec()), "{arch}");
        assert_eq!(run.read(fd, 2), Ok(b"ab".to_vec()), "{arch}");
        run.inject(ACK | PSH, 9, next, b"ijkl");
        assert_eq!(run.recv(fd, 20, libc::MSG_PEEK), Ok(b"cdefghijkl".to_vec()), "{arch}");
        assert_eq!(run.read(fd, 20), Ok(b"cdefghijkl".to_vec()), "{arch}");
        run.end();
    }
}

#[test]
fn what_became_of_bytes_is_told_by_the_error_queue() {
    let run = Run::begin("arch=giant");
    let (fd, next) = accepted(&run);
    let asked = libc::SOF_TIMESTAMPING_TX_ACK | libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_OPT_ID;
    run.set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, asked as i32).expect("SO_TIMESTAMPING");
    assert_eq!(run.receive_report(fd), Err(libc::EAGAIN));
    assert_eq!(run.write(fd, b"abc"), Ok(3));
    run.expect();
    run.usleep(Duration::from_millis(20));
    run.inject(ACK, 1, next.wrapping_add(3), &[]);
    let now = run.now();
    let (flags, controls) = run.receive_report(fd).expect("a report");
    assert_eq!(flags, libc::MSG_ERRQUEUE | libc::MSG_TRUNC);
    let [(level, kind, stamps), (ip, received, error)] = &controls[..] else { panic!("{controls:?}") };
    assert_eq!((*level, *kind), (libc::SOL_SOCKET, libc::SO_TIMESTAMPING));
    let number = |at: usize| i64::from_ne_bytes(stamps[at..at + 8].try_into().expect("eight bytes"));
    let micros = number(0) * 1_000_000 + number(8) / 1000;
    assert!((0..MS).contains(&(now - micros)), "stamped {micros} at {now}");
    assert_eq!((*ip, *received), (libc::IPPROTO_IP, libc::IP_RECVERR));
    // ENOMSG from the timestamps, an acknowledgement, of the third byte.
    assert_eq!(error[..4], libc::ENOMSG.to_ne_bytes());
    assert_eq!((error[4], &error[8..12], &error[12..16]), (4, &2_u32.to_ne_bytes()[..], &2_u32.to_ne_bytes()[..]));
    run.end();
}

#[test]
fn time_passes_while_the_scripts_own_thread_waits() {
    let run = Run::begin("arch=squeue:process");
    let (fd, next) = accepted(&run);
    let epoll = run.epoll(fd, (libc::EPOLLIN | libc::EPOLLET) as u32, 77);
    let before = run.now();
    assert_eq!(run.poll(fd, libc::POLLIN, 250), Ok((0, 0)));
    assert_eq!(run.epoll_wait(epoll, 250), []);
    let took = run.now() - before;
    assert!((500 * MS..501 * MS).contains(&took), "two time-outs of 250 ms took {took} us");
    run.inject(ACK | PSH, 1, next, b"x");
    assert_eq!(run.poll(fd, libc::POLLIN, 0), Ok((1, libc::POLLIN)));
    assert_eq!(run.epoll_wait(epoll, 0), [(libc::EPOLLIN as u32, 77)]);
    assert_eq!(run.epoll_wait(epoll, 0), []);
    run.end();
}

/// Whether the option `kind` is among `options`.
fn has_option(mut options: &[u8], kind: u8) -> bool {
    while let Some(&first) = options.first() {
        if first == kind {
            return true;
        }
        let len = if first < 2 { 1 } else { usize::from(options[1]) };
        options = &options[len..];
    }
    false
}

const SACK_PERMITTED: u8 = 4;

fn directory(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&path).expect("a directory");
    path
}

#[test]
fn knobs_are_files_that_are_read_while_the_script_runs() {
    let path = directory("sysctls");
    fs::write(path.join("tcp_sack"), "0\n").expect("a file");
    let run = Run::begin(&format!("sysctls={}", path.display()));
    let (_, answer) = half_open(&run);
    assert!(!has_option(&answer.options, SACK_PERMITTED), "{:?}", answer.options);
    fs::write(path.join("tcp_sack"), "1\n").expect("a file");
    let segment = Segment { ports: (51_001, 8080), flags: SYN, options: vec![2, 4, 5, 0xb4, 4, 2, 1, 1], ..answer };
    run.inject_segment(&Segment { data: Vec::new(), ..segment });
    let answer = loop {
        let (_, answer) = run.expect();
        if answer.ports.1 == 51_001 {
            break answer;
        }
    };
    assert!(has_option(&answer.options, SACK_PERMITTED), "{:?}", answer.options);
    run.end();
}

#[test]
fn segments_over_ipv6_are_as_large_as_over_ipv4() {
    let run = Run::begin("arch=up,local=fd3d:a0b:17d6::1,profile=linux");
    let (_, answer) = half_open(&run);
    assert_eq!(answer.options[..4], [2, 4, 0x05, 0xb4], "an MSS of 1460");
    run.end();
}

/// The body of the process in which the library is preloaded.
fn preloaded() {
    let run = Run::begin("arch=connp-l:4");
    let (fd, next) = accepted(&run);
    let ask = |level, name, room: usize| {
        let mut value = vec![0_u8; room];
        let mut len = room as u32;
        // SAFETY: the buffer has the given length.
        let result = unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &mut len) };
        assert_eq!(result, 0, "getsockopt({level}, {name})");
        value.truncate(len as usize);
        value
    };
    let info = ask(libc::IPPROTO_TCP, libc::TCP_INFO, 512);
    assert_eq!(info.len(), 280);
    let tcpi_snd_cwnd = u32::from_ne_bytes(info[80..84].try_into().expect("four bytes"));
    assert_eq!(tcpi_snd_cwnd, 10);
    assert_eq!(ask(libc::IPPROTO_TCP, libc::TCP_CC_INFO, 64).len(), 0);
    assert_eq!(ask(libc::SOL_SOCKET, libc::SO_MEMINFO, 36).len(), 36);

    let path = directory("preload").join("file");
    fs::write(&path, b"0123456789").expect("a file");
    let file = fs::File::open(&path).expect("a file");
    let mut offset = 4;
    // SAFETY: both descriptors are open, and the offset is a number.
    let sent = unsafe { libc::sendfile(fd, std::os::fd::AsRawFd::as_raw_fd(&file), &mut offset, 100) };
    assert_eq!((sent, offset), (6, 10));
    assert_eq!(run.expect().1.data, b"456789");
    run.inject(ACK, 1, next.wrapping_add(6), &[]);
    drop(file);

    // SAFETY: the descriptor has no other owner.
    assert_eq!(unsafe { libc::close(fd) }, 0);
    assert_eq!(run.expect().1.flags, FIN | ACK);
    // SAFETY: the kernel refuses a closed descriptor.
    assert_eq!(unsafe { libc::close(fd) }, -1);
    run.end();
}

const CHILD: &str = "HEDDLE_PACKETDRILL_CHILD";

/// Calls of packetdrill to the C library, as for the values in `%{ }%`, reach the stack if the library was preloaded.
#[test]
fn the_congestion_window_is_told_through_the_preloaded_symbol() {
    if std::env::var_os(CHILD).is_some() {
        return preloaded();
    }
    let child = Command::new(std::env::current_exe().expect("the test's own path"))
        .args(["--exact", "the_congestion_window_is_told_through_the_preloaded_symbol", "--nocapture"])
        .env(CHILD, "1")
        .env("LD_PRELOAD", library())
        .output()
        .expect("the test can be run again");
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}{}", String::from_utf8_lossy(&child.stderr));
    assert!(said.contains("1 passed"), "{said}");
}
