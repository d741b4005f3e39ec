//! Port Protocol Migration (17.24): RSTP, or STP if the other end does not use RSTP; and Bridge Detection (17.25): no
//! bridge is at the other end.

use observe::Time;

use super::Stp;
use super::port::{MIGRATE_TIME, Migration, StpPort};

impl Stp {
    /// Makes one transition of the machine, if there is one to make.
    pub(super) fn migration(&mut self, at: usize, now: Time) -> bool {
        let rstp = self.is_rstp();
        let Some(port) = self.port_at(at) else { return false };
        match port.migration {
            Migration::CheckingRstp if !port.enabled => {
                // The delay begins when the port comes up.
                port.mcheck = false;
                return false;
            }
            Migration::CheckingRstp if !port.mdelay.runs(now) => port.sense(),
            Migration::Sensing if !port.enabled || port.mcheck || (rstp && !port.send_rstp && port.rcvd_rstp) => {
                port.migration = Migration::CheckingRstp;
                port.mcheck = false;
                port.send_rstp = rstp;
                port.mdelay.start(now, MIGRATE_TIME);
            }
            Migration::Sensing if port.send_rstp && port.rcvd_stp => {
                port.migration = Migration::SelectingStp;
                port.send_rstp = false;
                port.mdelay.start(now, MIGRATE_TIME);
            }
            Migration::SelectingStp if !port.mdelay.runs(now) || !port.enabled || port.mcheck => port.sense(),
            _ => return false,
        }
        true
    }

    /// Makes one transition of the machine, if there is one to make.
    pub(super) fn bridge_detection(&mut self, at: usize, now: Time) -> bool {
        let Some(port) = self.port_at(at) else { return false };
        let silent = !port.edge_delay.runs(now) && port.config.auto_edge && port.send_rstp && port.proposing;
        let edge = match (port.enabled, port.oper_edge) {
            (false, _) => port.config.admin_edge,
            (true, edge) => edge || silent,
        };
        let moves = edge != port.oper_edge;
        port.oper_edge = edge;
        moves
    }
}

impl StpPort {
    fn sense(&mut self) {
        self.migration = Migration::Sensing;
        (self.rcvd_rstp, self.rcvd_stp) = (false, false);
    }
}
