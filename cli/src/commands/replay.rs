//! The command `replay`.

use std::path::Path;

use millrace_controller::replay::{self, Options};
use millrace_units::count;

use crate::arguments::Replay;
use crate::commands::configure::check;
use crate::output::{Failure, lines};

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
    let value = serde_json::to_value(summary).map_err(Failure::new)?;
    if json {
        println!("{value:#}");
    } else {
        print!("{}", lines(&value));
    }
    Ok(())
}

/// Replays a crash capture, and compares the panics.
fn replay_crash(capture: &Path, json: bool) -> Result<(), Failure> {
    let crash = replay::replay_crash(capture).map_err(Failure::new)?;
    if json {
        println!("{:#}", serde_json::to_value(&crash).map_err(Failure::new)?);
    } else if crash.reproduced {
        println!("reproduced: same panic at {}: {}", crash.location, crash.message);
    }
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
