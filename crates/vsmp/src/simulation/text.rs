//! The results of a simulation as text: the paper's figures, cycles by purpose, misses, locks, switches of threads.

use std::fmt::{self, Display};

use sync::Object;
use sync::profile::ClassProfile;

use super::{Mean, Results, Workload, failed};
use crate::ledger::{PartGroup, SwitchKind};
use crate::preset::Kernel;
use crate::workload::measured::Measured;
use crate::workload::packets::PacketBalance;

/// A row of a table: its name, and what it counts.
type Row = (&'static str, fn(&Measured) -> u64);

/// The same of packets.
type PacketRow = (&'static str, fn(&PacketBalance) -> u64);

/// CPUs of a machine for which a line each is printed.
const LISTED: usize = 16;

impl Results {
    /// What ran; of a bridge also the frames that it forwards without loss.
    fn heading(&self, f: &mut fmt::Formatter<'_>, what: &str) -> fmt::Result {
        let Results { simulation, .. } = self;
        let Workload::Bridge(load) = simulation.workload else {
            return writeln!(f, "{what}: {}, {} connections", simulation.arch_name(), simulation.connections);
        };
        let cpus = self.runs[0].account.cpus.len();
        writeln!(f, "{what}: {load}, {cpus} of {} CPUs forward", simulation.cpus)?;
        let title = if load.rate.is_some() { "delivered, kfps" } else { "without loss, kfps" };
        let kilo_frames = self.mean(|run| run.megabits() * 1e3 / (8 * load.bytes) as f64);
        writeln!(f, "  {title:<28}{kilo_frames:>18.1}")
    }

    /// The paper's numbers, whether the machine's values were fitted to them, and the error of the model.
    fn lines_of_paper(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(point) = self.point() else { return Ok(()) };
        let how = if point.fitted { "fitted" } else { "held out" };
        let rows = [
            ("throughput, Mb/s", point.megabits, self.megabits()),
            ("misses/KB", point.misses, self.misses()),
            ("scheduler, cycles/KB", point.scheduler, self.scheduler_cycles()),
        ];
        writeln!(f, "  {:<28}{:>18}", "the paper", how)?;
        for (name, paper, Mean { mean, .. }) in rows {
            if let Some(paper) = paper {
                writeln!(f, "    {name:<26}{paper:>18} {:>+7.0} %", 100.0 * (mean / paper - 1.0))?;
            }
        }
        Ok(())
    }

    /// The cycles of all CPUs by purpose: the parts add up to the first line.
    fn lines_of_cycles(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.by_kilobyte(|run| run.account.total());
        writeln!(f, "  {:<28}{all:>18.0}", "cycles/KB, all CPUs")?;
        for group in PartGroup::ALL {
            let of = |run: &Measured| run.account.cpus.iter().map(|cpu| cpu.group(group)).sum();
            writeln!(f, "    {:<26}{:>18.0}", group.name(), self.by_kilobyte(of))?;
            let parts = || group.parts().filter(|part| self.runs.iter().any(|run| run.account.cycles(*part) > 0));
            for part in parts().filter(|_| parts().count() > 1) {
                let cycles = self.by_kilobyte(|run| run.account.cycles(part));
                writeln!(f, "      {:<24}{cycles:>18.0}", part.name())?;
            }
        }
        Ok(())
    }

    /// The same for each CPU, in percent of its time.
    fn lines_of_cpus(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus = self.runs[0].account.cpus.len();
        if cpus > LISTED {
            return Ok(());
        }
        write!(f, "  {:<28}", "each CPU, %")?;
        PartGroup::ALL.iter().try_for_each(|group| write!(f, "{:>12}", group.name()))?;
        writeln!(f)?;
        for cpu in 0..cpus {
            write!(f, "    {cpu:<26}")?;
            for group in PartGroup::ALL {
                let share = |run: &Measured| {
                    let ledger = &run.account.cpus[cpu];
                    100.0 * ledger.group(group) as f64 / ledger.total.max(1) as f64
                };
                write!(f, "{:>12.1}", self.mean(share).mean)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }

    /// On the receive side of packets: the throughput counts those that the application took, not those that were made.
    fn lines_of_packets(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(runs) = self.runs.iter().map(|run| run.packets).collect::<Option<Vec<_>>>() else { return Ok(()) };
        let rows: [PacketRow; 4] = [
            ("packets taken by application", |packets| packets.taken),
            ("  made by the remote end", |packets| packets.made),
            ("  made, not taken: at first", |packets| packets.under_way[0]),
            ("  made, not taken: at the end", |packets| packets.under_way[1]),
        ];
        for (name, of) in rows {
            let counts: Vec<f64> = runs.iter().map(|packets| of(packets) as f64).collect();
            writeln!(f, "  {name:<28}{:>18.0}", Mean::of(&counts))?;
        }
        Ok(())
    }

    fn lines_of_misses(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:<28}{:>18.2}", "misses/KB", self.misses())?;
        for object in Object::ALL {
            let misses = self.by_kilobyte(|run| run.account.object_misses[object as usize]);
            writeln!(f, "    {:<26}{misses:>18.2}", object.name())?;
        }
        let rest: [Row; 4] = [
            ("atomics and locks", |run| run.account.atomic_misses),
            ("scheduler", |run| run.account.scheduler_misses),
            ("footprint of the kernel", |run| run.account.footprint_misses),
            ("of all, from a cache", |run| run.account.transfers),
        ];
        for (name, of) in rest {
            writeln!(f, "    {name:<26}{:>18.2}", self.by_kilobyte(of))?;
        }
        Ok(())
    }

    /// A line for each class of locks that was used: acquisitions, first tries that failed, waiting and holding.
    fn lines_of_locks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megahertz = self.simulation.preset.costs(self.kernel).on(self.simulation.cpus).megahertz;
        let cycles = |nanos: u64| nanos * megahertz / 1000;
        let titles = ["acquisitions/KB", "first try fails, %", "waiting, cycles/KB", "holding, cycles/KB"];
        write!(f, "  {:<28}", "lock")?;
        titles.iter().try_for_each(|title| write!(f, "{title:>20}"))?;
        writeln!(f)?;
        for (index, lock) in self.runs[0].locks.iter().enumerate() {
            let of = |run: &Measured| -> ClassProfile { run.locks[index] };
            if self.runs.iter().all(|run| of(run).acquired == 0) {
                continue;
            }
            let [acquired, waiting, holding] = [
                self.by_kilobyte(|run| of(run).acquired),
                self.by_kilobyte(|run| cycles(of(run).wait_ns)),
                self.by_kilobyte(|run| cycles(of(run).hold_ns)),
            ];
            let failed = self.mean(|run| failed(&of(run)));
            let name = lock.class.name();
            writeln!(f, "    {name:<26}{acquired:>20.3}{failed:>20.1}{waiting:>20.0}{holding:>20.0}")?;
        }
        Ok(())
    }

    fn lines_of_switches(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {:<28}{:>18.3}", "switches/KB", self.by_kilobyte(|run| run.account.switches))?;
        for kind in SwitchKind::ALL {
            let switches = self.by_kilobyte(|run| run.account.switch_kinds[kind as usize]);
            writeln!(f, "    {:<26}{switches:>18.3}", kind.name())?;
        }
        writeln!(f, "  {:<28}{:>18.3}", "wake-ups/KB", self.by_kilobyte(|run| run.account.wakes))
    }
}

impl Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Results { kernel, runs, .. } = self;
        let what = match kernel {
            Kernel::Heddle => "Heddle as it is",
            Kernel::OfThePaper => "Heddle's exclusion, footprint and habits of the paper's kernel",
        };
        self.heading(f, what)?;
        writeln!(f, "  {:<28}{:>18.0}", "throughput, Mb/s", self.megabits())?;
        if let Some(fairness) = runs.iter().map(Measured::fairness).collect::<Option<Vec<_>>>() {
            writeln!(f, "  {:<28}{:>18.3}", "fairness (Jain)", Mean::of(&fairness))?;
        }
        self.lines_of_packets(f)?;
        let unsteady = runs.iter().filter(|run| !run.steady).count();
        if unsteady > 0 {
            writeln!(f, "  {unsteady} of {} runs never became steady: their numbers are unreliable", runs.len())?;
        }
        if *kernel == Kernel::OfThePaper {
            self.lines_of_paper(f)?;
        }
        self.lines_of_cycles(f)?;
        self.lines_of_cpus(f)?;
        self.lines_of_misses(f)?;
        self.lines_of_locks(f)?;
        self.lines_of_switches(f)
    }
}
