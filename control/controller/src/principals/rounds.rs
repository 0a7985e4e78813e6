//! Rounds of the division of shares over workers: each reads the work of all principals, and tells the workers
//! their new parts.

use std::collections::BTreeMap;
use std::time::Instant;

use millrace_pipeline::{PrincipalCommand, PrincipalSettings};
use millrace_schedule::cpu::{CpuPrincipal, CpuSchedulerSettings, CpuShare};
use millrace_units::{Cycles, PrincipalId};

use super::division::{Claim, Demand, Division};
use crate::ControlError;
use crate::workers::Workers;

/// Parts per million in a whole processor.
const WHOLE: f64 = 1e6;
/// Smallest changes of a part that are sent to a worker: relative, and in parts per million of a processor.
const LEAST_CHANGE: (f64, f64) = (0.05, 200.0);

/// Division of the shares over the workers.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    division: Division,
    /// Time of the last round.
    last: Option<Instant>,
    /// Cycles that each principal had used at each worker in the last round.
    used: BTreeMap<PrincipalId, Vec<u64>>,
    /// Parts that differ from the equal ones, by worker.
    told: BTreeMap<(usize, PrincipalId), CpuPrincipal>,
}

impl Rounds {
    /// Divides the shares of these principals by their work since the last round.
    ///
    /// # Errors
    /// A worker takes no commands.
    pub fn next<'a>(
        &mut self,
        payers: impl Iterator<Item = (&'a PrincipalId, &'a PrincipalSettings)>,
        scheduler: &CpuSchedulerSettings,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        let now = Instant::now();
        let Some(last) = self.last.replace(now) else { return Ok(()) };
        let cycles = (now - last).as_secs_f64() * scheduler.frequency as f64;
        let count = workers.len();
        let (mut demands, mut equal) = (Vec::new(), BTreeMap::new());
        for (id, settings) in payers {
            let now: Vec<_> = (0..count).map(|worker| workers.get(worker).loads().of(*id)).collect();
            let before = self.used.insert(*id, now.iter().map(|(Cycles(used), _)| *used).collect());
            let before = before.unwrap_or_else(|| now.iter().map(|(Cycles(used), _)| *used).collect());
            let demand = |((Cycles(used), waiting), before): (&(Cycles, u32), &u64)| Demand {
                used: used.saturating_sub(*before) as f64 / cycles.max(1.0) * WHOLE,
                is_backlogged: *waiting > 0,
            };
            let claim = match settings.cpu.share {
                CpuShare::Absolute(share) if settings.cpu.deadline.is_some() => {
                    Claim::Firm(f64::from(share) * count as f64)
                }
                CpuShare::Absolute(share) => Claim::Reserved(f64::from(share) * count as f64),
                CpuShare::Weight(weight) => Claim::Weight(weight.into()),
            };
            demands.push((*id, claim, now.iter().zip(&before).map(demand).collect()));
            equal.insert(*id, settings.cpu);
        }
        self.used.retain(|id, _| equal.contains_key(id));
        self.told.retain(|(_, id), _| equal.contains_key(id));
        self.division.divide(demands, scheduler.capacity.into());
        (0..count).try_for_each(|worker| self.tell(worker, &equal, workers))
    }

    /// Tells a worker the parts that have changed enough. If a reserved part grows, tells all reserved ones that
    /// shrink, because it may need what they leave.
    fn tell(
        &mut self,
        worker: usize,
        equal: &BTreeMap<PrincipalId, CpuPrincipal>,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        let (mut changes, mut shrinking, mut grows) = (Vec::new(), Vec::new(), false);
        for (id, parts) in self.division.parts() {
            let Some(equal) = equal.get(&id) else { continue };
            let told = self.told.get(&(worker, id));
            let new = part_of(equal, parts, worker);
            let old = told.unwrap_or(equal);
            if new == *old {
                continue;
            }
            let is_reserved = matches!(new.share, CpuShare::Absolute(_));
            let growth = amount(&new) - amount(old);
            // Weights of an equal division are in other units.
            if is_enough(amount(old), growth) || !is_reserved && told.is_none() {
                grows |= is_reserved && growth > 0.0;
                changes.push((id, growth, new));
            } else if is_reserved && growth < 0.0 {
                shrinking.push((id, growth, new));
            }
        }
        if grows {
            changes.append(&mut shrinking);
        }
        if changes.is_empty() {
            return Ok(());
        }
        // Parts that shrink come first.
        changes.sort_by(|(_, one, _), (_, other, _)| one.total_cmp(other));
        let changes: Vec<_> = changes.into_iter().map(|(id, _, cpu)| (id, cpu)).collect();
        self.told.extend(changes.iter().map(|(id, cpu)| ((worker, *id), *cpu)));
        workers.get(worker).tell(PrincipalCommand::Share(changes))
    }

    /// Returns to equal parts. `equal`: settings with an equal part of each principal at a worker.
    ///
    /// # Errors
    /// A worker takes no commands.
    pub fn end(
        &mut self,
        equal: &BTreeMap<PrincipalId, PrincipalSettings>,
        workers: &mut Workers,
    ) -> Result<(), ControlError> {
        self.division = Division::default();
        self.last = None;
        let told = std::mem::take(&mut self.told).into_iter();
        let mut back: Vec<_> = told
            .filter_map(|((worker, id), old)| {
                let cpu = equal.get(&id)?.cpu;
                Some((worker, id, amount(&cpu) - amount(&old), cpu))
            })
            .collect();
        back.sort_by(|(_, _, one, _), (_, _, other, _)| one.total_cmp(other));
        (0..workers.len()).try_for_each(|worker| {
            let here = back.iter().filter(|(at, ..)| *at == worker);
            let shares: Vec<_> = here.map(|(_, id, _, cpu)| (*id, *cpu)).collect();
            match shares.is_empty() {
                true => Ok(()),
                false => workers.get(worker).tell(PrincipalCommand::Share(shares)),
            }
        })
    }
}

