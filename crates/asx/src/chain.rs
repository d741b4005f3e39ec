//! [`Chain`]: the modules of a stream in their order, the messages that wait at each queue, and who may run which.
//!
//! Plain data: no thread, lock or platform. `stream.rs` keeps it under one lock, which is never held while a queue runs: a
//! thread *claims* a piece of work ([`Chain::claim`]), which takes the queue out of the chain, runs it ([`Job::run`]), and
//! *completes* it ([`Chain::complete`]), which brings the queue back and puts what it passed on at the next one. A queue that is
//! out is in use, so one thread at a time uses it; and it is the first message that is claimed, so order is kept.
//!
//! What may never happen: a message leaves the list of a queue other than by its front; a queue that has reached its high-water
//! mark is given more by a claim made before it has fallen to its low-water mark.

use std::collections::VecDeque;

use sync::{PlantedMistake, Platform};

use crate::error::StreamError;
use crate::message::Message;
use crate::queue::{Module, Passed, Queue, Side, WaterMarks};

/// A module's place in the chain, as long as it is there. A module that replaces another has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceId(u64);

/// Who carries a message: the number of an operation.
pub(crate) type Carrier = u64;

/// The carrier of what a change of the stream has moved: anyone.
const ANYONE: Carrier = 0;

/// Who claims. With [`Chain::has_more`], each line of a process architecture's definition.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claimant {
    /// Everything that waits on this side.
    Caller(Side),
    /// What the carrier carries on this side, through all queues.
    Shepherd(Side, Carrier),
    /// What waits at both queues of a module.
    Owner(PlaceId, Carrier),
    /// The immediate part of what the carrier has brought to a queue.
    Bringer(Carrier),
    /// What a change waits for: all on the way to a module, and at it.
    Changer(PlaceId),
}

enum Item {
    Message(Message),
    End,
}

struct Waiting {
    item: Item,
    carrier: Carrier,
    /// `put` has run: what is left is for `svc`.
    seen: bool,
}

impl Waiting {
    /// For anyone to carry.
    fn left_by_a_change(message: Message) -> Waiting {
        Waiting { item: Item::Message(message), carrier: ANYONE, seen: false }
    }

    fn weight(&self) -> usize {
        match &self.item {
            Item::Message(message) => message.weight(),
            Item::End => 0,
        }
    }
}

/// One queue of the chain.
struct Station {
    /// `None` while a thread runs it, and at both ends, where nothing runs.
    queue: Option<Box<dyn Queue>>,
    waiting: VecDeque<Waiting>,
    /// Of what waits, in bytes.
    weight: usize,
    full: bool,
}

impl Station {
    fn new(queue: Option<Box<dyn Queue>>) -> Station {
        Station { queue, waiting: VecDeque::new(), weight: 0, full: false }
    }

    fn put(&mut self, waiting: Waiting, marks: WaterMarks) {
        self.weight += waiting.weight();
        self.full |= self.weight >= marks.high();
        self.waiting.push_back(waiting);
    }

    fn take(&mut self, marks: WaterMarks) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.weight -= waiting.weight();
        self.full &= self.weight > marks.low();
        Some(waiting)
    }

    fn put_back(&mut self, waiting: Waiting, marks: WaterMarks) {
        self.weight += waiting.weight();
        self.full |= self.weight >= marks.high();
        self.waiting.push_front(waiting);
    }
}

struct Link {
    id: PlaceId,
    name: String,
    marks: WaterMarks,
    stations: [Station; 2],
}

impl Link {
    fn station(&mut self, side: Side) -> &mut Station {
        &mut self.stations[side as usize]
    }
}

/// A queue that its thread runs, and the message that it runs it with.
pub(crate) struct Job {
    id: PlaceId,
    pub(crate) name: String,
    side: Side,
    carrier: Carrier,
    queue: Box<dyn Queue>,
    work: Option<Waiting>,
    /// `svc` may be run, too.
    serves: bool,
    passed: Passed,
    ended: bool,
    error: Option<String>,
    /// The place of the next queue when this was claimed. Only a planted mistake looks at it.
    next_then: Option<PlaceId>,
}

