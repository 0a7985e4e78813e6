//! Checks that the processors and the workers have the shares that principals reserve.

use std::collections::BTreeSet;

use millrace_config::{Config, CpuShare, Filter, Principal, Router, Step};
use millrace_units::count;

use super::processors;
use crate::ControlError;
use crate::model::Model;
use crate::model::principals::Owners;

/// Parts per million in a whole processor.
const WHOLE: u64 = 1_000_000;

/// Reserved share that doesn't fit: the index of its principal, and the problem.
type Excess = (usize, String);

/// Checks that the reserved shares of all principals fit on this machine, and those of the principals that pay
/// for bindings on the workers.
///
/// # Errors
/// Names the first principal beyond this, with its position in the file.
pub(crate) fn check_shares(config: &Config) -> Result<(), ControlError> {
    let given = config.filter.iter().filter_map(|filter| filter.action.value().principal());
    let named: BTreeSet<&str> =
        config.bind.iter().filter_map(|bind| bind.principal.as_deref()).chain(given).collect();
    let payers: BTreeSet<&str> =
        named.into_iter().map(|name| Principal::payer(&config.principal, name)).collect();
    let pays = |name: &str| payers.contains(name);
    check(&config.principal, processors(), &config.router, pays).map_err(|(index, problem)| {
        let at = [Step::Key("principal"), Step::Entry(index), Step::Key("cpu")];
        ControlError::conflict(problem).placed(config, &at)
    })
}

/// Checks that the shares of these principals fit, once also `payer` pays for bindings.
///
/// # Errors
/// Names the first principal beyond this.
pub(crate) fn check_running(
    model: &Model,
    principals: &[Principal],
    payer: Option<&str>,
) -> Result<(), ControlError> {
    // Principals of bindings may get another payer by the change.
    let named: BTreeSet<&str> = Owners(model).bound_principals().chain(payer).collect();
    let payers: BTreeSet<&str> = named.into_iter().map(|name| Principal::payer(principals, name)).collect();
    let pays = |name: &str| payers.contains(name);
    let checked = check(principals, processors(), &model.router, pays);
    checked.map_err(|(_, problem)| ControlError::conflict(problem))
}

/// Checks that the shares of all principals fit, once a filter gives its principal to paths.
///
/// # Errors
/// Names the first principal beyond this.
pub(crate) fn check_filter(model: &Model, filter: &Filter) -> Result<(), ControlError> {
    match filter.action.value().principal() {
        Some(name) if !model.pays(Principal::payer(&model.principals, name)) => {
            check_running(model, &model.principals, Some(name))
        }
        _ => Ok(()),
    }
}

/// Checks that the reserved shares fit with other router-wide settings.
///
/// # Errors
/// Names the first principal beyond this.
pub(crate) fn check_ceiling(model: &Model, router: &Router) -> Result<(), ControlError> {
    let checked = check(&model.principals, processors(), router, |name| model.pays(name));
    checked.map_err(|(_, problem)| ControlError::conflict(problem))
}

/// Returns the processor time that principals can still reserve for bindings, in percent of one processor.
pub(crate) fn left(model: &Model) -> f64 {
    let reserved = |counts: &dyn Fn(&Principal) -> bool| -> u64 {
        let shares = model.principals.iter().filter(|one| counts(one)).filter_map(Principal::reserved_cpu);
        shares.map(|share| u64::from(share.ppm())).sum()
    };
    let of_machine = (processors() as u64 * WHOLE).saturating_sub(reserved(&|_| true));
    let of_workers = of_workers(&model.router).saturating_sub(reserved(&|one| model.pays(&one.name)));
    percent(of_machine.min(of_workers))
}

/// Returns the time that `core-ceiling` leaves of all workers, in parts per million of one processor.
fn of_workers(router: &Router) -> u64 {
    router.workers as u64 * (WHOLE - u64::from(router.core_ceiling.ppm()))
}

