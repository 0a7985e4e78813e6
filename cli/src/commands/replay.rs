//! The command `replay`.

use millrace_controller::replay::{self, Options};

use crate::arguments::Replay;
use crate::commands::check;
use crate::output::{Failure, lines};

/// Sends the frames of a file through a router under a virtual clock.
pub fn replay(arguments: &Replay, json: bool) -> Result<(), Failure> {
    let config = check::read(&arguments.config)?;
    let options = Options { input: &arguments.input, output: &arguments.output, at: arguments.at.as_deref() };
    let summary = replay::replay(&config, &options).map_err(Failure::new)?;
    let value = serde_json::to_value(summary).map_err(Failure::new)?;
    if json {
        println!("{value:#}");
    } else {
        print!("{}", lines(&value));
    }
    Ok(())
}
