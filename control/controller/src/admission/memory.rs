//! Check that memory suffices for the limits of principals.

use millrace_admission::levels::Figures;
use millrace_config::{Admission, Config, MemoryLimit, Principal, Step};
use millrace_units::write_size;

use crate::ControlError;
use crate::model::Model;

/// Checks that the memory of all principals of a configuration fits into what may be promised.
///
/// # Errors
/// Names the first principal beyond this, with its position in the file.
pub(super) fn check_memory_of(config: &Config) -> Result<(), ControlError> {
    check(&config.principal, 0, config.admission.memory.map(MemoryLimit::bytes)).map_err(
        |(index, problem)| {
            let at = [Step::Key("principal"), Step::Entry(index), Step::Key("memory")];
            ControlError::conflict(problem).placed(config, &at)
        },
    )
}

/// Checks that the memory of these principals, and the declared memory of the services of a model, fit into what may be
/// promised.
///
/// # Errors
/// Names the first principal beyond this.
pub(crate) fn check_memory(
    principals: &[Principal],
    model: &Model,
    admission: &Admission,
) -> Result<(), ControlError> {
    check(principals, model.placements.used().memory, limit(admission, &model.placements.figures))
        .map_err(|(_, problem)| ControlError::conflict(problem))
}

/// Returns the index of the first principal whose memory is beyond what may be promised, and the problem.
pub(crate) fn excessive_memory(model: &Model) -> Option<(usize, ControlError)> {
    let limit = limit(&model.admission, &model.placements.figures);
    let checked = check(&model.principals, model.placements.used().memory, limit);
    checked.err().map(|(index, problem)| (index, ControlError::conflict(problem)))
}

/// Returns the sum of the memory limits of principals, in bytes.
pub(super) fn promised(principals: &[Principal]) -> u64 {
    principals.iter().filter_map(|one| one.memory).map(MemoryLimit::bytes).fold(0, u64::saturating_add)
}

/// Returns the memory that may be promised, in bytes: as configured, or else as measured; `None` without a limit.
pub(super) fn limit(admission: &Admission, figures: &Figures) -> Option<u64> {
    // The conversion saturates.
    admission.memory.map(MemoryLimit::bytes).or(figures.memory.map(|bytes| bytes.round() as u64))
}

fn check(principals: &[Principal], services: u64, limit: Option<u64>) -> Result<(), (usize, String)> {
    let Some(whole) = limit else { return Ok(()) };
    let mut left = whole.saturating_sub(services);
    for (index, one) in principals.iter().enumerate() {
        let Some(memory) = one.memory else { continue };
        let Some(rest) = left.checked_sub(memory.bytes()) else {
            return Err((
                index,
                format!(
                    "principal {:?}: memory is {memory}, but other principals and services leave {} of the {} that \
                     admission promises: give less, or reserve less for the others",
                    &*one.name,
                    write_size(left),
                    write_size(whole),
                ),
            ));
        };
        left = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_beyond_the_promised_sum_is_refused() {
        let text = |memory: &str| {
            format!(
                "[admission]\nmemory = \"10 MiB\"\n[[principal]]\nname = \"a\"\nmemory = \"8 MiB\"\n\
                 [[principal]]\nname = \"none\"\n[[principal]]\nname = \"b\"\nmemory = \"{memory}\"\n"
            )
        };
        let checked = |memory: &str| check_memory_of(&Config::parse(&text(memory), "f").unwrap());
        assert_eq!(checked("2 MiB").map_err(|error| error.to_string()), Ok(()));
        let error = checked("3 MiB").unwrap_err().to_string();
        assert!(
            error
                .contains("\"b\": memory is 3MiB, but other principals and services leave 2MiB of the 10MiB"),
            "{error}"
        );
        let unlimited = text("3 MiB").replace("memory = \"10 MiB\"", "");
        assert!(check_memory_of(&Config::parse(&unlimited, "f").unwrap()).is_ok());
    }
}
