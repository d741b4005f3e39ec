//! Request/response: each connection has one request outstanding, all the time.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Instant;

use heddle::{Event, Polled, Poller, Source, TcpStream};

use super::world::{End, Opener, World, share};
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
    /// Clients that have still to send their first request; those opened after them stay idle.
    to_start: u32,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

/// One end, and the bytes received of the expected message.
struct Half {
    end: End,
    received: usize,
    started: bool,
    /// Responses in this slice, at a client.
    responses: u64,
}

impl Rpc {
    pub fn new(world: &mut World, params: &Params, thread: u32) -> Rpc {
        Rpc {
            drivers: world.take_drivers(thread),
            opener: world.opener(thread, params.effective_threads()),
            poller: Poller::new().expect("a poller needs one file descriptor"),
            events: Vec::with_capacity(EVENTS),
            ends: Vec::new(),
            to_start: share(params.connections, thread, params.effective_threads()),
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
            ends.push(Half { end, received: 0, started: false, responses: 0 });
        })
    }

    fn serve(&mut self) -> io::Result<bool> {
        if self.poller.try_wait(&mut self.events, EVENTS) == 0 {
            return Ok(false);
        }
        for event in &self.events {
            let half = &mut self.ends[event.token];
            let length = self.request.len();
            match &half.end {
                End::Client(stream) => {
                    if !half.started && self.to_start > 0 {
                        (half.started, self.to_start) = (true, self.to_start - 1);
                        write(stream, &self.request)?;
                    }
                    for _ in 0..complete(stream, &mut half.received, length, &mut self.buffer)? {
                        half.responses += 1;
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
            self.serve()
        });
        self.drivers = drivers;
        for half in self.ends.iter_mut().filter(|half| half.started) {
            let responses = std::mem::take(&mut half.responses);
            let bytes = 2 * responses * self.request.len() as u64;
            (sample.operations, sample.bytes) = (sample.operations + responses, sample.bytes + bytes);
            sample.by_connection.push(bytes);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sampling::Contender;
    use crate::workload::Bench;

    /// Turns of one thread until it has its ends and has completed requests.
    fn worked(params: &Params) -> Rpc {
        let mut world = World::new(params).unwrap();
        world.clock.go_on();
        let (mut rpc, mut sample) = (Rpc::new(&mut world, params, 0), Sample::default());
        while !world.is_open() || sample.operations < 100 {
            rpc.run(Instant::now() + Duration::from_millis(1), &mut sample).unwrap();
        }
        rpc
    }

    #[test]
    fn of_the_clients_only_those_that_are_not_idle_send_requests() {
        let rpc = worked(&Params { connections: 3, idle: 5, threads: 1, ..Params::new("up".parse().unwrap()) });
        let clients = || rpc.ends.iter().filter(|half| matches!(half.end, End::Client(_)));
        assert_eq!((clients().count(), clients().filter(|half| half.started).count()), (8, 3));
    }

    /// Handlers run inside the stack, after its guards, and on protocol threads.
    #[test]
    fn requests_are_answered_with_events_and_with_handlers() {
        for (arch, handlers) in
            ["up", "connp-l:8", "msgp:6", "connp-t", "adaptive"].iter().flat_map(|arch| [(arch, false), (arch, true)])
        {
            let arch = arch.parse().unwrap();
            let params = Params { connections: 5, idle: 3, threads: 2, handlers, ipv6: handlers, ..Params::new(arch) };
            let mut bench = Bench::open_rpc(&params).unwrap();
            let mut operations = 0;
            while operations < 100 {
                let slice = bench.run_slice(Duration::from_millis(5)).unwrap();
                assert_eq!(slice.bytes, 2 * 64 * slice.operations);
                operations += slice.operations;
            }
            assert_eq!(bench.world.opened(), 8, "{arch}");
        }
    }

    #[test]
    fn a_request_larger_than_the_send_buffer_is_an_error_with_its_remedy() {
        for handlers in [false, true] {
            let request = 300 << 10;
            let params = Params { request, handlers, threads: 1, ..Params::new("up".parse().unwrap()) };
            let failed = Bench::open_rpc(&params).and_then(|mut bench| -> io::Result<()> {
                loop {
                    bench.run_slice(Duration::from_millis(5))?;
                }
            });
            assert!(failed.unwrap_err().to_string().contains("make the request smaller"), "handlers: {handlers}");
        }
    }
}
