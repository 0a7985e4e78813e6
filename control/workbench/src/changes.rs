//! Comparison of the bytes of a packet before and after a call.

use serde::{Deserialize, Serialize};

use crate::inspect::hex;

/// Change of a packet by a plugin: adjacent bytes, before and after.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Offset of the first changed byte, from the start of the link header.
    pub offset: usize,
    /// Previous bytes, as hexadecimal digits.
    pub before: String,
    /// New bytes, as hexadecimal digits.
    pub after: String,
}

impl Change {
    fn new(offset: usize, before: &[u8], after: &[u8]) -> Self {
        Self { offset, before: hex(before), after: hex(after) }
    }
}

/// Returns the changes from `before` to `after`. If the lengths differ, returns one change. It covers all
/// bytes from the first to the last difference.
pub fn changes(before: &[u8], after: &[u8]) -> Vec<Change> {
    if before.len() == after.len() { runs(before, after) } else { vec![resized(before, after)] }
}

fn runs(before: &[u8], after: &[u8]) -> Vec<Change> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < before.len() {
        let run = before[at..].iter().zip(&after[at..]).take_while(|(a, b)| a != b).count();
        if run > 0 {
            found.push(Change::new(at, &before[at..at + run], &after[at..at + run]));
        }
        at += run + 1;
    }
    found
}

fn resized(before: &[u8], after: &[u8]) -> Change {
    let front = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let (before, after) = (&before[front..], &after[front..]);
    let back = before.iter().rev().zip(after.iter().rev()).take_while(|(a, b)| a == b).count();
    Change::new(front, &before[..before.len() - back], &after[..after.len() - back])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_are_one_change() {
        let change =
            |offset, before: &str, after: &str| Change { offset, before: before.into(), after: after.into() };
        assert_eq!(changes(b"abcdef", b"aXYdeZ"), [change(1, "6263", "5859"), change(5, "66", "5a")]);
        assert_eq!(changes(b"abcd", b"abcd"), []);
        assert_eq!(changes(b"abcd", b"XXabcd"), [change(0, "", "5858")]);
        assert_eq!(changes(b"abcd", b"ad"), [change(1, "6263", "")]);
    }

    fn bytes(digits: &str) -> Vec<u8> {
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    }

    proptest! {
        #[test]
        fn changes_lead_from_one_to_the_other(
            before in proptest::collection::vec(0_u8..3, 0..40),
            after in proptest::collection::vec(0_u8..3, 0..40),
        ) {
            let mut made = before.clone();
            for change in changes(&before, &after) {
                let old = bytes(&change.before);
                let replaced: Vec<u8> =
                    made.splice(change.offset..change.offset + old.len(), bytes(&change.after)).collect();
                prop_assert_eq!(replaced, old);
            }
            prop_assert_eq!(made, after);
        }
    }
}
