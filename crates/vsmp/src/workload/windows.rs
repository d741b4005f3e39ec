//! Progress in windows of time, without those in which a thread did not run.
//!
//! On a machine with other work a mean over seconds says more about that work than about the program. Each thread of a
//! measurement reports its progress in short windows, and each pause between two reports that is longer than any step
//! of its own: another program had its CPU. A window counts if no thread of the run had such a pause in it.

/// Length of a window, in nanoseconds.
pub const WINDOW: u64 = 1_000_000;
/// The shortest time between two reports of a thread that counts as a pause, in nanoseconds.
pub const PAUSE: u64 = 250_000;

/// A window of one thread, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Bytes, requests or rounds that were completed in it.
    pub progress: u64,
    /// Whether a thread had a pause in it, or did not report to its end.
    pub interrupted: bool,
}

/// The windows of one thread.
#[derive(Clone, Debug)]
pub struct Windows {
    start: u64,
    last: u64,
    windows: Vec<Window>,
}

impl Windows {
    /// Begins with the window that starts at `start`. All threads of a run need the same, in nanoseconds of one clock.
    pub fn from(start: u64) -> Windows {
        Windows { start, last: start, windows: Vec::new() }
    }

    fn window_of(&self, time: u64) -> usize {
        (time.saturating_sub(self.start) / WINDOW) as usize
    }

    /// The thread has completed `progress` since its last report. Each step of the thread ends with a report.
    #[inline]
    pub fn report(&mut self, now: u64, progress: u64) {
        let (first, window) = (self.window_of(self.last), self.window_of(now));
        if window >= self.windows.len() {
            self.windows.resize(window + 1, Window::default());
        }
        if now.saturating_sub(self.last) > PAUSE {
            self.windows[first..=window].iter_mut().for_each(|window| window.interrupted = true);
        }
        self.windows[window].progress += progress;
        self.last = now.max(self.last);
    }

    /// The same windows as if no thread had been interrupted: on a virtual machine a long step is no pause.
    pub fn trusting(windows: &[Window]) -> Vec<Window> {
        windows.iter().map(|window| Window { interrupted: false, ..*window }).collect()
    }

    /// The sums of several threads. A window that one thread did not reach is interrupted, and the last one is missing: it has
    /// no end.
    pub fn sum(threads: &[Windows]) -> Vec<Window> {
        let windows = threads.iter().map(|thread| thread.windows.len()).max().unwrap_or(0);
        let sum = |at: usize| {
            let each = threads.iter().map(|thread| thread.windows.get(at).copied());
            each.fold(Window::default(), |sum, window| match window {
                Some(window) => Window {
                    progress: sum.progress + window.progress,
                    interrupted: sum.interrupted || window.interrupted,
                },
                None => Window { interrupted: true, ..sum },
            })
        };
        (0..windows.saturating_sub(1)).map(sum).collect()
    }
}

/// The median of what is completed a second, and its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Of the windows that count, for each second.
    pub median: f64,
    /// Half of the distance between the first and the third quartile, for each second.
    pub spread: f64,
    /// Windows that count.
    pub valid: usize,
}

impl Rate {
    /// Of the windows after the first `skipped`; `None` if none of them counts.
    pub fn of(windows: &[Window], skipped: usize) -> Option<Rate> {
        let counted = windows.iter().skip(skipped).filter(|window| !window.interrupted);
        let mut rates: Vec<f64> = counted.map(|window| window.progress as f64 * 1e9 / WINDOW as f64).collect();
        rates.sort_by(f64::total_cmp);
        let at = |quarters: usize| rates.get((rates.len() * quarters / 4).min(rates.len().saturating_sub(1))).copied();
        Some(Rate { median: at(2)?, spread: (at(3)? - at(1)?) / 2.0, valid: rates.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports of a thread every 10 us, `by` a report, except in the pauses.
    fn thread(windows: u64, by: u64, pauses: &[(u64, u64)]) -> Windows {
        let mut thread = Windows::from(1000);
        let reports = (0..windows * WINDOW).step_by(10_000);
        let paused = |at: &u64| pauses.iter().any(|&(from, until)| (from..until).contains(at));
        reports.filter(|at| !paused(at)).for_each(|at| thread.report(1000 + at, by));
        thread
    }

    #[test]
    fn a_window_counts_if_no_thread_had_a_pause_in_it() {
        let pause = (WINDOW + 100_000, WINDOW + 400_000);
        let sum = Windows::sum(&[thread(4, 1, &[pause]), thread(4, 2, &[])]);
        assert_eq!(sum.iter().map(|window| window.interrupted).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!((sum[0].progress, sum[2].progress), (300, 300));
    }

    #[test]
    fn a_pause_across_windows_interrupts_all_of_them() {
        let sum = Windows::sum(&[thread(5, 1, &[(WINDOW - 50_000, 3 * WINDOW + 50_000)])]);
        assert_eq!(sum.iter().map(|window| window.interrupted).collect::<Vec<_>>(), [true, true, true, true]);
    }

    #[test]
    fn a_thread_that_ends_early_leaves_no_window_that_counts() {
        let sum = Windows::sum(&[thread(4, 1, &[]), thread(2, 1, &[])]);
        assert_eq!(sum.iter().map(|window| window.interrupted).collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn a_rate_is_the_median_of_those_that_count() {
        let windows = [9, 1, 3, 2].map(|progress| Window { progress, interrupted: progress == 9 });
        let rate = Rate::of(&windows, 0).expect("three count");
        assert_eq!((rate.median, rate.valid), (2e9 / WINDOW as f64, 3));
        assert_eq!(Rate::of(&windows[..1], 0), None);
        assert_eq!(Rate::of(&windows, 4), None);
    }
}
