use super::*;
use crate::profile::Profile;

#[test]
fn the_table_is_sorted_and_has_no_name_twice() {
    let names: Vec<_> = KNOBS.iter().map(|knob| knob.name).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(names, sorted);
}

/// A knob parses its own output, in every profile, and that changes nothing.
#[test]
fn values_read_back() {
    for &profile in Profile::ALL {
        let original = profile.config();
        for knob in KNOBS {
            let mut config = original.clone();
            let text = knob.value(&config);
            assert_eq!(knob.set(&mut config, &text), Ok(()), "{} of {profile}", knob.name);
            if knob.name != "tcp_fastopen_key" {
                assert_eq!(config, original, "{} of {profile}", knob.name);
            }
        }
    }
}

/// Both ends of every range are accepted and read back; one beyond is refused and changes nothing.
#[test]
fn ranges_are_kept() {
    for knob in KNOBS {
        let KnobForm::Number { range: (least, most), .. } = knob.form else { continue };
        for value in [least, most] {
            let mut config = Config::default();
            assert_eq!(knob.set(&mut config, &value.to_string()), Ok(()), "{}", knob.name);
            let lossy = ["tcp_early_retrans", "tcp_timestamps"].contains(&knob.name);
            assert!(lossy || knob.value(&config) == value.to_string(), "{} = {value}", knob.name);
        }
        for value in [least - 1, most + 1] {
            let untouched = Config::default();
            let mut config = untouched.clone();
            let error = knob.set(&mut config, &value.to_string()).expect_err(knob.name);
            let said = error.to_string();
            assert!(said.contains(knob.name) && said.contains(&value.to_string()) && said.contains("give "), "{said}");
            assert_eq!(config, untouched);
        }
    }
}

#[test]
fn a_working_number_changes_the_configuration() {
    for knob in KNOBS.iter().filter(|knob| knob.idle.is_none()) {
        let KnobForm::Number { range: (least, most), .. } = knob.form else { continue };
        let before = Config::default();
        let other = if knob.value(&before) == least.to_string() { most } else { least };
        let mut config = before.clone();
        knob.set(&mut config, &other.to_string()).expect(knob.name);
        assert_ne!(config, before, "{}", knob.name);
    }
}

#[test]
fn triples_are_three_and_in_order() {
    let mut config = Config::default();
    assert_eq!(set(&mut config, "net.ipv4.tcp_rmem", "4096 131072\t15728640\n"), Ok(()));
    assert_eq!(
        (config.receive_buffer.min, config.receive_buffer.initial, config.receive_buffer.max),
        (2048, 65_536, 7_864_320),
        "half of it for text"
    );
    assert_eq!(config.window_shift(), 8, "as Linux with 15 MiB");
    assert_eq!(set(&mut config, "tcp_adv_win_scale", "2"), Ok(()));
    assert_eq!(config.receive_buffer.max, 11_796_480, "three quarters of the same");
    assert_eq!(find("tcp_rmem").expect("known").value(&config), "4096\t131072\t15728640");
    for wrong in ["4096 131072", "1 2 3 4", "3 2 1", "0 1 2", "1 2 x", ""] {
        let before = config.clone();
        let error = set(&mut config, "tcp_rmem", wrong).expect_err(wrong);
        assert!(matches!(error, KnobError::Value { name: "tcp_rmem", .. }), "{wrong}");
        assert_eq!(config, before);
    }
}

#[test]
fn fast_open_keys_are_in_linux_order() {
    let mut config = Config::default();
    set(&mut config, "tcp_fastopen_key", "04030201-08070605-0c0b0a09-100f0e0d").expect("a key");
    let key = core::array::from_fn(|n| n as u8 + 1);
    assert_eq!(config.fast_open_keys.primary, Some(key));
    let two = "04030201-08070605-0c0b0a09-100f0e0d,00000001-00000002-00000003-00000004";
    set(&mut config, "tcp_fastopen_key", two).expect("two keys");
    assert_eq!(find("tcp_fastopen_key").expect("known").value(&config), two);
    for wrong in ["", "1-2-3", "1-2-3-4-5", "x-2-3-4", "1-2-3-4,", "123456789-2-3-4"] {
        assert!(set(&mut config, "tcp_fastopen_key", wrong).is_err(), "{wrong}");
    }
    assert!(!format!("{config:?}").contains("04030201"), "no secret in a debug print");
}

#[test]
fn errors_name_the_knob_and_the_remedy() {
    let mut config = Config::default();
    let said = |result: Result<(), KnobError>| result.expect_err("wrong").to_string();
    assert_eq!(
        said(assign(&mut config, "tcp_sak=1")),
        "there is no knob `tcp_sak`: did you mean `tcp_sack`? `heddle knobs` lists them all"
    );
    assert_eq!(
        said(assign(&mut config, "tcp_of_another_stack=1")),
        "there is no knob `tcp_of_another_stack`: `heddle knobs` lists them all",
        "nothing is near"
    );
    assert_eq!(said(assign(&mut config, "tcp_sack=")), "tcp_sack has no value: give a whole number from 0 to 1");
    assert_eq!(said(assign(&mut config, "tcp_sack=2")), "tcp_sack cannot be `2`: give a whole number from 0 to 1");
    assert_eq!(
        said(assign(&mut config, "tcp_sack")),
        "`tcp_sack` is not an assignment: write NAME=VALUE, such as tcp_sack=1"
    );
    assert_eq!(
        said(assign(&mut config, "tcp_congestion_control=bbr")),
        "tcp_congestion_control cannot be `bbr`: give `cubic` or `reno`"
    );
    assert_eq!(assign(&mut config, "/proc/sys/net/ipv4/tcp_fastopen = 0x603"), Ok(()));
    assert_eq!(config.fast_open.0, 0x603);
}
