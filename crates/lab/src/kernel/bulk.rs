//! Bulk data through the kernel: every sender sends whenever it can, every receiver reads the available data.
//!
//! One level-triggered epoll set for each thread holds all its ends, as in the benchmark's libevent threads. One event
//! moves one message, so connections alternate. A connection's two ends may be on different threads; threads share only
//! the pages that are sent.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};

use super::sockets::Pair;
use super::{Ends, Params, SendMode};
use crate::worker_pool::{Sample, Work};

/// Events taken in one call. At most this many messages pass between two clock readings.
const BATCH: usize = 128;

/// The payload that a sender repeats.
enum Payload {
    /// Pages of a memory file, not copied.
    Pages { file: File, length: usize },
    /// A buffer, copied by `write`.
    Buffer(Vec<u8>),
}

impl Payload {
    fn new(params: &Params) -> io::Result<Payload> {
        let content = vec![0x5a; params.message];
        if params.send == SendMode::Write {
            return Ok(Payload::Buffer(content));
        }
        let mut file = File::from(memfd_create("heddle-payload", MemfdFlags::CLOEXEC)?);
        file.write_all(&content)?;
        Ok(Payload::Pages { file, length: params.message })
    }

    /// Offers one message; `WouldBlock` when the send buffer is full.
    fn send(&self, mut stream: &TcpStream) -> io::Result<()> {
        match self {
            Payload::Pages { file, length } => {
                sendfile(stream, file, Some(&mut 0), *length)?;
            }
            Payload::Buffer(content) => {
                let _ = stream.write(content)?;
            }
        }
        Ok(())
    }
}

enum End {
    Sender(TcpStream),
    Receiver(TcpStream),
}

/// One thread's ends, the set that watches them, and its buffers. The events of a call stay in `run`: they may hold
/// pointers, so they are not `Send`.
struct Bulk {
    ends: Vec<End>,
    epoll: OwnedFd,
    payload: Payload,
    buffer: Vec<u8>,
}

/// The connections spread evenly over the threads.
pub(super) fn work(params: &Params, pairs: Vec<Pair>) -> io::Result<Vec<Box<dyn Work>>> {
    let threads = params.threads as usize;
    let shares: io::Result<Vec<Bulk>> = (0..threads).map(|_| Bulk::new(params)).collect();
    let mut shares = shares?;
    let offset = match params.ends {
        Ends::Together => 0,
        Ends::Apart => 1,
    };
    for (index, Pair { client, server }) in pairs.into_iter().enumerate() {
        shares[index % threads].add(End::Sender(client))?;
        shares[(index + offset) % threads].add(End::Receiver(server))?;
    }
    Ok(shares.into_iter().map(|share| Box::new(share) as Box<dyn Work>).collect())
}

impl Bulk {
    fn new(params: &Params) -> io::Result<Bulk> {
        Ok(Bulk {
            ends: Vec::new(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            payload: Payload::new(params)?,
            buffer: vec![0; params.message],
        })
    }

    fn add(&mut self, end: End) -> io::Result<()> {
        let (stream, interest) = match &end {
            End::Sender(stream) => (stream, epoll::EventFlags::OUT),
            End::Receiver(stream) => (stream, epoll::EventFlags::IN),
        };
        epoll::add(&self.epoll, stream, epoll::EventData::new_u64(self.ends.len() as u64), interest)?;
        self.ends.push(end);
        Ok(())
    }

    fn step(&mut self, index: usize, sample: &mut Sample) -> io::Result<()> {
        let moved = match &self.ends[index] {
            End::Sender(stream) => self.payload.send(stream),
            End::Receiver(stream) => receive(stream, &mut self.buffer, sample),
        };
        match moved {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }
}

fn receive(mut stream: &TcpStream, buffer: &mut [u8], sample: &mut Sample) -> io::Result<()> {
    let got = stream.read(buffer)?;
    if got == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the kernel closed a loopback connection"));
    }
    sample.bytes += got as u64;
    sample.operations += 1;
    Ok(())
}

impl Work for Bulk {
    fn run(&mut self, deadline: Instant, sample: &mut Sample) -> io::Result<()> {
        let mut events = Vec::with_capacity(BATCH);
        while Instant::now() < deadline {
            events.clear();
            wait(&self.epoll, &mut events)?;
            for event in &events {
                self.step(event.data.u64() as usize, sample)?;
            }
        }
        Ok(())
    }
}

/// Waits for events, 10 ms at most, so that an idle thread still notices its deadline.
pub(super) fn wait(epoll: &OwnedFd, events: &mut Vec<epoll::Event>) -> io::Result<()> {
    let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    match epoll::wait(epoll, spare_capacity(events), Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