impl Job {
    /// Runs the queue: no lock is held.
    pub(crate) fn run(&mut self) {
        let Some(waiting) = self.work.take() else { return };
        let (queue, passed) = (&mut self.queue, &mut self.passed);
        let result = match waiting.item {
            Item::End => {
                self.ended = true;
                queue.end(passed)
            }
            Item::Message(message) => {
                let left = if waiting.seen { Ok(Some(message)) } else { queue.put(message, passed) };
                match left {
                    Ok(Some(message)) if self.serves => queue.svc(message, passed),
                    Ok(Some(message)) => {
                        self.work = Some(Waiting { item: Item::Message(message), seen: true, ..waiting });
                        Ok(())
                    }
                    Ok(None) => Ok(()),
                    Err(error) => Err(error),
                }
            }
        };
        self.error = result.err();
    }
}

/// See the head of the file. The first link is the bottom, the last the head, which the application uses.
pub(crate) struct Chain {
    links: Vec<Link>,
    places: u64,
    carriers: Carrier,
    /// Why nothing moves any more.
    pub(crate) failure: Option<StreamError>,
    /// A thread waits for the bottom's next message.
    pub(crate) receiving: bool,
    /// The bottom has said that no more comes.
    pub(crate) received_all: bool,
    /// The application has said that no more comes.
    pub(crate) written_all: bool,
    /// A module is being taken out: nothing enters at either end.
    pub(crate) held_off: bool,
}

impl Chain {
    /// A chain without modules: what is written goes to `bottom`.
    pub(crate) fn new(bottom: Box<dyn Queue>, marks: WaterMarks) -> Chain {
        let mut chain = Chain {
            links: Vec::new(),
            places: 0,
            carriers: ANYONE,
            failure: None,
            receiving: false,
            received_all: false,
            written_all: false,
            held_off: false,
        };
        for (name, write) in [("bottom", Some(bottom)), ("head", None)] {
            let stations = [Station::new(None), Station::new(write)];
            let id = chain.place();
            chain.links.push(Link { id, name: name.to_owned(), marks, stations });
        }
        chain
    }

    fn place(&mut self) -> PlaceId {
        self.places += 1;
        PlaceId(self.places)
    }

    /// A carrier that nobody else is.
    pub(crate) fn carrier(&mut self) -> Carrier {
        self.carriers += 1;
        self.carriers
    }

    fn at(&self, id: PlaceId) -> Option<usize> {
        self.links.iter().position(|link| link.id == id)
    }

    fn top(&self) -> usize {
        self.links.len() - 1
    }

    fn next(&self, at: usize, side: Side) -> Option<usize> {
        match side {
            Side::Read => Some(at + 1).filter(|next| *next < self.links.len()),
            Side::Write => at.checked_sub(1),
        }
    }

    /// The modules, from the top to the bottom.
    pub(crate) fn names(&self) -> Vec<String> {
        self.links[1..self.top()].iter().rev().map(|link| link.name.clone()).collect()
    }

    /// The places of everything that has a queue to run: the bottom and the modules, from the bottom.
    pub(crate) fn places(&self) -> Vec<(PlaceId, String)> {
        self.links[..self.top()].iter().map(|link| (link.id, link.name.clone())).collect()
    }

    /// The place of the module with this name.
    pub(crate) fn named(&self, name: &str) -> Option<PlaceId> {
        self.links[1..self.top()].iter().find(|link| link.name == name).map(|link| link.id)
    }

    /// The place of the module at the top.
    pub(crate) fn topmost(&self) -> Option<PlaceId> {
        let modules = &self.links[1..self.top()];
        modules.last().map(|link| link.id)
    }

