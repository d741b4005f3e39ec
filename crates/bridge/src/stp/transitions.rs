//! Port Role Transitions (17.29) and Port State Transition (17.30): how a port takes the role that was selected for it
//! without closing a loop. A port may forward once no other bridge can forward between the same two parts of the network:
//! after a delay, or after the bridge at the other end has agreed, which first blocks its own ports (*sync*).

use observe::Time;

use super::port::{Role, StpPort};
use super::{Effect, Stp};
use crate::PortState;

/// Conditions over the bridge's other ports, for the machine of one port.
#[derive(Clone, Copy)]
struct Others {
    /// allSynced (17.20.3), for a Root or Alternate Port.
    all_synced: bool,
    /// reRooted (17.20.10).
    re_rooted: bool,
}

/// The effect of a transition on all ports of the bridge.
enum Asks {
    Nothing,
    /// setSyncTree
    Sync,
    /// setReRootTree
    ReRoot,
}

impl Stp {
    /// Makes one transition of the machine of roles, if there is one to make.
    pub(super) fn role_transition(&mut self, at: usize, now: Time) -> bool {
        let rstp = self.is_rstp();
        let others = Others { all_synced: self.all_synced(), re_rooted: self.re_rooted(at, now) };
        let Some(port) = self.port_at(at) else { return false };
        if !port.selected || port.updt_info {
            return false;
        }
        if port.role != port.selected_role {
            port.take_role(now);
            return true;
        }
        let asks = match port.role {
            Role::Disabled | Role::Alternate | Role::Backup => port.blocked_port(others),
            Role::Root => port.root_port(others, rstp, now),
            Role::Designated => port.designated_port(now).then_some(Asks::Nothing),
        };
        match asks {
            None => return false,
            Some(Asks::Nothing) => {}
            Some(Asks::Sync) => self.ports_mut().for_each(|port| port.sync = true),
            Some(Asks::ReRoot) => self.ports_mut().for_each(|port| port.re_root = true),
        }
        true
    }

    fn all_synced(&self) -> bool {
        let settled = |port: &StpPort| port.selected && port.role == port.selected_role && !port.updt_info;
        self.ports().all(|port| settled(port) && (port.role == Role::Root || port.synced))
    }

    fn re_rooted(&self, at: usize, now: Time) -> bool {
        self.ports().all(|port| port.number.index() == at || !port.was_root_lately(now))
    }

    /// Makes one transition of the state machine, if one is due, and reports it to the caller.
    pub(super) fn state_transition(&mut self, at: usize, _now: Time) -> bool {
        let Some(port) = self.port_at(at) else { return false };
        let state = if port.forwarding {
            if port.forward {
                return false;
            }
            (port.learning, port.forwarding) = (false, false);
            PortState::Discarding
        } else if port.learning {
            if !port.learn {
                port.learning = false;
                PortState::Discarding
            } else if port.forward {
                port.forwarding = true;
                PortState::Forwarding
            } else {
                return false;
            }
        } else if port.learn {
            port.learning = true;
            PortState::Learning
        } else {
            return false;
        };
        let port = port.number;
        self.effects.push_back(Effect::State { port, state });
        true
    }
}

impl StpPort {
    /// Takes up the selected role: ROOT_PORT, DESIGNATED_PORT, BLOCK_PORT, DISABLE_PORT.
    fn take_role(&mut self, now: Time) {
        self.leave_role(now);
        self.role = self.selected_role;
        self.blocked = false;
        if matches!(self.role, Role::Disabled | Role::Alternate | Role::Backup) {
            (self.learn, self.forward) = (false, false);
        }
    }

    /// Disabled, Alternate and Backup Ports.
    fn blocked_port(&mut self, others: Others) -> Option<Asks> {
        if self.learning || self.forwarding {
            return None;
        }
        if !self.blocked || self.sync || self.re_root || !self.synced {
            // ALTERNATE_PORT, DISABLED_PORT
            self.blocked = true;
            self.synced = true;
            self.rr.stop();
            (self.sync, self.re_root) = (false, false);
            return Some(Asks::Nothing);
        }
        if self.role == Role::Disabled {
            return None;
        }
        if self.proposed && !self.agree {
            // ALTERNATE_PROPOSED
            self.proposed = false;
            return Some(Asks::Sync);
        }
        if (others.all_synced && !self.agree) || (self.proposed && self.agree) {
            // ALTERNATE_AGREED
            self.proposed = false;
            self.agree = true;
            self.new_info = true;
            return Some(Asks::Nothing);
        }
        None
    }

    fn root_port(&mut self, others: Others, rstp: bool, now: Time) -> Option<Asks> {
        if self.proposed && !self.agree {
            // ROOT_PROPOSED
            self.proposed = false;
            return Some(Asks::Sync);
        }
        if (others.all_synced && !self.agree) || (self.proposed && self.agree) {
            // ROOT_AGREED
            (self.proposed, self.sync) = (false, false);
            self.agree = true;
            self.new_info = true;
            return Some(Asks::Nothing);
        }
        if self.re_root && self.forward {
            // REROOTED
            self.re_root = false;
            return Some(Asks::Nothing);
        }
        if !self.forward && !self.re_root {
            // REROOT
            return Some(Asks::ReRoot);
        }
        let may = !self.fd.runs(now) || (others.re_rooted && !self.rb.runs(now) && rstp);
        if may && !self.learn {
            // ROOT_LEARN
            self.fd.start(now, self.forward_delay());
            self.learn = true;
            return Some(Asks::Nothing);
        }
        if may && !self.forward {
            // ROOT_FORWARD
            self.fd.stop();
            self.forward = true;
            return Some(Asks::Nothing);
        }
        None
    }

    /// Whether a transition was made.
    fn designated_port(&mut self, now: Time) -> bool {
        let was_root = self.was_root_lately(now);
        if !self.forward && !self.agreed && !self.proposing && !self.oper_edge {
            // DESIGNATED_PROPOSE
            self.proposing = true;
            self.edge_delay.start(now, self.edge_delay_time());
            self.new_info = true;
        } else if (!self.synced && ((!self.learning && !self.forwarding) || self.agreed || self.oper_edge))
            || (self.sync && self.synced)
        {
            // DESIGNATED_SYNCED
            self.rr.stop();
            self.synced = true;
            self.sync = false;
        } else if !was_root && self.re_root {
            // DESIGNATED_RETIRED
            self.re_root = false;
        } else if ((self.sync && !self.synced) || (self.re_root && was_root) || self.disputed)
            && !self.oper_edge
            && (self.learn || self.forward)
        {
            // DESIGNATED_DISCARD
            (self.learn, self.forward, self.disputed) = (false, false, false);
            self.fd.start(now, self.forward_delay());
        } else {
            return self.designated_advances(was_root, now);
        }
        true
    }

    fn designated_advances(&mut self, was_root: bool, now: Time) -> bool {
        let may = (!self.fd.runs(now) || self.agreed || self.oper_edge) && !(was_root && self.re_root) && !self.sync;
        if may && !self.learn {
            // DESIGNATED_LEARN
            self.learn = true;
            self.fd.start(now, self.forward_delay());
        } else if may && !self.forward {
            // DESIGNATED_FORWARD
            self.forward = true;
            self.fd.stop();
            self.agreed = self.send_rstp;
        } else {
            return false;
        }
        true
    }
}
