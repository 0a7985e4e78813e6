//! Prices of resources by the mix of the granted flows.
//!
//! Flows that share several resources need the least of them if each flow takes times in proportion to
//! `sqrt(W_i * p_i)`, with the same price `p_i` of resource `i` for all flows: the condition of Lagrange for the
//! least sum of `W_i / d_i` at one resource, with given sums at the others. With `u_i`, the share that the flow
//! would need with its whole deadline at resource `i`, the sums of `sqrt(u_i * u_j)` over all flows form a
//! matrix. The prices that exhaust all free shares at the same time are its Perron eigenvector, after division
//! by the free shares.

use super::split::Part;

/// Fixed-point one of the sums.
const ONE: f64 = 1024.0;
/// Weight of a flow with equal demands, in parts of the capacity: the prices while no flow is granted.
const PRIOR: f64 = 1.0 / 32.0;
/// Steps of the power iteration.
const STEPS: u32 = 32;

/// Sums over the granted flows that pass the same resources. Whole numbers, so that a released flow leaves no
/// rest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Mix {
    /// Rows of the matrix, one after the other.
    sums: Vec<u128>,
    pub flows: usize,
}

/// Returns the terms of a flow, by the shares that it needs with its whole deadline.
pub(super) fn terms(shares: &[f64]) -> Vec<u64> {
    let pairs = shares.iter().flat_map(|first| shares.iter().map(move |second| first * second));
    pairs.map(|product| (product.sqrt() * ONE) as u64).collect()
}

impl Mix {
    pub fn add(&mut self, terms: &[u64]) {
        self.sums.resize(terms.len(), 0);
        self.sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += u128::from(*term));
        self.flows += 1;
    }

    pub fn remove(&mut self, terms: &[u64]) {
        self.sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum = sum.saturating_sub(u128::from(*term)));
        self.flows = self.flows.saturating_sub(1);
    }

    /// Returns numbers in proportion to the best times of a new flow, which needs `shares` with its whole
    /// deadline.
    pub fn proportions(&self, parts: &[Part], shares: &[f64]) -> Vec<f64> {
        let terms = terms(shares);
        let zeros = vec![0; terms.len()];
        let sums = if self.sums.len() == terms.len() { &self.sums } else { &zeros };
        let pairs = parts.iter().flat_map(|first| parts.iter().map(move |second| (first, second)));
        let matrix: Vec<f64> = pairs
            .zip(sums.iter().zip(&terms))
            .map(|((first, second), (sum, term))| {
                let capacity = (first.capacity as f64 * second.capacity as f64).sqrt();
                let free = (first.free.max(1) as f64 * second.free.max(1) as f64).sqrt();
                ((*sum as f64 + *term as f64) / ONE + capacity * PRIOR) / free
            })
            .collect();
        let vector = perron(&matrix, parts.len());
        let proportion = |((part, share), entry): ((&Part, &f64), f64)| {
            let proportion = (share / part.free.max(1) as f64).sqrt() * entry;
            if proportion.is_finite() { proportion } else { 1.0 }
        };
        parts.iter().zip(shares).zip(vector).map(proportion).collect()
    }
}

/// Returns the Perron eigenvector of a positive matrix, with a sum of 1, by power iteration.
fn perron(matrix: &[f64], size: usize) -> Vec<f64> {
    let mut vector = vec![1.0 / size.max(1) as f64; size];
    for _ in 0..STEPS {
        let rows = matrix.chunks(size.max(1));
        let next: Vec<f64> =
            rows.map(|row| row.iter().zip(&vector).map(|(entry, value)| entry * value).sum()).collect();
        let sum: f64 = next.iter().sum();
        vector = next.into_iter().map(|value| value / sum).collect();
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn power_iteration_finds_the_eigenvector(
            [first, both, second] in [0.01_f64..100.0, 0.1_f64..100.0, 0.01_f64..100.0],
        ) {
            // The quadratic equation of the ratio of the entries.
            let difference = first - second;
            let ratio = (-difference + (difference * difference + 4.0 * both * both).sqrt()) / (2.0 * both);
            let found = perron(&[first, both, both, second], 2);
            let found_ratio = found.get(1).zip(found.first()).map_or(0.0, |(one, other)| one / other);
            // Nearly diagonal matrices converge slowly, and their ratio matters least.
            if both > 0.3 * (first - second).abs() || both > 0.3 * first.min(second) {
                prop_assert!((found_ratio / ratio - 1.0).abs() < 0.05, "{found_ratio} {ratio}");
            }
        }
    }

    #[test]
    fn removed_terms_leave_no_rest() {
        let mut mix = Mix::default();
        mix.add(&terms(&[1.5, 2.5]));
        let before = mix.clone();
        mix.add(&terms(&[0.3, 1e12]));
        mix.remove(&terms(&[0.3, 1e12]));
        assert_eq!(mix, before);
    }
}
