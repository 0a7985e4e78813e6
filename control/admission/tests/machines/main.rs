//! Tests on random machines: with and without an offload, with pinned services, limits of memory and code, and rates of
//! output that differ from the rates of input. Each answer is compared with a slow reference.

mod machine;
mod reference;

use std::collections::{BTreeMap, BTreeSet};

use millrace_admission::component::Role;
use millrace_admission::exact::check::Fault;
use millrace_admission::exact::{self, ExactError, Proof, Solver};
use millrace_admission::hardware::Hardware;
use millrace_admission::norm::Norm;
use millrace_admission::placement::online::{self, Promises, ServiceId};
use millrace_admission::placement::{Algorithm, Problem, improve, prices};
use millrace_admission::random::Random;
use millrace_admission::request::Request;
use millrace_admission::utilization_vector::Utilization;
use proptest::prelude::*;

use machine::{Machine, levels};

/// Shares below this are errors of rounding.
const ROUNDING: f64 = 1e-9;

/// Machine with requests in the order of arrival.
struct Case {
    machine: Machine,
    hardware: Hardware,
    requests: Vec<Request>,
    problem: Problem,
}

impl Case {
    /// Draws a case. `load` multiplies the rates of the requests.
    fn random(seed: u64, count: usize, load: f64) -> Self {
        let mut random = Random::new(seed);
        let (machine, hardware) = if random.below(2) == 0 {
            let machine = Machine::random(&mut random);
            let text = machine.text();
            let hardware = Hardware::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            (machine, hardware)
        } else {
            let levels = levels(&mut random);
            (Machine::of_levels(&levels), levels.hardware().expect("possible levels"))
        };
        let requests: Vec<_> = (0..count).map(|number| machine.request(number, load, &mut random)).collect();
        let problem = Problem::new(&hardware, &requests).expect("right requests");
        Self { machine, hardware, requests, problem }
    }

    /// Returns the placed requests with their processors.
    fn placed(&self, choices: &[Option<usize>]) -> Vec<(&Request, usize)> {
        let services = self.requests.iter().zip(&self.problem.candidates).zip(choices);
        services
            .filter_map(|((request, candidate), choice)| {
                Some((request, candidate.choices[(*choice)?].processor))
            })
            .collect()
    }

    /// Checks that a utilisation vector is the sum of the reference. Returns the uses.
    fn assert_uses(&self, placed: &[(&Request, usize)], utilization: &Utilization) -> reference::Uses {
        let uses = reference::uses(&self.machine, placed);
        for (component, used) in self.problem.components.iter().zip(utilization.used()) {
            let (found, expected) = (used.number(), uses.of(&component.name));
            let is_near = (found - expected).abs() <= ROUNDING * (1.0 + expected);
            assert!(is_near, "{}: {found} instead of {expected}: {:?}", component.name, self.machine);
        }
        let is_known = |name: &String| self.hardware.component(name).is_some();
        assert!(uses.0.keys().all(is_known), "{uses:?}");
        uses
    }

    /// Checks that all placed services run at permitted processors within all limits.
    fn assert_right(&self, choices: &[Option<usize>], utilization: &Utilization) {
        let placed = self.placed(choices);
        for (request, processor) in &placed {
            assert!(reference::permitted(&self.machine, request).contains(processor), "{request:?}");
        }
        let uses = self.assert_uses(&placed, utilization);
        assert!(uses.left(&self.machine) >= -ROUNDING, "{uses:?} on {:?}", self.machine);
    }

    fn algorithms(&self) -> Vec<Algorithm> {
        let weights = self.hardware.weights("worker", 2.0);
        let order: Vec<usize> = (0..self.machine.processors.len()).collect();
        let mut algorithms = vec![
            online::algorithm(&self.problem.components),
            Algorithm::Ordered(order.iter().rev().copied().collect()),
            Algorithm::Ordered(order),
            Algorithm::Hybrid(0, Norm::L1, weights.clone()),
        ];
        for norm in [Norm::L1, Norm::L2, Norm::Largest] {
            algorithms.push(Algorithm::Scan(norm, weights.clone()));
            algorithms.push(Algorithm::ReversedScan(norm, weights.clone()));
        }
        algorithms
    }

