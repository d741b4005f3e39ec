//! The shared bridge under model checkers: workers and a control plane on threads of their own, in every schedule (loom, for
//! the table) or in many (shuttle). For each property a planted mistake breaks it, and the checker must find the
//! mistake.
//!
//! | property | the mistake |
//! |---|---|
//! | no reader uses a freed entry | the table waits for readers of another domain, which has none |
//! | a reader never waits: a writer gets its grace period while a device does not accept a frame | transmission inside the read section, as under `rcu` |
//! | a flush costs one grace period | entry by entry |
//! | frames of one source and destination stay in order | one queue is polled by two workers |
//! | after its removal a port transmits nothing, and nothing of it is forwarded | the references are not waited for |
//! | a queue that moves to another worker loses no frame, and its frames stay in order | (two workers that poll it, above) |
//! | after the end no device is used | the workers are not waited for |

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge::{FdbConfig, FdbControl, FdbKey, LearnedSource, PortConfig, PortNumber};
use dev::{Capabilities, Device, QueuePair, RxQueue, TxQueue, WaitOutcome, Wake};
use observe::Time;
use pktbuf::PktBuf;
use sync::{Atomic, Ordering, Platform, Qsbr, ThreadClass};
use wire::ethernet::MacAddr;

use crate::table::{ConcurrentFdb, TableControl};

const NOW: Time = Time::from_secs(1);
const TO: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

fn number(n: u16) -> PortNumber {
    PortNumber::new(n).expect("a small number")
}

fn key(n: u8) -> FdbKey {
    FdbKey::new(MacAddr([2, 0, 0, 0, 0, n]), None)
}

fn source(n: u8) -> LearnedSource {
    LearnedSource { key: key(n), port: number(n.into()), limit: None }
}

fn join<P: Platform>(handle: P::JoinHandle) {
    if let Err(panic) = P::join(handle) {
        std::panic::resume_unwind(panic);
    }
}

fn spawn<P: Platform>(body: impl FnOnce() + Send + 'static) -> P::JoinHandle {
    P::spawn("worker", None, ThreadClass::Receive, body)
}

/// A reader looks an address up while the table is flushed and its memory is used for another address. With `waits` the
/// flush waits for the reader.
fn an_entry_is_freed<P: Platform>(waits: bool) {
    let domain = Qsbr::<P>::new();
    let of_table = if waits { domain.clone() } else { Qsbr::new() };
    let table = Arc::new(ConcurrentFdb::<P>::new(FdbConfig { capacity: 2, ..FdbConfig::default() }, of_table));
    table.learn(source(1), NOW);
    let theirs = table.clone();
    let thread = spawn::<P>(move || {
        let mut reader = domain.section_reader();
        for _ in 0..2 {
            let section = reader.enter();
            let port = theirs.find(key(1)).map(|entry| entry.port());
            assert!(port.is_none_or(|port| port == number(1)), "the port of another station: {port:?}");
            drop(section);
        }
    });
    assert_eq!(TableControl(table.clone()).flush(|_, _| true), 1);
    table.learn(source(2), NOW);
    join::<P>(thread);
    assert_eq!(table.len(), 1);
}

/// Three addresses are removed by `flush` while a reader reads.
fn a_flush<P: Platform>(flush: impl Fn(&mut TableControl<P>)) {
    let domain = Qsbr::<P>::new();
    let config = FdbConfig { capacity: 8, ..FdbConfig::default() };
    let table = Arc::new(ConcurrentFdb::<P>::new(config, domain.clone()));
    (1..4).for_each(|n| _ = table.learn(source(n), NOW));
    let (theirs, readers) = (table.clone(), domain.clone());
    let thread = spawn::<P>(move || {
        let mut reader = readers.section_reader();
        let section = reader.enter();
        let _ = theirs.find(key(1));
        drop(section);
    });
    flush(&mut TableControl(table.clone()));
    join::<P>(thread);
    assert!(table.is_empty());
    assert_eq!(domain.grace_periods(), 1, "a grace period for each entry");
}

/// The events of a model's device, and the actions allowed to it.
struct DeviceWatch<P: Platform> {
    /// Transmission waits until this is 1.
    open: P::AtomicU32,
    /// A frame has been given to the device.
    under_way: P::AtomicBool,
    /// No frame may be transmitted any more.
    closed: P::AtomicBool,
    /// Identifiers of the frames that were transmitted.
    left: Mutex<Vec<u8>>,
}

