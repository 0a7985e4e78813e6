use super::*;
use crate::values::Text;

const FILE: &str = r#"# Our router.
[router]
icmp-rate = 100   # not more

# The inside.
[[port]]
name = "lan"      # towards the hosts
kind = "memory"
address = ["10.1.0.1/24"]

[port.scheduler]
rate = "10mbit"   # as paid for

[[port.scheduler.node]]
name = "all"      # one for all
kind = "fifo"

[[port]]
name = "wan"
kind = "memory"
address = ["10.2.0.1/24"]

# Mail goes another way.
[[filter]]
match = "dport 25  in lan proto tcp"  # from inside
action = "drop"

[[route]]
to = "10.9.0.0/16"   # the branch
via = "10.2.0.254"
"#;

fn parsed(text: &str) -> Config {
    Config::parse(text, "test.toml").unwrap()
}

#[test]
fn running_configuration_equal_to_the_file_leaves_the_file_unchanged() {
    assert_eq!(parsed(FILE).save_into(FILE, "test.toml").unwrap(), FILE);
    // A filter in another, equivalent spelling counts as equal.
    let other = FILE.replace("dport 25  in lan proto tcp", "proto tcp dport 25 in lan");
    assert_eq!(parsed(&other).save_into(FILE, "test.toml").unwrap(), FILE);
}

#[test]
fn text_built_in_pieces_equals_text_built_at_once() {
    let routes = (0..600).map(|one| {
        format!("[[route]]\nto = \"20.{}.{}.0/24\"\nvia = \"10.2.0.254\"\n", one / 256, one % 256)
    });
    let filters = (0..300).map(|one| format!("[[filter]]\nmatch = \"dport {one}\"\naction = \"drop\"\n"));
    let bind = "[[instance]]\nplugin = \"null\"\nname = \"n\"\n[[bind]]\ninstance = \"n\"\ngate = \"monitor\"\nfilter = \"dport 7\"\n";
    let neighbour = "[[neighbour]]\nport = \"wan\"\naddress = \"10.2.0.254\"\nmac = \"02:00:00:00:00:fe\"\n";
    let bare = "[[port]]\nname = \"wan\"\nkind = \"memory\"\naddress = [\"10.2.0.1/24\"]\n";
    let all: String =
        [FILE, bind, neighbour].into_iter().map(str::to_owned).chain(routes).chain(filters).collect();
    for text in ["", bare, FILE, &all] {
        let runs = parsed(text);
        assert_eq!(runs.to_text().unwrap(), runs.save_into("", "what runs").unwrap());
    }
}

#[test]
fn line_endings_follow_the_file() {
    let file = "# Ours.\r\n[[port]]\r\nname = \"lan\"\r\ndevice = \"eth1\"\r\n";
    let more = file.to_owned() + "\r\n[[route]]\r\nto = \"10.9.0.0/16\"\r\nvia = \"10.2.0.254\"\r\n";
    assert_eq!(parsed(&more).save_into(file, "test.toml").unwrap(), more);
    assert_eq!(parsed(&more).save_into("", "test.toml").unwrap().find('\r'), None);
}

#[test]
fn comments_in_lists_within_brackets_stay() {
    const LISTS: &str = r#"# The whole.
route = [ # the branches
    # The first.
    { to = "10.9.0.0/16", via = "10.2.0.254" }, # by radio
    { to = "10.8.0.0/16", via = "10.2.0.254" }, # by wire

    # The last.
    { to = "10.7.0.0/16", via = "10.2.0.254" } # by nobody
]
port = [ # the inside
    { name = "lan", kind = "memory", address = ["10.1.0.1/24"] }, # lan!
    { name = "wan", kind = "memory", address = [ # many
        "10.2.0.1/24", # one
        "10.3.0.1/24", # two
    ] }, # wan!
]
"#;
    assert_eq!(parsed(LISTS).save_into(LISTS, "test.toml").unwrap(), LISTS);
    let runs = LISTS
        .replace("    { to = \"10.8.0.0/16\", via = \"10.2.0.254\" }, # by wire\n", "")
        .replace("# by nobody", "# by nobody,")
        .replace(
            " } # by nobody,\n",
            " }, # by nobody\n    { to = \"10.6.0.0/16\", via = \"10.2.0.254\" },\n",
        )
        .replace("[\"10.1.0.1/24\"] }", "[\"10.1.0.1/24\"], input-weight = 3 }")
        .replace("        \"10.2.0.1/24\", # one\n", "");
    let saved = parsed(&runs).save_into(LISTS, "test.toml").unwrap();
    assert_eq!(saved, runs);
    // A list in one line stays in one line.
    let line = "route = [{ to = \"10.9.0.0/16\", kind = \"blackhole\" }, { to = \"10.8.0.0/16\", kind = \"blackhole\" }] # both\n";
    let other = line.replacen("10.9.0.0", "10.7.0.0", 1);
    let saved = parsed(&other).save_into(line, "test.toml").unwrap();
    assert_eq!(
        saved,
        "route = [{ to = \"10.8.0.0/16\", kind = \"blackhole\" }, { to = \"10.7.0.0/16\", kind = \"blackhole\" }] # both\n"
    );
}

