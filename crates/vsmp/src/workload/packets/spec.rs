//! A line of words that describes a run, as on the command line and in the papers' data files.

use std::fmt;
use std::time::Duration;

use stack::Architecture;

use super::{PERIOD, Packets, Side, Summing};
use crate::preset::Preset;

/// Why a line describes no run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(String);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}

/// Connections that the line says, if not a number: as many as CPUs.
const ONE_EACH: &str = "each";

impl Packets {
    /// A run on `cpus` CPUs of a machine, from an architecture and words behind it:
    ///
    /// | word | |
    /// |---|---|
    /// | `receive`, `send` | the side; `receive` if none is named |
    /// | `udp` | datagrams |
    /// | `checksum`, `inside` | checksums by the stack, before the connection is held or while it is |
    /// | `tickets` | application tickets |
    /// | `bytes=N` | data of a packet; 4096 |
    /// | `conns=N`, `conns=each` | connections: N, or one for each CPU; 1 |
    /// | `locks=KIND` | the kind of all locks but those whose kind the architecture says |
    /// | `ipv6` | addresses |
    /// | `ms=N` | virtual time that is measured, in milliseconds; 1000 |
    ///
    /// ```
    /// # use vsmp::{Preset, workload::packets::{Packets, Side}};
    /// let preset = Preset::named("sgi-challenge")?;
    /// let packets = Packets::parse("msgp-pool+tas+unordered receive checksum conns=each", 8, 1, &preset)?;
    /// assert_eq!((packets.side, packets.connections), (Side::Receive, 8));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A word means nothing, or there is no such architecture.
    pub fn parse(line: &str, cpus: usize, seed: u64, preset: &Preset) -> Result<Packets, SpecError> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let arch: Architecture = name.parse().map_err(|error| SpecError(format!("{error}")))?;
        if arch.properties().single_thread {
            return Err(SpecError(format!(
                "`{name}` lets one thread use a connection; packets are carried by several"
            )));
        }
        let time = Duration::from_secs(1);
        let mut packets = Packets {
            arch,
            cpus,
            connections: 1,
            side: Side::Receive,
            udp: false,
            payload: 4096,
            summing: Summing::Card,
            tickets: false,
            lock_kind: None,
            ipv6: false,
            preset: preset.clone(),
            seed,
            warm_up: time / 4,
            time,
        };
        words.try_for_each(|word| packets.apply(word))?;
        packets.check()?;
        Ok(packets)
    }

    fn apply(&mut self, word: &str) -> Result<(), SpecError> {
        let unknown = || SpecError(format!("`{word}` means nothing to the packets' workload"));
        match word.split_once('=') {
            None => match word {
                "receive" => self.side = Side::Receive,
                "send" => self.side = Side::Send,
                "udp" => self.udp = true,
                "checksum" => self.summing = Summing::Before,
                "inside" => self.summing = Summing::Inside,
                "tickets" => self.tickets = true,
                "ipv6" => self.ipv6 = true,
                _ => return Err(unknown()),
            },
            Some(("conns", ONE_EACH)) => self.connections = self.cpus,
            Some(("locks", kind)) => {
                self.lock_kind = Some(kind.parse().map_err(|error| SpecError(format!("{error}")))?);
            }
            Some((name, number)) => {
                let number: usize = number.parse().map_err(|_| unknown())?;
                match name {
                    "conns" => self.connections = number,
                    "bytes" => self.payload = number,
                    "ms" => (self.time, self.warm_up) = (millis(number), millis(number) / 4),
                    _ => return Err(unknown()),
                }
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), SpecError> {
        if !(1..=64).contains(&self.connections) || !(64..=60_000).contains(&self.payload) || self.cpus == 0 {
            return Err(SpecError("packets have 64 to 60000 bytes, on 1 to 64 connections".to_owned()));
        }
        if self.tickets && self.payload.is_multiple_of(PERIOD) {
            return Err(SpecError(format!("with tickets packets have no multiple of {PERIOD} bytes")));
        }
        if self.time.is_zero() {
            return Err(SpecError("nothing is measured in no time".to_owned()));
        }
        Ok(())
    }
}

fn millis(number: usize) -> Duration {
    Duration::from_millis(number as u64)
}
