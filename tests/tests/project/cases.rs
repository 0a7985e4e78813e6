//! Lists of conformance cases and faults: each case has a test, or a line in `docs/decisions.md` that says
//! "not built".

use std::collections::BTreeMap;

use super::{files, read};

/// Case of a list: its id in documents, the mark of the id in test names, and tests without that mark.
#[derive(Debug, PartialEq)]
struct Case {
    id: String,
    mark: String,
    tests: Vec<String>,
    /// Tests that only `make soak` runs.
    soak: Vec<String>,
    /// Whether the tests omit a part of the case, which `docs/decisions.md` names.
    is_partial: bool,
}

/// Returns the cases of a list: `id | words | test, test, soak:test | partly`.
fn cases(text: &str) -> Vec<Case> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let case = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let id = cells[0];
        let listed =
            cells.get(2).into_iter().flat_map(|tests| tests.split(", ")).filter(|test| !test.is_empty());
        let (soak, tests): (Vec<&str>, Vec<&str>) = listed.partition(|test| test.starts_with("soak:"));
        let is_number = id.bytes().all(|byte| byte.is_ascii_digit());
        let id = if is_number { format!("fault {id}") } else { id.to_owned() };
        Case {
            mark: id.to_lowercase().replace(['-', ' '], "_"),
            id,
            tests: tests.into_iter().map(str::to_owned).collect(),
            soak: soak.iter().map(|test| test.trim_start_matches("soak:").to_owned()).collect(),
            is_partial: cells.get(3) == Some(&"partly"),
        }
    };
    lines.map(case).collect()
}

/// Returns the names of all tests of the project, and whether each is ignored by default.
fn tests() -> BTreeMap<String, bool> {
    let sources = files().into_iter().filter(|file| file.extension().is_some_and(|ending| ending == "rs"));
    let mut found = BTreeMap::new();
    for (name, is_ignored) in sources.flat_map(|file| tests_of(&read(file))) {
        *found.entry(name).or_insert(true) &= is_ignored;
    }
    found
}

/// Returns the names of the functions after `#[test]`, and whether each also has `#[ignore]`.
fn tests_of(text: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let (mut is_test, mut is_ignored) = (false, false);
    for line in text.lines().map(str::trim) {
        is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
        is_ignored |= line.starts_with("#[ignore");
        if let Some(rest) = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn ")) {
            if is_test {
                found.extend(rest.split('(').next().map(|name| (name.to_owned(), is_ignored)));
            }
            (is_test, is_ignored) = (false, false);
        }
    }
    found
}

/// Whether a test's name contains the mark of a case as whole words.
fn bears(test: &str, mark: &str) -> bool {
    format!("_{test}_").contains(&format!("_{mark}_"))
}

/// Whether a line of the decisions names a case and also contains `words`.
fn is_decided(case: &Case, decisions: &str, words: &str) -> bool {
    decisions.lines().map(str::to_lowercase).any(|line| {
        let cells: Vec<&str> = line.split(['|', ',', '.', ':']).map(str::trim).collect();
        cells.contains(&&*case.id.to_lowercase()) && line.contains(words)
    })
}

/// Returns what is wrong with a case's tests, as a message; `None` if nothing is.
fn objection(case: &Case, tests: &BTreeMap<String, bool>, decisions: &str) -> Option<String> {
    let id = &case.id;
    for (listed, is_soak) in [(&case.tests, false), (&case.soak, true)] {
        for test in listed {
            match tests.get(test) {
                None => return Some(format!("{id}: no test has the name {test}")),
                Some(true) if !is_soak => {
                    return Some(format!("{id}: {test} is ignored: list it as soak:{test}"));
                }
                Some(false) if is_soak => {
                    return Some(format!("{id}: {test} is not ignored: list it as it is"));
                }
                Some(_) => {}
            }
        }
    }
    let bears = tests.iter().any(|(test, is_ignored)| !is_ignored && bears(test, &case.mark));
    let is_tested = !case.tests.is_empty() || !case.soak.is_empty() || bears;
    if !is_tested && !is_decided(case, decisions, "not built") {
        return Some(format!("{id}: neither a test nor a line with \"not built\" in docs/decisions.md"));
    }
    if case.is_partial != is_decided(case, decisions, "partly tested") {
        return Some(format!(
            "{id}: \"partly\" in the list and \"partly tested\" in docs/decisions.md need each other"
        ));
    }
    None
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

/// Returns tests with these names. An exclamation mark before a name marks an ignored test.
fn named(names: &[&str]) -> BTreeMap<String, bool> {
    names.iter().map(|name| (name.trim_start_matches('!').to_owned(), name.starts_with('!'))).collect()
}

#[test]
fn a_case_without_a_test_or_a_decision_is_found() {
    let text = "# words\nV4-01 | RFC 791\nV4-02 | RFC 791 | other_test\n7 | a fault\n";
    let cases = cases(text);
    let (tests, soak) = (Vec::new(), Vec::new());
    let fault = Case { id: "fault 7".into(), mark: "fault_7".into(), tests, soak, is_partial: false };
    assert_eq!(cases[2], fault);
    let all = named(&["v4_01_a_short_packet_is_dropped", "other_test", "fault_7_and_fault_71"]);
    for case in &cases {
        assert_eq!(objection(case, &all, ""), None);
    }
    let few = named(&["v4_011_something", "fault_71"]);
    let wrong: Vec<String> = cases.iter().filter_map(|case| objection(case, &few, "")).collect();
    assert_eq!(wrong.len(), 3, "{wrong:?}");
    let decided = "| V4-01, V4-03 | Not built: too short. | why |\n| fault 70 | not built |\n";
    assert_eq!(objection(&cases[0], &few, decided), None);
    assert!(objection(&cases[2], &few, decided).is_some());
}

#[test]
fn ignored_test_counts_only_if_listed_as_soak() {
    let tests = named(&["!fault_7_for_an_hour", "!long", "short"]);
    let told = |line: &str| objection(&cases(line)[0], &tests, "").unwrap_or_default();
    assert!(told("7 | words").contains("neither a test"));
    assert!(told("7 | words | long").contains("list it as soak:long"));
    assert!(told("7 | words | soak:short").contains("list it as it is"));
    assert!(told("7 | words | soak:absent").contains("no test has the name absent"));
    for line in
        ["7 | words | soak:fault_7_for_an_hour", "7 | words | soak:long", "7 | words | short, soak:long"]
    {
        assert_eq!(told(line), "", "{line}");
    }
}

#[test]
fn partial_coverage_stands_in_the_list_and_in_the_decisions() {
    let tests = named(&["short"]);
    let decided = "| fault 7 | Partly tested: no second machine. | why |\n";
    let told =
        |line: &str, decisions: &str| objection(&cases(line)[0], &tests, decisions).unwrap_or_default();
    assert_eq!(told("7 | words | short | partly", decided), "");
    assert_eq!(told("7 | words | short", ""), "");
    assert!(told("7 | words | short", decided).contains("need each other"));
    assert!(told("7 | words | short | partly", "").contains("need each other"));
}

#[test]
fn only_functions_behind_the_attribute_are_tests() {
    let text = "#[test]\nfn one() {\n}\nfn helper() {}\n    #[test]\n    #[ignore]\n    fn two(a: u8) {\n";
    assert_eq!(tests_of(text), [("one".to_owned(), false), ("two".to_owned(), true)]);
}
