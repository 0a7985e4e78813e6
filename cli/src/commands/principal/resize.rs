//! The command `principal resize`: a reserved share of processor time, proposed from the measured use.

use std::time::{Duration, Instant};

use hyper::Method;
use millrace_units::count;
use serde_json::json;

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
    let uses = measured(client, name, over)?;
    let Some(proposal) = proposal(&uses, margin) else {
        let problem = format!("principal {name} used no processor time at the workers within {over:?}");
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
        "used": proposal.used,
        "margin": margin,
        "cpu": before,
        "proposed": share,
        "applied": apply,
    });
    output::show(&value, json, || {
        let done = if apply { "now reserved" } else { "proposed" };
        let now = before.as_str().map_or("none".to_owned(), str::to_owned);
        format!(
            "principal {name}: {:.2} % used (95th percentile of {}), {share} {done} (margin {margin} %), \
             {now} before\n",
            proposal.used,
            count(uses.len(), "sample")
        )
    });
    Ok(())
}

/// Proposed share.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Proposal {
    /// 95th percentile of the use, in percent of one processor.
    used: f64,
    /// Proposed share in percent of one processor, in steps of 0.1.
    share: f64,
}

/// Returns the 95th percentile of the use with a margin, rounded up; `None` without use.
fn proposal(uses: &[f64], margin: f64) -> Option<Proposal> {
    let mut sorted = uses.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() * 95).div_ceil(100).checked_sub(1)?;
    let used = *sorted.get(index)?;
    let share = (used * (1.0 + margin / 100.0) / LEAST - 1e-9).ceil() * LEAST;
    // Multiplying by 0.1 leaves digits that no share has.
    let share = ((share * 10.0).round() / 10.0).max(LEAST);
    (used > 0.0).then_some(Proposal { used, share })
}

/// Returns the use of a principal at the workers in each interval, in percent of one processor.
fn measured(client: &Client, name: &str, over: Duration) -> Result<Vec<f64>, Failure> {
    let begin = Instant::now();
    let mut last = (begin, used(client, name)?);
    let mut uses = Vec::new();
    while begin.elapsed() < over {
        std::thread::sleep(INTERVAL.min(over));
        let now = (Instant::now(), used(client, name)?);
        uses.push((now.1 - last.1).max(0.0) * 100.0 / (now.0 - last.0).as_secs_f64());
        last = now;
    }
    Ok(uses)
}

/// Returns the processor time that a principal has used at the workers, in seconds.
fn used(client: &Client, name: &str) -> Result<f64, Failure> {
    let promises = client.get("/promises")?;
    let rows = rows(&promises["promises"]).iter();
    let mut of_name = rows.filter(|promise| promise["principal"] == name);
    Ok(of_name.next().and_then(|promise| promise["used_seconds"].as_f64()).unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposal_is_the_95th_percentile_with_a_margin() {
        let uses: Vec<f64> = (1..=100).map(|number| f64::from(number) / 10.0).collect();
        assert_eq!(proposal(&uses, 20.0), Some(Proposal { used: 9.5, share: 11.4 }));
        assert_eq!(proposal(&[3.0], 0.0), Some(Proposal { used: 3.0, share: 3.0 }));
        assert_eq!(proposal(&[3.01], 0.0).unwrap().share, 3.1, "rounded up");
        assert_eq!(proposal(&[0.001], 20.0).unwrap().share, 0.1, "the smallest share");
    }

    #[test]
    fn idle_principal_gets_no_proposal() {
        assert_eq!(proposal(&[0.0, 0.0], 20.0), None);
        assert_eq!(proposal(&[], 20.0), None);
    }
}
