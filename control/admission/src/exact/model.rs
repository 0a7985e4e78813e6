//! Mixed-integer model of a placement problem.
//!
//! Each choice of a service is a binary variable. The largest use by flows of a statically scheduled processor is a
//! sum of steps: step k may be taken only after step k - 1, and a service of level k needs step k.

use good_lp::solvers::{Solution, SolutionStatus};
use good_lp::{
    Expression, ProblemVariables, SolverModel, Variable, WithInitialSolution, WithTimeLimit, variable,
};

use super::ExactError;
use crate::component::Role;
use crate::part::Part;
use crate::placement::Problem;

/// Program that solves models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Solver {
    /// microlp, written in Rust.
    Microlp,
    /// HiGHS.
    #[cfg(feature = "highs")]
    Highs,
}

/// Variable of a choice.
struct Chosen {
    service: usize,
    choice: usize,
    variable: Variable,
}

/// Step of the largest use by flows.
struct Step {
    level: Part,
    variable: Variable,
}

/// Variables, objective and constraints.
pub(super) struct Model<'a> {
    problem: &'a Problem,
    variables: ProblemVariables,
    chosen: Vec<Chosen>,
    /// For each component of [`Role::Flow`] its steps, lowest first.
    steps: Vec<(usize, Vec<Step>)>,
}

/// Values of a solution: for each choice of a service how much of it is chosen.
pub(super) struct Values {
    pub objective: f64,
    /// Service, choice and value.
    pub chosen: Vec<(usize, usize, f64)>,
    pub finished: bool,
}

impl<'a> Model<'a> {
    pub(super) fn new(problem: &'a Problem) -> Self {
        Self::with(problem, true)
    }

    /// Returns the model whose variables may take any value from 0 to 1.
    pub(super) fn relaxed(problem: &'a Problem) -> Self {
        Self::with(problem, false)
    }

    fn with(problem: &'a Problem, is_whole: bool) -> Self {
        let mut variables = ProblemVariables::new();
        let mut add = || variables.add(if is_whole { variable().binary() } else { variable().min(0).max(1) });
        let empty = problem.nothing().utilization;
        let mut chosen = Vec::new();
        for (service, candidate) in problem.candidates.iter().enumerate() {
            for (choice, found) in candidate.choices.iter().enumerate() {
                if empty.fits(&found.impact) {
                    chosen.push(Chosen { service, choice, variable: add() });
                }
            }
        }
        let flows = problem.components.iter().enumerate().filter(|(_, known)| known.role == Role::Flow);
        let flows: Vec<usize> = flows.map(|(index, _)| index).collect();
        let mut steps = Vec::new();
        for flow in flows {
            let mut levels: Vec<Part> =
                chosen.iter().filter_map(|chosen| level(problem, chosen, flow)).collect();
            levels.sort_unstable();
            levels.dedup();
            let of_flow = levels.into_iter().map(|level| Step { level, variable: add() }).collect();
            steps.push((flow, of_flow));
        }
        Self { problem, variables, chosen, steps }
    }

    /// Solves the model from a start. Returns the choice of each service, and whether the search is finished.
    pub(super) fn solve(
        self,
        start: &[Option<usize>],
        solver: Solver,
        seconds: f64,
    ) -> Result<(Vec<Option<usize>>, bool), ExactError> {
        let services = self.problem.candidates.len();
        let values = self.values(Some(start), solver, seconds)?;
        let mut choices = vec![None; services];
        for (service, choice, _) in values.chosen.iter().filter(|(.., value)| *value > 0.5) {
            if let Some(slot) = choices.get_mut(*service) {
                *slot = Some(*choice);
            }
        }
        Ok((choices, values.finished))
    }

