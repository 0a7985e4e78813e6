//! Norms of utilisation vectors.

use crate::impact::Impact;
use crate::utilization_vector::Utilization;

/// Norm of a vector whose components are multiplied by weights first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// Sum.
    L1,
    /// Root of the sum of squares; computed without the root, which orders vectors alike.
    L2,
    /// Maximum.
    Largest,
}

impl Norm {
    /// Returns the norm of a vector.
    #[must_use]
    pub fn of(self, shares: impl Iterator<Item = f64>, weights: &[f64]) -> f64 {
        let weighted = shares.zip(weights).map(|(share, weight)| share * weight);
        match self {
            Self::L1 => weighted.sum(),
            Self::L2 => weighted.map(|share| share * share).sum(),
            Self::Largest => weighted.fold(0.0, f64::max),
        }
    }

    /// Returns the norm of a utilisation vector.
    #[must_use]
    pub fn now(self, utilization: &Utilization, weights: &[f64]) -> f64 {
        self.of(utilization.used().iter().map(|part| part.number()), weights)
    }

    /// Returns the norm of a utilisation vector with one more service. `now` is the norm without it.
    #[must_use]
    pub fn with(self, now: f64, utilization: &Utilization, impact: &Impact, weights: &[f64]) -> f64 {
        utilization.growth(impact).fold(now, |norm, (component, more)| {
            let weight = weights.get(component).copied().unwrap_or_default();
            let before = utilization.used().get(component).map_or(0.0, |part| part.number());
            let (before, after) = (before * weight, (before + more.number()) * weight);
            match self {
                Self::L1 => norm + (after - before),
                Self::L2 => norm + (after * after - before * before),
                Self::Largest => norm.max(after),
            }
        })
    }
}
