//! The command `principal resize`: a reserved share of processor time, proposed from the measured use.

use std::time::{Duration, Instant};

use hyper::Method;
use millrace_units::count;
use serde_json::{Value, json};

use crate::client::Client;
use crate::output::{self, Failure, rows};

/// Time between two readings of the accounts. The workers send them every 10 ms.
const INTERVAL: Duration = Duration::from_millis(250);
/// Smallest share that can be reserved, in percent.
const LEAST: f64 = 0.1;

/// Proposes the share of a principal, and changes it with `apply`. `over` is the time to measure, `margin` a
/// percentage of the use.
pub fn resize(
    client: &Client,
    path: &str,
    (name, over, margin): (&str, Duration, f64),
    apply: bool,
    json: bool,
) -> Result<(), Failure> {
    let before = client.get(path)?["cpu"].clone();
    let uses = measured(client, path, name, over)?;
    let Some(proposal) = proposal(&uses, margin) else {
        let problem = format!("principal {name} used no processor time within {over:?}");
        return Err(Failure::new(format!(
            "{problem}: repeat the command while it has work, or with a longer --over"
        )));
    };
    let share = format!("{} %", proposal.share);
    if apply {
        client.send(Method::PATCH, path, Some(&json!({"cpu": share})))?;
    }
    let value = json!({
        "principal": name,
        "samples": uses.len(),
        "used": proposal.used.most(),
        "workers": proposal.used.workers,
        "processes": proposal.used.processes,
        "margin": margin,
        "cpu": before,
        "proposed": share,
        "applied": apply,
    });
    output::show(&value, json, || {
        let done = if apply { "now reserved" } else { "proposed" };
        let now = before.as_str().map_or("none".to_owned(), str::to_owned);
        format!(
            "principal {name}: {:.2} % used at the workers and {:.2} % by processes (95th percentile of {}), \
             {share} {done} (margin {margin} %), {now} before\n",
            proposal.used.workers,
            proposal.used.processes,
            count(uses.len(), "sample")
        )
    });
    Ok(())
}

/// Processor time of a principal. The share holds at the workers and, once more, for processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Used {
    /// Time of its calls at the workers.
    workers: f64,
    /// Time of the processes in its control group, such as plugin processes that it alone pays for.
    processes: f64,
}

impl Used {
    fn most(self) -> f64 {
        self.workers.max(self.processes)
    }
}

/// Proposed share.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Proposal {
    /// 95th percentiles of the use, in percent of one processor.
    used: Used,
    /// Proposed share in percent of one processor, in steps of 0.1.
    share: f64,
}

/// Returns the larger 95th percentile of the use with a margin, rounded up; `None` without use.
fn proposal(uses: &[Used], margin: f64) -> Option<Proposal> {
    let used = Used {
        workers: percentile(uses.iter().map(|used| used.workers))?,
        processes: percentile(uses.iter().map(|used| used.processes))?,
    };
    let share = (used.most() * (1.0 + margin / 100.0) / LEAST - 1e-9).ceil() * LEAST;
    // Multiplying by 0.1 leaves digits that no share has.
    let share = ((share * 10.0).round() / 10.0).max(LEAST);
    (used.most() > 0.0).then_some(Proposal { used, share })
}

/// Returns the 95th percentile; `None` of no numbers.
fn percentile(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() * 95).div_ceil(100).checked_sub(1)?;
    sorted.get(index).copied()
}

/// Returns the use of a principal in each interval, in percent of one processor. `path`: its resource.
fn measured(client: &Client, path: &str, name: &str, over: Duration) -> Result<Vec<Used>, Failure> {
    let seconds =
        || Ok::<_, Failure>((Instant::now(), used(&client.get("/promises")?, &client.get(path)?, name)));
    let begin = Instant::now();
    let mut last = seconds()?;
    let mut uses = Vec::new();
    while begin.elapsed() < over {
        std::thread::sleep(INTERVAL.min(over));
        let now = seconds()?;
        let percent = |now_used: f64, last_used: f64| {
            (now_used - last_used).max(0.0) * 100.0 / (now.0 - last.0).as_secs_f64()
        };
        uses.push(Used {
            workers: percent(now.1.workers, last.1.workers),
            processes: percent(now.1.processes, last.1.processes),
        });
        last = now;
    }
    Ok(uses)
}

/// Returns the processor time of a principal since the start, in seconds. `principal`: its view. Without control
/// groups, the time of processes isn't known, and counts as none.
fn used(promises: &Value, principal: &Value, name: &str) -> Used {
    let mut of_name = rows(&promises["promises"]).iter().filter(|promise| promise["principal"] == name);
    let workers = of_name.next().and_then(|promise| promise["used_seconds"].as_f64());
    let processes = principal["usage"]["cpu_seconds"].as_f64();
    Used { workers: workers.unwrap_or_default(), processes: processes.unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(workers: &[f64]) -> Vec<Used> {
        workers.iter().map(|workers| Used { workers: *workers, processes: 0.0 }).collect()
    }

    #[test]
    fn proposal_is_the_95th_percentile_with_a_margin() {
        let share = |workers: &[f64], margin| proposal(&uses(workers), margin).unwrap().share;
        let many: Vec<f64> = (1..=100).map(|number| f64::from(number) / 10.0).collect();
        let used = Used { workers: 9.5, processes: 0.0 };
        assert_eq!(proposal(&uses(&many), 20.0), Some(Proposal { used, share: 11.4 }));
        assert_eq!(share(&[3.0], 0.0), 3.0);
        assert_eq!(share(&[3.01], 0.0), 3.1, "rounded up");
        assert_eq!(share(&[0.001], 20.0), 0.1, "the smallest share");
    }

    #[test]
    fn share_covers_the_workers_and_the_processes() {
        let promises = json!({"promises": [
            {"principal": "core", "used_seconds": 9.0}, {"principal": "video", "used_seconds": 0.25}
        ]});
        let principal = json!({"name": "video", "usage": {"cpu_seconds": 0.75}});
        let both = Used { workers: 0.25, processes: 0.75 };
        assert_eq!(used(&promises, &principal, "video"), both);
        assert_eq!(proposal(&[both], 0.0), Some(Proposal { used: both, share: 0.8 }));
        // A principal without bindings has no promise, and a machine without control groups measures no processes.
        assert_eq!(used(&promises, &principal, "other"), Used { workers: 0.0, processes: 0.75 });
        assert_eq!(used(&promises, &json!({"usage": {"cpu_seconds": null}}), "video").processes, 0.0);
    }

    #[test]
    fn idle_principal_gets_no_proposal() {
        assert_eq!(proposal(&uses(&[0.0, 0.0]), 20.0), None);
        assert_eq!(proposal(&[], 20.0), None);
    }
}