    /// Whether a message may enter on this side.
    pub(crate) fn has_room(&self, side: Side) -> bool {
        let entry = match side {
            Side::Read => 1,
            Side::Write => self.top() - 1,
        };
        !self.held_off && !self.links[entry].stations[side as usize].full
    }

    /// Whether nothing waits or runs on the write side.
    pub(crate) fn has_sent_all(&self) -> bool {
        let stations = self.links[..self.top()].iter().map(|link| &link.stations[Side::Write as usize]);
        stations.into_iter().all(|station| station.queue.is_some() && station.waiting.is_empty())
    }

    /// A message, or the end, enters. There should be [room](Chain::has_room); a message that has been received meanwhile
    /// enters without.
    pub(crate) fn enter(&mut self, side: Side, message: Option<Message>, carrier: Carrier) {
        let item = message.map_or(Item::End, Item::Message);
        let entry = match side {
            Side::Read => 1,
            Side::Write => self.top() - 1,
        };
        self.put(entry, side, Waiting { item, carrier, seen: false });
    }

    fn put(&mut self, at: usize, side: Side, waiting: Waiting) {
        let link = &mut self.links[at];
        let marks = link.marks;
        link.station(side).put(waiting, marks);
    }

    /// The next message for the application; `Some(None)`: the end, which stays.
    pub(crate) fn take_top(&mut self) -> Option<Option<Message>> {
        let top = self.top();
        let link = &mut self.links[top];
        let marks = link.marks;
        let station = link.station(Side::Read);
        if matches!(station.waiting.front()?.item, Item::End) {
            return Some(None);
        }
        match station.take(marks)?.item {
            Item::Message(message) => Some(Some(message)),
            Item::End => Some(None),
        }
    }

    /// Takes out the queue that `who` may run next, furthest along the way first, and its first message.
    pub(crate) fn claim(&mut self, who: Claimant) -> Option<Job> {
        if self.failure.is_some() {
            return None;
        }
        let last = self.top() - 1;
        let read = (1..=last).rev().map(|at| (at, Side::Read));
        let write = (0..=last).map(|at| (at, Side::Write));
        let (at, side, serves) = read.chain(write).find_map(|(at, side)| {
            let serves = self.may_run(at, side, who)?;
            Some((at, side, serves))
        })?;
        let next_then = self.next(at, side).map(|next| self.links[next].id);
        let link = &mut self.links[at];
        let (id, name, marks) = (link.id, link.name.clone(), link.marks);
        let station = link.station(side);
        let (queue, work) = (station.queue.take()?, station.take(marks)?);
        let carrier = match who {
            Claimant::Owner(_, carrier) | Claimant::Bringer(carrier) | Claimant::Shepherd(_, carrier) => carrier,
            Claimant::Caller(_) | Claimant::Changer(_) => ANYONE,
        };
        let passed = Passed::default();
        Some(Job {
            id,
            name,
            side,
            carrier,
            queue,
            work: Some(work),
            serves,
            passed,
            ended: false,
            error: None,
            next_then,
        })
    }

    /// Whether `who` may run this queue now, and if so, whether `svc`, too.
    fn may_run(&self, at: usize, side: Side, who: Claimant) -> Option<bool> {
        let link = &self.links[at];
        let station = &link.stations[side as usize];
        let first = station.waiting.front().filter(|_| station.queue.is_some())?;
        let serves = match who {
            Claimant::Caller(of) => (of == side).then_some(true),
            Claimant::Shepherd(of, carrier) => {
                (of == side && (first.carrier == carrier || first.carrier == ANYONE)).then_some(true)
            }
            Claimant::Owner(id, _) if id == link.id => Some(true),
            Claimant::Owner(_, carrier) | Claimant::Bringer(carrier) => {
                let immediate = first.carrier == carrier && !first.seen && matches!(first.item, Item::Message(_));
                immediate.then_some(false)
            }
            Claimant::Changer(id) => self.is_before(at, side, id).then_some(true),
        }?;
        let is_changer = matches!(who, Claimant::Changer(_));
        let accepted = self.next(at, side).is_none_or(|next| !self.links[next].stations[side as usize].full);
        (accepted || is_changer).then_some(serves)
    }

