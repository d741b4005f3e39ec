//! A calibration and its predictions as a page of text.

use std::fmt::{self, Display};

use vsmp::workload::pair::{Load, Pair};

use super::{Calibration, Cost, Errors, Measurements, Prediction, Relative};

impl Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Measurements { cpus, lines, sleeps, together, steps, transfers, .. } = &self.measured;
        writeln!(
            f,
            "{}, {} MHz, {} cores, private caches of {} KiB",
            cpus.model,
            cpus.megahertz,
            cpus.cores,
            cpus.private_cache >> 10
        )?;
        writeln!(f, "\n  {:<52}{:>10}{:>10}{:>14}", "cost of", "ns", "quartiles", "batches")?;
        for (what, cost) in [
            ("a line that another CPU has changed", lines.transfer),
            ("a line that follows such a line", lines.following),
            ("a write to a line that another CPU has, too", lines.upgrade),
            ("a line from behind the private caches", lines.memory),
            ("an atomic read-modify-write", lines.read_modify_write),
            ("a turn of a spin loop", lines.relax),
            ("64 bytes copied and summed", lines.payload_line),
            ("a system call", sleeps.system_call),
            ("waking a thread, beyond the call", sleeps.wake),
            ("the same, if its CPU is idle: in addition", sleeps.wake_idle),
            ("a change of threads", sleeps.switch),
            ("the way out of idleness", sleeps.idle_exit),
        ] {
            let Cost { nanos, spread, valid, batches } = cost;
            writeln!(
                f,
                "  {what:<52}{nanos:>10.1}{:>10}{:>14}",
                format!("±{spread:.1}"),
                format!("{valid} of {batches}")
            )?;
        }
        writeln!(
            f,
            "  speed of a CPU while others work, sharing nothing: {:.1} % ± {:.1} ({} windows)",
            100.0 * together.median,
            100.0 * together.spread,
            together.valid
        )?;
        writeln!(f, "\n  {:<16}{:>14}{:>18}{:>14}", "step", "ns, fitted", "by time stamps", "stamps")?;
        for step in sync::Step::ALL {
            let at = step as usize;
            let (fitted, stamped, count) = (steps.nanos[at], steps.stamped.nanos[at], steps.stamped.counts[at]);
            if count > 0 {
                writeln!(f, "  {:<16}{fitted:>14.0}{stamped:>18.0}{count:>14}", step.name())?;
            }
        }
        writeln!(f, "\nFitted to, on one CPU:")?;
        for (pair, [real, model]) in &steps.rates {
            writeln!(f, "  {:<52}model {:+.1} %", name(pair), 100.0 * (model / real - 1.0))?;
        }
        writeln!(
            f,
            "Fitted to, on several CPUs: shared lines x {:.2}, the lines behind them x {:.2}",
            transfers.line, transfers.following
        )?;
        for (pair, run) in &transfers.runs {
            writeln!(f, "  {:<52}{:.2} times one CPU ({} windows)", name(pair), run.ratio, run.valid)?;
        }
        Ok(())
    }
}

/// A run by its architecture, lock and load.
pub fn name(pair: &Pair) -> String {
    let load = match pair.load {
        Load::Bulk => "bulk".to_owned(),
        Load::Requests(bytes) => format!("requests of {bytes} bytes"),
        Load::SetupAndClose => "set-up and close".to_owned(),
    };
    let locks = pair.arch.properties().has_locks;
    let lock = if locks { format!(", {}", pair.lock_kind) } else { String::new() };
    format!("{}{lock}, {load}", pair.arch)
}

/// Predictions with their errors, and a summary.
pub struct Predictions<'a>(pub &'a [Prediction]);

impl Display for Predictions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus = self.0.first().map_or(2, |prediction| prediction.pair.cpus);
        writeln!(
            f,
            "Not fitted: {cpus} CPUs relative to one; relative to what work that shares nothing gains; and one CPU"
        )?;
        writeln!(
            f,
            "  {:<46}{:>8}{:>9}{:>8}{:>9}{:>10}{:>9}",
            "run", "ratio", "relative", "model", "error", "one CPU", "windows"
        )?;
        for prediction in self.0 {
            let name = name(&prediction.pair);
            let (Some(real), Some([ratio, alone])) = (prediction.real, prediction.errors()) else {
                writeln!(f, "  {name:<46}  not measured: interrupted, or its CPUs were moved, all the time")?;
                continue;
            };
            let Relative { efficiency, valid, ratio: raw, .. } = real;
            let flag = if prediction.scheduler_bound { "  scheduler-bound" } else { "" };
            let (model, ratio, alone) = (prediction.model[1], 100.0 * ratio, 100.0 * alone);
            writeln!(
                f,
                "  {name:<46}{raw:>8.2}{efficiency:>9.2}{model:>8.2}{ratio:>+8.1}%{alone:>+9.1}%{valid:>9}{flag}"
            )?;
        }
        let errors = Errors::of(self.0);
        let mut line = |what: &str, of: &[f64]| match Errors::median_and_worst(of) {
            Some([median, worst]) => writeln!(
                f,
                "  {what}: off by {:.1} % in the median, {:.1} % at worst, {} runs",
                100.0 * median,
                100.0 * worst,
                of.len()
            ),
            None => writeln!(f, "  {what}: nothing was measured"),
        };
        line("ratio", &errors.ratio)?;
        line("one CPU", &errors.alone)
    }
}
