//! Processor time of core: receiving, classifying, forwarding and sending. Core has a share of the worker
//! beside the principals, and sheds plain packets when it needs more.

use std::time::Duration;

use millrace_schedule::cpu::CpuSchedulerSettings;
use millrace_units::{Cycles, Instant};

use super::core_functions::{CoreFunction, CoreFunctions, CoreUse, CreditBounds, Reception};
use super::core_settings::{CoreDivision, CoreOrder, CoreSettings, Shed};
use super::overload::{FULL, Overload};
use super::principal_counts::{PrincipalCounts, PrincipalDrops};
use crate::ports::DeviceId;

/// Parts per million in a whole processor.
const WHOLE: i64 = 1_000_000;
/// Longest time that is accounted for at once: a quarter of an hour. A million times this fits into 63 bits.
const MOST_CYCLES: u64 = 1 << 42;
/// Longest time that principals get between two rounds of core work, in quanta. With a small share, it is as long
/// as core needs to earn a round of [`ROUND`], except while core sheds: receive rings fill up meanwhile.
const MOST_QUANTA: u64 = 16;
/// Long round of core work, in quanta.
const ROUND: u64 = 8;
/// Time of principals that core may owe them, in quanta.
const MOST_OWED: u64 = 200;
/// Time that core may use ahead of its share with [`CoreOrder::First`], in quanta.
pub const CORE_BURST: u64 = 4;
/// Greatest number of further batches that an overloaded worker takes per device and iteration.
const BATCHES: u32 = 16;
/// Step from which principals of every weight are shed: the greatest weight is 1,000,000.
const LAST_STEP: u32 = 21;

/// Counters of core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CoreCounts {
    /// Processor time used.
    pub used: Cycles,
    /// Packets shed.
    pub shed: u64,
    /// Time during which core was overloaded, summed over workers.
    pub overloaded: Duration,
}

/// Time of principals between two rounds of core work. It ends when a receive ring needs service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allowance {
    /// Time that core has used beyond its share, in cycles.
    owed: u64,
    quantum: u64,
    /// Whether packets have arrived in this iteration.
    received: bool,
}

impl Allowance {
    /// Returns the time: a quantum, or two if no packets wait in a receive ring; and at least what core owes. `arrivals`:
    /// whether packets wait there; if nobody knows (`None`), those count that have arrived in this iteration.
    pub fn until(&self, arrivals: Option<bool>) -> Cycles {
        let quanta = match arrivals {
            Some(true) => 1,
            None if self.received => 1,
            None | Some(false) => 2,
        };
        Cycles(self.owed.max(self.quantum.saturating_mul(quanta)))
    }
}

/// Processor time of core at a worker.
#[derive(Debug, Default)]
pub(crate) struct CoreTime {
    settings: CoreSettings,
    /// Time that core may still use ahead of its share; negative after more than its share.
    credit: i64,
    /// Time that principals used in this iteration.
    principals: u64,
    /// Time of control in this iteration, and its part after reception.
    control: u64,
    control_work: u64,
    pub counts: CoreCounts,
    /// Time by function; unused with [`CoreDivision::Undivided`].
    functions: CoreFunctions,
    /// Time of forwarding for the batch that is being received.
    forwarding: Cycles,
    /// Whether a batch of this iteration was full, and whether a latest one was.
    was_full: bool,
    is_full: bool,
    overload: Overload,
    /// Whether core is overloaded, and may shed packets.
    is_overloaded: bool,
}

impl CoreTime {
    /// Changes the settings.
    pub fn set(&mut self, settings: CoreSettings) {
        if settings.division != self.settings.division {
            self.functions = CoreFunctions::new(settings.division == CoreDivision::ByLoad);
        }
        self.settings = settings;
        self.note_overload();
    }

    /// Whether core measures the time of forwarding and of the output ports.
    #[inline]
    pub fn measures_functions(&self) -> bool {
        matches!(self.settings.division, CoreDivision::ByLoad | CoreDivision::ByFunction)
    }

    /// Counts work for a batch of a device. Returns the part of its time that forwarding took, if core measures it.
    #[inline]
    pub fn count_input(&mut self, device: DeviceId, used: CoreUse) -> Cycles {
        let forwarding = std::mem::take(&mut self.forwarding);
        if self.settings.division != CoreDivision::Undivided {
            let time = Cycles(used.time.0.saturating_sub(forwarding.0));
            self.functions.count(CoreFunction::Input(device), CoreUse { time, ..used });
        }
        forwarding
    }

