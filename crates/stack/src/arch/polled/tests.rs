//! What a polled cell tells the part of the stack that it covers, and which thread it lets in. That part is one of the tests' own.

use std::panic::resume_unwind;
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;

use sync::{LockKind, Writers};

use super::*;
use crate::arch::cells::Cells;
use crate::arch::cells::tests::{Bell, Done, START, TURN, Turning, all, cell_of, cells_of, job};
use crate::call::ControlRequest;
use crate::flow::UdpName;
use crate::handoff::{ReplySender, ReplySlot};
use crate::udp_call::{UdpCall, UdpRequest};

/// What a part was told, and what it says.
#[derive(Default)]
pub struct Told {
    /// The calling thread polls it.
    here: bool,
    /// Claims that have not been released.
    claims: i32,
    wakes: usize,
    /// For when work was left.
    left: Vec<u64>,
    uses: Vec<CellUse>,
}

/// A part of the stack, shared or the whole of it or neither. Its timers are due at [`DEADLINE`].
pub struct Part<const SHARED: bool, const WHOLE: bool>(Arc<Mutex<Told>>);

/// The cells of a part.
type CellsOf<const SHARED: bool, const WHOLE: bool> = Cells<Turning, PolledCell<Turning, Part<SHARED, WHOLE>>>;

const DEADLINE: u64 = START.as_nanos() + 2;
const BUDGET: usize = 3;
const TURNS: u32 = 4;
const NEVER: u64 = u64::MAX;

fn locked(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<const SHARED: bool, const WHOLE: bool> Part<SHARED, WHOLE> {
    /// So many cells of one such part, which the calling thread polls.
    pub fn cells(count: usize) -> (CellsOf<SHARED, WHOLE>, Arc<Mutex<Told>>) {
        let told = Arc::new(Mutex::new(Told { here: true, ..Told::default() }));
        let cells = cells_of(count, false, |shared, slab| {
            let cell = Cell::new(shared, slab, Writers::Many);
            PolledCell::new(Part(told.clone()), cell, Mailbox::list(LockKind::Blocking))
        });
        (cells, told)
    }
}

impl<const SHARED: bool, const WHOLE: bool> Domain<Turning> for Part<SHARED, WHOLE> {
    const WHOLE: bool = WHOLE;
    const SHARED: bool = SHARED;
    const BUDGET: usize = if SHARED { BUDGET } else { usize::MAX };
    const TURNS: u32 = if SHARED { TURNS } else { 0 };
    type Counts = ();

    fn is_polled_here(&self) -> bool {
        locked(&self.0).here
    }
    fn claim(&self) {
        locked(&self.0).claims += 1;
    }
    fn release_claims(&self) {
        locked(&self.0).claims -= 1;
    }
    fn wake(&self) {
        locked(&self.0).wakes += 1;
    }
    fn leave(&self, nanos: u64) {
        locked(&self.0).left.push(nanos);
    }
    fn used(&self, (): &mut (), how: CellUse) {
        locked(&self.0).uses.push(how);
    }
    fn deadline(&self) -> u64 {
        if SHARED { DEADLINE } else { NEVER }
    }
}

/// One cell of a part.
struct Scene<const SHARED: bool, const WHOLE: bool> {
    cells: CellsOf<SHARED, WHOLE>,
    told: Arc<Mutex<Told>>,
    done: Done,
}

impl<const SHARED: bool, const WHOLE: bool> Scene<SHARED, WHOLE> {
    fn new() -> Self {
        let (cells, told) = Part::cells(1);
        Scene { cells, told, done: Done::default() }
    }

    fn cell(&self) -> &PolledCell<Turning, Part<SHARED, WHOLE>> {
        cell_of(&self.cells, 0).0
    }

    fn hub(&self) -> &Hub<Turning> {
        cell_of(&self.cells, 0).1
    }

    /// Whether the threads that call poll the part from now on.
    fn is_here(&self, here: bool) {
        locked(&self.told).here = here;
    }

    /// So many messages are in the mailbox, and no thread has looked for them.
    fn has_mail(&self, count: usize) {
        for number in 0..count {
            assert!(self.cell().mailbox().send(job(number, &self.done), false).is_ok(), "there is room");
        }
    }

    /// The same, and each of them panics when it is done.
    fn has_mail_that_panics(&self, count: usize) {
        for number in 0..count {
            let CellMessage::Job(work, nobody) = job(number, &self.done) else { panic!("it is a job") };
            let panics = move || {
                work();
                resume_unwind(Box::new("planted"))
            };
            let message = CellMessage::Job(Box::new(panics), nobody);
            assert!(self.cell().mailbox().send(message, false).is_ok(), "there is room");
        }
    }

    /// A tick of the calling thread, at this time.
    fn tick(&self, nanos: u64) -> bool {
        self.cell().tick(self.hub(), Time::from_nanos(nanos))
    }

    fn visit(&self, work: impl FnOnce()) {
        assert!(self.cell().enter(self.hub(), |_| work()).is_some(), "the cell is free");
    }

    fn wakes(&self) -> usize {
        locked(&self.told).wakes
    }

    fn left(&self) -> Vec<u64> {
        locked(&self.told).left.clone()
    }

    fn claims(&self) -> i32 {
        locked(&self.told).claims
    }

    fn uses(&self) -> Vec<CellUse> {
        std::mem::take(&mut locked(&self.told).uses)
    }

    /// When a tick has work, and when it has timers.
    fn deadlines(&self) -> (u64, u64) {
        (self.cell().deadline(), self.cell().timer_deadline())
    }
}

/// The same on another thread.
fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(work).join()).expect("the thread ends well")
}

