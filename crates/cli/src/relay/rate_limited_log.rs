//! Messages about connections that could not be carried, rate-limited so that they do not hide other output.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most messages in each [`SPAN`]; the rest are counted.
const AT_ONCE: u32 = 5;
const SPAN: Duration = Duration::from_secs(1);

/// The messages printed recently.
#[derive(Default)]
pub struct RateLimitedLog {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    since: Option<Instant>,
    said: u32,
    kept: u64,
}

impl RateLimitedLog {
    /// Prints `problem` to standard error, unless the limit is reached.
    pub fn print(&self, problem: &str) {
        let verdict = self.state.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now());
        match verdict {
            Some(0) => eprintln!("heddle: {problem}"),
            Some(kept) => eprintln!("heddle: {problem} (and {kept} more problems a moment ago)"),
            None => {}
        }
    }
}

impl State {
    /// `None`: print nothing. Otherwise how many were suppressed since the last one.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now - since >= SPAN) {
            (self.since, self.said) = (Some(now), 0);
        }
        self.said += 1;
        if self.said > AT_ONCE {
            self.kept += 1;
            return None;
        }
        Some(std::mem::take(&mut self.kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_problems_is_counted() {
        let (mut state, start) = (State::default(), Instant::now());
        let said: Vec<_> = (0..8).map(|_| state.admit(start)).collect();
        assert_eq!(said, [Some(0), Some(0), Some(0), Some(0), Some(0), None, None, None]);
        assert_eq!(state.admit(start + SPAN), Some(3));
        assert_eq!(state.admit(start + SPAN), Some(0));
    }
}