impl<P: Platform> DeviceWatch<P> {
    fn new(open: bool) -> Arc<DeviceWatch<P>> {
        let open = P::AtomicU32::new(open.into());
        let flag = || P::AtomicBool::new(false);
        Arc::new(DeviceWatch { open, under_way: flag(), closed: flag(), left: Mutex::new(Vec::new()) })
    }

    /// The device accepts frames from now on.
    fn accept(&self) {
        self.open.store(1, Ordering::Release);
        P::futex_wake(&self.open, 8);
    }

    /// Waits until a frame is in flight, so that the next steps happen under traffic.
    fn await_traffic(&self) {
        while !self.under_way.load(Ordering::Acquire) {
            P::relax(0);
        }
    }

    fn left(&self) -> Vec<u8> {
        self.left.lock().expect("no panic").clone()
    }
}

type Script = Arc<Mutex<VecDeque<PktBuf>>>;

/// A device that receives the frames of a script, and records the frames that it transmits.
struct Scripted<P: Platform> {
    capabilities: Capabilities,
    /// One for each queue pair; two may be the same.
    scripts: Vec<Script>,
    watch: Arc<DeviceWatch<P>>,
}

struct ScriptedQueue<P: Platform> {
    script: Script,
    watch: Arc<DeviceWatch<P>>,
}

struct Nobody;

impl Wake for Nobody {
    fn wake(&self) {}
}

impl<P: Platform> Device for Scripted<P> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn take_queues(&mut self) -> Vec<QueuePair> {
        let half = |script: &Script| ScriptedQueue { script: script.clone(), watch: self.watch.clone() };
        self.scripts.iter().map(|script| QueuePair { rx: Box::new(half(script)), tx: Box::new(half(script)) }).collect()
    }
}

impl<P: Platform> RxQueue for ScriptedQueue<P> {
    fn receive(&mut self, batch: &mut Vec<PktBuf>, max: usize) -> usize {
        let mut script = self.script.lock().expect("no panic");
        let count = max.min(script.len());
        batch.extend(script.drain(..count));
        count
    }

    fn wait(&mut self, _timeout: Option<Duration>) -> WaitOutcome {
        WaitOutcome::TimedOut
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(Nobody)
    }
}

impl<P: Platform> TxQueue for ScriptedQueue<P> {
    fn credit(&self) -> usize {
        64
    }

    fn transmit(&mut self, frame: PktBuf) -> Result<(), PktBuf> {
        self.watch.under_way.store(true, Ordering::Release);
        while self.watch.open.load(Ordering::Acquire) == 0 {
            P::futex_wait(&self.watch.open, 0, None);
        }
        // Yields often, so that another thread may run many steps meanwhile.
        P::yield_now();
        assert!(!self.watch.closed.load(Ordering::Acquire), "a frame was transmitted after the end");
        self.watch.left.lock().expect("no panic").push(frame[14]);
        Ok(())
    }

    fn flush(&mut self) {}
}

#[cfg(feature = "loom")]
mod loom_models {
    use sync::loom::Loom;

    use super::*;

    fn explore(model: impl Fn() + Send + Sync + 'static) -> Result<(), String> {
        planted::outcome(move || {
            let mut builder = loom::model::Builder::new();
            builder.preemption_bound = Some(2);
            builder.check(model);
        })
    }

    #[test]
    fn no_freed_entry_is_seen() {
        explore(|| an_entry_is_freed::<Loom>(true)).expect("the model holds");
        let found = explore(|| an_entry_is_freed::<Loom>(false)).expect_err("loom must find the planted mistake");
        assert!(found.contains("the port of another station"), "found, but as: {found}");
    }
}

#[cfg(feature = "shuttle")]
mod shuttle_models {
    use sync::shuttle::Shuttle;
    use testbed::over::Patient;

    use super::*;
    use crate::generic::Work;
    use crate::interrupt::{InterruptKind, VectorRole};
    use crate::shared::{SharedBridge, SharedConfig, Sharing};
    use crate::worker::BridgeWorker;

    type ModelPlatform = Patient<Shuttle>;

    const SCHEDULES: usize = 500;
    /// Schedules in which a mistake must show; the search ends with the first.
    const HUNT: usize = 5000;
    /// Maximum steps of one schedule. A model takes some hundreds.
    const MOST_STEPS: usize = 20_000;

    fn config() -> shuttle::Config {
        let mut config = shuttle::Config::new();
        config.max_steps = shuttle::MaxSteps::FailAfter(MOST_STEPS);
        config
    }

    fn holds(model: impl Fn() + Copy + Send + Sync + 'static) {
        let random = shuttle::scheduler::RandomScheduler::new_from_seed(1, SCHEDULES);
        shuttle::Runner::new(random, config()).run(model);
        let pct = shuttle::scheduler::PctScheduler::new_from_seed(1, 3, SCHEDULES);
        shuttle::Runner::new(pct, config()).run(model);
    }

