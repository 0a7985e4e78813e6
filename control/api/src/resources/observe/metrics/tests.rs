use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use millrace_config::Config;
use millrace_controller::StartOptions;
use millrace_controller::view::DropView;

use super::*;
use millrace_controller::Principal;

/// Returns the names of the metric families on a page, as in the `# TYPE` lines.
fn names(page: &str) -> BTreeSet<&str> {
    page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect()
}

/// Returns the metric names as Prometheus queries use them: with `_total` at the end of the names of
/// counters.
fn queried(page: &str) -> BTreeSet<String> {
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let name = |line: &str| match line.split_once(' ') {
        Some((name, "counter")) => format!("{name}_total"),
        Some((name, _)) => name.to_owned(),
        None => panic!("{line}"),
    };
    types.map(name).collect()
}

/// Returns all words of a text that begin with `millrace_`, as metric names do.
fn mentioned(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("millrace_")).map(str::to_owned).collect()
}

fn repository(path: &str) -> String {
    let path = Path::new("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text(families: Vec<Family>) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(Families(families)));
    let mut page = String::new();
    text::encode(&mut page, &registry).unwrap();
    page
}

/// Returns the metrics page of a router with two ports.
fn page_of_a_router() -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = Config::parse(
            include_str!("../../../../../controller/src/operation/tests/router.toml"),
            "test.toml",
        )
        .unwrap();
        let router = millrace_controller::start(config, StartOptions::default()).await.unwrap();
        let page = page(&router, &Principal::router()).await.unwrap();
        router.shutdown().await.unwrap();
        page
    })
}

#[test]
fn page_explains_each_metric_and_ends() {
    let page = page_of_a_router();
    assert!(page.ends_with("# EOF\n"), "{page}");
    for name in names(&page) {
        assert!(page.contains(&format!("# HELP {name} ")), "{name}");
    }
    assert!(page.contains("millrace_packets_total{outcome=\"received\"} 0"), "{page}");
    assert!(page.contains("millrace_build_info{version=\""), "{page}");
    let samples: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
    let series: BTreeSet<&str> =
        samples.iter().map(|line| line.rsplit_once(' ').expect("a name and a value").0).collect();
    assert_eq!(series.len(), samples.len(), "one value for each series: {page}");
}

#[test]
fn drops_are_counted_by_reason_and_port_and_names_are_quoted() {
    let drop = DropView {
        reason: "ttl".into(),
        meaning: String::new(),
        packets: 7,
        rate: 0.0,
        ports: BTreeMap::from([("a\"b".into(), 3), ("-".into(), 4)]),
        ether_types: BTreeMap::new(),
    };
    let page = text(vec![of_drops(&[drop])]);
    assert!(page.contains(r#"millrace_dropped_packets_total{reason="ttl",port="-"} 4"#), "{page}");
    assert!(page.contains(r#"millrace_dropped_packets_total{reason="ttl",port="a\"b"} 3"#), "{page}");
}

#[test]
fn fault_39_counters_near_a_wrap_of_32_or_64_bits_never_fall_in_the_text() {
    let told = |packets: u64| {
        let drop = DropView {
            reason: "ttl".into(),
            meaning: String::new(),
            packets,
            rate: 0.0,
            ports: BTreeMap::from([("-".into(), packets)]),
            ether_types: BTreeMap::new(),
        };
        let page = text(vec![of_drops(&[drop])]);
        let line = page.lines().find(|line| line.starts_with("millrace_dropped_packets_total{")).unwrap();
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    let exact = u64::from(u32::MAX) - 9;
    for packets in exact..exact + 20 {
        assert_eq!(told(packets) as u64, packets);
    }
    let values: Vec<f64> = (0..10).map(|packets| told(u64::MAX - 9 + packets)).collect();
    assert!(values.is_sorted() && values[0] > 1.8e19, "{values:?}");
}

#[test]
fn the_manual_lists_every_metric_and_the_dashboard_asks_for_none_that_is_not_there() {
    let known = queried(&page_of_a_router());
    assert_eq!(mentioned(&repository("docs/metrics.md")), known);
    let dashboard = repository("examples/grafana/millrace.json");
    serde_json::from_str::<serde_json::Value>(&dashboard).expect("the dashboard is JSON");
    let asked = mentioned(&dashboard);
    let missing: Vec<&String> = asked.difference(&known).collect();
    assert!(missing.is_empty() && asked.len() > 10, "{missing:?}");
}
