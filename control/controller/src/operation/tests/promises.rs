//! Property: whatever is requested, removed, fails in the middle or starts again, no more is promised than there is,
//! and nothing leaks.

use proptest::prelude::*;

use super::allowances::{lab, with_allowance};
use super::*;
use crate::admission::time::Whole;
use crate::configuration::Apply;
use crate::filters::bindings::bindings_of;
use crate::workers::handle::silence::Silence;
use crate::workers::tsc::frequency;

/// Amounts of a request: percent of a processor, Mbit/s at port `wan`, and MiB.
type Amounts = (Option<u32>, Option<u32>, Option<u32>);

/// Load of a service: packets per second, bytes of a packet, and cycles per packet and per byte.
type Load = (u32, u32, u32, u32);

#[derive(Clone, Debug)]
enum Step {
    Add(usize, Amounts),
    /// Adds a principal that shares the amounts of another one.
    Share(usize, usize),
    Set(usize, Amounts),
    Remove(usize),
    Reserve(usize, u32, bool),
    Release(usize),
    Bind(usize, u16),
    /// Creates an instance with a service, with a configured level or none.
    Create(usize, Load, Option<&'static str>),
    /// Binds an instance that a step has created, and names no principal.
    Use(usize, u16),
    /// Changes rate and level of an instance's service.
    Move(usize, u32, Option<&'static str>),
    /// Frees an instance, with its service.
    Free(usize),
    /// Changes the promised parts of processors and links, in percent, and the memory in MiB.
    Admission(u32, u32, u32),
    /// Applies the running configuration with one more principal.
    Apply(usize, Amounts),
    Restart,
}

fn amounts() -> impl Strategy<Value = Amounts> {
    let some = |most| proptest::option::of(1..most);
    (some(120_u32), some(12_u32), some(40_u32))
}

/// Loads of up to four processors.
fn load() -> impl Strategy<Value = Load> {
    (rate(), 64..=1_538_u32, 0..100_000_u32, 0..10_u32)
}

fn rate() -> impl Strategy<Value = u32> {
    prop_oneof![1 => Just(0), 4 => 1..100_000_u32]
}

/// Ports in memory have no offload, and the plugins here no processes, so only the level `worker` is possible.
fn level() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![3 => Just(None), 2 => Just(Some("worker")), 1 => Just(Some("offload")), 1 => Just(Some("host"))]
}

fn steps() -> impl Strategy<Value = Vec<(Step, bool, Option<u64>)>> {
    let name = || 0..4_usize;
    let step = prop_oneof![
        4 => (name(), amounts()).prop_map(|(name, amounts)| Step::Add(name, amounts)),
        1 => (name(), name()).prop_map(|(name, other)| Step::Share(name, other)),
        4 => (name(), amounts()).prop_map(|(name, amounts)| Step::Set(name, amounts)),
        1 => name().prop_map(Step::Remove),
        3 => (name(), 1..120_u32, any::<bool>()).prop_map(|(name, cpu, bound)| Step::Reserve(name, cpu, bound)),
        1 => name().prop_map(Step::Release),
        3 => (name(), 1..9_u16).prop_map(|(name, port)| Step::Bind(name, port)),
        1 => (50..=100_u32, 50..=100_u32, 20..60_u32).prop_map(|(cpu, link, memory)| Step::Admission(cpu, link, memory)),
        3 => (name(), load(), level()).prop_map(|(name, load, level)| Step::Create(name, load, level)),
        3 => (name(), 1..9_u16).prop_map(|(name, port)| Step::Use(name, port)),
        3 => (name(), rate(), level()).prop_map(|(name, rate, level)| Step::Move(name, rate, level)),
        1 => name().prop_map(Step::Free),
        2 => (name(), amounts()).prop_map(|(name, amounts)| Step::Apply(name, amounts)),
        1 => Just(Step::Restart),
    ];
    // For one request in four, a worker doesn't answer one of the first questions.
    let silent = proptest::option::weighted(0.25, 0..6_u64);
    proptest::collection::vec((step, any::<bool>(), silent), 20..50)
}

fn wanted(name: usize, (cpu, link, memory): Amounts) -> Map<String, Value> {
    let mut wanted = settings(json!({"name": format!("p{name}")}));
    wanted.extend(cpu.map(|cpu| ("cpu".to_owned(), format!("{cpu} %").into())));
    wanted.extend(link.map(|link| ("link".to_owned(), json!({"wan": format!("{link}mbit")}))));
    wanted.extend(memory.map(|memory| ("memory".to_owned(), format!("{memory}MiB").into())));
    wanted
}

fn instance(number: usize) -> String {
    format!("i{number}")
}

/// Carries out a step. Most steps are refused; the state afterwards counts.
async fn make(router: &Router, by: &Principal, step: Step) {
    let name = |name: usize| format!("p{name}");
    match step {
        Step::Add(one, amounts) => {
            drop(router.execute(by, AddPrincipal(read(wanted(one, amounts).into()))).await)
        }
        Step::Share(one, other) => {
            let shared = json!({"same-as": name(other)});
            let new = json!({"name": name(one), "cpu": shared, "link": {"wan": shared}});
            drop(router.execute(by, AddPrincipal(read(new))).await);
        }
        Step::Set(one, amounts) => {
            let mut changes = wanted(one, amounts);
            changes.remove("name");
            drop(router.execute(by, SetPrincipal { name: name(one), changes }).await);
        }
        Step::Remove(one) => drop(router.execute(by, RemovePrincipal { name: name(one) }).await),
        Step::Reserve(one, cpu, is_bound) => {
            let instance = is_bound.then_some("pf");
            let filter = format!("proto udp dport {one}");
            let new = json!({"filter": filter, "principal": name(one), "cpu": format!("{cpu} %"), "instance": instance});
            drop(router.execute(by, read::<ReserveFlow>(new)).await);
        }
        Step::Release(one) => {
            drop(router.execute(by, ReleaseFlow { name: name(one), drop: one % 2 == 0 }).await)
        }
        Step::Bind(one, port) => {
            let filter = format!("proto tcp dport {port}");
            let new = json!({"instance": "pf", "gate": "audit", "filter": filter, "principal": name(one)});
            drop(router.execute(by, Bind(read(new))).await);
        }
        Step::Create(one, (rate, size, packet, byte), level) => {
            let load = json!({"rate": rate, "size": format!("{size}B"), "packet": packet, "byte": byte, "level": level});
            let new = json!({"plugin": "null", "name": instance(one), "service": load});
            drop(router.execute(by, read::<CreateInstance>(new)).await);
        }
        Step::Use(one, port) => {
            let filter = format!("proto udp dport {port}");
            let new = json!({"instance": instance(one), "gate": "audit", "filter": filter});
            drop(router.execute(by, Bind(read(new))).await);
        }
        Step::Move(one, rate, level) => {
            let changes = settings(json!({"rate": rate, "level": level}));
            drop(router.execute(by, MoveInstance { name: instance(one), changes }).await);
        }
        Step::Free(one) => drop(router.execute(by, FreeInstance { name: instance(one) }).await),
        Step::Admission(cpu, link, memory) => {
            let changes = json!({"cpu": format!("{cpu} %"), "link": format!("{link} %"), "memory": format!("{memory}MiB")});
            drop(router.execute(by, SetAdmission { changes: settings(changes) }).await);
        }
        Step::Apply(one, amounts) => {
            let mut config = router.running();
            config.principal.push(read(wanted(one, amounts).into()));
            let order = Apply { text: config.to_text().unwrap(), ..Apply::default() };
            drop(router.execute(&Principal::router(), order).await);
        }
        Step::Restart => {}
    }
}

/// Sums that the principals of a configuration reserve: parts per million of a processor, of all and of those that
/// pay for bindings and filters; bits per second at port `wan`; and bytes.
fn sums(config: &Config, counts: impl Fn(&millrace_config::Principal) -> bool) -> [u64; 4] {
    let named: BTreeSet<&str> = config
        .bind
        .iter()
        .filter_map(|bind| bind.principal.as_deref())
        .chain(config.filter.iter().filter_map(|filter| filter.action.value().principal()))
        .map(|name| millrace_config::Principal::payer(&config.principal, name))
        .collect();
    let mut sums = [0; 4];
    for one in config.principal.iter().filter(|one| counts(one)) {
        let cpu = one.reserved_cpu().map_or(0, |share| u64::from(share.ppm()));
        let paid = if named.contains(&&*one.name) { cpu } else { 0 };
        let link = one.reserved_link("wan").map_or(0, |rate| rate.0);
        let memory = one.memory.map_or(0, |memory| memory.bytes());
        sums = std::array::from_fn(|index| sums[index] + [cpu, paid, link, memory][index]);
    }
    sums
}

/// Returns the time of the services of a configuration at the workers, in parts per million of a processor, computed by
/// hand, and their number.
fn served(config: &Config) -> (f64, usize) {
    let services = config.instance.iter().filter_map(|instance| instance.service.as_ref());
    let cycles = services.clone().map(|service| {
        let bytes = service.size.map_or(1_538.0, |size| size.bytes() as f64);
        let each = service.packet.unwrap_or_default() + service.byte.unwrap_or_default() * bytes;
        f64::from(service.rate) * each
    });
    (cycles.sum::<f64>() / frequency() as f64 * 1e6, services.count())
}

/// Checks what the router promises of each component beside `all`, the sums of the principals, and the time of the
/// services, each of which the router may round up.
async fn check_components(router: &Router, context: &str, all: [u64; 4], (time, services): (f64, usize)) {
    let [cpu, paid, link, memory] = all.map(|sum| sum as f64);
    let components = router.execute(&Principal::router(), GetAdmission).await.unwrap().components;
    for one in components {
        let (exact, rounding) = match &*one.component {
            "processors" => ((cpu + time) / 1e4, 2e-4 * services as f64),
            "workers" => ((paid + time) / 1e4, 2e-4 * services as f64),
            "link wan" => (link, 0.0),
            "memory" => (memory, 0.0),
            _ => (0.0, 0.0),
        };
        let is_exact = (exact - 1e-6..=exact + rounding + 1e-6).contains(&one.promised);
        assert!(is_exact, "{context}: {exact} and at most {rounding} of {one:?}");
        assert!(one.whole.is_none_or(|whole| one.promised <= whole), "{context}: {one:?}");
    }
}

/// Checks that the principals of services pay for the bindings of their instances that name none, that they have the
/// admitted time at the workers, and that all shares fit there.
async fn check_services(router: &Router, context: &str) {
    let promises = router.execute(&Principal::router(), GetPromises).await.unwrap().promises;
    let inner = router.lock();
    let model = &inner.model;
    let of_services = model.placements.services.iter().filter(|placed| placed.service.rate > 0);
    let names: BTreeSet<String> =
        of_services.clone().map(|placed| format!("service:{}", placed.instance)).collect();
    let ids = model.principal_ids.names().filter(|name| name.starts_with("service:"));
    assert_eq!(ids.collect::<Vec<_>>(), names.iter().collect::<Vec<_>>(), "{context}");
    for placed in of_services {
        let name = format!("service:{}", placed.instance);
        let bindings = bindings_of(model, &placed.instance).unwrap().into_iter();
        let limits: Vec<_> = bindings.map(|id| model.plugins.binding(id).unwrap().call_limits).collect();
        let unnamed = limits.iter().filter(|limits| !limits.names_principal());
        let payers: BTreeSet<_> = unnamed.map(|limits| model.payer_name(limits)).collect();
        assert!(payers.iter().all(|payer| payer.as_deref() == Some(&*name)), "{context}: {payers:?}");
        let promise = promises.iter().find(|one| one.principal == name);
        assert_eq!(promise.is_some(), !payers.is_empty(), "{context}: {name}");
        let (share, used) = (promise.map(|one| one.promised), placed.used.worker as f64 / 1e4);
        let is_admitted = share.is_none_or(|share| used < 1e-3 || (share - used).abs() < 1e-3);
        assert!(is_admitted, "{context}: {name} has {share:?} of {used}");
    }
    let reserved = promises.iter().filter(|one| one.is_reserved && one.principal != "control");
    let (sum, workers) = (reserved.map(|one| one.promised).sum::<f64>(), inner.workers.len() as f64);
    assert!(sum <= 100.0 * workers + 1e-3, "{context}: {sum} % of {workers} workers");
}

/// Amounts of the allowance of `lab`, in the order of [`held`].
const ALLOWED: [u64; 4] = [300_000, 2_000_000, 8 << 20, 2];

/// Returns what the principals of `lab` hold: processor time, rate, memory, and their number.
fn held(router: &Router) -> [u64; 4] {
    let config = router.running();
    let is_own = |one: &millrace_config::Principal| one.belongs_to("token lab");
    let [cpu, _, link, memory] = sums(&config, is_own);
    [cpu, link, memory, config.principal.iter().filter(|one| is_own(one)).count() as u64]
}

/// Checks that the running configuration promises no more than there is of each component, and that `lab` holds no more than its
/// allowance or than `most`: an admin may give a principal of `lab` more.
async fn check(router: &Router, context: &str, most: [u64; 4]) {
    let config = router.running();
    let whole = Whole::of(&config.router, &config.admission);
    let rate = config.port.iter().find_map(|port| port.scheduler.as_ref()?.rate).unwrap().0;
    let memory = config.admission.memory.map_or(u64::MAX, |memory| memory.bytes());
    let limits = [whole.of_processors(), whole.of_workers(), config.admission.link.of(rate), memory];
    let all = sums(&config, |_| true);
    let (time, services) = served(&config);
    let sums = [all[0] as f64 + time, all[1] as f64 + time, all[2] as f64, all[3] as f64];
    let is_within = sums.iter().zip(&limits).all(|(sum, limit)| *sum <= *limit as f64);
    assert!(is_within, "{context}: {sums:?} of {limits:?}");
    check_components(router, context, all, (time, services)).await;
    check_services(router, context).await;
    let held = held(router);
    let within = held.iter().zip(ALLOWED).zip(most).all(|((held, allowed), most)| *held <= allowed.max(most));
    assert!(within, "{context}: {held:?}");
}

/// Releases all principals, and frees all instances with a service. Nothing may be promised then.
async fn release_all(router: &Router) {
    for name in (0..4).map(instance) {
        drop(router.execute(&Principal::router(), FreeInstance { name }).await);
    }
    for _ in 0..4 {
        for one in router.running().principal {
            let name = one.name.to_string();
            drop(router.execute(&Principal::router(), ReleaseFlow { name, drop: false }).await);
        }
    }
    let components = router.execute(&Principal::router(), GetAdmission).await.unwrap().components;
    assert!(components.iter().all(|one| one.promised == 0.0 && one.claims.is_empty()), "{components:?}");
    let inner = router.lock();
    assert_eq!(inner.model.principal_ids.names().collect::<Vec<_>>(), ["default"]);
    let port = inner.model.port("wan").unwrap().id;
    assert_eq!(inner.model.schedulers.of(port), inner.model.schedulers.configured(port).as_ref());
}

async fn try_steps(steps: Vec<(Step, bool, Option<u64>)>) {
    let mut router = with_allowance().await;
    let mut silence = Silence::before(router.lock().workers.get(0));
    for (step, is_lab, silent) in steps {
        let context = format!("{step:?} by {}, silent {silent:?}", if is_lab { "lab" } else { "root" });
        if let Some(answered) = silent {
            silence.after(answered, 1);
        }
        if matches!(step, Step::Restart) {
            silence.after(0, 0);
            let text = router.running().to_text().unwrap();
            router.shutdown().await.unwrap();
            router = start(Config::parse(&text, "saved").unwrap(), StartOptions::default()).await.unwrap();
            silence = Silence::before(router.lock().workers.get(0));
            assert_eq!(router.running().to_text().unwrap(), text);
        }
        let is_by_lab = is_lab && !matches!(step, Step::Apply(..));
        let most = if is_by_lab { held(&router) } else { [u64::MAX; 4] };
        make(&router, &if is_lab { lab() } else { Principal::router() }, step).await;
        silence.after(0, 0);
        check(&router, &context, most).await;
    }
    release_all(&router).await;
    router.shutdown().await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_more_is_promised_than_there_is_and_nothing_leaks(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(try_steps(steps));
    }
}
