//! Port Role Selection (17.28): which port is the Root Port, and the resulting roles of the others.

use observe::Time;
use wire::stp::{PriorityVector, Times};

use super::Stp;
use super::information::SECOND;
use super::port::{InfoIs, Role, StpPort};

impl Stp {
    /// Selects all roles again, if a port has `reselect` set.
    pub(super) fn select(&mut self, _now: Time) -> bool {
        if !self.ports().any(|port| port.reselect) {
            return false;
        }
        self.ports_mut().for_each(|port| port.reselect = false);
        self.update_roles();
        self.ports_mut().for_each(|port| port.selected = true);
        true
    }

    /// updtRolesTree (17.21.25).
    fn update_roles(&mut self) {
        let own = PriorityVector { root: self.id, cost: 0, bridge: self.id, port: 0 };
        let best = self.ports().filter_map(|port| Some((path(port, own)?, port))).min_by_key(|(path, _)| *path);
        let (root, times, root_port) = match best {
            Some(((vector, _), port)) if vector < own => (vector, older(port.port_times), Some(port.number)),
            _ => (own, self.times, None),
        };
        (self.root_priority, self.root_times, self.root_port) = (root, times, root_port);
        let (id, hello) = (self.id, self.times.hello);
        for port in self.ports_mut() {
            port.designated_priority = PriorityVector { root: root.root, cost: root.cost, bridge: id, port: port.id() };
            port.designated_times = Times { hello, ..times };
            let (role, update) =
                role(port, root_port == Some(port.number), id.address() == port.port_priority.bridge.address());
            (port.selected_role, port.updt_info) = (role, update);
        }
    }
}

/// The root path priority vector of a port (17.6), with the port; `None` if it has heard of no root from another bridge.
fn path(port: &StpPort, own: PriorityVector) -> Option<(PriorityVector, u16)> {
    let heard = port.port_priority;
    let other = port.info_is == InfoIs::Received && heard.bridge.address() != own.bridge.address();
    let cost = heard.cost.saturating_add(port.config.cost);
    other.then(|| (PriorityVector { cost, ..heard }, port.id()))
}

/// The times of a message after one more bridge: a second older, in whole seconds.
fn older(times: Times) -> Times {
    let age = times.message_age.saturating_add(SECOND).saturating_add(SECOND / 2) / SECOND * SECOND;
    Times { message_age: age, ..times }
}

/// The role of a port, and whether its information is to become the bridge's own. `is_root`: it is the way to the root;
/// `own_lan`: the bridge itself connects its LAN to the root.
fn role(port: &StpPort, is_root: bool, own_lan: bool) -> (Role, bool) {
    match port.info_is {
        InfoIs::Disabled => (Role::Disabled, port.updt_info),
        InfoIs::Aged => (Role::Designated, true),
        InfoIs::Mine => {
            let differs = port.port_priority != port.designated_priority || port.port_times != port.designated_times;
            (Role::Designated, port.updt_info || differs)
        }
        InfoIs::Received if is_root => (Role::Root, false),
        InfoIs::Received if port.designated_priority < port.port_priority => (Role::Designated, true),
        InfoIs::Received if own_lan => (Role::Backup, false),
        InfoIs::Received => (Role::Alternate, false),
    }
}
