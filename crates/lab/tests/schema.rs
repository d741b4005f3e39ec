//! `docs/results.schema.json` accepts the documents written, and rejects wrong ones.
//!
//! The checker below supports the part of JSON Schema 2020-12 that the schema uses, and refuses a schema that uses
//! more.

mod synthetic;

use lab::simulated;
use serde_json::{Map, Value, json};
use vsmp::preset::{Kernel, Preset};
use vsmp::simulation::Simulation;

/// For the simulator.
#[global_allocator]
static ARENA: vsmp::Arena = vsmp::Arena::new();

const SCHEMA: &str = include_str!("../../../docs/results.schema.json");

/// All violations of the schema in `value`, each with its place.
fn faults(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (word, rule) in schema.as_object().expect("a schema is an object") {
        let fault = |what: String| format!("{at}: {what}");
        match word.as_str() {
            "$schema" | "title" | "description" | "$defs" | "format" => {}
            "properties" => found.extend(members(root, rule, value, at)),
            "items" => found.extend(elements(root, rule, value, at)),
            "$ref" => {
                let pointer = rule.as_str().and_then(|r| r.strip_prefix('#')).expect("local references only");
                let target = root.pointer(pointer).unwrap_or_else(|| panic!("{pointer} is not in the schema"));
                found.extend(faults(root, target, value, at));
            }
            "anyOf" => {
                let tried: Vec<Vec<String>> =
                    rule.as_array().unwrap().iter().map(|option| faults(root, option, value, at)).collect();
                if tried.iter().all(|faults| !faults.is_empty()) {
                    found.extend(tried.into_iter().flatten());
                }
            }
            _ if holds(word, rule, schema, value) => {}
            _ => found.push(fault(format!("{word} {rule} does not hold for {value}"))),
        }
    }
    found
}

fn members(root: &Value, rules: &Value, value: &Value, at: &str) -> Vec<String> {
    let (Some(rules), Some(object)) = (rules.as_object(), value.as_object()) else { return Vec::new() };
    let present = rules.iter().filter_map(|(name, rule)| Some((name, rule, object.get(name)?)));
    present.flat_map(|(name, rule, member)| faults(root, rule, member, &format!("{at}/{name}"))).collect()
}

fn elements(root: &Value, rule: &Value, value: &Value, at: &str) -> Vec<String> {
    let elements = value.as_array().into_iter().flatten().enumerate();
    elements.flat_map(|(index, element)| faults(root, rule, element, &format!("{at}/{index}"))).collect()
}

/// Whether a rule without inner schemas holds. A rule does not apply to values of another type.
fn holds(word: &str, rule: &Value, schema: &Value, value: &Value) -> bool {
    let empty = Map::new();
    match word {
        "type" => match rule {
            Value::Array(types) => types.iter().any(|one| is_type(one.as_str().unwrap(), value)),
            one => is_type(one.as_str().unwrap(), value),
        },
        "const" => value == rule,
        "enum" => rule.as_array().unwrap().contains(value),
        "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
        "minLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 >= rule.as_u64().unwrap()),
        "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap()),
        "required" => {
            let object = value.as_object();
            object.is_none_or(|o| rule.as_array().unwrap().iter().all(|name| o.contains_key(name.as_str().unwrap())))
        }
        "additionalProperties" => {
            assert_eq!(rule, &Value::Bool(false), "only false is known");
            let known = schema["properties"].as_object().unwrap_or(&empty);
            value.as_object().is_none_or(|object| object.keys().all(|name| known.contains_key(name)))
        }
        unknown => panic!("the schema uses {unknown}, which this checker does not know"),
    }
}

fn is_type(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("{other} is no type of JSON Schema"),
    }
}

fn check(document: &Value) -> Vec<String> {
    let schema: Value = serde_json::from_str(SCHEMA).expect("the schema is JSON");
    faults(&schema, &schema, document, "")
}

fn document() -> Value {
    serde_json::from_str(&synthetic::results().to_json()).expect("results are JSON")
}

#[test]
fn a_full_document_is_valid() {
    assert_eq!(check(&document()), Vec::<String>::new());
}

#[test]
fn every_field_that_is_written_is_described() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let document = document();
    let described = |object: &Value, place: &str| {
        for name in object.as_object().unwrap().keys() {
            let known = schema.pointer(&format!("{place}/properties/{name}"));
            assert!(known.is_some(), "{name} is written and not described in {place}");
        }
    };
    described(&document, "");
    described(&document["machine"], "/$defs/machine");
    described(&document["rows"][2], "/$defs/row");
    described(&document["rows"][2]["locks"][0], "/$defs/lock");
}

