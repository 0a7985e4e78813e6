//! Tests of several errors in one file: all are reported at once, and none hides a later one.

use millrace_config::Config;

/// Returns all errors of a file, each with its line and column.
fn errors(text: &str) -> Vec<String> {
    let wrong = Config::parse(text, "f").unwrap_err();
    assert_eq!(wrong.wrong(), wrong.errors().len());
    wrong.errors().iter().map(ToString::to_string).collect()
}

#[track_caller]
fn assert_errors(text: &str, expected: &[(&str, &str)]) {
    let errors = errors(text);
    let as_expected = |(error, (place, words)): (&String, &(&str, &str))| {
        error.starts_with(&format!("f:{place}: ")) && error.contains(words)
    };
    assert!(errors.len() == expected.len() && errors.iter().zip(expected).all(as_expected), "{errors:#?}");
}

#[test]
fn wrong_entry_hides_no_later_error() {
    assert_errors(
        r#"[router]
moed = "poll"
workers = 17

[[port]]
name = "a"
knd = "memory"

[[port]]
name = "b"
kind = "memory"
mtu = 10

[[route]]
to = "10.1.0.0"
via = "10.0.0.1"

[[route]]
to = "10.2.0.0/16"
port = "c"

[[filter]]
match = "proto udp"
action = "port b"
priority = "high"
gat = "route"

[[bind]]
instance = "none"
gate = "monitor"
filter = "in a"
"#,
        &[
            ("2:1", "unknown key \"moed\": did you mean \"mode\"?"),
            ("3:11", "router.workers must be 1 to 16, not 17"),
            ("7:1", "unknown key \"knd\": did you mean \"kind\"?"),
            ("12:7", "is too small: give at least 68"),
            ("15:6", "\"10.1.0.0\": no address with prefix length: write, for example, 10.0.0.0/8"),
            ("20:8", "no port is named \"c\""),
            ("25:12", "\"filter[0].priority\" is the string \"high\""),
            ("26:1", "unknown key \"gat\": did you mean \"gate\"?"),
            ("29:12", "no instance is named \"none\""),
        ],
    );
}

#[test]
fn faults_in_nested_lists_have_their_place_in_the_file() {
    let port = "[[port]]\nname = \"wan\"\nkind = \"memory\"\n\n[port.scheduler]\nnode = [\n";
    let nodes = "{ name = \"a\" },\n{ name = \"b\", kind = \"fifo\" },\n{ name = \"c\", kind = \"fifos\" },\n\
                 { name = \"d\", kind = \"fifo\", level = \"low\", rate = \"fast\" },\n";
    assert_errors(
        &format!("{port}{nodes}]\n"),
        &[
            ("7:1", "\"port[0].scheduler.node[0]\" lacks the key \"kind\""),
            ("9:22", "did you mean \"fifo\"?"),
            ("10:38", "\"port[0].scheduler.node[3].level\" is the string \"low\""),
            ("10:52", "\"fast\" is no rate"),
        ],
    );
}

#[test]
fn errors_that_follow_from_another_error_are_left_out() {
    // A port in a faulty entry still counts as a port. A misspelt required key is not also reported as
    // missing.
    assert_errors(
        "[[port]]\nname = \"a\"\nkind = \"memory\"\nmtu = \"big\"\n\n[[neighbour]]\nport = \"a\"\nadress = \"10.0.0.1\"\nmac = \"02:00:00:00:00:01\"\n\n[[route]]\nto = \"10.1.0.0/16\"\nport = \"a\"\n",
        &[("4:7", "\"port[0].mtu\""), ("8:1", "did you mean \"address\"?")],
    );
    // A faulty `on-death` counts as present.
    assert_errors(
        "[router]\non-death = \"kernl\"\n\n[[port]]\nname = \"a\"\ndevice = \"e\"\n\n[[filter]]\nmatch = \"*\"\naction = \"drop\"\n",
        &[("2:12", "did you mean \"kernel\"?")],
    );
    // Leaving out the faulty elements of a list does not cause the error that the list is too short.
    let port = "[[port]]\nname = \"a\"\nkind = \"memory\"\n";
    let wrong = ("4:9", "\"port[0].vlan[0]\" is the string \"a\": give a whole number");
    assert_errors(&format!("{port}vlan = [\"a\", 5]\n"), &[wrong]);
    assert_errors(&format!("{port}vlan = [\"a\", \"b\"]\n"), &[wrong, ("4:14", "\"port[0].vlan[1]\"")]);
    // An unknown table is reported once, even if it has several entries.
    assert_errors("[[rout]]\nto = 1\n[[rout]]\nto = 2\n", &[("1:3", "did you mean \"route\"?")]);
}

#[test]
fn a_file_that_is_no_toml_has_one_error_the_first() {
    let errors = errors("[router]\nworkers = = 2\n\n[[port]\nname = \"a\"\n");
    assert!(errors.len() == 1 && errors[0].starts_with("f:2:11: "), "{errors:#?}");
}

#[test]
fn thousands_of_wrong_entries_are_counted() {
    let routes: String = (0..5000)
        .map(|n| format!("[[route]]\nto = \"10.{}.{}.0/24\"\nvai = \"x\"\n", n / 256, n % 256))
        .collect();
    let wrong = Config::parse(&routes, "f").unwrap_err();
    assert_eq!((wrong.wrong(), wrong.errors().len()), (5_000, 100));
    assert!(wrong.to_string().ends_with("\nand 4990 more"), "{wrong}");
}