/// `BUDGET`: the most messages that a thread runs before it leaves the rest to the receive threads, whether it has visited the cell or
/// has sent one of them, and also if they panic.
#[test]
fn a_thread_runs_no_more_of_anothers_messages_than_it_may() {
    type Mail = fn(&Scene<true, false>);
    let mail: [Mail; 2] = [|scene| scene.has_mail(5), |scene| scene.has_mail_that_panics(5)];
    let leave: [fn(&Scene<true, false>, Mail); 2] = [
        |scene, mail| scene.visit(|| mail(scene)),
        |scene, mail| {
            mail(scene);
            scene.cell().assist(scene.hub());
        },
    ];
    for mail in mail {
        for leave in leave {
            let scene = Scene::<true, false>::new();
            leave(&scene, mail);
            assert_eq!((all(&scene.done), scene.cell().mailbox().pending()), (vec![0, 1, 2], 2));
            assert_eq!(scene.left(), [0], "the rest is due now");
            assert!(!scene.cell().is_mine());
        }
    }
}

/// A thread that was the owner wakes the next one, and says when the timers are due; one that used the cell for an event does neither.
#[test]
fn a_thread_that_gives_up_its_home_wakes_the_next_one() {
    let scene = Scene::<true, false>::new();
    scene.visit(|| {});
    assert_eq!((scene.wakes(), scene.left(), scene.claims()), (0, vec![], 0));
    scene.tick(START.as_nanos());
    assert_eq!(scene.claims(), 1);
    scene.tick(START.as_nanos());
    assert!(scene.cell().is_polled_by_me(), "it stays");
    scene.is_here(false);
    assert!(scene.tick(START.as_nanos()), "messages of this thread may wait elsewhere");
    assert!(!scene.cell().is_polled_by_me());
    assert_eq!((scene.wakes(), scene.left(), scene.claims()), (1, vec![DEADLINE], 0));
}

/// "A thread that polls becomes the owner of a cell, and stays that until it rests."
#[test]
fn a_core_stays_the_owner_until_it_rests() {
    let scene = Scene::<false, false>::new();
    scene.tick(START.as_nanos());
    scene.is_here(false);
    scene.tick(START.as_nanos());
    assert!(scene.cell().is_polled_by_me());
    scene.cell().retire(scene.hub());
    assert!(!scene.cell().is_mine());
}

/// What concerns all cells is no use of this one. Of the rest, a caller that waited for the owner counts.
#[test]
fn messages_to_all_cells_are_no_use_of_one() {
    let scene = Scene::<true, false>::new();
    scene.tick(START.as_nanos());
    scene.uses();
    let udp =
        |asker| CellMessage::Udp(UdpCall { name: UdpName { port: 1, number: 0 }, request: UdpRequest::Remote }, asker);
    let slots = [(); 3].map(|()| ReplySlot::new());
    let [one, two, three] = slots.each_ref().map(ReplySender::new);
    for message in [
        CellMessage::Control(ControlRequest::Trim, one),
        CellMessage::StackStats(two),
        udp(three),
        udp(ReplySender::nobody()),
    ] {
        assert!(scene.cell().mailbox().send(message, false).is_ok(), "there is room");
    }
    // The last one exceeds the budget of a tick.
    assert!(scene.tick(START.as_nanos()) && scene.cell().mailbox().pending() == 1);
    assert!(scene.tick(START.as_nanos()) && scene.cell().is_quiescent());
    let message = |waiting, awaited| CellUse::Message { waiting, packets: 1, awaited };
    assert_eq!(scene.uses(), [CellUse::Look, CellUse::Look, message(2, true), message(1, false)]);
    assert!(slots.iter().all(|slot| slot.is_answered()));
}