    /// The model fails, with a message that contains `symptom`.
    fn fails(symptom: &str, model: impl Fn() + Copy + Send + Sync + 'static) {
        let hunt = move || {
            // Most mistakes show only if one thread is stopped while another runs many steps, which is rare at random.
            let pct = shuttle::scheduler::PctScheduler::new_from_seed(1, 3, HUNT);
            _ = shuttle::Runner::new(pct, config()).run(model);
            let random = shuttle::scheduler::RandomScheduler::new_from_seed(1, HUNT);
            _ = shuttle::Runner::new(random, config()).run(model);
        };
        let found = planted::outcome(hunt).expect_err("shuttle must find the planted mistake");
        assert!(found.contains(symptom), "found, but as: {found}");
    }

    const SHARINGS: [Sharing; 2] = [Sharing::Mpsafe, Sharing::Rcu];

    struct Model {
        shared: Arc<SharedBridge<ModelPlatform>>,
    }

    impl Model {
        fn new(sharing: Sharing, workers: usize, work: usize) -> Model {
            let fdb = FdbConfig { capacity: 2, ..FdbConfig::default() };
            let config =
                SharedConfig { sharing, fdb, work: Work::Frames(work), workers, interrupts: InterruptKind::Msix };
            Model { shared: SharedBridge::new(config).expect("doorbells") }
        }

        /// Adds a port that receives frames with these identifiers, from one station to another.
        fn port(&self, name: &str, scripts: &[Script], watch: &Arc<DeviceWatch<ModelPlatform>>) {
            let capabilities = Capabilities::ethernet(MacAddr::UNSPECIFIED, 1500);
            let mut device = Scripted { capabilities, scripts: scripts.to_vec(), watch: watch.clone() };
            self.shared.add_port(name, &mut device, PortConfig::default(), NOW).expect("a port");
        }

        fn worker(&self, at: usize, polls: usize) -> <ModelPlatform as Platform>::JoinHandle {
            let shared = self.shared.clone();
            spawn::<ModelPlatform>(move || {
                let mut worker = BridgeWorker::begin(&shared, at).expect("it has not begun");
                (0..polls).for_each(|_| _ = worker.poll(NOW));
            })
        }
    }

    fn script(ids: &[u8]) -> Script {
        let frame = |id: &u8| {
            let mut bytes = [TO.0, [2, 0, 0, 0, 0, 1]].concat();
            bytes.extend([0x88, 0xb5, *id]);
            bytes.resize(60, 0);
            PktBuf::from_slice(&bytes).expect("a buffer")
        };
        Arc::new(Mutex::new(ids.iter().map(frame).collect()))
    }

    #[test]
    fn no_freed_entry_is_seen() {
        // The mistake shows between two loads of the reader, which loom finds.
        holds(|| an_entry_is_freed::<ModelPlatform>(true));
    }

    #[test]
    fn a_flush_costs_one_grace_period() {
        holds(|| a_flush::<ModelPlatform>(|table| _ = table.flush(|_, _| true)));
        fails("a grace period for each entry", || {
            a_flush::<ModelPlatform>(|table| (1..4).for_each(|n| assert!(table.remove(key(n)))));
        });
    }

    /// The device accepts its frame only after the control plane has had a grace period.
    fn a_device_waits(sharing: Sharing) {
        let (model, watch) = (Model::new(sharing, 1, 1), DeviceWatch::new(false));
        model.port("in", &[script(&[1])], &watch);
        model.port("out", &[script(&[])], &watch);
        let worker = model.worker(0, 3);
        watch.await_traffic();
        model.shared.configure(|bridge| bridge.set_filtering(true));
        watch.accept();
        join::<ModelPlatform>(worker);
    }

    #[test]
    fn no_writer_waits_for_a_reader_that_waits() {
        holds(|| a_device_waits(Sharing::Mpsafe));
        fails("max_steps", || a_device_waits(Sharing::Rcu));
    }

    /// Three frames of one flow; with `split` the receive queue is polled by both workers.
    fn a_flow(sharing: Sharing, split: bool) {
        let (model, watch) = (Model::new(sharing, 2, 1), DeviceWatch::new(true));
        let frames = script(&[1, 2, 3]);
        let scripts = if split { vec![frames.clone(), frames] } else { vec![frames] };
        model.port("in", &scripts, &watch);
        model.port("out", &[script(&[])], &watch);
        let workers = [0, 1].map(|at| model.worker(at, 4));
        workers.into_iter().for_each(join::<ModelPlatform>);
        assert_eq!(watch.left(), [1, 2, 3], "out of order, or lost");
    }

