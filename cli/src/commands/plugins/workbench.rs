//! The commands `plugin test` and `plugin bench`, which need no router.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use millrace_plugin_process::{ChildCommand, ProcessKeeper};
use millrace_units::count;
use millrace_workbench::{
    Cost, Costs, Exchange, Expectation, Keeper, Message, Module, ObjectRuntime, Trial, TrialOptions, measure,
    try_out, with_cost,
};
use serde_json::{Map, Value, json};

use crate::arguments::{PluginBench, PluginTest};
use crate::output::{Failure, is_harmless, rows, say, show, table};
use crate::pairs::pairs;

/// Runs a plugin on the packets of a capture file, or on built-in packets.
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
    let runtime = object_runtime(&module, &test.file, test.runtime.as_deref())?;
    let trial = try_out(&module, &options, runtime).map_err(Failure::new)?;
    if let Some(file) = &test.save {
        Expectation::of(&trial).save(file).map_err(Failure::new)?;
    }
    let differences = expectation.as_ref().map(|expected| expected.differences(&trial));
    if json {
        let mut value = serde_json::to_value(&trial).map_err(Failure::new)?;
        value["differences"] = json!(differences);
        say!("{value:#}");
    } else {
        print_trial(&trial);
        differences.iter().flatten().for_each(|line| say!("{line}"));
    }
    let differences = differences.map(|differences| differences.len());
    if differences == Some(0) && !json {
        say!("as expected");
    }
    match shortcomings(&trial, differences.unwrap_or(0)) {
        shortcomings if shortcomings.is_empty() => Ok(()),
        shortcomings => Err(Failure::new(format!("plugin {}: {}", trial.plugin, shortcomings.join(", ")))),
    }
}

/// Returns the runtime of a shared object or executable. `asked` is the runtime that the user gave.
fn object_runtime(module: &Module, file: &Path, asked: Option<&str>) -> Result<ObjectRuntime, Failure> {
    if let Some(asked) = asked.filter(|_| !module.is_object()) {
        let (what, file) = ("a module always runs in the sandbox", file.display());
        let remedy = "give the runtime only for a shared object or executable";
        return Err(Failure::usage(format!(
            "--runtime {asked}: {file} is no shared object; {what}: {remedy}"
        )));
    }
    Ok(if asked == Some("in-process") { ObjectRuntime::InProcess } else { ObjectRuntime::Process(keeper) })
}

/// Starts the keeper of the processes in which shared objects and executables run.
fn keeper() -> Result<Arc<dyn Keeper>, String> {
    let keeper = ProcessKeeper::start(ChildCommand::own());
    keeper.map(|keeper| Arc::new(keeper) as _).map_err(|error| format!("this command {error}"))
}

/// Returns the reasons why a trial counts as failed; empty for a success.
fn shortcomings(trial: &Trial, differences: usize) -> Vec<String> {
    let refused = trial.replies.iter().filter(|exchange| exchange.refused.is_some()).count();
    let counted = |count: usize, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {many}")),
    };
    let all = [
        counted(trial.faults.len(), "call failed", "calls failed"),
        counted(refused, "message was refused", "messages were refused"),
        counted(differences, "difference from the expected output", "differences from the expected output"),
    ];
    all.into_iter().flatten().collect()
}

/// Parses a control message: `NAME [KEY=VALUE]...`
fn message(text: &str) -> Result<Message, Failure> {
    let mut words = text.split_whitespace().map(str::to_owned);
    let name = words.next().ok_or_else(|| Failure::usage("--control: give a message name"))?;
    Ok(Message { name, arguments: pairs(&words.collect::<Vec<_>>())? })
}

fn print_trial(trial: &Trial) {
    say!("{:>4}  {:<16} {:>5}  flow", "nr", "verdict", "bytes");
    trial.packets.iter().for_each(|packet| say!("{packet}"));
    let verdicts = trial.verdicts.iter().map(|(verdict, count)| format!("{count} {verdict}"));
    say!("{}: {}", count(trial.packets.len(), "packet"), verdicts.collect::<Vec<_>>().join(", "));
    if trial.truncated > 0 {
        say!("{} skipped: truncated in the capture", count(trial.truncated, "packet"));
    }
    if trial.made > 0 {
        say!("{} made by the plugin", count(trial.made, "packet"));
    }
    trial.log.iter().for_each(|line| say!("log: {}", line.replace(|letter| !is_harmless(letter), " ")));
    if trial.suspensions > 0 {
        say!("calls suspended at the end of their time slice: {}", trial.suspensions);
    }
    for fault in &trial.faults {
        say!(
            "fault in the call of packets {} to {}: {}: {}",
            fault.first,
            fault.last,
            fault.kind,
            fault.text
        );
    }
    for Exchange { message, reply, refused } in &trial.replies {
        match refused {
            None => say!("{message}: {}", reply.as_ref().unwrap_or(&Value::Null)),
            Some(refused) => say!("{message}: refused: {refused}"),
        }
    }
}

/// Measures the cost of a plugin on this machine, and writes it into the manifest of the file if asked.
pub fn bench(bench: &PluginBench, json: bool) -> Result<(), Failure> {
    let PluginBench { file, settings, write, runtime } = bench;
    let settings: Map<String, Value> = pairs(settings)?;
    let module = Module::read(file).map_err(Failure::new)?;
    let runtime = object_runtime(&module, file, runtime.as_deref())?;
    let costs =
        measure(&module, &settings, runtime, &mut |step| eprintln!("{step}")).map_err(Failure::new)?;
    if *write {
        let Some(measured) = &costs.measured else {
            return Err(Failure::new(
                "this machine has no time-stamp counter, so there are no cycles to write",
            ));
        };
        let changed = written(measured, costs.declared.as_ref())
            .and_then(|cost| with_cost(&module, &cost).map_err(Failure::new))?;
        replace(file, &changed)?;
    }
    show(&costs, json, || described(&costs));
    if *write {
        eprintln!(
            "cost written to {}: a signature of the file is no longer valid, and a build from its sources has the \
             cost of the sources",
            file.display()
        );
    }
    Ok(())
}

