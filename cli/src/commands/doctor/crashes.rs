//! Kept captures of worker crashes.

use std::path::Path;

use millrace_repository::state_directory_at;
use serde_json::Value;

use super::system::Check;
use crate::arguments::{Connection, DEFAULT_SOCKET};
use crate::client::Client;
use crate::output::{plain, rows};

/// Checks the crashes that the running router's status lists. Without a running router, checks its default
/// state directory.
pub(super) fn kept(connection: &Connection) -> Check {
    let status = Client::hasty(connection).and_then(|client| client.get("/status"));
    let crashes = match status {
        Ok(status) => status["crashes"].clone(),
        Err(_) => {
            let state = state_directory_at(&connection.socket, Path::new(DEFAULT_SOCKET));
            let crashes = state.map(|state| millrace_controller::crashes(&state)).unwrap_or_default();
            serde_json::to_value(crashes).unwrap_or_default()
        }
    };
    check(rows(&crashes))
}

fn check(crashes: &[Value]) -> Check {
    let Some(last) = crashes.last() else {
        return Check::new("crashes", true, "no crash capture is kept");
    };
    let [time, location, message, capture] =
        ["time", "location", "message", "capture"].map(|key| plain(&last[key]));
    let text = format!(
        "{} crash captures; the last worker panicked on {time} at {location}: {message}; `millrace replay --crash {capture}` \
         replays it",
        crashes.len()
    );
    Check::new("crashes", false, text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_crash_is_named_with_its_replay() {
        assert!(check(&[]).fine);
        let crash = json!({"time": "2026-11-23T22:00:00Z", "location": "a.rs:1:2", "message": "m", "capture": "/s/c.pcapng"});
        let check = check(&[crash]);
        assert!(
            !check.fine && check.text.contains("panicked on 2026-11-23T22:00:00Z at a.rs:1:2: m"),
            "{}",
            check.text
        );
        assert!(check.text.contains("millrace replay --crash /s/c.pcapng"), "{}", check.text);
    }
}