    /// Counts time of forwarding for `packets` of the batch that is being received.
    pub fn count_forwarding(&mut self, time: Cycles, packets: usize) {
        self.count_taken_over(time, packets);
        self.forwarding += time;
    }

    /// Counts time for packets of other workers, which pass the stages of forwarding here.
    pub fn count_taken_over(&mut self, time: Cycles, packets: usize) {
        let weight = self.settings.forwarding_weight;
        self.functions.count(CoreFunction::Forwarding, CoreUse { weight, time, packets });
    }

    /// Counts work of an output.
    pub fn count_output(&mut self, device: DeviceId, used: CoreUse) {
        self.functions.count(CoreFunction::Output(device), used);
    }

    /// Returns the treatment of a batch of a device.
    #[inline]
    pub fn reception_of(&self, device: DeviceId) -> Reception {
        match self.must_shed() {
            true if self.sheds_of(device) => Reception::Shed,
            _ if self.measures_functions() => Reception::Measured,
            _ => Reception::Whole,
        }
    }

    /// Whether some packets of a device are among those to shed.
    fn sheds_of(&self, device: DeviceId) -> bool {
        let Self { functions, settings, .. } = self;
        let is_over = || functions.is_over(CoreFunction::Input(device));
        match settings.division {
            CoreDivision::Undivided => true,
            CoreDivision::ByInput => is_over(),
            CoreDivision::ByLoad | CoreDivision::ByFunction => {
                is_over() || functions.is_over(CoreFunction::Forwarding) || functions.has_output_over()
            }
        }
    }

    /// Whether packets from a device to another one are among those to shed, in a batch to be shed.
    pub fn sheds_between(&self, input: Option<DeviceId>, output: Option<DeviceId>) -> bool {
        let is_over = |function| self.functions.is_over(function);
        !self.measures_functions()
            || is_over(CoreFunction::Forwarding)
            || input.is_some_and(|device| is_over(CoreFunction::Input(device)))
            || output.is_some_and(|device| is_over(CoreFunction::Output(device)))
    }

    /// Returns the time that principals get after `used` cycles of core work. `received`: whether packets have arrived in
    /// this iteration.
    pub fn allowance(&self, used: u64, received: bool, settings: &CpuSchedulerSettings) -> Allowance {
        let (share, Cycles(quantum)) = (share(settings), settings.quantum);
        let credit = self.credit - part(used, WHOLE - share);
        let owed = credit.min(0).saturating_mul(-WHOLE).unsigned_abs() / share.unsigned_abs();
        let earns = if self.is_overloaded {
            0
        } else {
            ROUND * (WHOLE - share).unsigned_abs() / share.unsigned_abs()
        };
        Allowance { owed: owed.min(quantum.saturating_mul(MOST_QUANTA.max(earns))), quantum, received }
    }

    /// Counts time that principals have used.
    pub fn count_principals(&mut self, Cycles(used): Cycles) {
        self.principals += used;
    }

    /// Returns the counters of core as those of a principal.
    pub fn principal_counts(&self) -> PrincipalCounts {
        let CoreCounts { used, shed, overloaded } = self.counts;
        PrincipalCounts {
            used,
            backlogged: overloaded,
            backlogged_sum: overloaded,
            drops: PrincipalDrops { core_ceiling: shed, ..PrincipalDrops::default() },
            ..PrincipalCounts::default()
        }
    }

    /// Counts time of control. It is part of the share of core, but not of core's account. `work`: the part after
    /// reception, which no function of core has caused.
    #[inline]
    pub fn count_control(&mut self, Cycles(used): Cycles, Cycles(work): Cycles) {
        (self.control, self.control_work) = (used, work.min(used));
    }

    /// Ends an iteration that took `elapsed` cycles. `wanted` tells whether principals have work left. Time
    /// that nobody else wants costs core no credit.
    #[inline]
    pub fn end(&mut self, elapsed: u64, wanted: bool, settings: &CpuSchedulerSettings) {
        match self.principals == 0 && !wanted {
            true => self.end_alone(elapsed),
            false => self.divide(elapsed, wanted, settings),
        }
    }

