//! The variables of one port (section 17.19), under the standard's names, and its timers (17.17) as deadlines.
//!
//! The standard loads some timers over and over for as long as a port has a role: rrWhile of a Root Port, fdWhile of a
//! port that is Alternate, Backup or Disabled, rbWhile of a Backup Port. Here they count as running while the role
//! lasts, and are started when it ends ([`StpPort::leave_role`]): a port at rest has no deadline but its hello.

use core::time::Duration;

use observe::Time;
use wire::stp::{Bpdu, PriorityVector, Times};

use super::StpPortConfig;
use crate::PortNumber;

/// Migrate Time (table 17-1), fixed.
pub(super) const MIGRATE_TIME: Duration = Duration::from_secs(3);

/// A value of a BPDU, in 1/256 s.
pub(super) const fn duration(units: u16) -> Duration {
    Duration::from_nanos(units as u64 * (1_000_000_000 / 256))
}

/// A timer: runs until its deadline.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timer(Time);

impl Timer {
    pub(super) fn start(&mut self, now: Time, after: Duration) {
        self.0 = now + after;
    }

    pub(super) fn stop(&mut self) {
        self.0 = Time::ZERO;
    }

    pub(super) fn runs(self, now: Time) -> bool {
        now < self.0
    }

    pub(super) fn deadline(self) -> Time {
        self.0
    }
}

/// Where the information that a port has about its LAN comes from (17.19.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InfoIs {
    Received,
    Mine,
    Aged,
    Disabled,
}

/// The role of a port (17.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The port is down.
    Disabled,
    /// The way to the root.
    Root,
    /// It connects its LAN to the root.
    Designated,
    /// Another way to the root, by another bridge.
    Alternate,
    /// Another way to a LAN to which the bridge is connected already.
    Backup,
}

/// The state of the Port Protocol Migration machine (17.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Migration {
    CheckingRstp,
    SelectingStp,
    Sensing,
}

/// The states of the Topology Change machine (17.31) in which it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopologyChange {
    Inactive,
    Learning,
    Active,
}

/// See the head of the file.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are the standard's")]
pub(super) struct StpPort {
    pub(super) number: PortNumber,
    pub(super) config: StpPortConfig,
    /// portEnabled
    pub(super) enabled: bool,

    pub(super) agree: bool,
    pub(super) agreed: bool,
    pub(super) disputed: bool,
    pub(super) forward: bool,
    pub(super) forwarding: bool,
    pub(super) learn: bool,
    pub(super) learning: bool,
    pub(super) mcheck: bool,
    pub(super) new_info: bool,
    pub(super) oper_edge: bool,
    pub(super) proposed: bool,
    pub(super) proposing: bool,
    pub(super) rcvd_msg: bool,
    pub(super) rcvd_rstp: bool,
    pub(super) rcvd_stp: bool,
    pub(super) rcvd_tc: bool,
    pub(super) rcvd_tc_ack: bool,
    pub(super) rcvd_tcn: bool,
    pub(super) re_root: bool,
    pub(super) reselect: bool,
    pub(super) selected: bool,
    pub(super) send_rstp: bool,
    pub(super) sync: bool,
    pub(super) synced: bool,
    pub(super) tc_ack: bool,
    pub(super) tc_prop: bool,
    pub(super) updt_info: bool,

    pub(super) info_is: InfoIs,
    pub(super) role: Role,
    pub(super) selected_role: Role,
    pub(super) designated_priority: PriorityVector,
    pub(super) designated_times: Times,
    pub(super) port_priority: PriorityVector,
    pub(super) port_times: Times,
    pub(super) msg_priority: PriorityVector,
    pub(super) msg_times: Times,
    /// The message of `rcvd_msg`.
    pub(super) message: Bpdu,
    pub(super) tx_count: u8,

    pub(super) migration: Migration,
    pub(super) topology: TopologyChange,
    /// The transmit machine is in IDLE, and not in TRANSMIT_INIT.
    pub(super) transmits: bool,
    /// A blocked role has been entered: the port neither learns nor forwards any more.
    pub(super) blocked: bool,

