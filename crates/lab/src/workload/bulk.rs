//! Bulk data: every sender sends message after message, every receiver reads.

use std::io;
use std::time::Instant;

use heddle::{Event, Polled, Poller, Source};

use super::traffic::{self, Traffic};
use super::world::{End, Opener, World};
use super::{Params, drive};
use crate::worker_pool::{Sample, Work};

/// Events taken from the poller at a time.
const EVENTS: usize = 64;

/// One thread's share.
pub(super) struct Bulk {
    drivers: Vec<Polled>,
    opener: Opener,
    poller: Poller,
    events: Vec<Event>,
    ends: Vec<End>,
    /// Bytes that each end has received in this slice.
    received: Vec<u64>,
    traffic: Box<dyn Traffic>,
}

impl Bulk {
    pub fn new(world: &mut World, params: &Params, thread: u32) -> Bulk {
        Bulk {
            drivers: world.take_drivers(thread),
            opener: world.opener(thread, params.effective_threads()),
            poller: Poller::new().expect("a poller needs one file descriptor"),
            events: Vec::with_capacity(EVENTS),
            ends: Vec::new(),
            received: Vec::new(),
            traffic: traffic::of(params),
        }
    }

    /// Opens the remaining connections; data flows from the first one on, so opening is part of warm-up.
    fn open(&mut self) -> io::Result<()> {
        let (ends, received, poller) = (&mut self.ends, &mut self.received, &self.poller);
        self.opener.step(|end| {
            match &end {
                End::Client(stream) | End::Server(stream) => stream.register(poller, ends.len()),
            }
            ends.push(end);
            received.push(0);
        })
    }

    /// Serves ready connections. Returns whether there were any.
    fn serve(&mut self, sample: &mut Sample) -> io::Result<bool> {
        if self.poller.try_wait(&mut self.events, EVENTS) == 0 {
            return Ok(false);
        }
        for event in &self.events {
            let index = event.token;
            match &self.ends[index] {
                End::Client(stream) => self.traffic.send(index, stream)?,
                End::Server(stream) => {
                    let before = sample.bytes;
                    self.traffic.receive(index, stream, sample)?;
                    self.received[index] += sample.bytes - before;
                }
            }
        }
        Ok(true)
    }
}

impl Work for Bulk {
    fn run(&mut self, deadline: Instant, sample: &mut Sample) -> io::Result<()> {
        // Moved out for the loop, so that a step may borrow the rest.
        let mut drivers = std::mem::take(&mut self.drivers);
        let result = drive(&mut drivers, deadline, || {
            if !self.opener.done() {
                self.open()?;
            }
            self.serve(sample)
        });
        self.drivers = drivers;
        let receivers = self.ends.iter().zip(&mut self.received).filter(|(end, _)| matches!(end, End::Server(_)));
        sample.by_connection.extend(receivers.map(|(_, bytes)| std::mem::take(bytes)));
        result
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Not those of earlier slices as well.
    #[test]
    fn the_bytes_of_connections_are_those_of_the_slice() {
        let params = Params { connections: 3, threads: 1, ..Params::new("up".parse().unwrap()) };
        let mut world = World::new(&params).unwrap();
        let mut bulk = Bulk::new(&mut world, &params, 0);
        world.clock.go_on();
        let mut delivered = 0;
        // The first slice opens the connections, however busy the machine is.
        while delivered < 3 {
            let mut sample = Sample::default();
            bulk.run(Instant::now() + Duration::from_millis(10), &mut sample).unwrap();
            assert_eq!(sample.by_connection.iter().sum::<u64>(), sample.bytes, "{sample:?}");
            delivered += usize::from(world.is_open() && sample.bytes > 0);
        }
    }
}
