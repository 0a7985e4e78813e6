//! Pace of an instance whose calls another process runs: the number of packets that a call may have.
//!
//! The worker can't interrupt such a call, and its time limit is real time. So a call has only as many packets as
//! take [`CALL`] by the last call, and at least one. A new instance begins with a packet, and the number at most
//! doubles from call to call.

use std::time::Duration;

/// Longest time of a call with several packets.
const CALL: Duration = Duration::from_millis(1);

/// Maximum number of waiting packets that a worker combines into one call.
pub(crate) const MOST_IN_CALL: usize = 64;

/// Pace of an instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pace {
    most: usize,
}

impl Pace {
    /// Returns the pace of a new instance. `is_awaited`: another process runs its calls.
    pub fn new(is_awaited: bool) -> Self {
        Self { most: if is_awaited { 1 } else { usize::MAX } }
    }

    /// Whether another process runs the calls.
    #[inline]
    pub fn is_awaited(self) -> bool {
        self.most != usize::MAX
    }

    /// Returns the maximum number of packets of a call; `usize::MAX` if the worker itself runs the calls.
    #[inline]
    pub fn most(self) -> usize {
        self.most
    }

    /// Notes the end of a call with packets. `unfinished`: time after its begin at which the call was last seen
    /// unfinished. The worker may look seldom, so the time of its end says less.
    pub fn note(&mut self, packets: usize, unfinished: Duration) {
        if self.is_awaited() {
            let fits = (CALL.as_nanos() * packets as u128).checked_div(unfinished.as_nanos());
            let fits = fits.map_or(MOST_IN_CALL, |fits| fits.min(MOST_IN_CALL as u128) as usize);
            self.most = fits.clamp(1, 2 * self.most);
        }
    }

    /// Begins with a packet again, after a call that was too long.
    pub fn begin_again(&mut self) {
        *self = Self::new(self.is_awaited());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of packets in calls of an instance with these times of a packet.
    fn calls(packets: impl IntoIterator<Item = Duration>) -> Vec<usize> {
        let mut pace = Pace::new(true);
        let call = |each: Duration| {
            let most = pace.most();
            pace.note(most, each * most as u32);
            most
        };
        packets.into_iter().map(call).collect()
    }

    #[test]
    fn calls_grow_to_the_longest_time_and_shrink_at_once() {
        let [quick, slow, slower] = [1, 90, 2000].map(Duration::from_micros);
        assert_eq!(calls([quick; 9]), [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(calls([slow; 6]), [1, 2, 4, 8, 11, 11]);
        assert_eq!(calls([slower; 3]), [1, 1, 1]);
        let changes = [quick, quick, quick, quick, slower, slower, quick, Duration::ZERO, quick];
        assert_eq!(calls(changes), [1, 2, 4, 8, 16, 1, 1, 2, 4]);
    }

    #[test]
    fn calls_of_the_worker_itself_are_not_limited() {
        let mut pace = Pace::new(false);
        pace.note(64, Duration::from_secs(1));
        pace.begin_again();
        assert!(!pace.is_awaited() && pace.most() == usize::MAX);
        let mut pace = Pace::new(true);
        pace.note(1, Duration::ZERO);
        pace.begin_again();
        assert_eq!((pace.is_awaited(), pace.most()), (true, 1));
    }
}
