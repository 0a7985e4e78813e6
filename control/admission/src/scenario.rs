//! Scenarios: requests on a router that is described, placed without touching a real one.

use serde::{Deserialize, Serialize};

use crate::exact::{self, ExactError, Solver, rounding};
use crate::hardware::Hardware;
use crate::impact::Candidate;
use crate::norm::Norm;
use crate::placement::prices::{self, Certified};
use crate::placement::{Algorithm, Placement, Problem};
use crate::request::{Request, RequestError};
use crate::utilization_vector::Lack;

/// Time limit of a solver, in seconds.
const SOLVER_SECONDS: f64 = 60.0;

/// Scenario that can't be placed.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A request or an allowance is faulty.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A solver gave no right answer.
    #[error(transparent)]
    Exact(#[from] ExactError),
}

/// File of a scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Known hardware, or the path of a hardware file from the scenario's folder.
    pub hardware: String,
    /// Algorithm.
    #[serde(default)]
    pub algorithm: Method,
    /// Machines and processors that users may use; users without an allowance may use all.
    #[serde(default)]
    pub allowance: Vec<Allowance>,
    /// Requests in the order of arrival.
    #[serde(default, rename = "request")]
    pub requests: Vec<Request>,
}

/// Places that users may use.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowance {
    /// Users.
    pub user: Vec<String>,
    /// Machines and processors.
    pub on: Vec<String>,
}

/// Algorithm of a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// All requests at once, by prices.
    #[default]
    Prices,
    /// All requests at once, by Scan.
    Scan,
    /// All requests at once, by reversed Scan.
    ReversedScan,
    /// All requests at once, by rounding the relaxed model.
    Rounding,
    /// All requests at once, by the exact reference, for a minute at most.
    Exact,
    /// One after the other, by the largest component.
    Balanced,
    /// One after the other, by the Euclidean norm.
    L2Norm,
    /// One after the other: the first processor of the hardware, then as Balanced.
    Hybrid,
    /// One after the other, on the first processor from the ports on.
    Ordered,
}

/// Result of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Name of the hardware.
    pub hardware: String,
    /// Algorithm.
    pub algorithm: Method,
    /// Number of placed requests.
    pub placed: usize,
    /// Number of requests that no placement exceeds.
    pub bound: usize,
    /// Requests in their order.
    pub requests: Vec<Decision>,
    /// Components of the hardware.
    pub components: Vec<Use>,
    /// Promised share of each component after each request, in their order.
    #[serde(skip)]
    pub growth: Vec<Vec<f64>>,
}

/// Decision on a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// Name of the request.
    pub name: String,
    /// Processor that hosts the service; `None` if it was refused.
    pub processor: Option<String>,
    /// For a refused request, the component that each processor lacks most.
    pub lacks: Vec<Lacking>,
}

/// Component that lacks room for a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lacking {
    /// Processor.
    pub processor: String,
    /// Component.
    pub component: String,
    /// Missing share, 1 for the whole component.
    pub missing: f64,
}

