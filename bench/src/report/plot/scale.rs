//! Axes of plots: positions of figures, and round numbers as ticks.

/// Ratio of the largest to the smallest figure above which the axis is logarithmic.
const LINEAR: f64 = 60.0;
/// Approximate number of steps on a linear axis.
const STEPS: f64 = 6.0;
const LOGARITHMIC_TICKS: usize = 8;

/// Axis of a plot, between two round numbers.
#[derive(Debug, PartialEq)]
pub(super) struct Scale {
    /// Whether the axis is logarithmic.
    pub logarithmic: bool,
    /// Smallest and largest value on the axis.
    pub ends: [f64; 2],
    /// Round numbers on the axis, ascending.
    pub ticks: Vec<f64>,
    decimals: usize,
}

impl Scale {
    /// Returns an axis for the figures. The axis is logarithmic if the ratio of the largest to the smallest
    /// figure exceeds [`LINEAR`], and no figure is negative.
    pub fn of(figures: &[f64]) -> Self {
        let positive = figures.iter().copied().filter(|figure| figure.is_finite() && *figure > 0.0);
        let (least, most) = positive
            .fold((f64::INFINITY, 0.0_f64), |(least, most), figure| (least.min(figure), most.max(figure)));
        let has_negative = figures.iter().any(|figure| *figure < 0.0);
        if most > LINEAR * least && !has_negative {
            Self::logarithmic(least, most)
        } else {
            Self::linear(figures)
        }
    }

    /// Returns a linear axis that contains 0 and the figures.
    pub fn linear(figures: &[f64]) -> Self {
        let finite = figures.iter().copied().filter(|figure| figure.is_finite());
        let (least, most) =
            finite.fold((0.0_f64, 0.0_f64), |(least, most), figure| (least.min(figure), most.max(figure)));
        let most = if least == most { 1.0 } else { most };
        let step = round_up((most - least) / STEPS);
        // The margin absorbs rounding errors: 3.0000004 steps must not become 4.
        let (first, last) = ((least / step + 1e-6).floor() as i64, (most / step - 1e-6).ceil() as i64);
        let ticks: Vec<f64> = (first..=last).map(|number| number as f64 * step).collect();
        Self {
            logarithmic: false,
            ends: [first as f64 * step, last as f64 * step],
            ticks,
            decimals: decimals(step),
        }
    }

    fn logarithmic(least: f64, most: f64) -> Self {
        // Start below the smallest figure, so that its bar is visible.
        let ends = [round_down(least / 1.5), round_up(most)];
        let within = |tick: &f64| *tick >= ends[0] * 0.999 && *tick <= ends[1] * 1.001;
        let powers = ends[0].log10().floor() as i32..=ends[1].log10().ceil() as i32;
        let mut ticks: Vec<f64> = powers.clone().map(|power| 10_f64.powi(power)).filter(within).collect();
        if ticks.len() <= 3 {
            let all = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
            ticks = all.filter(within).collect();
        }
        let every = ticks.len().div_ceil(LOGARITHMIC_TICKS + 2).max(1);
        let ticks: Vec<f64> = ticks.into_iter().step_by(every).collect();
        let decimals = ticks.first().map_or(0, |tick| decimals(*tick));
        Self { logarithmic: true, ends, ticks, decimals }
    }

    /// Returns the position of a figure on the axis, from 0 to 1.
    pub fn place(&self, figure: f64) -> f64 {
        let [least, most] = self.ends;
        let part = if !self.logarithmic {
            (figure - least) / (most - least)
        } else if figure > 0.0 {
            (figure / least).ln() / (most / least).ln()
        } else {
            0.0
        };
        if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
    }

    /// Formats a tick without superfluous decimals, with thousands separators.
    pub fn text(&self, tick: f64) -> String {
        let decimals = if self.logarithmic { decimals(tick) } else { self.decimals };
        let text = format!("{:.decimals$}", tick.abs());
        let (whole, fraction) =
            text.split_once('.').map_or((&*text, None), |(whole, part)| (whole, Some(part)));
        let mut grouped = String::new();
        for (index, digit) in whole.chars().enumerate() {
            if index > 0 && (whole.len() - index).is_multiple_of(3) && whole.len() > 4 {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        let sign = if tick < 0.0 { "-" } else { "" };
        let fraction = fraction.map(|fraction| format!(".{fraction}")).unwrap_or_default();
        format!("{sign}{grouped}{fraction}")
    }
}

/// Returns the smallest round number that is at least `figure`. Round numbers are 1, 2 or 5 times a power of
/// ten; `figure` is positive.
fn round_up(figure: f64) -> f64 {
    let power = 10_f64.powf(figure.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= figure * (1.0 - 1e-9));
    digit.unwrap_or(10.0) * power
}

/// Returns the largest round number that is at most `figure`. Round numbers are 1, 2 or 5 times a power of
/// ten; `figure` is positive.
fn round_down(figure: f64) -> f64 {
    let power = 10_f64.powf(figure.log10().floor());
    let digit = [5.0, 2.0].into_iter().find(|digit| digit * power <= figure * (1.0 + 1e-9));
    digit.unwrap_or(1.0) * power
}

/// Returns the number of decimals that a round number needs.
fn decimals(round: f64) -> usize {
    if round >= 1.0 || round <= 0.0 { 0 } else { (-round.log10() - 1e-9).ceil() as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: &Scale) -> Vec<String> {
        scale.ticks.iter().map(|tick| scale.text(*tick)).collect()
    }

    #[test]
    fn ticks_of_a_linear_axis_are_round_and_cover_all_figures() {
        assert_eq!(texts(&Scale::of(&[3.1, 14.2])), ["0", "5", "10", "15"]);
        assert_eq!(texts(&Scale::of(&[0.031, 0.142])), ["0.00", "0.05", "0.10", "0.15"]);
        assert_eq!(texts(&Scale::of(&[12_345.0])), ["0", "5000", "10,000", "15,000"]);
        assert_eq!(texts(&Scale::of(&[-3.0, 4.0])), ["-4", "-2", "0", "2", "4"]);
        // A figure of 0 alone has an axis, too.
        assert_eq!(Scale::of(&[0.0]).ends, [0.0, 1.0]);
        assert_eq!(Scale::of(&[]).ends, [0.0, 1.0]);
    }

    #[test]
    fn ticks_of_a_logarithmic_axis_are_powers_of_ten_or_round() {
        let wide = Scale::of(&[0.5, 700_000.0]);
        assert!(wide.logarithmic);
        assert_eq!(texts(&wide), ["1", "10", "100", "1000", "10,000", "100,000", "1,000,000"]);
        assert_eq!(texts(&Scale::of(&[2.0, 150.0])), ["1", "2", "5", "10", "20", "50", "100", "200"]);
        assert_eq!(texts(&Scale::of(&[0.02, 2.0]))[..3], ["0.01", "0.02", "0.05"]);
    }

    #[test]
    fn places_follow_figures_or_their_logarithm() {
        let linear = Scale::of(&[10.0, 20.0]);
        assert_eq!([0.0, 10.0, 20.0, 30.0].map(|figure| linear.place(figure)), [0.0, 0.5, 1.0, 1.0]);
        let wide = Scale::of(&[1.5, 1000.0]);
        assert_eq!(wide.ends, [1.0, 1000.0]);
        assert!((wide.place(10.0) - 1.0 / 3.0).abs() < 1e-9 && wide.place(0.0) == 0.0);
    }
}
