//! Measured figure of a benchmark, with the peer's figure and the promise.

mod samples;

use serde::{Deserialize, Serialize};

pub use self::samples::{Quantiles, Samples, Series, Subject, Timeline};

use crate::statistics::{extremes, median, median_ratio};

/// One line of a benchmark's result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Name of the measured case: `forwarding, 64 bytes`.
    pub case: String,
    /// Millrace's figure in `unit`.
    pub ours: f64,
    /// Smallest and largest value of the repetitions whose median is `ours`. `None` if `ours` is not a
    /// median, or if its repetitions are unknown.
    pub spread: Option<[f64; 2]>,
    /// Unit of `ours` and `peer`: `Mpps`, `Gbit/s`, `ms`, `ns/packet`, …
    pub unit: String,
    /// Peer's figure in the same run; `None` without a peer or if the peer is not installed.
    pub peer: Option<f64>,
    /// Smallest and largest value of the repetitions whose median is `peer`; `None` if unknown.
    pub peer_spread: Option<[f64; 2]>,
    /// Name of the peer; `None` without a peer.
    pub peer_name: Option<String>,
    /// Ratio of `ours` to `peer`; `None` without a peer. If runs of Millrace and of the peer alternate, it is
    /// the median of the ratios of run pairs. That median may differ from the ratio of the medians.
    pub ratio: Option<f64>,
    /// Promised limit of `ratio` or of `ours`; `None` without a promise.
    pub limit: Option<f64>,
    /// Whether `limit` limits `ratio`; otherwise it limits `ours`.
    #[serde(default)]
    pub of_ratio: bool,
    /// Whether this run kept the promise. `None` without a promise, or if the promise could not be judged.
    pub holds: Option<bool>,
    /// Subject of `ours`: Millrace, or a reference measured without Millrace.
    #[serde(default, skip_serializing_if = "is_ours")]
    pub subject: Subject,
    /// Subject of `peer`.
    #[serde(default = "a_peer", skip_serializing_if = "is_peer")]
    pub peer_subject: Subject,
    /// Samples from which the figure was computed, if the benchmark keeps them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Quantiles>,
    /// Values over time during the measurement, if the benchmark keeps them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
}

