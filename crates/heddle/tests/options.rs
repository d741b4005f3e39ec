//! Socket options, `TCP_INFO`, urgent data and queue lengths, in virtual time on one thread.

mod world;

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use every_arch::every_arch;
use heddle::config::{ConnectionOptions, SendAccounting};
use heddle::{Architecture, Connect, Readiness, TcpInfo, TcpListener, TcpStream};
use observe::Counter;
use world::World;

/// A client's and a server's end, non-blocking.
fn connect(world: &mut World) -> (TcpStream, TcpStream) {
    let server: SocketAddr = "10.0.0.1:80".parse().expect("an address");
    let listener = TcpListener::bind(&world.a, server).expect("the port is free");
    listener.set_nonblocking(true).unwrap();
    let client = Connect::new().start(&world.b, server).expect("the open starts");
    world.settle();
    let (accepted, _) = listener.accept().expect("it is established");
    accepted.set_nonblocking(true).unwrap();
    (client, accepted)
}

fn read(mut stream: &TcpStream) -> Result<Vec<u8>, ErrorKind> {
    let mut buffer = vec![0; 100_000];
    let count = stream.read(&mut buffer).map_err(|error| error.kind())?;
    buffer.truncate(count);
    Ok(buffer)
}

fn info(stream: &TcpStream) -> TcpInfo {
    stream.info().expect("the connection lives")
}

#[every_arch]
fn what_is_set_is_read_back(arch: Architecture) {
    let mut world = World::new(arch);
    let (client, _server) = connect(&mut world);
    client.set_cork(true).expect("set");
    client.set_quick_ack(false).expect("set");
    client.set_keeps_alive(true).expect("set");
    client.set_window_clamp(5000).expect("set");
    client.set_syn_retries(3).expect("set");
    client.set_not_sent_low_water(7000).expect("set");
    client.set_receive_low_water(10).expect("set");
    client.set_max_pacing_rate(1_000_000).expect("set");
    client.set_user_timeout(Some(Duration::from_secs(9))).expect("set");
    client.set_fin_wait_2(Some(Duration::from_secs(3))).expect("set");
    client.set_max_segment(500).expect("set");
    client.set_linger(Some(Duration::from_secs(2))).expect("set");
    let options = client.options().expect("the connection lives");
    assert!(options.cork && !options.quick_ack && options.keeps_alive && !options.no_delay);
    assert_eq!((options.window_clamp, options.syn_retries, options.max_segment), (5000, 3, 500));
    assert_eq!((options.not_sent_low_water, options.receive_low_water), (7000, 10));
    assert_eq!(client.max_pacing_rate().expect("alive"), 1_000_000);
    assert_eq!(client.user_timeout().expect("alive"), Some(Duration::from_secs(9)));
    assert_eq!((options.fin_wait_2, options.linger), (Duration::from_secs(3), Some(Duration::from_secs(2))));
    for wrong in [client.set_syn_retries(0), client.set_syn_retries(128), client.set_send_buffer(0)] {
        assert_eq!(wrong.expect_err("out of range").kind(), ErrorKind::InvalidInput);
    }
}