    /// Ends an iteration as [`end`](Self::end) does, in which no principal had work.
    #[inline]
    pub fn end_alone(&mut self, elapsed: u64) {
        let used = elapsed.saturating_sub(std::mem::take(&mut self.control));
        self.control_work = 0;
        self.count_alone(Cycles(used));
        if self.credit < 0 {
            self.credit = 0;
        }
        if self.settings.division != CoreDivision::Undivided {
            self.functions.end_alone();
        }
    }

    /// Counts time of core at [rest](Self::is_at_rest).
    #[inline]
    pub fn count_alone(&mut self, Cycles(used): Cycles) {
        // 64 bits of cycles last for a century.
        self.counts.used.0 = self.counts.used.0.wrapping_add(used);
    }

    /// Whether an iteration in which nothing else happens changes only the time of core.
    pub fn is_at_rest(&self) -> bool {
        let is_undivided = self.settings.division == CoreDivision::Undivided;
        let owes_nothing = self.credit >= 0 && self.principals == 0 && self.forwarding == Cycles(0);
        is_undivided && owes_nothing && !self.has_full_batches() && !self.is_full
    }

    fn divide(&mut self, elapsed: u64, wanted: bool, settings: &CpuSchedulerSettings) {
        let principals = std::mem::take(&mut self.principals).min(elapsed);
        let used = elapsed - principals;
        self.counts.used += Cycles(used.saturating_sub(std::mem::take(&mut self.control)));
        let (share, quantum) = (share(settings), settings.quantum.0);
        let burst = i64::try_from(quantum.saturating_mul(CORE_BURST)).unwrap_or(i64::MAX);
        let most = match self.settings.order {
            CoreOrder::First => burst,
            CoreOrder::Share => 0,
        };
        let least = if wanted { part(quantum.saturating_mul(MOST_OWED), -share) } else { 0 };
        let credit = self.credit + part(principals, share) - part(used, WHOLE - share);
        self.credit = credit.clamp(least.min(most), most);
        if self.settings.division != CoreDivision::Undivided {
            let bounds = CreditBounds { least: least.min(0), most: burst };
            let of_functions = used.saturating_sub(std::mem::take(&mut self.control_work));
            self.functions.end(part(elapsed, share), part(of_functions, WHOLE), bounds);
        }
    }

    /// Returns the number of further batches to take from a device that has more packets than an iteration takes.
    #[inline]
    pub fn further_batches(&self) -> u32 {
        if self.is_overloaded { BATCHES } else { 0 }
    }

    /// Whether core has used more than its share while overloaded. Then it sheds from all batches.
    #[inline]
    pub fn must_shed(&self) -> bool {
        self.is_overloaded && self.credit < 0
    }

    fn note_overload(&mut self) {
        self.is_overloaded = self.overload.full > FULL && self.settings.shed != Shed::Nothing;
    }

    /// Whether packets of plain traffic are shed: those of new flows, or all.
    #[inline]
    pub fn sheds_plain(&self, is_new: bool) -> bool {
        is_new || self.overload.step >= 1 && self.settings.shed >= Shed::Plain
    }

    /// Whether packets of principals of this weight are shed.
    #[inline]
    pub fn sheds_weight(&self, weight: u32) -> bool {
        let step = self.overload.step;
        self.settings.shed == Shed::ByWeight && step > 1 && u64::from(weight) < 1 << (step - 1)
    }

    /// Notes that a device or worker had a full batch in this iteration, and whether the latest batch was full,
    /// too.
    #[inline]
    pub fn note_full(&mut self, is_full: bool) {
        self.was_full = true;
        self.is_full |= is_full;
    }

    /// Whether a batch was full, in this iteration or in one of the last.
    #[inline]
    pub fn has_full_batches(&self) -> bool {
        self.was_full || self.overload.full > 0
    }

    /// Ends the reception of an iteration. `protects` tells whether other packets need the room in the rings.
    #[inline]
    pub fn end_reception(&mut self, protects: bool, now: Instant) {
        let (was_full, is_full) = (self.was_full && protects, self.is_full);
        (self.was_full, self.is_full) = (false, false);
        if was_full || self.overload.full > 0 {
            let suffices = !is_full && self.credit >= 0;
            let last = match self.settings.shed {
                Shed::Nothing | Shed::NewFlows => 0,
                Shed::Plain => 1,
                Shed::ByWeight => LAST_STEP,
            };
            self.counts.overloaded += self.overload.note(was_full, suffices, last, now);
            self.note_overload();
        }
    }
}

