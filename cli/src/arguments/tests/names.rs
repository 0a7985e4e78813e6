//! Test that each setting has one name: with hyphens in the configuration file and in options, with
//! underscores in JSON.
//!
//! The test covers all keys of the configuration schema and of the API description, and all command
//! arguments.

use std::collections::BTreeSet;

use clap::CommandFactory as _;
use serde_json::Value;

use crate::arguments::Arguments;

/// Tables of the configuration file. Each has the API request and the command that create the same object.
const SAME: &[(&str, &str, &str)] = &[
    ("route", "post /routes", "route add"),
    ("neighbour", "post /neighbours", "neighbour add"),
    ("gate", "post /gates", "gate create"),
    ("plugin", "post /plugins", "plugin load"),
    ("instance", "post /instances", "instance create"),
    ("bind", "post /bindings", "bind"),
    ("filter", "post /filters", "filter add"),
    ("place", "put /placements", "place"),
    ("principal", "post /principals", "principal add"),
    ("admission.allowance", "post /allowances", "allowance add"),
    ("port.scheduler.node", "post /schedulers/{port}", "scheduler add"),
];

/// Command arguments that are no key of the configuration file, with the reason.
const BESIDE: &[(&str, &str)] = &[
    ("route", "the words of `ip route`, one after the other"),
    ("words", "the words of `ip route`, one after the other"),
    ("from", "the file with a list"),
    ("port", "whose scheduler it is"),
    ("node", "its name: `--node` where it is one of several things that are named"),
    ("settings", "KEY=VALUE, of the thing itself"),
    ("dry_run", "in the query of the request"),
    ("level", "in `service`, the declared load of an instance"),
    ("worker", "in `service`"),
    ("rate", "in `service`"),
    ("size", "in `service`"),
    ("packet", "in `service`"),
    ("byte", "in `service`"),
    ("filter", "a filter in commands is an argument, `match` the key of a table that is called filter"),
];

fn resolved<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    if let Some(pointer) = schema["$ref"].as_str() {
        return resolved(root, root.pointer(pointer.trim_start_matches('#')).unwrap());
    }
    let mut alternatives = schema["anyOf"].as_array().into_iter().flatten();
    alternatives.find(|one| one["type"] != "null").map_or(schema, |one| resolved(root, one))
}

fn keys_of(schema: &Value) -> BTreeSet<String> {
    schema["properties"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
}

/// Collects the names of all properties in a JSON Schema, at any depth.
fn all_keys(schema: &Value, keys: &mut BTreeSet<String>) {
    if let Some(properties) = schema["properties"].as_object().filter(|_| schema["type"] != "string") {
        keys.extend(properties.keys().cloned());
    }
    let below = schema.as_object().into_iter().flatten().map(|(_, value)| value);
    below.chain(schema.as_array().into_iter().flatten()).for_each(|value| all_keys(value, keys));
}

/// Returns the keys of the configuration file's table at a path, such as `port.scheduler.node`.
fn table(path: &str) -> BTreeSet<String> {
    let root = millrace_config::Config::schema();
    let entry = path.split('.').fold(&root, |schema, key| {
        let next = resolved(&root, &schema["properties"][key]);
        if next["items"].is_null() { next } else { resolved(&root, &next["items"]) }
    });
    keys_of(entry)
}

/// Returns the keys of an API request's JSON body.
fn body(description: &Value, operation: &str) -> BTreeSet<String> {
    let (method, path) = operation.split_once(' ').unwrap();
    let schema = &description["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"];
    keys_of(schema["anyOf"].get(0).unwrap_or(schema))
}

fn command(words: &str) -> clap::Command {
    let mut command = Arguments::command();
    for word in words.split(' ') {
        command = command.find_subcommand(word).unwrap_or_else(|| panic!("no command {words}")).clone();
    }
    command
}

#[test]
fn settings_have_one_name_in_file_request_and_command() {
    let description = millrace_api::description();
    for (path, operation, words) in SAME {
        let of_file: BTreeSet<String> = table(path).iter().map(|key| key.replace('-', "_")).collect();
        let of_request = body(&description, operation);
        assert!(!of_file.is_empty() && !of_request.is_empty(), "{path} {operation}");
        let strange: Vec<_> = of_request.difference(&of_file).collect();
        assert!(strange.is_empty(), "{operation} says {strange:?}, [[{path}]] has {of_file:?}");
        for argument in command(words).get_arguments().filter(|argument| !argument.is_global_set()) {
            let name = argument.get_id().as_str();
            let is_said = of_request.contains(name) || BESIDE.iter().any(|(beside, _)| *beside == name);
            assert!(is_said || name == "help", "{words}: {name}; {operation} has {of_request:?}");
        }
    }
}

#[test]
fn the_file_and_commands_have_hyphens_and_json_has_underscores() {
    let mut keys = BTreeSet::new();
    all_keys(&millrace_config::Config::schema(), &mut keys);
    assert!(keys.len() > 80, "{keys:?}");
    let wrong: Vec<_> = keys.iter().filter(|key| key.contains('_')).collect();
    assert!(wrong.is_empty(), "keys of the file: {wrong:?}");

    let description = millrace_api::description();
    let mut keys = BTreeSet::new();
    all_keys(&description, &mut keys);
    let operations = description["paths"].as_object().into_iter().flatten();
    for operation in operations.flat_map(|(_, item)| item.as_object().into_iter().flatten()) {
        let parameters = operation.1["parameters"].as_array().into_iter().flatten();
        let in_query = parameters.filter(|one| one["in"] == "query");
        keys.extend(in_query.filter_map(|one| one["name"].as_str()).map(str::to_owned));
    }
    assert!(keys.len() > 300, "{keys:?}");
    let wrong: Vec<_> = keys.iter().filter(|key| key.contains('-')).collect();
    assert!(wrong.is_empty(), "keys of JSON: {wrong:?}");

    let mut commands = vec![Arguments::command()];
    while let Some(command) = commands.pop() {
        let long = command.get_arguments().filter_map(clap::Arg::get_long);
        let wrong: Vec<_> = long.filter(|name| name.contains('_')).collect();
        assert!(wrong.is_empty(), "options of {}: {wrong:?}", command.get_name());
        commands.extend(command.get_subcommands().cloned());
    }
}

#[test]
fn common_options_have_a_heading_and_every_command_an_example() {
    let mut command = Arguments::command();
    command.build();
    let mut commands = vec![command];
    while let Some(mut command) = commands.pop() {
        commands.extend(
            command.get_subcommands().filter(|one| one.get_name() != "help" && !one.is_hide_set()).cloned(),
        );
        let help = command.render_long_help().to_string();
        let (own, common) = help.split_once("Common options:").unwrap_or_else(|| panic!("{help}"));
        for option in ["--socket", "--server", "--json", "--if-match"] {
            let is_common = common.lines().any(|line| line.trim_start().starts_with(option));
            assert!(
                is_common && !own.lines().any(|line| line.trim_start().starts_with(option)),
                "{option}: {help}"
            );
        }
        assert!(
            command.get_name() == "millrace" || help.contains("Examples:\n"),
            "{} has no example",
            command.get_name()
        );
    }
}
