//! Tests of algorithms: every answer keeps to the limits, and none places more than the exact reference.

use millrace_admission::component::Role;
use millrace_admission::exact::{self, Proof, Solver, check, rounding};
use millrace_admission::hardware::{Hardware, known};
use millrace_admission::norm::Norm;
use millrace_admission::part::Part;
use millrace_admission::placement::online::{self, Promises};
use millrace_admission::placement::prices::{self, Certified};
use millrace_admission::placement::{Algorithm, Problem, improve};
use millrace_admission::random::Random;
use millrace_admission::request::{Class, Cycles, Needs, Request, Stream};
use millrace_admission::scenario::{Scenario, Use};
use millrace_admission::workload::Workload;
use proptest::prelude::*;

fn hardware(name: &str) -> Hardware {
    if name == "two cards" {
        let card = "[[processor]]\nname = \"U2\"\nkind = \"microengine\"\nscheduling = \"static\"\n\
                    cycles-per-packet = 500\n\n[[path]]\nfrom = \"Port\"\nto = \"U2\"\ntransfer = \"packet\"\n\n";
        let text =
            known("ixp1200").expect("known hardware").replacen("[[path]]", &format!("{card}[[path]]"), 1);
        return Hardware::parse(&text).expect("the file is right");
    }
    Hardware::parse(known(name).expect("known hardware")).expect("the file is right")
}

fn algorithms(hardware: &Hardware) -> Vec<Algorithm> {
    let weights = hardware.weights(&hardware.processors[0].name, 2.0);
    let order: Vec<usize> = (0..hardware.processors.len()).collect();
    let mut algorithms = vec![
        Algorithm::Ordered(order.clone()),
        Algorithm::Ordered(order.into_iter().rev().collect()),
        Algorithm::Hybrid(0, Norm::L1, weights.clone()),
    ];
    for norm in [Norm::L1, Norm::L2, Norm::Largest] {
        algorithms.push(Algorithm::LeastNorm(norm, weights.clone()));
        algorithms.push(Algorithm::Scan(norm, weights.clone()));
        algorithms.push(Algorithm::ReversedScan(norm, weights.clone()));
    }
    algorithms
}

/// Returns the most services that fit, by trying every placement.
fn brute_force(problem: &Problem, choices: &mut Vec<Option<usize>>) -> usize {
    let Some(candidate) = problem.candidates.get(choices.len()) else {
        let fits = check::add_up(problem, choices).is_ok();
        return if fits { choices.iter().flatten().count() } else { 0 };
    };
    let all = [None].into_iter().chain((0..candidate.choices.len()).map(Some));
    let mut most = 0;
    for choice in all {
        choices.push(choice);
        most = most.max(brute_force(problem, choices));
        choices.pop();
    }
    most
}

/// Returns a problem of few services on a router with little room, so that some are refused.
fn small_problem(name: &str, mix: [u32; 4], seed: u64, services: usize) -> Problem {
    let mut problem = Workload::generate(&hardware(name), mix, seed).problem;
    problem.candidates.truncate(services);
    let mut random = Random::new(seed);
    for component in problem.components.iter_mut().filter(|component| component.limit != Part::UNBOUNDED) {
        let share = random.fraction();
        // Services of flows leave the statically scheduled processor only where others have room.
        let share = match component.role {
            Role::Global | Role::Flow | Role::Total => 0.3 + 0.7 * share,
            _ => share.powi(3) * 0.3 + 0.003,
        };
        component.limit = Part::at_least(share);
    }
    problem
}

