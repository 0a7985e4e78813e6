//! The command `allowance`: what users may request and hold.

use hyper::Method;
use serde_json::{Value, json};

use super::{amount, trial, would_be};
use crate::arguments::AllowanceAction;
use crate::client::{Client, segment};
use crate::output::{Failure, done, plain, rows, show, table};
use crate::pairs::{changes, nested};

const COLUMNS: &str = "allowance | user | component | holds | of";

/// Adds, changes, removes and shows allowances.
pub fn allowance(client: &Client, action: &AllowanceAction, json: bool) -> Result<(), Failure> {
    let path = |name: &str| format!("/allowances/{}", segment(name));
    match action {
        AllowanceAction::Add { name, settings, dry_run } => {
            let mut body = nested(changes(settings)?)?;
            if body.insert("name".to_owned(), name.as_str().into()).is_some() {
                return Err(Failure::usage("name is no setting: give it once, before the settings"));
            }
            let path = format!("/allowances{}", trial(*dry_run));
            let value = client.send(Method::POST, &path, Some(&Value::Object(body)))?;
            match dry_run {
                true => tried(&value, json),
                false => done(&value, &format!("allowance {name} added"), json),
            }
        }
        AllowanceAction::Set { name, settings, dry_run } => {
            let body = Value::Object(nested(changes(settings)?)?);
            let path = format!("{}{}", path(name), trial(*dry_run));
            let value = client.send(Method::PATCH, &path, Some(&body))?;
            match dry_run {
                true => tried(&value, json),
                false => done(&value, &format!("allowance {name} changed: {}", settings.join(" ")), json),
            }
        }
        AllowanceAction::Remove { name } => {
            let value = client.send(Method::DELETE, &path(name), None)?;
            done(&value, &format!("allowance {name} removed; what its users hold stays"), json);
        }
        AllowanceAction::List => {
            let value = client.get("/allowances")?;
            show(&value, json, || listed(&value));
        }
        AllowanceAction::Show { name } => {
            let value = client.get(&path(name))?;
            show(&value, json, || listed(&json!([value])));
        }
    }
    Ok(())
}

/// Prints what a tried change would be, with the allowance as a table.
fn tried(value: &Value, json: bool) {
    show(value, json, || would_be(value) + &listed(&json!([value["allowance"]])));
}

/// Returns allowances as a table: for each user and component, what the user holds and may hold. Levels and
/// processors have a row each.
pub fn listed(value: &Value) -> String {
    let all: Vec<_> = rows(value).iter().flat_map(rows_of).collect();
    table(&all, COLUMNS)
}

fn rows_of(allowance: &Value) -> Vec<Value> {
    let name = &allowance["name"];
    let users = [words(&allowance["user"]), words(&allowance["role"])].concat();
    let places = ["level", "processor"].map(|key| {
        let places = words(&allowance[key]);
        let places = if places.is_empty() { "all".to_owned() } else { places.join(", ") };
        json!({"allowance": name, "user": users.join(", "), "component": key, "holds": "", "of": places})
    });
    let of_user = |held: &Value| -> Vec<Value> {
        let row = |component: String, holds: String, of: &Value| {
            let of = if of.is_null() { "unlimited".to_owned() } else { plain(of) };
            json!({"allowance": name, "user": held["user"], "component": component, "holds": holds, "of": of})
        };
        let mut ports: Vec<&String> = [&allowance["link"], &held["link"]]
            .into_iter()
            .filter_map(Value::as_object)
            .flat_map(|ports| ports.keys())
            .collect();
        ports.sort();
        ports.dedup();
        let links = ports.into_iter().map(|port| {
            let rate = held["link"].get(port).cloned().unwrap_or_else(|| 0.into());
            row(format!("link {port}"), amount(&rate, &"bit/s".into()), &allowance["link"][port])
        });
        let whole = [
            row("cpu".to_owned(), amount(&held["cpu"], &"%".into()), &allowance["cpu"]),
            row("memory".to_owned(), amount(&held["memory"], &"bytes".into()), &allowance["memory"]),
            row("principals".to_owned(), plain(&held["principals"]), &allowance["principals"]),
        ];
        whole.into_iter().chain(links).collect()
    };
    places.into_iter().chain(rows(&allowance["held"]).iter().flat_map(of_user)).collect()
}

fn words(list: &Value) -> Vec<String> {
    rows(list).iter().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowances_are_listed_with_use_beside_limit() {
        let value = json!([{
            "name": "students", "user": ["alice"], "role": ["operator"], "level": ["worker"], "processor": [],
            "cpu": "30 %", "link": {"wan": "10mbit"}, "principals": 4,
            "held": [{"user": "alice", "cpu": 12.5, "link": {}, "memory": 8_388_608, "principals": 2}],
        }]);
        let text = listed(&value);
        let row = |component: &str| {
            let line = text.lines().find(|line| line.contains(component)).unwrap_or_default();
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join("|")
        };
        assert_eq!(row(" level "), "students|alice, operator|level|-|worker", "{text}");
        assert_eq!(row(" cpu "), "students|alice|cpu|12.5 %|30 %", "{text}");
        assert_eq!(row(" memory "), "students|alice|memory|8MiB|unlimited", "{text}");
        assert!(row("link wan").ends_with("|10mbit") && row("principals ").ends_with("|2|4"), "{text}");
    }
}
