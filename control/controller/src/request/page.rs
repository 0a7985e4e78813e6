//! Long lists, split into pages.

use std::borrow::Cow;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use crate::ControlError;

/// Maximum number of entries of a page.
const MOST: usize = 10_000;

/// Requested page of a list; without limit and cursor, the whole list.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PageQuery {
    /// Maximum number of entries in the page, 1 to 10,000. Entries have a fixed order.
    #[schemars(range(min = 1, max = 10_000))]
    pub limit: Option<usize>,
    /// Cursor that the previous page returned; this page starts after it.
    pub cursor: Option<String>,
}

/// Page of a list.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// Entries of the page.
    pub rows: Vec<T>,
    /// Cursor of the next page; `None` for the last page.
    pub next: Option<String>,
}

/// The schema of a page is a list of entries. It has no cursor, because the cursor of the next page is in an
/// HTTP header.
impl<T: JsonSchema> JsonSchema for Page<T> {
    fn inline_schema() -> bool {
        Vec::<T>::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        Vec::<T>::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        Vec::<T>::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<T>::json_schema(generator)
    }
}

impl PageQuery {
    /// Whether the request asks for a page, instead of the whole list.
    pub fn is_asked(&self) -> bool {
        self.limit.is_some() || self.cursor.is_some()
    }

    /// Returns the maximum number of entries of the page.
    pub fn most(&self) -> Result<usize, ControlError> {
        ControlError::in_range("limit", self.limit.unwrap_or(MOST), 1..=MOST)
    }

    /// Returns the key after which the page starts, parsed from the cursor; `None` for the first page.
    ///
    /// # Errors
    /// Returns an error for a cursor that is no such key.
    pub(crate) fn after<K: FromStr>(&self) -> Result<Option<K>, ControlError> {
        let wrong = |cursor: &str| {
            ControlError::invalid(format!(
                "cursor {cursor:?} is invalid: use the cursor of the previous page, or none"
            ))
        };
        self.cursor.as_deref().map(|cursor| cursor.parse().map_err(|_| wrong(cursor))).transpose()
    }

    /// Returns the requested page of a list. `key` returns the unique key of an entry, which determines the
    /// order.
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
    /// Returns the whole list as one page.
    pub fn whole(rows: Vec<T>) -> Self {
        Self { rows, next: None }
    }

    /// Converts each entry of the page.
    pub fn map<U>(self, each: impl FnMut(T) -> U) -> Page<U> {
        Page { rows: self.rows.into_iter().map(each).collect(), next: self.next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_form_the_whole_list_despite_changes_between_them() {
        let mut all: Vec<u32> = (0..25).rev().collect();
        let key = |number: &u32| format!("{number:03}");
        let mut query = PageQuery { limit: Some(10), cursor: None };
        let first = query.of(all.clone(), key).unwrap();
        assert_eq!((first.rows.len(), first.next.as_deref()), (10, Some("009")));
        query.cursor = first.next;
        // The entry named by the cursor was removed. The next page starts where that entry was.
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
