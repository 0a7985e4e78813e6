//! Property: whatever is requested, removed, fails in the middle or starts again, no more is promised than there is,
//! and nothing leaks.

use proptest::prelude::*;

use super::allowances::{lab, with_allowance};
use super::*;
use crate::admission::time::Whole;
use crate::configuration::Apply;
use crate::workers::handle::silence::Silence;

/// Amounts of a request: percent of a processor, Mbit/s at port `wan`, and MiB.
type Amounts = (Option<u32>, Option<u32>, Option<u32>);

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

/// Amounts of the allowance of `lab`, in the order of [`held`].
const ALLOWED: [u64; 4] = [300_000, 2_000_000, 8 << 20, 2];

/// Returns what the principals of `lab` hold: processor time, rate, memory, and their number.
fn held(router: &Router) -> [u64; 4] {
    let config = router.running();
    let is_own = |one: &millrace_config::Principal| one.belongs_to("token lab");
    let [cpu, _, link, memory] = sums(&config, is_own);
    [cpu, link, memory, config.principal.iter().filter(|one| is_own(one)).count() as u64]
}

/// Checks that the running configuration promises no more than there is, and that `lab` holds no more than its
/// allowance or than `most`: an admin may give a principal of `lab` more.
fn check(router: &Router, context: &str, most: [u64; 4]) {
    let config = router.running();
    let whole = Whole::of(&config.router, &config.admission);
    let rate = config.port.iter().find_map(|port| port.scheduler.as_ref()?.rate).unwrap().0;
    let memory = config.admission.memory.map_or(u64::MAX, |memory| memory.bytes());
    let limits = [whole.of_processors(), whole.of_workers(), config.admission.link.of(rate), memory];
    let all = sums(&config, |_| true);
    assert!(all.iter().zip(&limits).all(|(sum, limit)| sum <= limit), "{context}: {all:?} of {limits:?}");
    let held = held(router);
    let within = held.iter().zip(ALLOWED).zip(most).all(|((held, allowed), most)| *held <= allowed.max(most));
    assert!(within, "{context}: {held:?}");
}

/// Releases all principals. Nothing may be promised then.
async fn release_all(router: &Router) {
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
        check(&router, &context, most);
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
