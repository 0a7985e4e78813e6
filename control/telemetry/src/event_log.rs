//! Log of the latest events, with a number for each. A frequent event makes few entries.
//!
//! The first event of a kind and subject is logged at once, and starts a window of one second. When the
//! window ends, further events of the same kind and subject become one entry with a count, and start the next
//! window. The log distinguishes at most 16 subjects of a kind at a time; events of further subjects are
//! logged with the subject `others`. So a kind makes few entries in a second. An entry never changes once it
//! is readable.

use std::collections::{HashMap, VecDeque};

use schemars::JsonSchema;
use serde::Serialize;

use crate::date::utc_milliseconds;
use crate::event::{Event, EventKind, Occurrence};

/// Maximum number of entries in the log.
pub const MOST_EVENTS: usize = 4096;
/// Maximum number of subjects of a kind that have an open window at a time.
const MOST_SUBJECTS: usize = 16;
/// Subject of events whose own subject exceeds [`MOST_SUBJECTS`].
const OTHERS: &str = "others";
/// Length of the window in which events of one kind and subject are combined, in milliseconds.
const WINDOW: u64 = 1000;

/// Log of the latest events.
#[derive(Debug, Default)]
pub struct EventLog {
    kept: VecDeque<Event>,
    /// Number of the newest entry.
    newest: u64,
    /// Time of the newest entry, in milliseconds.
    latest: u64,
    /// Open windows, by kind and subject.
    open: HashMap<(EventKind, String), Window>,
    /// Milliseconds by which the wall clock is ahead of the monotonic clock.
    ahead: i64,
}

/// Window of one second in which events of one kind and subject are combined.
#[derive(Debug)]
struct Window {
    /// Start of the window, in milliseconds.
    began: u64,
    /// Further events in the window: the last event, its time in milliseconds, and the number of events.
    more: Option<(Occurrence, u64, u64)>,
}

/// Selection of entries of the event log.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// Number of an entry; only later entries are selected. `None` selects all entries. A number above the
    /// newest comes from an earlier run of the router, and selects all entries, too.
    pub since: Option<u64>,
    /// Kinds of the entries; empty for all kinds.
    pub kinds: Vec<EventKind>,
    /// Maximum number of entries; the newest are selected.
    pub last: Option<usize>,
    /// Maximum number of entries on the page. The page has the oldest selected entries; the rest is on
    /// further pages.
    pub limit: Option<usize>,
}

/// Page of the event log.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EventPage {
    /// Entries, the oldest first.
    pub events: Vec<Event>,
    /// Number of entries of any kind after `since` that the log no longer has.
    pub missed: u64,
    /// Number of the newest entry.
    pub newest: u64,
    /// Value of `since` for the entries that follow this page.
    pub next: u64,
}

impl EventLog {
    /// Sets the wall clock: at the monotonic time `now`, it shows `wall` milliseconds since 1970. The wall
    /// clock may jump while the router runs. Before the first call, both clocks are the same.
    pub fn set_wall_clock(&mut self, now: u64, wall: u64) {
        self.ahead = wall.wrapping_sub(now).cast_signed();
    }

    /// Notes an event at `now`, in milliseconds. Returns whether a new entry was logged.
    pub fn note(&mut self, mut occurrence: Occurrence, now: u64) -> bool {
        let before = self.newest;
        self.flush(now);
        let mut key = (occurrence.kind, occurrence.subject.clone());
        if !self.open.contains_key(&key) && self.subjects(occurrence.kind) >= MOST_SUBJECTS {
            OTHERS.clone_into(&mut occurrence.subject);
            OTHERS.clone_into(&mut key.1);
        }
        match self.open.get_mut(&key) {
            Some(Window { more, .. }) => {
                let earlier = more.take().map_or(0, |(_, _, count)| count);
                *more = Some((occurrence, now, earlier + 1));
            }
            None => {
                self.add_gathered_of(&key.1);
                self.open.insert(key, Window { began: now, more: None });
                self.add(occurrence, now, 1);
            }
        }
        self.newest > before
    }