    #[test]
    fn frames_of_one_flow_stay_in_order() {
        for sharing in SHARINGS {
            holds(move || a_flow(sharing, false));
            fails("out of order", move || a_flow(sharing, true));
        }
    }

    /// Three frames of one flow, and a move of their queue to the other worker meanwhile. The output device has a transmit
    /// queue for each worker. (`tests/sharing.rs`, where transmit queues have rings, checks that frames keep their
    /// lane.)
    fn a_queue_moves(sharing: Sharing) {
        let (model, watch) = (Model::new(sharing, 2, 1), DeviceWatch::new(true));
        let frames = script(&[1, 2, 3]);
        model.port("in", std::slice::from_ref(&frames), &watch);
        model.port("out", &[script(&[]), script(&[])], &watch);
        let workers = [0, 1].map(|at| model.worker(at, 6));
        // A worker that has ended cannot take part in a move.
        drop(model.shared.set_affinity("in", VectorRole::Rx(0), 1));
        workers.into_iter().for_each(join::<ModelPlatform>);
        let (left, waiting) = (watch.left(), frames.lock().expect("no panic").len());
        assert_eq!(left.len() + waiting, 3, "a frame is lost");
        assert!(left.is_sorted(), "out of order");
    }

    #[test]
    fn a_queue_that_moves_loses_nothing_and_keeps_its_order() {
        SHARINGS.into_iter().for_each(|sharing| holds(move || a_queue_moves(sharing)));
    }

    /// A port is removed while a device has a frame that arrived by it, or leaves by it, and does not accept it yet. With
    /// `waits` the removal waits for references. Then another thread lets the device accept the frame. Without `waits`
    /// the device accepts it when the removal has returned, or earlier if a grace period under `rcu` needs that.
    fn a_port_is_removed(sharing: Sharing, removed: u16, waits: bool) {
        let (model, watch) = (Model::new(sharing, 1, 1), DeviceWatch::new(false));
        model.port("in", &[script(&[1, 2])], &DeviceWatch::new(true));
        model.port("out", &[script(&[])], &watch);
        let worker = model.worker(0, 3);
        watch.await_traffic();
        let needed = waits || sharing == Sharing::Rcu;
        let theirs = watch.clone();
        let opener = needed.then(|| spawn::<ModelPlatform>(move || theirs.accept()));
        let removal = if waits {
            model.shared.remove_port(number(removed), NOW).map(drop)
        } else {
            model.shared.unlink_port(number(removed), NOW).map(drop)
        };
        assert!(removal.is_some());
        watch.closed.store(true, Ordering::Release);
        watch.accept();
        join::<ModelPlatform>(worker);
        opener.into_iter().for_each(join::<ModelPlatform>);
    }

    #[test]
    fn after_its_removal_a_port_transmits_nothing() {
        for removed in [0, 1] {
            SHARINGS.into_iter().for_each(|sharing| holds(move || a_port_is_removed(sharing, removed, true)));
            // Under `rcu` there are no references: the grace period is enough.
            fails("after the end", move || a_port_is_removed(Sharing::Mpsafe, removed, false));
            holds(move || a_port_is_removed(Sharing::Rcu, removed, false));
        }
    }

    /// The bridge ends with frames in flight. With `waits` the devices are used no more once the workers have ended.
    fn the_end(sharing: Sharing, waits: bool) {
        let (model, watch) = (Model::new(sharing, 1, 8), DeviceWatch::new(true));
        let frames = script(&[1, 2, 3]);
        model.port("in", std::slice::from_ref(&frames), &watch);
        model.port("out", &[script(&[])], &watch);
        let worker = model.worker(0, 3);
        watch.await_traffic();
        model.shared.stop();
        let mut worker = Some(worker);
        if waits {
            worker.take().into_iter().for_each(join::<ModelPlatform>);
        }
        watch.closed.store(true, Ordering::Release);
        worker.into_iter().for_each(join::<ModelPlatform>);
        let (left, waiting) = (watch.left().len(), frames.lock().expect("no panic").len());
        let dropped = model.shared.counters().dropped_total() as usize;
        assert_eq!(left + waiting + dropped, 3, "each frame is sent, dropped with a reason, or still in its queue");
    }

    #[test]
    fn frames_in_flight_at_the_end_are_accounted_for() {
        for sharing in SHARINGS {
            holds(move || the_end(sharing, true));
            fails("after the end", move || the_end(sharing, false));
        }
    }
}
