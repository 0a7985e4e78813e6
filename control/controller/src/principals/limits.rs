//! Limits of the principals' groups, from their configuration.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

use millrace_config::Principal;
use millrace_principals::{CpuLimit, CpuWeight, Limits};

/// Processors for which the groups of principals and the router's threads compete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Processors {
    /// Number of processors of the machine.
    pub all: usize,
    /// Number of workers.
    pub workers: usize,
    /// Part of a worker that core may need (`core-ceiling`), in parts per million.
    pub core: u32,
}

/// Number of groups among which each principal divides its share and its limits, by name: its own one, and one for each
/// plugin that it pays for together with others. Principals that aren't here have their own group only.
pub(super) type Parts = BTreeMap<String, u32>;

/// Limits of each group.
#[derive(Debug)]
pub(super) struct GroupLimits<'a> {
    /// Part of each principal, by name: the limits of its own group.
    pub principals: Vec<(&'a str, Limits)>,
    /// Part of bindings without a principal in each group of a plugin. It has a weight only.
    pub default: Limits,
    /// Weight of the group of the router's threads.
    pub threads: CpuWeight,
}

/// Returns the limits of all groups.
///
/// The kernel knows only weights. So the groups' weights are in the ratio of the processor time that each gets while
/// all need it: a reserved share, or by its weight a part of the rest. Each worker has the usual weight of a principal,
/// and so have all other threads together, but workers get no less than core may need. A principal with several groups
/// divides its share and its limits evenly among them.
pub(super) fn limits<'a>(
    principals: &'a [Principal],
    processors: Processors,
    parts: &Parts,
) -> GroupLimits<'a> {
    let weights = weights(principals, processors, parts);
    let limits = principals
        .iter()
        .zip(weights.principals)
        .map(|(one, weight)| (&*one.name, limits_of(one, weight, parts_of(parts, &one.name))));
    GroupLimits {
        principals: limits.collect(),
        default: Limits { cpu_weight: beside_default(weights.default), ..Limits::default() },
        threads: weights.threads,
    }
}

/// Returns the number of groups of a principal.
pub(super) fn parts_of(parts: &Parts, name: &str) -> u32 {
    parts.get(name).copied().unwrap_or(1).max(1)
}

fn limits_of(principal: &Principal, weight: CpuWeight, parts: u32) -> Limits {
    let part = |bytes: u64| NonZeroU64::new(bytes.div_ceil(parts.into()));
    Limits {
        cpu_weight: beside_default(weight),
        cpu_limit: principal
            .cpu_limit
            .and_then(|limit| CpuLimit::new((limit.ppm() / parts).max(CpuLimit::LEAST)).ok()),
        memory: principal.memory.and_then(|size| part(size.bytes())),
        disk: principal.disk.and_then(|rate| part(rate.bytes())),
        // Plugin processes start no others, so only the own group needs this limit.
        processes: principal.processes.and_then(NonZeroU32::new),
    }
}

