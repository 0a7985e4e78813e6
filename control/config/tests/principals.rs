//! Tests of the table `[[principal]]`: its values, and the texts of its errors.

use millrace_config::Config;

const VIDEO: &str = "[[principal]]\nname = \"video\"\ncpu = \"5 %\"\ncpu-limit = \"20 %\"\nmemory = \"8 MiB\"\n\
                     disk = \"2 MB/s\"\nprocesses = 64\n";

fn refused(lines: &str) -> String {
    Config::parse(&format!("[[principal]]\n{lines}\n"), "f").unwrap_err().to_string()
}

#[test]
fn values_have_their_units() {
    let config = Config::parse(VIDEO, "f").unwrap();
    let video = &config.principal[0];
    assert_eq!((video.reserved_cpu().unwrap().ppm(), video.cpu_limit.unwrap().ppm()), (50_000, 200_000));
    let (memory, disk) = (video.memory.unwrap().bytes(), video.disk.unwrap().bytes());
    assert_eq!((memory, disk, video.processes, video.weight), (8 << 20, 2_000_000, Some(64), None));
}

#[test]
fn errors_name_place_problem_and_remedy() {
    for (lines, expected) in [
        ("name = \"a\"\ncpus = \"5 %\"", "f:3:1: unknown key \"cpus\": did you mean \"cpu\"?"),
        (
            "name = \"a\"\n[[principal]]\nname = \"a\"",
            "f:4:8: principal name \"a\" is used twice: give each principal its own name",
        ),
        (
            "name = \"a b\"",
            "f:2:8: invalid principal name \"a b\": give 1 to 63 ASCII letters, digits or - _ . :",
        ),
        (
            "name = \"router\"",
            "f:2:8: principal name \"router\" is reserved for the router itself: give another name",
        ),
        (
            "name = \"cpu.max\"",
            "f:2:8: principal name \"cpu.max\" is the name of a kernel file: give another name",
        ),
        (
            "name = \"a\"\ncpu = \"20 %\"\ncpu-limit = \"10 %\"",
            "f:4:13: principal \"a\": cpu-limit is 10 %, below cpu 20 %: give at least 20 %",
        ),
        (
            "name = \"a\"\ncpu = \"20 %\"\nweight = 3",
            "f:4:10: principal \"a\": weight is set beside cpu: set one of them",
        ),
        ("name = \"a\"\nweight = 0", "f:3:10: principal \"a\": weight must be 1 to 10000, not 0"),
        ("name = \"a\"\nprocesses = 0", "f:3:13: principal \"a\": processes must be 1 to 4194304, not 0"),
        ("name = \"a\"\ncpu = 5", "\"5\" has no unit: write \"5 %\""),
        ("name = \"a\"\ncpu-limit = \"0.5 %\"", "the share must be 1 % to 400000 %, not \"0.5 %\""),
        ("name = \"a\"\nmemory = \"1KiB\"", "the size must be 4KiB to 1024TiB, not \"1KiB\""),
        ("name = \"a\"\ndisk = \"2MB\"", "\"2MB\" is no rate in bytes per second: write \"2MB/s\""),
        ("cpu = \"5 %\"", "name"),
        (
            "name = \"a\"\ncpu = { same-as = \"b\" }",
            "f:3:19: no principal is named \"b\"; principals here: default\n",
        ),
        ("name = \"a\"\ncpu = { same = \"a\" }", "same-as"),
        (
            "name = \"a\"\ncpu = { same-as = \"b\" }\n[[principal]]\nname = \"b\"\ncpu = { same-as = \"a\" }",
            "principal \"a\": `same-as` leads back to it, \"a\" same as \"b\" same as \"a\": give one",
        ),
        (
            "name = \"a\"\ncpu-limit = \"9 %\"\ncpu = { same-as = \"b\" }\n[[principal]]\nname = \"b\"",
            "cpu-limit limits no share of its own",
        ),
        ("name = \"a\"\nlink = { wan = \"1mbit\" }", "f:3:16: no port is named \"wan\""),
        ("name = \"a\"\nprocess = [\"a/b\"]", "\"a/b\" is no name of a command or unit"),
        (
            "name = \"a\"\nprocess = [\"x\"]\n[[principal]]\nname = \"b\"\nprocess = [\"y\", \"x\"]",
            "principal \"b\" has the processes \"x\", too: name them once",
        ),
    ] {
        let error = refused(lines) + "\n";
        assert!(error.contains(expected), "{lines}: {error}");
    }
}

