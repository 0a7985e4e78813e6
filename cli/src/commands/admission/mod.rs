//! The command `admission`: what may be promised to principals, and what is; placement on described hardware.

pub mod allowance;
mod simulate;

use std::fmt::Write as _;

use hyper::Method;
use millrace_bench::escaped;
use millrace_reproduce::page::page;
use millrace_units::{BitRate, write_size};
use serde_json::{Value, json};

use crate::arguments::{
    AdmissionAction, AllowanceAction, Bind, Command, FlowAction, InstanceAction, PrincipalAction,
    RouterAction, command,
};
use crate::client::Client;
use crate::output::{Failure, done, plain, rows, show, table, write_file};
use crate::pairs::{changes, without_defaults};

const COMPONENTS: &str = "component | promised | of=whole | left | use=bar | to";
/// Width of a full bar, in characters.
const BAR: usize = 20;
/// Width of a full bar of a page, in pixels.
const PAGE_BAR: f64 = 400.0;

/// Shows what is promised, changes how much may be promised, or places services: at the router, or on described
/// hardware. `remote` connects to the router.
pub fn admission(
    remote: impl Fn() -> Result<Client, Failure>,
    action: &AdmissionAction,
    json: bool,
) -> Result<(), Failure> {
    match action {
        // The command itself is carried out, with the option for a trial.
        AdmissionAction::Explain { .. } => {}
        AdmissionAction::Simulate { file, html } => simulate::simulate(file, html.as_deref(), json)?,
        AdmissionAction::Show { html } => {
            let value = remote()?.get("/admission")?;
            show(&value, json, || listed(&value));
            if let Some(html) = html {
                write_file("page", html, &promises_page(&value))?;
            }
        }
        AdmissionAction::Place { plugin, instance, service } => {
            let service = without_defaults(service.changes());
            let body = json!({"plugin": plugin, "instance": instance, "service": service});
            let value = remote()?.send(Method::POST, "/admission/place", Some(&body))?;
            show(&value, json, || format!("{}\n{}", would_go(plugin, &value), listed(&value)));
        }
        AdmissionAction::Set { settings, dry_run } => {
            let body = Value::Object(changes(settings)?);
            let path = format!("/admission{}", trial(*dry_run));
            let value = remote()?.send(Method::PATCH, &path, Some(&body))?;
            match dry_run {
                true => tried(&value, json),
                false => done(&value, &format!("admission changed: {}", settings.join(" ")), json),
            }
        }
    }
    Ok(())
}

/// Returns the command of a request, as a trial.
///
/// # Errors
/// The request isn't a valid command, or has no `--dry-run`.
pub fn trial_of(request: &[String]) -> Result<Command, Failure> {
    let mut command = command(request.iter().map(String::as_str))?;
    let is_tried = match &mut command {
        Command::Principal(PrincipalAction::Add { dry_run, .. } | PrincipalAction::Set { dry_run, .. })
        | Command::Instance(InstanceAction::Create { dry_run, .. } | InstanceAction::Move { dry_run, .. })
        | Command::Admission(AdmissionAction::Set { dry_run, .. })
        | Command::Allowance(AllowanceAction::Add { dry_run, .. } | AllowanceAction::Set { dry_run, .. })
        | Command::Router(RouterAction::Set { dry_run, .. })
        | Command::Bind(Bind { dry_run, .. }) => {
            *dry_run = true;
            true
        }
        Command::Flow(FlowAction::Reserve(reservation)) => {
            reservation.dry_run = true;
            true
        }
        _ => false,
    };
    match is_tried {
        true => Ok(command),
        false => Err(Failure::usage(format!(
            "{:?} is no request that can be explained: give `principal add`, `principal set`, `flow reserve`, `bind`, \
             `instance create`, `instance move`, `admission set`, `allowance add`, `allowance set` or `router set`, \
             with its arguments",
            request.join(" ")
        ))),
    }
}

/// Returns the query of a request that is only tried, or an empty text.
pub fn trial(dry_run: bool) -> &'static str {
    if dry_run { "?dry_run=true" } else { "" }
}

/// Prints what a tried request would change, and what would be promised and left.
pub fn tried(value: &Value, json: bool) {
    show(value, json, || would_be(value));
}