/// A document of the simulator is one of the same schema, and has every cycle of every virtual CPU.
#[test]
fn a_simulated_document_is_valid_and_accounts_for_every_cycle() {
    let preset = Preset::named("opteron-275").expect("it is built in");
    let arch = "connp-l:128".parse().ok();
    let simulation = Simulation { seeds: 2, ..Simulation::new(preset, arch, 4, 12) };
    let rows = [Kernel::Heddle, Kernel::OfThePaper].map(|kernel| simulation.run_all(kernel, |_| ()));
    let document = simulated::document(&simulation, rows.iter().filter_map(simulated::row).collect());
    let document: Value = serde_json::from_str(&document.to_json()).expect("results are JSON");
    assert_eq!(check(&document), Vec::<String>::new());
    assert_eq!(document["recommendation"], Value::Null);
    let sum = |object: &Value| object.as_object().unwrap().values().map(|cycles| cycles.as_u64().unwrap()).sum::<u64>();
    for row in document["rows"].as_array().unwrap() {
        assert_eq!((&row["groups"], &row["threads"]), (&json!(128), &json!(4)));
        let account = &row["simulated"];
        assert!(sum(&account["misses"]) > 0 && sum(&account["switches"]) > 0, "{account}");
        for cpu in account["cpus"].as_array().unwrap() {
            let total = cpu["total"].as_u64().unwrap();
            assert_eq!((sum(&cpu["parts"]), sum(&cpu["groups"])), (total, total), "{cpu}");
        }
    }
    assert_eq!(document["rows"][1]["arch"], json!("connp-l (year)"));
}

/// The page of a simulation has its accounts, the gain of lower costs, and throughput by the number of CPUs; it states
/// that it shows a model.
#[test]
fn the_page_of_a_simulation_shows_its_accounts() {
    let preset = Preset::named("opteron-275").expect("it is built in");
    let arch = "msgp:1".parse().ok();
    let four = Simulation::new(preset, arch, 4, 6);
    let mut rows = Vec::new();
    for cpus in [1, 2, 4] {
        let simulation = Simulation { cpus, ..four.clone() };
        let results = simulation.run_all(Kernel::OfThePaper, |_| ());
        let mut row = simulated::row(&results).expect("it ran");
        let account = row.simulated.as_mut().expect("it is a simulator's");
        if cpus == 4 {
            let gains = simulation.what_if(&results, 50, |_, _, _| ());
            let of = |class: &str| gains.iter().find(|gain| gain.class == class).expect("a class").cycles.mean;
            assert!(of("work, emit") < -2.0, "half the work of sending saves cycles: {gains:?}");
            account.what_if = gains.iter().map(|gain| simulated::WhatIf::of(gain, 50)).collect();
        }
        rows.push(row);
    }
    let results = simulated::document(&four, rows);
    assert_eq!((results.scaling.len(), results.scaling[0].points.len()), (1, 3));
    assert!(results.scaling[0].law.is_some());
    assert_eq!(check(&serde_json::from_str(&results.to_json()).unwrap()), Vec::<String>::new());
    let page = lab::report::render(&results);
    for title in [
        "Results of a model",
        "Cycles by purpose",
        "Throughput against CPUs",
        "Throughput if a cost were lower",
        "universal scalability law",
        "Cycles for each KB",
        "Cache misses for each KB",
        "Changes of threads for each KB",
        "Each CPU",
    ] {
        assert!(page.contains(title) || page.contains(&title.replace("&#x27;", "'")), "no {title}");
    }
    assert!(!page.contains("NaN") && !page.contains("<script"));
}

#[test]
fn a_run_without_rows_or_recommendation_is_valid() {
    let results = synthetic::results();
    let empty = lab::result::Results::new(results.machine, Map::new(), Vec::new());
    assert_eq!(check(&serde_json::from_str(&empty.to_json()).unwrap()), Vec::<String>::new());
}

#[test]
fn wrong_documents_are_found_out() {
    type Spoil = fn(&mut Value);
    let spoils: [(&str, Spoil); 8] = [
        ("/rows/0", |d| drop(d["rows"][0].as_object_mut().unwrap().remove("arch"))),
        ("/rows/0/gbps/mean", |d| d["rows"][0]["gbps"]["mean"] = json!("fast")),
        ("/rows/0/gbps/samples", |d| d["rows"][0]["gbps"]["samples"] = json!([])),
        ("/rows/0/handoffs", |d| d["rows"][0]["handoffs"] = json!(-1)),
        ("/rows/0/workload", |d| d["rows"][0]["workload"] = json!("stroll")),
        ("/rows/1/switches", |d| d["rows"][1]["switches"]["forced"] = json!(0)),
        ("/machine/cores", |d| d["machine"]["cores"] = json!(0)),
        ("/recommendation", |d| d["recommendation"] = json!("up")),
    ];
    for (place, spoil) in spoils {
        let mut document = document();
        spoil(&mut document);
        let faults = check(&document);
        assert!(faults.iter().any(|fault| fault.starts_with(place)), "nothing wrong at {place}: {faults:?}");
    }
}
