//! Counts the instructions of pieces of work: valgrind's, from outside, or the processor's.

use super::{Counter, Event};
use crate::callgrind::{callgrind_measured, callgrind_part_ends};

/// What counts.
#[derive(Debug)]
pub(crate) struct Meter {
    /// The processor's counter; without it callgrind counts, if the program runs under it.
    counter: Option<Counter>,
    counts: Vec<Option<u64>>,
}

impl Meter {
    /// For a program that runs under callgrind.
    pub fn callgrind() -> Self {
        Self { counter: None, counts: Vec::new() }
    }

    /// By the processor's counter; `None` where there is none.
    pub fn processor() -> Option<Self> {
        Some(Self { counter: Some(Counter::open(Event::INSTRUCTIONS)?), counts: Vec::new() })
    }

    /// Does a piece of work, and counts what it takes.
    pub fn measure<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (done, count) = match &self.counter {
            Some(counter) => counter.count(|| callgrind_measured(work)),
            None => (callgrind_measured(work), None),
        };
        self.counts.push(count);
        callgrind_part_ends(self.counts.len());
        done
    }

    /// How many pieces of work it has seen.
    pub fn pieces(&self) -> usize {
        self.counts.len()
    }

    /// What the processor counted of each piece of work; `None` when one was not counted.
    pub fn counts(&self) -> Option<Vec<f64>> {
        self.counts.iter().map(|count| count.map(|count| count as f64)).collect()
    }
}
