//! Long lists, a page at a time.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::ControlError;

/// Entries of a page at most.
const MOST: usize = 10_000;

/// Which part of a list is asked for; all of it, if nothing is said.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PageQuery {
    /// How many entries at most, 1 to 10,000. The entries are in an order that doesn't change then.
    #[schemars(range(min = 1, max = 10_000))]
    pub limit: Option<usize>,
    /// What the page before said where this one begins.
    pub cursor: Option<String>,
}

/// A part of a list.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// Its entries.
    pub rows: Vec<T>,
    /// Where the next one begins; `None` where this is the last.
    pub next: Option<String>,
}

impl PageQuery {
    /// Whether a part is asked for, not all.
    pub fn is_asked(&self) -> bool {
        self.limit.is_some() || self.cursor.is_some()
    }

    /// How many entries are wanted at most.
    ///
    /// # Errors
    /// None or too many.
    pub fn most(&self) -> Result<usize, ControlError> {
        match self.limit {
            Some(limit) if !(1..=MOST).contains(&limit) => {
                Err(ControlError::Invalid(format!("limit {limit}: 1 to {MOST} are right")))
            }
            limit => Ok(limit.unwrap_or(MOST)),
        }
    }

    /// The page of a list whose entries have keys of their own, in the order of these.
    ///
    /// # Errors
    /// A limit that can't be.
    pub fn of<T>(&self, mut all: Vec<T>, key: impl Fn(&T) -> String) -> Result<Page<T>, ControlError> {
        let most = self.most()?;
        if !self.is_asked() {
            return Ok(Page::whole(all));
        }
        all.sort_by_cached_key(&key);
        if let Some(cursor) = &self.cursor {
            all.retain(|entry| key(entry) > *cursor);
        }
        let more = all.len() > most;
        all.truncate(most);
        let next = all.last().filter(|_| more).map(key);
        Ok(Page { rows: all, next })
    }
}

impl<T> Page<T> {
    /// All there is.
    pub fn whole(rows: Vec<T>) -> Self {
        Self { rows, next: None }
    }

    /// The same of something else for each entry.
    pub fn map<U>(self, each: impl FnMut(T) -> U) -> Page<U> {
        Page { rows: self.rows.into_iter().map(each).collect(), next: self.next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_together_are_the_list_whatever_comes_and_goes_between_them() {
        let mut all: Vec<u32> = (0..25).rev().collect();
        let key = |number: &u32| format!("{number:03}");
        let mut query = PageQuery { limit: Some(10), cursor: None };
        let first = query.of(all.clone(), key).unwrap();
        assert_eq!((first.rows.len(), first.next.as_deref()), (10, Some("009")));
        query.cursor = first.next;
        // The entry that it stands at goes, and one before it comes.
        all.retain(|number| *number != 9);
        let second = query.of(all.clone(), key).unwrap();
        assert_eq!((second.rows[0], second.rows.len()), (10, 10));
        query.cursor = second.next;
        let last = query.of(all.clone(), key).unwrap();
        assert_eq!((last.rows, last.next), ((20..25).collect::<Vec<_>>(), None));
        assert_eq!(PageQuery::default().of(all.clone(), key).unwrap().rows, all, "as it was");
        for limit in [0, MOST + 1] {
            let query = PageQuery { limit: Some(limit), cursor: None };
            assert!(query.of(all.clone(), key).unwrap_err().to_string().contains("1 to 10000"));
        }
    }
}
