//! Port Information (17.27): the information of a port about the bridge that connects its LAN to the root; with the
//! Port Receive machine (17.23), which has no state of its own here.

use core::time::Duration;

use observe::Time;
use wire::stp::{Bpdu, PortRole, Rapid, Times};

use super::Stp;
use super::port::{InfoIs, MIGRATE_TIME, StpPort, duration};

/// The kind of a message, compared with the port's information (17.21.8).
enum ReceivedInfo {
    SuperiorDesignated,
    RepeatedDesignated,
    InferiorDesignated,
    InferiorRootAlternate,
    Other,
}

/// One second, as BPDUs have it.
pub(super) const SECOND: u16 = 256;

impl StpPort {
    /// The RECEIVE state of Port Receive: a BPDU for a port that is up.
    pub(super) fn take(&mut self, bpdu: &Bpdu, now: Time) {
        match bpdu {
            Bpdu::Rapid(_) => self.rcvd_rstp = true,
            Bpdu::Config(_) | Bpdu::Notification => self.rcvd_stp = true,
        }
        self.oper_edge = false;
        self.message = *bpdu;
        self.rcvd_msg = true;
        self.edge_delay.start(now, MIGRATE_TIME);
    }

    /// rcvInfo.
    fn compare(&mut self) -> ReceivedInfo {
        let (role, priority, times) = match self.message {
            Bpdu::Notification => return ReceivedInfo::Other,
            Bpdu::Config(config) => (PortRole::Designated, config.priority, config.times),
            Bpdu::Rapid(rapid) => (rapid.role, rapid.priority, rapid.times),
        };
        (self.msg_priority, self.msg_times) = (priority, times);
        let held = &self.port_priority;
        match role {
            PortRole::Designated | PortRole::Unknown => {
                let same_port =
                    priority.bridge.address() == held.bridge.address() && priority.port & 0xfff == held.port & 0xfff;
                // The port times are the message's but for the least Hello Time.
                if priority == *held && recorded(times) == self.port_times && self.info_is == InfoIs::Received {
                    ReceivedInfo::RepeatedDesignated
                } else if priority < *held || same_port {
                    ReceivedInfo::SuperiorDesignated
                } else {
                    ReceivedInfo::InferiorDesignated
                }
            }
            PortRole::Root | PortRole::AlternateOrBackup if priority >= *held => ReceivedInfo::InferiorRootAlternate,
            PortRole::Root | PortRole::AlternateOrBackup => ReceivedInfo::Other,
        }
    }

    fn rapid(&self) -> Option<&Rapid> {
        match &self.message {
            Bpdu::Rapid(rapid) => Some(rapid),
            _ => None,
        }
    }

    /// recordProposal (17.21.11).
    fn record_proposal(&mut self) {
        let proposal = self.rapid().is_some_and(|rapid| rapid.proposal);
        self.proposed |= proposal && self.config.point_to_point;
    }

    /// recordAgreement (17.21.9).
    fn record_agreement(&mut self, rstp: bool) {
        let agreement = self.rapid().is_some_and(|rapid| rapid.agreement);
        self.agreed = rstp && self.config.point_to_point && agreement;
        self.proposing &= !self.agreed;
    }

    /// recordDispute (17.21.10).
    fn record_dispute(&mut self) {
        if self.rapid().is_some_and(|rapid| rapid.learning) {
            self.disputed = true;
            self.agreed = false;
        }
    }

    /// setTcFlags (17.21.17).
    fn set_tc_flags(&mut self) {
        let (change, acknowledgement) = match &self.message {
            Bpdu::Config(config) => (config.topology_change, config.acknowledgement),
            Bpdu::Rapid(rapid) => (rapid.topology_change, rapid.acknowledgement),
            Bpdu::Notification => (false, false),
        };
        self.rcvd_tc |= change;
        self.rcvd_tc_ack |= acknowledgement;
        self.rcvd_tcn |= self.message == Bpdu::Notification;
    }

