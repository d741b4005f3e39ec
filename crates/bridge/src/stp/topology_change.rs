//! Topology Change (17.31): when a port begins to forward, stations may be behind other ports than before, so all
//! bridges remove the addresses that they have learned: at once with RSTP, by way of the root with STP.
//!
//! By the standard a bridge that is configured for STP ages entries rapidly (in Forward Delay, 17.19.1). Here it
//! removes them at once, so that frames are flooded that would otherwise be lost for 15 s.

use core::time::Duration;

use observe::Time;
use wire::stp::Times;

use super::port::{Role, StpPort, TopologyChange, duration};
use super::{Effect, Stp};

impl StpPort {
    fn is_active(&self) -> bool {
        matches!(self.role, Role::Root | Role::Designated) && !self.oper_edge
    }

    /// newTcWhile (17.21.7). `root`: rootTimes.
    fn new_tc_while(&mut self, root: Times, now: Time) {
        if self.tc.runs(now) {
            return;
        }
        if self.send_rstp {
            self.tc.start(now, self.hello_time() + Duration::from_secs(1));
            self.new_info = true;
        } else {
            self.tc.start(now, duration(root.max_age) + duration(root.forward_delay));
        }
    }
}

/// The effect of a transition on other ports.
#[derive(Default)]
struct Beyond {
    /// fdbFlush
    flush: bool,
    /// setTcPropTree
    propagate: bool,
}

impl Stp {
    /// Makes one transition of the machine, if there is one to make.
    pub(super) fn topology_change(&mut self, at: usize, now: Time) -> bool {
        let root = self.root_times;
        let Some(port) = self.port_at(at) else { return false };
        let beyond = match port.topology {
            TopologyChange::Inactive => port.inactive(),
            TopologyChange::Learning => port.learning_change(root, now),
            TopologyChange::Active => port.active(root, now),
        };
        let Some(Beyond { flush, propagate }) = beyond else { return false };
        let port = port.number;
        if flush {
            self.effects.push_back(Effect::Flush { port });
        }
        if propagate {
            self.ports_mut().filter(|other| other.number != port).for_each(|other| other.tc_prop = true);
        }
        true
    }
}

impl StpPort {
    fn enter_learning(&mut self) {
        (self.rcvd_tc, self.rcvd_tcn, self.rcvd_tc_ack, self.tc_prop) = (false, false, false, false);
        self.topology = TopologyChange::Learning;
    }

    fn inactive(&mut self) -> Option<Beyond> {
        self.learn.then(|| {
            self.enter_learning();
            Beyond::default()
        })
    }

    fn learning_change(&mut self, root: Times, now: Time) -> Option<Beyond> {
        if self.is_active() && self.forward {
            // DETECTED
            self.new_tc_while(root, now);
            self.new_info = true;
            self.topology = TopologyChange::Active;
            return Some(Beyond { propagate: true, flush: false });
        }
        if self.rcvd_tc || self.rcvd_tcn || self.rcvd_tc_ack || self.tc_prop {
            self.enter_learning();
            return Some(Beyond::default());
        }
        if !matches!(self.role, Role::Root | Role::Designated) && !self.learn && !self.learning {
            // INACTIVE
            self.tc.stop();
            self.tc_ack = false;
            self.topology = TopologyChange::Inactive;
            return Some(Beyond { flush: true, propagate: false });
        }
        None
    }

    fn active(&mut self, root: Times, now: Time) -> Option<Beyond> {
        if !self.is_active() {
            self.enter_learning();
            return Some(Beyond::default());
        }
        if self.rcvd_tcn || self.rcvd_tc {
            // NOTIFIED_TCN, NOTIFIED_TC
            if self.rcvd_tcn {
                self.new_tc_while(root, now);
            }
            (self.rcvd_tcn, self.rcvd_tc) = (false, false);
            self.tc_ack |= self.role == Role::Designated;
            return Some(Beyond { propagate: true, flush: false });
        }
        if self.tc_prop {
            // PROPAGATING
            self.new_tc_while(root, now);
            self.tc_prop = false;
            return Some(Beyond { flush: true, propagate: false });
        }
        if self.rcvd_tc_ack {
            // ACKNOWLEDGED
            self.tc.stop();
            self.rcvd_tc_ack = false;
            return Some(Beyond::default());
        }
        None
    }
}
