//! A calibration of the machine of the test: every value that it writes says where it comes from, and the model runs with it.

use std::time::Duration;

use lab::calibrate::{Calibration, CalibrationError, Effort, Errors, Predictions};
use vsmp::Arena;
use vsmp::preset::{Origin, Preset};

#[global_allocator]
static ARENA: Arena = Arena::new();

/// As short as a calibration can be; its figures mean nothing.
fn brief() -> Effort {
    Effort {
        time: Duration::from_millis(15),
        rounds: 1,
        virtual_time: Duration::from_millis(6),
        cpus: 2,
        round_trip_ns: None,
    }
}

#[test]
fn a_calibration_is_a_machine_of_the_simulator() {
    let mut measured = Vec::new();
    // On a busy machine every window of so short a run may be interrupted.
    let calibration =
        (0..20).find_map(|_| match Calibration::measure(&brief(), |what| measured.push(what.to_owned())) {
            Ok(calibration) => Some(Some(calibration)),
            Err(CalibrationError::Interrupted) => None,
            Err(error @ CalibrationError::TooFewCpus { .. }) => {
                assert!(error.to_string().contains("taskset"), "{error}");
                Some(None)
            }
            Err(error) => panic!("{error}"),
        });
    let Some(calibration) = calibration.expect("one of twenty is not interrupted") else { return };
    assert!(measured.contains(&"cache lines".to_owned()) && measured.contains(&"the steps of the stack".to_owned()));
    let preset = Preset::parse(&calibration.preset.to_toml()).expect("it reads back");
    for (name, value) in preset.values() {
        let section = name.split('.').next().unwrap_or_default();
        let hardware = ["machine", "work", "scheduler"].contains(&section);
        if hardware && value.origin != Origin::Assumed {
            assert!(!value.why.is_empty(), "{name} does not say how it was measured");
        }
        if !hardware {
            assert_eq!(value.origin, Origin::Assumed, "{name} was not measured");
        }
    }
    assert!(preset.count(Origin::Measured) >= 10 && preset.count(Origin::Fitted) >= 6, "{}", preset.to_toml());
    for (pair, rates) in &calibration.measured.steps.rates {
        assert!(rates.iter().all(|rate| *rate > 0.0), "{}", lab::calibrate::name(pair));
    }
    let mut announced = 0;
    let predictions = calibration.predict(&brief(), |place, count, _| {
        assert_eq!((place, count > place), (announced, true));
        announced += 1;
    });
    assert_eq!(predictions.len(), announced);
    assert!(predictions.iter().any(|prediction| prediction.scheduler_bound));
    for prediction in &predictions {
        assert!(prediction.model.iter().all(|rate| *rate > 0.0), "{}", lab::calibrate::name(&prediction.pair));
    }
    let text = Predictions(&predictions).to_string();
    let unflagged = predictions.iter().filter(|prediction| !prediction.scheduler_bound && prediction.real.is_some());
    assert_eq!(Errors::of(&predictions).ratio.len(), unflagged.count(), "{text}");
    assert_eq!(text.lines().filter(|line| line.ends_with("scheduler-bound")).count(), {
        predictions.iter().filter(|prediction| prediction.scheduler_bound && prediction.real.is_some()).count()
    });
}

#[test]
fn a_machine_with_too_few_cores_is_refused_with_the_remedy() {
    let error = Calibration::measure(&Effort { cpus: 4096, ..brief() }, |_| {}).expect_err("no machine has as many");
    assert!(error.to_string().starts_with("calibration needs 4096 cores, and this process may use "), "{error}");
}
