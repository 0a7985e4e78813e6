//! Periodic output of a list with rates: `filter list --watch`, `route list --watch`.

use std::collections::HashMap;
use std::time::Instant;

use serde_json::{Value, json};

use crate::arguments::Watch;
use crate::output::{Failure, plain, print, rows, table, write};

/// Counters with a rate column. Each has the name of the counter, a factor by which its growth per second is
/// multiplied, and the name of the rate column.
const RATES: [(&str, f64, &str); 6] = [
    ("packets", 1.0, "packets/s=matched_rate"),
    ("drops", 1.0, "drops/s=dropped_rate"),
    ("queued_packets", 1.0, "queued/s=queued_rate"),
    ("sent_packets", 1.0, "sent/s=sent_rate"),
    ("sent_bytes", 8.0, "sent b/s=sent_bits"),
    ("lost_packets", 1.0, "lost/s=lost_rate"),
];

/// Prints the list that `look` returns. With `--watch`, prints the list again after each interval, with
/// rates. The field `key` identifies a row between two lists.
pub fn list(
    watch: &Watch,
    look: impl Fn() -> Result<Value, Failure>,
    (key, columns): (&str, &str),
    json: bool,
) -> Result<(), Failure> {
    let first = look()?;
    let Some(interval) = watch.watch else {
        print(&first, columns, json);
        return Ok(());
    };
    // Show a rate column only if some row has the counter.
    let counts = |counter: &str| rows(&first).iter().any(|row| !row[counter].is_null());
    let rates = RATES.iter().filter(|(counter, ..)| counts(counter)).map(|(.., column)| *column);
    let columns = std::iter::once(columns).chain(rates).collect::<Vec<_>>().join(" | ");
    let mut before = Before::of(&first, key);
    let mut left = watch.count;
    while left != Some(0) {
        std::thread::sleep(interval.duration());
        let mut value = look()?;
        let now = Before::of(&value, key);
        value.as_array_mut().into_iter().flatten().for_each(|row| before.add_rates(row, key, now.at));
        let text = if json { format!("{value}\n") } else { format!("{}\n", table(rows(&value), &columns)) };
        if !write(text.as_bytes())? {
            return Ok(());
        }
        before = now;
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// Counters of the previous query.
struct Before {
    at: Instant,
    rows: HashMap<String, Value>,
}

impl Before {
    fn of(value: &Value, key: &str) -> Self {
        let rows = rows(value).iter().map(|row| (plain(&row[key]), row.clone())).collect();
        Self { at: Instant::now(), rows }
    }

    /// Adds the rates of a row's counters. In a new row, and after a counter reset, the growth is the value
    /// of the counter.
    fn add_rates(&self, row: &mut Value, key: &str, now: Instant) {
        let seconds = now.duration_since(self.at).as_secs_f64().max(1e-3);
        let old = self.rows.get(&plain(&row[key]));
        for (counter, unit, column) in RATES {
            let Some((_, name)) = column.split_once('=') else { continue };
            let Some(value) = row[counter].as_u64() else { continue };
            let known = old.and_then(|old| old[counter].as_u64()).filter(|known| *known <= value);
            row[name] = json!(unit * (value - known.unwrap_or(0)) as f64 / seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn rates(before: &Value, now: Value, after: Duration) -> Value {
        let mut before = Before::of(before, "to");
        let at = before.at + after;
        before.at = at - after;
        let mut value = now;
        before.add_rates(&mut value[0], "to", at);
        value[0].clone()
    }

    #[test]
    fn rate_is_the_difference_of_two_snapshots() {
        let row = |packets: u64| json!([{"to": "10.9.0.0/16", "sent_packets": packets, "sent_bytes": packets * 100}]);
        let shown = rates(&row(100), row(150), Duration::from_secs(2));
        assert_eq!((&shown["sent_rate"], &shown["sent_bits"]), (&json!(25.0), &json!(20_000.0)));
        assert_eq!(shown["sent_packets"], 150);
        // The counters were reset between two queries; then the row is new.
        assert_eq!(rates(&row(100), row(10), Duration::from_secs(1))["sent_rate"], json!(10.0));
        assert_eq!(rates(&json!([]), row(10), Duration::from_secs(1))["sent_rate"], json!(10.0));
        // A missing counter has no rate.
        let uncounted = json!([{"to": "::/0"}]);
        assert_eq!(rates(&uncounted, uncounted.clone(), Duration::from_secs(1)), json!({"to": "::/0"}));
    }
}
