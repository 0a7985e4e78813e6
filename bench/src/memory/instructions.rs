//! Instructions per packet, counted by valgrind's callgrind. The machine's load does not affect these counts.
//!
//! The binary runs itself under callgrind, with a name that [`super::run_measured`] parses. Callgrind counts
//! only inside `callgrind_measured`. Callgrind hides some vector instructions from the program, so the
//! program runs its portable code.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::case::Case;
use super::setup::Setup;
use crate::{BenchError, callgrind};

/// Usual number of counted packets, a multiple of the batch size.
pub(crate) const PACKETS: u64 = 25_600;
/// Time limit of one run.
const PATIENCE: Duration = Duration::from_secs(60);

/// Code that callgrind counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum What {
    Source,
    Pipeline,
}

/// Run for callgrind, which only forwards packets: code, packets, router setup, number of packets.
pub(super) type Part = (What, Case, Setup, u64);
/// Name of the benchmark that the runs belong to.
pub(super) const BENCH: &str = "memory";

/// Counts the pipeline's instructions per packet, as the mean over `packets` packets. Subtracts the
/// instructions of the packet source. Returns `None` if the binary has no function names.
pub(crate) fn count(
    binary: &Path,
    case: Case,
    setup: Setup,
    packets: u64,
) -> Result<Option<f64>, BenchError> {
    let run = |what| {
        let part: Part = (what, case, setup, packets);
        callgrind::instructions(binary, &callgrind::name_of(BENCH, &part), PATIENCE)
    };
    let net = run(What::Pipeline)?.zip(run(What::Source)?).map(|(pipeline, source)| pipeline - source);
    Ok(net.filter(|net| *net > 0.0).map(|net| net / packets as f64))
}

#[cfg(test)]
mod tests {
    use super::super::setup::{GatesSetup, QueueSetup};
    use super::*;
    use crate::family::Family;

    #[test]
    fn a_name_is_understood() {
        for family in Family::BOTH {
            let case = Case { family, flows: 1000 };
            for what in [What::Source, What::Pipeline] {
                let (gates, queue) = (GatesSetup::Filters(7), QueueSetup::PerFlow);
                let setup = Setup { gates, queue, flow_packets: 3, ..Setup::default() };
                let part: Part = (what, case, setup, PACKETS);
                assert_eq!(callgrind::part_of(BENCH, &callgrind::name_of(BENCH, &part)), Some(part));
            }
        }
        assert_eq!(callgrind::part_of::<Part>(BENCH, "memory/[]"), None);
        assert_eq!(callgrind::part_of::<Part>(BENCH, "memory"), None);
    }
}
