//! Runs of the packets' workload: each argument is a line of it, on the numbers of CPUs that `--cpus` names.
//!
//! ```text
//! cargo run -p heddle-vsmp --example packets -- --cpus 1,4,8 "msgp-pool+tas+unordered receive checksum"
//! ```

use std::error::Error;

use vsmp::workload::packets::{PacketBalance, Packets};
use vsmp::{Arena, Preset};

#[global_allocator]
static ARENA: Arena = Arena::new();

fn main() -> Result<(), Box<dyn Error>> {
    let mut preset = Preset::named("sgi-challenge")?;
    let (mut cpus, mut seeds) = (vec![1, 2, 3, 4, 5, 6, 7, 8], 1);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or("a value is missing");
        match argument.as_str() {
            "--cpus" => cpus = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--seeds" => seeds = value()?.parse()?,
            "--set" => {
                let change = value()?;
                let (name, number) = change.split_once('=').ok_or("NAME=NUMBER is expected")?;
                preset = preset.with(name, number.parse()?)?;
            }
            line => run(line, &cpus, seeds, &preset)?,
        }
    }
    Ok(())
}

fn run(line: &str, cpus: &[usize], seeds: u64, preset: &Preset) -> Result<(), Box<dyn Error>> {
    println!("{line}");
    println!("  CPUs    Mb/s  out of order, %  inversions, %  waiting, %  CPU cycles/packet: all, spinning, misses");
    for &cpus in cpus {
        for seed in 1..=seeds {
            let packets = Packets::parse(line, cpus, seed, preset)?;
            let carried = packets.simulate();
            let packet = |cycles: u64| cycles as f64 / (carried.bytes as f64 / packets.traffic.payload as f64);
            println!(
                "  {cpus:>4}{:>8.1}{:>17.2}{:>15.2}{:>12.1}{:>10.0}{:>10.0}{:>8.1}  wrong {}",
                carried.megabits(),
                carried.out_of_order_percent(),
                carried.inversions_percent(),
                carried.waiting_percent(cpus),
                packet(carried.account.total()),
                packet(carried.account.spin_cycles),
                packet(carried.account.misses()),
                carried.wrong,
            );
            if let (Some(balance), Some(account)) = (carried.balance, &carried.packets) {
                let PacketBalance { made, taken, under_way: [first, last] } = balance;
                println!(
                    "        measured: {made} packets made, {taken} taken; made and not taken {first}, then {last}"
                );
                println!("        the run: {account}");
            }
        }
    }
    Ok(())
}