/// Returns what a tried request would change, and what would be promised and left.
fn would_be(value: &Value) -> String {
    let changes = rows(&value["changes"]).iter().map(|change| format!("would run: {}\n", plain(change)));
    let levels = value["levels"].as_object().into_iter().flatten();
    let levels = levels.map(|(name, level)| format!("instance {name} would be at level {}\n", plain(level)));
    changes.chain(levels).collect::<String>() + &listed(value)
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

/// Returns the level at which a service would go, and the moves that make room for it.
fn would_go(plugin: &str, value: &Value) -> String {
    let moves = value["moves"].as_object().into_iter().flatten();
    let moves: String = moves.map(|(name, level)| format!("; {name} moves to {}", plain(level))).collect();
    format!("an instance of {plugin} would go to level {}{moves}; promised then:", plain(&value["level"]))
}

/// Returns the components as a page, each with the promised amounts side by side in one bar.
fn promises_page(value: &Value) -> String {
    let mut body =
        String::from("<table>\n<tr><th>component</th><th>promised</th><th></th><th>to</th></tr>\n");
    for component in rows(&value["components"]) {
        let of = |value: &Value| escaped(&amount(value, &component["unit"]));
        let whole =
            component["whole"].as_f64().or(component["promised"].as_f64()).filter(|whole| *whole > 0.0);
        let (mut bars, mut names) = (String::new(), Vec::new());
        for (index, claim) in rows(&component["claims"]).iter().enumerate() {
            let share = claim["amount"].as_f64().zip(whole).map_or(0.0, |(amount, whole)| amount / whole);
            let by = format!("{} {}", escaped(&plain(&claim["by"])), of(&claim["amount"]));
            // Neighbours in the bar differ in their shade.
            let (width, opacity) =
                (share.clamp(0.0, 1.0) * PAGE_BAR, if index % 2 == 0 { "1" } else { "0.6" });
            // Writing to a string can't fail.
            let _ = write!(
                bars,
                "<span class=\"bar\" title=\"{by}\" style=\"width:{width:.1}px;opacity:{opacity}\"></span>"
            );
            names.push(by);
        }
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td>{} of {}</td><td style=\"text-align:left\"><div style=\"width:{PAGE_BAR}px;\
             outline:1px solid #ccc;overflow:hidden;white-space:nowrap;font-size:0\">{bars}</div></td><td \
             style=\"text-align:left\">{}</td></tr>",
            escaped(&plain(&component["component"])),
            of(&component["promised"]),
            of(&component["whole"]),
            names.join(", ")
        );
    }
    body.push_str("</table>\n");
    page("Promises", &body)
}

/// Writes an amount of a component; `-` if it is unlimited.
pub fn amount(value: &Value, unit: &Value) -> String {
    let Some(number) = value.as_f64() else { return "-".to_owned() };
    match unit.as_str() {
        Some("bit/s") => BitRate(number).to_string(),
        Some("bytes") => write_size(number as u64),
        Some(unit) if unit != "%" => format!("{} {unit}", (number * 100.0).round() / 100.0),
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
    fn requests_are_explained_as_trials() {
        let asked = |words: &str| {
            let request: Vec<String> = words.split(' ').map(str::to_owned).collect();
            trial_of(&request)
        };
        let flow = asked("flow reserve udp --cpu 20%").unwrap();
        assert!(matches!(flow, Command::Flow(FlowAction::Reserve(reservation)) if reservation.dry_run));
        let moved = asked("instance move s1 --level worker").unwrap();
        assert!(matches!(moved, Command::Instance(InstanceAction::Move { dry_run: true, .. })));
        let set = asked("admission set link=80%").unwrap();
        assert!(matches!(set, Command::Admission(AdmissionAction::Set { dry_run: true, .. })));
        let set = asked("allowance set students cpu=40%").unwrap();
        assert!(matches!(set, Command::Allowance(AllowanceAction::Set { dry_run: true, .. })));
        let set = asked("router set core-ceiling=70%").unwrap();
        assert!(matches!(set, Command::Router(RouterAction::Set { dry_run: true, .. })));
        let added = asked("principal add video cpu=10%").unwrap();
        assert!(matches!(added, Command::Principal(PrincipalAction::Add { dry_run: true, .. })));
        for (words, problem) in [("principal remove video", "no request that can be explained"), ("flow", "")]
        {
            let error = asked(words).unwrap_err();
            assert!(error.message.contains(problem), "{}", error.message);
        }
    }

    #[test]
    fn tried_request_shows_changes_and_levels_before_the_components() {
        let value = json!({"changes": ["instance move s"], "levels": {"s": "worker"}, "components": []});
        let text = would_be(&value);
        let start = "would run: instance move s\ninstance s would be at level worker\n";
        assert!(text.starts_with(start), "{text}");
    }

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
