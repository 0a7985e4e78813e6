//! When packets that wait to leave have left, although others go on coming behind them.
//!
//! What waits in the queue of a port, or in the ring of its device, leaves first in, first out. So a mark is set behind what waits now: it is
//! passed once as many have left, whatever came since.

use millrace_units::PortId;

/// What waits to leave by a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outlet {
    /// Packets that have left so far, or fewer.
    pub left: u64,
    /// Packets in the queue and the ring.
    pub waiting: u64,
}

/// Such a mark at all ports of a worker: for each at which some wait, how many have left when it is passed.
#[derive(Debug, Default)]
pub(super) struct Mark(Vec<(PortId, u64)>);

impl Mark {
    /// Marks what waits at each port now, and no longer what waited before.
    pub fn set(&mut self, outlets: impl Iterator<Item = (PortId, Outlet)>) {
        let waiting = outlets.filter(|(_, outlet)| outlet.waiting > 0);
        self.0.clear();
        self.0.extend(waiting.map(|(port, outlet)| (port, outlet.left + outlet.waiting)));
    }

    /// Whether all has left that was marked. `outlet` says what waits at a port now; nothing where what waits isn't sent.
    pub fn is_passed(&mut self, mut outlet: impl FnMut(PortId) -> Option<Outlet>) -> bool {
        self.0.retain(|(port, wanted)| {
            outlet(*port).is_some_and(|outlet| outlet.waiting > 0 && outlet.left < *wanted)
        });
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_passed_when_what_waited_has_left_whatever_waits_now() {
        let (one, other) = (PortId(1), PortId(2));
        let mut mark = Mark::default();
        let (first, second) = (Outlet { left: 100, waiting: 30 }, Outlet { left: 7, waiting: 1 });
        mark.set([(one, first), (other, second), (PortId(3), Outlet { left: 9, waiting: 0 })].into_iter());
        let passed = |mark: &mut Mark, left: [u64; 2]| {
            mark.is_passed(|port| Some(Outlet { left: left[usize::from(port == other)], waiting: 500 }))
        };
        assert!(!passed(&mut mark, [129, 7]) && !passed(&mut mark, [130, 7]), "one still waits");
        assert!(passed(&mut mark, [130, 8]));
        mark.set(std::iter::empty());
        assert!(mark.is_passed(|_| None));
    }

    #[test]
    fn nothing_that_waits_and_a_port_that_is_down_are_waited_for() {
        let mut mark = Mark::default();
        let waits = Outlet { left: 100, waiting: 3 };
        mark.set(std::iter::once((PortId(1), waits)));
        // Two were dropped, so fewer leave than were marked.
        assert!(!mark.is_passed(|_| Some(Outlet { left: 100, waiting: 1 })));
        assert!(mark.is_passed(|_| Some(Outlet { left: 101, waiting: 0 })));
        mark.set(std::iter::once((PortId(1), waits)));
        assert!(mark.is_passed(|_| None));
    }
}
