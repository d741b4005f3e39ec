//! Shuttle's platform without time-outs: a thread that sleeps is woken by another thread or never, so a wake-up that is
//! lost shows.

use sync::shuttle::Shuttle;
use testbed::over::{Manner, Over};

pub type Patient = Over<Shuttle, NoTimeouts>;

#[derive(Clone, Copy, Debug, Default)]
pub struct NoTimeouts;

impl Manner for NoTimeouts {
    const WITHOUT_TIMEOUTS: bool = true;
}
