//! Division of shares over several workers: a principal gets its share where its packets are.
//!
//! A share is of the router. Each worker gets the part that the principal lacks: its share, less what it used
//! at the other workers. So a principal whose flows are all at one worker has its whole share there, and time
//! that nobody else wants at one worker leaves more to others at the other ones. A part changes by half of
//! the difference in each round, because all parts of a principal change together. A principal with a deadline
//! always keeps an equal part at each worker, because its packets can't wait for the next round.

use std::collections::BTreeMap;

use millrace_units::PrincipalId;

/// Part of an equal division that a principal keeps at a worker without work, so that work which begins there
/// isn't stuck until the next round.
const KEPT: f64 = 1.0 / 32.0;
/// Reserve for a principal whose work at a worker grows.
const GROWTH: f64 = 1.25;
/// Weight of the last round in the measured use.
const LATEST: f64 = 0.3;

/// Work of a principal at a worker in the last round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    /// Processor time used, in parts per million of a processor.
    pub used: f64,
    /// Whether packets wait.
    pub is_backlogged: bool,
}

/// Principal whose share is divided.
#[derive(Clone, Copy, Debug)]
pub(super) enum Claim {
    /// Reserved share of the router, in parts per million of a processor.
    Reserved(f64),
    /// Reserved share of a principal with a deadline: at least an equal part at each worker.
    Firm(f64),
    /// Weight in what reserved shares leave.
    Weight(f64),
}

/// Parts of each principal at the workers.
#[derive(Debug, Default)]
pub(super) struct Division {
    principals: BTreeMap<PrincipalId, Parts>,
}

#[derive(Clone, Debug)]
struct Parts {
    /// Parts per million of a processor at each worker.
    parts: Vec<f64>,
    /// Measured use at each worker, averaged over some rounds.
    used: Vec<f64>,
    demands: Vec<Demand>,
}

impl Division {
    /// Divides shares anew. `demands`: work of each principal at each worker; `capacity`: parts per million of
    /// each worker that reserved shares may take.
    pub fn divide(&mut self, demands: Vec<(PrincipalId, Claim, Vec<Demand>)>, capacity: f64) {
        let claims: BTreeMap<_, _> = demands.iter().map(|(id, claim, _)| (*id, *claim)).collect();
        self.principals.retain(|id, _| claims.contains_key(id));
        for (id, claim, demands) in demands {
            let equal = match claim {
                Claim::Reserved(share) | Claim::Firm(share) => share / demands.len() as f64,
                Claim::Weight(_) => 0.0,
            };
            let new = || Parts {
                parts: vec![equal; demands.len()],
                used: vec![0.0; demands.len()],
                demands: Vec::new(),
            };
            let parts = self.principals.entry(id).or_insert_with(new);
            for (used, demand) in parts.used.iter_mut().zip(&demands) {
                *used += LATEST * (demand.used - *used);
            }
            parts.demands = demands;
        }
        let shares = self.shares_by_weight(&claims);
        for (id, parts) in &mut self.principals {
            match claims.get(id) {
                Some(Claim::Reserved(share)) => parts.follow(*share, KEPT),
                Some(Claim::Firm(share)) => parts.follow(*share, 1.0),
                Some(Claim::Weight(weight)) => parts.follow(weight * shares, KEPT),
                None => {}
            }
        }
        self.fit(&claims, capacity);
    }

    /// Returns the parts of a principal at the workers, in parts per million of a processor.
    pub fn parts(&self) -> impl Iterator<Item = (PrincipalId, &[f64])> {
        self.principals.iter().map(|(id, parts)| (*id, &parts.parts[..]))
    }

