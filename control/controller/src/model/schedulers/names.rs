//! Numbers of scheduler nodes. A node name has the same number at every port. So filters and plugins can name
//! a queue before the egress port is known.

use std::collections::{HashMap, HashSet};

use millrace_units::QueueId;

use crate::ControlError;

/// Maximum number of node names. Their numbers are 1 to 65,535.
const MOST: usize = u16::MAX as usize;

/// Numbers of node names, and names of numbers. A name keeps its number even when no port has a node of this
/// name any more, because a plugin may still use the number. When no unused number is left, a new name takes
/// over a number: the one whose name has been at no port for the longest time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    names: Vec<String>,
    numbers: HashMap<String, QueueId>,
    /// For each number, the value of `changes` at the time when a port last had a node with the number's
    /// name.
    used: Vec<u64>,
    changes: u64,
    /// Numbers that may be reassigned. The last one has been unused for the longest time. `None` until all
    /// numbers are assigned and another one is needed.
    free: Option<Vec<QueueId>>,
}

impl Names {
    /// Returns the number of a name that a port has or had.
    pub fn known(&self, name: &str) -> Option<QueueId> {
        self.numbers.get(name).copied()
    }

    /// Returns the name of a number; `?` for an unknown number.
    pub fn name(&self, number: QueueId) -> &str {
        number.index().checked_sub(1).and_then(|index| self.names.get(index)).map_or("?", String::as_str)
    }

    /// Whether all numbers are assigned, so that a new name takes over the number of another name.
    pub fn are_all_given(&self) -> bool {
        self.names.len() == MOST
    }

    /// Returns the number of a name, and assigns a number to a new name. If no unused number is left, calls
    /// `kept` with the numbers of all names. `kept` returns the numbers that must not be reassigned.
    pub fn number(
        &mut self,
        name: &str,
        kept: impl FnOnce(&HashMap<String, QueueId>) -> HashSet<QueueId>,
    ) -> Result<QueueId, ControlError> {
        if let Some(number) = self.known(name) {
            return Ok(number);
        }
        let number = match self.are_all_given() {
            false => {
                self.names.push(name.to_owned());
                self.used.push(self.changes);
                QueueId(self.names.len() as u16)
            }
            true => self.given_anew(name, kept)?,
        };
        self.numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    fn given_anew(
        &mut self,
        name: &str,
        kept: impl FnOnce(&HashMap<String, QueueId>) -> HashSet<QueueId>,
    ) -> Result<QueueId, ControlError> {
        let Self { names, numbers, used, free, .. } = self;
        let free = free.get_or_insert_with(|| {
            let kept = kept(numbers);
            let all = (1..=names.len()).map(|number| QueueId(number as u16));
            let mut free: Vec<QueueId> = all.filter(|number| !kept.contains(number)).collect();
            free.sort_by_key(|number| std::cmp::Reverse((used[number.index() - 1], number.0)));
            free
        });
        let Some(number) = free.pop() else {
            return Err(ControlError::invalid("all 65,535 node names are in use: remove a node first"));
        };
        let before = std::mem::replace(&mut names[number.index() - 1], name.to_owned());
        numbers.remove(&before);
        Ok(number)
    }

    /// Records that a port's scheduler has nodes with these names, or had them until this change.
    pub fn note<'n>(&mut self, names: impl Iterator<Item = &'n str>) {
        self.changes += 1;
        self.free = None;
        for name in names {
            if let Some(number) = self.known(name) {
                self.used[number.index() - 1] = self.changes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_number_is_reused_when_no_fresh_number_is_left() {
        let mut names = Names::default();
        let none = |_: &HashMap<String, QueueId>| HashSet::new();
        for number in 0..MOST {
            assert!(!names.are_all_given());
            assert_eq!(names.number(&format!("n{number}"), none), Ok(QueueId(number as u16 + 1)));
        }
        // The name n0 (number 1) is at a port, and a filter names n1 (number 2). The names from n5 on were at
        // a port, and n3 was at a port after them. The names n2 and n4 were never at a port.
        names.note(
            (5..MOST).map(|number| format!("n{number}")).collect::<Vec<_>>().iter().map(String::as_str),
        );
        names.note(["n3"].into_iter());
        let kept = |_: &HashMap<String, QueueId>| HashSet::from([QueueId(1), QueueId(2)]);
        assert_eq!(names.number("n7", kept), Ok(QueueId(8)), "it has one");
        assert_eq!(names.number("new", kept), Ok(QueueId(3)));
        assert_eq!(names.number("newer", kept), Ok(QueueId(5)));
        assert_eq!((names.name(QueueId(3)), names.known("n2")), ("new", None));
        assert_eq!(names.known("new"), Some(QueueId(3)));
        // Next come the numbers whose names were at a port, ordered by the time of removal, the earliest
        // first.
        assert_eq!(names.number("newest", kept), Ok(QueueId(6)));
        let all = |_: &HashMap<String, QueueId>| (1..=MOST).map(|number| QueueId(number as u16)).collect();
        names.note(["new"].into_iter());
        let refused = names.number("one more", all).unwrap_err().to_string();
        assert!(refused.contains("65,535 node names"), "{refused}");
    }
}