#[test]
fn errors_of_shared_rates_and_of_filters_name_problem_and_remedy() {
    for (lines, expected) in [
        (
            "name = \"a\"\nlink = { wan = { same = \"b\" } }",
            "unknown key \"same\" in `link`: expected { same-as",
        ),
        ("name = \"a\"\nlink = { wan = { same-as = \"b\" } }", "no principal is named \"b\""),
        (
            "name = \"a\"\nlink = { wan = { same-as = \"b\" } }\n[[principal]]\nname = \"b\"\n\
             link = { wan = { same-as = \"a\" } }\n[[port]]\nname = \"wan\"\nkind = \"memory\"",
            "principal \"a\": `same-as` leads back to it, \"a\" same as \"b\" same as \"a\": give one of them its own rate",
        ),
        (
            "name = \"a\"\nlink = { wan = { same-as = \"b\" } }\n[[principal]]\nname = \"b\"\n\
             [[port]]\nname = \"wan\"\nkind = \"memory\"",
            "principal \"a\": \"b\" reserves no rate at port \"wan\": give it a link there",
        ),
        (
            "name = \"ab\"\n[[filter]]\nmatch = \"*\"\naction = \"principal abc\"",
            "f:5:10: no principal is named \"abc\": did you mean \"ab\"?",
        ),
    ] {
        let error = refused(lines);
        assert!(error.contains(expected), "{lines}: {error}");
    }
}

#[test]
fn differences_are_commands_and_have_inverses() {
    let config = |text: &str| Config::parse(text, "f").unwrap().normalized();
    let commands = |from: &str, to: &str| {
        let difference = config(from).difference(&config(to));
        assert!(difference.restart.is_empty(), "{difference:?}");
        let back = difference.changes.iter().rev().cloned().map(millrace_config::Change::inverse);
        assert_eq!(config(to).difference(&config(from)).changes, back.collect::<Vec<_>>());
        difference.changes.iter().flat_map(millrace_config::Change::commands).collect::<Vec<_>>()
    };
    let other = VIDEO.replace("20 %", "40 %").replace("processes = 64\n", "");
    assert_eq!(commands(VIDEO, &other), ["principal set video 'cpu-limit=40 %' processes="]);
    assert_eq!(
        commands("", VIDEO),
        ["principal add video 'cpu=5 %' 'cpu-limit=20 %' 'disk=2 MB/s' memory=8MiB processes=64"]
    );
    assert_eq!(commands(VIDEO, ""), ["principal remove video"]);
    let port = "[[port]]\nname = \"wan\"\nkind = \"memory\"\n";
    let rated = |settings: &str| format!("{port}[[principal]]\nname = \"a\"\n{settings}\n");
    assert_eq!(
        commands(&rated("cpu = \"5 %\""), &rated("link = { wan = \"1mbit\" }")),
        ["principal set a cpu= link.wan=1mbit"]
    );
    assert_eq!(
        commands(&rated("cpu = \"5 %\""), &rated("cpu = { same-as = \"b\" }\n[[principal]]\nname = \"b\"")),
        ["principal add b", "principal set a cpu.same-as=b"]
    );
    let both = |link: &str| {
        rated("link = { wan = \"1mbit\" }")
            + &format!("[[principal]]\nname = \"b\"\nlink = {{ wan = {link} }}\n")
    };
    let (own, shared) = (both("\"2mbit\""), both("{ same-as = \"a\" }"));
    assert_eq!(commands(&own, &shared), ["principal set b link.wan.same-as=a"]);
    assert_eq!(commands(&shared, &own), ["principal set b link.wan=2mbit"]);
    assert_eq!(commands(&shared, &both("{ same-as = \"a\" }")), [""; 0]);
    // A principal that a filter names is removed after the filter.
    for action in ["queue principal:a", "principal a"] {
        let filter = format!("[[filter]]\nmatch = \"proto udp\"\naction = \"{action}\"\n");
        assert_eq!(
            commands(&(rated("link = { wan = \"1mbit\" }") + &filter), port),
            [&format!("filter remove 'proto udp' --action '{action}'"), "principal remove a"]
        );
    }
    let equivalent = "[[principal]]\nname = \"a\"\n";
    assert_eq!(commands(equivalent, &format!("{equivalent}weight = 100\n")), [""; 0]);
}