/// Returns the settings of a principal at a worker. `equal`: its settings with an equal part.
fn part_of(equal: &CpuPrincipal, parts: &[f64], worker: usize) -> CpuPrincipal {
    let (part, sum) = (parts.get(worker).copied().unwrap_or_default(), parts.iter().sum::<f64>().max(1.0));
    // The sum of the parts must not exceed the worker's capacity, so they are rounded down.
    let whole = (part as u32).clamp(1, WHOLE as u32);
    let share = match equal.share {
        CpuShare::Absolute(_) => CpuShare::Absolute(whole),
        CpuShare::Weight(_) => CpuShare::Weight(whole),
    };
    let least = if matches!(share, CpuShare::Absolute(_)) { whole } else { 1 };
    let limit = equal.limit.map(|limit| f64::from(limit) * parts.len() as f64 * part / sum);
    CpuPrincipal { share, limit: limit.map(|limit| (limit as u32).max(least)), ..*equal }
}

/// Whether a part changed enough to tell a worker.
fn is_enough(before: f64, growth: f64) -> bool {
    let (relative, absolute) = LEAST_CHANGE;
    growth.abs() > (relative * before).max(absolute)
}

/// Returns the size of a part: parts per million of a processor, or a weight.
fn amount(cpu: &CpuPrincipal) -> f64 {
    match cpu.share {
        CpuShare::Absolute(amount) | CpuShare::Weight(amount) => amount.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_a_share_has_its_part_of_the_limit() {
        let equal = CpuPrincipal { share: CpuShare::Absolute(100_000), limit: Some(150_000), deadline: None };
        let part = |parts: &[f64], worker| part_of(&equal, parts, worker);
        let cpu =
            |share, limit| CpuPrincipal { share: CpuShare::Absolute(share), limit: Some(limit), ..equal };
        assert_eq!(part(&[200_000.0, 0.0], 0), cpu(200_000, 300_000));
        assert_eq!(part(&[200_000.0, 0.0], 1), cpu(1, 1));
        assert_eq!(part(&[150_000.9, 50_000.0], 1), cpu(50_000, 74_999));
        let weight = CpuPrincipal { share: CpuShare::Weight(3), limit: None, deadline: None };
        assert_eq!(part_of(&weight, &[40.7, 0.0], 0).share, CpuShare::Weight(40));
        assert_eq!(part_of(&weight, &[40.7, 0.0], 1).share, CpuShare::Weight(1));
    }
}
