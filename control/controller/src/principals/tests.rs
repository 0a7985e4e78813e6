use millrace_config::Config;

use super::*;

fn config(entries: &str) -> Config {
    Config::parse(entries, "f").unwrap()
}

#[test]
fn changes_and_their_inverses_lead_to_the_same_principals() {
    let before = config("principal = [{ name = \"a\" }, { name = \"b\", weight = 3 }]").principal;
    let [c, b] = ["c", "b"].map(|name| {
        config(&format!("principal = [{{ name = \"{name}\", processes = 5 }}]")).principal.remove(0)
    });
    let set = Change::SetPrincipal { from: Box::new(before[1].clone()), to: Box::new(b) };
    for change in [Change::AddPrincipal(c), set, Change::RemovePrincipal(before[1].clone())] {
        let changed = after(&before, &change);
        assert_ne!(changed, before);
        assert_eq!(after(&changed, &change.inverse()), before);
    }
}

#[test]
fn router_without_principals_has_no_group() {
    let mut principals = Principals::default();
    principals.follow(&[], &Router::default()).unwrap();
    assert!(principals.router.is_none());
    principals.end().unwrap();
}

#[test]
fn memory_needs_no_control_group_unless_the_principal_names_processes() {
    let needs = |settings: &str| {
        needs_group(&config(&format!("principal = [{{ name = \"a\", {settings} }}]")).principal[0])
    };
    assert!(!needs("memory = \"8 MiB\""));
    assert!(needs("memory = \"8 MiB\", process = [\"bgpd\"]"));
    assert!(needs("disk = \"2 MB/s\"") && needs("processes = 5"));
}
