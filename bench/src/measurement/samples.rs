//! Samples behind a figure: a distribution, and values over time.

use serde::{Deserialize, Serialize};

/// Maximum number of values per curve of a distribution. The smallest and the largest sample are always kept.
const MOST_VALUES: usize = 500;
/// Number of significant digits of a kept value.
const DIGITS: i32 = 5;

/// Subject of a figure or of samples: what was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// Millrace.
    #[default]
    Millrace,
    /// Peer program or reference.
    Peer,
    /// Traffic generator and receiver, without a router between them.
    Generator,
}

/// Quantiles of one quantity, for the plot of its cumulative distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Quantity and unit: `delay, ms`.
    pub quantity: String,
    /// Samples, one entry per curve.
    pub curves: Vec<Samples>,
}

/// Samples of one subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    /// Subject of the samples.
    pub subject: Subject,
    /// Name in the legend.
    pub name: String,
    /// Values in ascending order, at equal intervals in rank.
    pub values: Vec<f64>,
}

/// Values of one quantity over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Quantity and unit: `rate, Mb/s`.
    pub quantity: String,
    /// Values, one entry per curve.
    pub curves: Vec<Series>,
}

/// Values of one subject over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Subject of the values.
    pub subject: Subject,
    /// Name in the legend.
    pub name: String,
    /// Points in order of time: seconds, and value.
    pub points: Vec<[f64; 2]>,
}

impl Quantiles {
    /// Returns quantiles of a quantity, without curves yet.
    pub fn of(quantity: &str) -> Self {
        Self { quantity: quantity.to_owned(), curves: Vec::new() }
    }

    /// Adds a curve with the samples of a subject, thinned to 500 values at equal distances in rank. Adds
    /// nothing if there are no samples.
    #[must_use]
    pub fn with(mut self, subject: Subject, name: &str, samples: &[f64]) -> Self {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (kept, last) = (sorted.len().min(MOST_VALUES), sorted.len().saturating_sub(1));
        let value = |index: usize| rounded(sorted[index * last / (kept - 1).max(1)]);
        let values: Vec<f64> = (0..kept).map(value).collect();
        if !values.is_empty() {
            self.curves.push(Samples { subject, name: name.to_owned(), values });
        }
        self
    }
}

impl Timeline {
    /// Returns a timeline of a quantity, without curves yet.
    pub fn of(quantity: &str) -> Self {
        Self { quantity: quantity.to_owned(), curves: Vec::new() }
    }

    /// Adds a curve with the points of a subject. Adds nothing if there are no points.
    #[must_use]
    pub fn with(mut self, subject: Subject, name: &str, points: &[[f64; 2]]) -> Self {
        let points: Vec<[f64; 2]> = points.iter().map(|point| point.map(rounded)).collect();
        if !points.is_empty() {
            self.curves.push(Series { subject, name: name.to_owned(), points });
        }
        self
    }
}

/// Rounds a value to five significant digits.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = (DIGITS - 1 - value.abs().log10().floor() as i32).clamp(0, 15) as usize;
    format!("{value:.digits$}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_keeps_order_extremes_and_ranks_of_many_samples() {
        let samples: Vec<f64> = (0..10_001).rev().map(f64::from).collect();
        let kept = Quantiles::of("delay, ms").with(Subject::Millrace, "Millrace", &samples);
        let values = &kept.curves[0].values;
        assert_eq!((values.len(), values[0], values[MOST_VALUES - 1]), (MOST_VALUES, 0.0, 10_000.0));
        assert!(values.is_sorted());
        assert!((values[MOST_VALUES / 2] - 5000.0).abs() < 30.0, "{}", values[MOST_VALUES / 2]);
    }

    #[test]
    fn few_samples_are_all_kept_and_none_make_no_curve() {
        let few = Quantiles::of("delay, ms").with(Subject::Peer, "HTB", &[2.0, 1.0, f64::NAN]);
        assert_eq!(few.curves[0].values, [1.0, 2.0]);
        assert_eq!(Quantiles::of("x").with(Subject::Peer, "one", &[3.0]).curves[0].values, [3.0]);
        assert!(Quantiles::of("x").with(Subject::Peer, "none", &[]).curves.is_empty());
        assert!(Timeline::of("x").with(Subject::Peer, "none", &[]).curves.is_empty());
    }

    #[test]
    fn values_keep_five_digits() {
        assert_eq!(
            [1.0 / 3.0, 123_456.789, 0.0, -1.234_567].map(rounded),
            [0.333_33, 123_457.0, 0.0, -1.2346]
        );
    }
}
