//! Limits of the principals' groups, from their configuration.

use std::num::{NonZeroU32, NonZeroU64};

use millrace_config::Principal;
use millrace_principals::{CpuLimit, CpuWeight, Limits};

/// Returns the limits of each principal's group, by name, and the weight of the group of the router's threads beside
/// them. `workers`: number of workers.
///
/// The kernel knows only weights. So the groups' weights are in the ratio of the processor time that each gets while
/// all need it: a reserved share, or by its weight a part of the rest. Each worker has the usual weight of a principal,
/// and so have all other threads together.
pub(super) fn limits(
    principals: &[Principal],
    processors: usize,
    workers: usize,
) -> (Vec<(&str, Limits)>, CpuWeight) {
    let mut weights = weights(principals, processors, workers);
    let threads = weights.pop().unwrap_or(CpuWeight::DEFAULT);
    let limits = principals.iter().zip(weights).map(|(one, weight)| (&*one.name, limits_of(one, weight)));
    (limits.collect(), threads)
}

fn limits_of(principal: &Principal, weight: CpuWeight) -> Limits {
    Limits {
        cpu_weight: Some(weight).filter(|weight| *weight != CpuWeight::DEFAULT),
        cpu_limit: principal.cpu_limit.and_then(|limit| CpuLimit::new(limit.ppm()).ok()),
        memory: principal.memory.and_then(|size| NonZeroU64::new(size.bytes())),
        disk: principal.disk.and_then(|rate| NonZeroU64::new(rate.bytes())),
        processes: principal.processes.and_then(NonZeroU32::new),
    }
}

/// Returns how many times longer a process takes in a group with these limits than without them, at most.
pub(super) fn slowdown(limits: &Limits) -> u32 {
    limits.cpu_limit.map_or(1, |limit| 1_000_000_u32.div_ceil(limit.ppm()))
}

/// Returns the share of each principal's processes in percent of a processor, and whether it is reserved: the
/// reserved one, or by weight a part of the rest while all need theirs.
pub(super) fn shares(principals: &[Principal], processors: usize) -> Vec<(f64, bool)> {
    let reserved = |one: &Principal| one.reserved_cpu().map(|cpu| f64::from(cpu.ppm()) / 1e4);
    let weight = |one: &Principal| f64::from(one.weight.unwrap_or(Principal::USUAL_WEIGHT));
    let rest = (processors as f64 * 100.0 - principals.iter().filter_map(reserved).sum::<f64>()).max(0.0);
    let sum: f64 = principals.iter().filter(|one| reserved(one).is_none()).map(weight).sum();
    let share = |one: &Principal| match reserved(one) {
        Some(share) => (share, true),
        None => (rest * weight(one) / sum, false),
    };
    principals.iter().map(share).collect()
}

/// Returns the weights of the principals' groups, then the weight of the router's threads. Without reserved shares, the
/// principals have their configured weights.
fn weights(principals: &[Principal], processors: usize, workers: usize) -> Vec<CpuWeight> {
    let weight = |one: &Principal| f64::from(one.weight.unwrap_or(Principal::USUAL_WEIGHT));
    let threads = (workers + 1) as f64 * f64::from(Principal::USUAL_WEIGHT);
    let reserved: f64 =
        principals.iter().filter_map(Principal::reserved_cpu).map(|cpu| f64::from(cpu.ppm())).sum();
    if reserved == 0.0 {
        return principals.iter().map(weight).chain([threads]).map(rounded).collect();
    }
    let by_weight = principals.iter().filter(|one| one.reserved_cpu().is_none()).map(weight);
    let sum = threads + by_weight.sum::<f64>();
    let rest = (processors as f64 * 1e6 - reserved).max(0.0);
    let share = |one: &Principal| match one.reserved_cpu() {
        Some(cpu) => f64::from(cpu.ppm()),
        None => rest * weight(one) / sum,
    };
    let shares: Vec<f64> = principals.iter().map(share).chain([rest * threads / sum]).collect();
    let largest = shares.iter().copied().fold(1.0, f64::max);
    shares.iter().map(|share| rounded(share / largest * f64::from(CpuWeight::MOST))).collect()
}

