//! Impairment of the packets on a link.

use serde::{Deserialize, Serialize};

/// Delay, loss and damage of packets on a link. The port of the Millrace router at one end causes them, by
/// its `impair` settings with the same keys. The kernel's emulation (netem) is not used, since many machines
/// lack its module. Shares are from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Impairment {
    /// Delay of every packet, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<f64>,
    /// Maximum random deviation from the delay, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<f64>,
    /// Share of packets that are lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Share of packets that arrive twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<f64>,
    /// Share of packets that overtake an earlier packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<f64>,
    /// Share of packets that arrive with one bit changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<f64>,
    /// Seed of the random numbers. With the same seed, the same packets are affected in the same way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl Impairment {
    /// Describes a value that is out of range, with its valid range; returns `None` if all values are valid.
    pub(crate) fn objection(&self) -> Option<String> {
        let ratios = [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ];
        let times = [("delay-ms", self.delay_ms), ("jitter-ms", self.jitter_ms)];
        outside(&ratios, 1.0, "a fraction from 0 to 1")
            .or_else(|| outside(&times, 60_000.0, "0 to 60000 milliseconds"))
    }
}

fn outside(values: &[(&str, Option<f64>)], most: f64, right: &str) -> Option<String> {
    values.iter().find_map(|(name, value)| {
        let value = value.filter(|value| !(0.0..=most).contains(value))?;
        Some(format!("{name} must be {right}, not {value}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_named() {
        let loss = Impairment { loss: Some(1.5), ..Impairment::default() };
        assert_eq!(loss.objection().as_deref(), Some("loss must be a fraction from 0 to 1, not 1.5"));
        let delay = Impairment { delay_ms: Some(-1.0), ..Impairment::default() };
        let problem = "delay-ms must be 0 to 60000 milliseconds, not -1";
        assert_eq!(delay.objection().as_deref(), Some(problem));
        let nan = Impairment { corrupt: Some(f64::NAN), ..Impairment::default() };
        assert!(nan.objection().is_some());
        let good = Impairment { loss: Some(1.0), jitter_ms: Some(0.0), ..Impairment::default() };
        assert_eq!(good.objection(), None);
    }
}
