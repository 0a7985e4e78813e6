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
/// Squarings of a matrix.
const SQUARINGS: u32 = 16;

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

/// Returns the Perron eigenvector of a positive matrix, with a sum of 1: the row sums of a high power of the
/// matrix, by squaring.
fn perron(matrix: &[f64], size: usize) -> Vec<f64> {
    let size = size.max(1);
    let mut power = matrix.to_vec();
    for _ in 0..SQUARINGS {
        let most = power.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let scaled: Vec<f64> = power.iter().map(|entry| entry / most).collect();
        let entry = |row: &[f64], column: usize| {
            row.iter().zip(scaled.iter().skip(column).step_by(size)).map(|(one, other)| one * other).sum()
        };
        power = scaled.chunks(size).flat_map(|row| (0..size).map(move |column| entry(row, column))).collect();
    }
    let sums: Vec<f64> = power.chunks(size).map(|row| row.iter().sum()).collect();
    let all: f64 = sums.iter().sum();
    sums.into_iter().map(|sum| sum / all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn squaring_finds_the_eigenvector(
            [first, both, second] in [0.01_f64..100.0, 0.1_f64..100.0, 0.01_f64..100.0],
        ) {
            // The quadratic equation of the ratio of the entries.
            let difference = first - second;
            let ratio = 2.0 * both / (difference + (difference * difference + 4.0 * both * both).sqrt());
            let found = perron(&[first, both, both, second], 2);
            prop_assert!((found[1] / found[0] / ratio - 1.0).abs() < 1e-6, "{found:?} {ratio}");
        }
    }

    #[test]
    fn three_resources_have_a_vector_that_the_matrix_only_stretches() {
        let matrix = [3.0, 1.0, 0.5, 1.0, 2.0, 4.0, 0.5, 4.0, 1.0];
        let vector = perron(&matrix, 3);
        let stretched =
            matrix.chunks(3).map(|row| row.iter().zip(&vector).map(|(one, other)| one * other).sum());
        let ratios: Vec<f64> =
            stretched.zip(&vector).map(|(image, entry): (f64, &f64)| image / entry).collect();
        assert!(ratios.iter().all(|ratio| (ratio / ratios[0] - 1.0).abs() < 1e-9), "{ratios:?}");
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
