//! Paces of an instance whose calls another process runs: the number of packets that a call may have, for each
//! principal that pays for calls.
//!
//! The worker can't interrupt such a call. So a call has only as many packets as take [`CALL`] by the last calls of its
//! payer, and at least one. A payer begins with a packet, and begins again when its calls get too long. The number at
//! most doubles from call to call.
//!
//! Packets may suddenly take longer, up to [`CallLimits::EACH_AWAITED`](crate::CallLimits::EACH_AWAITED) without
//! fault. If several principals pay for calls, each call has few packets, so that no call lasts longer than a
//! single packet may.

use std::time::Duration;

use millrace_units::PrincipalId;

use crate::CallLimits;

/// Longest time of a call with several packets, as long as packets take no longer than before.
const CALL: Duration = Duration::from_millis(1);

/// Maximum number of waiting packets that a worker combines into one call.
pub(crate) const MOST_IN_CALL: usize = 64;

/// Maximum number of packets of a call if several principals pay for calls: 10.
const MOST_OF_SEVERAL: usize =
    (CallLimits::LEAST_AWAITED.as_millis() / CallLimits::EACH_AWAITED.as_millis()) as usize;

/// Pace of a payer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pace {
    most: usize,
}

impl Pace {
    const NEW: Self = Self { most: 1 };

    /// Notes the end of a call of the payer.
    fn note(&mut self, packets: usize, unfinished: Duration) {
        let fits = (CALL.as_nanos() * packets as u128).checked_div(unfinished.as_nanos());
        let fits = fits.map_or(MOST_IN_CALL, |fits| fits.min(MOST_IN_CALL as u128) as usize);
        self.most = match unfinished > 2 * CALL {
            true => 1,
            false => fits.clamp(1, 2 * self.most),
        };
    }
}

/// Paces of an instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Paces {
    /// Whether another process runs the calls.
    is_awaited: bool,
    /// Paces of the principals that pay for bindings or for earlier calls, in ascending order. `None`: nobody pays.
    payers: Vec<(Option<PrincipalId>, Pace)>,
}

impl Paces {
    /// Returns the paces of a new instance. `is_awaited`: another process runs its calls.
    pub fn new(is_awaited: bool) -> Self {
        Self { is_awaited, payers: Vec::new() }
    }

    /// Returns the paces for another copy of the instance: the same payers, without calls.
    pub fn renewed(&self, is_awaited: bool) -> Self {
        Self { is_awaited, payers: self.payers.iter().map(|(payer, _)| (*payer, Pace::NEW)).collect() }
    }

    /// Keeps the paces for a successor of the instance, whose calls another process runs or not.
    pub fn succeed(&mut self, is_awaited: bool) {
        self.is_awaited = is_awaited;
    }

    /// Whether another process runs the calls.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// Returns the maximum number of packets of a call; `usize::MAX` if the worker itself runs the calls.
    #[inline]
    pub fn most(&self, payer: Option<PrincipalId>) -> usize {
        match self.is_awaited {
            true => self.most_awaited(payer),
            false => usize::MAX,
        }
    }

    fn most_awaited(&self, payer: Option<PrincipalId>) -> usize {
        let most = if self.has_others(payer) { MOST_OF_SEVERAL } else { MOST_IN_CALL };
        let known = self.find(payer).ok().and_then(|place| self.payers.get(place));
        known.map_or(Pace::NEW, |(_, pace)| *pace).most.min(most)
    }

    /// Whether principals besides `payer` pay for calls.
    fn has_others(&self, payer: Option<PrincipalId>) -> bool {
        self.payers.iter().take(2).any(|(other, _)| *other != payer)
    }

    /// Notes the end of a call with packets. `unfinished`: time after its begin at which the call was last seen
    /// unfinished. The worker may look seldom, so the time of its end says less.
    pub fn note(&mut self, payer: Option<PrincipalId>, packets: usize, unfinished: Duration) {
        if self.is_awaited
            && let Some(pace) = self.pace(payer)
        {
            pace.note(packets, unfinished);
        }
    }

    /// Begins with a packet again, after a call that failed.
    pub fn begin_again(&mut self, payer: Option<PrincipalId>) {
        if self.is_awaited
            && let Some(pace) = self.pace(payer)
        {
            *pace = Pace::NEW;
        }
    }

    /// Adds a principal that may pay for calls.
    pub fn add(&mut self, payer: Option<PrincipalId>) {
        self.pace(payer);
    }

    /// Forgets a principal, whose later calls begin with a packet.
    pub fn forget(&mut self, payer: Option<PrincipalId>) {
        if let Ok(place) = self.find(payer) {
            self.payers.remove(place);
        }
    }

    fn find(&self, payer: Option<PrincipalId>) -> Result<usize, usize> {
        self.payers.binary_search_by_key(&payer, |(known, _)| *known)
    }