    /// Returns the values of the best solution found within a time.
    pub(super) fn values(
        self,
        start: Option<&[Option<usize>]>,
        solver: Solver,
        seconds: f64,
    ) -> Result<Values, ExactError> {
        let initial = start.map(|start| self.initial(start)).unwrap_or_default();
        let constraints = self.constraints();
        let objective: Expression = self.chosen.iter().map(|chosen| chosen.variable).sum();
        let unsolved = self.variables.maximise(objective.clone());
        let (values, finished) = match solver {
            Solver::Microlp => {
                let mut model = unsolved.using(good_lp::microlp).with_time_limit(seconds);
                if !initial.is_empty() {
                    model = model.with_initial_solution(initial);
                }
                let solution = constraints.into_iter().fold(model, SolverModel::with).solve();
                read(&solution.map_err(|error| ExactError::Solver(error.to_string()))?, &self.chosen)
            }
            #[cfg(feature = "highs")]
            Solver::Highs => {
                let mut model = unsolved.using(good_lp::highs).with_time_limit(seconds);
                if !initial.is_empty() {
                    model = model.with_initial_solution(initial);
                }
                let solution = constraints.into_iter().fold(model, SolverModel::with).solve();
                read(&solution.map_err(|error| ExactError::Solver(error.to_string()))?, &self.chosen)
            }
        };
        let objective = values.iter().map(|(.., value)| value).sum();
        Ok(Values { objective, chosen: values, finished })
    }

    fn initial(&self, start: &[Option<usize>]) -> Vec<(Variable, f64)> {
        let is_chosen = |chosen: &Chosen| start.get(chosen.service) == Some(&Some(chosen.choice));
        let choices =
            self.chosen.iter().map(|chosen| (chosen.variable, f64::from(u8::from(is_chosen(chosen)))));
        let steps = self.steps.iter().flat_map(|(flow, steps)| {
            let taken = self.chosen.iter().filter(|chosen| is_chosen(chosen));
            let largest = taken.filter_map(|chosen| level(self.problem, chosen, *flow)).max();
            steps.iter().map(move |step| (step.variable, f64::from(u8::from(Some(step.level) <= largest))))
        });
        choices.chain(steps).collect()
    }

    fn constraints(&self) -> Vec<good_lp::Constraint> {
        let mut constraints = Vec::new();
        let mut uses: Vec<Expression> =
            self.problem.components.iter().map(|_| Expression::default()).collect();
        let mut add = |component: usize, share: f64, variable: Variable| {
            if let Some(sum) = uses.get_mut(component) {
                sum.add_mul(share, variable);
            }
        };
        for chosen in &self.chosen {
            let candidate = self.problem.candidates.get(chosen.service);
            let Some(found) = candidate.and_then(|known| known.choices.get(chosen.choice)) else { continue };
            for (component, part) in &found.impact.sums {
                add(*component, part.number(), chosen.variable);
            }
        }
        for (flow, steps) in &self.steps {
            let lower = [Part::ZERO].into_iter().chain(steps.iter().map(|step| step.level));
            for (step, lower) in steps.iter().zip(lower) {
                for component in [*flow, flow + 1] {
                    add(component, step.level.less(lower).number(), step.variable);
                }
            }
            let pairs = steps.iter().zip(steps.iter().skip(1));
            constraints.extend(
                pairs.map(|(below, above)| (Expression::from(above.variable) - below.variable).leq(0.0)),
            );
            for chosen in &self.chosen {
                let level = level(self.problem, chosen, *flow);
                if let Some(step) = steps.iter().find(|step| Some(step.level) == level) {
                    constraints.push((Expression::from(chosen.variable) - step.variable).leq(0.0));
                }
            }
        }
        for (component, sum) in self.problem.components.iter().zip(uses) {
            if component.limit != Part::UNBOUNDED {
                constraints.push(sum.leq(component.limit.number()));
            }
        }
        let mut service = usize::MAX;
        let mut once: Vec<Expression> = Vec::new();
        for chosen in &self.chosen {
            if chosen.service != service {
                once.push(Expression::default());
                service = chosen.service;
            }
            if let Some(sum) = once.last_mut() {
                sum.add_mul(1.0, chosen.variable);
            }
        }
        constraints.extend(once.into_iter().map(|sum| sum.leq(1.0)));
        constraints
    }
}

/// Returns a choice's use of a component of [`Role::Flow`].
fn level(problem: &Problem, chosen: &Chosen, flow: usize) -> Option<Part> {
    let found = problem.candidates.get(chosen.service)?.choices.get(chosen.choice)?;
    found.impact.flow.filter(|(component, _)| *component == flow).map(|(_, part)| part)
}

fn read(solution: &impl Solution, chosen: &[Chosen]) -> (Vec<(usize, usize, f64)>, bool) {
    let values = chosen.iter().map(|known| (known.service, known.choice, solution.value(known.variable)));
    (values.collect(), matches!(solution.status(), SolutionStatus::Optimal))
}
