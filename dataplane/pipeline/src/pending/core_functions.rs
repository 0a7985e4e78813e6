//! Functions of core: the input ports, forwarding and the output ports, and how core divides its time among them.
//!
//! A function that needs time has a part of core's share in proportion to its weight, and what the others leave. A
//! function that has used more than its part is over it, whatever the others do. The weights are configured, or
//! [tickets](Tickets) that follow the load, as those of Click's device tasks do. CROSS/Linux divides the share of its
//! global flow that way (Gopalan and others, "Application Performance on the CROSS/Linux Software-programmable
//! Router", 2001, section VI).

use millrace_units::Cycles;

use crate::ports::DeviceId;

/// Time that a function may use ahead of its part, and that it may owe, in cycles.
#[derive(Clone, Copy, Debug)]
pub(super) struct CreditBounds {
    pub least: i64,
    pub most: i64,
}

/// Function of core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CoreFunction {
    /// Reception from a device, up to the parse stage. Without a function for forwarding, the whole journey of
    /// the packets.
    Input(DeviceId),
    /// The stages from classify on.
    Forwarding,
    /// Transmission by a device.
    Output(DeviceId),
}

/// Treatment of a received batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reception {
    /// The batch passes all stages.
    Whole,
    /// The batch passes all stages, and core measures its time by function.
    Measured,
    /// Packets of the batch may be shed.
    Shed,
}

/// Work of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CoreUse {
    /// Configured weight, at least 1.
    pub weight: u16,
    pub time: Cycles,
    pub packets: usize,
}

/// Weight that follows the load: it rises by the packets of each iteration, and falls by a part after
/// [`Tickets::PATIENCE`] iterations without packets.
#[derive(Clone, Copy, Debug)]
struct Tickets {
    /// 1 to [`Tickets::MOST`].
    count: i64,
    idle: u32,
}

impl Tickets {
    const NEW: Self = Self { count: 1, idle: 0 };
    /// Greatest number of tickets of a function.
    const MOST: i64 = 1024;
    /// Packets of an iteration that leave the tickets as they are.
    const FEW: usize = 2;
    /// Iterations without packets after which the tickets fall.
    const PATIENCE: u32 = 64;

    /// Ends an iteration in which the function had `packets`.
    fn adjust(&mut self, packets: usize) {
        if packets > Self::FEW {
            self.count = (self.count + packets as i64).min(Self::MOST);
            self.idle = 0;
        } else if packets == 0 {
            self.idle += 1;
            if self.idle >= Self::PATIENCE {
                let part = if self.count > 64 { self.count / 32 } else { 2 };
                *self = Self { count: (self.count - part).max(1), idle: 0 };
            }
        }
    }
}

/// Part of an equal part that a function has at least, if the weights follow the load: one in so many. A few packets in
/// each iteration buy no tickets, and need little time.
const LEAST: i64 = 8;

/// A function's part of the time of core.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Configured weight; 0 before the first packet.
    weight: i64,
    tickets: Tickets,
    /// Packets and time in this iteration.
    packets: usize,
    used: i64,
    /// Time that the function may still use; negative after more than its part.
    credit: i64,
}

impl Part {
    /// Function with the greatest credit, so that its first packets are not over its part.
    const NEW: Self = Self { weight: 0, tickets: Tickets::NEW, packets: 0, used: 0, credit: i64::MAX };

    fn count(&mut self, CoreUse { weight, time: Cycles(time), packets }: CoreUse) {
        self.weight = i64::from(weight.max(1));
        self.used = self.used.saturating_add(i64::try_from(time).unwrap_or(i64::MAX));
        self.packets += packets;
    }

    fn competes(&self, bounds: CreditBounds) -> bool {
        self.used > 0 || self.credit < bounds.most
    }

    fn weight(&self, follows_load: bool) -> i128 {
        i128::from(if follows_load { self.tickets.count * LEAST } else { self.weight })
    }
}

/// Time of core by function.
#[derive(Debug)]
pub(super) struct CoreFunctions {
    /// Whether tickets are the weights.
    follows_load: bool,
    forwarding: Part,
    inputs: Vec<Part>,
    outputs: Vec<Part>,
}

impl Default for CoreFunctions {
    fn default() -> Self {
        Self::new(false)
    }
}

impl CoreFunctions {
    /// `follows_load`: whether the functions have tickets for weights.
    pub fn new(follows_load: bool) -> Self {
        Self { follows_load, forwarding: Part::NEW, inputs: Vec::new(), outputs: Vec::new() }
    }

    /// Counts work of a function in this iteration.
    pub fn count(&mut self, function: CoreFunction, used: CoreUse) {
        let (parts, DeviceId(device)) = match function {
            CoreFunction::Forwarding => return self.forwarding.count(used),
            CoreFunction::Input(device) => (&mut self.inputs, device),
            CoreFunction::Output(device) => (&mut self.outputs, device),
        };
        let index = usize::from(device);
        if index >= parts.len() {
            parts.resize(index + 1, Part::NEW);
        }
        if let Some(part) = parts.get_mut(index) {
            part.count(used);
        }
    }

