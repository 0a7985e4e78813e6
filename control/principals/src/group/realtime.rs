//! Share of processor time for real-time policies, in version 1
//! (`Documentation/scheduler/sched-rt-group.rst`).

use std::path::{Path, PathBuf};

use super::settings::Setting;
use crate::directory::children;
use crate::error::GroupError;
use crate::files::{read, read_if_present};
use crate::limits::LimitError;

/// Share of each processor's time that real-time threads of a group may use, in parts per million: 1,000 to
/// 1,000,000. The kernel gives all groups together at most the share in
/// `/proc/sys/kernel/sched_rt_runtime_us`, by default 950,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealtimeShare(u32);

impl RealtimeShare {
    /// Smallest share.
    pub const LEAST: u32 = 1_000;
    /// Largest share.
    pub const MOST: u32 = 1_000_000;

    /// Makes a share of `ppm` parts per million.
    ///
    /// # Errors
    /// The value is below [`LEAST`](Self::LEAST) or above [`MOST`](Self::MOST).
    pub fn new(ppm: u32) -> Result<Self, LimitError> {
        LimitError::check("real-time share", ppm, Self::LEAST..=Self::MOST, " parts per million").map(Self)
    }
}

/// File with the time per period, in microseconds.
pub(crate) const RUNTIME: &str = "cpu.rt_runtime_us";
const RUNTIME_PERIOD: &str = "cpu.rt_period_us";

/// Returns the values that give a group the share, and the groups between it and `own` the sums of their
/// children. A parent's share is never below this sum: so it is written first when it rises, and last when it
/// falls. None if the kernel has no shares.
///
/// # Errors
/// A file can't be read.
pub(super) fn settings(group: &Path, own: &Path, share: RealtimeShare) -> Result<Vec<Setting>, GroupError> {
    let file = group.join(RUNTIME);
    if !file.exists() {
        return Ok(Vec::new());
    }
    let period: u64 = read(&group.join(RUNTIME_PERIOD))?.parse().unwrap_or(1_000_000);
    let wanted = u64::from(share.0) * period / 1_000_000;
    let rises = wanted > runtime(group);
    let mut values: Vec<(PathBuf, u64)> = vec![(group.to_owned(), wanted)];
    let mut below = (group.to_owned(), wanted);
    for parent in group.ancestors().skip(1).take_while(|ancestor| *ancestor != own) {
        let others = children(parent).into_iter().filter(|child| *child != below.0);
        let sum = below.1 + others.map(|child| runtime(&child)).sum::<u64>();
        below = (parent.to_owned(), sum);
        values.push(below.clone());
    }
    if rises {
        values.reverse();
    }
    let setting = |(directory, value): (PathBuf, u64)| Setting {
        path: directory.join(RUNTIME),
        value: value.to_string(),
        is_default: false,
        device: None,
    };
    Ok(values.into_iter().map(setting).collect())
}

fn runtime(directory: &Path) -> u64 {
    read_if_present(&directory.join(RUNTIME)).and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::Scratch;

    #[test]
    fn parents_get_the_sum_of_their_children_in_the_order_of_the_change() {
        let scratch = Scratch::new("realtime", &[]);
        let own = scratch.path();
        let directories = ["millrace-1", "millrace-1/router", "millrace-1/router/a", "millrace-1/router/b"];
        for (directory, runtime) in directories.iter().zip(["350000", "350000", "50000", "300000"]) {
            scratch.write(&format!("{directory}/{RUNTIME}"), runtime);
            scratch.write(&format!("{directory}/{RUNTIME_PERIOD}"), "1000000\n");
        }
        let values = |ppm| -> Vec<(String, String)> {
            let share = RealtimeShare::new(ppm).unwrap();
            let settings = settings(&own.join(directories[2]), own, share).unwrap();
            let name = |path: &Path| path.parent().unwrap().strip_prefix(own).unwrap().display().to_string();
            settings.into_iter().map(|one| (name(&one.path), one.value)).collect()
        };
        let of = |pairs: [(&str, &str); 3]| pairs.map(|(one, two)| (one.to_owned(), two.to_owned())).to_vec();
        let (rise, fall) = (values(100_000), values(10_000));
        assert_eq!(
            rise,
            of([(directories[0], "400000"), (directories[1], "400000"), (directories[2], "100000")])
        );
        assert_eq!(
            fall,
            of([(directories[2], "10000"), (directories[1], "310000"), (directories[0], "310000")])
        );
    }
}