    /// Returns the pace of a payer, which may be new.
    fn pace(&mut self, payer: Option<PrincipalId>) -> Option<&mut Pace> {
        let place = self.find(payer).unwrap_or_else(|place| {
            self.payers.insert(place, (payer, Pace::NEW));
            place
        });
        self.payers.get_mut(place).map(|(_, pace)| pace)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: Option<PrincipalId> = Some(PrincipalId(1));
    const SECOND: Option<PrincipalId> = Some(PrincipalId(2));

    /// Returns the numbers of packets in calls of a payer with these times of a packet.
    fn calls(
        paces: &mut Paces,
        payer: Option<PrincipalId>,
        each: impl IntoIterator<Item = u64>,
    ) -> Vec<usize> {
        let call = |micros| {
            let most = paces.most(payer);
            paces.note(payer, most, Duration::from_micros(micros) * most as u32);
            most
        };
        each.into_iter().map(call).collect()
    }

    #[test]
    fn calls_grow_to_the_longest_time_and_begin_again_when_packets_take_longer() {
        let calls = |each: &[u64]| calls(&mut Paces::new(true), FIRST, each.iter().copied());
        assert_eq!(calls(&[1; 9]), [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(calls(&[90; 6]), [1, 2, 4, 8, 11, 11]);
        assert_eq!(calls(&[2000; 3]), [1, 1, 1]);
        assert_eq!(calls(&[1, 1, 1, 1, 100, 100, 1, 0, 1]), [1, 2, 4, 8, 16, 10, 10, 20, 40]);
        assert_eq!(calls(&[1, 1, 1, 1, 1, 150, 1, 1]), [1, 2, 4, 8, 16, 32, 1, 2]);
    }

    #[test]
    fn costly_packets_of_one_payer_leave_calls_of_another_as_they_are() {
        let mut paces = Paces::new(true);
        (0..8).for_each(|_| _ = calls(&mut paces, FIRST, [1, 1]));
        assert_eq!(calls(&mut paces, SECOND, [3000, 3000]), [1, 1]);
        // With two payers, calls have few packets.
        assert_eq!(calls(&mut paces, FIRST, [1, 1]), [10, 10]);
        paces.begin_again(FIRST);
        assert_eq!(calls(&mut paces, FIRST, [1; 5]), [1, 2, 4, 8, 10]);
        paces.forget(SECOND);
        assert_eq!(calls(&mut paces, FIRST, [1; 3]), [32, 64, 64]);
        // A new payer has no history, and neither has a copy of the instance.
        paces.add(SECOND);
        assert_eq!((paces.most(SECOND), paces.most(FIRST)), (1, 10));
        let mut renewed = paces.renewed(true);
        assert_eq!(calls(&mut renewed, FIRST, [1; 5]), [1, 2, 4, 8, 10]);
    }

    #[test]
    fn calls_of_the_worker_itself_are_not_limited() {
        let mut paces = Paces::new(false);
        paces.note(FIRST, 64, Duration::from_secs(1));
        paces.begin_again(FIRST);
        paces.add(SECOND);
        assert!(!paces.is_awaited() && paces.most(FIRST) == usize::MAX);
    }

    #[test]
    fn payers_and_their_paces_stay_in_an_upgrade() {
        let mut paces = Paces::new(false);
        paces.add(FIRST);
        paces.add(SECOND);
        // A process succeeds an instance that the worker calls. Both payers are known.
        paces.succeed(true);
        assert_eq!(calls(&mut paces, FIRST, [1; 6]), [1, 2, 4, 8, 10, 10]);
        assert_eq!(calls(&mut paces, SECOND, [3000, 3000]), [1, 1]);
        paces.succeed(true);
        assert_eq!((paces.most(FIRST), paces.most(SECOND)), (10, 1));
    }

    proptest! {
        /// Whatever packets cost: with several payers, no call lasts longer than one packet may, if each packet
        /// takes the time that is no fault at most. And each payer has the calls that it would have with its own
        /// instance, except for their greatest number of packets.
        #[test]
        fn each_payer_has_its_own_pace_and_no_call_exceeds_the_bound(
            steps in prop::collection::vec((0_u32..3, prop_oneof![0_u64..100, 0_u64..10_001]), 1..200),
        ) {
            let mut paces = Paces::new(true);
            (0..3).for_each(|payer| paces.add(Some(PrincipalId(payer))));
            let mut own = [1_usize; 3];
            for (payer, micros) in steps {
                let (id, own) = (Some(PrincipalId(payer)), &mut own[payer as usize]);
                let packets = paces.most(id);
                prop_assert_eq!(packets, (*own).min(10));
                let took = Duration::from_micros(micros) * packets as u32;
                let limit = CallLimits::default().awaited(packets);
                prop_assert!(took <= limit && limit == CallLimits::LEAST_AWAITED, "{packets}: {took:?}");
                paces.note(id, packets, took);
                let micros = took.as_micros() as usize;
                *own = match micros {
                    0 => 64.min(2 * *own),
                    1..=2000 => (1000 * packets / micros).clamp(1, 64.min(2 * *own)),
                    _ => 1,
                };
            }
        }
    }
}