    /// Returns the share of each unit of weight: what principals with work and weights used, by their weights.
    fn shares_by_weight(&self, claims: &BTreeMap<PrincipalId, Claim>) -> f64 {
        let (mut used, mut weights) = (0.0, 0.0);
        for (id, parts) in &self.principals {
            if let Some(Claim::Weight(weight)) = claims.get(id)
                && parts.demands.iter().any(|demand| demand.is_backlogged)
            {
                used += parts.used.iter().sum::<f64>();
                weights += weight;
            }
        }
        if weights > 0.0 { used.max(1.0) / weights } else { 1.0 }
    }

    /// Reduces the reserved parts at workers where they exceed the capacity, in proportion, and firm parts down to
    /// equal ones only.
    fn fit(&mut self, claims: &BTreeMap<PrincipalId, Claim>, capacity: f64) {
        let least = |id: &PrincipalId, workers: usize| match claims.get(id) {
            Some(Claim::Firm(share)) => Some(share / workers as f64),
            Some(Claim::Reserved(_)) => Some(0.0),
            Some(Claim::Weight(_)) | None => None,
        };
        let workers = self.principals.values().map(|parts| parts.parts.len()).max().unwrap_or(0);
        for worker in 0..workers {
            let (mut firm, mut sum) = (0.0, 0.0);
            for (id, parts) in &self.principals {
                let Some(least) = least(id, workers) else { continue };
                (firm, sum) = (firm + least, sum + parts.parts[worker]);
            }
            if sum <= capacity {
                continue;
            }
            let kept = (capacity - firm).max(0.0) / (sum - firm);
            for (id, parts) in &mut self.principals {
                let Some(least) = least(id, workers) else { continue };
                let part = &mut parts.parts[worker];
                *part = least + (*part - least) * kept;
            }
        }
    }
}