/// Returns the nearest weight of the kernel.
fn rounded(weight: f64) -> CpuWeight {
    let clamped = weight.round().clamp(1.0, f64::from(CpuWeight::MOST));
    CpuWeight::new(clamped as u16).unwrap_or(CpuWeight::DEFAULT)
}

#[cfg(test)]
mod tests {
    use millrace_config::Config;

    use super::*;

    /// Returns the weights of the principals, then that of the threads of a router with one worker.
    fn weights_of(entries: &str, processors: usize) -> Vec<u16> {
        let config = Config::parse(entries, "test").unwrap();
        weights(&config.principal, processors, 1).into_iter().map(CpuWeight::get).collect()
    }

    #[test]
    fn weights_without_reserved_shares_are_the_configured_ones() {
        let entries =
            "principal = [{ name = \"a\" }, { name = \"b\", weight = 3 }, { name = \"c\", weight = 10000 }]";
        assert_eq!(weights_of(entries, 2), [100, 3, 10_000, 200]);
    }

    #[test]
    fn share_of_processes_is_reserved_or_a_part_of_the_rest() {
        let entries = "principal = [{ name = \"a\", cpu = \"50 %\" }, { name = \"b\", weight = 1 }, \
                       { name = \"c\", weight = 2 }]";
        let config = Config::parse(entries, "test").unwrap();
        assert_eq!(shares(&config.principal, 2), [(50.0, true), (50.0, false), (100.0, false)]);
    }

    #[test]
    fn reserved_shares_are_kept_whatever_weights_others_have() {
        for (other, processors) in [(1, 1), (10_000, 1), (100, 2)] {
            let entries = format!(
                "principal = [{{ name = \"a\", cpu = \"20 %\" }}, {{ name = \"b\", weight = {other} }}, \
                 {{ name = \"c\", weight = {other} }}]"
            );
            let weights = weights_of(&entries, processors).into_iter().map(f64::from).collect::<Vec<_>>();
            let share = weights[0] / weights.iter().sum::<f64>() * processors as f64;
            assert!((share - 0.2).abs() < 0.001, "{weights:?}");
            assert!((weights[1] - weights[2]).abs() < 0.5, "{weights:?}");
        }
    }

    /// A small share in a great weight would leave the workers next to nothing.
    #[test]
    fn router_keeps_its_part_beside_processes_with_a_reserved_share() {
        let entries = "principal = [{ name = \"a\", cpu = \"5 %\" }, { name = \"b\" }]";
        let weights: Vec<f64> = weights_of(entries, 2).into_iter().map(f64::from).collect();
        let percent = |place: usize| weights[place] / weights.iter().sum::<f64>() * 200.0;
        for (place, expected) in [(0, 5.0), (1, 65.0), (2, 130.0)] {
            assert!((percent(place) - expected).abs() < 0.1, "{place}: {weights:?}");
        }
    }

    #[test]
    fn group_beside_fully_reserved_processors_has_the_least_weight() {
        let entries = "principal = [{ name = \"a\", cpu = \"100 %\" }, { name = \"b\" }]";
        assert_eq!(weights_of(entries, 1), [10_000, 1, 1]);
    }

    #[test]
    fn processes_are_slowed_by_their_limit_alone() {
        for (ppm, slowdown) in [(10_000, 100), (300_000, 4), (1_000_000, 1), (2_000_000, 1)] {
            let limits = Limits { cpu_limit: CpuLimit::new(ppm).ok(), ..Limits::default() };
            assert_eq!(super::slowdown(&limits), slowdown, "{ppm}");
        }
        assert_eq!(super::slowdown(&Limits::default()), 1);
    }

    #[test]
    fn limits_have_the_units_of_control_groups() {
        let entries = "[[principal]]\nname = \"a\"\ncpu-limit = \"20 %\"\nmemory = \"8 MiB\"\ndisk = \"2 MB/s\"\n\
                       processes = 64\n";
        let config = Config::parse(entries, "test").unwrap();
        let expected = Limits {
            cpu_weight: None,
            cpu_limit: Some(CpuLimit::new(200_000).unwrap()),
            memory: NonZeroU64::new(8 << 20),
            disk: NonZeroU64::new(2_000_000),
            processes: NonZeroU32::new(64),
        };
        assert_eq!(limits(&config.principal, 2, 1).0, [("a", expected)]);
    }
}
