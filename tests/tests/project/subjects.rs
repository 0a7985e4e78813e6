//! Subjects of commits: `room: imperative summary`, at most 72 characters.

use std::process::Command;

use millrace_testkit::repository;

/// Number of latest commits to check.
const COMMITS: &str = "50";
/// Maximum number of characters of a subject.
const LONGEST: usize = 72;

/// Returns the rule that a subject breaks, if it breaks one.
fn broken_rule(subject: &str) -> Option<&'static str> {
    let Some((room, summary)) = subject.split_once(": ") else { return Some("has no `room: `") };
    let is_room = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_/, ".contains(&byte);
    if room.is_empty() || !room.bytes().all(is_room) {
        Some("has a room with other characters than a-z, 0-9, `-`, `_` and `/`")
    } else if summary.trim().is_empty() {
        Some("has no summary")
    } else if subject.ends_with('.') {
        Some("ends with a full stop")
    } else if subject.chars().count() > LONGEST {
        Some("has more than 72 characters")
    } else {
        None
    }
}

#[test]
fn latest_commits_have_a_room_and_a_short_summary() {
    let mut git = Command::new("git");
    git.arg("-C").arg(repository()).args(["log", "--no-merges", "--format=%s", "-n", COMMITS]);
    let Some(log) = git.output().ok().filter(|log| log.status.success()) else {
        println!("there is no history here: no subject is checked");
        return;
    };
    let log = String::from_utf8(log.stdout).expect("subjects in UTF-8");
    let broken = log.lines().filter_map(|subject| Some(format!("{subject:?} {}", broken_rule(subject)?)));
    let broken: Vec<String> = broken.collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn subjects_without_a_room_or_too_long_are_found() {
    assert_eq!(broken_rule("pipeline: free paths that nothing uses"), None);
    assert_eq!(broken_rule("sdk, docs: name the thing"), None);
    assert_eq!(broken_rule("Fix the build"), Some("has no `room: `"));
    assert!(broken_rule("Pipeline: fix it").is_some());
    assert_eq!(broken_rule("pipeline:  "), Some("has no summary"));
    assert_eq!(broken_rule("pipeline: fix it."), Some("ends with a full stop"));
    assert_eq!(broken_rule(&format!("docs: {}", "é".repeat(66))), None);
    assert_eq!(broken_rule(&format!("docs: {}", "é".repeat(67))), Some("has more than 72 characters"));
}