    /// Whether a message at this queue has still to pass the module at `id`, or is there.
    fn is_before(&self, at: usize, side: Side, id: PlaceId) -> bool {
        self.at(id).is_some_and(|module| match side {
            Side::Read => at <= module,
            Side::Write => at >= module,
        })
    }

    /// Whether `who` should wait for more to claim.
    pub(crate) fn has_more(&self, who: Claimant) -> bool {
        match who {
            Claimant::Shepherd(side, carrier) => self.links.iter().enumerate().any(|(at, link)| {
                // What has arrived at the head is no longer carried.
                let carried = at < self.top();
                carried && link.stations[side as usize].waiting.iter().any(|waiting| waiting.carrier == carrier)
            }),
            Claimant::Owner(id, _) => self.at(id).is_some(),
            Claimant::Caller(_) | Claimant::Bringer(_) | Claimant::Changer(_) => false,
        }
    }

    /// Brings a queue back, and puts what it has passed on at the next one.
    pub(crate) fn complete<P: Platform>(&mut self, job: Job) {
        let Some(at) = self.at(job.id) else { return };
        let Job { side, carrier, queue, work, passed, ended, error, next_then, .. } = job;
        let link = &mut self.links[at];
        let marks = link.marks;
        let station = link.station(side);
        station.queue = Some(queue);
        if let Some(left) = work {
            station.put_back(left, marks);
        }
        if let Some(reason) = error {
            self.fail(match at {
                0 => StreamError::Bottom(reason),
                _ => StreamError::Module { module: job.name, reason },
            });
        }
        // The place of the next queue now: it may be another than when this was claimed.
        let next = match next_then {
            Some(then) if P::makes(PlantedMistake::StaleSuccessor) => self.at(then),
            _ => self.next(at, side),
        };
        if let Some(next) = next {
            let messages = passed.0.into_iter().map(Item::Message).chain(ended.then_some(Item::End));
            messages.for_each(|item| self.put(next, side, Waiting { item, carrier, seen: false }));
        }
    }

    /// Ends the stream; the first reason stays.
    pub(crate) fn fail(&mut self, reason: StreamError) {
        self.failure.get_or_insert(reason);
    }

    /// Puts a module at the top. What has arrived at the head does not pass it, and all that is written from now on does.
    pub(crate) fn push(&mut self, module: Module) -> PlaceId {
        let id = self.place();
        let Module { name, marks, read, write } = module;
        let stations = [Station::new(Some(read)), Station::new(Some(write))];
        let top = self.top();
        self.links.insert(top, Link { id, name, marks, stations });
        id
    }

    /// Takes the queues of a module out, once nothing is on the way to them. `None`: not yet.
    pub(crate) fn take_queues(&mut self, id: PlaceId) -> Option<Module> {
        let module = self.at(id)?;
        let queues = Side::BOTH.into_iter().flat_map(|side| (0..self.top()).map(move |at| (at, side)));
        let under_way = queues.filter(|(at, side)| self.is_before(*at, *side, id)).any(|(at, side)| {
            let station = &self.links[at].stations[side as usize];
            let runs = station.queue.is_none() && !(at == 0 && side == Side::Read);
            runs || !station.waiting.is_empty()
        });
        if under_way {
            return None;
        }
        let link = &mut self.links[module];
        let [read, write] = &mut link.stations;
        let (read, write) = (read.queue.take()?, write.queue.take()?);
        Some(Module { name: link.name.clone(), marks: link.marks, read, write })
    }

