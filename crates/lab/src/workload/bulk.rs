//! Bulk data: every sender sends message after message, every receiver reads.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Instant;

use heddle::{Event, Polled, Poller, Source, TcpStream};

use super::world::{End, Opener, World};
use super::{Params, SendMode, drive};
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
    payload: Arc<[u8]>,
    send: SendMode,
    buffer: Vec<u8>,
}

impl Bulk {
    pub fn new(world: &mut World, params: &Params, thread: u32) -> Bulk {
        Bulk {
            drivers: world.take_drivers(thread),
            opener: world.opener(thread, params.effective_threads()),
            poller: Poller::new().expect("a poller needs one file descriptor"),
            events: Vec::with_capacity(EVENTS),
            ends: Vec::new(),
            payload: (0..params.message).map(|n| n as u8).collect(),
            send: params.send,
            buffer: vec![0; params.message],
        }
    }

    /// Opens the remaining connections; data flows from the first one on, so opening is part of warm-up.
    fn open(&mut self) -> io::Result<()> {
        let (ends, poller) = (&mut self.ends, &self.poller);
        self.opener.step(|end| {
            match &end {
                End::Client(stream) | End::Server(stream) => stream.register(poller, ends.len()),
            }
            ends.push(end);
        })
    }

    /// Serves ready connections. Returns whether there were any.
    fn serve(&mut self, sample: &mut Sample) -> io::Result<bool> {
        if self.poller.try_wait(&mut self.events, EVENTS) == 0 {
            return Ok(false);
        }
        for event in &self.events {
            match &self.ends[event.token] {
                End::Client(stream) => send(stream, &self.payload, self.send)?,
                End::Server(stream) => receive(stream, &mut self.buffer, sample)?,
            }
        }
        Ok(true)
    }
}

/// Sends messages until the stack takes no more.
fn send(stream: &TcpStream, payload: &Arc<[u8]>, mode: SendMode) -> io::Result<()> {
    loop {
        let result = match mode {
            SendMode::Shared => stream.send_shared(payload, 0..payload.len()),
            SendMode::Write => {
                let mut stream = stream;
                stream.write(payload)
            }
        };
        match result {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Reads until there is nothing left.
fn receive(mut stream: &TcpStream, buffer: &mut [u8], sample: &mut Sample) -> io::Result<()> {
    loop {
        match stream.read(buffer) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "a sender closed")),
            Ok(count) => {
                sample.bytes += count as u64;
                sample.operations += 1;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
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
        result
    }
}
