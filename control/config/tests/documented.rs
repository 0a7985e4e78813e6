//! Tests that `docs/configuration.md` lists exactly the keys of the schema, and that the examples there and
//! in the README are valid.

use std::collections::BTreeSet;
use std::path::Path;

use millrace_config::Config;
use serde_json::{Map, Value};

/// Tables of the configuration: heading in the document, and name in the schema.
const TABLES: [(&str, &str); 22] = [
    ("[router]", "Router"),
    ("[api]", "Api"),
    ("[[port]]", "Port"),
    ("[port.scheduler]", "Scheduler"),
    ("[[port.scheduler.node]]", "SchedulerNode"),
    ("[[port.scheduler.flow]]", "FlowQueue"),
    ("[port.impair]", "Impair"),
    ("[[route]]", "Route"),
    ("[[neighbour]]", "Neighbour"),
    ("[[gate]]", "Gate"),
    ("[plugins]", "Plugins"),
    ("[[plugin]]", "Plugin"),
    ("[[instance]]", "Instance"),
    ("[instance.service]", "Service"),
    ("[[bind]]", "Bind"),
    ("[[filter]]", "Filter"),
    ("[[place]]", "Placement"),
    ("[control-plane]", "ControlPlane"),
    ("[connections]", "Connections"),
    ("[admission]", "Admission"),
    ("[[admission.allowance]]", "Allowance"),
    ("[[principal]]", "Principal"),
];

fn document() -> String {
    read("docs/configuration.md")
}

/// Reads a file of the repository.
fn read(name: &str) -> String {
    let path = Path::new("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the section of the document under a heading, up to the next heading.
fn section<'a>(document: &'a str, heading: &str) -> &'a str {
    let start = format!("\n## `{heading}`\n");
    let (_, behind) = document.split_once(&start).unwrap_or_else(|| panic!("no section {heading}"));
    behind.split_once("\n## ").map_or(behind, |(section, _)| section)
}

/// Returns the keys in the first column of a section's table.
fn documented_keys(section: &str) -> BTreeSet<String> {
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    cells.map(|(key, _)| key.to_owned()).collect()
}

fn definitions() -> Map<String, Value> {
    Config::schema()["$defs"].as_object().expect("the schema has definitions").clone()
}

fn keys_of(definition: &Value) -> BTreeSet<String> {
    definition["properties"].as_object().expect("a table has keys").keys().cloned().collect()
}

/// Collects the texts that a key may have as its value: the members of all enumerations below `value`.
fn values_of(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            let listed = object.get("enum").and_then(Value::as_array).into_iter().flatten();
            let texts = listed.chain(object.get("const")).filter_map(Value::as_str);
            found.extend(texts.map(str::to_owned));
            object.values().for_each(|value| values_of(value, found));
        }
        Value::Array(array) => array.iter().for_each(|value| values_of(value, found)),
        _ => {}
    }
}

/// Returns the TOML examples of a document.
fn examples(document: &str) -> Vec<&str> {
    let pieces = document.split("\n```toml\n").skip(1);
    pieces.map(|piece| piece.split_once("\n```").expect("an example ends").0).collect()
}

#[test]
fn the_document_has_exactly_the_keys_of_the_schema() {
    let (document, definitions) = (document(), definitions());
    for (heading, name) in TABLES {
        assert_eq!(documented_keys(section(&document, heading)), keys_of(&definitions[name]), "{heading}");
    }
}

#[test]
fn every_table_of_the_schema_is_in_the_list() {
    let tables = definitions().into_iter().filter(|(_, definition)| definition.get("properties").is_some());
    let names: BTreeSet<String> = tables.map(|(name, _)| name).collect();
    assert_eq!(names, TABLES.map(|(_, name)| name.to_owned()).into());
    assert_eq!(keys_of(&Config::schema()).len(), TABLES.len() - 6, "six are inside another");
}

#[test]
fn every_value_of_an_enumeration_is_documented() {
    let (document, mut values) = (document(), BTreeSet::new());
    values_of(&Config::schema(), &mut values);
    assert!(values.contains("af_xdp-generic") && values.contains("blackhole"), "{values:?}");
    let missing: Vec<&String> =
        values.iter().filter(|value| !document.contains(&format!("`\"{value}\"`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_examples_are_read() {
    let (document, readme) = (document(), read("README.md"));
    let (examples, in_readme) = (examples(&document), examples(&readme));
    assert!(examples.len() >= 8 && !in_readme.is_empty(), "{} and {}", examples.len(), in_readme.len());
    for example in examples.into_iter().chain(in_readme) {
        if let Err(error) = Config::parse(example, "example") {
            panic!("{error}\n{example}");
        }
    }
}

#[test]
fn every_key_occurs_in_an_example() {
    let document = document();
    let all = examples(&document).join("\n");
    let rare = ["ignore-kernel-policy", "icmp-dscp", "redirects", "router-id"];
    for (heading, name) in TABLES {
        for key in keys_of(&definitions()[name]) {
            let used = all.contains(&format!("\n{key} ="))
                || ["[port.{}]", "[[port.scheduler.{}]]", "[[admission.{}]]"]
                    .iter()
                    .any(|form| all.contains(&form.replace("{}", &key)));
            assert!(used || rare.contains(&&*key) || key.starts_with("forward-"), "{heading} {key}");
        }
    }
}