    /// Whether a function has used more than its part.
    pub fn is_over(&self, function: CoreFunction) -> bool {
        self.part(function).is_some_and(|part| part.credit < 0)
    }

    /// Whether any output has used more than its part.
    pub fn has_output_over(&self) -> bool {
        self.outputs.iter().any(|part| part.credit < 0)
    }

    fn part(&self, function: CoreFunction) -> Option<&Part> {
        match function {
            CoreFunction::Forwarding => Some(&self.forwarding),
            CoreFunction::Input(DeviceId(device)) => self.inputs.get(usize::from(device)),
            CoreFunction::Output(DeviceId(device)) => self.outputs.get(usize::from(device)),
        }
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.inputs.iter().chain([&self.forwarding]).chain(&self.outputs)
    }

    fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        self.inputs.iter_mut().chain([&mut self.forwarding]).chain(&mut self.outputs)
    }

    /// Ends an iteration in which core had a right to `earned` cycles, and used `used`. Work that belongs to no
    /// function, such as timers, counts for the functions in proportion to their time.
    pub fn end(&mut self, earned: i64, used: i64, bounds: CreditBounds) {
        self.adjust();
        let follows_load = self.follows_load;
        let counted: i128 = self.parts().map(|part| i128::from(part.used)).sum();
        let competing = || self.parts().filter(|part| part.competes(bounds));
        let equal = competing().map(|part| part.weight(follows_load)).sum::<i128>()
            / competing().count().max(1) as i128;
        let least = if follows_load { equal / i128::from(LEAST) } else { 0 };
        let weights: i128 = competing().map(|part| part.weight(follows_load).max(least)).sum();
        for part in self.parts_mut() {
            if part.competes(bounds) {
                let earns = i128::from(earned) * part.weight(follows_load).max(least) / weights.max(1);
                let spends = i128::from(used) * i128::from(part.used) / counted.max(1);
                let credit = i128::from(part.credit.min(bounds.most)) + earns - spends;
                let credit = credit.clamp(i128::from(bounds.least), i128::from(bounds.most));
                part.credit = credit as i64;
            }
            part.used = 0;
        }
    }

    /// Ends an iteration in which nobody else wanted the time: it costs no credit.
    pub fn end_alone(&mut self) {
        self.adjust();
        for part in self.parts_mut() {
            (part.used, part.credit) = (0, part.credit.max(0));
        }
    }

    fn adjust(&mut self) {
        if self.follows_load {
            self.parts_mut().for_each(|part| part.tickets.adjust(std::mem::take(&mut part.packets)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: CreditBounds = CreditBounds { least: -1_000_000, most: 10_000 };
    /// Functions of the tests: two inputs, forwarding and two outputs.
    const ALL: [CoreFunction; 5] = [
        CoreFunction::Input(DeviceId(0)),
        CoreFunction::Input(DeviceId(1)),
        CoreFunction::Forwarding,
        CoreFunction::Output(DeviceId(0)),
        CoreFunction::Output(DeviceId(2)),
    ];

    /// Computes the credits of all functions in fractions. An iteration: the time earned, the time used in all, and
    /// the time counted for each function.
    fn credits_of(weights: &[u16], iterations: &[(i64, i64, Vec<u64>)]) -> Vec<f64> {
        let sum = weights.iter().map(|weight| f64::from(*weight)).sum::<f64>();
        let credit_of = |at: usize| {
            iterations.iter().fold(BOUNDS.most as f64, |credit, (earned, used, times)| {
                let earns = *earned as f64 * f64::from(weights[at]) / sum;
                let spends = *used as f64 * times[at] as f64 / times.iter().sum::<u64>() as f64;
                (credit + earns - spends).clamp(BOUNDS.least as f64, BOUNDS.most as f64)
            })
        };
        (0..weights.len()).map(credit_of).collect()
    }

    fn run(weights: &[u16], iterations: &[(i64, i64, Vec<u64>)]) -> CoreFunctions {
        let mut functions = CoreFunctions::new(false);
        let used = |weight, time| CoreUse { weight, time: Cycles(time), packets: 1 };
        ALL.iter().zip(weights).for_each(|(function, weight)| functions.count(*function, used(*weight, 0)));
        for (earned, spent, times) in iterations {
            for ((function, time), weight) in ALL.iter().zip(times).zip(weights) {
                functions.count(*function, used(*weight, *time));
            }
            functions.end(*earned, *spent, BOUNDS);
        }
        functions
    }

    /// Tickets after iterations with these packets, computed from the whole history.
    fn tickets_of(packets: &[usize]) -> i64 {
        let (mut tickets, mut idle) = (1_i64, 0);
        for packets in packets {
            match packets {
                0 if idle == 63 => {
                    idle = 0;
                    tickets -= if tickets > 64 { tickets >> 5 } else { 2 };
                }
                0 => idle += 1,
                1 | 2 => {}
                more => (tickets, idle) = (tickets + *more as i64, 0),
            }
            tickets = tickets.clamp(1, 1024);
        }
        tickets
    }

    proptest! {
        #[test]
        fn credits_are_those_of_fractions(
            weights in prop::collection::vec(1_u16..=4096, 5),
            // All functions compete in each iteration, so that no rounding decides which do.
            iterations in prop::collection::vec(
                (0_i64..20_000, 0_i64..20_000, prop::collection::vec(1_u64..9000, 5)), 1..40),
        ) {
            let functions = run(&weights, &iterations);
            let twin = credits_of(&weights, &iterations);
            for (function, twin) in ALL.iter().zip(twin) {
                let part = functions.part(*function).unwrap();
                let near = (part.credit as f64 - twin).abs() <= 2.0 * iterations.len() as f64;
                prop_assert!(near, "{part:?} {twin}");
            }
        }

        #[test]
        fn tickets_are_those_of_the_whole_history(
            packets in prop::collection::vec(prop_oneof![3 => Just(0_usize), 1 => 0_usize..300], 1..2000),
        ) {
            let mut functions = CoreFunctions::new(true);
            for packets in &packets {
                functions.count(ALL[2], CoreUse { weight: 1, time: Cycles(1), packets: *packets });
                functions.end(0, 0, BOUNDS);
            }
            prop_assert_eq!(functions.forwarding.tickets.count, tickets_of(&packets));
        }

        #[test]
        fn function_below_its_part_is_never_over_beside_a_flood(
            weights in prop::collection::vec(1_u16..=256, 2),
            floods in prop::collection::vec(1_u64..1_000_000, 1..200),
        ) {
            let part = u64::from(weights[1]) * 10_000 / weights.iter().map(|weight| u64::from(*weight)).sum::<u64>();
            let own = part.saturating_sub(1);
            let iterations: Vec<_> =
                floods.iter().map(|flood| (10_000, (flood + own) as i64, vec![*flood, own])).collect();
            let functions = run(&weights, &iterations);
            prop_assert!(!functions.is_over(ALL[1]), "{functions:?}");
            let most = part + 20_000 / iterations.len() as u64;
            let over = floods.iter().all(|flood| *flood > 10_000 + most);
            prop_assert!(!over || functions.is_over(ALL[0]), "{functions:?}");
        }
    }

    #[test]
    fn function_without_packets_leaves_its_part_to_others() {
        let mut functions = run(&[1, 1], &vec![(1000, 0, vec![0, 0]); 20]);
        assert!(functions.inputs.iter().all(|part| part.credit >= BOUNDS.most), "{functions:?}");
        for _ in 0..1000 {
            functions.count(ALL[0], CoreUse { weight: 1, time: Cycles(1000), packets: 1 });
            functions.end(1000, 1000, BOUNDS);
        }
        assert!(!functions.is_over(ALL[0]), "{functions:?}");
    }

    #[test]
    fn function_with_a_packet_in_each_iteration_is_not_over_beside_a_flood() {
        let mut functions = CoreFunctions::new(true);
        for _ in 0..10_000 {
            for (function, packets) in [(ALL[0], 250), (ALL[1], 1)] {
                functions.count(function, CoreUse { weight: 1, time: Cycles(100 * packets as u64), packets });
            }
            functions.end(10_000, 25_100, BOUNDS);
        }
        assert!(functions.is_over(ALL[0]) && !functions.is_over(ALL[1]), "{functions:?}");
    }

    #[test]
    fn time_that_nobody_else_wants_costs_no_credit() {
        let mut functions = run(&[1, 1], &[(100, 50_000, vec![50_000, 0])]);
        assert!(functions.is_over(ALL[0]) && !functions.is_over(ALL[1]) && !functions.is_over(ALL[4]));
        functions.end_alone();
        assert!(!functions.is_over(ALL[0]));
    }

    /// With equal work for two outputs, the one with a burst gets more of the time; after the burst, both are equal.
    #[test]
    fn part_of_an_output_rises_with_its_load_and_falls_afterwards() {
        let mut functions = CoreFunctions::new(true);
        let mut iterate = |packets: [usize; 2], count: usize| {
            for _ in 0..count {
                for (function, packets) in ALL[3..].iter().zip(packets) {
                    let time = Cycles(1000 * packets as u64);
                    functions.count(*function, CoreUse { weight: 1, time, packets });
                }
                functions.end(1000, 1000, BOUNDS);
            }
            [0, 2].map(|output: usize| functions.outputs[output].tickets.count)
        };
        assert_eq!(iterate([1, 1], 100), [1, 1]);
        assert_eq!(iterate([32, 4], 10), [321, 41]);
        assert_eq!(iterate([32, 4], 1000), [1024, 1024]);
        assert_eq!(iterate([0, 4], 64 * 400), [1, 1024]);
    }
}
