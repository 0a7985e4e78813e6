//! Limits of a group, and their values in the kernel's files.

use std::num::{NonZeroU32, NonZeroU64};
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// Value out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value} is out of range: give {least} to {most}{unit}")]
pub struct LimitError {
    what: &'static str,
    value: u64,
    least: u64,
    most: u64,
    unit: &'static str,
}

impl LimitError {
    /// Checks that a value is in its range.
    ///
    /// # Errors
    /// It is not.
    pub(crate) fn check<T: Copy + PartialOrd + Into<u64>>(
        what: &'static str,
        value: T,
        range: RangeInclusive<T>,
        unit: &'static str,
    ) -> Result<T, Self> {
        if range.contains(&value) {
            return Ok(value);
        }
        let (least, most) = range.into_inner();
        Err(Self { what, value: value.into(), least: least.into(), most: most.into(), unit })
    }
}

/// Weight of a group among the groups that compete for a processor: 1 to 10,000, by default 100. A group of
/// twice the weight gets twice the time while both need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct CpuWeight(u16);

impl CpuWeight {
    /// Largest weight.
    pub const MOST: u16 = 10_000;
    /// Weight of a group without a configured weight.
    pub const DEFAULT: Self = Self(100);

    /// Makes a weight.
    ///
    /// # Errors
    /// The value is 0 or above [`MOST`](Self::MOST).
    pub fn new(weight: u16) -> Result<Self, LimitError> {
        LimitError::check("processor weight", weight, 1..=Self::MOST, "").map(Self)
    }

    /// Returns the weight.
    pub fn get(self) -> u16 {
        self.0
    }

    /// Returns the shares of version 1, where 1,024 is the default: 10 to 102,400.
    pub fn shares(self) -> u32 {
        u32::from(self.0) * 1024 / u32::from(Self::DEFAULT.0)
    }
}

impl TryFrom<u16> for CpuWeight {
    type Error = LimitError;

    fn try_from(weight: u16) -> Result<Self, LimitError> {
        Self::new(weight)
    }
}

impl From<CpuWeight> for u16 {
    fn from(weight: CpuWeight) -> Self {
        weight.0
    }
}

/// Period of the processor limit in microseconds: the kernel's default in both versions. A group that has
/// used up its time waits for the next period.
pub(crate) const PERIOD: u64 = 100_000;

/// Limit of processor time, in parts per million of one processor: 10,000 (1 %) to 4,000,000,000 (4,000
/// processors). 1,500,000 is one and a half processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct CpuLimit(u32);

impl CpuLimit {
    /// Smallest limit: 1 ms in a period, which is the kernel's minimum.
    pub const LEAST: u32 = 10_000;
    /// Largest limit.
    pub const MOST: u32 = 4_000_000_000;

    /// Makes a limit of `ppm` parts per million of one processor.
    ///
    /// # Errors
    /// The value is below [`LEAST`](Self::LEAST) or above [`MOST`](Self::MOST).
    pub fn new(ppm: u32) -> Result<Self, LimitError> {
        let unit = " parts per million of one processor";
        LimitError::check("processor limit", ppm, Self::LEAST..=Self::MOST, unit).map(Self)
    }

    /// Returns the limit in parts per million of one processor.
    pub fn ppm(self) -> u32 {
        self.0
    }

    /// Returns the processor time per [`PERIOD`], in microseconds.
    pub(crate) fn quota(self) -> u64 {
        u64::from(self.0) * PERIOD / 1_000_000
    }
}

impl TryFrom<u32> for CpuLimit {
    type Error = LimitError;

    fn try_from(ppm: u32) -> Result<Self, LimitError> {
        Self::new(ppm)
    }
}

impl From<CpuLimit> for u32 {
    fn from(limit: CpuLimit) -> Self {
        limit.0
    }
}

/// Limits of a group. `None` is the kernel's default: the default weight, or no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Limits {
    /// Weight of the group among its siblings.
    pub cpu_weight: Option<CpuWeight>,
    /// Largest processor time, over all processors.
    pub cpu_limit: Option<CpuLimit>,
    /// Largest memory in bytes, including the page cache of its files. With this limit the group gets no swap
    /// beside it. The kernel rounds to pages, and kills a process of the group that needs more.
    pub memory: Option<NonZeroU64>,
    /// Largest rate of reads from each block device, and of writes to it, in bytes per second. Version 1
    /// doesn't limit buffered writes, because the kernel's own threads write them back.
    pub disk: Option<NonZeroU64>,
    /// Largest number of processes and threads.
    pub processes: Option<NonZeroU32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_weight_has_1024_shares() {
        for (weight, shares) in [(1, 10), (50, 512), (100, 1024), (300, 3072), (10_000, 102_400)] {
            assert_eq!(CpuWeight::new(weight).unwrap().shares(), shares);
        }
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        let error = CpuWeight::new(10_001).unwrap_err().to_string();
        assert_eq!(error, "processor weight 10001 is out of range: give 1 to 10000");
        assert!(CpuWeight::new(0).is_err() && CpuLimit::new(9_999).is_err());
        let error = CpuLimit::new(5).unwrap_err().to_string();
        assert!(error.ends_with("give 10000 to 4000000000 parts per million of one processor"), "{error}");
    }

    #[test]
    fn quota_is_the_share_of_a_period() {
        for (ppm, quota) in [(10_000, 1_000), (200_000, 20_000), (1_500_000, 150_000)] {
            assert_eq!(CpuLimit::new(ppm).unwrap().quota(), quota);
        }
    }
}
