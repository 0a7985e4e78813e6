//! Medians and extremes of a few repetitions.

/// Returns the median of some figures; for an even number, the mean of the two middle figures. Returns 0
/// without figures.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.as_slice() {
        [] => 0.0,
        sorted if sorted.len() % 2 == 1 => sorted[sorted.len() / 2],
        sorted => f64::midpoint(sorted[sorted.len() / 2 - 1], sorted[sorted.len() / 2]),
    }
}

/// Returns the ratio of each figure to the figure at the same index in `beside`.
pub(crate) fn ratios(figures: &[f64], beside: &[f64]) -> Vec<f64> {
    figures.iter().zip(beside).map(|(figure, other)| figure / other).collect()
}

/// Returns the median of the [`ratios`].
pub(crate) fn median_ratio(figures: &[f64], beside: &[f64]) -> f64 {
    median(&ratios(figures, beside))
}

/// Returns the smallest and the largest figure. Both are 0 without figures.
pub(crate) fn extremes(figures: &[f64]) -> (f64, f64) {
    let least = figures.iter().copied().min_by(f64::total_cmp);
    let most = figures.iter().copied().max_by(f64::total_cmp);
    (least.unwrap_or(0.0), most.unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(&[3.0, 1.0, 100.0]), 3.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), 3.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn extremes_are_the_ends() {
        assert_eq!(extremes(&[3.0, 1.0, 100.0]), (1.0, 100.0));
    }
}
