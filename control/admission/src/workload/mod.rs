//! Workloads of VERA's experiments: random services of four classes in a given mix (sections 4.3.2 and 4.5.2).

mod class;
mod minimum_impact;

use crate::component::Role;
use crate::hardware::Hardware;
use crate::impact::Candidate;
use crate::part::Part;
use crate::placement::Problem;
use crate::random::Random;
use crate::request::Request;

pub use class::{CLASSES, Distribution, ServiceClass};
pub use minimum_impact::minimum_impact;

/// Percentages of tiny, small, medium and large services.
pub type Mix = [u32; 4];

/// Mixes of the experiments with the IXP1200 router (table 4.5).
pub const MIXES: [Mix; 19] = [
    [3, 51, 45, 1],
    [5, 49, 45, 1],
    [7, 47, 45, 1],
    [9, 45, 45, 1],
    [11, 43, 45, 1],
    [13, 41, 45, 1],
    [15, 39, 45, 1],
    [9, 15, 75, 1],
    [9, 25, 65, 1],
    [9, 35, 55, 1],
    [9, 55, 35, 1],
    [9, 65, 25, 1],
    [9, 75, 15, 1],
    [9, 45, 33, 13],
    [9, 45, 35, 11],
    [9, 45, 37, 9],
    [9, 45, 39, 7],
    [9, 45, 41, 5],
    [9, 45, 43, 3],
];

/// Generated workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Requests in the order of arrival, with their classes.
    pub requests: Vec<(ServiceClass, Request)>,
    /// Services with their choices on the hardware.
    pub problem: Problem,
    /// Sum of the smallest impacts for each component.
    pub minimum: Vec<Part>,
}

impl Workload {
    /// Generates a workload: services are added until the smallest impacts would fill the ports and one other
    /// component.
    #[must_use]
    pub fn generate(hardware: &Hardware, mix: Mix, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let ports: f64 = hardware.ports.iter().map(|port| port.count).sum();
        let mut workload = Self {
            requests: Vec::new(),
            problem: Problem {
                components: hardware.components.clone(),
                processors: hardware.processors.iter().map(|processor| processor.name.clone()).collect(),
                candidates: Vec::new(),
            },
            minimum: vec![Part::ZERO; hardware.components.len()],
        };
        let mut deck = Deck::new(mix);
        while workload.requests.len() < MOST {
            let class = deck.draw(&mut random);
            let request = class.request(workload.requests.len(), ports, &hardware.packet, &mut random);
            // Generated requests have no faults.
            let Ok(candidate) = Candidate::of(hardware, &request) else { break };
            let smallest = minimum_impact(&candidate, &hardware.components);
            let sum: Vec<Part> = workload
                .minimum
                .iter()
                .zip(smallest)
                .map(|(sum, part)| sum.plus(part).unwrap_or(Part::UNBOUNDED))
                .collect();
            if is_full(hardware, &sum) {
                break;
            }
            workload.minimum = sum;
            workload.requests.push((class, request));
            workload.problem.candidates.push(candidate);
        }
        workload
    }

    /// Returns the number of services of each class.
    #[must_use]
    pub fn counts(&self) -> [usize; 4] {
        CLASSES.map(|class| self.requests.iter().filter(|(other, _)| *other == class).count())
    }
}

/// Most services of a workload: no hardware of the papers comes near.
const MOST: usize = 100_000;

/// Whether the ports and another component are full.
fn is_full(hardware: &Hardware, sum: &[Part]) -> bool {
    let is_full = |port: bool| {
        let mut shares = hardware.components.iter().zip(sum);
        shares.any(|(component, share)| (component.role == Role::Port) == port && *share >= Part::WHOLE)
    };
    is_full(true) && is_full(false)
}

/// Shuffled cards with the classes of a mix: after all cards are drawn, the mix is exact.
struct Deck {
    mix: Mix,
    cards: Vec<ServiceClass>,
}

impl Deck {
    fn new(mix: Mix) -> Self {
        Self { mix, cards: Vec::new() }
    }

    fn draw(&mut self, random: &mut Random) -> ServiceClass {
        if self.cards.is_empty() {
            let cards = CLASSES.iter().zip(self.mix);
            self.cards = cards.flat_map(|(class, count)| vec![*class; count as usize]).collect();
        }
        let card = random.below(self.cards.len());
        if self.cards.is_empty() { ServiceClass::Small } else { self.cards.swap_remove(card) }
    }
}
