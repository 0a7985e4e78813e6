//! Instructions per packet, counted by valgrind's callgrind, which noise does not affect.
//!
//! The binary runs itself under callgrind, with a name that [`super::run_measured`] parses. Callgrind counts
//! only inside `callgrind_measured`. It hides some vector instructions from the program, which then runs the
//! portable code.

use std::path::Path;
use std::time::Duration;

use super::case::Case;
use super::setup::Setup;
use crate::{BenchError, callgrind};

/// Counted packets, a multiple of the batch size.
const PACKETS: u64 = 25_600;
/// Time limit of one run.
const PATIENCE: Duration = Duration::from_secs(60);

/// Code to run under callgrind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Source,
    Pipeline,
}

/// Name prefix of a run that only forwards a number of packets.
pub(super) const PREFIX: &str = "memory/";

/// Counts the pipeline's instructions per packet, minus the source's instructions. Returns `None` if the
/// binary has no function names.
pub(crate) fn count(binary: &Path, case: Case, setup: Setup) -> Result<Option<f64>, BenchError> {
    count_of(binary, case, setup, PACKETS)
}

/// Counts the pipeline's instructions per packet, as [`count`] does, over a given number of packets.
pub(super) fn count_of(
    binary: &Path,
    case: Case,
    setup: Setup,
    packets: u64,
) -> Result<Option<f64>, BenchError> {
    let run = |what| callgrind::instructions(binary, &name(what, case, setup, packets), PATIENCE);
    let net = run(What::Pipeline)?.zip(run(What::Source)?).map(|(pipeline, source)| pipeline - source);
    Ok(net.filter(|net| *net > 0.0).map(|net| net / packets as f64))
}

fn name(what: What, case: Case, setup: Setup, packets: u64) -> String {
    let what = if what == What::Source { "source" } else { "pipeline" };
    format!("{PREFIX}{what}/{}/{packets}/{}", case.word(), setup.word())
}

/// Parses a name made by [`name`].
pub(super) fn parse(name: &str) -> Option<(What, Case, Setup, u64)> {
    let mut words = name.strip_prefix(PREFIX)?.split('/');
    let what = match words.next()? {
        "source" => What::Source,
        "pipeline" => What::Pipeline,
        _ => return None,
    };
    let (case, packets) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let setup = Setup::of_word(words.next()?)?;
    words.next().is_none().then_some((what, case, setup, packets))
}

#[cfg(test)]
mod tests {
    use super::super::case::Family;
    use super::super::setup::{GatesSetup, QueueSetup};
    use super::*;

    #[test]
    fn a_name_is_understood() {
        for family in [Family::V4, Family::V6] {
            let case = Case { family, flows: 1000 };
            for what in [What::Source, What::Pipeline] {
                let (gates, queue) = (GatesSetup::Filters(7), QueueSetup::PerFlow);
                let setup = Setup { gates, queue, flow_packets: 3, ..Setup::default() };
                assert_eq!(parse(&name(what, case, setup, PACKETS)), Some((what, case, setup, PACKETS)));
            }
        }
        assert_eq!(parse("memory/source/ipv4-1/x/none-1-0-1-fifo-0-uniform-64"), None);
        assert_eq!(parse("memory"), None);
    }
}