/// A thread does not sleep before it owns what it shall own, runs what waits in what it owns, and gives up what it shall not own; timers
/// alone are as late as they are known.
#[test]
fn a_shared_cell_says_when_it_has_work() {
    let scene = Scene::<true, false>::new();
    assert_eq!(scene.deadlines(), (0, DEADLINE), "it is to be owned");
    scene.is_here(false);
    assert_eq!(scene.deadlines(), (DEADLINE, DEADLINE), "any thread runs its timers");
    scene.is_here(true);
    scene.tick(START.as_nanos());
    assert_eq!(scene.deadlines(), (NEVER, NEVER), "nothing is armed in it");
    assert_eq!(elsewhere(|| scene.deadlines()), (NEVER, NEVER), "the owner runs its timers");
    assert_eq!(scene.cell().noted_deadline(), DEADLINE);
    scene.has_mail(1);
    assert_eq!(scene.deadlines(), (0, NEVER), "a message is no timer");
    scene.tick(START.as_nanos());
    assert_eq!(scene.deadlines(), (NEVER, NEVER));
    scene.is_here(false);
    assert_eq!(scene.deadlines(), (0, NEVER), "it is to be given up");
}

/// The same of a core's cell, and of the whole stack. The timers of a cell without an owner are not known.
fn says_when_it_has_work<const WHOLE: bool>() {
    let scene = Scene::<false, WHOLE>::new();
    assert_eq!(scene.deadlines(), (0, 0), "it is to be owned");
    scene.is_here(false);
    assert_eq!(scene.deadlines(), (NEVER, NEVER), "another thread is to own it");
    scene.is_here(true);
    scene.tick(START.as_nanos());
    assert_eq!(scene.deadlines(), (NEVER, NEVER), "nothing is armed in it");
    assert_eq!(elsewhere(|| scene.deadlines()), (NEVER, NEVER), "the owner does its work");
    scene.has_mail(1);
    assert_eq!(scene.deadlines(), (0, 0), "a message waits");
    scene.tick(START.as_nanos());
    scene.is_here(false);
    assert_eq!(scene.deadlines(), (NEVER, NEVER), "it stays until it rests");
}

#[test]
fn a_cell_that_is_not_shared_says_when_it_has_work() {
    says_when_it_has_work::<false>();
    says_when_it_has_work::<true>();
}

/// An active open prefers the cells of its thread, and shared ones; reading uses the time of the batch where the thread polls the cell.
#[test]
fn a_cell_says_to_whom_it_belongs() {
    let all =
        |cell: &PolledCell<Turning, Part<true, false>>| (cell.is_home(), cell.is_elsewhere(), cell.has_batch_time());
    let scene = Scene::<true, false>::new();
    assert_eq!(all(scene.cell()), (true, false, false), "it has no home");
    scene.tick(START.as_nanos());
    assert_eq!(all(scene.cell()), (true, false, true));
    assert_eq!(elsewhere(|| all(scene.cell())), (false, true, false));
    let core = Scene::<false, false>::new();
    assert!(!core.cell().is_home(), "no core has it yet");
    core.tick(START.as_nanos());
    assert_eq!((core.cell().is_home(), core.cell().has_batch_time()), (true, true));
    assert!(!elsewhere(|| core.cell().is_home()));
}

/// Readiness is written by plain stores while a cell that threads may share is at home.
#[test]
fn a_cell_at_home_publishes_by_plain_stores() {
    let scene = Scene::<true, false>::new();
    let is_plain = || scene.cell().seize(scene.hub(), |cell| cell.is_published_plainly());
    assert_eq!(is_plain(), Some(false));
    scene.tick(START.as_nanos());
    assert_eq!(is_plain(), Some(true));
    scene.cell().retire(scene.hub());
    assert_eq!(is_plain(), Some(false), "it has no home");
}

/// A receive thread that may not own a shared cell runs its messages and timers when they are due.
#[test]
fn any_thread_does_what_is_due_in_a_shared_cell() {
    let scene = Scene::<true, false>::new();
    scene.is_here(false);
    scene.has_mail(1);
    assert!(!scene.tick(DEADLINE - 1));
    assert_eq!((all(&scene.done), scene.uses()), (vec![], vec![]));
    assert!(scene.tick(DEADLINE));
    assert_eq!((all(&scene.done), scene.uses()), (vec![0], vec![CellUse::Visit(UseCause::Arrival { packets: 1 })]));
    assert!(!scene.tick(DEADLINE + 1), "no message waited");
    let core = Scene::<false, false>::new();
    core.is_here(false);
    core.has_mail(1);
    assert!(!core.tick(DEADLINE));
    assert_eq!(all(&core.done), [], "no thread but its own does anything in a core's cell");
}

