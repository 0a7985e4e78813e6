//! Time of core by input port, if each port is a principal of its own inside core. The ports that need time divide
//! the share of core in proportion to their weights. A port that has used more than its part is over its share,
//! whatever the others do.

use crate::ports::DeviceId;

/// Time that a port may use ahead of its share, and that it may owe, in cycles.
#[derive(Clone, Copy, Debug)]
pub(super) struct CreditBounds {
    pub least: i64,
    pub most: i64,
}

#[derive(Clone, Copy, Debug)]
struct Input {
    /// Weight; 0 before the first packet.
    weight: i64,
    /// Time for packets of the port in this iteration.
    used: i64,
    /// Time that the port may still use; negative after more than its share.
    credit: i64,
}

impl Input {
    /// Port with the greatest credit, so that its first packets are not over its share.
    const NEW: Self = Self { weight: 0, used: 0, credit: i64::MAX };
}

/// Time of core by device.
#[derive(Debug, Default)]
pub(super) struct CoreInputs {
    inputs: Vec<Input>,
}

impl CoreInputs {
    /// Counts `time` for packets of a device of a weight of 1 to 256.
    pub fn count(&mut self, DeviceId(device): DeviceId, weight: usize, time: u64) {
        let index = usize::from(device);
        if index >= self.inputs.len() {
            self.inputs.resize(index + 1, Input::NEW);
        }
        if let Some(input) = self.inputs.get_mut(index) {
            input.weight = weight.clamp(1, 256) as i64;
            input.used = input.used.saturating_add(i64::try_from(time).unwrap_or(i64::MAX));
        }
    }

    /// Whether a device has used more than its share.
    pub fn is_over(&self, DeviceId(device): DeviceId) -> bool {
        self.inputs.get(usize::from(device)).is_some_and(|input| input.credit < 0)
    }

    /// Ends an iteration in which core had a right to `earned` cycles, and used `used`. Work that serves no single
    /// port, such as sending, counts for the ports in proportion to their time.
    pub fn end(&mut self, earned: i64, used: i64, bounds: CreditBounds) {
        let counted: i128 = self.inputs.iter().map(|input| i128::from(input.used)).sum();
        let competes = |input: &Input| input.used > 0 || input.credit < bounds.most;
        let competing = self.inputs.iter().filter(|input| competes(input));
        let weights: i128 = competing.map(|input| i128::from(input.weight)).sum();
        for input in &mut self.inputs {
            if competes(input) {
                let earns = i128::from(earned) * i128::from(input.weight) / weights.max(1);
                let spends = i128::from(used) * i128::from(input.used) / counted.max(1);
                let credit = i128::from(input.credit.min(bounds.most)) + earns - spends;
                let credit = credit.clamp(i128::from(bounds.least), i128::from(bounds.most));
                input.credit = credit as i64;
            }
            input.used = 0;
        }
    }

    /// Ends an iteration in which nobody else wanted the time: it costs no credit.
    pub fn end_alone(&mut self) {
        for input in &mut self.inputs {
            (input.used, input.credit) = (0, input.credit.max(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: CreditBounds = CreditBounds { least: -1_000_000, most: 10_000 };

    /// Computes the credits of all ports in fractions. An iteration: the time earned, the time used in all, and the
    /// time counted for each port.
    fn credits_of(weights: &[usize], iterations: &[(i64, i64, Vec<u64>)]) -> Vec<f64> {
        let sum = weights.iter().sum::<usize>() as f64;
        let credit_of = |port: usize| {
            iterations.iter().fold(BOUNDS.most as f64, |credit, (earned, used, times)| {
                let earns = *earned as f64 * weights[port] as f64 / sum;
                let spends = *used as f64 * times[port] as f64 / times.iter().sum::<u64>() as f64;
                (credit + earns - spends).clamp(BOUNDS.least as f64, BOUNDS.most as f64)
            })
        };
        (0..weights.len()).map(credit_of).collect()
    }

    fn run(weights: &[usize], iterations: &[(i64, i64, Vec<u64>)]) -> CoreInputs {
        let mut inputs = CoreInputs::default();
        weights.iter().enumerate().for_each(|(port, weight)| inputs.count(DeviceId(port as u16), *weight, 0));
        for (earned, used, times) in iterations {
            for (port, time) in times.iter().enumerate() {
                inputs.count(DeviceId(port as u16), weights[port], *time);
            }
            inputs.end(*earned, *used, BOUNDS);
        }
        inputs
    }

    proptest! {
        #[test]
        fn credits_are_those_of_fractions(
            weights in prop::collection::vec(1_usize..=256, 3),
            // All ports compete in each iteration, so that no rounding decides which do.
            iterations in prop::collection::vec(
                (0_i64..20_000, 0_i64..20_000, prop::collection::vec(1_u64..9000, 3)), 1..40),
        ) {
            let inputs = run(&weights, &iterations);
            let twin = credits_of(&weights, &iterations);
            for (input, twin) in inputs.inputs.iter().zip(twin) {
                let near = (input.credit as f64 - twin).abs() <= 2.0 * iterations.len() as f64;
                prop_assert!(near, "{input:?} {twin}");
            }
        }

        #[test]
        fn port_below_its_share_is_never_over_beside_a_flood(
            weights in prop::collection::vec(1_usize..=256, 2),
            floods in prop::collection::vec(1_u64..1_000_000, 1..200),
        ) {
            let part = weights[1] as u64 * 10_000 / weights.iter().sum::<usize>() as u64;
            let own = part.saturating_sub(1);
            let iterations: Vec<_> =
                floods.iter().map(|flood| (10_000, (flood + own) as i64, vec![*flood, own])).collect();
            let inputs = run(&weights, &iterations);
            prop_assert!(!inputs.is_over(DeviceId(1)), "{inputs:?}");
            let most = part + 20_000 / iterations.len() as u64;
            let over = floods.iter().all(|flood| *flood > 10_000 + most);
            prop_assert!(!over || inputs.is_over(DeviceId(0)), "{inputs:?}");
        }
    }

    #[test]
    fn port_without_packets_leaves_its_part_to_others() {
        let mut inputs = run(&[1, 1], &vec![(1000, 0, vec![0, 0]); 20]);
        assert!(inputs.inputs.iter().all(|input| input.credit >= BOUNDS.most), "{inputs:?}");
        for _ in 0..1000 {
            inputs.count(DeviceId(0), 1, 1000);
            inputs.end(1000, 1000, BOUNDS);
        }
        assert!(!inputs.is_over(DeviceId(0)), "{inputs:?}");
    }

    #[test]
    fn time_that_nobody_else_wants_costs_no_credit() {
        let mut inputs = run(&[1, 1], &[(100, 50_000, vec![50_000, 0])]);
        assert!(inputs.is_over(DeviceId(0)) && !inputs.is_over(DeviceId(1)) && !inputs.is_over(DeviceId(9)));
        inputs.end_alone();
        assert!(!inputs.is_over(DeviceId(0)));
    }
}
