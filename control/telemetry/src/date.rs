//! Dates as texts.

use std::time::Duration;

use jiff::civil::{DateTime, date};

/// Returns seconds since 1970 as date and time (RFC 3339).
pub fn utc(seconds: u64) -> String {
    format!("{:.0}Z", since_1970(Duration::from_secs(seconds)))
}

/// Returns milliseconds since 1970 as date and time (RFC 3339).
pub fn utc_milliseconds(milliseconds: u64) -> String {
    format!("{:.3}Z", since_1970(Duration::from_millis(milliseconds)))
}

/// Returns the date and time `duration` after the start of 1970, but at most the end of the year 9999.
fn since_1970(duration: Duration) -> DateTime {
    date(1970, 1, 1).at(0, 0, 0, 0).saturating_add(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_000_000_000, "2001-09-09T01:46:40Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), date);
        }
        assert_eq!(utc_milliseconds(1_000_000_000_007), "2001-09-09T01:46:40.007Z");
        assert_eq!(utc_milliseconds(1_000_000_000_000), "2001-09-09T01:46:40.000Z");
    }

    #[test]
    fn times_after_the_year_9999_are_clamped() {
        for seconds in [253_402_300_799, 253_402_300_800, u64::MAX] {
            assert_eq!(utc(seconds), "9999-12-31T23:59:59Z");
        }
        assert_eq!(utc_milliseconds(u64::MAX), "9999-12-31T23:59:59.999Z");
    }
}
