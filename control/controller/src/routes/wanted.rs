//! Missing routes: configured routes that the kernel should have but lacks.
//!
//! The model holds all configured routes. The kernel removes some of them by itself, for example when a link
//! goes down, and other programs may delete some. While a link is down, the kernel refuses routes through it.
//! A missing route stays configured. The router reports a missing route, and installs it again: at once,
//! after each change of links or addresses, and after growing pauses.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use millrace_host::PrefixRange;

use crate::view::{MissingRouteView, MissingRoutesView};

/// Maximum time that the kernel takes to report an installed route.
const HEARING: Duration = Duration::from_secs(2);
/// Time that a route must stay in the kernel after a repeated installation. After this time, the router
/// forgets that the route was lost before.
const CALM: Duration = Duration::from_secs(60);
/// Longest pause between two attempts to install a route, in seconds.
const LONGEST: u64 = 60;
/// Maximum number of routes installed or compared in one step; other work runs between steps.
pub(super) const TOGETHER: usize = 2048;
/// Maximum number of missing routes listed in the status.
const NAMED: usize = 10;

/// Watched routes: missing routes, and recently installed routes.
#[derive(Debug, Default)]
pub(crate) struct WantedRoutes {
    watched: BTreeMap<IpNet, Watched>,
    /// Prefix at which the previous comparison ended; `None` to start from the first route.
    pub(super) compared: Option<IpNet>,
}

#[derive(Debug)]
struct Watched {
    /// Reason why the kernel lacks the route; `None` after it was installed.
    why: Option<String>,
    /// Number of successive attempts to install the route that did not last: the kernel refused it, or lost
    /// it again.
    tries: u32,
    /// Time of the last successful installation.
    given: Instant,
    /// Time at which a missing route is to be installed again.
    next: Instant,
}

impl WantedRoutes {
    /// Notes that a route was installed in the kernel.
    pub fn given(&mut self, prefix: IpNet, now: Instant) {
        let fresh = Watched { why: None, tries: 0, given: now, next: now };
        let watched = self.watched.entry(prefix).or_insert(fresh);
        watched.tries = watched.tries.saturating_add(u32::from(watched.why.take().is_some()));
        watched.given = now;
    }

    /// Notes that the kernel has a route. Stops watching a route that has stayed long enough.
    pub(super) fn heard(&mut self, prefix: &IpNet, now: Instant) {
        let is_over = |watched: &Watched| watched.tries == 0 || now - watched.given > CALM;
        if self.watched.get(prefix).is_some_and(|watched| watched.why.is_none() && is_over(watched)) {
            self.watched.remove(prefix);
        }
    }

    /// Notes that the kernel lacks an installed route. Returns whether it is newly missing.
    pub(super) fn lost(&mut self, prefix: IpNet, why: &str, now: Instant) -> bool {
        let fresh = Watched { why: Some(why.to_owned()), tries: 0, given: now, next: now };
        let Some(watched) = self.watched.get_mut(&prefix) else {
            self.watched.insert(prefix, fresh);
            return true;
        };
        // The kernel reports an installed route only after some time, so a recently installed route doesn't
        // count as lost.
        if watched.why.is_some() || now - watched.given < HEARING {
            return false;
        }
        watched.why = Some(why.to_owned());
        watched.next = now + pause(watched.tries);
        true
    }

    /// Notes that the kernel refuses a route. Returns whether the reason is new.
    pub fn refused(&mut self, prefix: IpNet, why: String, now: Instant) -> bool {
        let fresh = Watched { why: None, tries: 0, given: now, next: now };
        let watched = self.watched.entry(prefix).or_insert(fresh);
        watched.tries = watched.tries.saturating_add(1);
        watched.next = now + pause(watched.tries);
        watched.why.replace(why.clone()).is_none_or(|before| before != why)
    }

    /// Stops watching a route that is removed, or no longer belongs to the kernel.
    pub fn forget(&mut self, prefix: &IpNet) {
        self.watched.remove(prefix);
    }

    /// Makes all missing routes due now, because the kernel may accept them after a change of links or
    /// addresses.
    pub fn hurry(&mut self, now: Instant) {
        let missing = self.watched.values_mut().filter(|watched| watched.why.is_some());
        missing.for_each(|watched| watched.next = now);
    }

    /// Returns missing routes whose next attempt is due, up to a maximum number.
    pub(super) fn due(&self, now: Instant) -> Vec<IpNet> {
        let is_due = |watched: &Watched| watched.why.is_some() && watched.next <= now;
        let due = self.watched.iter().filter(|(_, watched)| is_due(watched));
        due.map(|(prefix, _)| *prefix).take(TOGETHER).collect()
    }

    /// Returns the reason why the kernel lacks a configured route; `None` if the route is not missing.
    pub fn why(&self, prefix: &IpNet) -> Option<&str> {
        self.watched.get(prefix)?.why.as_deref()
    }

    /// Returns the missing routes in a range, each with the reason.
    pub fn missing(&self, range: PrefixRange) -> impl Iterator<Item = (IpNet, &str)> {
        range.of(&self.watched).filter_map(|(prefix, watched)| Some((prefix, watched.why.as_deref()?)))
    }

    /// Returns the view of the missing routes; `None` if there are none.
    pub fn view(&self) -> Option<MissingRoutesView> {
        let all = || self.missing(PrefixRange::default());
        let first = |(to, why): (IpNet, &str)| MissingRouteView { to: to.to_string(), why: why.to_owned() };
        let count = all().count();
        (count > 0).then(|| MissingRoutesView { count, first: all().take(NAMED).map(first).collect() })
    }
}

/// Returns the pause after this number of failed attempts.
fn pause(tries: u32) -> Duration {
    match tries {
        0 => Duration::ZERO,
        tries => Duration::from_secs((1 << (tries - 1).min(10)).min(LONGEST)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix() -> IpNet {
        "10.9.0.0/16".parse().unwrap()
    }

    #[test]
    fn lost_route_is_added_again_at_once_then_with_growing_pauses() {
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
        // A change of links makes all missing routes due.
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
            // In this loop, another program deletes the route as soon as it is installed.
            wanted.heard(&prefix(), now);
            wanted.lost(prefix(), "gone", now);
            if !wanted.due(now).is_empty() {
                wanted.given(prefix(), now);
                given += 1;
            }
            now += Duration::from_millis(100);
        }
        assert!((5..25).contains(&given), "{given}");
        // A route that stays for long enough is no longer watched.
        wanted.given(prefix(), now);
        wanted.heard(&prefix(), now + CALM + Duration::from_secs(1));
        assert!(wanted.watched.is_empty());
    }

    #[test]
    fn route_just_added_is_not_lost_before_the_kernel_reports_it() {
        let (mut wanted, now) = (WantedRoutes::default(), Instant::now());
        wanted.given(prefix(), now);
        assert!(!wanted.lost(prefix(), "gone", now + Duration::from_millis(5)));
        assert!(wanted.lost(prefix(), "gone", now + HEARING));
    }
}
