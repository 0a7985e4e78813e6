//! When packets that were read have left, although others go on coming behind them.
//!
//! What a worker has read is sent, dropped, or waits in the queue of a port or in the ring of its device, first in, first out. So a mark is
//! set behind what waits now: once as many have left, all that was read until then is done with, whatever came since.

use std::time::Duration;

use millrace_units::{Instant, PortId};

/// A device that takes nothing for so long is stuck.
const STUCK: Duration = Duration::from_millis(100);

/// What waits to leave by a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outlet {
    /// Packets that have left so far, or fewer.
    pub left: u64,
    /// Packets in the queue and the ring.
    pub waiting: u64,
}

/// Such a mark: one at a time.
#[derive(Debug, Default)]
pub(super) struct Mark {
    since: Option<Instant>,
    /// For each port by which packets come, those that are done with once the mark is passed.
    done: Vec<(PortId, u64)>,
    /// For each port at which some wait, how many have left then.
    outlets: Vec<(PortId, u64)>,
}

impl Mark {
    /// Forgets what was marked.
    pub fn clear(&mut self) {
        self.since = None;
        self.done.clear();
        self.outlets.clear();
    }

    /// Marks what waits at a port now.
    pub fn behind(&mut self, port: PortId, outlet: Outlet, now: Instant) {
        self.since = Some(now);
        self.outlets.push((port, outlet.left + outlet.waiting));
    }

    /// Says how many packets of those that came by a port are done with then.
    pub fn will_be_done(&mut self, port: PortId, done: u64) {
        self.done.push((port, done));
    }

    /// Whether all has left that was marked. `outlet` says what waits at a port now; nothing where what waits isn't sent.
    pub fn is_passed(&mut self, mut outlet: impl FnMut(PortId) -> Option<Outlet>) -> bool {
        self.outlets.retain(|(port, wanted)| {
            outlet(*port).is_some_and(|outlet| outlet.waiting > 0 && outlet.left < *wanted)
        });
        self.outlets.is_empty()
    }

    /// What is done with when it is passed.
    pub fn done(&self) -> impl Iterator<Item = (PortId, u64)> {
        self.done.iter().copied()
    }

    /// Whether something waits.
    pub fn is_set(&self) -> bool {
        self.since.is_some()
    }

    /// Whether nothing is heard of what was marked.
    pub fn is_stuck(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now >= since + STUCK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_mark_is_passed_when_what_waited_has_left_whatever_waits_now() {
        let (one, other) = (PortId(1), PortId(2));
        let mut mark = Mark::default();
        mark.behind(one, Outlet { left: 100, waiting: 30 }, at(0));
        mark.behind(other, Outlet { left: 7, waiting: 1 }, at(0));
        mark.will_be_done(PortId(0), 55);
        let passed = |mark: &mut Mark, left: [u64; 2]| {
            mark.is_passed(|port| Some(Outlet { left: left[usize::from(port == other)], waiting: 500 }))
        };
        assert!(!passed(&mut mark, [129, 7]) && !passed(&mut mark, [130, 7]), "one still waits");
        assert!(passed(&mut mark, [130, 8]));
        assert_eq!(mark.done().collect::<Vec<_>>(), [(PortId(0), 55)]);
        mark.clear();
        assert!(mark.is_passed(|_| None) && mark.done().next().is_none());
    }

    #[test]
    fn nothing_that_waits_and_a_port_that_is_down_are_waited_for() {
        let mut mark = Mark::default();
        mark.behind(PortId(1), Outlet { left: 100, waiting: 3 }, at(0));
        assert!(!mark.is_stuck(at(99)) && mark.is_stuck(at(100)));
        // Two were dropped, so fewer leave than were marked.
        assert!(!mark.is_passed(|_| Some(Outlet { left: 100, waiting: 1 })));
        assert!(mark.is_passed(|_| Some(Outlet { left: 101, waiting: 0 })));
        mark.behind(PortId(1), Outlet { left: 100, waiting: 3 }, at(0));
        assert!(mark.is_passed(|_| None));
    }
}
