//! The daemon's log: lines on standard error.

use std::fmt;
use std::io::{self, IsTerminal};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::output::Failure;

/// The environment variable that says what is logged.
const VARIABLE: &str = "MILLRACE_LOG";

/// Begins to log what `MILLRACE_LOG` asks for; `info` and above, if it is not set.
///
/// # Errors
/// When the variable can't be understood.
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

/// Date and time of day in UTC, to the millisecond.
struct Clock;

impl FormatTime for Clock {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        writer.write_str(&written(now))
    }
}

fn written(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let milliseconds = since_1970.subsec_millis();
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// Year, month and day of the day so many after 1970-01-01. Years are counted from March on, so that the leap day is
/// the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_the_calendar_says() {
        assert_eq!(written(Duration::ZERO), "1970-01-01 00:00:00.000Z");
        assert_eq!(written(Duration::from_millis(951_782_399_007)), "2000-02-28 23:59:59.007Z");
        assert_eq!(written(Duration::from_secs(951_782_400)), "2000-02-29 00:00:00.000Z");
        assert_eq!(written(Duration::from_secs(4_107_542_400)), "2100-03-01 00:00:00.000Z");
        assert_eq!(written(Duration::from_secs(1_798_761_599)), "2026-12-31 23:59:59.000Z");
    }
}
