//! Port Transmit (17.26): at most Transmit Hold Count BPDUs a second, one each Hello Time where the port connects its
//! LAN to the root, and one when the information has changed.

use core::time::Duration;

use observe::Time;
use wire::stp::{Bpdu, ConfigBpdu, PortRole, Rapid};

use super::port::{Role, StpPort};
use super::{Effect, Stp};

impl Stp {
    /// Makes one transition of the machine, if there is one to make.
    pub(super) fn transmit(&mut self, at: usize, now: Time) -> bool {
        let hold_count = self.config.hold_count;
        let Some(port) = self.port_at(at) else { return false };
        if !port.enabled {
            // TRANSMIT_INIT
            (port.new_info, port.tx_count, port.transmits) = (true, 0, false);
            return false;
        }
        if port.tx_count > 0 && !port.tick.runs(now) {
            port.tx_count -= 1;
            port.tick.start(now, Duration::from_secs(1));
            return true;
        }
        if !port.selected || port.updt_info {
            return false;
        }
        if !port.transmits || !port.hello.runs(now) {
            // TRANSMIT_PERIODIC, and IDLE after TRANSMIT_INIT
            port.new_info |= port.role == Role::Designated || (port.role == Role::Root && port.tc.runs(now));
            port.transmits = true;
            port.hello.start(now, port.hello_time());
            return true;
        }
        if !port.new_info || port.tx_count >= hold_count {
            return false;
        }
        let Some(bpdu) = port.bpdu(now) else { return false };
        if port.tx_count == 0 {
            port.tick.start(now, Duration::from_secs(1));
        }
        port.tx_count += 1;
        port.new_info = false;
        // A notification is no acknowledgement.
        port.tc_ack &= bpdu == Bpdu::Notification;
        port.hello.start(now, port.hello_time());
        let port = port.number;
        self.effects.push_back(Effect::Transmit { port, bpdu });
        true
    }
}

impl StpPort {
    /// The BPDU to transmit: txRstp, txConfig, txTcn (17.21.19 to 21). `None`: nothing, by STP.
    fn bpdu(&self, now: Time) -> Option<Bpdu> {
        let (priority, times, topology_change) = (self.designated_priority, self.designated_times, self.tc.runs(now));
        if self.send_rstp {
            let role = match self.role {
                Role::Root => PortRole::Root,
                Role::Designated => PortRole::Designated,
                Role::Alternate | Role::Backup => PortRole::AlternateOrBackup,
                Role::Disabled => return None,
            };
            return Some(Bpdu::Rapid(Rapid {
                topology_change,
                proposal: self.proposing,
                role,
                learning: self.learning,
                forwarding: self.forwarding,
                agreement: self.agree,
                acknowledgement: false,
                priority,
                times,
            }));
        }
        match self.role {
            Role::Designated => {
                Some(Bpdu::Config(ConfigBpdu { topology_change, acknowledgement: self.tc_ack, priority, times }))
            }
            Role::Root => Some(Bpdu::Notification),
            Role::Alternate | Role::Backup | Role::Disabled => None,
        }
    }
}
