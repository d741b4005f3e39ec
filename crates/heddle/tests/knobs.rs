//! Parameters by the names of Linux's sysctls: when a stack is built, from a directory, and while it runs.

mod world;

use std::net::SocketAddr;

use every_arch::every_arch;
use heddle::config::Profile;
use heddle::{Plan, Readiness, Stack, TcpListener, TcpStream, mem};
use world::World;

/// A connection from `b` to a port of `a`; its client's end.
fn connect(world: &mut World, listener: &TcpListener) -> TcpStream {
    let remote: SocketAddr = listener.local_addr();
    let client = TcpStream::start_connect(&world.b, None, remote).expect("the open starts");
    world.settle();
    assert!(client.readiness().contains(Readiness::CONNECTED));
    client
}

#[every_arch]
fn a_knob_turned_while_the_stack_runs_shows_in_later_connections(plan: Plan) {
    let mut world = World::new(plan);
    let listener = TcpListener::bind(&world.a, "10.0.0.1:80").expect("the port is free");
    let before = connect(&mut world, &listener);
    world.b.set_knob("net.ipv4.tcp_sack", "0").expect("a knob");
    world.b.set_knob("tcp_rmem", "4096 8192 8192").expect("a knob");
    let after = connect(&mut world, &listener);
    let seen = |stream: &TcpStream| stream.status().map(|status| (status.sack, status.receive_buffer));
    assert_eq!(seen(&before), Some((true, 65_536)), "what was agreed stays");
    assert_eq!(seen(&after), Some((false, 4096)));
    assert_eq!(world.b.knob("tcp_rmem").as_deref(), Ok("4096\t8192\t8192"));
    assert_eq!(world.a.knob("tcp_sack").as_deref(), Ok("1"), "the other stack has its own");
    let refused = world.b.set_knob("tcp_sack", "7").expect_err("out of range");
    assert_eq!(refused.to_string(), "tcp_sack cannot be `7`: give a whole number from 0 to 1");
    assert_eq!(world.b.knob("tcp_sack").as_deref(), Ok("0"));
}

/// Builds a stack, and drops it, or says why not.
fn build(change: impl FnOnce(heddle::Builder) -> heddle::Builder) -> Result<Stack, String> {
    let (device, _other) = mem::pair(mem::MemConfig::default());
    let builder = change(Stack::builder().device(device, ["10.0.0.1/24"]));
    builder.build_polled().map(|(stack, _)| stack).map_err(|error| error.to_string())
}

#[test]
fn a_builder_takes_a_profile_and_knobs_and_reports_the_first_wrong_one() {
    let stack = build(|builder| builder.profile(Profile::FreeBsd).knob("tcp_syn_retries", "2")).expect("it builds");
    assert_eq!(stack.knob("tcp_rto_min_us").as_deref(), Ok("30000"));
    assert_eq!(stack.knob("tcp_syn_retries").as_deref(), Ok("2"));
    let wrong = build(|builder| builder.knob("tcp_ecm", "1").assign("tcp_sack=9")).err();
    let said = "there is no knob `tcp_ecm`: did you mean `tcp_ecn`? `heddle knobs` lists them all";
    assert_eq!(wrong.as_deref(), Some(said));
}

#[test]
fn a_builder_takes_routes_and_reports_the_first_wrong_one() {
    let stack = build(|builder| builder.route("192.0.2.0/24 via 10.0.0.2 mtu 1280")).expect("it builds");
    let mss = |address: &str| stack.raw().shared().route_mss(address.parse().expect("one"), observe::Time::ZERO);
    assert_eq!((mss("192.0.2.7"), mss("10.0.0.7")), (1240, 1460));
    stack.set_route(0, "10.0.0.0/24 mtu lock 1000").expect("a route");
    assert_eq!((mss("192.0.2.7"), mss("10.0.0.7")), (1240, 960));
    let said = stack.set_route(1, "10.0.0.0/24").expect_err("one device").to_string();
    assert_eq!(said, "there is no device 1: give a number from 0 to 0");
    assert_eq!(stack.remove_route("10.0.0.0/24").map_err(|error| error.to_string()), Ok(()));
    let said = stack.remove_route("10.0.0.0/24").expect_err("it is gone").to_string();
    assert_eq!(said, "there is no route 10.0.0.0/24 that could be taken away");
    let said = stack.remove_route("10.0.0.0/24 mtu 1000").expect_err("no name").to_string();
    assert!(said.contains("by its network"), "{said}");
    let wrong = build(|builder| builder.route("192.0.2.0/24 mtu 12").route("speed 9")).err().unwrap_or_default();
    assert!(wrong.contains("`mtu`") && wrong.contains("from 68 to 65535"), "{wrong}");
    let early = Stack::builder().route("default via 10.0.0.2").build_polled().map(|_| ());
    assert!(early.expect_err("no device").to_string().contains("add the device before it"));
}

