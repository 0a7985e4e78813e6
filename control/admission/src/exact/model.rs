//! Mixed-integer model of a placement problem.
//!
//! Each choice of a service is a binary variable. The largest use by flows of a statically scheduled processor is
//! either given ([`Ceiling`]), or a sum of steps: step k may be taken only after step k - 1, and a service of level k
//! needs step k.

use good_lp::solvers::{Solution, SolutionStatus};
use good_lp::{
    Expression, ProblemVariables, ResolutionError, SolverModel, Variable, WithMipGap, WithTimeLimit, variable,
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

impl Solver {
    /// All solvers of this program.
    pub const ALL: &'static [Self] = &[
        Self::Microlp,
        #[cfg(feature = "highs")]
        Self::Highs,
    ];

    /// Returns the name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Microlp => "microlp",
            #[cfg(feature = "highs")]
            Self::Highs => "HiGHS",
        }
    }
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

/// Given largest use by flows of a statically scheduled processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ceiling {
    /// Component of [`Role::Flow`].
    pub flow: usize,
    /// Its use.
    pub level: Part,
}

/// Variables, objective and constraints.
pub(super) struct Model<'a> {
    problem: &'a Problem,
    ceiling: Option<Ceiling>,
    is_whole: bool,
    /// Number of services that the solution must exceed.
    beyond: Option<usize>,
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
    /// Returns the model; with `is_whole`, services can't be split among choices.
    pub(super) fn new(problem: &'a Problem, ceiling: Option<Ceiling>, is_whole: bool) -> Self {
        let mut variables = ProblemVariables::new();
        let mut add = || variables.add(if is_whole { variable().binary() } else { variable().min(0).max(1) });
        let empty = problem.nothing().utilization;
        let mut chosen = Vec::new();
        for (service, candidate) in problem.candidates.iter().enumerate() {
            for (choice, found) in candidate.choices.iter().enumerate() {
                if empty.fits(&found.impact) && below(ceiling, found.impact.flow) {
                    chosen.push(Chosen { service, choice, variable: add() });
                }
            }
        }
        let flows = problem.components.iter().enumerate().filter(|(_, known)| known.role == Role::Flow);
        let flows: Vec<usize> = flows
            .map(|(index, _)| index)
            .filter(|flow| ceiling.is_none_or(|known| known.flow != *flow))
            .collect();
        let mut steps = Vec::new();
        for flow in flows {
            let mut levels: Vec<Part> =
                chosen.iter().filter_map(|chosen| level(problem, chosen, flow)).collect();
            levels.sort_unstable();
            levels.dedup();
            let of_flow = levels.into_iter().map(|level| Step { level, variable: add() }).collect();
            steps.push((flow, of_flow));
        }
        Self { problem, ceiling, is_whole, beyond: None, variables, chosen, steps }
    }

    /// Asks for more than a number of services: without such a solution, the search ends early.
    pub(super) fn beyond(self, count: usize) -> Self {
        Self { beyond: Some(count), ..self }
    }

    /// Solves the model. Returns the choice of each service, and whether the search is finished.
    pub(super) fn solve(
        self,
        solver: Solver,
        seconds: f64,
    ) -> Result<(Vec<Option<usize>>, bool), ExactError> {
        let services = self.problem.candidates.len();
        let values = self.values(solver, seconds)?;
        let mut choices = vec![None; services];
        for (service, choice, _) in values.chosen.iter().filter(|(.., value)| *value > 0.5) {
            if let Some(slot) = choices.get_mut(*service) {
                *slot = Some(*choice);
            }
        }
        Ok((choices, values.finished))
    }

    /// Returns the values of the best solution found within a time.
    pub(super) fn values(self, solver: Solver, seconds: f64) -> Result<Values, ExactError> {
        let mut constraints = self.constraints();
        let objective: Expression = self.chosen.iter().map(|chosen| chosen.variable).sum();
        constraints.extend(self.beyond.map(|count| objective.clone().geq(count as f64 + 1.0)));
        // Numbers of services are whole: a solution within less than 1 of the bound is a largest one.
        let gap = if self.is_whole { 0.9 / self.problem.candidates.len().max(1) as f32 } else { 0.0 };
        let unsolved = self.variables.maximise(objective);
        match solver {
            Solver::Microlp => {
                let model = unsolved.using(good_lp::microlp).with_time_limit(seconds);
                let model = model.with_mip_gap(gap).map_err(|error| ExactError::Solver(error.to_string()))?;
                let solution = constraints.into_iter().fold(model, SolverModel::with).solve();
                read(solution, &self.chosen, self.beyond.is_some())
            }
            #[cfg(feature = "highs")]
            Solver::Highs => {
                let model = unsolved.using(good_lp::highs).with_time_limit(seconds);
                let model = model.with_mip_gap(gap).map_err(|error| ExactError::Solver(error.to_string()))?;
                let solution = constraints.into_iter().fold(model, SolverModel::with).solve();
                read(solution, &self.chosen, self.beyond.is_some())
            }
        }
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
        for (index, (component, sum)) in self.problem.components.iter().zip(uses).enumerate() {
            let used = self.ceiling.filter(|known| known.flow + 1 == index);
            if component.limit != Part::UNBOUNDED {
                constraints
                    .push(sum.leq(component.limit.number() - used.map_or(0.0, |known| known.level.number())));
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

/// Whether a choice keeps to a given largest use by flows.
fn below(ceiling: Option<Ceiling>, flow: Option<(usize, Part)>) -> bool {
    let pair = ceiling.zip(flow).filter(|(ceiling, (flow, _))| ceiling.flow == *flow);
    pair.is_none_or(|(ceiling, (_, part))| part <= ceiling.level)
}

/// Returns the levels that the largest use by flows of the first statically scheduled processor can have; none
/// without such a processor.
pub(super) fn ceilings(problem: &Problem) -> Vec<Ceiling> {
    let Some(flow) = problem.components.iter().position(|component| component.role == Role::Flow) else {
        return Vec::new();
    };
    let empty = problem.nothing().utilization;
    let choices = problem.candidates.iter().flat_map(|candidate| &candidate.choices);
    let fitting = choices.filter(|choice| empty.fits(&choice.impact));
    let parts = fitting.filter_map(|choice| choice.impact.flow.filter(|(component, _)| *component == flow));
    let mut levels: Vec<Part> = parts.map(|(_, part)| part).chain([Part::ZERO]).collect();
    levels.sort_unstable();
    levels.dedup();
    levels.into_iter().map(|level| Ceiling { flow, level }).collect()
}

/// Returns a choice's use of a component of [`Role::Flow`].
fn level(problem: &Problem, chosen: &Chosen, flow: usize) -> Option<Part> {
    let found = problem.candidates.get(chosen.service)?.choices.get(chosen.choice)?;
    found.impact.flow.filter(|(component, _)| *component == flow).map(|(_, part)| part)
}

/// Returns the values of the choices: none if the time ended before any solution, or if no solution exceeds a number
/// of services.
fn read(
    solution: Result<impl Solution, ResolutionError>,
    chosen: &[Chosen],
    may_lack: bool,
) -> Result<Values, ExactError> {
    let nothing = |finished| Ok(Values { objective: 0.0, chosen: Vec::new(), finished });
    match solution {
        Ok(solution) => {
            let value = |known: &Chosen| (known.service, known.choice, solution.value(known.variable));
            let chosen: Vec<_> = chosen.iter().map(value).collect();
            Ok(Values {
                objective: chosen.iter().map(|(.., value)| value).sum(),
                chosen,
                finished: matches!(solution.status(), SolutionStatus::Optimal | SolutionStatus::GapLimit),
            })
        }
        Err(ResolutionError::Other(_)) => nothing(false),
        Err(ResolutionError::Infeasible) if may_lack => nothing(true),
        Err(error) => Err(ExactError::Solver(error.to_string())),
    }
}