    /// updtRcvdInfoWhile (17.21.23): three hello times, if the message has not travelled too far.
    fn update_rcvd_info(&mut self, now: Time) {
        let Times { message_age, max_age, hello, .. } = self.port_times;
        if message_age.saturating_add(SECOND) <= max_age {
            self.rcvd_info.start(now, 3 * duration(hello));
        } else {
            self.rcvd_info.stop();
        }
    }

    /// betterorsameInfo (17.21.1).
    fn better_or_same(&self, new: InfoIs) -> bool {
        match new {
            InfoIs::Received => self.info_is == new && self.msg_priority <= self.port_priority,
            InfoIs::Mine => self.info_is == new && self.designated_priority <= self.port_priority,
            InfoIs::Aged | InfoIs::Disabled => false,
        }
    }

    fn ask_for_roles(&mut self) {
        self.reselect = true;
        self.selected = false;
    }

    /// The states that a received message leads to.
    fn inform(&mut self, rstp: bool, now: Time) {
        match self.compare() {
            ReceivedInfo::SuperiorDesignated => {
                (self.agreed, self.proposing) = (false, false);
                self.record_proposal();
                self.set_tc_flags();
                self.agree &= self.better_or_same(InfoIs::Received);
                self.port_priority = self.msg_priority;
                self.port_times = recorded(self.msg_times);
                self.update_rcvd_info(now);
                self.info_is = InfoIs::Received;
                self.ask_for_roles();
            }
            ReceivedInfo::RepeatedDesignated => {
                self.record_proposal();
                self.set_tc_flags();
                self.update_rcvd_info(now);
            }
            ReceivedInfo::InferiorDesignated => self.record_dispute(),
            ReceivedInfo::InferiorRootAlternate => {
                self.record_agreement(rstp);
                self.set_tc_flags();
            }
            // The standard's diagram ignores it here, and its Topology Change machine waits for it.
            ReceivedInfo::Other if self.message == Bpdu::Notification => self.rcvd_tcn = true,
            ReceivedInfo::Other => {}
        }
        self.rcvd_msg = false;
    }

    /// The UPDATE state: the port's information becomes the bridge's own.
    fn update(&mut self) {
        (self.proposing, self.proposed) = (false, false);
        self.agreed &= self.better_or_same(InfoIs::Mine);
        self.synced &= self.agreed;
        self.port_priority = self.designated_priority;
        self.port_times = self.designated_times;
        self.updt_info = false;
        self.info_is = InfoIs::Mine;
        self.new_info = true;
    }

    /// The DISABLED state.
    fn disable(&mut self) {
        self.rcvd_msg = false;
        (self.proposing, self.proposed, self.agree, self.agreed) = (false, false, false, false);
        self.rcvd_info.stop();
        self.info_is = InfoIs::Disabled;
        self.ask_for_roles();
    }
}

/// recordTimes (17.21.12): Hello Time is at least a second.
fn recorded(times: Times) -> Times {
    Times { hello: times.hello.max(SECOND), ..times }
}

const _: () = assert!(SECOND as u64 == Duration::from_secs(1).as_secs() * 256);

impl Stp {
    /// Makes one transition of the machine, if there is one to make.
    pub(super) fn information(&mut self, at: usize, now: Time) -> bool {
        let rstp = self.is_rstp();
        let Some(port) = self.port_at(at) else { return false };
        if !port.enabled {
            let moves = port.info_is != InfoIs::Disabled;
            if moves {
                port.disable();
            }
            return moves;
        }
        match port.info_is {
            InfoIs::Disabled => {
                port.info_is = InfoIs::Aged;
                port.ask_for_roles();
            }
            _ if port.selected && port.updt_info => port.update(),
            InfoIs::Received if !port.rcvd_info.runs(now) && !port.updt_info && !port.rcvd_msg => {
                port.info_is = InfoIs::Aged;
                port.ask_for_roles();
            }
            InfoIs::Received | InfoIs::Mine if port.rcvd_msg && !port.updt_info => port.inform(rstp, now),
            _ => return false,
        }
        true
    }
}
