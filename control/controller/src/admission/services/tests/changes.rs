//! Tests of changes beside services that are placed.

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

/// Later version of the plugin `null`, with a cost of a packet in cycles.
struct Later(f64);

impl Plugin for Later {
    fn name(&self) -> &'static str {
        "null"
    }

    fn runtime(&self) -> Runtime {
        Runtime::BuiltIn
    }

    fn version(&self) -> &'static str {
        "9.0.0"
    }

    fn summary(&self) -> &'static str {
        ""
    }

    fn positions(&self) -> &[Position] {
        &Position::ALL
    }

    fn messages(&self) -> &[(&'static str, &'static str)] {
        &[]
    }

    fn declared_cycles(&self, _kind: &str) -> Option<DeclaredCycles> {
        Some(DeclaredCycles { packet: self.0, ..DeclaredCycles::default() })
    }

    fn create(&self, _: &Map<String, Value>) -> Result<Box<dyn Instance>, PluginError> {
        Err(PluginError::unknown_message("null", "any", &[]))
    }
}

#[test]
fn version_with_greater_costs_is_refused_where_they_do_not_fit() {
    let mut model = planned("", &at_workers(500_000)).unwrap();
    // The plugin without a declared cost stands for an earlier version with one.
    model.placements.services[0].service.packet = None;
    let cycle = |part: f64| Later(crate::workers::tsc::frequency() as f64 * part / 5e5);
    let before = model.placements.services.clone();
    let error = place_version(&mut model, &cycle(1.5), None).unwrap_err().to_string();
    assert!(error.starts_with("plugin null: version 9.0.0 declares other costs"), "{error}");
    assert_eq!(model.placements.services, before);
    let (earlier, has_moved) = place_version(&mut model, &cycle(0.5), None).unwrap();
    assert_eq!((earlier, has_moved), (before, false));
    let used = model.placements.service("a").unwrap().used.worker;
    assert!(used.abs_diff(500_000) < 10, "{used}");
}
