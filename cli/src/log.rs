//! Log of the daemon on standard error.

use std::fmt;
use std::io::{self, IsTerminal};

use jiff::Timestamp;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::output::Failure;

/// Environment variable with the log filter.
const VARIABLE: &str = "MILLRACE_LOG";

/// Starts the log with the filter in `MILLRACE_LOG`; by default `info` and above.
///
/// # Errors
/// The variable is invalid.
pub fn start() -> Result<(), Failure> {
    let wanted = std::env::var(VARIABLE).unwrap_or_else(|_| "info".to_owned());
    let filter = EnvFilter::try_new(&wanted).map_err(|error| {
        Failure::usage(format!(
            "{VARIABLE}={wanted:?}: {error}; it takes error, warn, info, debug, trace or off"
        ))
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(Clock)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .log_internal_errors(false)
        .init();
    Ok(())
}

/// Timer that writes date and time of day in UTC, to the millisecond.
struct Clock;

impl FormatTime for Clock {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        writer.write_str(&written(Timestamp::now()))
    }
}

fn written(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S.%3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_match_the_calendar() {
        let at = |milliseconds| written(Timestamp::from_millisecond(milliseconds).unwrap());
        assert_eq!(at(0), "1970-01-01 00:00:00.000Z");
        assert_eq!(at(951_782_399_007), "2000-02-28 23:59:59.007Z");
        assert_eq!(at(951_782_400_000), "2000-02-29 00:00:00.000Z");
        assert_eq!(at(4_107_542_400_000), "2100-03-01 00:00:00.000Z");
        assert_eq!(at(1_798_761_599_000), "2026-12-31 23:59:59.000Z");
    }
}
