//! Kept captures of worker crashes.

use std::path::Path;

use millrace_repository::state_directory_at;
use millrace_units::count;
use serde_json::{Value, json};

use super::system::Finding;
use crate::arguments::{Connection, DEFAULT_SOCKET};
use crate::output::{plain, rows};

/// Reports the kept crash captures that the status of the running router lists. Without a running router,
/// reports those in the state directory of the router at the connection's socket.
pub(super) fn kept(connection: &Connection, status: Option<Value>) -> Finding {
    let crashes = status.map(|mut status| status["crashes"].take()).unwrap_or_else(|| {
        let state = state_directory_at(&connection.socket, Path::new(DEFAULT_SOCKET));
        json!(state.map(|state| millrace_controller::crashes(&state)).unwrap_or_default())
    });
    check(rows(&crashes))
}

fn check(crashes: &[Value]) -> Finding {
    let Some(last) = crashes.last() else { return Ok("no crash capture is kept".to_owned()) };
    let [time, location, message, capture] =
        ["time", "location", "message", "capture"].map(|key| plain(&last[key]));
    Err(format!(
        "{}; the last worker panicked on {time} at {location}: {message}; `millrace replay --crash {capture}` \
         replays it",
        count(crashes.len(), "crash capture")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_crash_is_named_with_its_replay() {
        assert!(check(&[]).is_ok());
        let crash = json!({"time": "2026-11-23T22:00:00Z", "location": "a.rs:1:2", "message": "m", "capture": "/s/c.pcapng"});
        let text = check(&[crash]).unwrap_err();
        assert!(text.starts_with("1 crash capture; the last"), "{text}");
        assert!(text.contains("panicked on 2026-11-23T22:00:00Z at a.rs:1:2: m"), "{text}");
        assert!(text.contains("millrace replay --crash /s/c.pcapng"), "{text}");
    }
}
