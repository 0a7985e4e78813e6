//! Text of the refusal of a service: what each level lacks, and the largest rate that would fit.

use std::fmt::Write as _;

use millrace_admission::placement::online::Refused;
use millrace_config::ServiceLevel;
use millrace_units::count;

use super::room::Room;
use super::{Demand, LEVELS};
use crate::ControlError;

/// Returns the error for a service without room. `impossible` says why it can't run at a level. `most` is the largest
/// rate that fits.
pub(super) fn refusal(
    room: &Room,
    demand: Demand<'_>,
    impossible: impl Fn(ServiceLevel) -> Option<String>,
    refused: &Refused,
    most: u32,
) -> ControlError {
    let Demand { instance, service, .. } = demand;
    let rate = count(service.rate, "packet");
    let mut text = format!("instance {instance:?}: no room for {rate} per second");
    // Writing to a string can't fail.
    for level in LEVELS.into_iter().filter(|level| service.pin().is_none_or(|pin| pin == *level)) {
        let processor = room.hardware.processor(level.name());
        let lack = refused.lacks.iter().find(|(index, _)| Some(*index) == processor);
        let why = match (impossible(level), lack) {
            (Some(why), _) => why,
            (None, Some((_, lack))) => format!("lacks {}", room.lack(*lack)),
            (None, None) => "has room only beside fewer other services".to_owned(),
        };
        let _ = write!(text, "; level {}: {why}", level.name());
    }
    let fitting = match most {
        0 => String::new(),
        most => format!("{} per second would fit; or ", count(most, "packet")),
    };
    let lacks_memory = refused.lacks.iter().any(|(_, lack)| room.is_memory(lack.component));
    let memory = match lacks_memory {
        true => ", reserve less memory for principals, or promise more with `admission set memory=SIZE`",
        false => "",
    };
    ControlError::conflict(format!("{text}: {fitting}free or move other instances{memory}"))
}

/// Returns the largest rate up to `most` that fits. If a rate fits, each lower rate does.
pub(super) fn largest(most: u32, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}
