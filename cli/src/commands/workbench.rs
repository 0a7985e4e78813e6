//! The commands about plugins that need no router: `plugin inspect`, `plugin test` and `plugin bench`.

use std::path::Path;

use millrace_repository::{PublicKey, signature_state};
use millrace_workbench::{
    Costs, Exchange, Expectation, Message, Module, Trial, TrialOptions, inspect as look, measure, try_out,
};
use serde_json::{Map, Value, json};

use super::remote::pairs;
use crate::arguments::PluginTest;
use crate::output::{Failure, lines, plain, table};

/// Says what a plugin says of itself.
pub fn inspect(file: &Path, keys: &[String], json: bool) -> Result<(), Failure> {
    let keys = keys.iter().map(|key| key.parse()).collect::<Result<Vec<PublicKey>, _>>();
    let keys = keys.map_err(|error| Failure::usage(error.to_string()))?;
    let module = Module::read(file).map_err(Failure::new)?;
    let inspection = look(&module).map_err(Failure::new)?;
    let mut value = serde_json::to_value(inspection).map_err(Failure::new)?;
    value["signature"] = signature_state(file, module.bytes(), keys).to_string().into();
    if json {
        println!("{value:#}");
    } else {
        print!("{}", lines(&for_people(value)));
    }
    Ok(())
}

/// Without what the plugin does not say; what has levels below it stands on one line.
fn for_people(value: Value) -> Value {
    let Value::Object(keys) = value else { return value };
    let empty = |value: &Value| match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        other => other.is_null(),
    };
    let line = |(key, value): (String, Value)| match (&*key, &value) {
        ("settings", _) => (key, Value::String(value.to_string())),
        ("messages", Value::Object(messages)) => {
            let messages = messages.iter().map(|(name, help)| format!("{name} ({})", plain(help)));
            let text = messages.collect::<Vec<_>>().join(", ");
            (key, Value::String(text))
        }
        _ => (key, value),
    };
    keys.into_iter().filter(|(_, value)| !empty(value)).map(line).collect()
}

/// Runs a plugin on packets.
pub fn test(test: &PluginTest, json: bool) -> Result<(), Failure> {
    let module = Module::read(&test.file).map_err(Failure::new)?;
    let expectation = test.expect.as_deref().map(Expectation::read).transpose().map_err(Failure::new)?;
    let options = TrialOptions {
        input: test.pcap.as_deref(),
        output: test.write.as_deref(),
        settings: pairs(&test.settings)?,
        batch: test.batch.into(),
        messages: test.control.iter().map(|text| message(text)).collect::<Result<_, _>>()?,
    };
    let trial = try_out(&module, &options).map_err(Failure::new)?;
    if let Some(file) = &test.save {
        Expectation::of(&trial).save(file).map_err(Failure::new)?;
    }
    let differences = expectation.as_ref().map(|expected| expected.differences(&trial));
    if json {
        let mut value = serde_json::to_value(&trial).map_err(Failure::new)?;
        value["differences"] = json!(differences);
        println!("{value:#}");
    } else {
        print_trial(&trial);
        differences.iter().flatten().for_each(|line| println!("{line}"));
    }
    match differences.map(|differences| differences.len()) {
        Some(0) if !json => println!("as expected"),
        Some(count) if count > 0 => {
            return Err(Failure::new(format!("{count} differences from what was expected")));
        }
        _ => {}
    }
    Ok(())
}

/// `NAME [KEY=VALUE]...`
fn message(text: &str) -> Result<Message, Failure> {
    let mut words = text.split_whitespace().map(str::to_owned);
    let name = words.next().ok_or_else(|| Failure::usage("--control: give the name of a message"))?;
    Ok(Message { name, arguments: pairs(&words.collect::<Vec<_>>())? })
}

fn print_trial(trial: &Trial) {
    println!("{:>4}  {:<16} {:>5}  flow", "nr", "verdict", "bytes");
    trial.packets.iter().for_each(|packet| println!("{packet}"));
    let verdicts = trial.verdicts.iter().map(|(verdict, count)| format!("{count} {verdict}"));
    println!("{} packets: {}", trial.packets.len(), verdicts.collect::<Vec<_>>().join(", "));
    if trial.truncated > 0 {
        println!("{} packets left out: the capture holds their beginning only", trial.truncated);
    }
    if trial.suspensions > 0 {
        println!("{} times stopped in the middle of a call, its time being over", trial.suspensions);
    }
    for fault in &trial.faults {
        println!(
            "fault in the call of packets {} to {}: {}: {}",
            fault.first, fault.last, fault.kind, fault.text
        );
    }
    for Exchange { message, reply, refused } in &trial.replies {
        match refused {
            None => println!("{message}: {}", reply.as_ref().unwrap_or(&Value::Null)),
            Some(refused) => println!("{message}: refused: {refused}"),
        }
    }
}

/// Measures a plugin.
pub fn bench(file: &Path, settings: &[String], json: bool) -> Result<(), Failure> {
    let settings: Map<String, Value> = pairs(settings)?;
    let module = Module::read(file).map_err(Failure::new)?;
    let costs = measure(&module, &settings).map_err(Failure::new)?;
    let value = serde_json::to_value(&costs).map_err(Failure::new)?;
    if json {
        println!("{value:#}");
        return Ok(());
    }
    print_costs(&costs, &value);
    Ok(())
}

fn print_costs(costs: &Costs, value: &Value) {
    println!("plugin {} {}, packets of {} bytes", costs.plugin, costs.version, costs.packet);
    println!("module {} bytes, compiled in {:.1} ms to {} bytes", costs.module, costs.compile, costs.code);
    println!(
        "an instance begins in {:.2} ms, with {} bytes of memory, of which {} are used",
        costs.create, costs.memory, costs.resident
    );
    let rows = value["batches"].as_array().map_or(&[][..], Vec::as_slice);
    let columns = [
        ("packets in a call", "packets"),
        ("ns a packet", "nanoseconds/median"),
        ("99 %", "nanoseconds/p99"),
        ("cycles a packet", "cycles/median"),
        ("99 %", "cycles/p99"),
        ("calls", "rounds"),
        ("stopped", "suspended"),
    ];
    print!("{}", table(rows, &columns));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_arguments() {
        let read = message("set ports=80 on=true").unwrap();
        assert_eq!(read.name, "set");
        assert_eq!(Value::Object(read.arguments), json!({"ports": 80, "on": true}));
        assert_eq!(message(" ").unwrap_err().code, 2);
    }

    #[test]
    fn what_is_not_said_is_not_shown() {
        let value = json!({"a": null, "b": [], "settings": {"x": 1}, "messages": {"read": "counts"}, "n": 0});
        let shown = json!({"settings": "{\"x\":1}", "messages": "read (counts)", "n": 0});
        assert_eq!(for_people(value), shown);
    }
}