    /// Logs the combined events of windows that have ended, in the order of their last events. Returns
    /// whether any entry was logged.
    pub fn flush(&mut self, now: u64) -> bool {
        let mut due = Vec::new();
        self.open.retain(|_, window| {
            if now.saturating_sub(window.began) < WINDOW {
                return true;
            }
            window.began = now;
            let more = window.more.take();
            let goes_on = more.is_some();
            due.extend(more);
            goes_on
        });
        due.sort_by_key(|(_, at, _)| *at);
        let is_something = !due.is_empty();
        due.into_iter().for_each(|(occurrence, at, count)| self.add(occurrence, at, count));
        is_something
    }

    /// Logs the combined events of a subject, of all kinds. The subject's next event then comes after them.
    fn add_gathered_of(&mut self, subject: &str) {
        let of_subject = self.open.iter_mut().filter(|((_, own), _)| own == subject);
        let mut due: Vec<_> = of_subject.filter_map(|(_, window)| window.more.take()).collect();
        due.sort_by_key(|(_, at, _)| *at);
        due.into_iter().for_each(|(occurrence, at, count)| self.add(occurrence, at, count));
    }

    fn subjects(&self, kind: EventKind) -> usize {
        self.open.keys().filter(|(own, _)| *own == kind).count()
    }

    fn add(&mut self, occurrence: Occurrence, at: u64, count: u64) {
        let Occurrence { kind, subject, text, details } = occurrence;
        // Combined events are logged at the end of their window. Take at least the time of the previous
        // entry, so that times never decrease.
        let at = at.max(self.latest);
        self.latest = at;
        self.newest += 1;
        if self.kept.len() == MOST_EVENTS {
            self.kept.pop_front();
        }
        let (number, time, severity) =
            (self.newest, utc_milliseconds(at.saturating_add_signed(self.ahead)), kind.severity());
        self.kept.push_back(Event { number, time, kind, subject, severity, text, count, details });
    }

