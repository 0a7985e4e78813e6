//! The lists of conformance cases and faults: each has a test, or a line in `docs/decisions.md` that says "not built".

use std::collections::{BTreeMap, BTreeSet};

use super::{files, read};

/// A case: its id as documents write it, the part of a test's name that stands for it, and tests under other names.
#[derive(Debug, PartialEq)]
struct Case {
    id: String,
    mark: String,
    tests: Vec<String>,
}

/// The cases of a list: `id | words | test, test`.
fn cases(text: &str) -> Vec<Case> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let case = |line: &str| {
        let mut cells = line.split(" | ");
        let id = cells.next().unwrap_or_default().trim();
        let tests = cells.nth(1).into_iter().flat_map(|tests| tests.split(", "));
        let is_number = id.bytes().all(|byte| byte.is_ascii_digit());
        let id = if is_number { format!("fault {id}") } else { id.to_owned() };
        Case {
            mark: id.to_lowercase().replace(['-', ' '], "_"),
            id,
            tests: tests.map(|test| test.trim().to_owned()).collect(),
        }
    };
    lines.map(case).collect()
}

/// Names of all tests of the project.
fn tests() -> BTreeSet<String> {
    let sources = files().into_iter().filter(|file| file.extension().is_some_and(|ending| ending == "rs"));
    sources.flat_map(|file| tests_of(&read(file))).collect()
}

/// Names of the functions behind `#[test]`.
fn tests_of(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
        if let Some(rest) = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn ")) {
            if is_test {
                found.extend(rest.split('(').next().map(str::to_owned));
            }
            is_test = false;
        }
    }
    found
}

/// Whether a test's name has the mark of a case as whole words.
fn bears(test: &str, mark: &str) -> bool {
    format!("_{test}_").contains(&format!("_{mark}_"))
}

/// What is wrong with a case, if anything is.
fn objection(case: &Case, tests: &BTreeSet<String>, decisions: &str) -> Option<String> {
    if let Some(absent) = case.tests.iter().find(|test| !tests.contains(*test)) {
        return Some(format!("{}: no test has the name {absent}", case.id));
    }
    let is_tested = !case.tests.is_empty() || tests.iter().any(|test| bears(test, &case.mark));
    let is_decided = decisions.lines().map(str::to_lowercase).any(|line| {
        let words: Vec<&str> = line.split(['|', ',', '.', ':']).map(str::trim).collect();
        words.contains(&&*case.id.to_lowercase()) && line.contains("not built")
    });
    (!is_tested && !is_decided)
        .then(|| format!("{}: neither a test nor a line with \"not built\" in docs/decisions.md", case.id))
}

#[test]
fn every_case_has_a_test_or_is_declared_not_built() {
    let (tests, decisions) = (tests(), read("docs/decisions.md"));
    for (list, count) in [("conformance.txt", 133), ("faults.txt", 40)] {
        let cases = cases(&read(format!("tests/tests/project/{list}")));
        assert_eq!(cases.len(), count, "cases in {list}");
        let ids: BTreeMap<&str, &Case> = cases.iter().map(|case| (&*case.id, case)).collect();
        assert_eq!(ids.len(), count, "{list} names a case twice");
        let wrong: Vec<String> =
            cases.iter().filter_map(|case| objection(case, &tests, &decisions)).collect();
        assert!(wrong.is_empty(), "{list}:\n{}", wrong.join("\n"));
    }
}

#[test]
fn a_case_without_a_test_or_a_decision_is_found() {
    let text = "# words\nV4-01 | RFC 791\nV4-02 | RFC 791 | other_test\n7 | a fault\n";
    let cases = cases(text);
    assert_eq!(cases[2], Case { id: "fault 7".into(), mark: "fault_7".into(), tests: Vec::new() });
    let tests = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let all = tests(&["v4_01_a_short_packet_is_dropped", "other_test", "fault_7_and_fault_71"]);
    for case in &cases {
        assert_eq!(objection(case, &all, ""), None);
    }
    let few = tests(&["v4_011_something", "fault_71"]);
    let wrong: Vec<String> = cases.iter().filter_map(|case| objection(case, &few, "")).collect();
    assert_eq!(wrong.len(), 3, "{wrong:?}");
    let decided = "| V4-01, V4-03 | Not built: too short. | why |\n| fault 70 | not built |\n";
    assert_eq!(objection(&cases[0], &few, decided), None);
    assert!(objection(&cases[2], &few, decided).is_some());
}

#[test]
fn only_functions_behind_the_attribute_are_tests() {
    let text = "#[test]\nfn one() {\n}\nfn helper() {}\n    #[test]\n    #[ignore]\n    fn two(a: u8) {\n";
    assert_eq!(tests_of(text), ["one", "two"]);
}