    /// Returns the most services that fit beside those placed so far, by trying every placement.
    fn brute_force(&self, choices: &mut Vec<Option<usize>>) -> usize {
        if reference::uses(&self.machine, &self.placed(choices)).left(&self.machine) < -ROUNDING {
            return 0;
        }
        let Some(candidate) = self.problem.candidates.get(choices.len()) else {
            return choices.iter().flatten().count();
        };
        let mut most = 0;
        for choice in [None].into_iter().chain((0..candidate.choices.len()).map(Some)) {
            choices.push(choice);
            most = most.max(self.brute_force(choices));
            choices.pop();
        }
        most
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_permitted_processor_is_a_choice_with_its_impact(seed: u64) {
        let case = Case::random(seed, 20, 1.0);
        for (request, candidate) in case.requests.iter().zip(&case.problem.candidates) {
            let found: Vec<usize> = candidate.choices.iter().map(|choice| choice.processor).collect();
            prop_assert_eq!(found, reference::permitted(&case.machine, request));
            for choice in &candidate.choices {
                let mut utilization = Utilization::new(&case.problem.components);
                utilization.add(&choice.impact);
                case.assert_uses(&[(request, choice.processor)], &utilization);
            }
        }
        for component in &case.problem.components {
            let (found, expected) = (component.limit.number(), case.machine.limit(&component.name));
            let is_same = found == expected || (found - expected).abs() < ROUNDING;
            prop_assert!(is_same, "{:?}, not {expected}", component);
        }
    }

    #[test]
    fn answers_keep_pins_limits_and_the_bound(seed: u64, count in 1usize..60) {
        let case = Case::random(seed, count, 1.0);
        let certified = prices::place(&case.problem);
        case.assert_right(&certified.placement.choices, &certified.placement.utilization);
        for algorithm in case.algorithms() {
            let mut answer = case.problem.place(&algorithm);
            case.assert_right(&answer.choices, &answer.utilization);
            let before = answer.count();
            improve::improve(&case.problem, &mut answer);
            case.assert_right(&answer.choices, &answer.utilization);
            prop_assert!(before <= answer.count() && answer.count() <= certified.bound);
        }
    }

    #[test]
    fn arrivals_are_refused_only_without_room_and_move_only_movable_services(
        seed: u64, count in 1usize..40, most_moves in 0usize..4,
    ) {
        let case = Case::random(seed, count, 1.0);
        let algorithm = online::algorithm(&case.problem.components);
        let mut promises = Promises::new(&case.problem.components);
        let mut random = Random::new(seed);
        // Index of the request, and the choice of a service that must not move.
        let mut services: BTreeMap<ServiceId, (usize, Option<usize>)> = BTreeMap::new();
        let mut choices = vec![None; count];
        for (index, candidate) in case.problem.candidates.iter().enumerate() {
            let is_movable = random.below(3) > 0;
            match promises.admit(candidate.clone(), is_movable, &algorithm, most_moves) {
                Ok(admitted) => {
                    prop_assert!(admitted.moves.len() <= most_moves);
                    let fixed = (!is_movable).then_some(admitted.choice);
                    services.insert(admitted.id, (index, fixed));
                }
                Err(_) => {
                    let request = &case.requests[index];
                    for processor in reference::permitted(&case.machine, request) {
                        let mut placed = case.placed(&choices);
                        placed.push((request, processor));
                        let left = reference::uses(&case.machine, &placed).left(&case.machine);
                        prop_assert!(left < ROUNDING, "{left} is left for {:?}", request);
                    }
                }
            }
            if random.below(4) == 0 && let Some((id, _)) = services.pop_first() {
                prop_assert!(promises.remove(id));
            }
            choices = vec![None; count];
            for (id, _, choice) in promises.services() {
                let (index, fixed) = services[&id];
                prop_assert!(fixed.is_none_or(|fixed| fixed == choice));
                choices[index] = Some(choice);
            }
            case.assert_right(&choices, promises.utilization());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn exact_reference_equals_every_placement_tried(seed: u64) {
        let case = Case::random(seed, 5, 6.0);
        // The model without the offload has a choice at least: the solver expects a variable.
        let empty = case.problem.nothing().utilization;
        let mut choices = case.problem.candidates.iter().flat_map(|candidate| &candidate.choices);
        prop_assume!(choices.any(|choice| choice.impact.flow.is_none() && empty.fits(&choice.impact)));
        let most = case.brute_force(&mut Vec::new());
        let certified = prices::place(&case.problem);
        prop_assert!(certified.placement.count() <= most && most <= certified.bound);
        let exact = match exact::solve(&case.problem, &certified, Solver::Microlp, 60.0) {
            // Shares are rounded up, so services that fill a component exceed it by less than the solver can tell.
            Err(ExactError::Wrong(Fault::Exceeded { used, limit, .. })) if used.number() - limit.number() < ROUNDING => {
                return Err(TestCaseError::reject("services that just fill a component"));
            }
            exact => exact.expect("an answer"),
        };
        case.assert_right(&exact.placement.choices, &exact.placement.utilization);
        prop_assert_eq!((exact.placement.count(), exact.proof), (most, Proof::Solver));
    }
}

/// Without this, the other tests could pass for cases in which nothing is pinned, offloaded or lacking.
#[test]
fn random_cases_reach_each_level_and_each_limit() {
    let (mut hosts, mut lacking) = (BTreeSet::new(), Vec::new());
    for seed in 0..300 {
        let case = Case::random(seed, 40, 1.0);
        let placement = case.problem.place(&online::algorithm(&case.problem.components));
        let services = case.requests.iter().zip(&case.problem.candidates).zip(&placement.choices);
        for ((request, candidate), choice) in services {
            if let Some(choice) = choice {
                let processor = &case.machine.processors[candidate.choices[*choice].processor];
                hosts.insert((processor.kind, !request.on.is_empty(), request.output.is_some()));
                continue;
            }
            let lacks =
                candidate.choices.iter().filter_map(|choice| placement.utilization.lack(&choice.impact));
            lacking.extend(lacks.map(|lack| case.problem.components[lack.component].role));
        }
    }
    for kind in ["offload", "worker", "process"] {
        for (is_pinned, has_output) in [(false, false), (false, true), (true, false), (true, true)] {
            assert!(hosts.contains(&(kind, is_pinned, has_output)), "{kind} {is_pinned} {has_output}");
        }
    }
    for role in [Role::Port, Role::Total, Role::Cycles, Role::Switch, Role::Memory, Role::Code] {
        let of_flows = role == Role::Total && lacking.contains(&Role::Flow);
        assert!(of_flows || lacking.contains(&role), "{role:?}");
    }
}
