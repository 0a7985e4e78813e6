//! Shares of processors, and rates in bytes per second.

use std::fmt;
use std::str::FromStr;

use millrace_units::read_size;

use super::form::written_value;

/// Share of processor time of `LEAST` to 4,000,000,000 parts per million of one processor, written as `5 %` or
/// `150%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessorShare<const LEAST: u32>(u32);

/// Reserved share of a processor: at least 0.1 %.
pub type CpuShare = ProcessorShare<1_000>;

/// Parts per million in a percent.
const PERCENT: u32 = 10_000;

impl<const LEAST: u32> ProcessorShare<LEAST> {
    /// Largest share in parts per million: 4,000 processors.
    pub const MOST: u32 = 4_000_000_000;

    /// Returns the share of this many parts per million of one processor, clamped to the range.
    pub const fn clamped(ppm: u32) -> Self {
        let ppm = if ppm < LEAST { LEAST } else { ppm };
        Self(if ppm > Self::MOST { Self::MOST } else { ppm })
    }

    /// Returns the share in parts per million of one processor.
    pub const fn ppm(self) -> u32 {
        self.0
    }
}

impl<const LEAST: u32> FromStr for ProcessorShare<LEAST> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let Some(number) = trimmed.strip_suffix('%') else {
            return Err(match trimmed.parse::<f64>() {
                Ok(_) => format!("{trimmed:?} has no unit: write \"{trimmed} %\""),
                Err(_) => no_share(text),
            });
        };
        let number = number.trim_end();
        let is_plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
        let percent: f64 = number.parse().ok().filter(|_| is_plain).ok_or_else(|| no_share(text))?;
        let ppm = (percent * f64::from(PERCENT)).round();
        if (f64::from(LEAST)..=f64::from(Self::MOST)).contains(&ppm) {
            // The range check makes the conversion exact.
            return Ok(Self(ppm as u32));
        }
        Err(format!("the share must be {} to {}, not {text:?}", Self(LEAST), Self(Self::MOST)))
    }
}

fn no_share(text: &str) -> String {
    format!("{text:?} is no share of a processor: write, for example, \"5 %\" or \"150 %\"")
}

impl<const LEAST: u32> fmt::Display for ProcessorShare<LEAST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", f64::from(self.0) / f64::from(PERCENT))
    }
}

written_value!([const LEAST: u32] ProcessorShare<LEAST>, "a share of a processor such as \"5 %\"");

/// Part of a whole of `LEAST` to `MOST` parts per million, written as `50 %`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<const LEAST: u32, const MOST: u32>(ProcessorShare<LEAST>);

/// Processor time of a worker: 5 % to 95 %.
pub type CoreCeiling = Part<50_000, 950_000>;
/// Part of a resource that may be promised: 1 % to 100 %.
pub type PromisedPart = Part<10_000, 1_000_000>;

impl<const LEAST: u32, const MOST: u32> Part<LEAST, MOST> {
    /// Returns the part of this many parts per million, clamped to the range.
    pub const fn clamped(ppm: u32) -> Self {
        let ppm = if ppm < LEAST { LEAST } else { ppm };
        Self(ProcessorShare(if ppm > MOST { MOST } else { ppm }))
    }

    /// Returns the part in parts per million of the whole.
    pub const fn ppm(self) -> u32 {
        self.0.ppm()
    }

    /// Returns this part of `whole`, rounded down.
    pub fn of(self, whole: u64) -> u64 {
        let part = u128::from(whole) * u128::from(self.ppm()) / 1_000_000;
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

impl<const LEAST: u32, const MOST: u32> FromStr for Part<LEAST, MOST> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let no_part = |_| format!("{text:?} is no part: write, for example, \"50 %\"");
        let share: ProcessorShare<0> = text.parse().map_err(no_part)?;
        match (LEAST..=MOST).contains(&share.ppm()) {
            true => Ok(Self(ProcessorShare(share.ppm()))),
            false => {
                let [least, most] = [LEAST, MOST].map(ProcessorShare::<0>);
                Err(format!("the part must be {least} to {most}, not {text:?}"))
            }
        }
    }
}