/// Returns the share of core in parts per million, at least 1.
pub(super) fn share(settings: &CpuSchedulerSettings) -> i64 {
    (WHOLE - i64::from(settings.capacity)).max(1)
}

/// Returns `ppm` parts per million of a time of up to [`MOST_CYCLES`].
#[inline]
fn part(cycles: u64, ppm: i64) -> i64 {
    cycles.min(MOST_CYCLES) as i64 * ppm / WHOLE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::overload::{BACK, CALM};
    use super::*;

    const QUANTUM: u64 = 50_000;

    fn settings(ceiling: u32) -> CpuSchedulerSettings {
        CpuSchedulerSettings {
            kind: Default::default(),
            quantum: Cycles(QUANTUM),
            frequency: 1_000_000_000,
            capacity: 1_000_000 - ceiling,
        }
    }

    /// Runs iterations with principals that always have work, and core that has `load` cycles of work in each
    /// million cycles. Returns core's part of the time in percent, and the longest time between two rounds of
    /// core work.
    fn run(order: CoreOrder, ceiling: u32, load: u64) -> (f64, u64) {
        let settings = settings(ceiling);
        let mut core = CoreTime::default();
        core.set(CoreSettings { order, ..CoreSettings::default() });
        let (mut now, mut arrived, mut used, mut longest) = (0_u64, 0_u64, 0_u64, 0);
        while now < 1_000_000_000 {
            arrived = (arrived + load * (now / 1_000_000 + 1)).min(load * (now / 1_000_000 + 1));
            let work = (arrived.saturating_sub(used)).min(400_000);
            let Cycles(allowance) = core.allowance(work + 500, work > 0, &settings).until(None);
            core.count_principals(Cycles(allowance));
            core.end(work + 500 + allowance, true, &settings);
            (now, used, longest) = (now + work + 500 + allowance, used + work, longest.max(allowance));
        }
        (100.0 * core.counts.used.0 as f64 / now as f64, longest)
    }

    /// Receives in an iteration. `is_full`: whether the latest batch is full; `None` if no batch is.
    fn receive(core: &mut CoreTime, is_full: Option<bool>, now: Instant) {
        is_full.into_iter().for_each(|is_full| core.note_full(is_full));
        core.end_reception(true, now);
    }

    /// Runs iterations with this work of five functions in each, beside principals that use their allowance. Returns
    /// the allowances.
    fn allowances(division: CoreDivision, iterations: &[[u64; 5]]) -> Vec<u64> {
        let settings = settings(200_000);
        let mut core = CoreTime::default();
        core.set(CoreSettings { order: CoreOrder::Share, division, ..CoreSettings::default() });
        let mut iterate = |times: &[u64; 5]| {
            let used = |time| CoreUse { weight: 256, time: Cycles(time), packets: (time / 500) as usize };
            core.count_forwarding(Cycles(times[4]), (times[4] / 500) as usize);
            core.count_input(DeviceId(0), used(times[0] + times[4]));
            core.count_input(DeviceId(1), used(times[1]));
            core.count_output(DeviceId(0), used(times[2]));
            core.count_output(DeviceId(1), used(times[3]));
            let work = times.iter().sum();
            let allowance = core.allowance(work, work > 0, &settings).until(None);
            core.count_principals(allowance);
            core.end(work + allowance.0, true, &settings);
            allowance.0
        };
        iterations.iter().map(&mut iterate).collect()
    }

    proptest! {
        /// However core divides its time inside, and whichever function has a burst: principals get the same.
        #[test]
        fn division_of_core_leaves_the_time_of_principals_as_it_is(
            iterations in prop::collection::vec(prop::array::uniform5(0_u64..200_000), 1..200),
        ) {
            let undivided = allowances(CoreDivision::Undivided, &iterations);
            for division in [CoreDivision::ByLoad, CoreDivision::ByInput, CoreDivision::ByFunction] {
                prop_assert_eq!(&allowances(division, &iterations), &undivided);
            }
        }
    }

    #[test]
    fn core_gets_its_share_and_no_more_while_principals_have_work() {
        for order in [CoreOrder::First, CoreOrder::Share] {
            for ceiling in [100_000, 200_000, 500_000, 900_000] {
                let (percent, _) = run(order, ceiling, 2_000_000);
                assert!((percent - f64::from(ceiling) / 1e4).abs() < 1.2, "{order:?} {ceiling}: {percent}");
            }
        }
    }

    #[test]
    fn core_below_its_share_waits_for_one_quantum_only_if_it_is_first() {
        let (percent, longest) = run(CoreOrder::First, 500_000, 100_000);
        assert!((10.0..12.0).contains(&percent) && longest <= 2 * QUANTUM + 1000, "{percent} {longest}");
        let (percent, longest) = run(CoreOrder::Share, 200_000, 100_000);
        assert!((10.0..12.0).contains(&percent) && longest > 4 * QUANTUM, "{percent} {longest}");
    }

    #[test]
    fn time_that_nobody_else_wants_costs_no_credit() {
        let settings = settings(500_000);
        let mut core = CoreTime::default();
        core.end(1_000_000_000, false, &settings);
        let allowances = |core: &CoreTime| {
            [Some(true), None, Some(false)].map(|arrivals| core.allowance(0, true, &settings).until(arrivals))
        };
        assert_eq!(allowances(&core), [1, 1, 2].map(|quanta| Cycles(QUANTUM * quanta)));
        assert_eq!(core.allowance(0, false, &settings).until(None), Cycles(QUANTUM * 2));
        core.end(1_000_000_000, true, &settings);
        assert_eq!(allowances(&core), [Cycles(QUANTUM * MOST_QUANTA); 3]);
    }

    #[test]
    fn overload_sheds_new_flows_then_plain_packets_then_principals_by_weight() {
        let mut core = CoreTime::default();
        core.set(CoreSettings { shed: Shed::ByWeight, ..CoreSettings::default() });
        let mut now = Instant::from_millis(1);
        let mut seen = Vec::new();
        for _ in 0..400 {
            receive(&mut core, Some(true), now);
            now += Duration::from_millis(1);
            let state = (core.further_batches(), core.sheds_plain(true), core.sheds_plain(false));
            let state = (state, [1, 100, 10_000].map(|weight| core.sheds_weight(weight)));
            if seen.last() != Some(&state) {
                seen.push(state);
            }
        }
        let steps = [
            ((0, true, false), [false; 3]),
            ((16, true, false), [false; 3]),
            ((16, true, true), [false; 3]),
            ((16, true, true), [true, false, false]),
            ((16, true, true), [true, true, false]),
            ((16, true, true), [true, true, true]),
        ];
        assert_eq!(seen, steps);
        assert!(core.counts.overloaded >= Duration::from_millis(390), "{:?}", core.counts);
        // Enough is shed now: one step back each second.
        let back = |core: &mut CoreTime| {
            (0..=1000).for_each(|ms| receive(core, Some(false), now + Duration::from_millis(ms)))
        };
        let step = core.overload.step;
        back(&mut core);
        assert_eq!(core.overload.step, step - 1);
        now += BACK;
        receive(&mut core, None, now + CALM);
        assert_eq!(core.further_batches(), 0);
        receive(&mut core, Some(true), now + 2 * CALM);
        assert_eq!((core.further_batches(), core.sheds_plain(false)), (0, false));
    }

    #[test]
    fn settings_bound_what_is_shed() {
        for (shed, plain, weight) in
            [(Shed::NewFlows, false, false), (Shed::Plain, true, false), (Shed::ByWeight, true, true)]
        {
            let mut core = CoreTime::default();
            core.set(CoreSettings { shed, ..CoreSettings::default() });
            (0..2000).for_each(|ms| receive(&mut core, Some(true), Instant::from_millis(ms)));
            assert_eq!((core.sheds_plain(false), core.sheds_weight(100)), (plain, weight), "{shed:?}");
            assert_eq!(core.further_batches(), BATCHES);
        }
        let mut core = CoreTime::default();
        core.set(CoreSettings { shed: Shed::Nothing, ..CoreSettings::default() });
        (0..2000).for_each(|ms| receive(&mut core, Some(true), Instant::from_millis(ms)));
        assert_eq!(core.further_batches(), 0);
    }
}