#[every_arch]
fn both_ends_agree_on_the_longer_user_timeout(arch: Architecture) {
    let mut world = World::new(arch);
    let server: SocketAddr = "10.0.0.1:80".parse().expect("an address");
    let telling = |seconds| ConnectionOptions {
        announced_user_timeout: Some(Duration::from_secs(seconds)),
        ..ConnectionOptions::default()
    };
    let listener = TcpListener::bind_with(&world.a, server, 8, telling(200)).expect("the port is free");
    listener.set_nonblocking(true).unwrap();
    let client = Connect::new().options(telling(500)).start(&world.b, server).expect("the open starts");
    world.settle();
    let (accepted, _) = listener.accept().expect("it is established");
    for (end, peer) in [(&client, 200), (&accepted, 500)] {
        assert_eq!(end.user_timeout().expect("alive"), Some(Duration::from_secs(500)));
        assert_eq!(end.peer_user_timeout().expect("alive"), Some(Duration::from_secs(peer)));
    }
    client.set_announced_user_timeout(Some(Duration::from_secs(700))).expect("set");
    world.settle();
    assert_eq!(accepted.user_timeout().expect("alive"), Some(Duration::from_secs(700)));
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//= type=test
//# where MMS_R is the maximum size for a transport-layer message that can be received (and reassembled at the IP layer)
//# (MUST-67).
#[every_arch]
fn tcp_info_counts_what_went_to_and_fro(arch: Architecture) {
    let mut world = World::with(arch, |config| config.measure_limits = true, Default::default());
    let (mut client, server) = connect(&mut world);
    client.write_all(&[7; 4000]).expect("there is room");
    world.settle();
    assert_eq!(server.unread().expect("alive"), 4000);
    assert_eq!(read(&server).expect("text").len(), 4000);
    world.pass(Duration::from_millis(300));
    let (ours, theirs) = (info(&client), info(&server));
    assert_eq!((ours.state, ours.options & 7, ours.wscale), (1, 7, 0x77));
    assert_eq!((ours.bytes_acked, ours.bytes_sent, ours.notsent_bytes, ours.unacked), (4000, 4000, 0, 0));
    assert_eq!((ours.data_segs_out, theirs.data_segs_in), (3, 3));
    assert_eq!((theirs.bytes_received, theirs.data_segs_out), (4000, 0));
    // Timestamps take twelve of the 1460 advertised bytes.
    assert_eq!((ours.snd_mss, ours.advmss + 12, ours.pmtu), (1448, 1460, 1500));
    assert!((290..=305).contains(&ours.last_data_sent), "{}", ours.last_data_sent);
    assert!((290..=305).contains(&theirs.last_data_recv), "{}", theirs.last_data_recv);
    assert!(ours.segs_in > 0 && ours.segs_out >= theirs.segs_in, "{ours:?}");
    assert!(ours.busy_time < 2000 && ours.rwnd_limited == 0, "{ours:?}");
}

#[every_arch]
fn a_closed_window_and_a_full_buffer_are_on_the_account(arch: Architecture) {
    let tune = |config: &mut heddle::config::Config| {
        config.measure_limits = true;
        config.receive_buffer = heddle::config::BufferSizes { min: 4096, initial: 8192, max: 8192 };
    };
    let mut world = World::with(arch, tune, Default::default());
    let (client, server) = connect(&mut world);
    client.set_send_buffer(20_000).expect("set");
    let written = (&client).write(&[1; 60_000]).expect("some of it");
    // Two segments, half of the peer's window, cost 1280 bytes more: five times that is more than 20 000, and at the
    // sixth time there was room for a segment, because earlier ones had left.
    assert_eq!(written, 11 * 1448);
    assert_eq!((&client).write(&[1; 1]).map_err(|error| error.kind()), Err(ErrorKind::WouldBlock));
    world.pass(Duration::from_secs(2));
    let limited = info(&client);
    assert!(limited.rwnd_limited > 1_900_000 && limited.busy_time >= limited.rwnd_limited, "{limited:?}");
    let closed = |stack: &heddle::Stack, counter| stack.stats().counters.get(counter);
    assert!(closed(&world.a, Counter::ZeroWindowsOut) >= 1 && closed(&world.b, Counter::ZeroWindowsIn) == 1);
    assert!(client.unsent().expect("alive") > 0);
    assert_eq!(client.unacknowledged().expect("alive"), written - server.unread().expect("alive"));
}

#[every_arch]
fn a_low_water_mark_holds_back_readiness(arch: Architecture) {
    let mut world = World::new(arch);
    let (mut client, server) = connect(&mut world);
    server.set_receive_low_water(100).expect("set");
    client.set_nodelay(true).expect("set");
    client.write_all(&[1; 99]).expect("there is room");
    world.settle();
    assert!(!server.readiness().contains(Readiness::READABLE));
    assert!(!server.status().expect("alive").ready.contains(Readiness::READABLE));
    client.write_all(&[1; 1]).expect("there is room");
    world.settle();
    assert!(server.readiness().contains(Readiness::READABLE));
    assert_eq!(read(&server).expect("text").len(), 100);
}

#[every_arch]
fn unsent_data_is_bounded_by_its_mark(arch: Architecture) {
    let exactly = |config: &mut heddle::config::Config| config.send_accounting = SendAccounting::Bytes;
    for (tune, beyond) in [(Some(exactly), 0), (None, 65_215)] {
        let tune = |config: &mut heddle::config::Config| tune.into_iter().for_each(|tune| tune(config));
        let mut world = World::with(arch, tune, Default::default());
        bounded_by_mark(&mut world, beyond);
    }
}

/// No more than 5000 bytes are unsent, plus `beyond` of a write that began below that.
fn bounded_by_mark(world: &mut World, beyond: usize) {
    let (mut client, server) = connect(world);
    client.set_not_sent_low_water(5000).expect("set");
    let mut total = 0;
    while let Ok(count) = client.write(&[3; 4000]) {
        total += count;
        assert!(client.unsent().expect("alive") <= 5000 + beyond);
    }
    assert!(client.unsent().expect("alive") >= 5000);
    assert!(total > 10_000, "the initial window left at once: {total}");
    world.settle();
    assert!(client.readiness().contains(Readiness::WRITABLE), "what waited has left");
    assert_eq!(read(&server).expect("text").len().min(1), 1);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
//= type=test
//# However, TCP implementations MUST still include support for the urgent mechanism (MUST-30).
#[every_arch]
fn urgent_data_stays_in_the_stream_and_a_read_stops_before_it(arch: Architecture) {
    let mut world = World::new(arch);
    let (mut client, server) = connect(&mut world);
    client.set_nodelay(true).expect("set");
    client.write_all(b"plain").expect("there is room");
    assert_eq!(client.send_urgent(b"now!").expect("there is room"), 4);
    client.write_all(b"after").expect("there is room");
    world.settle();
    assert!(server.readiness().contains(Readiness::URGENT));
    assert!(!server.at_mark().expect("alive"));
    assert_eq!(read(&server).expect("text"), b"plainnow");
    assert!(server.at_mark().expect("alive"));
    assert_eq!(read(&server).expect("text"), b"!after");
    assert!(!server.at_mark().expect("alive"));
}

#[every_arch]
fn an_error_is_told_once(arch: Architecture) {
    let mut world = World::new(arch);
    let refused = Connect::new().start(&world.b, "10.0.0.1:9");
    let refused = refused.expect("the open starts");
    world.settle();
    assert!(refused.readiness().contains(Readiness::ERROR));
    assert_eq!(refused.take_error().unwrap().map(|error| error.kind()), Some(ErrorKind::ConnectionRefused));
    assert!(refused.take_error().unwrap().is_none());
    assert!(!refused.readiness().contains(Readiness::ERROR));
}

#[every_arch]
fn paced_segments_leave_one_by_one(arch: Architecture) {
    let mut world = World::new(arch);
    let (client, server) = connect(&mut world);
    client.set_max_pacing_rate(145_000).expect("set");
    (&client).write_all(&[9; 14_480 * 2]).expect("there is room");
    world.settle();
    let burst = server.unread().expect("alive");
    assert!((14_480..=14_480 + 2 * 1448).contains(&burst), "the initial window is one burst: {burst}");
    world.pass(Duration::from_millis(50));
    let later = server.unread().expect("alive") - burst;
    assert!((4 * 1448..=6 * 1448).contains(&later), "a segment in 10 ms: {later}");
    world.pass(Duration::from_millis(100));
    assert_eq!(server.unread().expect("alive"), 2 * 14_480);
    assert_eq!(info(&client).max_pacing_rate, 145_000);
}

#[every_arch]
fn too_many_orphans_are_reset_and_too_many_time_waits_are_cut_short(arch: Architecture) {
    let tune = |config: &mut heddle::config::Config| {
        config.max_orphans = 1;
        config.max_time_wait = 1;
    };
    let mut world = World::with(arch, tune, Default::default());
    // Orphans: the data is never read, so that closed connections remain.
    let mut servers = Vec::new();
    for _ in 0..3 {
        let (client, server) = connect(&mut world);
        (&client).write_all(&[1; 200_000]).expect("there is room");
        world.settle();
        drop(client);
        world.settle();
        servers.push(server);
    }
    let count = |stack: &heddle::Stack, counter| stack.stats().counters.get(counter);
    assert_eq!(count(&world.b, Counter::OrphansReset), 2);
    drop(servers);
    world.settle();
    for _ in 0..3 {
        let (client, server) = connect(&mut world);
        drop(client);
        world.settle();
        drop(server);
        world.settle();
    }
    world.pass(Duration::from_millis(10));
    assert_eq!(count(&world.b, Counter::TimeWaitsCut), 2);
    assert_eq!(world.b.stats().connections, 1, "the first keeps its TIME-WAIT");
}

/// `tcp_tw_reuse`: a tuple in TIME-WAIT is unavailable, unless timestamps distinguish old segments.
#[every_arch]
fn an_active_open_takes_over_a_tuple_in_time_wait_where_it_may(arch: Architecture) {
    let server: SocketAddr = "10.0.0.1:80".parse().expect("an address");
    let local: SocketAddr = "10.0.0.2:7000".parse().expect("an address");
    for (reuse, timestamps, taken) in [(0, true, false), (1, false, false), (1, true, true)] {
        let tune = |config: &mut heddle::config::Config| {
            config.reuse_time_wait = reuse;
            config.timestamps = timestamps;
        };
        let mut world = World::with(arch, tune, Default::default());
        let listener = TcpListener::bind(&world.a, server).expect("the port is free");
        listener.set_nonblocking(true).unwrap();
        let open = |world: &World| Connect::new().local(local).start(&world.b, server);
        let client = open(&world).expect("the port is free");
        world.settle();
        let (accepted, _) = listener.accept().expect("it is established");
        (&client).write_all(b"one").expect("there is room");
        world.settle();
        assert_eq!(read(&accepted).expect("it has come"), b"one");
        drop(client);
        world.settle();
        drop(accepted);
        world.settle();
        assert!(open(&world).is_err(), "the clock has not moved");
        world.pass(Duration::from_millis(2500));
        let again = open(&world);
        assert_eq!(again.is_ok(), taken, "{reuse} {timestamps}");
        let Ok(again) = again else { continue };
        world.settle();
        let (accepted, _) = listener.accept().expect("it is established");
        accepted.set_nonblocking(true).unwrap();
        (&again).write_all(b"two").expect("there is room");
        world.settle();
        assert_eq!(read(&accepted).expect("it has come"), b"two");
        assert_eq!(world.b.stats().counters.get(Counter::TimeWaitReused), 1);
        assert_eq!((world.a.stats().connections, world.b.stats().connections), (1, 1));
    }
}
