//! Memory limits of sandboxed plugins, however they allocate memory.

use std::time::Duration;

use millrace_testkit::{Flow, Ground, Line, Millrace, eventually};

use crate::plugins::files::{COUNTER, COUNTER_KEYS, build_source, read};
use crate::support::{assert_undisturbed, router, to};

/// Memory limit of an instance, in bytes.
const LIMIT: u64 = 4 << 20;
/// Number of instances of each kind.
const INSTANCES: u64 = 4;

/// Builds a counter whose calls first allocate pages until the router refuses more, and write to all of them.
/// The packet count is the number of pages.
fn grows(line: &Line, name: &str, then: &str) -> String {
    let does = format!(
        "for (size_t page; (page = __builtin_wasm_memory_grow(0, 1)) != (size_t)-1;)
             for (size_t at = 0; at < 65536; at += 1024)
                 ((volatile uint8_t *)(page << 16))[at] = 1;
         packets = __builtin_wasm_memory_size(0);
         {then}"
    );
    let source = COUNTER.replace("packets += call->count;", &format!("(void)call;\n{does}"));
    build_source(line, name, "1.0.0", COUNTER_KEYS, &source)
}

/// Returns the resident memory of the router, in bytes.
fn memory(router: &Millrace) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", router.pid())).unwrap();
    let row = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    row.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn growing_instances_get_memory_up_to_their_limit() {
    let Some(_ground) = Ground::enter_alone(&["ping", "clang"]) else { return };
    let line = Line::new();
    let (keeps, traps) = (grows(&line, "keeps", ""), grows(&line, "traps", "__builtin_trap();"));
    let mut router = router(&line);
    line.h1.run("ping -c 1 10.2.0.2");
    let bystander = Flow::start(&line.h1, &line.h2, to("10.2.0.2:9000"), 1000, 64);
    for module in [&keeps, &traps] {
        router.ask(&["plugin", "load", module]);
    }
    bystander.wait_for_arrival();
    let base = memory(&router);
    let (mut flows, mut names) = (Vec::new(), Vec::new());
    for (number, plugin) in
        (0..INSTANCES).flat_map(|number| [(2 * number, "keeps"), (2 * number + 1, "traps")])
    {
        let (name, port) = (format!("{plugin}{number}"), 9001 + number);
        router.ask(&["instance", "create", plugin, &name]);
        let filter = format!("dport {port}");
        // On a busy machine, writing the pages takes many slices, and each overrun of the budget halves it.
        router.ask(&["bind", &name, "--gate", "process", "--filter", &filter, "--budget", "1s"]);
        flows.push(Flow::start(&line.h1, &line.h2, to(&format!("10.2.0.2:{port}")), 100, 64));
        names.push((plugin, name));
    }
    let most = (base + 2 * INSTANCES * LIMIT) * 105 / 100;
    let mut highest = 0;
    eventually(
        "each has grown, or was put into quarantine for what it did then",
        Duration::from_secs(30),
        || {
            highest = highest.max(memory(&router));
            let is_through = |(plugin, name): &(&str, String)| match *plugin {
                // On a busy machine `read` may exceed its time limit, so the test repeats it.
                "keeps" => {
                    let asked = router.try_ask(&["control", name, "read", "--json"]);
                    let told: serde_json::Value = serde_json::from_str(&asked.stdout).unwrap_or_default();
                    told["packets"].as_u64() > Some(0)
                }
                _ => router.row("instances", "name", name)["health"] == "quarantined",
            };
            names.iter().all(is_through).then_some(())
        },
    );
    for (_, name) in names.iter().filter(|(plugin, _)| *plugin == "keeps") {
        let pages = read(&router, name, "packets");
        assert!((LIMIT >> 17..=LIMIT >> 16).contains(&pages), "{name} got {pages} pages");
    }
    assert!(highest <= most, "{highest} bytes of memory, from {base}; at most {most}");
    assert!(highest > base + INSTANCES * (LIMIT / 2), "nothing has grown: {highest} from {base}");
    flows.into_iter().for_each(drop);
    names.iter().for_each(|(_, name)| drop(router.ask(&["instance", "free", name])));
    assert!(memory(&router) <= base * 105 / 100, "{} bytes, from {base}", memory(&router));
    assert_undisturbed(&bystander.finish(), "beside plugins that grow");
    assert!(router.is_running());
    router.assert_conservation();
}