fn check(
    principals: &[Principal],
    processors: usize,
    router: &Router,
    pays: impl Fn(&str) -> bool,
) -> Result<(), Excess> {
    let on = count(processors, "processor");
    fit(principals, processors as u64 * WHOLE, &on, |_| true)?;
    let on = format!("{}, which keep {} each for core", count(router.workers, "worker"), router.core_ceiling);
    fit(principals, of_workers(router), &on, |one| pays(&one.name))
}

/// Checks that the shares of the principals that `counts` selects add up to `whole` parts per million at most.
fn fit(
    principals: &[Principal],
    whole: u64,
    on: &str,
    counts: impl Fn(&Principal) -> bool,
) -> Result<(), Excess> {
    let mut sum = 0;
    let reserving = |one: &Principal| one.reserved_cpu().filter(|_| counts(one)).map(CpuShare::ppm);
    for (index, principal) in principals.iter().enumerate() {
        let Some(share) = reserving(principal) else { continue };
        let left = whole.saturating_sub(sum);
        sum += u64::from(share);
        if sum > whole {
            return Err((
                index,
                format!(
                    "principal {:?}: cpu is {} %, but the other principals leave {} % of {on}: give less, or reserve \
                     less for the others",
                    &*principal.name,
                    percent(share.into()),
                    percent(left)
                ),
            ));
        }
    }
    Ok(())
}

fn percent(ppm: u64) -> f64 {
    ppm as f64 / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(entries: &str) -> Config {
        Config::parse(entries, "f").unwrap()
    }

    #[test]
    fn shares_above_all_processors_are_refused() {
        let text =
            "[[principal]]\nname = \"a\"\ncpu = \"80 %\"\n[[principal]]\nname = \"b\"\ncpu = \"30 %\"\n";
        let config = config(text);
        let checked = |processors| check(&config.principal, processors, &config.router, |_| false);
        assert_eq!(
            checked(1),
            Err((
                1,
                "principal \"b\": cpu is 30 %, but the other principals leave 20 % of 1 processor: give less, or \
                 reserve less for the others"
                    .to_owned()
            ))
        );
        assert_eq!(checked(2), Ok(()));
    }

    #[test]
    fn principals_of_filters_fit_below_the_ceiling_of_core() {
        let text = "[router]\ncore-ceiling = \"70 %\"\n[[principal]]\nname = \"a\"\ncpu = \"30 %\"\n\
                    [[principal]]\nname = \"b\"\ncpu = \"10 %\"\n\
                    [[principal]]\nname = \"c\"\ncpu = { same-as = \"b\" }\n";
        let filter = |protocol: &str, action: &str| {
            format!("[[filter]]\nmatch = \"proto {protocol}\"\naction = \"{action}\"\n")
        };
        let checked = |first: &str, second: &str| {
            let text = format!("{text}{}{}", filter("tcp", first), filter("udp", second));
            check_shares(&config(&text)).map_err(|error| error.to_string())
        };
        assert_eq!(checked("principal a", "queue principal:c"), Ok(()));
        assert_eq!(checked("principal b", "principal c"), Ok(()));
        let error = checked("principal a", "principal c").unwrap_err();
        assert!(
            error.contains("principal \"b\": cpu is 10 %, but the other principals leave 0 %"),
            "{error}"
        );
    }

    #[test]
    fn principals_that_pay_for_bindings_fit_below_the_ceiling_of_core() {
        let text = "[router]\ncore-ceiling = \"70 %\"\n[[principal]]\nname = \"a\"\ncpu = \"30 %\"\n\
                    [[principal]]\nname = \"b\"\ncpu = \"30 %\"\n";
        let config = config(text);
        let checked = |workers, payers: &[&str]| {
            let router = Router { workers, ..config.router.clone() };
            check(&config.principal, 4, &router, |name| payers.contains(&name)).map_err(|(index, _)| index)
        };
        assert_eq!((checked(1, &["a"]), checked(1, &["b"])), (Ok(()), Ok(())));
        assert_eq!(checked(1, &["a", "b"]), Err(1));
        assert_eq!(checked(2, &["a", "b"]), Ok(()));
    }
}
