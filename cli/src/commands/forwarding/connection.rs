//! The command `connection`.

use serde_json::Value;

use crate::arguments::ConnectionAction;
use crate::client::{Client, segment};
use crate::output::{Failure, rows, show, table};

const COLUMNS: &str = "protocol | source | sport=source_port | destination | dport=destination_port \
    | id=identifier | state | answered | confirmed | expires s=expires | worker";

/// Lists connections.
pub fn connection(client: &Client, action: &ConnectionAction, json: bool) -> Result<(), Failure> {
    let ConnectionAction::List { flows, limit } = action;
    let filter = flows.filter().map_or_else(String::new, |filter| format!("filter={}&", segment(filter)));
    let value = client.get(&format!("/connections?{filter}limit={limit}"))?;
    show(&value, json, || listed(&value));
    Ok(())
}

fn listed(value: &Value) -> String {
    let connections = rows(&value["connections"]);
    let more = value["found"].as_u64().unwrap_or(0).saturating_sub(connections.len() as u64);
    let rest = if more > 0 { format!("and {more} more\n") } else { String::new() };
    table(connections, COLUMNS) + &rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn connections_beyond_the_limit_are_counted() {
        let one = json!({"protocol": "tcp", "source": "10.1.0.2", "source_port": 4000, "destination": "10.2.0.2",
            "destination_port": 80, "identifier": null, "state": "established", "answered": true, "confirmed": true,
            "expires": 7440.0, "worker": 0});
        let text = listed(&json!({"found": 3, "connections": [one]}));
        assert!(
            text.contains("10.1.0.2") && text.contains("established") && text.ends_with("and 2 more\n"),
            "{text}"
        );
    }
}
