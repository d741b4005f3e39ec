//! Answers of a running bridge as lines, in the format of iproute2's `bridge`.

use std::fmt::Write;

use serde_json::Value;

use super::intrctl;
use super::request::Request;

/// The lines of an answer, each with its end.
pub fn lines(request: &Request, answer: &Value) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = match request {
        Request::Show => show(&mut text, answer),
        Request::Fdb => fdb(&mut text, answer),
        Request::Vlan => vlan(&mut text, answer),
        Request::Stp => stp(&mut text, answer),
        Request::Stats => stats(&mut text, answer),
        Request::IntrList => intrctl::lines(&mut text, answer),
        Request::IntrAffinity { .. } | Request::IntrShield { .. } | Request::IntrDistribute => {
            writeln!(text, "{} queues moved", answer["moved"])
        }
        Request::FdbFlush { .. } => writeln!(text, "{} entries removed", answer["flushed"]),
        _ => Ok(()),
    };
    text
}

fn word<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn rows<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

fn switch(value: &Value, name: &str) -> &'static str {
    if value[name] == Value::Bool(true) { "on" } else { "off" }
}

type Written = std::fmt::Result;

fn show(text: &mut String, answer: &Value) -> Written {
    let (exclusion, workers) = (word(answer, "exclusion"), &answer["workers"]);
    let (vlans, ageing) = (switch(answer, "vlan_filtering"), &answer["ageing_time"]);
    writeln!(text, "exclusion {exclusion} workers {workers} vlan_filtering {vlans} ageing_time {ageing}")?;
    for port in rows(answer, "ports") {
        write!(text, "{}: {} mtu {} state {}", port["number"], word(port, "ifname"), port["mtu"], word(port, "state"))?;
        writeln!(text)?;
        write!(text, "   ")?;
        for option in ["learning", "flood", "mcast_flood", "bcast_flood", "isolated", "hairpin"] {
            write!(text, " {option} {}", switch(port, option))?;
        }
        if let Some(most) = port["max_addresses"].as_u64() {
            write!(text, " max_addresses {most}")?;
        }
        for limit in ["storm_bcast", "storm_mcast", "storm_unknown"] {
            if let Some(rate) = port[limit].as_str() {
                write!(text, " {limit} {rate}")?;
            }
        }
        writeln!(text)?;
    }
    Ok(())
}

fn fdb(text: &mut String, answer: &Value) -> Written {
    for entry in answer.as_array().into_iter().flatten() {
        write!(text, "{} dev {}", word(entry, "mac"), word(entry, "ifname"))?;
        if let Some(vlan) = entry["vlan"].as_u64() {
            write!(text, " vlan {vlan}")?;
        }
        if let Some(used) = entry["used"].as_u64() {
            write!(text, " used {used}")?;
        }
        if word(entry, "state") == "static" {
            write!(text, " static")?;
        }
        writeln!(text, "{}", if entry["sticky"] == Value::Bool(true) { " sticky" } else { "" })?;
    }
    Ok(())
}

fn vlan(text: &mut String, answer: &Value) -> Written {
    writeln!(text, "{:<16} vlan-id", "port")?;
    for port in answer.as_array().into_iter().flatten() {
        let mut name = word(port, "ifname");
        for vlan in rows(port, "vlans") {
            let mut flags = String::new();
            for (flag, said) in [("pvid", " PVID"), ("untagged", " Egress Untagged")] {
                if vlan[flag] == Value::Bool(true) {
                    flags.push_str(said);
                }
            }
            writeln!(text, "{name:<16} {}{flags}", vlan["vlan"])?;
            name = "";
        }
    }
    Ok(())
}

fn stp(text: &mut String, answer: &Value) -> Written {
    if word(answer, "protocol") == "none" {
        return writeln!(text, "no spanning tree");
    }
    let (bridge, root) = (word(answer, "bridge"), word(answer, "root"));
    write!(text, "bridge {bridge} root {root} root_cost {}", answer["root_cost"])?;
    match answer["root_port"].as_str() {
        Some(port) => writeln!(text, " root_port {port}")?,
        None => writeln!(text)?,
    }
    for port in rows(answer, "ports") {
        let (name, role, state) = (word(port, "ifname"), word(port, "role"), word(port, "state"));
        writeln!(text, "{name} role {role} state {state} edge {} {}", switch(port, "edge"), word(port, "protocol"))?;
    }
    Ok(())
}

fn stats(text: &mut String, answer: &Value) -> Written {
    for port in rows(answer, "ports") {
        writeln!(text, "{}", word(port, "ifname"))?;
        writeln!(text, "    RX: frames {} bytes {}", port["rx_frames"], port["rx_bytes"])?;
        writeln!(text, "    TX: frames {} bytes {}", port["tx_frames"], port["tx_bytes"])?;
        for (reason, count) in port["device_drops"].as_object().into_iter().flatten() {
            writeln!(text, "    device dropped {count}: {reason}")?;
        }
    }
    for (reason, count) in answer["drops"].as_object().into_iter().flatten() {
        writeln!(text, "dropped {count}: {reason}")?;
    }
    for (event, count) in answer["events"].as_object().into_iter().flatten() {
        writeln!(text, "{event} {count}")?;
    }
    Ok(())
}
