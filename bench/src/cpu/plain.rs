//! `plain`: instructions of plain packets at a worker without principals, and with principals that have no
//! packets.

use crate::family::Family;
use crate::memory::case::Case;
use crate::memory::instructions::{PACKETS, count};
use crate::memory::setup::Setup;
use crate::testbed::process::is_installed;
use crate::{BenchError, Bound, Measurement, Options};

/// Number of packets per iteration of the worker.
const BATCH: u16 = 32;
const PRINCIPALS: u32 = 1000;
/// Promised maximum: additional instructions per packet with idle principals.
const LIMIT: f64 = 2.0;

pub(super) fn run(options: &mut Options<'_>) -> Result<Vec<Measurement>, BenchError> {
    if !is_installed("valgrind") {
        (options.progress)("valgrind is not installed: instructions of plain packets are not counted");
        return Ok(Vec::new());
    }
    let case = Case { family: Family::V4, flows: 1000 };
    let counted = |principals| {
        count(&options.binary, case, Setup { batch: BATCH, principals, ..Setup::default() }, PACKETS)
    };
    let Some((without, with)) = counted(0)?.zip(counted(PRINCIPALS)?) else {
        (options.progress)("callgrind found no function names: instructions are not counted");
        return Ok(Vec::new());
    };
    (options.progress)(&format!(
        "plain packets in batches of {BATCH}: {without:.1} instructions without principals, {with:.1} with \
         {PRINCIPALS} idle ones"
    ));
    let unit = "instructions/packet";
    Ok(vec![
        Measurement::of("plain, no principals", without, unit),
        Measurement::of("plain, 1,000 idle principals, additional instructions", with - without, unit)
            .promising(Bound::AtMost, LIMIT),
    ])
}
