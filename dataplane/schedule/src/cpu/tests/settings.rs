//! Refused settings, and any order of changes.

use proptest::prelude::*;

use super::*;
use crate::cpu::CpuScheduleError;

#[test]
fn refusals_say_what_is_free() {
    let mut scheduler = scheduler(CpuSchedulerKind::StartTimeFair, 400_000);
    scheduler.add(PrincipalId(0), absolute(15)).unwrap();
    let cases = [
        (absolute(30), "cpu = \"30 %\" is more than the free 25 %; other principals reserve 15 %"),
        (absolute(0), "cpu must be above 0 %"),
        (weight(0), "weight must be 1 to 1000000, not 0"),
        (
            CpuPrincipal { limit: Some(12_500), ..absolute(5) },
            "cpu-limit = \"1.25 %\" is below cpu = \"5 %\"",
        ),
        (CpuPrincipal { limit: Some(0), ..weight(1) }, "cpu-limit must be above 0 %"),
        (
            CpuPrincipal { deadline: Some(Duration::from_millis(5)), ..weight(1) },
            "deadline needs an absolute share, such as cpu = \"5 %\", not a weight",
        ),
        (
            CpuPrincipal { deadline: Some(Duration::from_micros(5)), ..absolute(1) },
            "deadline must be 100 us to 10 s, not 5µs",
        ),
    ];
    for (settings, text) in cases {
        assert_eq!(scheduler.add(PrincipalId(1), settings).unwrap_err().to_string(), text);
    }
    assert_eq!(scheduler.add(PrincipalId(0), weight(1)), Err(CpuScheduleError::Duplicate(0)));
    assert_eq!(scheduler.remove(PrincipalId(9)), Err(CpuScheduleError::Unknown(9)));
    let settings = CpuSchedulerSettings { capacity: 100_000, ..*scheduler.settings() };
    let text = scheduler.set(settings, Instant::ZERO).unwrap_err().to_string();
    assert_eq!(text, "a capacity of 10 % is below the 15 % that principals reserve");
    scheduler.add(PrincipalId(1), absolute(25)).unwrap();
}

/// Change of a scheduler in any order.
#[derive(Clone, Debug)]
enum Step {
    Add(u32, CpuPrincipal),
    Change(u32, CpuPrincipal),
    Remove(u32),
    Wake(u32),
    Sleep(u32),
    Serve(u64),
    Kind(CpuSchedulerKind),
}

fn principal() -> impl Strategy<Value = CpuPrincipal> {
    let share = prop_oneof![
        (1_u32..=300_000).prop_map(CpuShare::Absolute),
        (1_u32..=1000).prop_map(CpuShare::Weight),
    ];
    let limit = prop::option::of(1_u32..=1_000_000);
    let deadline = prop::option::of((100_u64..=20_000).prop_map(Duration::from_micros));
    (share, limit, deadline).prop_map(|(share, limit, deadline)| CpuPrincipal { share, limit, deadline })
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop::sample::select(vec![
        CpuSchedulerKind::StartTimeFair,
        CpuSchedulerKind::WorstCaseFair,
        CpuSchedulerKind::Stride,
        CpuSchedulerKind::EarliestDeadline,
    ]);
    prop_oneof![
        2 => (0_u32..8, principal()).prop_map(|(number, settings)| Step::Add(number, settings)),
        1 => (0_u32..8, principal()).prop_map(|(number, settings)| Step::Change(number, settings)),
        1 => (0_u32..8).prop_map(Step::Remove),
        4 => (0_u32..8).prop_map(Step::Wake),
        2 => (0_u32..8).prop_map(Step::Sleep),
        9 => (0_u64..3_000_000).prop_map(Step::Serve),
        1 => kind.prop_map(Step::Kind),
    ]
}

proptest! {
    /// Whatever changes, the processor is idle only if each backlogged principal must wait, and only
    /// backlogged principals are chosen.
    #[test]
    fn scheduler_is_work_conserving_in_any_order_of_changes(steps in prop::collection::vec(step(), 1..200)) {
        let mut scheduler = scheduler(CpuSchedulerKind::StartTimeFair, 900_000);
        let mut now = Instant::ZERO;
        // What the test knows: per number, the limit, and whether the principal has work.
        let mut known: [Option<(bool, bool)>; 8] = [None; 8];
        for step in steps {
            match step {
                Step::Add(number, settings) => {
                    if scheduler.add(PrincipalId(number), settings).is_ok() {
                        prop_assert!(known[number as usize].is_none());
                        known[number as usize] = Some((settings.limit.is_some(), false));
                    }
                }
                Step::Change(number, settings) => {
                    if scheduler.change(PrincipalId(number), settings, now).is_ok()
                        && let Some((limited, _)) = &mut known[number as usize]
                    {
                        // A principal that waits for its old limit goes on waiting.
                        *limited |= settings.limit.is_some();
                    }
                }
                Step::Remove(number) => {
                    let is_known = known[number as usize].take().is_some();
                    prop_assert_eq!(scheduler.remove(PrincipalId(number)).is_ok(), is_known);
                }
                Step::Wake(number) => {
                    scheduler.wake(PrincipalId(number), now);
                    if let Some((_, has_work)) = &mut known[number as usize] {
                        *has_work = true;
                    }
                }
                Step::Sleep(number) => {
                    scheduler.sleep(PrincipalId(number), Instant::ZERO);
                    if let Some((_, has_work)) = &mut known[number as usize] {
                        *has_work = false;
                    }
                }
                Step::Serve(cycles) => {
                    now += Duration::from_nanos(cycles);
                    match scheduler.next(now) {
                        Some(chosen) => {
                            prop_assert!(known[chosen.0 as usize].is_some_and(|(_, has_work)| has_work));
                            scheduler.charge(chosen, Cycles(cycles), now);
                        }
                        None => {
                            let may_run = known.iter().flatten().any(|(limited, has_work)| *has_work && !limited);
                            prop_assert!(!may_run);
                            let waits = known.iter().flatten().any(|(_, has_work)| *has_work);
                            prop_assert!(!waits || scheduler.next_event().is_some_and(|at| at > now));
                        }
                    }
                }
                Step::Kind(kind) => {
                    let settings = CpuSchedulerSettings { kind, ..*scheduler.settings() };
                    scheduler.set(settings, now).unwrap();
                }
            }
            prop_assert_eq!(scheduler.is_quiet(), scheduler.is_at_rest());
        }
    }
}

#[test]
fn share_can_change_while_the_capacity_is_full() {
    let mut scheduler = scheduler(CpuSchedulerKind::StartTimeFair, 1_000_000);
    scheduler.add(PrincipalId(0), absolute(60)).unwrap();
    scheduler.add(PrincipalId(1), absolute(40)).unwrap();
    let mut change =
        |number, percent| scheduler.change(PrincipalId(number), absolute(percent), Instant::ZERO);
    assert_eq!(change(0, 60), Ok(()));
    assert!(change(0, 61).is_err());
    assert_eq!((change(0, 50), change(1, 50)), (Ok(()), Ok(())));
    assert!(change(0, 51).is_err());
}
