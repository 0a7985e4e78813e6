//! Packet source without a router.

use millrace_packet::{Batch, Pool};
use millrace_port::Port;
use millrace_port::memory::Generator;
use millrace_units::Instant;

use super::Setup;
use super::packets::{Chosen, generator};
use crate::BenchError;
use crate::memory::case::Case;

/// Number of memory frames in the pool.
const FRAMES: u32 = 1 << 15;

/// Packet source without a router. Benchmarks subtract its cost.
pub(crate) struct Source {
    generator: Generator,
    pool: Pool,
    batch: Batch,
}

impl Source {
    pub fn with(case: Case, setup: Setup) -> Result<Self, BenchError> {
        let mut source = Self::of(generator(case, setup, Chosen::All))?;
        source.batch.set_limit(setup.batch.into());
        Ok(source)
    }

    /// Creates a source from a generator.
    pub fn of(generator: Generator) -> Result<Self, BenchError> {
        Ok(Self { generator, pool: pool()?, batch: Batch::new() })
    }

    /// Generates and frees `packets` packets in whole batches; returns the actual number.
    pub fn make(&mut self, packets: u64) -> u64 {
        let mut done = 0;
        while done < packets {
            self.generator.receive(&self.pool, Instant::ZERO, &mut self.batch);
            done += self.batch.len() as u64;
            self.generator.transmit(&self.pool, Instant::ZERO, &mut self.batch);
            self.generator.flush(&self.pool, Instant::ZERO);
        }
        done
    }
}

pub(super) fn pool() -> Result<Pool, BenchError> {
    Pool::new(FRAMES).map_err(|error| BenchError::measurement("packet memory", error.to_string()))
}