    /// Returns the number of the newest entry; 0 for an empty log.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns the selected page of entries.
    pub fn page(&self, query: &EventQuery) -> EventPage {
        let gone = self.newest - self.kept.len() as u64;
        let since = query.since.filter(|since| *since <= self.newest);
        let missed = match since {
            Some(since) => gone.saturating_sub(since),
            None => 0,
        };
        let from = since.unwrap_or(0).saturating_sub(gone) as usize;
        let is_meant = |event: &&Event| query.kinds.is_empty() || query.kinds.contains(&event.kind);
        let meant: Vec<&Event> = self.kept.range(from.min(self.kept.len())..).filter(is_meant).collect();
        let first = query.last.map_or(0, |last| meant.len().saturating_sub(last));
        let all = &meant[first..];
        let shown = &all[..query.limit.map_or(all.len(), |limit| limit.min(all.len()))];
        let next = match shown.last() {
            Some(last) if shown.len() < all.len() => last.number,
            _ => self.newest,
        };
        EventPage { events: shown.iter().copied().cloned().collect(), missed, newest: self.newest, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occurrence(kind: EventKind, subject: &str, text: &str) -> Occurrence {
        Occurrence { kind, subject: subject.into(), text: text.into(), details: serde_json::Map::new() }
    }

    fn fault(subject: &str) -> Occurrence {
        occurrence(EventKind::PluginFault, subject, "it trapped")
    }

    fn all(log: &EventLog) -> Vec<(u64, &str, u64)> {
        log.kept.iter().map(|event| (event.number, &*event.subject, event.count)).collect()
    }

    #[test]
    fn a_million_of_a_kind_and_subject_are_one_in_a_second() {
        let mut log = EventLog::default();
        for number in 0..1_000_000 {
            // The events cover ten seconds.
            log.note(fault("i1"), 5_000 + number / 100);
        }
        assert!(log.flush(20_000));
        assert!(!log.flush(30_000));
        assert!(log.kept.len() <= 12, "{:?}", all(&log));
        assert_eq!(log.kept.iter().map(|event| event.count).sum::<u64>(), 1_000_000);
        assert_eq!(log.kept.front().unwrap().count, 1);
    }

    #[test]
    fn wall_clock_changes_end_no_interval_and_show_in_event_times() {
        let mut log = EventLog::default();
        for (number, wall) in [86_400_000, 0, 172_800_000, 5, 86_400_000].into_iter().enumerate() {
            log.set_wall_clock(number as u64, wall);
            log.note(fault("i1"), number as u64);
        }
        log.set_wall_clock(1000, 86_401_000);
        log.flush(1000);
        assert_eq!(all(&log), [(1, "i1", 1), (2, "i1", 4)]);
        assert_eq!(
            [&log.kept[0].time, &log.kept[1].time].map(|time| &time[..19]),
            ["1970-01-02T00:00:00"; 2]
        );
    }

    #[test]
    fn single_event_is_logged_at_once_during_a_flood_of_others() {
        let mut log = EventLog::default();
        assert!(log.note(fault("i1"), 0));
        assert!(!log.note(fault("i1"), 1));
        assert!(log.note(fault("i2"), 2));
        assert!(log.note(occurrence(EventKind::InstanceQuarantined, "i1", "too often"), 3));
        assert_eq!(all(&log), [(1, "i1", 1), (2, "i2", 1), (3, "i1", 1), (4, "i1", 1)]);
        assert_eq!(log.kept[2].kind, EventKind::PluginFault, "the fault comes before the quarantine");
        assert!(!log.flush(1001));
    }

    #[test]
    fn events_are_ordered_by_number_and_time() {
        let mut log = EventLog::default();
        for (subject, at) in [("i1", 0), ("i1", 200), ("i2", 500), ("i3", 900), ("i2", 950)] {
            log.note(fault(subject), at);
        }
        log.flush(1100);
        log.flush(2000);
        let times: Vec<_> = log.kept.iter().map(|event| event.time.clone()).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert_eq!(log.kept.iter().map(|event| event.count).sum::<u64>(), 5);
    }

    #[test]
    fn last_of_alternating_events_is_logged_last() {
        let mut log = EventLog::default();
        for at in 0..10 {
            let kind = if at % 2 == 0 { EventKind::LinkDown } else { EventKind::LinkUp };
            log.note(occurrence(kind, "lan", ""), at);
        }
        log.flush(1500);
        let kinds: Vec<_> = log.kept.iter().map(|event| (event.kind.name(), event.count)).collect();
        assert_eq!(kinds, [("link-down", 1), ("link-up", 1), ("link-down", 4), ("link-up", 4)]);
    }

    #[test]
    fn many_subjects_of_a_kind_share_one() {
        let mut log = EventLog::default();
        for number in 0..60_000 {
            log.note(occurrence(EventKind::NeighbourFailed, &format!("10.0.0.{number}"), ""), number / 60);
        }
        log.flush(2000);
        assert_eq!(log.kept.len(), MOST_SUBJECTS + 2);
        assert_eq!(all(&log)[MOST_SUBJECTS..], [(17, "others", 1), (18, "others", 60_000 - 17)]);
        assert!(log.note(fault("i1"), 2001), "other kinds have subjects of their own");
    }

    #[test]
    fn pages_continue_after_the_previous_page_and_count_missed_events() {
        let mut log = EventLog::default();
        for number in 0..MOST_EVENTS as u64 + 10 {
            log.note(fault("i"), number * 2000);
        }
        let newest = MOST_EVENTS as u64 + 10;
        let numbers = |page: &EventPage| page.events.iter().map(|event| event.number).collect::<Vec<_>>();
        let ask = |since, last, limit| log.page(&EventQuery { since, last, limit, kinds: Vec::new() });
        let page = ask(Some(4), None, Some(3));
        assert_eq!((numbers(&page), page.missed, page.next, page.newest), (vec![11, 12, 13], 6, 13, newest));
        let page = ask(Some(page.next), None, Some(2));
        assert_eq!((numbers(&page), page.missed, page.next), (vec![14, 15], 0, 15));
        let page = ask(Some(newest - 1), None, None);
        assert_eq!((numbers(&page), page.next), (vec![newest], newest));
        let page = ask(None, Some(2), None);
        assert_eq!((numbers(&page), page.missed, page.next), (vec![newest - 1, newest], 0, newest));
        assert!(ask(Some(newest), None, None).events.is_empty());
        // A number from an earlier run of the router selects all entries.
        assert_eq!(ask(Some(newest + 1), None, None).events.len(), MOST_EVENTS);
        let kinds = vec![EventKind::LinkUp];
        let page = log.page(&EventQuery { kinds, since: Some(newest - 5), ..EventQuery::default() });
        assert_eq!((page.events.len(), page.next), (0, newest));
    }
}
