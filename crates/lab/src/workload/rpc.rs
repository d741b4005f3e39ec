//! Request/response: each connection has one request outstanding, all the time.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use heddle::{Event, Polled, Poller, Source, TcpStream};

use super::world::{End, Opener, World};
use super::{Params, drive};
use crate::worker_pool::{Sample, Work};

const EVENTS: usize = 64;
/// One thread's share.
pub(super) struct Rpc {
    drivers: Vec<Polled>,
    opener: Opener,
    poller: Poller,
    events: Vec<Event>,
    ends: Vec<Half>,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

/// One end, and the bytes received of the expected message.
struct Half {
    end: End,
    received: usize,
    started: bool,
}

impl Rpc {
    pub fn new(world: &mut World, params: &Params, thread: u32) -> Rpc {
        Rpc {
            drivers: world.take_drivers(thread),
            opener: world.opener(thread, params.effective_threads()),
            poller: Poller::new().expect("a poller needs one file descriptor"),
            events: Vec::with_capacity(EVENTS),
            ends: Vec::new(),
            request: vec![b'r'; params.request.max(1)],
            buffer: vec![0; 64 << 10],
        }
    }

    fn open(&mut self) -> io::Result<()> {
        let (ends, poller) = (&mut self.ends, &self.poller);
        self.opener.step(|end| {
            match &end {
                End::Client(stream) | End::Server(stream) => stream.register(poller, ends.len()),
            }
            ends.push(Half { end, received: 0, started: false });
        })
    }

    fn serve(&mut self, sample: &mut Sample) -> io::Result<bool> {
        if self.poller.try_wait(&mut self.events, EVENTS) == 0 {
            return Ok(false);
        }
        for event in &self.events {
            let half = &mut self.ends[event.token];
            let length = self.request.len();
            match &half.end {
                End::Client(stream) => {
                    if !half.started {
                        half.started = true;
                        write(stream, &self.request)?;
                    }
                    for _ in 0..complete(stream, &mut half.received, length, &mut self.buffer)? {
                        sample.operations += 1;
                        sample.bytes += 2 * length as u64;
                        write(stream, &self.request)?;
                    }
                }
                End::Server(stream) => {
                    for _ in 0..complete(stream, &mut half.received, length, &mut self.buffer)? {
                        write(stream, &self.request)?;
                    }
                }
            }
        }
        Ok(true)
    }
}

fn write(mut stream: &TcpStream, message: &[u8]) -> io::Result<()> {
    let written = stream.write(message)?;
    if written == message.len() {
        return Ok(());
    }
    Err(io::Error::other("one message at a time must fit the send buffer: make the request smaller"))
}

/// Reads the available data and returns the number of completed messages.
fn complete(mut stream: &TcpStream, received: &mut usize, length: usize, buffer: &mut [u8]) -> io::Result<usize> {
    let mut messages = 0;
    loop {
        match stream.read(buffer) {
            Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "a peer closed")),
            Ok(count) => {
                *received += count;
                messages += *received / length;
                *received %= length;
                if count < buffer.len() {
                    // A short read emptied the queue; later data is a new edge.
                    return Ok(messages);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(messages),
            Err(error) => return Err(error),
        }
    }
}

impl Work for Rpc {
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