#[every_arch]
fn a_route_bounds_segments_and_begins_windows(plan: Plan) {
    let mut world = World::new(plan);
    let listener = TcpListener::bind(&world.a, "10.0.0.1:80").expect("the port is free");
    world.a.set_route(0, "10.0.0.0/24 advmss 800").expect("a route");
    world.b.set_route(0, "10.0.0.0/24 mtu 1000 initcwnd 4").expect("a route");
    let client = connect(&mut world, &listener).status().expect("alive");
    let (server, _) = listener.accept().expect("it is established");
    let server = server.status().expect("alive");
    assert_eq!((client.mss, client.announced_mss, client.cwnd), (788, 960, 4 * 788));
    assert_eq!((server.mss, server.announced_mss, server.cwnd), (948, 800, 10 * 948));
}

#[test]
fn a_directory_sets_what_it_names() {
    let directory = std::env::temp_dir().join(format!("heddle-knobs-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).expect("a file");
    write("tcp_rmem", "4096\t131072\t15728640\n");
    write("tcp_timestamps", "0\n");
    write("ip_forward", "no knob of TCP\n");
    let stack = build(|builder| builder.knobs_from(&directory)).expect("it builds");
    assert_eq!(stack.knob("tcp_rmem").as_deref(), Ok("4096\t131072\t15728640"));
    assert_eq!(stack.knob("tcp_timestamps").as_deref(), Ok("0"));
    assert_eq!(stack.knob("tcp_sack").as_deref(), Ok("1"), "no file, no change");
    write("tcp_sack", "perhaps\n");
    let wrong = build(|builder| builder.knobs_from(&directory)).err().unwrap_or_default();
    assert!(wrong.ends_with("tcp_sack: tcp_sack cannot be `perhaps`: give a whole number from 0 to 1"), "{wrong}");
    std::fs::remove_file(directory.join("tcp_sack")).expect("it can be removed");
    std::fs::create_dir(directory.join("tcp_sack")).expect("a directory");
    let wrong = build(|builder| builder.knobs_from(&directory)).err().unwrap_or_default();
    assert!(
        wrong.contains("tcp_sack") && wrong.ends_with("make it a text file with the knob's value, or remove it"),
        "{wrong}"
    );
    let upper = directory.join("tcp_sack");
    let wrong = build(|builder| builder.knobs_from(&upper)).err().unwrap_or_default();
    assert!(wrong.starts_with("no file in ") && wrong.contains("name another directory"), "{wrong}");
    std::fs::remove_dir_all(&directory).expect("it can be removed");
    let missing = build(|builder| builder.knobs_from(&directory)).err().unwrap_or_default();
    assert!(missing.starts_with("cannot read ") && missing.contains("name a directory"), "{missing}");
}

#[every_arch]
fn a_transfer_goes_through_when_all_memory_is_short(plan: Plan) {
    use observe::Pressure;
    use std::io::{Read, Write};
    let mut world = World::new(plan);
    let listener = TcpListener::bind(&world.a, "10.0.0.1:80").expect("the port is free");
    for stack in [&world.a, &world.b] {
        stack.set_knob("tcp_rmem", "4096 65536 1048576").expect("a knob");
        stack.set_knob("tcp_mem", "1 1 1").expect("a knob");
    }
    let mut client = connect(&mut world, &listener);
    let (mut server, _) = listener.accept().expect("it is established");
    server.set_nonblocking(true);
    world.pass(std::time::Duration::from_millis(2));
    assert_eq!(world.a.raw().shared().tcp().gauges.pressure(), Pressure::Severe);
    let (mut sent, mut received) = (0, 0);
    let mut buffer = vec![0; 65_536];
    while received < 500_000 {
        let left = (500_000 - sent).min(buffer.len());
        sent += client.write(&buffer[..left]).unwrap_or(0);
        world.pass(std::time::Duration::from_millis(1));
        received += server.read(&mut buffer).unwrap_or(0);
    }
    assert_eq!(server.receive_buffer().expect("alive"), 2048, "the least");
    world.a.set_knob("tcp_mem", "268435456 268435456 268435456").expect("a knob");
    world.pass(std::time::Duration::from_millis(2));
    assert_eq!(world.a.knob("tcp_mem").as_deref(), Ok("268435456\t268435456\t268435456"));
}