impl<const LEAST: u32, const MOST: u32> fmt::Display for Part<LEAST, MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

written_value!([const LEAST: u32, const MOST: u32] Part<LEAST, MOST>, "a part such as \"50 %\"");

/// Rate in bytes per second: 1 kB/s to 1,000 GB/s, written as `2 MB/s` or `512KiB/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRate(u64);

impl ByteRate {
    const LEAST: u64 = 1_000;
    const MOST: u64 = 1_000_000_000_000;
    /// Units in which a rate is written, the largest first.
    const UNITS: [(&str, u64); 7] = [
        ("GB", 1_000_000_000),
        ("GiB", 1 << 30),
        ("MB", 1_000_000),
        ("MiB", 1 << 20),
        ("kB", 1_000),
        ("KiB", 1 << 10),
        ("B", 1),
    ];

    /// Returns the rate in bytes per second.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let size = |text: &str| read_size(text, 0..=u64::MAX).ok();
        let Some(bytes) = trimmed.strip_suffix("/s").and_then(size) else {
            let example = match size(trimmed) {
                Some(_) => format!("\"{trimmed}/s\""),
                None => "\"2 MB/s\" or \"512 KiB/s\"".to_owned(),
            };
            return Err(format!("{text:?} is no rate in bytes per second: write {example}"));
        };
        match (Self::LEAST..=Self::MOST).contains(&bytes) {
            true => Ok(Self(bytes)),
            false => {
                Err(format!("the rate must be {} to {}, not {text:?}", Self(Self::LEAST), Self(Self::MOST)))
            }
        }
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |(_, scale): &&(&str, u64)| self.0 != 0 && self.0.is_multiple_of(*scale);
        let (unit, scale) = Self::UNITS.iter().find(divides).unwrap_or(&("B", 1));
        write!(f, "{} {unit}/s", self.0 / scale)
    }
}

written_value!([] ByteRate, "a rate in bytes per second such as \"2 MB/s\"");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_of_one_processor() {
        for (text, ppm, written) in [
            ("5 %", 50_000, "5 %"),
            ("0.5%", 5_000, "0.5 %"),
            (" 150  % ", 1_500_000, "150 %"),
            ("12.3456 %", 123_456, "12.3456 %"),
        ] {
            let share: ProcessorShare<1_000> = text.parse().unwrap();
            assert_eq!((share.ppm(), share.to_string().as_str()), (ppm, written));
            assert_eq!(written.parse(), Ok(share));
        }
    }

    #[test]
    fn other_shares_are_refused_with_the_remedy() {
        let refused = |text: &str| text.parse::<ProcessorShare<10_000>>().unwrap_err();
        assert_eq!(refused("5"), "\"5\" has no unit: write \"5 %\"");
        assert_eq!(refused("0.5 %"), "the share must be 1 % to 400000 %, not \"0.5 %\"");
        for text in ["", "%", "-5 %", "nan%", "inf %", "1e3 %", "five %", "much"] {
            assert!(refused(text).contains("is no share of a processor: write"), "{text}");
        }
    }

    #[test]
    fn byte_rates_are_sizes_per_second() {
        for (text, bytes, written) in [
            ("2 MB/s", 2_000_000, "2 MB/s"),
            ("512KiB/s", 512 << 10, "512 KiB/s"),
            ("1GB/s", 1_000_000_000, "1 GB/s"),
            ("1001 B/s", 1001, "1001 B/s"),
        ] {
            let rate: ByteRate = text.parse().unwrap();
            assert_eq!((rate.bytes(), rate.to_string().as_str()), (bytes, written));
            assert_eq!(written.parse(), Ok(rate));
        }
        let refused = |text: &str| text.parse::<ByteRate>().unwrap_err();
        assert_eq!(refused("2MB"), "\"2MB\" is no rate in bytes per second: write \"2MB/s\"");
        assert_eq!(refused("1 B/s"), "the rate must be 1 kB/s to 1000 GB/s, not \"1 B/s\"");
        assert!(refused("fast").contains("write \"2 MB/s\" or"));
    }
}
