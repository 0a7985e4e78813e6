//! Shares of a component in whole units, so that sums are exact in any order.

use std::fmt;

/// Share of a component's capacity: a whole number of 10⁻¹² of it. 1 is the whole component.
///
/// Sums of shares are associative and commutative without a rest, which V9 of VERA (section 4.4.1) demands of
/// utilisation vectors: what is removed leaves no trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part(u64);

impl Part {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The whole component.
    pub const WHOLE: Self = Self(1_000_000_000_000);
    /// Largest share of one service: a thousand times the component, which fits no bounded component.
    pub const LARGEST: Self = Self(1_000 * Self::WHOLE.0);
    /// Limit of a component that nothing bounds.
    pub const UNBOUNDED: Self = Self(u64::MAX);

    /// Returns the smallest share of at least `value`, at most [`Part::LARGEST`]. Negative values and values
    /// that are no number count as nothing.
    #[must_use]
    pub fn at_least(value: f64) -> Self {
        let units = (value * Self::WHOLE.0 as f64).ceil();
        // The conversion saturates: negative values and NaN become 0.
        Self((units as u64).min(Self::LARGEST.0))
    }

    /// Returns the share as a number, 1 for the whole component; infinite for [`Part::UNBOUNDED`].
    #[must_use]
    pub fn number(self) -> f64 {
        if self == Self::UNBOUNDED { f64::INFINITY } else { self.0 as f64 / Self::WHOLE.0 as f64 }
    }

    /// Returns the sum; `None` where it exceeds the largest number.
    #[must_use]
    pub fn plus(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// Returns the difference; 0 where `other` is larger.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::UNBOUNDED {
            f.pad("unbounded")
        } else {
            write!(f, "{:.2} %", self.number() * 100.0)
        }
    }
}
