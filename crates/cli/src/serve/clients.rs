//! Limits per client of a service: connections at a time, and new ones in a second.
//!
//! A client is an IPv4 address, or an IPv6 /64 network, which one host may have for itself; an IPv4-mapped address
//! counts as the IPv4 one. A connection counts from its acceptance until it has been served. Limits are off by default:
//! thousands of users may share one address behind a NAT.
//!
//! A client's entry is removed once it has no connection and its full rate again, which takes at most a second. So the
//! table contains the clients of the last second, and those connected.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Clients in the table before the first sweep.
const SWEEP_LEAST: usize = 1024;

/// Limits of a client. `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time.
    pub connections: Option<u32>,
    /// New connections in a second; also the burst after a pause.
    pub rate: Option<u32>,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client has the maximal number.
    TooMany,
    /// It opens them too fast.
    TooFast,
}

/// The clients of a service.
#[derive(Debug)]
pub struct Clients {
    limits: Limits,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    clients: HashMap<u128, Client>,
    /// How many clients there may be before the next sweep.
    sweep_at: usize,
}

/// The state of one client.
#[derive(Debug)]
struct Client {
    open: u32,
    /// New connections that it may open now.
    tokens: f64,
    /// The time of that count.
    at: Instant,
}

/// A connection that was admitted, until this is dropped.
#[derive(Debug)]
pub struct Admitted {
    /// `None`: clients are not counted.
    counted: Option<(Arc<Clients>, u128)>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some((clients, key)) = self.counted.take()
            && let Some(client) = clients.table().clients.get_mut(&key)
        {
            client.open = client.open.saturating_sub(1);
        }
    }
}

impl Clients {
    /// An empty table.
    pub fn new(limits: Limits) -> Arc<Clients> {
        let table = Table { clients: HashMap::new(), sweep_at: SWEEP_LEAST };
        Arc::new(Clients { limits, table: Mutex::new(table) })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // The data under this lock is always consistent.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits one more connection from `address`, or returns the refusal.
    ///
    /// # Errors
    /// The client is at one of its limits.
    pub fn admit(self: &Arc<Self>, address: IpAddr, now: Instant) -> Result<Admitted, Refusal> {
        if self.limits == Limits::default() {
            return Ok(Admitted { counted: None });
        }
        let key = key(address);
        let mut table = self.table();
        table.sweep(self.limits, now);
        let burst = f64::from(self.limits.rate.unwrap_or(0));
        let client = table.clients.entry(key).or_insert(Client { open: 0, tokens: burst, at: now });
        if self.limits.connections.is_some_and(|most| client.open >= most) {
            return Err(Refusal::TooMany);
        }
        if let Some(rate) = self.limits.rate {
            client.refill(rate, now);
            if client.tokens < 1.0 {
                return Err(Refusal::TooFast);
            }
            client.tokens -= 1.0;
        }
        client.open += 1;
        Ok(Admitted { counted: Some((self.clone(), key)) })
    }
}

impl Client {
    fn refill(&mut self, rate: u32, now: Instant) {
        let rate = f64::from(rate);
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * rate).min(rate);
        self.at = now;
    }
}

impl Table {
    /// Removes clients without state. The table doubles between two sweeps, so that their cost is amortised.
    fn sweep(&mut self, limits: Limits, now: Instant) {
        if self.clients.len() < self.sweep_at {
            return;
        }
        self.clients.retain(|_, client| {
            if let Some(rate) = limits.rate {
                client.refill(rate, now);
            }
            client.open > 0 || limits.rate.is_some_and(|rate| client.tokens < f64::from(rate))
        });
        self.sweep_at = (2 * self.clients.len()).max(SWEEP_LEAST);
    }
}

/// The key common to all addresses of one client.
fn key(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(v4) => u128::from(v4.to_ipv6_mapped()),
        IpAddr::V6(v6) => u128::from(v6) & !u128::from(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_has_so_many_connections_at_a_time() {
        let clients = Clients::new(Limits { connections: Some(2), rate: None });
        let now = Instant::now();
        // The same client, and others.
        for (same, again, other) in
            [("10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2:3:4:5", "fd00:0:0:1::1")]
        {
            let first = clients.admit(address(same), now).unwrap();
            let _second = clients.admit(address(again), now).unwrap();
            assert_eq!(clients.admit(address(same), now).err(), Some(Refusal::TooMany), "{same}");
            assert_eq!(clients.admit(address(again), now).err(), Some(Refusal::TooMany), "{again}");
            let _other = clients.admit(address(other), now).unwrap();
            drop(first);
            let _third = clients.admit(address(same), now).unwrap();
            assert_eq!(clients.admit(address(same), now).err(), Some(Refusal::TooMany));
        }
    }

    #[test]
    fn a_client_opens_so_many_in_a_second() {
        let clients = Clients::new(Limits { connections: None, rate: Some(10) });
        let (start, peer) = (Instant::now(), address("10.0.0.1"));
        let opened =
            |at: u64| (0..100).filter(|_| clients.admit(peer, start + Duration::from_millis(at)).is_ok()).count();
        assert_eq!(opened(0), 10, "a new client");
        assert_eq!(opened(50), 0);
        assert_eq!(opened(100), 1);
        assert_eq!(opened(1100), 10);
        assert_eq!(opened(60_000), 10, "a pause is no credit for more than a second");
        assert_eq!(clients.admit(peer, start).err(), Some(Refusal::TooFast), "a clock that goes back is none either");
        assert!(clients.admit(address("10.0.0.2"), start).is_ok());
    }

    #[test]
    fn without_limits_nothing_is_remembered() {
        let clients = Clients::new(Limits::default());
        let all: Vec<_> = (0..10_000).map(|_| clients.admit(address("10.0.0.1"), Instant::now()).unwrap()).collect();
        assert_eq!((all.len(), clients.table().clients.len()), (10_000, 0));
    }

    #[test]
    fn clients_that_are_gone_are_forgotten() {
        let clients = Clients::new(Limits { connections: Some(5), rate: Some(5) });
        let start = Instant::now();
        let stays = clients.admit(address("10.9.9.9"), start).unwrap();
        for second in 0..20 {
            for n in 0..2000_u32 {
                let peer = IpAddr::V4((0x0a00_0000 + second * 2000 + n).into());
                drop(clients.admit(peer, start + Duration::from_secs(u64::from(second) * 2)).unwrap());
            }
            let remembered = clients.table().clients.len();
            assert!(remembered <= 4001, "{remembered} clients after {second} rounds of 2000");
        }
        assert!(clients.table().clients.contains_key(&key(address("10.9.9.9"))));
        drop(stays);
    }
}
