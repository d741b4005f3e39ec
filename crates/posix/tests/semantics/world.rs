//! Two hosts that can reach each other: the kernel as both; two stacks on a link, each with a receive thread; or one
//! stack by loopback, like the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use posix::{LowestFree, PollFd, Sockets};
use stack::{Architecture, Clock, InterfaceConfig, Stack, StackConfig};
use sync::{Ordering, Platform, Real, ThreadClass};

use crate::kernel::Kernel;
use crate::system::System;

pub(crate) use testbed::limit::HANG as PATIENCE;

pub(crate) const NOW: Duration = Duration::ZERO;

/// See the head of this file.
pub(crate) struct World {
    pub(crate) server: Arc<dyn System>,
    pub(crate) client: Arc<dyn System>,
    /// The server's address.
    pub(crate) ip: IpAddr,
    /// The client's address.
    pub(crate) from: IpAddr,
    /// The number of the loopback interface, counted from 1.
    pub(crate) loopback: u32,
    /// The numbers of the server's interfaces that have groups.
    pub(crate) links: Vec<u32>,
    /// Both are the machine's kernel.
    pub(crate) is_kernel: bool,
    _threads: Threads,
}

/// The receive threads of the stacks; they end when this is dropped.
#[derive(Default)]
struct Threads {
    stacks: Vec<Stack<Real>>,
    stop: Arc<<Real as Platform>::AtomicBool>,
    /// The other ends of links, without a host.
    silent: Vec<dev::mem::MemDevice>,
    running: Vec<<Real as Platform>::JoinHandle>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for stack in &self.stacks {
            stack.shared().links().wake_drivers();
        }
        for thread in self.running.drain(..) {
            let ended = Real::join(thread);
            assert!(std::thread::panicking() || ended.is_ok(), "a receive thread panicked");
        }
    }
}

impl Threads {
    /// A stack with these interfaces, its receive thread started.
    fn start(&mut self, arch: Architecture, interfaces: Vec<InterfaceConfig>) -> Arc<Sockets<Real>> {
        let mut config = StackConfig::new(arch);
        config.cpus = 2;
        config.clock = Clock::Platform;
        let (stack, drivers) = Stack::build(config, interfaces).expect("the stack builds");
        for mut driver in drivers {
            let stop = self.stop.clone();
            self.running.push(Real::spawn("receiver", None, ThreadClass::Receive, move || {
                while !stop.load(Ordering::Acquire) {
                    if driver.poll() == 0 {
                        driver.wait(None);
                    }
                }
            }));
        }
        self.stacks.push(stack.clone());
        Arc::new(Sockets::new(stack, LowestFree::<Real>::new(3, 1024)))
    }
}

fn interface(device: dev::mem::MemDevice, address: Ipv4Addr) -> InterfaceConfig {
    let (device, addresses) = (Box::new(device), vec![(address.into(), 24)]);
    InterfaceConfig { device, addresses, gateways: Vec::new(), addressing: Default::default() }
}

