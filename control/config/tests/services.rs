//! Tests of the table `[instance.service]`: its values, its normal form, and the order of its changes.

use millrace_config::{Change, Config};

/// Returns the text of a configuration with instances `a` and `b`, which have these services.
fn instances(services: [&str; 2]) -> String {
    let entry = |(name, service): (&str, &str)| {
        let service = if service.is_empty() { String::new() } else { format!("service = {{ {service} }}\n") };
        format!("[[instance]]\nplugin = \"null\"\nname = \"{name}\"\n{service}")
    };
    ["a", "b"].into_iter().zip(services).map(entry).collect()
}

fn config(services: [&str; 2]) -> Config {
    Config::parse(&instances(services), "f").unwrap().normalized()
}

fn commands(from: [&str; 2], to: [&str; 2]) -> Vec<String> {
    config(from).difference(&config(to)).changes.iter().flat_map(Change::commands).collect()
}

#[test]
fn cycles_are_finite_and_at_least_0() {
    for key in ["packet", "byte"] {
        for (wrong, shown) in
            [("nan", "NaN"), ("inf", "inf"), ("-inf", "-inf"), ("-1", "-1.0"), ("-0.5", "-0.5")]
        {
            let text = format!(
                "[[instance]]\nplugin = \"null\"\nname = \"a\"\nservice = {{ rate = 1, {key} = {wrong} }}\n"
            );
            let error = Config::parse(&text, "f").unwrap_err().to_string();
            let expected =
                format!("\"instance[0].service.{key}\" is {shown}: give a finite number, 0 or more");
            assert!(error.starts_with("f:4:") && error.contains(&expected), "{wrong}: {error}");
        }
        let service = |number: &str| config([&format!("{key} = {number}"), ""]).instance[0].service.unwrap();
        assert_eq!(service("-0.0"), service("0"));
        assert_eq!(service("120"), service("120.0"));
    }
}

#[test]
fn equivalent_services_are_equal() {
    for (one, other) in [
        ("rate = 0", ""),
        ("size = \"1538B\"", ""),
        ("rate = 0, size = \"1538B\"", ""),
        ("rate = 5, size = \"1538B\"", "rate = 5"),
        ("rate = 5, size = \"1KiB\", packet = 7", "rate = 5, size = \"1024B\", packet = 7.0"),
    ] {
        assert!(config([one, ""]).difference(&config([other, ""])).is_empty(), "{one} and {other}");
    }
    // A manifest may declare cycles per byte.
    assert!(!config(["byte = 0", ""]).difference(&config(["", ""])).is_empty());
}

#[test]
fn service_that_only_shrinks_precedes_the_others() {
    let own = "rate = 9, size = \"500B\", packet = 10, byte = 2";
    for less in [
        "rate = 8, size = \"500B\", packet = 10, byte = 2",
        "rate = 9, size = \"400B\", packet = 10, byte = 2",
        "rate = 9, size = \"500B\", packet = 9.5, byte = 2",
        "rate = 9, size = \"500B\", packet = 10, byte = 1",
        "size = \"9000B\", packet = 99",
        "",
    ] {
        let commands = commands([own, own], ["rate = 99, packet = 10", less]);
        assert!(commands[0].starts_with("instance move b "), "{less}: {commands:?}");
        assert!(commands[1].starts_with("instance move a "), "{less}: {commands:?}");
    }
}

#[test]
fn service_that_may_need_more_follows_in_the_order_of_the_file() {
    let own = "rate = 9, size = \"500B\", packet = 10, byte = 2";
    for more in [
        "rate = 8, size = \"500B\", packet = 11, byte = 2",
        "rate = 8, packet = 10, byte = 2",
        "rate = 8, size = \"500B\", packet = 10, byte = 3",
        "rate = 8, size = \"500B\", packet = 10",
        "rate = 8, size = \"500B\", packet = 10, byte = 2, level = \"worker\"",
    ] {
        let commands = commands([own, own], ["rate = 99, packet = 10", more]);
        assert!(commands[0].starts_with("instance move a "), "{more}: {commands:?}");
        assert!(commands[1].starts_with("instance move b "), "{more}: {commands:?}");
    }
}

#[test]
fn worker_is_one_of_the_router_and_excludes_other_levels() {
    let text = |workers: u8, service: &str| {
        format!(
            "[router]\nworkers = {workers}\n[[instance]]\nplugin = \"null\"\nname = \"a\"\nservice = {{ {service} }}\n"
        )
    };
    let config = |service: &str| Config::parse(&text(2, service), "f").unwrap().normalized();
    for (workers, service, expected) in [
        (
            2,
            "worker = 2",
            "instance \"a\": there is no worker 2: the router has 2 workers, numbered from 0 on",
        ),
        (
            1,
            "worker = 1",
            "instance \"a\": there is no worker 1: the router has 1 worker, numbered from 0 on",
        ),
        (2, "worker = 1, level = \"host\"", "worker 1 excludes the level host: give the worker or the level"),
        (2, "worker = 1, level = \"offload\"", "worker 1 excludes the level offload"),
        (2, "worker = 65536", "worker"),
        (2, "worker = -1", "worker"),
    ] {
        let error = Config::parse(&text(workers, service), "f").unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let pinned = config("rate = 10, worker = 1");
    assert_eq!(pinned, config("rate = 10, worker = 1, level = \"worker\""));
    assert_eq!(Config::parse(&pinned.to_text().unwrap(), "f").unwrap().normalized(), pinned);
    let commands = |from: &str, to: &str| config(from).difference(&config(to)).changes[0].commands();
    assert_eq!(commands("rate = 10", "rate = 10, worker = 1"), ["instance move a --worker 1"]);
    assert_eq!(commands("worker = 1", "level = \"host\""), ["instance move a --level host --worker auto"]);
    assert_eq!(commands("worker = 0", "worker = 1"), ["instance move a --worker 1"]);
}