/// "A message that was sent before that thread took the cell over may have been announced here."
#[test]
fn a_thread_passes_on_what_it_was_told_about_anothers_cell() {
    let scene = Scene::<true, false>::new();
    scene.tick(START.as_nanos());
    for (mail, wakes) in [(0, 0), (1, 1)] {
        scene.has_mail(mail);
        assert!(!elsewhere(|| scene.tick(START.as_nanos())));
        assert_eq!(scene.wakes(), wakes);
    }
    assert_eq!(all(&scene.done), [], "it is the owner's");
}

/// At rest a thread may use a cell without an owner, and one of its own: its owner stays its owner.
#[test]
fn a_look_at_a_cell_at_rest_leaves_its_owner() {
    let scene = Scene::<false, false>::new();
    assert_eq!(scene.cell().seize(scene.hub(), |_| 1), Some(1));
    assert!(!scene.cell().is_mine());
    scene.tick(START.as_nanos());
    assert_eq!(scene.cell().seize(scene.hub(), |_| 1), Some(1));
    assert!(scene.cell().is_mine());
    assert_eq!(elsewhere(|| scene.cell().seize(scene.hub(), |_| 1)), None);
    assert!(scene.cell().is_mine());
}

/// At rest: takes the messages that have not been run.
#[test]
fn messages_that_are_withdrawn_are_not_run() {
    let scene = Scene::<true, false>::new();
    scene.tick(START.as_nanos());
    scene.has_mail(2);
    assert_eq!(scene.cell().withdraw().len(), 2);
    assert!(scene.cell().is_quiescent() && !scene.tick(START.as_nanos()));
    assert_eq!(all(&scene.done), []);
}

/// The owner of the whole stack alone uses the tables of IP, and without one any thread, which excludes the others meanwhile.
#[test]
fn tables_are_used_by_the_owner_of_the_whole_stack() {
    let scene = Scene::<false, true>::new();
    let mut uses = 0;
    let mut work = || {
        assert!(scene.cell().is_mine());
        uses += 1;
    };
    assert!(scene.cell().use_tables(scene.hub(), &mut work));
    assert!(!scene.cell().is_mine());
    scene.tick(START.as_nanos());
    assert!(scene.cell().use_tables(scene.hub(), &mut work));
    assert_eq!(uses, 2);
    assert!(!elsewhere(|| scene.cell().use_tables(scene.hub(), &mut || panic!("they are another thread's"))));
}

/// An owner that waits for another cell's answer is interrupted where it waits, and told where it waited before.
#[test]
fn mail_interrupts_an_owner_that_waits() {
    let scene = Scene::<false, false>::new();
    scene.tick(START.as_nanos());
    let bell = Arc::new(Bell::default());
    let sent = || assert!(scene.cell().send(scene.hub(), job(0, &scene.done), true).is_ok(), "there is room");
    assert!(scene.cell().wait_at(Some(bell.clone())).is_none());
    sent();
    assert_eq!(bell.rung(), 1);
    assert!(scene.cell().wait_at(None).is_some(), "it waited there");
    sent();
    assert_eq!(bell.rung(), 1);
}

/// The turns that the calling thread waits for the cell. `act` is called in each.
fn turns(scene: &Scene<true, false>, mut act: impl FnMut(u32) + 'static) -> u32 {
    let count = Arc::new(Mutex::new(0));
    let counts = count.clone();
    TURN.set(Box::new(move |turn| {
        act(turn);
        *counts.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }));
    scene.cell().await_turn();
    TURN.set(Box::new(|_| {}));
    *count.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `TURNS`: the most turns that a user's thread waits for a thread that uses the cell for one event. It does not wait for a thread where
/// the cell is at home, nor where it is free.
#[test]
fn a_caller_waits_some_turns_for_a_cell_that_is_taken_for_an_event() {
    let scene = Arc::new(Scene::<true, false>::new());
    assert_eq!(turns(&scene, |_| {}), 0, "it is free");
    let [taken, leave, left] = [(); 3].map(|()| Arc::new(Barrier::new(2)));
    let visitor = thread::spawn({
        let (scene, taken, leave, left) = (scene.clone(), taken.clone(), leave.clone(), left.clone());
        move || {
            scene.visit(|| {
                taken.wait();
                leave.wait();
            });
            left.wait();
        }
    });
    taken.wait();
    assert_eq!(turns(&scene, |_| {}), TURNS);
    let until_it_has_left = move |turn| {
        if turn == 1 {
            leave.wait();
            left.wait();
        }
    };
    assert_eq!(turns(&scene, until_it_has_left), 2);
    visitor.join().expect("the visitor ends well");
    scene.tick(START.as_nanos());
    let there = scene.clone();
    assert_eq!(elsewhere(move || turns(&there, |_| {})), 0, "it has a home");
}
