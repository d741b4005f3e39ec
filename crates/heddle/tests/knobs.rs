//! Parameters by the names of Linux's sysctls: at construction, from a directory, and at run time.

mod world;

use std::net::SocketAddr;
use std::path::Path;

use every_arch::every_arch;
use heddle::config::Profile;
use heddle::error::{AddressError, KnobError, ParseCidrError, ParseRouteError};
use heddle::{
    Architecture, BuildError, Builder, Cidr, Connect, Interface, LockKind, Readiness, RouteError, RouteName, Stack,
    TcpListener, TcpStream, mem,
};
use world::World;

/// A connection from `b` to a port of `a`; its client's end.
fn connect(world: &mut World, listener: &TcpListener) -> TcpStream {
    let remote: SocketAddr = listener.local_addr().unwrap();
    let client = Connect::new().start(&world.b, remote).expect("the open starts");
    world.settle();
    assert!(client.readiness().contains(Readiness::CONNECTED));
    client
}

#[every_arch]
fn a_knob_turned_while_the_stack_runs_shows_in_later_connections(arch: Architecture) {
    let mut world = World::new(arch);
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

/// Builds a stack and drops it, or returns the error.
fn build(change: impl FnOnce(Builder) -> Builder) -> Result<Stack, BuildError> {
    let (device, _other) = mem::pair(mem::MemConfig::default());
    build_on(Interface::new(device).address("10.0.0.1/24").expect("an address"), change)
}

fn build_on(interface: Interface, change: impl FnOnce(Builder) -> Builder) -> Result<Stack, BuildError> {
    change(Stack::builder().interface(interface)).build_polled().map(|(stack, _)| stack)
}

#[test]
fn a_builder_takes_a_profile_and_knobs_and_reports_the_first_wrong_one() {
    let stack = build(|builder| builder.tcp(Profile::FreeBsd).knob("tcp_syn_retries", "2")).expect("it builds");
    assert_eq!(stack.knob("tcp_rto_min_us").as_deref(), Ok("30000"));
    assert_eq!(stack.knob("tcp_syn_retries").as_deref(), Ok("2"));
    let knobs_first = build(|builder| builder.knob("tcp_syn_retries", "2").tcp(Profile::FreeBsd)).expect("it builds");
    assert_eq!(knobs_first.knob("tcp_syn_retries").as_deref(), Ok("2"), "the order means nothing");
    let wrong = build(|builder| builder.knob("tcp_ecm", "1").assign("tcp_sack=9")).expect_err("no such knob");
    assert!(
        matches!(&wrong, BuildError::Knob(KnobError::Unknown { name, nearest: Some("tcp_ecn") }) if name == "tcp_ecm")
    );
    let said = "there is no knob `tcp_ecm`: did you mean `tcp_ecn`? `heddle knobs` lists them all";
    assert_eq!(wrong.to_string(), said);
}

#[test]
fn what_a_builder_cannot_use_is_an_error_that_can_be_matched() {
    let wrong = build(|builder| builder.architecture("connp-z")).expect_err("no such architecture");
    assert!(matches!(wrong, BuildError::Architecture(_)), "{wrong}");
    assert!(
        build(|builder| builder.architecture("connp-z").architecture(Architecture::default())).is_ok(),
        "the later one counts"
    );
    let unheard = build(|builder| builder.on_device_gone(|| ())).expect_err("nobody would call it");
    assert!(matches!(unheard, BuildError::DeviceGonePolled), "{unheard}");
    let null = build(|builder| builder.architecture("giant").lock(LockKind::Null)).expect_err("it excludes nobody");
    assert!(matches!(null, BuildError::NullLock(_)), "{null}");
    let (device, _other) = mem::pair(mem::MemConfig::default());
    let group = build_on(Interface::new(device).address("224.0.0.1/24").expect("a prefix"), |builder| builder);
    assert!(matches!(group, Err(BuildError::Address(_, AddressError::NotUnicast(_)))));
}

#[test]
fn an_interface_takes_values_and_texts_and_says_at_once_what_is_wrong() {
    let interface = || Interface::new(mem::pair(mem::MemConfig::default()).0);
    let wrong = interface().addresses(["10.0.0.1/24", "10.0.0.2"]).expect_err("no prefix");
    assert_eq!(wrong, ParseCidrError::Syntax("10.0.0.2".to_owned()));
    let wrong = interface().address("fd00::1/129").expect_err("a long prefix");
    assert!(matches!(wrong, ParseCidrError::PrefixTooLong { prefix_len: 129, .. }), "{wrong}");
    let wrong = interface().route("192.0.2.0/24 mtu 12").expect_err("too small");
    assert!(matches!(wrong, ParseRouteError::OutOfRange { word: "mtu", range: (68, 65_535), .. }), "{wrong}");
    // In any order, it belongs to this interface.
    let gateway = "10.0.0.254".parse().expect("an address");
    let given = interface().gateway(gateway).route("192.0.2.0/24 via 10.0.0.2").expect("a route");
    let stack = build_on(given.address("10.0.0.1/24").expect("an address"), |builder| builder).expect("it builds");
    stack.remove_route("192.0.2.0/24 via 10.0.0.2").expect("it was there");
    stack.remove_route("default via 10.0.0.254").expect("it was there");
}

#[test]
fn routes_are_given_to_an_interface_and_changed_while_the_stack_runs() {
    let (device, _other) = mem::pair(mem::MemConfig::default());
    let interface = Interface::new(device).address("10.0.0.1/24").expect("an address");
    let interface = interface.route("192.0.2.0/24 via 10.0.0.2 mtu 1280").expect("a route");
    let stack = build_on(interface, |builder| builder).expect("it builds");
    let mss = |address: &str| {
        let address = address.parse().expect("one");
        let asked = stack
            .inner_stack()
            .at_tables(move |stack| stack.shared().routes().mss(stack.shared().links(), address, observe::Time::ZERO));
        asked.expect("the stack runs")
    };
    assert_eq!((mss("192.0.2.7"), mss("10.0.0.7")), (1240, 1460));
    stack.set_route(0, "10.0.0.0/24 mtu lock 1000").expect("a route");
    assert_eq!((mss("192.0.2.7"), mss("10.0.0.7")), (1240, 960));
    let wrong = stack.set_route(1, "10.0.0.0/24").expect_err("one interface");
    assert_eq!(wrong, RouteError::NoInterface { interface: 1, interfaces: 1 });
    assert_eq!(wrong.to_string(), "there is no interface 1: give a number from 0 to 0");
    let cidr: Cidr = "10.0.0.0/24".parse().expect("a network");
    assert_eq!(stack.remove_route(RouteName::from(cidr)), Ok(()));
    assert_eq!(stack.remove_route("10.0.0.0/24"), Err(RouteError::NotFound(cidr.into())));
    let wrong = stack.remove_route("10.0.0.0/24 mtu 1000").expect_err("no name");
    assert!(matches!(wrong, RouteError::Parse(ParseRouteError::NotAName(_))), "{wrong}");
    let wrong = stack.set_route(0, "10.0.0.0/24 speed 9").expect_err("no route");
    assert_eq!(wrong, RouteError::Parse(ParseRouteError::UnknownWord("speed".to_owned())));
}

#[every_arch]
fn a_route_bounds_segments_and_begins_windows(arch: Architecture) {
    let mut world = World::new(arch);
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
    let said = |directory: &Path| {
        let error = build(|builder| builder.knobs_from(directory)).expect_err("it is wrong");
        assert!(matches!(error, BuildError::KnobFile(_)));
        error.to_string()
    };
    let stack = build(|builder| builder.knobs_from(&directory)).expect("it builds");
    assert_eq!(stack.knob("tcp_rmem").as_deref(), Ok("4096\t131072\t15728640"));
    assert_eq!(stack.knob("tcp_timestamps").as_deref(), Ok("0"));
    assert_eq!(stack.knob("tcp_sack").as_deref(), Ok("1"), "no file, no change");
    write("tcp_sack", "perhaps\n");
    let wrong = said(&directory);
    assert!(wrong.ends_with("tcp_sack: tcp_sack cannot be `perhaps`: give a whole number from 0 to 1"), "{wrong}");
    std::fs::remove_file(directory.join("tcp_sack")).expect("it can be removed");
    std::fs::create_dir(directory.join("tcp_sack")).expect("a directory");
    let wrong = said(&directory);
    assert!(
        wrong.contains("tcp_sack") && wrong.ends_with("make it a text file with the knob's value, or remove it"),
        "{wrong}"
    );
    let upper = directory.join("tcp_sack");
    let wrong = said(&upper);
    assert!(wrong.starts_with("no file in ") && wrong.contains("name another directory"), "{wrong}");
    std::fs::remove_dir_all(&directory).expect("it can be removed");
    let missing = said(&directory);
    assert!(
        missing.starts_with("there is no directory ") && missing.contains("name a directory of files such as"),
        "{missing}"
    );
}

/// As on Linux, `connect` ignores `tcp_mem`: a connection opens with the minimum memory.
#[every_arch]
fn a_connection_opens_when_memory_is_short(arch: Architecture) {
    use std::io::{Read, Write};
    let mut world = World::new(arch);
    let listener = TcpListener::bind(&world.a, "10.0.0.1:80").expect("the port is free");
    world.b.set_knob("tcp_mem", "1 1 1").expect("a knob");
    let mut hog = connect(&mut world, &listener);
    let (_unread, _) = listener.accept().expect("it is established");
    let severe = |world: &World| world.b.inner_stack().shared().control().scarcity().is_severe();
    let mut sent = 0;
    while !severe(&world) {
        match hog.write(&[7; 4096]) {
            Ok(count) => sent += count,
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
        world.pass(std::time::Duration::from_millis(1));
        assert!(sent < 16 << 20, "the limit is not felt");
    }
    let mut client = connect(&mut world, &listener);
    assert!(severe(&world), "memory is still short");
    let (mut server, _) = listener.accept().expect("it is established");
    client.write_all(b"x").expect("room for the least");
    world.pass(std::time::Duration::from_millis(5));
    let mut byte = [0];
    assert_eq!(server.read(&mut byte).expect("it has come"), 1);
}

#[every_arch]
fn a_transfer_goes_through_when_all_memory_is_short(arch: Architecture) {
    use std::io::{Read, Write};
    let mut world = World::new(arch);
    let listener = TcpListener::bind(&world.a, "10.0.0.1:80").expect("the port is free");
    for stack in [&world.a, &world.b] {
        stack.set_knob("tcp_rmem", "4096 65536 1048576").expect("a knob");
        stack.set_knob("tcp_mem", "1 1 1").expect("a knob");
    }
    let mut client = connect(&mut world, &listener);
    let (mut server, _) = listener.accept().expect("it is established");
    server.set_nonblocking(true).unwrap();
    world.pass(std::time::Duration::from_millis(2));
    let (mut sent, mut received, mut severe) = (0, 0, 0);
    let mut buffer = vec![0; 65_536];
    while received < 500_000 {
        let left = (500_000 - sent).min(buffer.len());
        sent += client.write(&buffer[..left]).unwrap_or(0);
        world.pass(std::time::Duration::from_millis(1));
        severe += u32::from(world.a.inner_stack().shared().control().scarcity().is_severe());
        received += server.read(&mut buffer).unwrap_or(0);
    }
    assert!(severe > 0, "the limit was felt");
    assert!(server.receive_buffer().expect("alive") < 32_768, "it shrank from where it began");
    world.a.set_knob("tcp_mem", "268435456 268435456 268435456").expect("a knob");
    world.pass(std::time::Duration::from_millis(2));
    assert_eq!(world.a.knob("tcp_mem").as_deref(), Ok("268435456\t268435456\t268435456"));
}
