//! Configured routes that the kernel lacks: they stay configured, and the router gives them to the kernel
//! again.
//!
//! The model holds the routes for the kernel. The kernel removes some by itself, as when a link goes down,
//! and other programs may delete them. While a link is down the kernel refuses them. A route that the kernel
//! should have and lacks is *missing*: the router reports it, and installs it again at once, after changes of
//! links and addresses, and after growing pauses.

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

/// Reason why a route is missing.
const GONE: &str = "the kernel has it no more";
const MOVED: &str = "its next hops are behind another device now";
/// Longest time until the kernel reports a route that it was given.
const HEARING: Duration = Duration::from_secs(2);
/// Time after which a route that stays no longer counts as one that disappears repeatedly.
const CALM: Duration = Duration::from_secs(60);
/// Longest pause between two attempts, in seconds.
const LONGEST: u64 = 60;
/// Most routes that are installed or compared in one step; other work runs in between.
const TOGETHER: usize = 2048;
/// Number of missing routes that the status names.
const NAMED: usize = 10;

/// Watched routes: the missing routes, and routes that the kernel was given recently.
#[derive(Debug, Default)]
pub(crate) struct WantedRoutes {
    watched: BTreeMap<IpNet, Watched>,
    /// Prefix behind which the comparison continues.
    compared: Option<IpNet>,
}

#[derive(Debug)]
struct Watched {
    /// Reason why the kernel lacks the route; `None` once it was given the route.
    why: Option<String>,
    /// Number of attempts in a row, including attempts after which the route did not stay.
    tries: u32,
    /// Time of the last attempt.
    given: Instant,
    /// Time of the next attempt for a missing route.
    next: Instant,
}

impl WantedRoutes {
    /// Notes that the kernel was given a route.
    pub fn given(&mut self, prefix: IpNet, now: Instant) {
        let fresh = Watched { why: None, tries: 0, given: now, next: now };
        let watched = self.watched.entry(prefix).or_insert(fresh);
        watched.tries = watched.tries.saturating_add(u32::from(watched.why.take().is_some()));
        watched.given = now;
    }

    /// Notes that the kernel has a route that it was given.
    fn heard(&mut self, prefix: &IpNet, now: Instant) {
        let is_over = |watched: &Watched| watched.tries == 0 || now - watched.given > CALM;
        if self.watched.get(prefix).is_some_and(|watched| watched.why.is_none() && is_over(watched)) {
            self.watched.remove(prefix);
        }
    }

    /// Notes that the kernel lacks a route that it was given. Returns whether the route is newly missing.
    fn lost(&mut self, prefix: IpNet, why: &str, now: Instant) -> bool {
        let fresh = Watched { why: Some(why.to_owned()), tries: 0, given: now, next: now };
        let Some(watched) = self.watched.get_mut(&prefix) else {
            self.watched.insert(prefix, fresh);
            return true;
        };
        // The kernel reports a route only some time after it was given it.
        if watched.why.is_some() || now - watched.given < HEARING {
            return false;
        }
        watched.why = Some(why.to_owned());
        watched.next = now + pause(watched.tries);
        true
    }

    /// Notes that the kernel refuses a route, which stays configured. Returns whether the reason is new.
    pub fn refused(&mut self, prefix: IpNet, why: String, now: Instant) -> bool {
        let fresh = Watched { why: None, tries: 0, given: now, next: now };
        let watched = self.watched.entry(prefix).or_insert(fresh);
        watched.tries = watched.tries.saturating_add(1);
        watched.next = now + pause(watched.tries);
        watched.why.replace(why.clone()).is_none_or(|before| before != why)
    }

    /// Stops watching a route that is removed, or is no longer for the kernel.
    pub fn forget(&mut self, prefix: &IpNet) {
        self.watched.remove(prefix);
    }

    /// Makes all missing routes due at once, after a change that may let the kernel accept them.
    pub fn hurry(&mut self, now: Instant) {
        self.watched
            .values_mut()
            .filter(|watched| watched.why.is_some())
            .for_each(|watched| watched.next = now);
    }

    /// Returns the missing routes that are due.
    fn due(&self, now: Instant) -> Vec<IpNet> {
        let is_due = |watched: &Watched| watched.why.is_some() && watched.next <= now;
        let due = self.watched.iter().filter(|(_, watched)| is_due(watched));
        due.map(|(prefix, _)| *prefix).take(TOGETHER).collect()
    }

    /// Returns the reason why the kernel lacks a configured route; `None` for a route that it was given, or
    /// that is not configured.
    pub fn why(&self, prefix: &IpNet) -> Option<&str> {
        self.watched.get(prefix)?.why.as_deref()
    }

    /// Returns the missing routes of a range, with the reasons.
    pub fn missing(&self, range: PrefixRange) -> impl Iterator<Item = (IpNet, &str)> {
        range.of(&self.watched).filter_map(|(prefix, watched)| Some((prefix, watched.why.as_deref()?)))
    }

    /// Returns the view of the missing routes; `None` where there are none.
    pub fn view(&self) -> Option<MissingRoutesView> {
        let all = || self.missing(PrefixRange::default());
        let first = |(to, why): (IpNet, &str)| MissingRouteView { to: to.to_string(), why: why.to_owned() };
        let count = all().count();
        (count > 0).then(|| MissingRoutesView { count, first: all().take(NAMED).map(first).collect() })
    }
}

/// Returns the pause after this number of attempts in a row.
fn pause(tries: u32) -> Duration {
    match tries {
        0 => Duration::ZERO,
        tries => Duration::from_secs((1 << (tries - 1).min(10)).min(LONGEST)),
    }
}