    pub(super) edge_delay: Timer,
    pub(super) fd: Timer,
    pub(super) hello: Timer,
    pub(super) mdelay: Timer,
    pub(super) rb: Timer,
    pub(super) rcvd_info: Timer,
    pub(super) rr: Timer,
    pub(super) tc: Timer,
    /// When txCount is next decremented.
    pub(super) tick: Timer,
}

impl StpPort {
    /// In the state that BEGIN puts it in, disabled.
    pub(super) fn new(number: PortNumber, config: StpPortConfig, rstp: bool) -> StpPort {
        let (priority, times) = (PriorityVector::default(), Times::default());
        StpPort {
            number,
            config,
            enabled: false,
            agree: false,
            agreed: false,
            disputed: false,
            forward: false,
            forwarding: false,
            learn: false,
            learning: false,
            mcheck: false,
            new_info: true,
            oper_edge: config.admin_edge,
            proposed: false,
            proposing: false,
            rcvd_msg: false,
            rcvd_rstp: false,
            rcvd_stp: false,
            rcvd_tc: false,
            rcvd_tc_ack: false,
            rcvd_tcn: false,
            re_root: true,
            reselect: true,
            selected: false,
            send_rstp: rstp,
            sync: true,
            synced: false,
            tc_ack: false,
            tc_prop: false,
            updt_info: false,
            info_is: InfoIs::Disabled,
            role: Role::Disabled,
            selected_role: Role::Disabled,
            designated_priority: priority,
            designated_times: times,
            port_priority: priority,
            port_times: times,
            msg_priority: priority,
            msg_times: times,
            message: Bpdu::Notification,
            tx_count: 0,
            migration: Migration::CheckingRstp,
            topology: TopologyChange::Inactive,
            transmits: false,
            blocked: false,
            edge_delay: Timer::default(),
            fd: Timer::default(),
            hello: Timer::default(),
            mdelay: Timer::default(),
            rb: Timer::default(),
            rcvd_info: Timer::default(),
            rr: Timer::default(),
            tc: Timer::default(),
            tick: Timer::default(),
        }
    }

    /// The port identifier (9.2.7): priority and number.
    pub(super) fn id(&self) -> u16 {
        u16::from(self.config.priority & 0xf0) << 8 | (self.number.get() + 1)
    }

    /// The timers, as deadlines.
    pub(super) fn deadlines(&self) -> [Time; 9] {
        [self.edge_delay, self.fd, self.hello, self.mdelay, self.rb, self.rcvd_info, self.rr, self.tc, self.tick]
            .map(Timer::deadline)
    }

    /// FwdDelay (17.20.7).
    pub(super) fn fwd_delay(&self) -> Duration {
        duration(self.designated_times.forward_delay)
    }

    /// HelloTime (17.20.8).
    pub(super) fn hello_time(&self) -> Duration {
        duration(self.designated_times.hello)
    }

    /// MaxAge (17.20.9).
    pub(super) fn max_age(&self) -> Duration {
        duration(self.designated_times.max_age)
    }

    /// forwardDelay (17.20.6): the time in each state of a port without an agreement.
    pub(super) fn forward_delay(&self) -> Duration {
        if self.send_rstp { self.hello_time() } else { self.fwd_delay() }
    }

    /// EdgeDelay (17.20.4).
    pub(super) fn edge_delay_time(&self) -> Duration {
        if self.config.point_to_point { MIGRATE_TIME } else { self.max_age() }
    }

    /// rrWhile is not 0.
    pub(super) fn was_root_lately(&self, now: Time) -> bool {
        self.role == Role::Root || self.rr.runs(now)
    }

    /// Starts the timers that were held while the port had its role.
    pub(super) fn leave_role(&mut self, now: Time) {
        match self.role {
            Role::Root => self.rr.start(now, self.fwd_delay()),
            Role::Disabled => self.fd.start(now, self.max_age()),
            Role::Alternate | Role::Backup => self.fd.start(now, self.forward_delay()),
            Role::Designated => {}
        }
        if self.role == Role::Backup {
            self.rb.start(now, 2 * self.hello_time());
        }
    }
}
