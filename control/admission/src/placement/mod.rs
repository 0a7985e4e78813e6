//! Algorithms that place services on processors (VERA, sections 4.4.2 and 4.4.3).

pub mod hybrid;
pub mod improve;
pub mod least_norm;
pub mod online;
pub mod ordered;
pub mod prices;
pub mod scan;

use crate::component::Component;
use crate::hardware::Hardware;
use crate::impact::Candidate;
use crate::norm::Norm;
use crate::request::{Request, RequestError};
use crate::utilization_vector::Utilization;

/// Services to place on a router.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Components of the router with their limits.
    pub components: Vec<Component>,
    /// Names of the processors, nearest to the ports first.
    pub processors: Vec<String>,
    /// Services in the order of arrival, with their choices.
    pub candidates: Vec<Candidate>,
}

/// Answer to a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// For each service the index of its choice; `None` for a service that was refused.
    pub choices: Vec<Option<usize>>,
    /// Utilisation vector with all placed services.
    pub utilization: Utilization,
}

/// Algorithm with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Algorithm {
    /// First processor of an order on which the service fits.
    Ordered(Vec<usize>),
    /// Processor that leaves the least norm: L2-Norm and Balanced.
    LeastNorm(Norm, Vec<f64>),
    /// One processor first, then by least norm.
    Hybrid(usize, Norm, Vec<f64>),
    /// Offline: the pair of service and processor that leaves the least norm, again and again.
    Scan(Norm, Vec<f64>),
    /// Offline: like [`Algorithm::Scan`], the pair of the largest norm first.
    ReversedScan(Norm, Vec<f64>),
}

impl Problem {
    /// Returns the problem of requests on a router.
    ///
    /// # Errors
    /// The first faulty request.
    pub fn new(hardware: &Hardware, requests: &[Request]) -> Result<Self, RequestError> {
        let candidates = requests.iter().map(|request| Candidate::of(hardware, request));
        Ok(Self {
            components: hardware.components.clone(),
            processors: hardware.processors.iter().map(|processor| processor.name.clone()).collect(),
            candidates: candidates.collect::<Result<_, _>>()?,
        })
    }

    /// Returns an answer that places nothing.
    #[must_use]
    pub fn nothing(&self) -> Placement {
        Placement {
            choices: vec![None; self.candidates.len()],
            utilization: Utilization::new(&self.components),
        }
    }

    /// Places the services by an algorithm.
    #[must_use]
    pub fn place(&self, algorithm: &Algorithm) -> Placement {
        match algorithm {
            Algorithm::Scan(norm, weights) => return scan::place(self, *norm, weights, false),
            Algorithm::ReversedScan(norm, weights) => return scan::place(self, *norm, weights, true),
            _ => {}
        }
        let mut placement = self.nothing();
        for (index, candidate) in self.candidates.iter().enumerate() {
            if let Some(choice) = algorithm.choose(&placement.utilization, candidate) {
                placement.put(self, index, choice);
            }
        }
        placement
    }
}

impl Algorithm {
    /// Returns the choice for a service that arrives; `None` where it fits nowhere. Offline algorithms choose by
    /// their norm.
    #[must_use]
    pub fn choose(&self, utilization: &Utilization, candidate: &Candidate) -> Option<usize> {
        match self {
            Self::Ordered(order) => ordered::choose(order, utilization, candidate),
            Self::LeastNorm(norm, weights)
            | Self::Scan(norm, weights)
            | Self::ReversedScan(norm, weights) => least_norm::choose(*norm, weights, utilization, candidate),
            Self::Hybrid(first, norm, weights) => {
                hybrid::choose(*first, *norm, weights, utilization, candidate)
            }
        }
    }
}

impl Placement {
    /// Puts a service on the processor of a choice.
    pub fn put(&mut self, problem: &Problem, service: usize, choice: usize) {
        let impact = problem.candidates.get(service).and_then(|candidate| candidate.choices.get(choice));
        if let (Some(slot @ None), Some(found)) = (self.choices.get_mut(service), impact) {
            *slot = Some(choice);
            self.utilization.add(&found.impact);
        }
    }

    /// Takes a service away, and returns its choice.
    pub fn take(&mut self, problem: &Problem, service: usize) -> Option<usize> {
        let choice = self.choices.get_mut(service)?.take()?;
        let found = problem.candidates.get(service)?.choices.get(choice)?;
        self.utilization.remove(&found.impact);
        Some(choice)
    }

    /// Returns the number of placed services.
    #[must_use]
    pub fn count(&self) -> usize {
        self.choices.iter().flatten().count()
    }

    /// Returns the number of services on each processor.
    #[must_use]
    pub fn counts(&self, problem: &Problem) -> Vec<usize> {
        let mut counts = vec![0; problem.processors.len()];
        for (candidate, choice) in problem.candidates.iter().zip(&self.choices) {
            let processor = choice.and_then(|choice| Some(candidate.choices.get(choice)?.processor));
            if let Some(count) = processor.and_then(|processor| counts.get_mut(processor)) {
                *count += 1;
            }
        }
        counts
    }
}
