//! Test that `docs/events.md` has exactly one row per kind of event, with its severity.

use millrace_telemetry::EventKind;

#[test]
fn every_event_kind_is_documented_with_its_severity() {
    let page = include_str!("../../../docs/events.md");
    let rows: Vec<&str> =
        page.lines().filter(|line| line.starts_with("| `") && line.matches('|').count() == 5).collect();
    for kind in EventKind::ALL {
        let begin = format!("| `{kind}` | {} | ", kind.severity().name());
        assert!(
            rows.iter().any(|row| row.starts_with(&begin)),
            "docs/events.md has no row that begins with: {begin}"
        );
    }
    assert_eq!(rows.len(), EventKind::ALL.len(), "{rows:#?}");
}