#[test]
fn placements_keep_their_order() {
    let place = |flow: &str, level: &str| format!("[[place]]\nflow = \"{flow}\"\nlevel = \"{level}\" # so\n");
    let [all, udp, tcp] = [("*", "worker"), ("proto udp", "offload"), ("proto tcp", "worker")]
        .map(|(flow, level)| place(flow, level));
    for (file, runs, comments) in [
        (format!("{all}{udp}"), format!("{udp}{all}"), 0),
        (format!("{all}{udp}"), format!("{all}{udp}{tcp}"), 2),
        (format!("{all}{udp}{tcp}"), format!("{all}{tcp}"), 2),
    ] {
        let saved = parsed(&runs).save_into(&file, "test.toml").unwrap();
        assert_eq!(parsed(&saved), parsed(&runs), "{saved}");
        assert_eq!(saved.matches("# so").count(), comments, "{saved}");
    }
}

#[test]
fn on_death_is_written_if_the_file_needs_it() {
    const PORTS: &str = "[[port]]\nname = \"lan\"\ndevice = \"eth1\"\n";
    let mut runs = parsed(PORTS);
    assert_eq!(runs.save_into(PORTS, "test.toml").unwrap(), PORTS);
    runs.filter = parsed(FILE).filter;
    runs.filter[0].r#match = Text::of("proto tcp dport 25".parse().unwrap());
    let saved = runs.save_into(PORTS, "test.toml").unwrap();
    assert!(saved.contains("on-death = \"kernel\""), "{saved}");
    // The saved file needs no restart: none of its differences from the running configuration requires one.
    assert!(runs.normalized().difference(&parsed(&saved).normalized()).restart.is_empty());
}

#[test]
fn changed_values_are_edited_in_place_and_comments_stay() {
    let runs = FILE
        .replace("icmp-rate = 100", "icmp-rate = 200")
        .replace("rate = \"10mbit\"", "rate = \"20mbit\"")
        .replace("via = \"10.2.0.254\"", "via = [\"10.2.0.253\", \"10.2.0.254\"]");
    let saved = parsed(&runs).save_into(FILE, "test.toml").unwrap();
    assert_eq!(saved, runs);
}

#[test]
fn removed_entries_disappear_and_new_entries_are_appended() {
    let gone = FILE.split("# Mail").next().unwrap();
    let more = "[[route]]\nto = \"10.8.0.0/16\"\nkind = \"blackhole\"\n\n[[bind]]\ninstance = \"s\"\ngate = \"monitor\"\n\
                filter = \"*\"\n\n[[instance]]\nplugin = \"port-filter\"\nname = \"s\"\nsettings = { ports = \"80\" }\n";
    let runs = parsed(&format!("{gone}{more}"));
    let saved = runs.save_into(FILE, "test.toml").unwrap();
    for kept in ["# Our router.", "# not more", "# towards the hosts", "# as paid for", "# one for all"] {
        assert!(saved.contains(kept), "{kept}: {saved}");
    }
    assert!(!saved.contains("dport 25") && !saved.contains("the branch"), "{saved}");
    let again = parsed(&saved).normalized();
    assert!(again.difference(&runs.clone().normalized()).is_empty(), "{saved}");
    assert!(saved.contains("settings = { ports = \"80\" }"), "{saved}");
}

#[test]
fn port_entries_are_written_at_the_port() {
    let tree = "kind = \"memory\"\naddress = [\"10.2.0.1/24\"]\nreverse-path = \"loose\"\nscheduler = { node = [{ name = \"q\", \
                kind = \"flow-queues\", rate = \"1mbit\" }], flow = [{ queue = \"q\", rate = \"64kbit\", \
                flow = \"src 10.0.0.2 dst 10.1.0.2 proto udp sport 4 dport 5 in wan\" }] }";
    let runs = FILE.replace("kind = \"memory\"\naddress = [\"10.2.0.1/24\"]", tree);
    assert!(runs.contains("flow-queues"));
    let saved = parsed(&runs).save_into(FILE, "test.toml").unwrap();
    let difference = parsed(&runs).normalized().difference(&parsed(&saved).normalized());
    assert!(difference.is_empty(), "{difference:?}: {saved}");
    assert!(saved.contains("# no mail") || saved.contains("# from inside"), "{saved}");
    // Saving the original configuration into the changed file restores it.
    let back = parsed(FILE).save_into(&saved, "test.toml").unwrap();
    assert!(parsed(FILE).normalized().difference(&parsed(&back).normalized()).is_empty(), "{back}");
}

#[test]
fn generated_text_parses() {
    let runs = parsed(FILE);
    let text = runs.to_text().unwrap();
    let difference = runs.normalized().difference(&parsed(&text).normalized());
    assert!(difference.is_empty(), "{difference:?}: {text}");
}
