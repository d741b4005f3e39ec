//! Shuttle's platform without time-outs: a sleeping thread is woken by another thread or never, so a lost wake-up
//! shows.

use sync::shuttle::Shuttle;
use testbed::over::{Variant, Variation};

pub type Patient = Variation<Shuttle, NoTimeouts>;

#[derive(Clone, Copy, Debug, Default)]
pub struct NoTimeouts;

impl Variant for NoTimeouts {
    const WITHOUT_TIMEOUTS: bool = true;
}
