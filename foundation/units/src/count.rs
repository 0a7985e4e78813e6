//! Numbers with their nouns, for texts that people read: `1 route`, `2 routes`.

use std::fmt::Display;

/// Returns a number with its noun, in the plural unless the number is 1: `1 route`, `0 routes`, `2 entries`.
///
/// Only the last word of the noun changes: `ambiguous pair` becomes `ambiguous pairs`.
pub fn count(number: impl Display, noun: &str) -> String {
    let number = number.to_string();
    let noun = if number == "1" { noun.to_owned() } else { plural(noun) };
    format!("{number} {noun}")
}

/// Returns `one` for the number 1, else `several`: `1 filter names` and `2 filters name`.
pub fn by_number<'a>(number: impl Display, one: &'a str, several: &'a str) -> &'a str {
    if number.to_string() == "1" { one } else { several }
}

/// Returns the plural of a noun: `route` becomes `routes`, `entry` `entries`, `address` `addresses`.
///
/// In a phrase with `of`, the noun before `of` changes: `key of this request` becomes `keys of this request`.
pub fn plural(noun: &str) -> String {
    if let Some((head, rest)) = noun.split_once(" of ") {
        return format!("{} of {rest}", plural(head));
    }
    let stem = noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u']));
    match stem {
        Some(stem) => format!("{stem}ies"),
        None if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => format!("{noun}es"),
        None => format!("{noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noun_is_in_the_plural_unless_the_number_is_one() {
        for (number, noun, text) in [
            (0, "route", "0 routes"),
            (1, "route", "1 route"),
            (2, "route", "2 routes"),
            (21, "route", "21 routes"),
            (2, "entry", "2 entries"),
            (2, "day", "2 days"),
            (2, "address", "2 addresses"),
            (2, "match", "2 matches"),
            (1, "ambiguous pair", "1 ambiguous pair"),
            (3, "ambiguous pair", "3 ambiguous pairs"),
            (3, "line of the file", "3 lines of the file"),
        ] {
            assert_eq!(count(number, noun), text);
        }
        assert_eq!(count("1", "packet"), "1 packet", "a number that is a text already");
        assert_eq!(by_number(1, "names", "name"), "names");
        assert_eq!(by_number(0, "names", "name"), "name");
    }
}
