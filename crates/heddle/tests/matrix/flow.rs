//! One direction of a connection of the matrix: random data of random lengths, hashed as it leaves and as it arrives,
//! and the length of its pauses.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use heddle::TcpStream;
use heddle::device::fault::Pcg;
use observe::Time;
use sha2::{Digest, Sha256};

/// A pause that needs no explanation.
const PAUSE: Duration = Duration::from_secs(3);

/// One direction of the connection.
pub struct Flow {
    rng: Pcg,
    left: usize,
    /// The part of it that waits for the clock to jump.
    pub held_back: usize,
    /// Produced and not yet accepted by the stack.
    pending: Vec<u8>,
    pub sent: Sha256,
    pub received: Sha256,
    pub arrived: usize,
    pub ended: bool,
    pub last_progress: Time,
    pub longest_pause: Duration,
    /// The part of the pause that is due to a jump of the clock.
    pub excused: Duration,
    /// The sender's longest time-out during the pause.
    time_out: Duration,
    /// The sender's counts at their last increase, and the time of that.
    signs: Signs,
    sign_at: Time,
    write_closed: bool,
}

/// Observations of a flow's sender while nothing arrives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signs {
    /// Segments that it has sent, and received.
    pub segments: [u32; 2],
    /// Its retransmission time-out, back-off included.
    pub time_out: Duration,
    /// It has data that is not acknowledged.
    pub has_data: bool,
}

impl Flow {
    pub fn new(seed: u64, stream: u64, bytes: usize, now: Time) -> Flow {
        Flow {
            rng: Pcg::new(seed, stream),
            left: bytes,
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
            signs: Signs::default(),
            sign_at: now,
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

    /// Writes as much as the stack accepts. True: it accepted some.
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

    /// Reads what has arrived, in pieces of random length. True: there was some.
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
                Err(error) => return Err(format!("read after {} bytes: {error}", self.arrived)),
            }
            moved = true;
        }
        if moved {
            self.longest_pause = self.longest_pause.max(self.pause(now));
            (self.last_progress, self.excused, self.time_out) = (now, Duration::ZERO, Duration::ZERO);
        }
        Ok(moved)
    }

    /// Whether all of `bytes` has arrived except the part that waits for the clock to jump.
    pub fn waits_for_the_jump(&self, bytes: usize) -> bool {
        self.held_back > 0 && self.arrived + self.held_back == bytes
    }

    pub fn pause(&self, now: Time) -> Duration {
        (now - self.last_progress).saturating_sub(self.excused)
    }

    /// The clock has jumped to `now`: that time does not count as a pause.
    pub fn excuse(&mut self, now: Time) {
        self.excused = now - self.last_progress;
        self.sign_at = now;
    }

    /// Checks a pause. It may last for `tries` of the sender's longest time-outs: when a segment is lost again after
    /// each progress of its neighbours, the time-out does not grow, so tries add up and do not double. And a sender
    /// with data may not be silent for two time-outs in a row: a tail loss probe and the time-out that it defers.
    /// Outages are added, because a segment at the end of one may be lost, and the next try may hit another.
    ///
    /// # Errors
    /// A short description of the failure.
    pub fn judge(&mut self, signs: Signs, tries: u32, outage: Duration, now: Time) -> Result<(), String> {
        self.time_out = self.time_out.max(signs.time_out);
        let pause = self.pause(now);
        if pause > PAUSE.max(self.time_out * tries) + 3 * outage {
            return Err(format!("nothing arrives for {pause:?} after {} bytes", self.arrived));
        }
        if signs.segments != self.signs.segments {
            self.sign_at = now;
        }
        self.signs = signs;
        let silence = now - self.sign_at.max(self.last_progress);
        if signs.has_data && silence > PAUSE + 2 * signs.time_out + outage {
            return Err(format!("the sender does nothing for {silence:?} after {} bytes", self.arrived));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn after(seconds: u32) -> Time {
        Time::ZERO + SECOND * seconds
    }

    /// A flow without arrivals, checked once a second for `seconds`; its sender sends every `every` seconds.
    fn stands_still(seconds: u32, every: u32, time_out: Duration, tries: u32) -> Result<(), String> {
        let mut flow = Flow::new(1, 1, 100, Time::ZERO);
        (1..=seconds).try_for_each(|second| {
            let signs = Signs { segments: [second / every, 0], time_out, has_data: true };
            flow.judge(signs, tries, Duration::ZERO, after(second))
        })
    }

    #[test]
    fn a_sender_may_try_as_often_as_luck_lets_it() {
        assert_eq!(stands_still(40, 2, 2 * SECOND, 20), Ok(()));
        let wrong = stands_still(41, 2, 2 * SECOND, 20).expect_err("one try too many");
        assert!(wrong.starts_with("nothing arrives for 41s after 0 bytes"), "{wrong}");
    }

    #[test]
    fn a_sender_that_does_nothing_is_found_before_its_tries_are_used_up() {
        let wrong = stands_still(1000, 2000, 2 * SECOND, 1000).expect_err("it never tries");
        assert!(wrong.starts_with("the sender does nothing for 8s after 0 bytes"), "{wrong}");
    }

    #[test]
    fn a_jump_of_the_clock_is_nobodys_silence() {
        let mut flow = Flow::new(1, 1, 100, Time::ZERO);
        let signs = Signs { has_data: true, ..Signs::default() };
        flow.excuse(after(1_000_000));
        assert_eq!(flow.judge(signs, 4, Duration::ZERO, after(1_000_001)), Ok(()));
    }
}