/// Returns the declared cost with the measured kinds of processors, memory and output.
fn written(measured: &Value, declared: Option<&Value>) -> Result<Cost, Failure> {
    let measured = Cost::read(measured).map_err(Failure::new)?;
    let Some(declared) = declared else { return Ok(measured) };
    let mut cost = Cost::read(declared).map_err(Failure::new)?;
    // An instance on another kind of processor may need more memory.
    let is_only_kind = cost.on.keys().all(|kind| measured.on.contains_key(kind));
    cost.memory = if is_only_kind { measured.memory } else { cost.memory.max(measured.memory) };
    cost.output = cost.output.max(measured.output);
    cost.whole_packet |= measured.whole_packet;
    cost.on.extend(measured.on);
    Ok(cost)
}

/// Replaces a file at once: a reader gets the old or the new contents. A link to the file stays a link.
fn replace(file: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(format!("can't write {}: {error}", file.display()));
    let file = &file.canonicalize().map_err(failed)?;
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    let new = Path::new(&name);
    let replaced = fs::write(new, bytes)
        .and_then(|()| fs::set_permissions(new, fs::metadata(file)?.permissions()))
        .and_then(|()| fs::rename(new, file));
    replaced.map_err(|error| {
        let _ = fs::remove_file(new);
        failed(error)
    })
}

/// Describes the costs of a plugin in lines and a table.
fn described(costs: &Costs) -> String {
    let columns = "packets in a call=packets | ns a packet=nanoseconds/median | 99 %=nanoseconds/p99 \
        | cycles a packet=cycles/median | 99 %=cycles/p99 | calls=rounds | suspended";
    let cost = |cost: &Option<Value>| cost.as_ref().map_or("none".to_owned(), Value::to_string);
    let (start, output) = (&costs.start, costs.output);
    let ring = costs.ring.map(|ring| {
        format!(
            "ring to its process: {:.2} transfers a packet; the worker spends {:.0} cycles a call, {:.1} a packet, \
             {:.3} a byte\n",
            ring.transfers, ring.call, ring.packet, ring.byte
        )
    });
    format!(
        "plugin {} {}, {}, packets of {} bytes\n\
        file {} bytes, compiled or loaded in {:.1} ms, code {} bytes\n\
        an instance starts in {:.2} ms, with {} bytes of memory, {} of them used\n{}{}\
        packets that leave for each that arrives: {output:.2}\n{}\
        measured cost: {}\ndeclared cost: {}\n",
        costs.plugin,
        costs.version,
        costs.runtime,
        costs.packet,
        start.module,
        start.compile,
        start.code,
        start.create,
        start.memory.max(start.resident),
        start.resident,
        table(rows(&json!(costs.batches)), columns),
        table(rows(&json!(costs.sizes)), &columns.replace("packets in a call=packets", "bytes")),
        ring.unwrap_or_default(),
        cost(&costs.measured),
        cost(&costs.declared)
    )
}

#[cfg(test)]
mod tests {
    use millrace_workbench::FaultReport;

    use super::*;

    #[test]
    fn replaced_file_keeps_its_links_and_permissions() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = std::env::temp_dir().join(format!("millrace-replace-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&file, &link).unwrap();
        replace(&link, b"new").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(link.is_symlink() && fs::metadata(&file).unwrap().permissions().mode() & 0o777 == 0o640);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "no other file is left");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn written_cost_keeps_what_other_kinds_declare() {
        let declared =
            json!({"memory": 900, "output": 0.5, "on": {"worker": {"packet": 7}, "process": {"packet": 1}}});
        let process = json!({"memory": 100, "output": 2, "on": {"process": {"packet": 3}}});
        let cost = written(&process, Some(&declared)).unwrap();
        assert_eq!((cost.memory, cost.output, cost.on.len()), (900.0, 2.0, 2));
        assert_eq!((cost.on["worker"].packet, cost.on["process"].packet), (7.0, 3.0));
        let again = written(&process, Some(&json!({"memory": 900, "on": {"process": {}}}))).unwrap();
        assert_eq!(again.memory, 100.0);
        assert_eq!(written(&process, None).unwrap(), Cost::read(&process).unwrap());
    }

    #[test]
    fn messages_have_arguments() {
        let read = message("set ports=80 on=true").unwrap();
        assert_eq!(read.name, "set");
        assert_eq!(Value::Object(read.arguments), json!({"ports": 80, "on": true}));
        assert_eq!(message(" ").unwrap_err().code, 2);
    }

    #[test]
    fn faults_refusals_and_differences_are_failures() {
        let fault = FaultReport { first: 1, last: 2, kind: "unreachable", text: String::new() };
        let refused = Exchange { message: "read".into(), reply: None, refused: Some("no".into()) };
        let mut trial = Trial {
            plugin: "p".into(),
            version: "1.0.0".into(),
            packets: Vec::new(),
            verdicts: std::collections::BTreeMap::new(),
            faults: Vec::new(),
            suspensions: 3,
            truncated: 1,
            made: 0,
            log: Vec::new(),
            replies: vec![Exchange { reply: Some(json!(1)), refused: None, ..refused.clone() }],
        };
        assert!(shortcomings(&trial, 0).is_empty());
        trial.faults = vec![fault.clone(), fault];
        trial.replies.push(refused);
        let all = ["2 calls failed", "1 message was refused", "3 differences from the expected output"];
        assert_eq!(shortcomings(&trial, 3), all);
    }
}
