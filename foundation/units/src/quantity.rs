//! Rates, sizes and times as text: a number with its unit.
//!
//! The parser refuses a number without a unit, so that `rate=5` is never 5 bit/s. It accepts units in any
//! case, and rounds decimals to the whole bit, byte or microsecond.

use std::fmt;
use std::ops::RangeInclusive;

/// Reads a rate such as `64kbit`, `1.5mbit` or `10gbit`. Returns bits per second.
///
/// # Errors
/// The text is not a number with a unit of rates, or the rate is out of `range`.
pub fn read_rate(text: &str, range: RangeInclusive<u64>) -> Result<u64, QuantityError> {
    RATE.read_within(text, range)
}

/// Reads a size such as `1538B`, `64KiB` or `10MB`. Returns bytes.
///
/// # Errors
/// The text is not a number with a unit of sizes, or the size is out of `range`.
pub fn read_size(text: &str, range: RangeInclusive<u64>) -> Result<u64, QuantityError> {
    SIZE.read_within(text, range)
}

/// Reads a time such as `50us`, `10ms`, `30s` or `1h`. Returns microseconds.
///
/// # Errors
/// The text is not a number with a unit of times, or the time is out of `range`.
pub fn read_time(text: &str, range: RangeInclusive<u64>) -> Result<u64, QuantityError> {
    TIME.read_within(text, range)
}

/// Writes a rate given in bits per second, in the largest unit that divides it.
pub fn write_rate(bits: u64) -> String {
    RATE.write(bits)
}

/// Writes a size given in bytes, in the largest binary unit that divides it.
pub fn write_size(bytes: u64) -> String {
    SIZE.write(bytes)
}

/// Writes a time given in microseconds, in the largest unit that divides it.
pub fn write_time(microseconds: u64) -> String {
    TIME.write(microseconds)
}

/// Reason why a text is no quantity, or why the quantity is out of range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuantityError {
    text: String,
    kind: &'static Kind,
    range: RangeInclusive<u64>,
    fault: Fault,
}

/// Reason why a text is no valid quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    NotRead,
    NoUnit,
    OutOfRange,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, kind, range, fault } = self;
        let [least, most] = [range.start(), range.end()].map(|end| kind.write(*end));
        match fault {
            Fault::NotRead => write!(f, "{text:?} is no {}: write {}", kind.noun, kind.examples),
            Fault::OutOfRange => write!(f, "the {} must be {least} to {most}, not {text:?}", kind.noun),
            Fault::NoUnit => match kind.proposals(text, range).as_slice() {
                [] => write!(f, "{text:?} has no unit: write {least} to {most}"),
                [one] => write!(f, "{text:?} has no unit: write {one:?}"),
                [others @ .., last] => {
                    let others: Vec<String> = others.iter().map(|other| format!("{other:?}")).collect();
                    write!(f, "{text:?} has no unit: write {} or {last:?}", others.join(", "))
                }
            },
        }
    }
}

impl std::error::Error for QuantityError {}

/// Kind of quantity (rate, size or time) with its units.
#[derive(PartialEq, Eq, Debug)]
struct Kind {
    noun: &'static str,
    /// Units that are read, each with its factor.
    units: &'static [(&'static str, u64)],
    /// Units that are written, the largest first; the factor of the last one is 1.
    written: &'static [(&'static str, u64)],
    /// Units that an error proposes for a number without one, the likeliest first.
    usual: &'static [&'static str],
    examples: &'static str,
}

const RATE: &Kind = &Kind {
    noun: "rate",
    units: &[("bit", 1), ("kbit", 1_000), ("mbit", 1_000_000), ("gbit", 1_000_000_000)],
    written: &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)],
    usual: &["mbit", "kbit", "gbit", "bit"],
    examples: "\"64kbit\", \"1.5mbit\" or \"10gbit\"",
};

const SIZE: &Kind = &Kind {
    noun: "size",
    units: &[
        ("b", 1),
        ("kb", 1_000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
        ("kib", 1 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
        ("tib", 1 << 40),
    ],
    written: &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)],
    usual: &["B", "KiB", "MiB", "GiB", "TiB"],
    examples: "\"1538B\", \"64KiB\" or \"8MiB\"",
};