    /// Takes a module's link out, once its queues were taken out and closed. What these passed on goes to the next queue, and
    /// behind it what has arrived at them since.
    pub(crate) fn unlink<P: Platform>(&mut self, id: PlaceId, closed: [Passed; 2]) {
        let Some(at) = self.at(id) else { return };
        for (side, passed) in Side::BOTH.into_iter().zip(closed) {
            let Some(next) = self.next(at, side) else { continue };
            let held = passed.0.into_iter().map(Waiting::left_by_a_change);
            let mut arrived = std::mem::take(&mut self.links[at].station(side).waiting);
            if P::makes(PlantedMistake::ForgottenArrivals) {
                arrived.clear();
            }
            if P::makes(PlantedMistake::LeftoversLast) {
                let moved: Vec<Waiting> = arrived.into_iter().chain(held).collect();
                moved.into_iter().for_each(|waiting| self.put(next, side, waiting));
                continue;
            }
            held.chain(arrived).for_each(|waiting| self.put(next, side, waiting));
        }
        self.links.remove(at);
    }

    /// Puts `new` in the place of a module, once its queues were taken out and closed. What these passed on goes to the next
    /// queue; what has arrived at them since is for the new ones.
    pub(crate) fn exchange(&mut self, id: PlaceId, closed: [Passed; 2], new: Module) -> Option<PlaceId> {
        let at = self.at(id)?;
        for (side, passed) in Side::BOTH.into_iter().zip(closed) {
            let next = self.next(at, side)?;
            passed.0.into_iter().for_each(|message| self.put(next, side, Waiting::left_by_a_change(message)));
        }
        let id = self.place();
        let link = &mut self.links[at];
        let Module { name, marks, read, write } = new;
        (link.id, link.name, link.marks) = (id, name, marks);
        link.station(Side::Read).queue = Some(read);
        link.station(Side::Write).queue = Some(write);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use sync::Real;

    use super::*;

    /// Passes messages on, after it has counted them.
    struct PassesOn;

    impl Queue for PassesOn {
        fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
            to.on(message);
            Ok(())
        }
    }

    fn plain(name: &str, low: usize, high: usize) -> Module {
        Module::new(name, PassesOn, PassesOn).marks(WaterMarks::new(low, high))
    }

    fn enter(chain: &mut Chain, side: Side, first: u8, count: u8) {
        for n in first..first + count {
            chain.enter(side, Some(Message::bytes([n; 10])), 7);
        }
    }

    /// Runs what the claimant may run; how many calls that were.
    fn run(chain: &mut Chain, who: Claimant) -> usize {
        let mut count = 0;
        while let Some(mut job) = chain.claim(who) {
            job.run();
            chain.complete::<Real>(job);
            count += 1;
        }
        count
    }

    fn top(chain: &mut Chain) -> Vec<u8> {
        std::iter::from_fn(|| chain.take_top().flatten()).map(|message| message.as_bytes().unwrap()[0]).collect()
    }

    /// STREAMS: a queue that has reached its high-water mark stops the one before it until it has fallen to its low-water mark.
    #[test]
    fn a_full_queue_stops_the_one_before_it_until_it_has_fallen_to_its_low_water_mark() {
        let mut chain = Chain::new(Box::new(PassesOn), WaterMarks::new(10, 30));
        let below = chain.push(plain("below", 20, 40));
        let owner = Claimant::Owner(below, 99);
        enter(&mut chain, Side::Read, 0, 9);
        // The head takes three messages of 10 bytes: then it is full.
        assert_eq!(run(&mut chain, owner), 3);
        // It stays full with 20 bytes, and takes again from 10 bytes on.
        assert_eq!(chain.take_top().flatten().unwrap().as_bytes().unwrap()[0], 0);
        assert_eq!(run(&mut chain, owner), 0, "enabled above the low-water mark");
        assert_eq!(chain.take_top().flatten().unwrap().as_bytes().unwrap()[0], 1);
        assert_eq!(run(&mut chain, owner), 2);
        // The same between the module and who enters: 40 bytes wait.
        assert!(!chain.has_room(Side::Read));
        assert_eq!((top(&mut chain), run(&mut chain, owner)), (vec![2, 3, 4], 3));
        assert!(chain.has_room(Side::Read), "10 bytes wait");
    }

