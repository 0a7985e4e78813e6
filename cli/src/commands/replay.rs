//! The command `replay`.

use std::path::Path;

use millrace_controller::replay::{self, Options};
use millrace_units::count;
use serde_json::json;

use crate::arguments::Replay;
use crate::commands::configure::check;
use crate::output::{Failure, lines, show};

/// Replays the frames of a file through a router under a virtual clock.
pub fn replay(arguments: &Replay, json: bool) -> Result<(), Failure> {
    if let Some(capture) = &arguments.crash {
        return replay_crash(capture, json);
    }
    let (Some(config), Some(input), Some(output)) = (&arguments.config, &arguments.input, &arguments.output)
    else {
        return Err(Failure::usage("give --in, --out and --config, or --crash"));
    };
    let config = check::read(config)?;
    let options = Options { input, output, at: arguments.at.as_deref() };
    let summary = replay::replay(&config, &options).map_err(Failure::new)?;
    show(&summary, json, || lines(&json!(summary)));
    Ok(())
}

/// Replays a crash capture, and compares the panics.
fn replay_crash(capture: &Path, json: bool) -> Result<(), Failure> {
    let crash = replay::replay_crash(capture).map_err(Failure::new)?;
    show(&crash, json, || match crash.reproduced {
        true => format!("reproduced: same panic at {}: {}\n", crash.location, crash.message),
        false => String::new(),
    });
    if crash.reproduced {
        return Ok(());
    }
    let instead = match (&crash.replayed_location, &crash.replayed_message) {
        (Some(location), Some(message)) => format!("panics at {location}: {message}"),
        _ => "does not panic".to_owned(),
    };
    Err(Failure::new(format!(
        "not reproduced: the worker panicked at {}: {}; the replay of {} {instead}",
        crash.location,
        crash.message,
        count(crash.frames, "frame")
    )))
}
