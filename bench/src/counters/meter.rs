//! Instruction counts of pieces of work: counted from outside by callgrind, or by the processor's counter.

use super::{Counter, Event};
use crate::callgrind::{callgrind_measured, callgrind_part_ends};

/// Instruction counter for pieces of work.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Processor's counter; `None` if callgrind counts this program.
    counter: Option<Counter>,
    counts: Vec<Option<u64>>,
}

impl Meter {
    /// Returns a meter for a program that callgrind counts.
    pub fn callgrind() -> Self {
        Self { counter: None, counts: Vec::new() }
    }

    /// Returns a meter with the processor's counter; `None` without such a counter.
    pub fn processor() -> Option<Self> {
        Some(Self { counter: Some(Counter::open(Event::INSTRUCTIONS)?), counts: Vec::new() })
    }

    /// Runs `work`, and counts its instructions.
    pub fn measure<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (done, count) = match &self.counter {
            Some(counter) => counter.count(|| callgrind_measured(work)),
            None => (callgrind_measured(work), None),
        };
        self.counts.push(count);
        callgrind_part_ends(self.counts.len());
        done
    }

    /// Returns the number of measured pieces of work.
    pub fn pieces(&self) -> usize {
        self.counts.len()
    }

    /// Returns the processor's count for each piece of work; `None` if a count is missing.
    pub fn counts(&self) -> Option<Vec<f64>> {
        self.counts.iter().map(|count| count.map(|count| count as f64)).collect()
    }
}
