//! Checks that the processors and the workers have the shares that principals reserve.

use std::collections::BTreeSet;

use millrace_config::{Admission, Config, CpuShare, Filter, Principal, Router, Step};
use millrace_units::count;

use super::services::check_pinned;
use super::time::{Whole, percent, promised};
use crate::ControlError;
use crate::model::Model;
use crate::model::principals::Owners;

/// Reserved share that doesn't fit: the index of its principal, and the problem.
type Excess = (usize, String);

/// Checks that the reserved shares of the principals that pay for bindings fit on the workers. If `is_here`, also
/// checks that the shares of all principals fit on this machine.
///
/// # Errors
/// Names the first principal beyond this, with its position in the file.
pub(super) fn check_shares(config: &Config, is_here: bool) -> Result<(), ControlError> {
    let given = config.filter.iter().filter_map(|filter| filter.action.value().principal());
    let named: BTreeSet<&str> =
        config.bind.iter().filter_map(|bind| bind.principal.as_deref()).chain(given).collect();
    let payers: BTreeSet<&str> =
        named.into_iter().map(|name| Principal::payer(&config.principal, name)).collect();
    let pays = |name: &str| payers.contains(name);
    let here = Whole::of(&config.router, &config.admission);
    let whole = Whole { processors: here.processors.filter(|_| is_here), ..here };
    check(&config.principal, whole, pays).map_err(|(index, problem)| {
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
    let whole = Whole::of(&model.router, &model.admission).beside(model.placements.used());
    check(principals, whole, pays).map_err(|(_, problem)| ControlError::conflict(problem))?;
    check_pinned(model, principals, pays)
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

/// Checks that the reserved shares fit with other router-wide settings, or if another part may be promised.
///
/// # Errors
/// Names the first principal beyond this.
pub(crate) fn check_with(model: &Model, router: &Router, admission: &Admission) -> Result<(), ControlError> {
    let (used, whole) = (model.placements.used(), Whole::of(router, admission));
    if used.worker > whole.of_workers() || used.worker + used.host > whole.of_processors() {
        return Err(ControlError::conflict(format!(
            "the services use {} % at the workers and {} % at the host, but only {} % at the workers and {} % in all \
             could be promised: free or move instances first",
            percent(used.worker),
            percent(used.host),
            percent(whole.of_workers()),
            percent(whole.of_processors())
        )));
    }
    let checked = check(&model.principals, whole.beside(used), |name| model.pays(name));
    checked.map_err(|(_, problem)| ControlError::conflict(problem))
}

/// Returns the processor time that principals can still reserve for bindings, in percent of one processor.
pub(crate) fn left(model: &Model) -> f64 {
    let (whole, used) = (Whole::of(&model.router, &model.admission), model.placements.used());
    let of_machine = whole.of_processors().saturating_sub(used.worker + used.host);
    let of_machine = of_machine.saturating_sub(promised(model, |_| true));
    let of_workers = whole.of_workers().saturating_sub(used.worker);
    let of_workers = of_workers.saturating_sub(promised(model, |one| model.pays(&one.name)));
    percent(of_machine.min(of_workers))
}

fn check(principals: &[Principal], whole: Whole<'_>, pays: impl Fn(&str) -> bool) -> Result<(), Excess> {
    let Whole { processors, router, used, .. } = whole;
    if let Some(processors) = processors {
        let all = used.worker + used.host;
        let on = whole.limited(count(processors, "processor"), all);
        fit(principals, whole.of_processors().saturating_sub(all), &on, |_| true)?;
    }
    let on = format!("{}, which keep {} each for core", count(router.workers, "worker"), router.core_ceiling);
    let left = whole.of_workers().saturating_sub(used.worker);
    fit(principals, left, &whole.limited(on, used.worker), |one| pays(&one.name))
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

#[cfg(test)]
mod tests {
    use millrace_config::PromisedPart;

    use super::*;
    use crate::model::placements::Used;

    fn config(entries: &str) -> Config {
        Config::parse(entries, "f").unwrap()
    }

    #[test]
    fn shares_above_all_processors_are_refused() {
        let text =
            "[[principal]]\nname = \"a\"\ncpu = \"80 %\"\n[[principal]]\nname = \"b\"\ncpu = \"30 %\"\n";
        let config = config(text);
        let part = PromisedPart::clamped(1_000_000);
        let checked = |processors| {
            check(
                &config.principal,
                Whole { processors: Some(processors), router: &config.router, part, used: Used::default() },
                |_| false,
            )
        };
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
            check_shares(&config(&text), true).map_err(|error| error.to_string())
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
            let part = PromisedPart::clamped(1_000_000);
            let whole = Whole { processors: Some(4), router: &router, part, used: Used::default() };
            check(&config.principal, whole, |name| payers.contains(&name)).map_err(|(index, _)| index)
        };
        assert_eq!((checked(1, &["a"]), checked(1, &["b"])), (Ok(()), Ok(())));
        assert_eq!(checked(1, &["a", "b"]), Err(1));
        assert_eq!(checked(2, &["a", "b"]), Ok(()));
    }

    #[test]
    fn only_the_promised_part_can_be_reserved() {
        let text = "[admission]\ncpu = \"50 %\"\n[[principal]]\nname = \"a\"\ncpu = \"60 %\"\n";
        let config = config(text);
        let checked = |processors| {
            let whole = Whole {
                processors: Some(processors),
                router: &config.router,
                part: config.admission.cpu,
                used: Used::default(),
            };
            check(&config.principal, whole, |_| false).map_err(|(_, problem)| problem)
        };
        let problem = checked(1).unwrap_err();
        assert!(
            problem.contains("leave 50 % of 1 processor, of which admission promises 50 %: "),
            "{problem}"
        );
        assert_eq!(checked(2), Ok(()));
    }
}