fn mixes() -> impl Strategy<Value = [u32; 4]> {
    prop::sample::select(vec![
        [9, 45, 45, 1],
        [15, 39, 45, 1],
        [9, 15, 75, 1],
        [9, 75, 15, 1],
        [40, 30, 20, 10],
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn answers_keep_limits_and_the_bound(
        name in prop::sample::select(vec!["ixp1200", "pmc694", "pentium", "two cards"]), mix in mixes(), seed: u64,
    ) {
        let hardware = hardware(name);
        let mut problem = Workload::generate(&hardware, mix, seed).problem;
        problem.candidates.truncate(100);
        let certified = prices::place(&problem);
        let mut answers: Vec<_> =
            algorithms(&hardware).iter().map(|algorithm| problem.place(algorithm)).collect();
        let mut improved = answers.clone();
        improved.iter_mut().for_each(|answer| { improve::improve(&problem, answer); });
        answers.extend(improved);
        answers.push(certified.placement);
        for answer in answers {
            let slow = check::add_up(&problem, &answer.choices).expect("a feasible answer");
            prop_assert_eq!(slow.used(), &check::uses(&problem, &answer.choices).expect("choices exist")[..]);
            prop_assert_eq!(&slow, &answer.utilization);
            prop_assert!(answer.count() <= certified.bound);
        }
    }

    #[test]
    fn exact_reference_equals_every_placement_tried(
        name in prop::sample::select(vec!["ixp1200", "pmc694", "pentium", "two cards"]), mix in mixes(), seed: u64,
    ) {
        let problem = small_problem(name, mix, seed, 6);
        let most = brute_force(&problem, &mut Vec::new());
        let certified = prices::place(&problem);
        prop_assert!(certified.placement.count() <= most && most <= certified.bound);
        // From nothing, the solver has to find all services itself.
        let nothing = Certified { placement: problem.nothing(), ..certified.clone() };
        for begin in [&certified, &nothing] {
            let exact = exact::solve(&problem, begin, Solver::Microlp, 60.0).expect("an answer");
            prop_assert_eq!((exact.placement.count(), exact.proof), (most, Proof::Solver));
        }
        let rounded = rounding::place(&problem, Solver::Microlp, 60.0).expect("an answer");
        check::add_up(&problem, &rounded.placement.choices).expect("a feasible answer");
        prop_assert!(rounded.placement.count() <= most && most <= rounded.bound);
        for algorithm in algorithms(&hardware(name)) {
            prop_assert!(problem.place(&algorithm).count() <= most);
        }
    }

    #[test]
    fn arrivals_removals_and_moves_leave_exact_sums(seed: u64, most_moves in 0usize..4) {
        let hardware = hardware("ixp1200");
        let problem = Workload::generate(&hardware, [9, 45, 45, 1], seed).problem;
        let algorithm = online::algorithm(&problem.components);
        let mut promises = Promises::new(&problem.components);
        let mut random = Random::new(seed);
        for _ in 0..3 {
            for candidate in &problem.candidates {
                let before = promises.utilization().clone();
                match promises.admit(candidate.clone(), random.below(4) > 0, &algorithm, most_moves) {
                    Ok(admitted) => prop_assert!(admitted.moves.len() <= most_moves),
                    Err(refused) => {
                        prop_assert_eq!(refused.lacks.len(), candidate.choices.len());
                        prop_assert_eq!(promises.utilization(), &before);
                    }
                }
            }
            let (candidates, choices): (Vec<_>, Vec<_>) = promises
                .services().map(|(_, candidate, choice)| (candidate.clone(), Some(choice))).unzip();
            let placed = Problem { candidates, ..problem.clone() };
            let slow = check::add_up(&placed, &choices).expect("promises keep the limits");
            prop_assert_eq!(promises.utilization(), &slow);
            let leaving: Vec<_> = promises.services().map(|(id, ..)| id).filter(|_| random.below(3) == 0).collect();
            for id in leaving {
                prop_assert!(promises.remove(id) && !promises.remove(id));
            }
        }
        let all: Vec<_> = promises.services().map(|(id, ..)| id).collect();
        all.into_iter().for_each(|id| { promises.remove(id); });
        prop_assert_eq!(promises.utilization(), &problem.nothing().utilization);
    }
}

#[test]
fn one_move_makes_room() {
    let hardware = hardware("ixp1200");
    let problem = Workload::generate(&hardware, [9, 45, 45, 1], 1).problem;
    let algorithm = Algorithm::LeastNorm(Norm::Largest, hardware.weights("SA", 1.0));
    let admitted = |most_moves: usize| {
        let mut promises = Promises::new(&problem.components);
        let answers = problem
            .candidates
            .iter()
            .map(|known| promises.admit(known.clone(), true, &algorithm, most_moves));
        answers.filter(Result::is_ok).count()
    };
    let (fixed, moved) = (admitted(0), admitted(2));
    assert!(moved > fixed, "{moved} services with moves, {fixed} without");
}

#[test]
fn prices_find_the_optimum_of_most_workloads() {
    for name in ["ixp1200", "pmc694"] {
        let hardware = hardware(name);
        let workloads = (0..20).map(|seed| Workload::generate(&hardware, [9, 45, 45, 1], seed));
        let certified = workloads.map(|workload| prices::place(&workload.problem));
        let proven = certified.filter(|certified| certified.placement.count() == certified.bound).count();
        assert!(proven >= 19, "{name}: {proven} of 20");
    }
}

#[test]
fn with_two_moves_few_arrivals_are_refused_that_would_fit() {
    let hardware = hardware("ixp1200");
    let (mut arrivals, mut wrong) = (0, 0);
    for seed in 1_000..1_003 {
        let problem = Workload::generate(&hardware, [9, 45, 45, 1], seed).problem;
        let algorithm = online::algorithm(&problem.components);
        let mut promises = Promises::new(&problem.components);
        for candidate in &problem.candidates {
            arrivals += 1;
            if promises.admit(candidate.clone(), true, &algorithm, 2).is_err() {
                let placed = promises.services().map(|(_, candidate, _)| candidate.clone());
                let all: Vec<_> = placed.chain([candidate.clone()]).collect();
                // The bound counts an open case as one that would fit.
                let most = prices::place(&Problem { candidates: all.clone(), ..problem.clone() }).bound;
                wrong += usize::from(most == all.len());
            }
        }
    }
    assert!(wrong * 50 <= arrivals, "{wrong} of {arrivals}");
}

#[test]
fn global_services_and_the_largest_of_flows_share_a_static_processor() {
    let request = |name: &str, class: Class, packet: f64| {
        let cycles = Cycles { packet, ..Cycles::default() };
        let needs = Needs { cycles: [("microengine".to_owned(), cycles)].into(), ..Needs::default() };
        let input = Stream { packets_per_second: 100.0, bytes: 100.0, bytes_maximum: None };
        Request {
            name: name.to_owned(),
            class,
            port: None,
            plugin: None,
            on: Vec::new(),
            user: None,
            needs,
            input,
            output: None,
        }
    };
    let mut requests = vec![request("a", Class::PerFlow, 150.0), request("b", Class::PerFlow, 400.0)];
    requests.extend(["c", "d", "e"].map(|name| request(name, Class::Global, 200.0)));
    // The second card alone: 150 and one 200, or both services of flows, fit in 500 cycles.
    let mut second = Problem::new(&hardware("two cards"), &requests).expect("right requests");
    let first = second.components.iter_mut().filter(|component| component.name.starts_with("UE"));
    first.for_each(|component| component.limit = Part::ZERO);
    let exact = exact::solve(&second, &prices::place(&second), Solver::Microlp, 60.0).expect("an answer");
    assert_eq!((exact.placement.count(), exact.proof), (2, Proof::Solver));
    let problem = Problem::new(&hardware("ixp1200"), &requests).expect("right requests");
    // 150 and three times 200 fit in 768 cycles per packet; with 400, only one 200 does.
    let certified = prices::place(&problem);
    assert_eq!((certified.placement.count(), certified.bound), (4, 4));
    let exact = exact::solve(&problem, &certified, Solver::Microlp, 60.0).expect("an answer");
    assert_eq!((exact.placement.count(), exact.proof), (4, Proof::Solver));
}

#[test]
fn requests_and_allowances_name_machines_and_processors() {
    let text = known("ixp1200").expect("known hardware");
    let card = "[[processor]]\nname = \"U2\"\nkind = \"microengine\"\nmachine = \"card 2\"\n\
                scheduling = \"static\"\ncycles-per-packet = 500\n\n[[path]]\nfrom = \"Port\"\nto = \"U2\"\n\
                transfer = \"packet\"\n\n";
    let hardware = Hardware::parse(&text.replacen("[[path]]", &format!("{card}[[path]]"), 1)).expect("right");
    let place = |more: &str, allowance: &str| {
        let text = format!(
            "hardware = \"two cards\"\n{allowance}[[request]]\nname = \"a\"\nclass = \"per-flow\"\n{more}\n\
             needs.cycles.microengine = {{ packet = 100 }}\ninput = {{ packets-per-second = 100, bytes = 100 }}\n"
        );
        let placed = Scenario::parse(&text).expect("the scenario is right").place(&hardware);
        placed.map(|outcome| outcome.requests[0].processor.clone()).map_err(|error| error.to_string())
    };
    let allowance = |on: &str| format!("[[allowance]]\nuser = [\"alice\"]\non = [\"{on}\"]\n");
    let placed = |name: &str| Ok(Some(name.to_owned()));
    assert_eq!(place("on = [\"card 2\"]", ""), placed("U2"));
    assert_eq!(place("on = [\"ixp1200\"]", ""), placed("UE"));
    assert_eq!(place("on = [\"UE\", \"SA\"]", ""), placed("UE"));
    assert_eq!(place("user = \"alice\"", &allowance("card 2")), placed("U2"));
    assert_eq!(place("user = \"bob\"\non = [\"UE\"]", &allowance("card 2")), placed("UE"));
    // Both the request and all allowances must permit the processor.
    assert_eq!(place("user = \"alice\"\non = [\"UE\"]", &allowance("card 2")), Ok(None));
    assert_eq!(place("user = \"alice\"", &(allowance("card 2") + &allowance("ixp1200"))), Ok(None));
    let error = place("on = [\"card 3\"]", "").unwrap_err();
    assert!(
        error.contains("no machine or processor \"card 3\"; here: ") && error.contains("card 2"),
        "{error}"
    );
    assert!(place("user = \"alice\"", &allowance("card 3")).unwrap_err().contains("card 3"));
}

#[test]
fn scenarios_are_placed_by_each_algorithm_within_the_bound() {
    let hardware = hardware("ixp1200");
    // Of 768 cycles per packet, the small requests come first and leave too little for the large ones.
    let request = |name: &str, packet: u32| {
        format!(
            "[[request]]\nname = \"{name}\"\nclass = \"per-flow\"\non = [\"UE\"]\nneeds.cycles.any = {{ packet = {packet} }}\n\
             input = {{ packets-per-second = 100, bytes = 100 }}\n"
        )
    };
    let requests: String = (0..40).map(|number| request(&format!("r{number}"), 100 + 37 * number)).collect();
    let place = |algorithm: &str| {
        let text = format!("hardware = \"ixp1200\"\nalgorithm = \"{algorithm}\"\n{requests}");
        Scenario::parse(&text).expect("a scenario").place(&hardware).expect("an outcome")
    };
    let exact = place("exact");
    assert_eq!(exact.placed, exact.bound);
    for algorithm in
        ["prices", "rounding", "scan", "reversed-scan", "balanced", "l2-norm", "hybrid", "ordered", "exact"]
    {
        let outcome = place(algorithm);
        assert!(outcome.placed <= exact.placed && exact.placed <= outcome.bound, "{algorithm}");
        let above = |used: &Use| used.limit.is_some_and(|limit| used.used > limit + 1e-9);
        assert!(!outcome.components.iter().any(above), "{algorithm}: {:?}", outcome.components);
        let last: Vec<f64> = outcome.components.iter().map(|component| component.used).collect();
        assert_eq!((outcome.growth.len(), outcome.growth.last()), (40, Some(&last)), "{algorithm}");
        let falls = |pair: &[Vec<f64>]| pair[0].iter().zip(&pair[1]).any(|(before, after)| after < before);
        assert!(!outcome.growth.windows(2).any(falls), "{algorithm}");
    }
}