impl Parts {
    /// Moves the parts towards what the principal lacks of its share at each worker. `kept`: part of an equal
    /// division that each worker keeps at least.
    fn follow(&mut self, share: f64, kept: f64) {
        let least = kept * share / self.parts.len() as f64;
        let used: f64 = self.used.iter().sum();
        for ((part, own), demand) in self.parts.iter_mut().zip(&self.used).zip(&self.demands) {
            let lacks = match demand.is_backlogged {
                true => share - (used - own),
                false => own * GROWTH,
            };
            *part = (*part + (lacks.clamp(least, share.max(least)) - *part) / 2.0).max(least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: f64 = 1e6;
    const CAPACITY: f64 = 500_000.0;

    /// Worker that divides its time among principals with work, reserved parts first, then by weight.
    fn serve(parts: &[(Claim, f64, bool)]) -> Vec<f64> {
        let mut left = WHOLE;
        let mut used = vec![0.0; parts.len()];
        for (used, (claim, part, wants)) in used.iter_mut().zip(parts) {
            if let (Claim::Reserved(_) | Claim::Firm(_), true) = (claim, wants) {
                *used = *part;
                left -= part;
            }
        }
        let rest: Vec<f64> = parts
            .iter()
            .map(|(claim, part, wants)| match (claim, wants) {
                (Claim::Weight(_), true) => *part,
                _ => 0.0,
            })
            .collect();
        let sum: f64 = rest.iter().sum();
        let all: f64 = used.iter().sum();
        for index in 0..used.len() {
            let share = if sum > 0.0 { rest[index] / sum } else { used[index] / all.max(1.0) };
            used[index] += left * share;
        }
        used
    }

    /// Runs 200 rounds with principals that always have work at the given workers. Returns the time of each in
    /// the last round, in percent of a processor.
    fn run(principals: &[(Claim, &[bool])]) -> Vec<f64> {
        let mut division = Division::default();
        let workers = principals[0].1.len();
        let mut used = vec![vec![0.0; workers]; principals.len()];
        for _ in 0..200 {
            let demands = principals.iter().enumerate().map(|(number, (claim, wants))| {
                let demand =
                    |worker: usize| Demand { used: used[number][worker], is_backlogged: wants[worker] };
                (PrincipalId(number as u32), *claim, (0..workers).map(demand).collect())
            });
            division.divide(demands.collect(), CAPACITY);
            let parts: Vec<Vec<f64>> = division.parts().map(|(_, parts)| parts.to_vec()).collect();
            for worker in 0..workers {
                let here: Vec<_> = (0..principals.len())
                    .map(|number| (principals[number].0, parts[number][worker], principals[number].1[worker]))
                    .collect();
                for (number, time) in serve(&here).into_iter().enumerate() {
                    used[number][worker] = time;
                }
            }
            for worker in 0..workers {
                let reserved = principals
                    .iter()
                    .zip(&parts)
                    .filter(|((claim, _), _)| matches!(claim, Claim::Reserved(_) | Claim::Firm(_)));
                let sum: f64 = reserved.map(|(_, parts)| parts[worker]).sum();
                assert!(sum <= CAPACITY + 1.0, "{sum}");
                for ((claim, _), parts) in principals.iter().zip(&parts) {
                    let Claim::Firm(share) = claim else { continue };
                    assert!(parts[worker] >= share / workers as f64 - 1.0, "{parts:?}");
                }
            }
        }
        used.iter().map(|used| used.iter().sum::<f64>() / 1e4).collect()
    }

    fn assert_near(principals: &[(Claim, &[bool])], due: &[f64]) {
        let got = run(principals);
        let near = got.iter().zip(due).all(|(got, due)| (got - due).abs() < 2.0);
        assert!(near, "{got:?} instead of {due:?}");
    }

    #[test]
    fn principal_has_its_whole_share_at_the_only_worker_with_its_flows() {
        let others: (Claim, &[bool]) = (Claim::Weight(1.0), &[true, true]);
        assert_near(&[(Claim::Reserved(400_000.0), &[true, false]), others], &[40.0, 160.0]);
        assert_near(&[(Claim::Reserved(400_000.0), &[true, true]), others], &[40.0, 160.0]);
    }

    #[test]
    fn reserved_shares_fit_into_each_worker() {
        let a: (Claim, &[bool]) = (Claim::Reserved(400_000.0), &[true, false]);
        let b: (Claim, &[bool]) = (Claim::Reserved(400_000.0), &[true, true]);
        let others: (Claim, &[bool]) = (Claim::Weight(1.0), &[true, true]);
        // B leaves the first worker to A as far as it can.
        let got = run(&[a, b, others]);
        assert!(got[0] > 37.0 && got[1] > 37.0, "{got:?}");
    }

    #[test]
    fn principal_with_a_deadline_keeps_an_equal_part_at_each_worker() {
        let others: (Claim, &[bool]) = (Claim::Weight(1.0), &[true, true]);
        // All packets at one worker: the whole share is there, as for others.
        assert_near(&[(Claim::Firm(400_000.0), &[true, false]), others], &[40.0, 160.0]);
        let firm: (Claim, &[bool]) = (Claim::Firm(500_000.0), &[true, false]);
        let greedy: (Claim, &[bool]) = (Claim::Reserved(400_000.0), &[true, true]);
        // Others leave it half of its share at the least.
        let got = run(&[firm, greedy, others]);
        assert!(got[0] >= 25.0 && got[1] > 30.0, "{got:?}");
    }

    #[test]
    fn weights_count_over_all_workers() {
        let both: (Claim, &[bool]) = (Claim::Weight(1.0), &[true, true]);
        let first: (Claim, &[bool]) = (Claim::Weight(1.0), &[true, false]);
        let second: (Claim, &[bool]) = (Claim::Weight(1.0), &[false, true]);
        assert_near(&[both, first, second], &[66.7, 66.7, 66.7]);
        assert_near(&[both, first], &[100.0, 100.0]);
        let got = run(&[(Claim::Weight(3.0), &[true, true]), (Claim::Weight(1.0), &[true, true])]);
        assert!((got[0] / got[1] - 3.0).abs() < 0.2, "{got:?}");
    }
}
