//! Scheduling policy of workers.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::form::written_value;

/// Scheduling policy of workers (`sched(7)`), written as `other`, `other -10`, `fifo 50` or `round-robin 50`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerPolicy {
    /// `SCHED_OTHER` with a nice value, -20 (largest share) to 19: a share of the processor.
    Other(i8),
    /// `SCHED_FIFO` with a priority, 1 to 99 (highest): before all normal threads.
    Fifo(u8),
    /// `SCHED_RR` with a priority, 1 to 99 (highest): as `SCHED_FIFO`, in turns.
    RoundRobin(u8),
}

impl FromStr for WorkerPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let parts = (words.next(), words.next(), words.next());
        match parts {
            (Some("other"), None, _) => Ok(Self::Other(0)),
            (Some("other"), Some(nice), None) => number(nice, "nice value", -20..=19).map(Self::Other),
            (Some("fifo"), Some(priority), None) => number(priority, "priority", 1..=99).map(Self::Fifo),
            (Some("round-robin"), Some(priority), None) => {
                number(priority, "priority", 1..=99).map(Self::RoundRobin)
            }
            (Some("fifo" | "round-robin"), None, _) => {
                Err(format!("{text:?} has no priority: write, for example, \"{} 50\"", text.trim()))
            }
            _ => Err(format!(
                "{text:?} is no scheduling policy: write \"other\", \"other -10\", \"fifo 50\" or \
                 \"round-robin 50\""
            )),
        }
    }
}

fn number<T>(text: &str, what: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + fmt::Display,
{
    let number = text.parse().ok().filter(|number| range.contains(number));
    number
        .ok_or_else(|| format!("{what} {text:?} is out of range: give {} to {}", range.start(), range.end()))
}

impl fmt::Display for WorkerPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(0) => f.write_str("other"),
            Self::Other(nice) => write!(f, "other {nice}"),
            Self::Fifo(priority) => write!(f, "fifo {priority}"),
            Self::RoundRobin(priority) => write!(f, "round-robin {priority}"),
        }
    }
}

written_value!([] WorkerPolicy, "a scheduling policy such as \"fifo 50\"");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_and_written() {
        for text in ["other", "other -20", "other 19", "fifo 1", "fifo 99", "round-robin 50"] {
            assert_eq!(text.parse::<WorkerPolicy>().unwrap().to_string(), text);
        }
        assert_eq!(" other  0 ".parse(), Ok(WorkerPolicy::Other(0)));
    }

    #[test]
    fn wrong_policies_are_refused_with_the_right_form() {
        for (text, error) in [
            ("fifo", "has no priority: write, for example, \"fifo 50\""),
            ("fifo 0", "priority \"0\" is out of range: give 1 to 99"),
            ("round-robin 100", "give 1 to 99"),
            ("other -21", "nice value \"-21\" is out of range: give -20 to 19"),
            ("fifo 5 6", "is no scheduling policy"),
            ("deadline", "write \"other\", \"other -10\", \"fifo 50\" or \"round-robin 50\""),
            ("", "is no scheduling policy"),
        ] {
            let refused = text.parse::<WorkerPolicy>().unwrap_err();
            assert!(refused.contains(error), "{refused}");
        }
    }
}
