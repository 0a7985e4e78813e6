//! Configured routes that the kernel is to have, and does not: they stay wanted, and it is given them again.
//!
//! The model says which routes are wanted. The kernel takes some away by itself, as with a link that goes down, and others may
//! delete them; while a link is down it refuses them. What is wanted and not there is *missing*: it is told as such, and given
//! again at once, when links and addresses change, and after pauses that grow.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use millrace_host::{HostChange, PROTOCOL_MILLRACE, PrefixRange};
use millrace_telemetry::EventKind;
use serde_json::json;

use crate::ControlError;
use crate::router::Inner;
use crate::start::own_route;
use crate::view::{MissingRouteView, MissingRoutesView};

/// Why a route is missing.
const GONE: &str = "the kernel has it no more";
const MOVED: &str = "its next hops are behind another device now";
/// How long the kernel's word for a route that it was given may take.
const HEARING: Duration = Duration::from_secs(2);
/// A route that stays so long is no longer counted as one that goes again and again.
const CALM: Duration = Duration::from_secs(60);
/// The longest pause between two attempts, in seconds.
const LONGEST: u64 = 60;
/// Routes that are given to the kernel, or compared, at once: others get a turn in between.
const TOGETHER: usize = 2048;
/// Missing routes that are named in the status.
const NAMED: usize = 10;

/// The routes that are watched: those that are missing, and those that the kernel was given and has not had for long.
#[derive(Debug, Default)]
pub(crate) struct WantedRoutes {
    watched: BTreeMap<IpNet, Watched>,
    /// Behind which prefix the comparison goes on.
    compared: Option<IpNet>,
}

#[derive(Debug)]
struct Watched {
    /// Why the kernel doesn't have it; nothing where it was given it.
    why: Option<String>,
    /// Attempts in a row, one that the route did not stay after included.
    tries: u32,
    /// When it was given last.
    given: Instant,
    /// When it is given again, where it is missing.
    next: Instant,
}

impl WantedRoutes {
    /// The kernel was given a route.
    pub fn given(&mut self, prefix: IpNet, now: Instant) {
        let fresh = Watched { why: None, tries: 0, given: now, next: now };
        let watched = self.watched.entry(prefix).or_insert(fresh);
        watched.tries = watched.tries.saturating_add(u32::from(watched.why.take().is_some()));
        watched.given = now;
    }

    /// The kernel has a route that it was given.
    fn heard(&mut self, prefix: &IpNet, now: Instant) {
        let is_over = |watched: &Watched| watched.tries == 0 || now - watched.given > CALM;
        if self.watched.get(prefix).is_some_and(|watched| watched.why.is_none() && is_over(watched)) {
            self.watched.remove(prefix);
        }
    }

    /// The kernel doesn't have a route that it was given. Returns whether that is news.
    fn lost(&mut self, prefix: IpNet, why: &str, now: Instant) -> bool {
        let fresh = Watched { why: Some(why.to_owned()), tries: 0, given: now, next: now };
        let Some(watched) = self.watched.get_mut(&prefix) else {
            self.watched.insert(prefix, fresh);
            return true;
        };
        // What it was just given comes back by and by.
        if watched.why.is_some() || now - watched.given < HEARING {
            return false;
        }
        watched.why = Some(why.to_owned());
        watched.next = now + pause(watched.tries);
        true
    }

    /// The kernel refuses a route, which stays wanted. Returns whether that is news.
    pub fn refused(&mut self, prefix: IpNet, why: String, now: Instant) -> bool {
        let fresh = Watched { why: None, tries: 0, given: now, next: now };
        let watched = self.watched.entry(prefix).or_insert(fresh);
        watched.tries = watched.tries.saturating_add(1);
        watched.next = now + pause(watched.tries);
        watched.why.replace(why.clone()).is_none_or(|before| before != why)
    }

    /// A route is wanted no more, or not of the kernel.
    pub fn forget(&mut self, prefix: &IpNet) {
        self.watched.remove(prefix);
    }

    /// Something has changed that missing routes may have waited for.
    pub fn hurry(&mut self, now: Instant) {
        self.watched
            .values_mut()
            .filter(|watched| watched.why.is_some())
            .for_each(|watched| watched.next = now);
    }

    /// Missing routes whose time has come.
    fn due(&self, now: Instant) -> Vec<IpNet> {
        let is_due = |watched: &Watched| watched.why.is_some() && watched.next <= now;
        let due = self.watched.iter().filter(|(_, watched)| is_due(watched));
        due.map(|(prefix, _)| *prefix).take(TOGETHER).collect()
    }

