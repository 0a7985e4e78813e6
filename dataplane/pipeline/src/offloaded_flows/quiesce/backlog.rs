//! Backlogs of ports, and a mark that is passed when the packets of a backlog have left, even if others are
//! queued behind them.
//!
//! The queue of a port and the transmit ring of its device are first in, first out. So the worker sets a mark
//! after the current backlog of n packets. The mark is passed when n packets have left, however many were
//! queued since.

use millrace_units::PortId;

/// Backlog of a port: packets that wait to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Backlog {
    /// Lower bound of the number of packets that have left so far.
    pub sent: u64,
    /// Number of packets in the queue and the transmit ring.
    pub waiting: u64,
}

/// Mark after the backlogs of a worker's ports. Holds for each port with a backlog the value of `sent` at
/// which the mark is passed.
#[derive(Debug, Default)]
pub(super) struct BacklogMark(Vec<(PortId, u64)>);

impl BacklogMark {
    /// Moves the mark after the current backlog of each port.
    pub fn set(&mut self, backlogs: impl Iterator<Item = (PortId, Backlog)>) {
        let waiting = backlogs.filter(|(_, backlog)| backlog.waiting > 0);
        self.0.clear();
        self.0.extend(waiting.map(|(port, backlog)| (port, backlog.sent + backlog.waiting)));
    }

    /// Returns whether all marked packets have left. `backlog` returns the current backlog of a port; `None`
    /// if the port does not send.
    pub fn is_passed(&mut self, mut backlog: impl FnMut(PortId) -> Option<Backlog>) -> bool {
        self.0.retain(|(port, wanted)| {
            backlog(*port).is_some_and(|backlog| backlog.waiting > 0 && backlog.sent < *wanted)
        });
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_passed_when_the_marked_backlog_has_left_regardless_of_the_current_backlog() {
        let (one, other) = (PortId(1), PortId(2));
        let mut mark = BacklogMark::default();
        let (first, second) = (Backlog { sent: 100, waiting: 30 }, Backlog { sent: 7, waiting: 1 });
        mark.set([(one, first), (other, second), (PortId(3), Backlog { sent: 9, waiting: 0 })].into_iter());
        let passed = |mark: &mut BacklogMark, sent: [u64; 2]| {
            mark.is_passed(|port| Some(Backlog { sent: sent[usize::from(port == other)], waiting: 500 }))
        };
        assert!(!passed(&mut mark, [129, 7]) && !passed(&mut mark, [130, 7]), "one still waits");
        assert!(passed(&mut mark, [130, 8]));
        mark.set(std::iter::empty());
        assert!(mark.is_passed(|_| None));
    }

    #[test]
    fn empty_backlog_and_port_that_is_down_pass_the_mark() {
        let mut mark = BacklogMark::default();
        let waits = Backlog { sent: 100, waiting: 3 };
        mark.set(std::iter::once((PortId(1), waits)));
        // Two of the marked packets were dropped, so `sent` does not reach the mark.
        assert!(!mark.is_passed(|_| Some(Backlog { sent: 100, waiting: 1 })));
        assert!(mark.is_passed(|_| Some(Backlog { sent: 101, waiting: 0 })));
        mark.set(std::iter::once((PortId(1), waits)));
        assert!(mark.is_passed(|_| None));
    }
}