impl World {
    /// The machine's kernel on its loopback interface, at an address of its own: a port that is free there stays free,
    /// while other tests open sockets.
    pub(crate) fn kernel() -> World {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let kernel = Arc::new(Kernel::default());
        let ip = Ipv4Addr::new(127, 0, 78, NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)).into();
        let (loopback, is_kernel) = (1, true);
        World {
            server: kernel.clone(),
            client: kernel,
            ip,
            from: ip,
            loopback,
            links: Vec::new(),
            is_kernel,
            _threads: Threads::default(),
        }
    }

    /// Two stacks under `arch`.
    pub(crate) fn stacks(arch: Architecture) -> World {
        let (a, b) = dev::mem::pair::<Real>(dev::mem::MemConfig::default());
        let mut threads = Threads::default();
        let server = threads.start(arch, vec![interface(a, Ipv4Addr::new(10, 0, 0, 1))]);
        let client = threads.start(arch, vec![interface(b, Ipv4Addr::new(10, 0, 0, 2))]);
        let (ip, from) = (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into());
        World { server, client, ip, from, loopback: 2, links: vec![1], is_kernel: false, _threads: threads }
    }

    /// One stack under `arch`, without a link, by its loopback address.
    pub(crate) fn itself(arch: Architecture) -> World {
        let mut threads = Threads::default();
        let both = threads.start(arch, vec![]);
        let ip = Ipv4Addr::LOCALHOST.into();
        let (server, client) = (both.clone(), both);
        World { server, client, ip, from: ip, loopback: 1, links: vec![], is_kernel: false, _threads: threads }
    }

    /// One stack under `arch` with two links and no other host.
    pub(crate) fn two_links(arch: Architecture) -> World {
        let mut threads = Threads::default();
        let interfaces = [1, 2].map(|link| {
            let (near, far) = dev::mem::pair::<Real>(dev::mem::MemConfig::default());
            threads.silent.push(far);
            let v6 = (Ipv6Addr::new(0xfd00, 0, 0, link, 0, 0, 0, 1).into(), 64);
            let mut interface = interface(near, Ipv4Addr::new(10, 0, link as u8, 1));
            interface.addresses.push(v6);
            interface
        });
        let both = threads.start(arch, interfaces.into());
        World { loopback: 3, links: vec![1, 2], ..World::one_host(both, false, threads) }
    }

    /// Runs `test` with the machine's kernel in a network namespace of its own, with two links as in
    /// [`World::two_links`], on a thread of its own.
    pub(crate) fn with_two_links_of_the_kernel(test: fn(&World)) {
        let inside = move || {
            let ip = |arguments: &str| {
                let ended = Command::new("ip").args(arguments.split_whitespace()).output();
                ended.is_ok_and(|output| output.status.success())
            };
            let links = [1, 2].map(|link| {
                [
                    format!("link add near{link} type veth peer name far{link}"),
                    format!("link set far{link} up"),
                    format!("link set near{link} up"),
                    format!("addr add 10.0.{link}.1/24 dev near{link}"),
                    format!("addr add fd00:0:0:{link}::1/64 dev near{link} nodad"),
                ]
            });
            let unshared = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).is_ok();
            if !unshared || !ip("link set lo up") || !links.iter().flatten().all(|command| ip(command)) {
                println!("skipped: a network namespace, veth or the command `ip` is not available here");
                return;
            }
            let number = |name: &str| nix::net::if_::if_nametoindex(name).expect("the interface was made");
            let links = vec![number("near1"), number("near2")];
            test(&World { links, ..World::one_host(Arc::new(Kernel::default()), true, Threads::default()) });
        };
        if let Err(panic) = thread::spawn(inside).join() {
            std::panic::resume_unwind(panic);
        }
    }

    fn one_host(system: Arc<dyn System>, is_kernel: bool, threads: Threads) -> World {
        let ip = Ipv4Addr::new(10, 0, 1, 1).into();
        let (server, client) = (system.clone(), system);
        World { server, client, ip, from: ip, loopback: 1, links: Vec::new(), is_kernel, _threads: threads }
    }

    /// A listener of the server, and its address.
    pub(crate) fn listener(&self) -> (i32, SocketAddr) {
        let listener = self.server.socket(libc::SOCK_STREAM).expect("socket");
        self.server.bind(listener, SocketAddr::new(self.ip, 0)).expect("bind");
        self.server.listen(listener, 16).expect("listen");
        (listener, self.server.local(listener).expect("getsockname"))
    }

    /// A connection: the server's descriptor and the client's.
    pub(crate) fn connection(&self) -> (i32, i32) {
        let (listener, address) = self.listener();
        let client = self.client.socket(libc::SOCK_STREAM).expect("socket");
        self.client.connect(client, address).expect("connect");
        let server = self.server.accept(listener, 0).expect("accept");
        self.server.close(listener).expect("close");
        (server, client)
    }

    /// Waits until the server's `fd` is ready for one of `events`; returns its readiness.
    pub(crate) fn until(&self, fd: i32, events: i16) -> i16 {
        until(&*self.server, fd, events)
    }
}

/// Waits until `fd` is ready for one of `events`; returns its readiness.
pub(crate) fn until(system: &dyn System, fd: i32, events: i16) -> i16 {
    let mut entry = [PollFd { fd, events, revents: 0 }];
    assert_eq!(system.poll(&mut entry, PATIENCE), 1, "descriptor {fd} does not become ready for {events:#x}");
    entry[0].revents
}

/// A thread that makes `call` and was observed to sleep in it, or that has ended if the call does not wait. A call may
/// sleep for a moment for the thread that owns a connection, so it counts as asleep only if it has not run between many
/// checks.
pub(crate) fn sleeping<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    const LOOKS: usize = 200;
    let (tell, told) = channel();
    let thread = thread::spawn(move || {
        tell.send(rustix::thread::gettid()).expect("the test waits for it");
        call()
    });
    let status = format!("/proc/self/task/{}/status", told.recv().expect("the thread's number").as_raw_nonzero());
    // How many times it has gone to sleep, if it sleeps.
    let sleeps = || {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let line =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(|rest| rest.trim().to_owned());
        line("State:")?.starts_with('S').then(|| line("voluntary_ctxt_switches:"))?
    };
    let (mut before, mut looks) = (None, 0);
    while !thread.is_finished() && looks < LOOKS {
        let now = sleeps();
        looks = if now.is_some() && now == before { looks + 1 } else { 0 };
        before = now;
        thread::yield_now();
    }
    thread
}
