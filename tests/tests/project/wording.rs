//! Messages to users: a noun agrees in number with the figure before it.

use std::path::Path;

use super::{files, read};

/// Plural nouns that follow a number in messages. "bytes" is left out, because packets and files have
/// several.
#[rustfmt::skip]
const PLURALS: [&str; 34] = [
    "alternatives", "bindings", "changes", "commands", "crashes", "devices", "entries", "errors", "events", "files",
    "filters", "findings", "flows", "frames", "gates", "hops", "instances", "lines", "links", "messages", "neighbours",
    "nodes", "packets", "pairs", "placements", "plugins", "ports", "queues", "revisions", "routes", "samples",
    "tokens", "values", "workers",
];

/// Text with braces that don't stand for a number.
const NO_NUMBERS: [&str; 1] = ["{other} changes no"];

/// Returns the source of a file up to its inline test module. A declaration of a test module in another file
/// doesn't end the source.
fn without_tests(text: &str) -> &str {
    let is_module = |at: usize| {
        text[at..].lines().nth(1).is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
    };
    let mut tests = text.match_indices("#[cfg(test)]").filter(|(at, _)| is_module(*at));
    tests.next().map_or(text, |(at, _)| &text[..at])
}

/// Returns the parts of a line where a number in braces stands before a plural noun.
fn joined(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (end, _) in line.match_indices("} ") {
        let Some(begin) = line[..end].rfind('{') else { continue };
        let name = line[begin + 1..end].split(':').next().unwrap_or_default();
        let is_constant = !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        let word: &str = line[end + 2..].split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
        if !is_constant && PLURALS.contains(&word) {
            found.push(&line[begin..end + 2 + word.len()]);
        }
    }
    found
}

#[test]
fn no_format_string_joins_a_number_with_a_plural() {
    let is_source = |path: &Path| {
        let text = path.to_string_lossy();
        let is_room = text.starts_with("cli/src") || text.starts_with("control/");
        is_room && text.contains("/src/") && !text.contains("tests") && text.ends_with(".rs")
    };
    let mut wrong = Vec::new();
    let sources: Vec<_> = files().into_iter().filter(|path| is_source(path)).collect();
    assert!(sources.len() > 100, "only {} sources were found", sources.len());
    for path in sources {
        let text = read(&path);
        for (number, line) in without_tests(&text).lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            if is_comment || !line.contains('{') || NO_NUMBERS.iter().any(|known| line.contains(known)) {
                continue;
            }
            for part in joined(line) {
                wrong.push(format!("{}:{}: {part}", path.display(), number + 1));
            }
        }
    }
    let what = "say millrace_units::count(number, \"noun\"), which knows the singular";
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

#[test]
fn only_a_test_module_ends_the_source() {
    let text = "#[cfg(test)]\nmod tests;\nfn one() {}\n#[cfg(test)]\nmod more {\n}\n";
    assert_eq!(without_tests(text), "#[cfg(test)]\nmod tests;\nfn one() {}\n");
    assert_eq!(without_tests("fn one() {}\n"), "fn one() {}\n");
}

#[test]
fn a_joined_plural_is_found_and_a_constant_is_not() {
    assert_eq!(joined("\"{} routes added\""), ["{} routes"]);
    assert_eq!(joined("\"{made} of {of} changes\""), ["{of} changes"]);
    assert_eq!(joined("\"{count:>3} packets\""), ["{count:>3} packets"]);
    assert_eq!(joined("\"there are {MOST} tokens\""), [""; 0]);
    assert_eq!(joined("\"{name} routes_x\" {x} word"), ["{name} routes"]);
}