    /// Why the kernel doesn't have a route that is wanted; `None` where it was given it, or it isn't wanted.
    pub fn why(&self, prefix: &IpNet) -> Option<&str> {
        self.watched.get(prefix)?.why.as_deref()
    }

    /// The missing routes of a range, and why the kernel doesn't have them.
    pub fn missing(&self, range: PrefixRange) -> impl Iterator<Item = (IpNet, &str)> {
        range.of(&self.watched).filter_map(|(prefix, watched)| Some((prefix, watched.why.as_deref()?)))
    }

    /// The missing routes for who looks at the whole router; `None` where there are none.
    pub fn view(&self) -> Option<MissingRoutesView> {
        let all = || self.missing(PrefixRange::default());
        let first = |(to, why): (IpNet, &str)| MissingRouteView { to: to.to_string(), why: why.to_owned() };
        let count = all().count();
        (count > 0).then(|| MissingRoutesView { count, first: all().take(NAMED).map(first).collect() })
    }
}

/// How long to wait after so many attempts in a row.
fn pause(tries: u32) -> Duration {
    match tries {
        0 => Duration::ZERO,
        tries => Duration::from_secs((1 << (tries - 1).min(10)).min(LONGEST)),
    }
}

/// Prefixes as an event names them: the first, and how many there are.
fn several(prefixes: &[IpNet]) -> String {
    match prefixes {
        [] => String::new(),
        [one] => one.to_string(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}

impl Inner {
    /// Compares routes of ours with what the kernel has to the same prefixes, and gives it those again that are due; all that are
    /// missing, where links or addresses have changed.
    pub fn follow_wanted(&mut self, prefixes: &[IpNet], about_ports: bool) {
        let now = Instant::now();
        self.compare(prefixes, now, false);
        if about_ports {
            self.wanted.hurry(now);
        }
        self.give_missing(now);
    }

    /// The same about once a second, of a bounded number of routes: all get their turn.
    pub fn compare_wanted(&mut self) {
        let after = self.wanted.compared.take();
        let prefixes: Vec<IpNet> = PrefixRange { after, within: None }
            .of(&self.model.routes)
            .map(|(prefix, _)| prefix)
            .take(TOGETHER)
            .collect();
        self.wanted.compared = prefixes.last().copied().filter(|_| prefixes.len() == TOGETHER);
        let now = Instant::now();
        self.compare(&prefixes, now, true);
        self.give_missing(now);
    }

    /// Prefixes of routes of ours among what has changed in the kernel.
    pub fn wanted_among(&self, changes: &[HostChange]) -> Vec<IpNet> {
        let prefix = |change: &HostChange| match change {
            HostChange::Route { prefix, .. } if self.model.routes.contains_key(prefix) => Some(*prefix),
            _ => None,
        };
        changes.iter().filter_map(prefix).collect()
    }

    /// Finds those of these routes that the kernel no longer has; with `whole`, also those that lead elsewhere than they should.
    fn compare(&mut self, prefixes: &[IpNet], now: Instant, whole: bool) {
        let Some(mirror) = &self.mirror else { return };
        let state = mirror.state();
        let (mut lost, mut moved) = (Vec::new(), Vec::new());
        for prefix in prefixes.iter().filter(|prefix| self.model.is_for_kernel(prefix)) {
            if !state.has_route_of(*prefix, PROTOCOL_MILLRACE) {
                lost.extend(self.wanted.lost(*prefix, GONE, now).then_some(*prefix));
            } else if whole && self.leads_elsewhere(prefix) {
                moved.extend(self.wanted.lost(*prefix, MOVED, now).then_some(*prefix));
            } else {
                self.wanted.heard(prefix, now);
            }
        }
        drop(state);
        for prefix in &lost {
            let route = self.installed.remove(prefix);
            if let (Some(route), Some(actions)) = (route, &mut self.actions) {
                actions.forget_route(*prefix, route.metric);
            }
        }
        self.note_missing(&lost, GONE);
        self.note_missing(&moved, MOVED);
    }

    /// Whether the kernel was given a route by devices that are no longer those of its next hops.
    fn leads_elsewhere(&self, prefix: &IpNet) -> bool {
        let (Some(given), Some(route)) = (self.installed.get(prefix), self.model.routes.get(prefix)) else {
            return false;
        };
        own_route(route, self).is_ok_and(|now| now != *given)
    }

    /// Gives the kernel missing routes whose time has come, a bounded number of them.
    fn give_missing(&mut self, now: Instant) {
        let mut back = Vec::new();
        for prefix in self.wanted.due(now) {
            let Some(route) = self.model.routes.get(&prefix).cloned() else {
                self.wanted.forget(&prefix);
                continue;
            };
            match self.install(&route) {
                Ok(()) => back.push(prefix),
                Err(error) => {
                    let why = error.to_string();
                    if self.wanted.refused(prefix, why.clone(), now) {
                        tracing::warn!(%prefix, "a configured route is missing: {why}");
                    }
                }
            }
        }
        let Some(first) = back.first() else { return };
        let text = format!("the kernel was given the route to {} again", several(&back));
        tracing::info!("{text}");
        let details = json!({"to": first, "routes": back.len()});
        self.events.note(EventKind::RouteBack, &first.to_string(), text, details);
    }

    /// Notes that routes are wanted which the kernel does not have.
    fn note_missing(&self, prefixes: &[IpNet], why: &str) {
        let Some(first) = prefixes.first() else { return };
        let text = format!("the route to {} is missing: {why}", several(prefixes));
        tracing::warn!("{text}");
        let details = json!({"to": first, "routes": prefixes.len(), "why": why});
        self.events.note(EventKind::RouteMissing, &first.to_string(), text, details);
    }

    /// Keeps a route as wanted that the kernel refuses for now.
    pub fn want(&mut self, prefix: IpNet, error: &ControlError) {
        let why = error.to_string();
        if self.wanted.refused(prefix, why.clone(), Instant::now()) {
            self.note_missing(&[prefix], &why);
        }
    }

    /// Refuses a second route of ours to a prefix.
    pub fn there_is_one(&self, prefix: IpNet) -> ControlError {
        match self.wanted.why(&prefix) {
            Some(why) => ControlError::Conflict(format!(
                "there is a route of ours to {prefix}, which the kernel is given again by and by ({why}): remove it first"
            )),
            None => ControlError::there_is_one(prefix),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix() -> IpNet {
        "10.9.0.0/16".parse().unwrap()
    }

    #[test]
    fn a_lost_route_is_given_again_at_once_and_after_pauses_that_grow_while_it_is_refused() {
        let (mut wanted, mut now) = (WantedRoutes::default(), Instant::now());
        wanted.given(prefix(), now);
        wanted.heard(&prefix(), now);
        assert!(wanted.lost(prefix(), "gone", now) && !wanted.lost(prefix(), "gone", now));
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let begin = now;
            while wanted.due(now).is_empty() {
                now += Duration::from_secs(1);
            }
            pauses.push((now - begin).as_secs());
            assert_eq!(wanted.refused(prefix(), "down".into(), now), pauses.len() == 1);
        }
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!((wanted.why(&prefix()), wanted.view().unwrap().count), (Some("down"), 1));
        // What it may have waited for has happened.
        wanted.hurry(now);
        assert_eq!(wanted.due(now), [prefix()]);
        wanted.given(prefix(), now);
        assert!(wanted.why(&prefix()).is_none() && wanted.view().is_none());
    }

    #[test]
    fn a_route_that_does_not_stay_is_given_again_less_and_less_often() {
        let (mut wanted, mut now) = (WantedRoutes::default(), Instant::now());
        let mut given = 0;
        let end = now + Duration::from_secs(600);
        while now < end {
            // Somebody deletes it as soon as it is there.
            wanted.heard(&prefix(), now);
            wanted.lost(prefix(), "gone", now);
            if !wanted.due(now).is_empty() {
                wanted.given(prefix(), now);
                given += 1;
            }
            now += Duration::from_millis(100);
        }
        assert!((5..25).contains(&given), "{given}");
        // One that stays is like any other.
        wanted.given(prefix(), now);
        wanted.heard(&prefix(), now + CALM + Duration::from_secs(1));
        assert!(wanted.watched.is_empty());
    }

    #[test]
    fn what_was_just_given_is_not_lost_before_the_kernel_had_time_to_say_so() {
        let (mut wanted, now) = (WantedRoutes::default(), Instant::now());
        wanted.given(prefix(), now);
        assert!(!wanted.lost(prefix(), "gone", now + Duration::from_millis(5)));
        assert!(wanted.lost(prefix(), "gone", now + HEARING));
    }
}
