//! Errors about unknown names: the nearest known name, and the list of known names.

use crate::count::plural;

/// Maximum length of a word that is compared with known names, in characters.
const LONGEST: usize = 64;
/// Maximum number of names that an error lists. The error gives only the number of the others.
const LISTED: usize = 40;

/// Cost of a missing letter, of an extra letter, or of two swapped letters.
const SLIP: usize = 2;
/// Cost of a wrong letter.
const WRONG: usize = 3;

/// Returns the known name that a word was probably meant to be; `None` if no name is near.
///
/// Missing, extra or swapped letters are likelier slips than wrong letters: `prt` is nearer to `port` than to
/// `src`. Among equally near names, a name of the same length wins, then the one with the longer common
/// beginning, then the first. The comparison ignores case, and treats hyphens and underscores alike.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = letters(word);
    if word.is_empty() || word.len() > LONGEST {
        return None;
    }
    let limit = WRONG * (word.len() / 2).max(1);
    let near = known.into_iter().filter_map(|name| {
        let letters = letters(name);
        let far = distance(&word, &letters);
        let common = word.iter().zip(&letters).take_while(|(one, other)| one == other).count();
        let order = (far, word.len().abs_diff(letters.len()), LONGEST - common.min(LONGEST));
        (far <= limit && letters.len() <= LONGEST).then_some((order, name))
    });
    near.min_by_key(|(order, _)| *order).map(|(_, name)| name)
}

/// Returns the letters of a word in the form in which they are compared, at most [`LONGEST`] + 1.
fn letters(word: &str) -> Vec<char> {
    let same = |letter| if letter == '_' { '-' } else { letter };
    word.chars().take(LONGEST + 1).flat_map(char::to_lowercase).map(same).collect()
}

/// Returns the least total cost of slips that turn one word into the other: the weighted optimal string
/// alignment distance.
fn distance(word: &[char], name: &[char]) -> usize {
    let first: Vec<usize> = (0..=name.len()).map(|length| length * SLIP).collect();
    // The two rows of the distance matrix before the current one.
    let (mut older, mut last) = (first.clone(), first);
    let mut before = None;
    for (row, letter) in word.iter().enumerate() {
        let mut current = vec![(row + 1) * SLIP];
        for (column, other) in name.iter().enumerate() {
            let at = |costs: &[usize], column: usize| costs.get(column).copied().unwrap_or(usize::MAX / 2);
            let replaced = at(&last, column) + if letter == other { 0 } else { WRONG };
            let slipped = at(&last, column + 1).min(at(&current, column)) + SLIP;
            let mut least = replaced.min(slipped);
            let swapped =
                column.checked_sub(1).filter(|left| before == Some(other) && name.get(*left) == Some(letter));
            if let Some(left) = swapped {
                least = least.min(at(&older, left) + SLIP);
            }
            current.push(least);
        }
        (older, last) = (last, current);
        before = Some(letter);
    }
    last.last().copied().unwrap_or(usize::MAX)
}

/// Returns the end of an error about an unknown name: `: did you mean "lan"?`, or `; ports here: lan, wan`,
/// or `; no ports here`.
pub fn remedy<'a>(noun: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!(": did you mean {near:?}?"),
        None => format!("; {}", here(noun, known)),
    }
}

/// Lists names: `ports here: lan, wan`, or `no ports here`.
pub fn here<'a>(noun: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let several = plural(noun);
    let (listed, more) = known.split_at(known.len().min(LISTED));
    match (listed, more.len()) {
        ([], _) => format!("no {several} here"),
        (listed, 0) => format!("{several} here: {}", listed.join(", ")),
        (listed, more) => format!("{several} here: {}, and {more} more", listed.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typo_finds_its_word_and_nonsense_finds_none() {
        let names = ["name", "address", "device"];
        for (word, name) in [
            ("addres", "address"),
            ("nmae", "name"),
            ("DEVICE", "device"),
            ("divice", "device"),
            ("device_", "device"),
        ] {
            assert_eq!(nearest(word, names), Some(name), "{word}");
        }
        for word in ["", "zzzzzz", "ö", "x"] {
            assert_eq!(nearest(word, names), None, "{word}");
        }
        assert_eq!(nearest(&"a".repeat(1 << 20), names), None, "long words cost nothing");
        assert_eq!(nearest("a", std::iter::empty()), None);
    }

    #[test]
    fn missing_and_swapped_letters_are_nearer_than_wrong_letters() {
        let words = ["src", "dst", "proto", "sport", "dport", "port", "in", "net"];
        for (word, name) in [
            ("prt", "port"),
            ("rpot", "port"),
            ("sprot", "sport"),
            ("dsr", "dst"),
            ("ds", "dst"),
            ("nte", "net"),
            ("prot", "port"),
            ("prto", "proto"),
            ("protoo", "proto"),
        ] {
            assert_eq!(nearest(word, words), Some(name), "{word}");
        }
    }

    #[test]
    fn a_remedy_names_the_nearest_or_all_names_in_a_sentence() {
        assert_eq!(remedy("port", "lam", ["lan", "wan"]), ": did you mean \"lan\"?");
        assert_eq!(remedy("setting", "xxxx", ["work"]), "; settings here: work");
        assert_eq!(remedy("port", "nowhere", []), "; no ports here");
        assert_eq!(here("entry", ["a", "b"]), "entries here: a, b");
        let many: Vec<String> = (10..60).map(|number| format!("p{number}")).collect();
        let listed = here("port", many.iter().map(String::as_str));
        assert!(listed.ends_with("p49, and 10 more"), "{listed}");
    }
}
