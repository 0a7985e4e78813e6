//! Tests of configurations in which settings of instances name other instances: the order of the instances has no
//! meaning.

use std::collections::BTreeSet;

use millrace_controller::operation::{CreateInstance, FreeInstance, SetInstance};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;

use super::*;

/// Returns the part of `BASE` without instances.
fn ports() -> &'static str {
    BASE.split("[[gate]]").next().unwrap()
}

/// Returns an instance of `spread`, for the text of a configuration.
fn spread(name: &str, to: &[&str]) -> String {
    let setting = |(index, to): (usize, &&str)| match index {
        0 => format!("to = \"{to}\""),
        index => format!("to{} = \"{to}\"", index + 1),
    };
    let settings: Vec<_> = to.iter().enumerate().map(setting).collect();
    let settings = settings.join(", ");
    format!("[[instance]]\nplugin = \"spread\"\nname = \"{name}\"\nsettings = {{ {settings} }}\n")
}

/// Returns an instance without settings, for the text of a configuration.
fn plain(plugin: &str, name: &str) -> String {
    format!("[[instance]]\nplugin = \"{plugin}\"\nname = \"{name}\"\n")
}

async fn create(router: &Router, plugin: &str, name: &str, settings: serde_json::Value) {
    let (plugin, name, settings) = (plugin.to_owned(), name.to_owned(), object(settings));
    ask(router, CreateInstance { plugin, name, settings, service: None }).await.unwrap();
}

/// Starts another router with a configuration, and checks that it runs the configuration of `router`.
async fn assert_starts_alike(router: &Router, text: &str) {
    let again = start(Config::parse(text, "saved.toml").unwrap(), StartOptions::default()).await.unwrap();
    assert_runs(&again, &running(router).await).await;
    again.shutdown().await.unwrap();
}

#[test]
fn saved_configuration_starts_again_after_an_id_was_reused() {
    with_router(async |router| {
        create(&router, "null", "a", json!({})).await;
        create(&router, "statistics", "t", json!({})).await;
        ask(&router, FreeInstance { name: "a".to_owned() }).await.unwrap();
        create(&router, "spread", "both", json!({"to": "t"})).await;
        let saved = save(&router, BASE, false).await.unwrap();
        assert!(saved.find("\"both\"") > saved.find("name = \"t\""), "{saved}");
        assert_starts_alike(&router, &saved).await;
        assert_starts_alike(&router, &running(&router).await).await;
        for text in [BASE, saved.as_str()] {
            assert!(!apply(&router, text).await.unwrap().is_empty());
            assert_runs(&router, text).await;
        }
    });
}

#[test]
fn instances_are_created_and_removed_in_any_order_of_the_file() {
    let blocks = [plain("statistics", "t"), spread("b", &["t"]), spread("a", &["b", "t"])];
    with_router(async |router| {
        apply(&router, ports()).await.unwrap();
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let text = order.iter().fold(ports().to_owned(), |text, block| text + &blocks[*block]);
            let created = apply(&router, &text).await.unwrap();
            assert_eq!(
                created,
                [
                    "instance create statistics t",
                    "instance create spread b to=t",
                    "instance create spread a to=b to2=t"
                ]
            );
            assert_runs(&router, &text).await;
            assert_starts_alike(&router, &text).await;
            let removed = compare(&router, ports()).await.changes;
            assert_eq!(removed, ["instance free a", "instance free b", "instance free t"]);
            assert_eq!(apply(&router, ports()).await.unwrap(), removed);
            back(&router).await;
            assert_runs(&router, &text).await;
            back(&router).await;
            assert_runs(&router, ports()).await;
        }
    });
}

