//! Checks of service curves: the curves of one class, and a sum of curves against a limit.

use super::super::{GuaranteeLimit, ScheduleError};
use crate::link::hfsc::{Curve, Curves};
use crate::{NodeId, Rate};

/// Nanobits per byte: 8 bits times 10^9. The product of a slope (bits per second) and a time (nanoseconds) is
/// in nanobits.
const NANOBITS: i128 = 8_000_000_000;

/// Checks the curves of a class, without regard to other classes.
pub(crate) fn check_curves(node: NodeId, curves: &Curves, is_inner: bool) -> Result<(), ScheduleError> {
    let refuse = |text: &str| Err(ScheduleError::Settings { node, text: text.to_owned() });
    if is_inner && curves.real_time.is_some() {
        return refuse(
            "a class with children can't have a real-time curve: only leaf classes have guarantees",
        );
    }
    if is_inner && curves.link_sharing.is_none() {
        return refuse("a class with children needs a link-sharing curve");
    }
    if curves.real_time.is_none() && curves.link_sharing.is_none() {
        return refuse("a class needs a real-time or a link-sharing curve, or both");
    }
    if curves.upper_limit.is_some() && curves.link_sharing.is_none() {
        return refuse("an upper-limit curve needs a link-sharing curve");
    }
    for (name, curve) in named(curves) {
        if curve.then.0 == 0 {
            let text =
                format!("the second slope of its {name} curve must be above 0, or the class would stop");
            return Err(ScheduleError::Settings { node, text });
        }
    }
    if let (Some(real_time), Some(limit)) = (curves.real_time, curves.upper_limit) {
        check_sum(node, vec![real_time], limit, GuaranteeLimit::OwnUpperLimit)?;
    }
    Ok(())
}

fn named(curves: &Curves) -> impl Iterator<Item = (&'static str, Curve)> {
    let all = [
        ("real-time", curves.real_time),
        ("link-sharing", curves.link_sharing),
        ("upper-limit", curves.upper_limit),
    ];
    all.into_iter().filter_map(|(name, curve)| Some((name, curve?)))
}

/// Checks that the sum of `curves` never exceeds `limit`. All curves are piecewise linear, so the check
/// covers each point where a curve bends, and the slopes after the last point.
pub(super) fn check_sum(
    node: NodeId,
    mut curves: Vec<Curve>,
    limit: Curve,
    kind: GuaranteeLimit,
) -> Result<(), ScheduleError> {
    curves.sort_by_key(|curve| curve.duration);
    let mut sum = Sum::default();
    for curve in &curves {
        sum.first += i128::from(curve.first.0);
    }
    let refusal = |sum: &Sum, time: u64, long_run: i128| ScheduleError::RealTimeSum {
        node,
        promised: u64::try_from((sum.at(time) + NANOBITS - 1) / NANOBITS).unwrap_or(u64::MAX),
        time,
        long_run: Rate(u64::try_from(long_run).unwrap_or(u64::MAX)),
        limit: kind.clone(),
        available: limit.bytes_after(time),
        rate: limit.then,
    };
    let long_run: i128 = curves.iter().map(|curve| i128::from(curve.then.0)).sum();
    let most = |time: u64| nanobits(&limit, time);
    let mut bent = limit.duration == 0;
    for curve in &curves {
        if !bent && limit.duration <= curve.duration {
            bent = true;
            if sum.at(limit.duration) > most(limit.duration) {
                return Err(refusal(&sum, limit.duration, long_run));
            }
        }
        if sum.at(curve.duration) > most(curve.duration) {
            return Err(refusal(&sum, curve.duration, long_run));
        }
        sum.bend(curve);
    }
    let late = limit.duration.max(curves.last().map_or(0, |curve| curve.duration));
    if sum.at(late) > most(late) {
        return Err(refusal(&sum, late, long_run));
    }
    if long_run > i128::from(limit.then.0) {
        return Err(refusal(&sum, late.saturating_add(1_000_000_000), long_run));
    }
    Ok(())
}

fn nanobits(curve: &Curve, time: u64) -> i128 {
    let first = time.min(curve.duration);
    i128::from(curve.first.0) * i128::from(first) + i128::from(curve.then.0) * i128::from(time - first)
}

/// Sum of several curves as a function of time: a constant and slopes, in nanobits.
#[derive(Default)]
struct Sum {
    constant: i128,
    /// Sum of the slopes of the curves that are in their first piece.
    first: i128,
    /// Sum of the slopes of the curves that are in their second piece.
    then: i128,
}

impl Sum {
    fn at(&self, time: u64) -> i128 {
        self.constant.saturating_add((self.first + self.then).saturating_mul(time.into()))
    }

    /// Moves the slope of a curve from `first` to `then`, at the time at which the curve bends.
    fn bend(&mut self, curve: &Curve) {
        let (first, then) = (i128::from(curve.first.0), i128::from(curve.then.0));
        self.first -= first;
        self.then += then;
        self.constant = self.constant.saturating_add((first - then).saturating_mul(curve.duration.into()));
    }
}

/// Checks that no slope of a class's curves exceeds the rate that serves the class's scheduler.
pub(super) fn check_slopes(node: NodeId, curves: &Curves, available: Rate) -> Result<(), ScheduleError> {
    for (name, curve) in named(curves) {
        let slope = if curve.duration > 0 { curve.first.max(curve.then) } else { curve.then };
        if slope > available {
            return Err(ScheduleError::CurveAboveLink { node, curve: name, slope, available });
        }
    }
    Ok(())
}
