//! Tests of changes beside services that are placed.

use std::sync::Arc;

use millrace_config::{Admission, Principal, PromisedPart};

use super::measured::{at_workers, needing, planned};
use super::*;
use crate::admission::shares::check_running;

fn principals(entries: &str) -> Vec<Principal> {
    Config::parse(entries, "f").unwrap().principal
}

#[test]
fn share_fits_also_beside_a_service_that_is_pinned_to_a_worker() {
    let share = |percent: u32| principals(&format!("[[principal]]\nname = \"p\"\ncpu = \"{percent} %\"\n"));
    let checked = |place: &str, percent| {
        let model = planned("", &needing("a", "null", 0.4, place)).unwrap();
        check_running(&model, &share(percent), Some("p")).map_err(|error| error.to_string())
    };
    // Core keeps half of each of two workers: 60 % are left of both, but only 10 % of worker 0.
    assert_eq!((checked("level = \"worker\"", 50), checked("worker = 0", 19)), (Ok(()), Ok(())));
    let error = checked("worker = 0", 50).unwrap_err();
    assert!(error.contains("instance \"a\" would lack") && error.contains("of worker 0"), "{error}");
}

#[test]
fn part_that_may_be_promised_holds_for_a_pinned_service_too() {
    let model = planned("", &needing("a", "null", 0.4, "worker = 0")).unwrap();
    let checked = |part| {
        let admission = Admission { cpu: PromisedPart::clamped(part), ..model.admission.clone() };
        check_settings(&model, &model.router, &admission).map_err(|error| error.to_string())
    };
    assert_eq!(checked(900_000), Ok(()));
    let error = checked(500_000).unwrap_err();
    assert!(error.contains("instance \"a\" would lack") && error.contains("of worker 0"), "{error}");
    // What lacked something before keeps nobody from other changes.
    let lower = Admission { cpu: PromisedPart::clamped(500_000), ..model.admission.clone() };
    let mut narrow = model;
    narrow.admission = lower.clone();
    assert_eq!(
        check_settings(&narrow, &narrow.router.clone(), &lower).map_err(|error| error.to_string()),
        Ok(())
    );
}

#[test]
fn version_with_greater_costs_is_refused_where_they_do_not_fit() {
    let second = at_workers(500_000).replace("\"a\"", "\"b\"");
    let entries = at_workers(500_000) + &second.replace("500000", "1000");
    let mut model = planned("", &entries).unwrap();
    // The manifest's cost counts, and that of the version that runs is next to nothing.
    model
        .plugins
        .replace_plugin(Arc::new(Kind(Runtime::BuiltIn, false, Some([1.0, 0.0, 0.0, 1.0]))))
        .unwrap();
    model.placements.services.iter_mut().for_each(|placed| placed.service.packet = None);
    let later = |part: f64| {
        let cycles = crate::workers::tsc::frequency() as f64 * part / 5e5;
        Kind(Runtime::BuiltIn, false, Some([cycles, 0.0, 0.0, 1.0]))
    };
    let before = model.placements.services.clone();
    // One processor is left of both workers. Each service would fit beside the other one at its earlier cost.
    for part in [1.5, 0.9999] {
        let error = place_version(&mut model, &later(part), None).unwrap_err().to_string();
        assert!(error.starts_with("plugin null: version 1.0.0 declares other costs"), "{error}");
        assert_eq!(model.placements.services, before);
    }
    let (earlier, has_moved) = place_version(&mut model, &later(0.5), None).unwrap();
    assert_eq!((earlier, has_moved), (before, false));
    let used = model.placements.service("a").unwrap().used.worker;
    assert!(used.abs_diff(500_000) < 10, "{used}");
}

#[test]
fn version_that_can_be_offloaded_no_longer_brings_its_services_to_the_workers() {
    let mut model = planned("", &at_workers(1000)).unwrap();
    let placed = &mut model.placements.services[0];
    (placed.service, placed.level) = (service(1000), ServiceLevel::Offload);
    let (_, has_moved) = place_version(&mut model, &SANDBOXED, None).unwrap();
    let placed = model.placements.service("a").unwrap();
    assert_eq!((has_moved, placed.level, placed.service), (true, ServiceLevel::Worker, service(1000)));
}

#[test]
fn service_that_a_tried_move_takes_out_of_its_process_counts_at_the_worker() {
    let mut model = planned("", &at_workers(1_000)).unwrap();
    model
        .plugins
        .replace_plugin(Arc::new(Kind(Runtime::Process, false, Some([100.0, 0.0, 0.0, 1.0]))))
        .unwrap();
    let machine = Machine::of(&model, planned_cache(&model)).unwrap();
    let placed = model.placements.service("a").unwrap();
    assert_eq!(placed.level, ServiceLevel::Worker);
    assert!(impact(&machine, &model, placed).is_some());
}