    #[test]
    fn what_one_call_passes_on_is_taken_as_a_whole() {
        struct SplitsMessages;
        impl Queue for SplitsMessages {
            fn svc(&mut self, message: Message, to: &mut Passed) -> Result<(), String> {
                message.as_bytes().unwrap().iter().for_each(|byte| to.on(Message::bytes([*byte; 10])));
                Ok(())
            }
        }
        let mut chain = Chain::new(Box::new(PassesOn), WaterMarks::new(0, 20));
        chain.push(Module::new("splits", SplitsMessages, PassesOn));
        for first in [0, 10] {
            let bytes: Vec<u8> = (first..first + 5).collect();
            chain.enter(Side::Read, Some(bytes.into()), 7);
        }
        assert_eq!(run(&mut chain, Claimant::Caller(Side::Read)), 1);
        assert_eq!(top(&mut chain), [0, 1, 2, 3, 4]);
        assert_eq!(run(&mut chain, Claimant::Caller(Side::Read)), 1);
        assert_eq!(top(&mut chain), [10, 11, 12, 13, 14]);
    }

    #[test]
    fn a_queue_in_use_is_nobody_elses_and_only_its_first_message_is_claimed() {
        let mut chain = Chain::new(Box::new(PassesOn), WaterMarks::default());
        chain.push(plain("only", 0, 1000));
        chain.enter(Side::Read, Some(Message::bytes([0])), 1);
        chain.enter(Side::Read, Some(Message::bytes([1])), 2);
        assert!(chain.claim(Claimant::Shepherd(Side::Read, 2)).is_none(), "it overtakes");
        let mut job = chain.claim(Claimant::Shepherd(Side::Read, 1)).expect("the first");
        for who in [Claimant::Shepherd(Side::Read, 2), Claimant::Caller(Side::Read)] {
            assert!(chain.claim(who).is_none(), "two use a queue");
        }
        assert!(chain.has_more(Claimant::Shepherd(Side::Read, 2)));
        job.run();
        chain.complete::<Real>(job);
        assert_eq!(run(&mut chain, Claimant::Shepherd(Side::Read, 2)), 1);
        assert_eq!(top(&mut chain), [0, 1]);
        assert!(!chain.has_more(Claimant::Shepherd(Side::Read, 2)));
    }

    /// A message is taken as far as it goes before the next one is begun.
    #[test]
    fn the_work_furthest_along_comes_first() {
        for side in Side::BOTH {
            let mut chain = Chain::new(Box::new(PassesOn), WaterMarks::default());
            for name in ["below", "above"] {
                chain.push(plain(name, 0, 1000));
            }
            enter(&mut chain, side, 0, 2);
            let mut names = Vec::new();
            while let Some(mut job) = chain.claim(Claimant::Caller(side)) {
                names.push(job.name.clone());
                job.run();
                chain.complete::<Real>(job);
            }
            let expected: &[&str] = match side {
                Side::Read => &["below", "above", "below", "above"],
                Side::Write => &["above", "below", "bottom", "above", "below", "bottom"],
            };
            assert_eq!(names, expected);
        }
    }

    #[test]
    fn a_bringer_runs_only_the_immediate_part_and_only_in_order() {
        let mut chain = Chain::new(Box::new(PassesOn), WaterMarks::default());
        let only = chain.push(plain("only", 0, 1000));
        enter(&mut chain, Side::Write, 0, 2);
        // `put` of the first message: it has work for `svc`, and so the second one waits behind it.
        assert_eq!(run(&mut chain, Claimant::Bringer(7)), 1);
        assert_eq!(run(&mut chain, Claimant::Bringer(7)), 0);
        // Its owner runs what is left of the first, the whole second, and brings both to the bottom.
        assert_eq!(run(&mut chain, Claimant::Owner(only, 8)), 3);
    }
}
