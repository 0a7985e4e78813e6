//! The command `bench`.

use millrace_bench::Options;
use serde_json::{Value, json};

use crate::arguments::Bench;
use crate::output::{Column, Failure, table};

const COLUMNS: &[Column] = &[
    ("case", "case"),
    ("ours", "ours"),
    ("unit", "unit"),
    ("peer", "peer"),
    ("peer name", "peer_name"),
    ("ratio", "ratio"),
    ("limit", "limit"),
    ("holds", "holds"),
];

/// Runs a benchmark, or lists them.
pub fn bench(bench: &Bench, json: bool) -> Result<(), Failure> {
    match &bench.name {
        None => list(json),
        Some(name) => measure(name, json)?,
    }
    Ok(())
}

fn list(json: bool) {
    let entry = |bench: &millrace_bench::Bench| json!({"name": bench.name, "summary": bench.summary});
    let benches: Vec<Value> = millrace_bench::list().iter().map(entry).collect();
    if json {
        println!("{:#}", Value::from(benches));
    } else {
        print!("{}", table(&benches, &[("benchmark", "name"), ("what it measures", "summary")]));
    }
}

fn measure(name: &str, json: bool) -> Result<(), Failure> {
    let known: Vec<&str> = millrace_bench::list().iter().map(|bench| bench.name).chain(["all"]).collect();
    // A benchmark may run a part of itself, which it names behind its own name, in a process of its own.
    if !known.contains(&name.split('/').next().unwrap_or(name)) {
        let hint = match millrace_config::nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("there are: {}", known.join(", ")),
        };
        return Err(Failure::usage(format!("no benchmark is named {name:?}: {hint}")));
    }
    let binary =
        std::env::current_exe().map_err(|error| Failure::new(format!("can't find this program: {error}")))?;
    let mut progress = |line: &str| eprintln!("{line}");
    let mut options = Options { binary, progress: &mut progress };
    let measurements = millrace_bench::run(name, &mut options).map_err(Failure::new)?;
    let results = serde_json::to_value(&measurements).map_err(Failure::new)?;
    if json {
        println!("{:#}", json!({"results": results}));
    } else {
        let rows: Vec<Value> = results.as_array().into_iter().flatten().map(readable).collect();
        print!("{}", table(&rows, COLUMNS));
    }
    Ok(())
}

/// A measurement as people read it: `yes` and `no`, and no more digits than mean something.
fn readable(measurement: &Value) -> Value {
    let mut row = measurement.clone();
    for key in ["ours", "peer", "ratio", "limit"] {
        if let Some(figure) = row[key].as_f64() {
            row[key] = Value::from(three_digits(figure));
        }
    }
    row["holds"] = match row["holds"].as_bool() {
        Some(true) => "yes".into(),
        Some(false) => "NO".into(),
        None => Value::Null,
    };
    row
}

/// At least three digits that mean something.
fn three_digits(figure: f64) -> String {
    match figure.abs() {
        large if large >= 100.0 => format!("{figure:.0}"),
        middle if middle >= 10.0 => format!("{figure:.1}"),
        small if small >= 1.0 || small == 0.0 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_read_as_people_write_them() {
        let row =
            readable(&json!({"case": "c", "ours": 1234.56, "peer": null, "ratio": 0.9123, "holds": false}));
        assert_eq!(row, json!({"case": "c", "ours": "1235", "peer": null, "ratio": "0.912", "holds": "NO"}));
    }
}
