//! Tests of the table `[[admission.allowance]]`, and of the owners of principals.

use millrace_config::{Change, Config, Role, ServiceLevel};

const PORT: &str = "[[port]]\nname = \"wan\"\nkind = \"memory\"\n";
const ALLOWANCE: &str = "# What students may have.\n[[admission.allowance]]\nname = \"students\"\nuser = [\"alice\"]\n\
                         role = [\"operator\"]\nlevel = [\"worker\"]\nprocessor = [\"worker 0\"]\ncpu = \"30 %\"   # in all\n\
                         link = { wan = \"10mbit\" }\nmemory = \"8MiB\"\nprincipals = 4\n";

fn parsed(text: &str) -> Config {
    Config::parse(text, "f").unwrap()
}

fn commands(from: &str, to: &str) -> Vec<String> {
    let changes = parsed(from).normalized().difference(&parsed(to).normalized()).changes;
    changes.iter().flat_map(Change::commands).collect()
}

#[test]
fn allowance_concerns_its_users_and_roles_and_names_levels_and_processors() {
    let config = parsed(&format!("{PORT}{ALLOWANCE}"));
    let one = &config.admission.allowance[0];
    assert!(one.concerns("alice", Some(Role::Admin)) && one.concerns("bob", Some(Role::Operator)));
    assert!(!one.concerns("bob", Some(Role::Admin)) && !one.concerns("bob", None));
    assert!(one.has_level(ServiceLevel::Worker) && !one.has_level(ServiceLevel::Host));
    assert!(one.has_processor("worker 0") && !one.has_processor("host"));
}

#[test]
fn errors_of_allowances_name_place_problem_and_remedy() {
    let refused = |lines: &str| {
        let text = format!("{PORT}[[admission.allowance]]\nname = \"a\"\n{lines}\n");
        Config::parse(&text, "f").unwrap_err().to_string()
    };
    for (lines, expected) in [
        ("cpu = \"5 %\"", "allowance \"a\": user and role are empty: name at least one"),
        (
            "user = [\"u\"]\nlink = { wa = \"1mbit\" }",
            "f:5:8: allowance \"a\": no port is named \"wa\": did you mean \"wan\"?",
        ),
        (
            "user = [\"u\"]\nprocessor = [\"worker 1\"]",
            "no processor is named \"worker 1\": did you mean \"worker 0\"?",
        ),
        ("user = [\"u\"]\nprincipals = 10001", "allowance \"a\": principals must be 0 to 10000"),
        (
            "user = [\"u\"]\n[[admission.allowance]]\nname = \"a\"\nuser = [\"v\"]",
            "allowance name \"a\" is used twice",
        ),
        ("user = [\"u\"]\nlevel = [\"xdp\"]", "unknown value \"xdp\""),
        ("user = [\"u\"]\ncpus = \"5 %\"", "unknown key \"cpus\""),
    ] {
        let error = refused(lines);
        assert!(error.contains(expected), "{lines}: {error}");
    }
}

#[test]
fn changes_of_allowances_are_commands_and_have_inverses() {
    let (bare, with) = (PORT.to_owned(), format!("{PORT}{ALLOWANCE}"));
    let added = "allowance add students 'cpu=30 %' 'level=[\"worker\"]' link.wan=10mbit memory=8MiB principals=4 \
                 'processor=[\"worker 0\"]' 'role=[\"operator\"]' 'user=[\"alice\"]'";
    assert_eq!(commands(&bare, &with), [added]);
    assert_eq!(commands(&with, &bare), ["allowance remove students"]);
    let other = with.replace("30 %", "40 %").replace("principals = 4\n", "");
    assert_eq!(commands(&with, &other), ["allowance set students 'cpu=40 %' principals="]);
    for change in parsed(&bare).normalized().difference(&parsed(&other).normalized()).changes {
        assert_eq!(change.clone().inverse().inverse(), change);
    }
}

#[test]
fn saved_allowances_keep_the_comments_of_the_file() {
    let with = format!("{PORT}{ALLOWANCE}");
    let other = with.replace("30 %", "40 %");
    assert_eq!(parsed(&other).save_into(&with, "f").unwrap(), other);
    assert_eq!(parsed(&parsed(&with).to_text().unwrap()).admission, parsed(&with).admission);
    let saved = parsed(PORT).save_into(&with, "f").unwrap();
    assert!(parsed(&saved).admission.allowance.is_empty(), "{saved}");
    let saved = parsed(&with).save_into(PORT, "f").unwrap();
    assert_eq!(parsed(&saved).admission, parsed(&with).admission, "{saved}");
}

#[test]
fn file_without_an_owner_keeps_the_owner_that_runs() {
    let owned =
        "[[principal]]\nname = \"a\"\nowner = \"alice\"\n[[principal]]\nname = \"b\"\nowner = \"bob\"\n";
    let mut file = parsed("[[principal]]\nname = \"a\"\n[[principal]]\nname = \"b\"\nowner = \"carol\"\n");
    assert_eq!(file.keep_owners(&parsed(owned)), ["a"]);
    let owners: Vec<_> = file.principal.iter().map(|one| one.owner.as_deref()).collect();
    assert_eq!(owners, [Some("alice"), Some("carol")]);
    assert!(file.principal[0].belongs_to("alice") && !file.principal[0].belongs_to("bob"));
}

#[test]
fn running_instance_keeps_its_owner_whatever_a_file_says() {
    let instance =
        |name: &str, owner: &str| format!("[[instance]]\nplugin = \"null\"\nname = \"{name}\"\n{owner}");
    let owner = |name: &str| format!("owner = \"{name}\"\nowner-role = \"operator\"\n");
    let running = parsed(&(instance("a", &owner("alice")) + &instance("b", "")));
    let text = instance("a", "") + &instance("b", &owner("bob")) + &instance("c", &owner("carol"));
    let mut file = parsed(&text);
    assert_eq!(file.keep_owners(&running), ["a", "b"]);
    let owners: Vec<_> = file.instance.iter().map(|one| (one.owner.as_deref(), one.owner_role)).collect();
    let operator = Some(Role::Operator);
    assert_eq!(owners, [(Some("alice"), operator), (None, None), (Some("carol"), operator)]);
    let without = parsed(&(instance("a", "") + &instance("b", ""))).normalized();
    assert!(running.normalized().difference(&without).is_empty());
    assert_eq!(parsed(&file.to_text().unwrap()).instance, file.instance);
}
