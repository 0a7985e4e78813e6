//! The command `admission`: what may be promised to principals, and what is; placement on described hardware.

mod simulate;

use hyper::Method;
use millrace_units::{BitRate, write_size};
use serde_json::{Value, json};

use super::forwarding::flow::reserve;
use crate::arguments::{AdmissionAction, FlowReservation};
use crate::client::Client;
use crate::output::{Failure, done, plain, rows, show, table};
use crate::pairs::changes;

const COMPONENTS: &str = "component | promised | of=whole | left | use=bar | to";
/// Width of a full bar, in characters.
const BAR: usize = 20;

/// Shows what is promised, explains a reservation, changes how much may be promised, or places services on
/// described hardware. `remote` connects to the router.
pub fn admission(
    remote: impl Fn() -> Result<Client, Failure>,
    action: &AdmissionAction,
    json: bool,
) -> Result<(), Failure> {
    match action {
        AdmissionAction::Simulate { file, html } => simulate::simulate(file, html.as_deref(), json)?,
        AdmissionAction::Show => {
            let value = remote()?.get("/admission")?;
            show(&value, json, || listed(&value));
        }
        AdmissionAction::Explain(asked) => {
            reserve(&remote()?, &FlowReservation { dry_run: true, ..(**asked).clone() }, json)?;
        }
        AdmissionAction::Set { settings } => {
            let body = Value::Object(changes(settings)?);
            let value = remote()?.send(Method::PATCH, "/admission", Some(&body))?;
            done(&value, &format!("admission changed: {}", settings.join(" ")), json);
        }
    }
    Ok(())
}

/// Returns the components as a table, with the used part of each as a bar.
pub fn listed(value: &Value) -> String {
    let row = |component: &Value| {
        let amount = |value: &Value| amount(value, &component["unit"]);
        let claims = rows(&component["claims"]).iter();
        let claims: Vec<_> =
            claims.map(|claim| format!("{} {}", plain(&claim["by"]), amount(&claim["amount"]))).collect();
        json!({
            "component": component["component"],
            "promised": amount(&component["promised"]),
            "whole": amount(&component["whole"]),
            "left": amount(&component["left"]),
            "bar": bar(&component["promised"], &component["whole"]),
            "to": claims.join(", "),
        })
    };
    let components: Vec<_> = rows(&value["components"]).iter().map(row).collect();
    table(&components, COMPONENTS)
}

/// Writes an amount of a component; `-` if it is unlimited.
fn amount(value: &Value, unit: &Value) -> String {
    let Some(number) = value.as_f64() else { return "-".to_owned() };
    match unit.as_str() {
        Some("bit/s") => BitRate(number).to_string(),
        Some("bytes") => write_size(number as u64),
        _ => format!("{} %", (number * 100.0).round() / 100.0),
    }
}

/// Returns a bar of the promised part; empty without a limit.
fn bar(promised: &Value, whole: &Value) -> String {
    let part = promised.as_f64().zip(whole.as_f64()).filter(|(_, whole)| *whole > 0.0);
    let Some((promised, whole)) = part else { return String::new() };
    let full = ((promised / whole).clamp(0.0, 1.0) * BAR as f64).ceil() as usize;
    format!("{}{}", "#".repeat(full), ".".repeat(BAR - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_listed_with_bars_and_claims() {
        let claims = json!([{"by": "video", "amount": 30_000_000.0}]);
        let value = json!({"components": [
            {"component": "link wan", "unit": "bit/s", "whole": 90_000_000.0, "promised": 30_000_000.0, "left": 60_000_000.0, "claims": claims},
            {"component": "memory", "unit": "bytes", "promised": 8_388_608.0, "claims": []},
            {"component": "workers", "unit": "%", "whole": 45.0, "promised": 0.0, "left": 45.0, "claims": []},
        ]});
        let text = listed(&value);
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
        let wan = line("link wan");
        assert!(wan.contains("#######.............") && wan.contains("video 30.00 Mb/s"), "{wan}");
        assert!(line("memory").contains("8MiB") && !line("memory").contains('#'), "{text}");
        assert!(
            line("workers").contains("45 %") && line("workers").contains("...................."),
            "{text}"
        );
    }
}