/// Returns the text of several prefixes for an event: the first prefix, and the number of further ones.
fn several(prefixes: &[IpNet]) -> String {
    match prefixes {
        [] => String::new(),
        [one] => one.to_string(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}

impl Inner {
    /// Compares configured routes with the kernel's routes to the same prefixes, and installs the missing
    /// routes that are due. After a change of links or addresses all missing routes are due.
    pub fn follow_wanted(&mut self, prefixes: &[IpNet], about_ports: bool) {
        let now = Instant::now();
        self.compare(prefixes, now, false);
        if about_ports {
            self.routes.wanted.hurry(now);
        }
        self.give_missing(now);
    }

    /// Compares a bounded number of configured routes with the kernel's, about once a second; successive
    /// calls reach all routes.
    pub fn compare_wanted(&mut self) {
        let after = self.routes.wanted.compared.take();
        let prefixes: Vec<IpNet> = PrefixRange { after, within: None }
            .of(&self.model.routes)
            .map(|(prefix, _)| prefix)
            .take(TOGETHER)
            .collect();
        self.routes.wanted.compared = prefixes.last().copied().filter(|_| prefixes.len() == TOGETHER);
        let now = Instant::now();
        self.compare(&prefixes, now, true);
        self.give_missing(now);
    }

    /// Returns the prefixes of configured routes among the kernel's changes.
    pub fn wanted_among(&self, changes: &[HostChange]) -> Vec<IpNet> {
        let prefix = |change: &HostChange| match change {
            HostChange::Route { prefix, .. } if self.model.routes.contains_key(prefix) => Some(*prefix),
            _ => None,
        };
        changes.iter().filter_map(prefix).collect()
    }

    /// Notes the routes that the kernel no longer has, and with `whole` also the routes that lead elsewhere
    /// than configured.
    fn compare(&mut self, prefixes: &[IpNet], now: Instant, whole: bool) {
        let Some(mirror) = &self.kernel.mirror else { return };
        let state = mirror.state();
        let (mut lost, mut moved) = (Vec::new(), Vec::new());
        for prefix in prefixes.iter().filter(|prefix| self.model.is_for_kernel(prefix)) {
            if !state.has_route_of(*prefix, PROTOCOL_MILLRACE) {
                lost.extend(self.routes.wanted.lost(*prefix, GONE, now).then_some(*prefix));
            } else if whole && self.leads_elsewhere(prefix) {
                moved.extend(self.routes.wanted.lost(*prefix, MOVED, now).then_some(*prefix));
            } else {
                self.routes.wanted.heard(prefix, now);
            }
        }
        drop(state);
        for prefix in &lost {
            let route = self.routes.installed.remove(prefix);
            if let (Some(route), Some(actions)) = (route, &mut self.kernel.actions) {
                actions.forget_route(*prefix, route.metric);
            }
        }
        self.note_missing(&lost, GONE);
        self.note_missing(&moved, MOVED);
    }

    /// Whether the kernel has a route through devices that are no longer those of the configured next hops.
    fn leads_elsewhere(&self, prefix: &IpNet) -> bool {
        let (Some(given), Some(route)) = (self.routes.installed.get(prefix), self.model.routes.get(prefix))
        else {
            return false;
        };
        own_route(route, self).is_ok_and(|now| now != *given)
    }

    /// Installs missing routes that are due in the kernel, a bounded number of them.
    fn give_missing(&mut self, now: Instant) {
        let mut back = Vec::new();
        for prefix in self.routes.wanted.due(now) {
            let Some(route) = self.model.routes.get(&prefix).cloned() else {
                self.routes.wanted.forget(&prefix);
                continue;
            };
            match self.install(&route) {
                Ok(()) => back.push(prefix),
                Err(error) => {
                    let why = error.to_string();
                    if self.routes.wanted.refused(prefix, why.clone(), now) {
                        tracing::warn!(%prefix, "a configured route is missing: {why}");
                    }
                }
            }
        }
        let Some(first) = back.first() else { return };
        let text = format!("the kernel was given the route to {} again", several(&back));
        tracing::info!("{text}");
        let details = json!({"to": first, "routes": back.len()});
        self.observation.events.note(EventKind::RouteBack, &first.to_string(), text, details);
    }

    /// Reports configured routes that the kernel lacks.
    fn note_missing(&self, prefixes: &[IpNet], why: &str) {
        let Some(first) = prefixes.first() else { return };
        let text = format!("the route to {} is missing: {why}", several(prefixes));
        tracing::warn!("{text}");
        let details = json!({"to": first, "routes": prefixes.len(), "why": why});
        self.observation.events.note(EventKind::RouteMissing, &first.to_string(), text, details);
    }

    /// Keeps a route configured that the kernel refuses at present.
    pub fn want(&mut self, prefix: IpNet, error: &ControlError) {
        let why = error.to_string();
        if self.routes.wanted.refused(prefix, why.clone(), Instant::now()) {
            self.note_missing(&[prefix], &why);
        }
    }

    /// Returns the error of a second configured route to a prefix.
    pub fn there_is_one(&self, prefix: IpNet) -> ControlError {
        match self.routes.wanted.why(&prefix) {
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
        // A change has made all missing routes due.
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
            // Another program deletes the route as soon as it is installed.
            wanted.heard(&prefix(), now);
            wanted.lost(prefix(), "gone", now);
            if !wanted.due(now).is_empty() {
                wanted.given(prefix(), now);
                given += 1;
            }
            now += Duration::from_millis(100);
        }
        assert!((5..25).contains(&given), "{given}");
        // A route that stays is no longer watched.
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
