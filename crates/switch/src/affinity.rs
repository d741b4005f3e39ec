//! Which worker polls which receive queue: the assignment of new queues, and moves of existing ones.
//!
//! The control plane decides which worker polls a queue ([`Affinity`], under its lock). Workers pass the queue on
//! between two polls ([`Parting`](crate::worker::Parting)), so that one worker at a time has it, and transmits every
//! frame that it has taken before the next worker takes another. The state here is that after all moves in progress.

use std::ops::Range;
use std::sync::Arc;

use sync::Platform;

use crate::interrupt::{AffinityError, InterruptController, InterruptKind};
use crate::port::BridgePort;
use crate::shared::SharedBridge;

/// See the head of the file.
pub(crate) struct Affinity {
    pub(crate) kind: InterruptKind,
    pub(crate) controller: InterruptController,
    /// A queue was moved at some time: workers no longer own transmit queues exclusively.
    pub(crate) has_moved: bool,
    /// By processor.
    shielded: Vec<bool>,
    /// By number of the port, then by queue.
    places: Vec<Vec<QueuePlace>>,
}

/// The assignment of a queue.
#[derive(Clone, Copy)]
struct QueuePlace {
    worker: usize,
    /// The number of its arrivals at a worker once all moves are done.
    arrivals: u64,
}

/// A move of a queue from one worker to another.
pub(crate) struct QueueMove<P: Platform> {
    pub(crate) port: Arc<BridgePort<P>>,
    pub(crate) index: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    arrivals: u64,
}

impl Affinity {
    pub(crate) fn new(processors: usize, kind: InterruptKind) -> Affinity {
        let controller = InterruptController::new(processors);
        Affinity { kind, controller, has_moved: false, shielded: vec![false; processors], places: Vec::new() }
    }

    /// The workers of the queues of a new port.
    pub(crate) fn place<P: Platform>(&mut self, port: &BridgePort<P>, queues: usize) -> Vec<usize> {
        let at = port.number.index();
        if self.places.len() <= at {
            self.places.resize(at + 1, Vec::new());
        }
        let workers = self.spread(port, queues);
        self.places[at] = workers.iter().map(|&worker| QueuePlace { worker, arrivals: 1 }).collect();
        workers
    }

    /// Queue n goes to processor n of those that take interrupts; ports with one queue are spread over them. Queues
    /// that share a vector stay together.
    fn spread<P: Platform>(&self, port: &BridgePort<P>, queues: usize) -> Vec<usize> {
        let open: Vec<usize> = (0..self.shielded.len()).filter(|processor| !self.shielded[*processor]).collect();
        let one_by_one = port.vectors.kind().moves_one_by_one();
        let first = if queues == 1 || !one_by_one { port.number.index() } else { 0 };
        let place = |index| open[(first + if one_by_one { index } else { 0 }) % open.len()];
        (0..queues).map(place).collect()
    }

    /// Removes a port.
    pub(crate) fn forget<P: Platform>(&mut self, port: &BridgePort<P>) {
        self.controller.release(port.vectors.allocated());
    }

    pub(crate) fn move_to<P: Platform>(
        &mut self,
        port: &Arc<BridgePort<P>>,
        queues: Range<usize>,
        processor: usize,
    ) -> Result<Vec<QueueMove<P>>, AffinityError> {
        match self.shielded.get(processor) {
            None => return Err(AffinityError::NoProcessor),
            Some(true) => return Err(AffinityError::Shielded),
            Some(false) => {}
        }
        let mut moves = Vec::new();
        queues.for_each(|index| moves.extend(self.change(port, index, processor)));
        Ok(moves)
    }

    pub(crate) fn shield<P: Platform>(
        &mut self,
        ports: &[Arc<BridgePort<P>>],
        processor: usize,
        shielded: bool,
    ) -> Result<Vec<QueueMove<P>>, AffinityError> {
        if processor >= self.shielded.len() {
            return Err(AffinityError::NoProcessor);
        }
        let others = (0..self.shielded.len()).any(|other| other != processor && !self.shielded[other]);
        if shielded && !others {
            return Err(AffinityError::Last);
        }
        self.shielded[processor] = shielded;
        let mut moves = Vec::new();
        for port in ports {
            let now = self.places[port.number.index()].clone();
            for (index, to) in self.spread(port, now.len()).into_iter().enumerate() {
                // The queues of the others stay.
                if self.shielded[now[index].worker] {
                    moves.extend(self.change(port, index, to));
                }
            }
        }
        Ok(moves)
    }

    pub(crate) fn distribute<P: Platform>(&mut self, ports: &[Arc<BridgePort<P>>]) -> Vec<QueueMove<P>> {
        let mut moves = Vec::new();
        for port in ports {
            let queues = self.places[port.number.index()].len();
            for (index, to) in self.spread(port, queues).into_iter().enumerate() {
                moves.extend(self.change(port, index, to));
            }
        }
        moves
    }

    pub(crate) fn shielded(&self) -> Vec<usize> {
        (0..self.shielded.len()).filter(|processor| self.shielded[*processor]).collect()
    }

    fn change<P: Platform>(&mut self, port: &Arc<BridgePort<P>>, index: usize, to: usize) -> Option<QueueMove<P>> {
        let place = self.places.get_mut(port.number.index())?.get_mut(index)?;
        if place.worker == to {
            return None;
        }
        let from = std::mem::replace(&mut place.worker, to);
        place.arrivals += 1;
        Some(QueueMove { port: port.clone(), index, from, to, arrivals: place.arrivals })
    }
}

/// Moves that workers make.
pub struct Relocation<'a, P: Platform> {
    shared: &'a SharedBridge<P>,
    moves: Vec<QueueMove<P>>,
}

impl<'a, P: Platform> Relocation<'a, P> {
    pub(crate) fn new(shared: &'a SharedBridge<P>, moves: Vec<QueueMove<P>>) -> Self {
        Relocation { shared, moves }
    }

    /// Queues that move.
    pub fn queues(&self) -> usize {
        self.moves.len()
    }

    /// Whether every queue has arrived at its worker, or cannot arrive because its port or one of the workers is gone.
    pub fn is_complete(&self) -> bool {
        let is_done = |QueueMove { port, index, from, to, arrivals }: &QueueMove<P>| {
            port.vectors.arrivals(*index) >= *arrivals
                || port.is_stopping(*index)
                || !self.shared.is_manned(*from)
                || !self.shared.is_manned(*to)
        };
        self.moves.iter().all(is_done)
    }

    /// Waits until every queue has arrived. The workers must be running, on other threads.
    pub fn wait(&self) {
        let mut spins = 0;
        while !self.is_complete() {
            P::relax(spins);
            spins = spins.saturating_add(1);
        }
    }
}
