//! Insertion and removal of modules: the links of a [`Chain`]. `change.rs` calls these functions in order.

use sync::{PlantedMistake, Platform};

use super::waiting_messages::Waiting;
use super::{Chain, ChainQueue, Link, PlaceId};
use crate::queue::{Module, Passed, Side};

impl Chain {
    /// Puts a module at the top. Messages that have arrived at the head do not pass through it; all that are written
    /// from now on do.
    pub(crate) fn push(&mut self, module: Module) -> PlaceId {
        let id = self.place();
        let Module { name, marks, read, write } = module;
        let queues = [read, write].map(|queue| ChainQueue::new(Some(queue), marks));
        let top = self.top();
        self.links.insert(top, Link { id, name: name.into(), marks, queues });
        id
    }

    /// Takes the queues of a module out, once no message is on its way to them. `None`: not yet.
    pub(crate) fn take_queues(&mut self, id: PlaceId) -> Option<Module> {
        let module = self.at(id)?;
        let queues = Side::BOTH.into_iter().flat_map(|side| (0..self.top()).map(move |at| (at, side)));
        let under_way = queues.filter(|(at, side)| self.is_before(*at, *side, id)).any(|(at, side)| {
            let queue = self.links[at].of(side);
            let runs = queue.queue.is_none() && !(at == 0 && side == Side::Read);
            runs || !queue.input.is_empty()
        });
        if under_way {
            return None;
        }
        let link = &mut self.links[module];
        let [read, write] = &mut link.queues;
        let (read, write) = (read.queue.take()?, write.queue.take()?);
        Some(Module { name: link.name.to_string(), marks: link.marks, read, write })
    }

    /// Takes a module's link out, once its queues were taken out and closed. The messages that these passed on go to
    /// the next queue, followed by those that have arrived since.
    pub(crate) fn unlink<P: Platform>(&mut self, id: PlaceId, closed: [Passed; 2]) {
        let Some(at) = self.at(id) else { return };
        for (side, passed) in Side::BOTH.into_iter().zip(closed) {
            let Some(next) = self.next(at, side) else { continue };
            let held = passed.0.into_iter().map(Waiting::left_by_a_change);
            let mut arrived = self.links[at].of_mut(side).input.take_all();
            if P::makes(PlantedMistake::ForgottenArrivals) {
                arrived.clear();
            }
            let moved: Vec<Waiting> = match P::makes(PlantedMistake::LeftoversLast) {
                false => held.chain(arrived).collect(),
                true => arrived.into_iter().chain(held).collect(),
            };
            moved.into_iter().for_each(|waiting| self.put(next, side, waiting));
        }
        self.links.remove(at);
    }

    /// Puts `new` in the place of a module, once its queues were taken out and closed. The messages that these passed
    /// on go to the next queue; those that have arrived since are for the new ones.
    pub(crate) fn exchange(&mut self, id: PlaceId, closed: [Passed; 2], new: Module) -> Option<PlaceId> {
        let at = self.at(id)?;
        for (side, passed) in Side::BOTH.into_iter().zip(closed) {
            let next = self.next(at, side)?;
            passed.0.into_iter().for_each(|message| self.put(next, side, Waiting::left_by_a_change(message)));
        }
        let id = self.place();
        let link = &mut self.links[at];
        let Module { name, marks, read, write } = new;
        (link.id, link.name, link.marks) = (id, name.into(), marks);
        for (own, queue) in link.queues.iter_mut().zip([read, write]) {
            own.queue = Some(queue);
            own.input.set_marks(marks);
        }
        Some(id)
    }
}