fn a_peer() -> Subject {
    Subject::Peer
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_ours(subject: &Subject) -> bool {
    *subject == Subject::Millrace
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_peer(subject: &Subject) -> bool {
    *subject == Subject::Peer
}

/// Direction of a limit: minimum or maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Minimum, as for throughput: the figure must reach the limit.
    AtLeast,
    /// Maximum, as for times and processor use: the figure must not exceed the limit.
    AtMost,
}

impl Bound {
    fn holds(self, figure: f64, limit: f64) -> bool {
        match self {
            Self::AtLeast => figure >= limit,
            Self::AtMost => figure <= limit,
        }
    }
}

impl Measurement {
    /// Returns a figure of Millrace, without peer and promise.
    pub fn of(case: impl Into<String>, ours: f64, unit: &str) -> Self {
        Self {
            case: case.into(),
            ours,
            unit: unit.to_owned(),
            peer_subject: Subject::Peer,
            ..Self::default()
        }
    }

    /// Returns the median of repetitions, with their smallest and largest value.
    pub fn median_of(case: impl Into<String>, figures: &[f64], unit: &str) -> Self {
        Self::of(case, median(figures), unit).within(figures)
    }

    /// Sets the smallest and largest value from repetitions; changes nothing for an empty list.
    #[must_use]
    pub fn within(mut self, figures: &[f64]) -> Self {
        self.spread = spread(figures);
        self
    }

    /// Sets the smallest and largest value of the peer's repetitions.
    #[must_use]
    pub fn peer_within(mut self, figures: &[f64]) -> Self {
        self.peer_spread = spread(figures);
        self
    }

    /// Sets the peer's figure and the ratio. Changes nothing without a figure of the peer. Sets no ratio if
    /// the peer's figure is 0.
    #[must_use]
    pub fn beside(mut self, peer_name: &str, peer: impl Into<Option<f64>>) -> Self {
        let Some(peer) = peer.into() else { return self };
        self.peer = Some(peer);
        self.peer_name = Some(peer_name.to_owned());
        self.ratio = (peer != 0.0).then(|| self.ours / peer);
        self
    }

    /// Sets the peer's figure to the median of the peer's repetitions, and its spread to their smallest and
    /// largest value.
    #[must_use]
    pub fn beside_runs(self, peer_name: &str, peers: &[f64]) -> Self {
        self.beside(peer_name, median(peers)).peer_within(peers)
    }

    /// Sets the peer's figure from repetitions that alternated with `ours`. The ratio is the median of the
    /// pairs' ratios.
    #[must_use]
    pub fn beside_pairs(self, peer_name: &str, ours: &[f64], peers: &[f64]) -> Self {
        self.beside_runs(peer_name, peers).with_ratio(median_ratio(ours, peers))
    }

    /// Replaces the ratio, for example by the median of the ratios of run pairs.
    #[must_use]
    pub fn with_ratio(mut self, ratio: f64) -> Self {
        self.ratio = Some(ratio);
        self
    }

    /// Sets the subject of `ours`, if it isn't Millrace.
    #[must_use]
    pub fn about(mut self, subject: Subject) -> Self {
        self.subject = subject;
        self
    }

    /// Sets the subject of `peer`, if it isn't another program.
    #[must_use]
    pub fn peer_about(mut self, subject: Subject) -> Self {
        self.peer_subject = subject;
        self
    }

    /// Adds the samples behind the figure.
    #[must_use]
    pub fn with_distribution(mut self, distribution: Quantiles) -> Self {
        self.distribution = Some(distribution);
        self
    }

    /// Adds values over time.
    #[must_use]
    pub fn with_timeline(mut self, timeline: Timeline) -> Self {
        self.timeline = Some(timeline);
        self
    }

    /// Describes a broken promise: the figure and the missed limit. Returns `None` if there is no promise, or
    /// if it is kept.
    pub fn broken_promise(&self) -> Option<String> {
        if self.holds != Some(false) {
            return None;
        }
        let Some(limit) = self.limit else {
            return Some(format!(
                "{}: {} {}, the limit is not known",
                self.case,
                shown(self.ours),
                self.unit
            ));
        };
        let (figure, unit) = match (self.limits_ratio(), self.ratio) {
            (true, Some(ratio)) => {
                (ratio, format!(" times {}", self.peer_name.as_deref().unwrap_or("the peer")))
            }
            _ => (self.ours, format!(" {}", self.unit)),
        };
        // A figure above its limit misses a maximum; a figure below its limit misses a minimum.
        let bound = if figure > limit { "at most" } else { "at least" };
        let (mut said, mut promised) = (shown(figure), shown(limit));
        if said == promised {
            // Both look equal with the digits of a table, so show more digits.
            (said, promised) = (format!("{figure:.6}"), format!("{limit:.6}"));
        }
        Some(format!("{}: {said}{unit}, promised {bound} {promised}", self.case))
    }

    /// Whether the limit bounds the ratio to the peer's figure, and not `ours`.
    pub fn limits_ratio(&self) -> bool {
        self.limit.is_some() && self.of_ratio
    }

    /// Sets the promised limit of the ratio, and checks it. Does nothing if `limit` is `None`. If the
    /// measurement has no ratio, the promise is not judged.
    #[must_use]
    pub fn promising_ratio(mut self, bound: Bound, limit: impl Into<Option<f64>>) -> Self {
        let Some(limit) = limit.into() else { return self };
        self.limit = Some(limit);
        self.of_ratio = true;
        self.holds = self.ratio.map(|ratio| bound.holds(ratio, limit));
        self
    }

    /// Sets the promised limit of `ours`, and checks it. Does nothing if `limit` is `None`.
    #[must_use]
    pub fn promising(mut self, bound: Bound, limit: impl Into<Option<f64>>) -> Self {
        let Some(limit) = limit.into() else { return self };
        self.limit = Some(limit);
        self.of_ratio = false;
        self.holds = Some(bound.holds(self.ours, limit));
        self
    }
}

/// Formats a figure for people, with at least three significant digits.
pub fn shown(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        small if small >= 1.0 || small == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn spread(figures: &[f64]) -> Option<[f64; 2]> {
    let (least, most) = extremes(figures);
    (!figures.is_empty()).then_some([least, most])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_compared_with_the_limit_on_the_configured_side() {
        let faster = Measurement::of("x", 9.0, "Mpps").beside("peer", 10.0);
        assert_eq!(faster.ratio, Some(0.9));
        assert_eq!(faster.clone().promising_ratio(Bound::AtLeast, 0.9).holds, Some(true));
        assert_eq!(faster.clone().promising_ratio(Bound::AtLeast, 0.91).holds, Some(false));
        assert_eq!(faster.promising_ratio(Bound::AtMost, 2.0).holds, Some(true));
    }

    #[test]
    fn without_a_peer_a_promised_ratio_is_not_judged() {
        let alone = Measurement::of("x", 9.0, "Mpps").promising_ratio(Bound::AtLeast, 0.9);
        assert_eq!((alone.limit, alone.holds), (Some(0.9), None));
        let idle = Measurement::of("x", 9.0, "Mpps").beside("peer", 0.0).promising_ratio(Bound::AtLeast, 0.9);
        assert_eq!((idle.ratio, idle.holds), (None, None));
    }

    #[test]
    fn median_has_a_spread() {
        let measured = Measurement::median_of("x", &[3.0, 1.0, 2.0], "ns");
        assert_eq!((measured.ours, measured.spread), (2.0, Some([1.0, 3.0])));
        assert_eq!(Measurement::of("x", 1.0, "ns").within(&[]).spread, None);
    }

    #[test]
    fn figure_is_compared_with_its_limit() {
        assert_eq!(Measurement::of("gap", 50.0, "ms").promising(Bound::AtMost, 50.0).holds, Some(true));
        assert_eq!(Measurement::of("gap", 50.1, "ms").promising(Bound::AtMost, 50.0).holds, Some(false));
    }

    #[test]
    fn missed_target_is_reported_with_its_side() {
        let slow = Measurement::of("gap, forth", 61.25, "ms").promising(Bound::AtMost, 50.0);
        assert_eq!(slow.broken_promise().unwrap(), "gap, forth: 61.2 ms, promised at most 50.0");
        let ratio = Measurement::of("rate", 9.0, "Mpps").beside("kernel", 10.0);
        let ratio = ratio.promising_ratio(Bound::AtLeast, 2.0);
        assert_eq!(ratio.broken_promise().unwrap(), "rate: 0.900 times kernel, promised at least 2.00");
        let close = Measurement::of("gap", 50.01, "ms").promising(Bound::AtMost, 50.0);
        assert_eq!(close.broken_promise().unwrap(), "gap: 50.010000 ms, promised at most 50.000000");
        assert_eq!(Measurement::of("gap", 1.0, "ms").promising(Bound::AtMost, 50.0).broken_promise(), None);
        assert_eq!(Measurement::of("gap", 1.0, "ms").broken_promise(), None);
    }

    #[test]
    fn samples_are_kept_in_json_and_absent_where_there_are_none() {
        let plain = Measurement::of("delay", 1.0, "ms");
        let text = serde_json::to_string(&plain).unwrap();
        for key in ["subject", "distribution", "timeline"] {
            assert!(!text.contains(key), "{text}");
        }
        let kept = plain
            .about(Subject::Generator)
            .peer_about(Subject::Generator)
            .with_distribution(Quantiles::of("delay, ms").with(Subject::Millrace, "Millrace", &[1.0, 2.0]))
            .with_timeline(Timeline::of("rate, Mb/s").with(Subject::Peer, "HTB", &[[0.0, 1.5]]));
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<Measurement>(&text).unwrap(), kept);
    }
}
