//! The command `control-plane`: control-plane policing.

use hyper::Method;
use serde_json::Value;

use crate::arguments::ControlPlaneAction;
use crate::client::Client;
use crate::output::{Failure, done, rows, show, table};
use crate::pairs::changes;

const CLASSES: &str = "class | rate | burst | passed | dropped | dropped/s=dropped_rate | meaning";

/// Shows the classes, or changes their rates.
pub fn control_plane(client: &Client, action: &ControlPlaneAction, json: bool) -> Result<(), Failure> {
    match action {
        ControlPlaneAction::Show => {
            let value = client.get("/control-plane")?;
            show(&value, json, || listed(&value));
        }
        ControlPlaneAction::Set { settings } => {
            let body = Value::Object(changes(settings)?);
            let value = client.send(Method::PATCH, "/control-plane", Some(&body))?;
            done(&value, &format!("control plane changed: {}", settings.join(" ")), json);
        }
    }
    Ok(())
}

pub fn listed(value: &Value) -> String {
    let mut text = table(rows(&value["classes"]), CLASSES);
    if value["police"] == false {
        text += "policing is off: police = false\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_listed_with_drops_and_policing_state() {
        let class = serde_json::json!({
            "class": "icmp", "meaning": "ICMP", "rate": 1000, "burst": 100, "passed": 7, "dropped": 3, "dropped_rate": 0.5,
        });
        let mut value = serde_json::json!({"police": true, "classes": [class]});
        let text = listed(&value);
        assert!(text.contains("icmp") && text.contains("1000") && !text.contains("nothing"), "{text}");
        value["police"] = false.into();
        assert!(listed(&value).ends_with("policing is off: police = false\n"));
    }
}
