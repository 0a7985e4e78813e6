//! Components of the router that principals reserve, and what is promised of each.

use std::collections::BTreeSet;

use millrace_config::{Bits, Principal};

use super::time::{Whole, percent, promised};
use super::{memory, services};
use crate::model::Model;
use crate::model::PortPlan;
use crate::model::placements::{PlacedService, Used};
use crate::model::schedulers::links::{guaranteed, links};
use crate::view::{AdmissionView, ClaimView, ComponentView};

/// Name of the claim of the nodes that a port's own scheduler guarantees a rate.
const OWN_NODES: &str = "nodes of the scheduler";

/// Name of the claim of principals and services that use all workers alike.
const ALL_WORKERS: &str = "all workers";

/// Returns what may be promised of each component, what is promised, and to whom.
pub(crate) fn view(model: &Model) -> AdmissionView {
    view_with(model, &model.placements.services)
}

/// Works like [`view`] with these services instead of those of the model.
pub(crate) fn view_with(model: &Model, placed: &[PlacedService]) -> AdmissionView {
    let (whole, principals) = (Whole::of(&model.router, &model.admission), &model.principals);
    let cpu = |name: &str, whole: u64, counts: &dyn Fn(&Principal) -> bool, of: fn(Used) -> u64| {
        let shares = principals.iter().filter(|one| counts(one)).filter_map(|one| {
            Some(ClaimView { by: one.name.to_string(), amount: percent(one.reserved_cpu()?.ppm().into()) })
        });
        let services = placed.iter().filter(|one| of(one.used) > 0);
        let of_services = services
            .map(|one| ClaimView { by: format!("instance {}", one.instance), amount: percent(of(one.used)) });
        let claims: Vec<_> = shares.chain(of_services).collect();
        let component = ComponentView {
            component: name.to_owned(),
            unit: "%",
            whole: Some(percent(whole)),
            promised: claims.iter().map(|claim| claim.amount).sum(),
            left: None,
            claims,
        };
        component.complete()
    };
    let mut components = vec![
        cpu("processors", whole.of_processors(), &|_| true, |used| used.worker + used.host),
        cpu("workers", whole.of_workers(), &|one| model.pays(&one.name), |used| used.worker),
    ];
    components.extend(workers(model, placed));
    components.extend(services::levels(model, placed));
    components.extend(model.ports.iter().filter_map(|plan| link(model, plan)));
    let claims = principals
        .iter()
        .filter_map(|one| Some(ClaimView { by: one.name.to_string(), amount: one.memory?.bytes() as f64 }));
    let of_services = placed.iter().filter(|one| one.used.memory > 0);
    let of_services = of_services
        .map(|one| ClaimView { by: format!("instance {}", one.instance), amount: one.used.memory as f64 });
    let claims: Vec<_> = claims.chain(of_services).collect();
    let of_memory = ComponentView {
        component: "memory".to_owned(),
        unit: "bytes",
        whole: memory::limit(&model.admission, &model.placements.figures).map(|whole| whole as f64),
        promised: claims.iter().map(|claim| claim.amount).sum(),
        left: None,
        claims,
    };
    components.push(of_memory.complete());
    AdmissionView {
        cpu: model.admission.cpu.to_string(),
        link: model.admission.link.to_string(),
        memory: model.admission.memory.map(|memory| memory.to_string()),
        components,
    }
}

/// Returns the workers to which services are pinned. What runs at all workers uses the same part of each.
fn workers(model: &Model, placed: &[PlacedService]) -> Vec<ComponentView> {
    let whole = percent(Whole::of_worker(model));
    let numbers: BTreeSet<u16> = placed.iter().filter_map(|one| one.service.worker).collect();
    let all = model.router.workers as f64;
    let spread =
        placed.iter().filter(|one| one.service.worker.is_none()).map(|one| one.used.worker).sum::<u64>();
    let spread = percent(spread + promised(model, |one| model.pays(&one.name))) / all;
    let view = |number: u16| {
        let own = placed.iter().filter(|one| one.service.worker == Some(number));
        let own = own.map(|one| ClaimView {
            by: format!("instance {}", one.instance),
            amount: percent(one.used.worker),
        });
        let rest = (spread > 0.0).then(|| ClaimView { by: ALL_WORKERS.to_owned(), amount: spread });
        let claims: Vec<_> = own.chain(rest).collect();
        let component = ComponentView {
            component: format!("worker {number}"),
            unit: "%",
            whole: Some(whole),
            promised: claims.iter().map(|claim| claim.amount).sum(),
            left: None,
            claims,
        };
        component.complete()
    };
    numbers.into_iter().map(view).collect()
}

/// Returns the rate of a port; `None` without a rate.
fn link(model: &Model, plan: &PortPlan) -> Option<ComponentView> {
    let port = &*plan.config.name;
    let scheduler = model.schedulers.configured(plan.id)?;
    let (Bits(rate), links) = (scheduler.rate?, links(&model.principals, port));
    let own = Some(guaranteed(&scheduler)).filter(|own| *own > 0);
    let own = own.map(|own| ClaimView { by: OWN_NODES.to_owned(), amount: own as f64 });
    let reserved =
        links.reserved.iter().map(|link| ClaimView { by: link.name.clone(), amount: link.rate as f64 });
    let claims: Vec<_> = own.into_iter().chain(reserved).collect();
    let component = ComponentView {
        component: format!("link {port}"),
        unit: "bit/s",
        whole: Some(model.admission.link.of(rate) as f64),
        promised: claims.iter().map(|claim| claim.amount).sum(),
        left: None,
        claims,
    };
    Some(component.complete())
}