#[test]
fn saved_principals_are_read_again() {
    let config = Config::parse(VIDEO, "f").unwrap().normalized();
    assert_eq!(Config::parse(&config.to_text().unwrap(), "f").unwrap().normalized(), config);
    let nested = "[[port]]\nname = \"wan\"\nkind = \"memory\"\n\
                  [[principal]]\nname = \"a\"\nlink = { wan = \"1mbit\" }\nprocess = [\"bgpd\"]\nprocesses = 9\n\
                  [[principal]]\nname = \"b\"\ncpu = { same-as = \"a\" }\nlink = { wan = \"2mbit\" }\n\
                  [[principal]]\nname = \"c\"\nlink = { wan = { same-as = \"b\" } }\n";
    let nested = Config::parse(nested, "f").unwrap().normalized();
    let text = nested.to_text().unwrap();
    assert_eq!(Config::parse(&text, "f").unwrap().normalized(), nested, "{text}");
    let saved = nested.save_into(VIDEO, "f").unwrap();
    assert_eq!(Config::parse(&saved, "f").unwrap().normalized(), nested, "{saved}");
    let file = VIDEO.replace("cpu = \"5 %\"", "cpu = \"7 %\"   # as agreed");
    let saved = config.save_into(&file, "f").unwrap();
    assert!(saved.contains("cpu = \"5 %\"   # as agreed"), "{saved}");
}

/// Returns a configuration whose binding of an instance has further lines.
fn bound(lines: &str) -> String {
    format!(
        "[router]\non-death = \"kernel\"\n[[instance]]\nplugin = \"null\"\nname = \"n\"\n\
         [[bind]]\ninstance = \"n\"\ngate = \"process\"\nfilter = \"proto udp\"\n{lines}\n"
    )
}

#[test]
fn queue_of_a_binding_is_checked_applied_and_saved() {
    for (lines, expected) in [
        (
            "queue-weight = 3",
            "f:7:12: binding of instance \"n\": queue-weight needs a queue: set queue to true as well",
        ),
        ("queue = true\nqueue-weight = 0", "queue-weight must be 1 to 100, not 0"),
        ("queue = true\nqueue-weight = 101", "queue-weight must be 1 to 100, not 101"),
    ] {
        let error = Config::parse(&bound(lines), "f").unwrap_err().to_string();
        assert!(error.contains(expected), "{lines}: {error}");
    }
    let config = |lines: &str| Config::parse(&bound(lines), "f").unwrap().normalized();
    let commands = |from: &str, to: &str| {
        let changes = config(from).difference(&config(to)).changes;
        changes.iter().flat_map(millrace_config::Change::commands).collect::<Vec<_>>()
    };
    let bind = "bind n --gate process --filter 'proto udp'";
    for (lines, options) in
        [("queue = true", " --queue"), ("queue = true\nqueue-weight = 3", " --queue --queue-weight 3")]
    {
        assert_eq!(commands("", lines).last(), Some(&format!("{bind}{options}")));
        assert_eq!(commands(lines, "").last(), Some(&bind.to_owned()));
        let saved = config(lines).to_text().unwrap();
        assert_eq!(Config::parse(&saved, "f").unwrap().normalized(), config(lines));
    }
    assert_eq!(commands("queue = true", "queue = true\nqueue-weight = 1"), [""; 0]);
    assert_eq!(commands("queue = true", "queue = true\nqueue-weight = 2").len(), 2);
}
