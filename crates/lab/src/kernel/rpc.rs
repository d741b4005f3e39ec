//! Request/response through the kernel: one request outstanding on each connection, all the time.
//!
//! Both ends of a connection are on one thread. An end that has a whole message answers with the next, so a transaction
//! is two messages of the same size. A message may arrive in pieces; each end records the bytes received.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::epoll;

use super::Params;
use super::bulk::wait;
use super::sockets::Pair;
use crate::worker_pool::{Sample, Work};

/// Events taken between two clock readings.
const BATCH: usize = 256;

struct End {
    stream: TcpStream,
    /// Bytes of the current message that have arrived.
    arrived: usize,
    /// Whether a message here completes a transaction.
    is_client: bool,
}

struct Rpc {
    ends: Vec<End>,
    epoll: OwnedFd,
    message: Vec<u8>,
    /// Whether the first requests have been sent.
    primed: bool,
}

/// The connections spread evenly over the threads.
pub(super) fn work(params: &Params, pairs: Vec<Pair>) -> io::Result<Vec<Box<dyn Work>>> {
    let threads = params.threads as usize;
    let shares: io::Result<Vec<Rpc>> = (0..threads).map(|_| Rpc::new(params.request)).collect();
    let mut shares = shares?;
    for (index, Pair { client, server }) in pairs.into_iter().enumerate() {
        shares[index % threads].add(client, true)?;
        shares[index % threads].add(server, false)?;
    }
    Ok(shares.into_iter().map(|share| Box::new(share) as Box<dyn Work>).collect())
}

impl Rpc {
    fn new(request: usize) -> io::Result<Rpc> {
        Ok(Rpc {
            ends: Vec::new(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            message: vec![0x5a; request],
            primed: false,
        })
    }

    fn add(&mut self, stream: TcpStream, is_client: bool) -> io::Result<()> {
        let data = epoll::EventData::new_u64(self.ends.len() as u64);
        epoll::add(&self.epoll, &stream, data, epoll::EventFlags::IN)?;
        self.ends.push(End { stream, arrived: 0, is_client });
        Ok(())
    }

    fn prime(&mut self) -> io::Result<()> {
        for end in self.ends.iter_mut().filter(|end| end.is_client) {
            end.stream.write_all(&self.message)?;
        }
        self.primed = true;
        Ok(())
    }

    fn step(&mut self, index: usize, sample: &mut Sample) -> io::Result<()> {
        let end = &mut self.ends[index];
        let wanted = self.message.len() - end.arrived;
        let got = match end.stream.read(&mut self.message[..wanted]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        sample.bytes += got as u64;
        end.arrived += got;
        if end.arrived < self.message.len() {
            return Ok(());
        }
        end.arrived = 0;
        sample.operations += u64::from(end.is_client);
        // One message of at most 4 KiB is outstanding, so an empty send buffer takes it whole.
        end.stream.write_all(&self.message)
    }
}

impl Work for Rpc {
    fn run(&mut self, deadline: Instant, sample: &mut Sample) -> io::Result<()> {
        if !self.primed {
            self.prime()?;
        }
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
