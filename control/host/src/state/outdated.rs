//! Routes that notifications outdate while a list is under way.
//!
//! The kernel may build a part of a list, then remove a route in that part and queue the notification, and only
//! then queue the part. So a listed route that a notification has removed or replaced is left out.

use std::collections::HashMap;

use ipnet::IpNet;

use super::message::RouteEntry;
use super::route_table::RouteTable;

/// Routes that notifications removed or replaced since the current list began; `None` between two lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outdated(Option<HashMap<IpNet, Vec<RouteEntry>>>);

impl Outdated {
    /// Begins to note routes.
    pub fn begin(&mut self) {
        self.0 = Some(HashMap::new());
    }

    /// Ends the notes, also of a list that stays incomplete.
    pub fn end(&mut self) {
        self.0 = None;
    }

    /// Returns the routes of a prefix before a notification; `None` between two lists.
    pub(super) fn before(&self, prefix: IpNet, table: &RouteTable) -> Option<Vec<RouteEntry>> {
        self.0.as_ref()?;
        Some(table.get(prefix).iter().map(|route| route.entry.clone()).collect())
    }

    /// Notes the routes of `before` that a notification has removed or replaced, and forgets those that exist.
    pub(super) fn note(&mut self, prefix: IpNet, before: Option<Vec<RouteEntry>>, table: &RouteTable) {
        let Some((notes, before)) = self.0.as_mut().zip(before) else { return };
        let routes = notes.entry(prefix).or_default();
        routes.extend(before);
        let now = table.get(prefix);
        routes.retain(|entry| now.iter().all(|route| route.entry != *entry));
        if routes.is_empty() {
            notes.remove(&prefix);
        }
    }

    /// Whether a notification has removed or replaced a route since the list began.
    pub fn contains(&self, entry: &RouteEntry) -> bool {
        let routes = self.0.as_ref().and_then(|notes| notes.get(&entry.prefix));
        routes.is_some_and(|routes| routes.contains(entry))
    }
}
