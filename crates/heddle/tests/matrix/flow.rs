//! One direction of a connection of the matrix: random data of random lengths, hashed as it leaves and as it arrives, and
//! how long it stood still.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use heddle::TcpStream;
use heddle::device::fault::Pcg;
use observe::Time;
use sha2::{Digest, Sha256};

/// One direction of the connection.
pub struct Flow {
    rng: Pcg,
    left: usize,
    /// Of that, what waits for the clock to jump.
    pub held_back: usize,
    /// Produced and not yet taken by the stack.
    pending: Vec<u8>,
    pub sent: Sha256,
    pub received: Sha256,
    pub arrived: usize,
    pub ended: bool,
    pub last_progress: Time,
    pub longest_pause: Duration,
    /// What of the pause is owed to a jump of the clock.
    pub excused: Duration,
    /// The sender's longest time-out during the pause.
    pub time_out: Duration,
    write_closed: bool,
}

impl Flow {
    pub fn new(seed: u64, stream: u64, octets: usize, now: Time) -> Flow {
        Flow {
            rng: Pcg::new(seed, stream),
            left: octets,
            held_back: 0,
            pending: Vec::new(),
            sent: Sha256::new(),
            received: Sha256::new(),
            arrived: 0,
            ended: false,
            last_progress: now,
            longest_pause: Duration::ZERO,
            excused: Duration::ZERO,
            time_out: Duration::ZERO,
            write_closed: false,
        }
    }

    /// Produces the next piece of data, of random length.
    fn produce(&mut self) {
        let length = (1 + self.rng.below(20_000) as usize).min(self.left - self.held_back);
        self.left -= length;
        self.pending = (0..length).map(|_| self.rng.next_u32() as u8).collect();
        self.sent.update(&self.pending);
    }

    /// Gives the stack what it takes. True: it took something.
    pub fn write(&mut self, mut stream: &TcpStream) -> Result<bool, String> {
        let mut moved = false;
        while !self.write_closed {
            if self.pending.is_empty() && self.left > self.held_back {
                self.produce();
            }
            if self.pending.is_empty() {
                if self.held_back > 0 {
                    break;
                }
                stream.shutdown(Shutdown::Write).map_err(|error| format!("shutdown: {error}"))?;
                self.write_closed = true;
                return Ok(true);
            }
            match stream.write(&self.pending) {
                Ok(count) => {
                    self.pending.drain(..count);
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(format!("write: {error}")),
            }
        }
        Ok(moved)
    }

    /// Takes what has arrived, in pieces of random length. True: there was something.
    pub fn read(&mut self, mut stream: &TcpStream, now: Time) -> Result<bool, String> {
        let mut moved = false;
        let mut buffer = [0; 16_384];
        while !self.ended {
            let length = 1 + self.rng.below(buffer.len() as u32) as usize;
            match stream.read(&mut buffer[..length]) {
                Ok(0) => self.ended = true,
                Ok(count) => {
                    self.received.update(&buffer[..count]);
                    self.arrived += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(format!("read after {} octets: {error}", self.arrived)),
            }
            moved = true;
        }
        if moved {
            self.longest_pause = self.longest_pause.max(self.pause(now));
            (self.last_progress, self.excused, self.time_out) = (now, Duration::ZERO, Duration::ZERO);
        }
        Ok(moved)
    }

    pub fn pause(&self, now: Time) -> Duration {
        (now - self.last_progress).saturating_sub(self.excused)
    }
}
