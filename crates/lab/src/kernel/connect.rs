//! Connections a second through the kernel: connect, accept, close the client, close the server, again.
//!
//! A thread has one connection at a time and never waits: a blocking connect on loopback returns when the handshake is
//! complete. The client closes first, with FIN, so its port stays in TIME-WAIT; each thread therefore cycles through
//! sixteen destination addresses, which together have more ports than a run uses before the oldest are free again.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;

use super::sockets::{accept_from, listen};
use crate::worker_pool::{Sample, Work};

const ADDRESSES: u8 = 16;
/// Connections between two clock readings.
const BATCH: u32 = 16;

struct Connect {
    listeners: Vec<TcpListener>,
    next: usize,
}

/// A share for each thread, thread `t` on 127.1.`t`.1 to 16.
pub(super) fn work(threads: u32) -> io::Result<Vec<Box<dyn Work>>> {
    let share = |thread: u32| -> io::Result<Box<dyn Work>> {
        let address = |last| Ipv4Addr::new(127, 1, thread as u8, last);
        let listeners: io::Result<Vec<TcpListener>> = (1..=ADDRESSES).map(|last| listen(address(last), None)).collect();
        Ok(Box::new(Connect { listeners: listeners?, next: 0 }))
    };
    (0..threads).map(share).collect()
}

impl Connect {
    fn once(&mut self) -> io::Result<()> {
        let listener = &self.listeners[self.next];
        self.next = (self.next + 1) % self.listeners.len();
        let client = TcpStream::connect(listener.local_addr()?)?;
        let server = accept_from(listener, client.local_addr()?)?;
        drop(client);
        drop(server);
        Ok(())
    }
}

impl Work for Connect {
    fn run(&mut self, deadline: Instant, sample: &mut Sample) -> io::Result<()> {
        let mut dry = 0;
        while Instant::now() < deadline {
            for _ in 0..BATCH {
                match self.once() {
                    Ok(()) => {
                        dry = 0;
                        sample.operations += 1;
                    }
                    // One address is out of ports; the others may have some.
                    Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable && dry < ADDRESSES => dry += 1,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}
