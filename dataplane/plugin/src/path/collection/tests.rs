use std::collections::BTreeMap;

use millrace_plugin_abi::Position;
use proptest::prelude::*;

use super::super::Stage;
use super::super::tests::stage;
use super::*;

/// Returns the stages of path `number`: one of 6 early bindings, and for most paths also one of 6 bindings at
/// a copy gate.
fn stages(number: u32) -> Vec<Stage> {
    let early = stage(number % 6, Position::Early);
    let copy = stage(100 + number / 6, Position::Copy);
    if number.is_multiple_of(3) { vec![early] } else { vec![early, copy] }
}

/// Returns paths that are collected from the first path on, without a minimum number.
fn collected_at_once() -> Paths {
    let mut paths = Paths::default();
    paths.collection.least = 0;
    paths
}

/// Step of a property test.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A flow record with path `number` begins.
    Begin(u32),
    /// The flow record at this index ends.
    End(usize),
    /// A packet without a flow record uses path `number`.
    Pass(u32),
    /// This number of milliseconds passes, after this number of worker iterations.
    Wait(u64, u32),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0u32..36).prop_map(Step::Begin),
        3 => any::<usize>().prop_map(Step::End),
        3 => (0u32..36).prop_map(Step::Pass),
        4 => (0u64..20_000, 0u32..20).prop_map(|(time, calls)| Step::Wait(time, calls)),
    ]
}

/// Reference model: the flow records, and the time until which each id must stand for its path.
#[derive(Default)]
struct Twin {
    records: Vec<(PathId, u32)>,
    valid: BTreeMap<PathId, (u32, Instant)>,
}

impl Twin {
    fn uses(&mut self, id: PathId, number: u32, now: Instant) {
        self.valid.insert(id, (number, now + PERIOD));
    }

    fn check(&self, paths: &Paths, now: Instant) -> Result<(), TestCaseError> {
        let held = self.records.iter().copied();
        let recent = self.valid.iter().filter(|(_, (_, until))| now < *until);
        for (id, number) in held.chain(recent.map(|(id, (number, _))| (*id, *number))) {
            let part = |copies| {
                let mut part = stages(number);
                part.retain(|stage| (stage.position == Position::Copy) == copies);
                part
            };
            prop_assert_eq!(paths.stages(id), &stages(number)[..]);
            prop_assert_eq!(paths.stages(paths.account(id)), &part(false)[..]);
            prop_assert_eq!(paths.stages(paths.account_of_copies(id)), &part(true)[..]);
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn paths_are_valid_while_held_and_for_a_period_after_their_last_use(
        steps in prop::collection::vec(any_step(), 1..400),
    ) {
        let (mut paths, mut twin, mut now) = (collected_at_once(), Twin::default(), Instant::ZERO);
        for step in steps {
            match step {
                Step::Begin(number) => {
                    let id = paths.intern(&stages(number));
                    paths.hold(id);
                    twin.records.push((id, number));
                    twin.uses(id, number, now);
                }
                Step::End(index) if !twin.records.is_empty() => {
                    let (id, number) = twin.records.swap_remove(index % twin.records.len());
                    paths.release(id);
                    twin.uses(id, number, now);
                }
                Step::End(_) => {}
                Step::Pass(number) => {
                    let id = paths.intern(&stages(number));
                    twin.uses(id, number, now);
                }
                Step::Wait(time, calls) => {
                    for _ in 0..calls {
                        if paths.wants_collection(now) {
                            paths.collect(now, std::iter::empty());
                        }
                    }
                    now += Duration::from_millis(time);
                }
            }
            twin.check(&paths, now)?;
        }
        // Without users, all paths are freed: a path after two passes, its accounting paths after two more.
        for (id, _) in twin.records {
            paths.release(id);
        }
        for _ in 0..16 {
            now += PERIOD;
            while paths.wants_collection(now) {
                paths.collect(now, std::iter::empty());
            }
        }
        prop_assert_eq!(paths.len(), 1);
    }
}

#[test]
fn changing_bindings_need_bounded_memory() {
    let (mut paths, mut now) = (Paths::default(), Instant::ZERO);
    let mut slab = crate::slab::Slab::default();
    let lasting = stage(1, Position::Early);
    let held = paths.intern(&[lasting]);
    paths.hold(held);
    for _ in 0..100_000 {
        // In each round, slot 7 gets a binding with a new key.
        slab.put(7, ());
        let changing = Stage { binding: slab.key(7).unwrap(), ..stage(7, Position::Late) };
        let id = paths.intern(&[lasting, changing]);
        paths.hold(id);
        paths.release(id);
        now += Duration::from_millis(100);
        if paths.wants_collection(now) {
            paths.collect(now, std::iter::empty());
        }
    }
    assert!(paths.paths.len() < 4 * LEAST, "{} paths", paths.paths.len());
    assert_eq!(paths.stages(held), &[lasting]);
}

#[test]
fn paths_of_packets_at_instances_stay() {
    let (mut paths, mut now) = (collected_at_once(), Instant::ZERO);
    let waiting = paths.intern(&stages(1));
    let other = paths.intern(&stages(7));
    for _ in 0..1000 {
        now += Duration::from_secs(1);
        if paths.wants_collection(now) {
            paths.collect(now, std::iter::once(waiting));
        }
    }
    assert_eq!(paths.stages(waiting), &stages(1)[..]);
    assert!(paths.stages(other).is_empty());
    // The path, its two accounting paths, and the empty path.
    assert_eq!(paths.len(), 4);
}

#[test]
fn users_of_a_freed_id_are_not_users_of_the_next_path() {
    let (mut paths, mut now) = (collected_at_once(), Instant::ZERO);
    let id = paths.intern(&stages(0));
    let mut free = |paths: &mut Paths| {
        for _ in 0..4 {
            now += PERIOD;
            while paths.wants_collection(now) {
                paths.collect(now, std::iter::empty());
            }
        }
    };
    free(&mut paths);
    // A packet that still has the freed id enters a queue. The packet leaves the queue after a new path has
    // got the id.
    paths.hold(id);
    assert_eq!(paths.intern(&stages(3)), id);
    paths.hold(id);
    paths.release(id);
    free(&mut paths);
    assert_eq!(paths.stages(id), &stages(3)[..], "its flow record still holds it");
}