/// Returns the weight unless it is the kernel's default.
fn beside_default(weight: CpuWeight) -> Option<CpuWeight> {
    Some(weight).filter(|weight| *weight != CpuWeight::DEFAULT)
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

/// Weights of the groups.
#[derive(Debug)]
struct Weights {
    principals: Vec<CpuWeight>,
    default: CpuWeight,
    threads: CpuWeight,
}

/// Returns the weight of each group. Without reserved shares, the principals divide their configured weights, unless
/// these leave the router's threads less than core may need.
fn weights(principals: &[Principal], processors: Processors, parts: &Parts) -> Weights {
    let usual = f64::from(Principal::USUAL_WEIGHT);
    let weight = |one: &Principal| f64::from(one.weight.unwrap_or(Principal::USUAL_WEIGHT));
    let reserved = |one: &Principal| one.reserved_cpu().map(|cpu| f64::from(cpu.ppm()));
    let each = |name: &str, share: f64| share / f64::from(parts_of(parts, name));
    let threads = (processors.workers + 1) as f64 * usual;
    let all_reserved: f64 = principals.iter().filter_map(reserved).sum();
    let mut others: f64 = principals.iter().filter(|one| reserved(one).is_none()).map(weight).sum();
    if parts.contains_key(Principal::DEFAULT) {
        others += usual;
    }
    let whole = processors.all as f64 * 1e6;
    let free = (whole - all_reserved).max(0.0);
    let by_weight = free * threads / (threads + others);
    let needed = (f64::from(processors.core) * processors.workers as f64).min(whole);
    if all_reserved == 0.0 && by_weight >= needed {
        return Weights {
            principals: principals.iter().map(|one| rounded(each(&one.name, weight(one)))).collect(),
            default: rounded(each(Principal::DEFAULT, usual)),
            threads: rounded(threads),
        };
    }
    let own = by_weight.max(needed);
    let unit = if others > 0.0 { (free - own).max(0.0) / others } else { 0.0 };
    let share = |one: &Principal| reserved(one).unwrap_or_else(|| unit * weight(one));
    let shares: Vec<f64> = principals.iter().map(share).collect();
    // Powers of two, so that a change of one share leaves the weights of others as they are.
    let largest = shares.iter().copied().fold(own.max(1.0), f64::max);
    let scale = f64::from(CpuWeight::MOST) / largest.log2().ceil().exp2();
    let scaled = |name: &str, share: f64| rounded(each(name, share * scale));
    Weights {
        principals: principals.iter().zip(&shares).map(|(one, share)| scaled(&one.name, *share)).collect(),
        default: scaled(Principal::DEFAULT, unit * usual),
        threads: rounded(own * scale),
    }
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

    const TWO: Processors = Processors { all: 2, workers: 1, core: 500_000 };

    /// Returns the weights of the principals, then that of the threads of a router with one worker.
    fn weights_of(entries: &str, all: usize) -> Vec<u16> {
        weights_in(entries, Processors { all, ..TWO }, &Parts::new())
    }

    fn weights_in(entries: &str, processors: Processors, parts: &Parts) -> Vec<u16> {
        let config = Config::parse(entries, "test").unwrap();
        let weights = weights(&config.principal, processors, parts);
        weights.principals.into_iter().chain([weights.threads]).map(CpuWeight::get).collect()
    }

    #[test]
    fn weights_without_reserved_shares_are_the_configured_ones() {
        let entries =
            "principal = [{ name = \"a\" }, { name = \"b\", weight = 3 }, { name = \"c\", weight = 400 }]";
        assert_eq!(weights_of(entries, 2), [100, 3, 400, 200]);
    }

    /// Returns the processor time of a group beside others, in parts of a processor.
    fn time(weights: &[u16], place: usize, processors: usize) -> f64 {
        let sum: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        f64::from(weights[place]) / sum * processors as f64
    }

    #[test]
    fn threads_get_what_core_may_need_beside_whole_reserved_processors_and_great_weights() {
        for entries in [
            "principal = [{ name = \"a\", cpu = \"150 %\" }]",
            "principal = [{ name = \"a\", cpu = \"100 %\" }, { name = \"b\", weight = 10000 }]",
            "principal = [{ name = \"a\", weight = 10000 }, { name = \"b\" }]",
        ] {
            let weights = weights_of(entries, 2);
            let threads = time(&weights, weights.len() - 1, 2);
            assert!(threads > 0.499, "{entries}: {weights:?}: {threads}");
        }
        // More than the machine has is reserved: all get less in proportion.
        let weights = weights_of("principal = [{ name = \"a\", cpu = \"200 %\" }]", 2);
        assert!((time(&weights, 1, 2) - 0.4).abs() < 0.001, "{weights:?}");
    }

    #[test]
    fn changed_share_leaves_other_reserved_weights_as_they_are() {
        let of = |b: u32| {
            let entries = format!(
                "principal = [{{ name = \"a\", cpu = \"20 %\" }}, {{ name = \"b\", cpu = \"{b} %\" }}]"
            );
            weights_of(&entries, 2)
        };
        let (before, after) = (of(10), of(15));
        assert!(before[0] == after[0] && before[1] < after[1], "{before:?} {after:?}");
    }

    #[test]
    fn principal_with_several_groups_divides_its_share_and_its_limits() {
        let parts: Parts = [("a".to_owned(), 4), (Principal::DEFAULT.to_owned(), 2)].into();
        let entries = "principal = [{ name = \"a\", cpu-limit = \"20 %\", memory = \"8 MiB\", processes = 5, \
                       disk = \"2 MB/s\" }, { name = \"b\" }]";
        let config = Config::parse(entries, "test").unwrap();
        let limits = limits(&config.principal, TWO, &parts);
        let expected = Limits {
            cpu_weight: Some(CpuWeight::new(25).unwrap()),
            cpu_limit: Some(CpuLimit::new(50_000).unwrap()),
            memory: NonZeroU64::new(2 << 20),
            disk: NonZeroU64::new(500_000),
            processes: NonZeroU32::new(5),
        };
        assert_eq!(limits.principals, [("a", expected), ("b", Limits::default())]);
        assert_eq!(limits.default.cpu_weight, CpuWeight::new(50).ok());
        // The four groups of `a` together have its reserved share.
        let entries = "principal = [{ name = \"a\", cpu = \"40 %\" }, { name = \"b\" }]";
        let (one, four) = (weights_of(entries, 2), weights_in(entries, TWO, &[("a".to_owned(), 4)].into()));
        assert!((f64::from(one[0]) / 4.0 - f64::from(four[0])).abs() <= 0.5 && one[1..] == four[1..]);
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
        let weights = weights_of(entries, 1);
        assert!(weights[1] == 1 && (weights[0] / 2).abs_diff(weights[2]) <= 1, "{weights:?}");
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
        assert_eq!(limits(&config.principal, TWO, &Parts::new()).principals, [("a", expected)]);
    }
}
