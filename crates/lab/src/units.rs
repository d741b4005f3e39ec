//! Readable numbers: three significant digits and a suitable unit.

use std::time::Duration;

use crate::stats::Estimate;

/// `value` to three significant digits: "0.0123", "4.57", "31.2", "5440".
pub fn significant(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    if value == 0.0 {
        return "0".into();
    }
    let decimals = 2 - value.abs().log10().floor() as i32;
    let text = format!("{value:.*}", decimals.clamp(0, 9) as usize);
    // 9.996 has one digit before the point until it is rounded.
    if text.contains('.') && text.trim_start_matches(['-', '0', '.']).replace('.', "").len() > 3 {
        return format!("{value:.*}", (decimals - 1).clamp(0, 9) as usize);
    }
    text
}

/// A count with a decimal prefix: "950", "16.4 k", "3.20 M".
pub fn count(value: f64) -> String {
    scaled(value, 1000.0, &["", " k", " M", " G", " T"])
}

/// Bytes with a binary prefix: "512 B", "64.0 KiB", "1.50 GiB".
pub fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"])
}

/// A duration for progress lines: "2 m 05 s", "41 s".
pub fn duration(value: Duration) -> String {
    let seconds = value.as_secs_f64().round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} m {s:02} s"),
        (h, m, _) => format!("{h} h {m:02} m"),
    }
}

/// A mean and its interval to the same decimal place, "31.2 ± 0.4"; from 10 000 on with prefixes, "2.00 M ± 30.0 k".
pub fn estimate(estimate: Estimate) -> String {
    let large = estimate.mean.abs() >= 10_000.0;
    let mean = if large { count(estimate.mean) } else { significant(estimate.mean) };
    let decimals = mean.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let half = |ci: f64| if large { count(ci) } else { format!("{ci:.decimals$}") };
    estimate.ci95.map_or(mean.clone(), |ci| format!("{mean} ± {}", half(ci)))
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value.abs() >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let exact = unit == 0 && value.fract() == 0.0;
    let digits = if exact { format!("{value:.0}") } else { significant(value) };
    format!("{digits}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        let table = [
            (0.0, "0"),
            (0.012_34, "0.0123"),
            (4.567, "4.57"),
            (31.23, "31.2"),
            (9.996, "10.0"),
            (99.97, "100"),
            (0.999_7, "1.00"),
            (5440.2, "5440"),
            (-4.567, "-4.57"),
            (f64::NAN, "-"),
        ];
        for (value, text) in table {
            assert_eq!(significant(value), text, "{value}");
        }
    }

    #[test]
    fn prefixes() {
        assert_eq!(count(950.0), "950");
        assert_eq!(count(16_384.0), "16.4 k");
        assert_eq!(count(3_200_000.0), "3.20 M");
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(65_536.0), "64.0 KiB");
        assert_eq!(bytes(1.5 * 1024.0 * 1024.0 * 1024.0), "1.50 GiB");
    }

    #[test]
    fn estimates_show_their_interval_to_the_same_place() {
        assert_eq!(estimate(Estimate { mean: 31.234, ci95: Some(0.4321) }), "31.2 ± 0.4");
        assert_eq!(estimate(Estimate { mean: 4.5678, ci95: None }), "4.57");
        assert_eq!(estimate(Estimate { mean: 2_000_000.0, ci95: Some(30_000.0) }), "2.00 M ± 30.0 k");
    }

    #[test]
    fn durations() {
        assert_eq!(duration(Duration::from_millis(40_600)), "41 s");
        assert_eq!(duration(Duration::from_secs(125)), "2 m 05 s");
        assert_eq!(duration(Duration::from_secs(3_720)), "1 h 02 m");
    }
}