const TIME: &Kind = &Kind {
    noun: "time",
    units: &[
        ("us", 1),
        ("ms", 1_000),
        ("s", 1_000_000),
        ("m", 60_000_000),
        ("h", 3_600_000_000),
        ("d", 86_400_000_000),
        ("y", 365 * 86_400_000_000),
    ],
    written: &[("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1)],
    usual: &["ms", "s", "us", "m", "h"],
    examples: "\"500us\", \"10ms\" or \"30s\"",
};

/// Largest number of units that an error proposes.
const PROPOSALS: usize = 3;

impl Kind {
    fn read_within(&'static self, text: &str, range: RangeInclusive<u64>) -> Result<u64, QuantityError> {
        let text = text.trim();
        match self.read(text) {
            Ok(value) if range.contains(&value) => Ok(value),
            other => {
                let fault = other.err().unwrap_or(Fault::OutOfRange);
                Err(QuantityError { text: text.to_owned(), kind: self, range, fault })
            }
        }
    }

    fn read(&self, text: &str) -> Result<u64, Fault> {
        let lower = text.to_ascii_lowercase();
        let end = lower.find(|letter: char| !(letter.is_ascii_digit() || letter == '.'));
        let (number, unit) = lower.split_at(end.unwrap_or(lower.len()));
        let value: f64 = number.parse().map_err(|_| Fault::NotRead)?;
        if unit.is_empty() {
            return Err(Fault::NoUnit);
        }
        let scale = self.units.iter().find(|(known, _)| *known == unit.trim_start());
        let (_, scale) = scale.ok_or(Fault::NotRead)?;
        match number.parse::<u64>() {
            Ok(whole) => whole.checked_mul(*scale).ok_or(Fault::NotRead),
            Err(_) if value * (*scale as f64) < u64::MAX as f64 => Ok((value * *scale as f64).round() as u64),
            Err(_) => Err(Fault::NotRead),
        }
    }

    /// Returns the number with each usual unit that puts it into the range, the likeliest first.
    fn proposals(&self, number: &str, range: &RangeInclusive<u64>) -> Vec<String> {
        let all = self.usual.iter().map(|unit| format!("{number}{unit}"));
        all.filter(|text| self.read(text).is_ok_and(|value| range.contains(&value))).take(PROPOSALS).collect()
    }

    fn write(&self, value: u64) -> String {
        let divides = |(_, scale): &&(&str, u64)| value != 0 && value.is_multiple_of(*scale);
        let smallest = ("", 1);
        let (unit, scale) = self.written.iter().find(divides).or(self.written.last()).unwrap_or(&smallest);
        format!("{}{unit}", value / scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: RangeInclusive<u64> = 0..=u64::MAX;

    #[test]
    fn a_number_without_a_unit_is_refused_with_the_unit_named() {
        for (error, hint) in [
            (read_rate("5", ALL), "\"5\" has no unit: write \"5mbit\", \"5kbit\" or \"5gbit\""),
            (read_size("1538", ALL), "\"1538\" has no unit: write \"1538B\", \"1538KiB\" or"),
            (read_time("1.5", ALL), "\"1.5\" has no unit: write \"1.5ms\", \"1.5s\" or \"1.5us\""),
            (read_time("0", ALL), "has no unit"),
        ] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }

    #[test]
    fn only_units_that_put_the_number_into_the_range_are_proposed() {
        const MIB: u64 = 1 << 20;
        for (error, text) in [
            (read_time("50", 10..=10_000), "\"50\" has no unit: write \"50us\""),
            (read_time("5", 1_000_000..=86_400_000_000), "\"5\" has no unit: write \"5s\", \"5m\" or \"5h\""),
            (read_time("60", 1_000_000..=86_400_000_000), "\"60\" has no unit: write \"60s\" or \"60m\""),
            (read_size("4", MIB..=MIB << 20), "\"4\" has no unit: write \"4MiB\" or \"4GiB\""),
            (read_time("0", 1..=1_000), "\"0\" has no unit: write 1us to 1ms"),
            (read_time("2s", 1..=1_000), "the time must be 1us to 1ms, not \"2s\""),
        ] {
            assert_eq!(error.unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn quantities_are_read_and_written() {
        type Read = fn(&str, RangeInclusive<u64>) -> Result<u64, QuantityError>;
        type Functions = (Read, fn(u64) -> String);
        let (rate, size, time): (Functions, Functions, Functions) =
            ((read_rate, write_rate), (read_size, write_size), (read_time, write_time));
        for ((read, write), text, value, written) in [
            (rate, "64kbit", 64_000, "64kbit"),
            (rate, "1.5mbit", 1_500_000, "1500kbit"),
            (rate, " 10Gbit", 10_000_000_000, "10gbit"),
            (rate, "0bit", 0, "0bit"),
            (size, "1538B", 1538, "1538B"),
            (size, "64 KiB", 65_536, "64KiB"),
            (size, "10MB", 10_000_000, "10000000B"),
            (time, "50us", 50, "50us"),
            (time, "90s", 90_000_000, "90s"),
            (time, "1h", 3_600_000_000, "1h"),
            (time, "0s", 0, "0us"),
        ] {
            assert_eq!(read(text, ALL), Ok(value), "{text}");
            assert_eq!(write(value), written);
            assert_eq!(read(written, ALL), Ok(value));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "mbit", "-1mbit", "1tbit", "fast", "nan", "1e3bit", "1.2.3bit", "99999999999999999999gbit"]
        {
            assert!(read_rate(text, ALL).is_err(), "{text}");
        }
        for text in ["1kbit", "B", "1 2B", "1ö"] {
            assert!(read_size(text, ALL).is_err(), "{text}");
        }
        for text in ["1w", "-1s", "18446744073709551615h", "soon"] {
            assert!(read_time(text, ALL).is_err(), "{text}");
        }
    }
}