/// Use of a component.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Use {
    /// Component.
    pub name: String,
    /// Promised share, 1 for the whole component.
    pub used: f64,
    /// Limit; `None` where nothing limits it.
    pub limit: Option<f64>,
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// The text is not TOML of this schema; the message has the line.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// Places the requests.
    ///
    /// # Errors
    /// The first faulty request, or the first one whose user has an allowance with an unknown place. A solver
    /// that gives no right answer.
    pub fn place(&self, hardware: &Hardware) -> Result<Outcome, ScenarioError> {
        let mut problem = Problem::new(hardware, &self.requests)?;
        for (request, candidate) in self.requests.iter().zip(&mut problem.candidates) {
            self.allow(hardware, request, candidate)?;
        }
        let certified = self.place_all(hardware, &problem)?;
        let placement = certified.placement;
        Ok(Outcome {
            hardware: hardware.name.clone(),
            algorithm: self.algorithm,
            placed: placement.count(),
            bound: certified.bound,
            requests: decisions(&problem, &placement),
            components: uses(&problem, &placement),
            growth: growth(&problem, &placement),
        })
    }

    /// Removes the choices that the allowances of the user of a request don't permit.
    fn allow(
        &self,
        hardware: &Hardware,
        request: &Request,
        candidate: &mut Candidate,
    ) -> Result<(), RequestError> {
        let concerns = |one: &&Allowance| request.user.as_ref().is_some_and(|user| one.user.contains(user));
        for allowance in self.allowance.iter().filter(concerns) {
            // The places of an allowance are checked like those of a request.
            let allowed = Candidate::of(hardware, &Request { on: allowance.on.clone(), ..request.clone() })?;
            candidate.choices.retain(|choice| allowed.choices.contains(choice));
        }
        Ok(())
    }

    /// Returns the placement of the algorithm, with the smallest bound that it and the prices prove.
    fn place_all(&self, hardware: &Hardware, problem: &Problem) -> Result<Certified, ExactError> {
        let weights = hardware.weights("", 1.0);
        let certified = prices::place(problem);
        let algorithm = match self.algorithm {
            Method::Prices => return Ok(certified),
            Method::Rounding => {
                let rounded = rounding::place(problem, Solver::Microlp, SOLVER_SECONDS)?;
                return Ok(Certified { bound: rounded.bound.min(certified.bound), ..rounded });
            }
            Method::Exact => {
                let exact = exact::place(problem, Solver::Microlp, SOLVER_SECONDS)?;
                return Ok(Certified { bound: exact.bound, placement: exact.placement });
            }
            Method::Scan => Algorithm::Scan(Norm::Largest, weights),
            Method::ReversedScan => Algorithm::ReversedScan(Norm::Largest, weights),
            Method::Balanced => Algorithm::LeastNorm(Norm::Largest, weights),
            Method::L2Norm => Algorithm::LeastNorm(Norm::L2, weights),
            Method::Hybrid => Algorithm::Hybrid(0, Norm::Largest, weights),
            Method::Ordered => Algorithm::Ordered((0..hardware.processors.len()).collect()),
        };
        Ok(Certified { placement: problem.place(&algorithm), ..certified })
    }
}

fn decisions(problem: &Problem, placement: &Placement) -> Vec<Decision> {
    let processor = |index: usize| problem.processors.get(index).cloned().unwrap_or_default();
    let lacking = |index: usize, lack: Lack| Lacking {
        processor: processor(index),
        component: problem.components.get(lack.component).map(|known| known.name.clone()).unwrap_or_default(),
        missing: lack.missing.number(),
    };
    let decision = |(candidate, choice): (&Candidate, &Option<usize>)| {
        let chosen = choice.and_then(|choice| candidate.choices.get(choice));
        let refusing = candidate.choices.iter().filter(|_| chosen.is_none());
        let lacks = refusing.filter_map(|choice| {
            Some(lacking(choice.processor, placement.utilization.lack(&choice.impact)?))
        });
        Decision {
            name: candidate.name.clone(),
            processor: chosen.map(|choice| processor(choice.processor)),
            lacks: lacks.collect(),
        }
    };
    problem.candidates.iter().zip(&placement.choices).map(decision).collect()
}

/// Returns the promised share of each component after each request.
fn growth(problem: &Problem, placement: &Placement) -> Vec<Vec<f64>> {
    let mut growing = problem.nothing();
    let mut after = |(service, choice): (usize, &Option<usize>)| {
        if let Some(choice) = choice {
            growing.put(problem, service, *choice);
        }
        growing.utilization.used().iter().map(|part| part.number()).collect()
    };
    placement.choices.iter().enumerate().map(&mut after).collect()
}

fn uses(problem: &Problem, placement: &Placement) -> Vec<Use> {
    let components = problem.components.iter().zip(placement.utilization.used());
    let shown = components.map(|(component, used)| Use {
        name: component.name.clone(),
        used: used.number(),
        limit: Some(component.limit.number()).filter(|limit| limit.is_finite()),
    });
    shown.collect()
}