#[test]
fn instance_gets_another_plugin_after_its_last_user_has_gone() {
    let bound = "[[bind]]\ninstance = \"a\"\ngate = \"monitor\"\nfilter = \"proto udp\"\n";
    let chain = [plain("statistics", "t"), spread("b", &["t"]), spread("a", &["b"])].concat();
    with_router(async |router| {
        let text = format!("{}{chain}{bound}", ports());
        for others in [
            // Both users go.
            plain("null", "t"),
            // One user goes, and the other one gets another plugin.
            [plain("null", "t"), plain("statistics", "a")].concat(),
            // One user goes, and the others name each other the other way round.
            [spread("t", &["b"]), plain("statistics", "b")].concat(),
        ] {
            apply(&router, &text).await.unwrap();
            let other = format!("{}{others}", ports());
            let planned = compare(&router, &other).await.changes;
            assert_eq!(apply(&router, &other).await.unwrap(), planned);
            assert_runs(&router, &other).await;
            back(&router).await;
            assert_runs(&router, &text).await;
        }
    });
}

#[test]
fn instances_that_name_each_other_in_a_cycle_are_refused() {
    with_router(async |router| {
        let text = format!("{BASE}{}{}", spread("a", &["b"]), spread("b", &["a"]));
        let refused = apply(&router, &text).await.unwrap_err().to_string();
        let cycle = "instances name each other in a cycle: \"a\" names \"b\", \"b\" names \"a\";";
        assert!(refused.contains(cycle), "{refused}");
        assert_runs(&router, BASE).await;
        create(&router, "spread", "b", json!({"to": "pf"})).await;
        create(&router, "spread", "a", json!({"to": "b"})).await;
        let settings = object(json!({"to": "a"}));
        let refused = ask(&router, SetInstance { name: "b".to_owned(), settings }).await.unwrap_err();
        assert!(refused.to_string().contains("in a cycle"), "{refused}");
        assert_starts_alike(&router, &running(&router).await).await;
    });
}

/// Instance with the instances that its settings name.
type Naming = (&'static str, Vec<&'static str>);

/// Returns sets of instances that name others, in any order. The instance `root` names none.
fn sets() -> impl Strategy<Value = Vec<Naming>> {
    let names = Just(["a", "b", "c", "d", "e"].to_vec()).prop_shuffle();
    let named = prop::collection::vec(prop::collection::vec(any::<Index>(), 1..4), 0..6);
    let set = (names, named).prop_map(|(names, named)| {
        let mut set: Vec<Naming> = vec![("root", Vec::new())];
        for (name, named) in names.into_iter().zip(named) {
            let known: Vec<_> = set.iter().map(|(name, _)| *name).collect();
            let named: BTreeSet<_> = named.iter().map(|index| *index.get(&known)).collect();
            set.push((name, named.into_iter().collect()));
        }
        set
    });
    set.prop_shuffle()
}

fn text_of(set: &[Naming]) -> String {
    let instance = |(name, named): &Naming| match named.as_slice() {
        [] => plain("statistics", name),
        named => spread(name, named),
    };
    set.iter().map(instance).fold(ports().to_owned(), |text, instance| text + &instance)
}

/// Returns a text with its instances in the reverse order.
fn reversed(text: &str) -> String {
    let (head, instances) = text.split_once("[[instance]]").unwrap();
    let instances = instances.rsplit("[[instance]]");
    instances.fold(head.to_owned(), |text, instance| format!("{text}\n[[instance]]{instance}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn order_of_instances_changes_no_start_apply_or_rollback(from in sets(), to in sets()) {
        with_router(async |router| {
            let (from, to) = (text_of(&from), text_of(&to));
            apply(&router, &from).await.unwrap();
            assert_runs(&router, &from).await;
            let saved = running(&router).await;
            for text in [&saved, &reversed(&saved), &reversed(&from)] {
                assert_starts_alike(&router, text).await;
            }
            let changes = apply(&router, &to).await.unwrap();
            assert_runs(&router, &to).await;
            if !changes.is_empty() {
                back(&router).await;
                assert_runs(&router, &from).await;
                apply(&router, &reversed(&to)).await.unwrap();
                assert_runs(&router, &to).await;
            }
        });
    }
}
