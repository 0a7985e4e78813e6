//! Tests of shared objects only.

use millrace_packet::Pool;
use millrace_plugin::native::{NativePlugin, leftovers};
use millrace_plugin_abi::{Instant, Plugin, Runtime, Verdict};
use serde_json::{Map, json};

use crate::support::{Bench, Sent, message, native, object, object_of, source};

fn rule() -> Option<NativePlugin> {
    object(&source("rule.c"), &[]).map(|bytes| native(&bytes))
}

fn sent(port: u16) -> Sent {
    Sent { flow: 0, port, bytes: vec![0x11; 90] }
}

/// Returns the C source of a plugin with `keys` in its manifest and with the code `body`. Adds a function
/// that does nothing for each of `millrace_init` and `millrace_packets` that `body` doesn't define.
pub fn text(keys: &str, body: &str) -> String {
    let unless = |name: &str, text: &'static str| if body.contains(name) { "" } else { text };
    let manifest = format!(
        r#"{{"abi":1,"name":"test","version":"1.0.0","summary":"For tests.","positions":["early"]{keys}}}"#
    );
    format!(
        "#include \"millrace.h\"\nMILLRACE_PLUGIN(\"{}\");\n{}{}{body}",
        manifest.replace('"', "\\\""),
        unless(
            "millrace_init",
            "int32_t millrace_init(const uint8_t *s, size_t n) { (void)s; (void)n; return 0; }\n"
        ),
        unless("millrace_packets", "void millrace_packets(struct millrace_call *call) { (void)call; }\n"),
    )
}

fn refusal(text: &str) -> Option<String> {
    object_of(text).map(|bytes| NativePlugin::new(&bytes).unwrap_err().to_string())
}

#[test]
fn variables_belong_to_one_instance() {
    let Some(plugin) = rule() else { return };
    assert_eq!(plugin.runtime(), Runtime::Trusted);
    let pool = Pool::new(128).unwrap();
    let mut benches: Vec<_> = (0..5).map(|_| Bench::of(&plugin)).collect();
    for (index, bench) in benches.iter_mut().enumerate() {
        (0..=index).for_each(|_| {
            bench.send(&pool, &[sent(80)], Instant::ZERO);
        });
    }
    for (index, bench) in benches.iter_mut().enumerate() {
        let reply = bench.instance.control(&message("read", json!({}))).unwrap();
        assert_eq!(reply["packets"], index + 1);
    }
}

#[test]
fn loaded_bytes_are_the_given_bytes() {
    let code = |answer: u8| {
        let body = format!(
            "int32_t millrace_control(const char *name, size_t name_bytes, const uint8_t *arguments, size_t bytes) {{
                (void)name, (void)name_bytes, (void)arguments, (void)bytes;
                return millrace_reply(\"{answer}\", 1);
            }}"
        );
        object_of(&text(r#","messages":{"read":"a number"}"#, &body))
    };
    for answer in 1..4 {
        let Some(bytes) = code(answer) else { return };
        let mut instance = native(&bytes).create(&Map::new()).unwrap();
        assert_eq!(instance.control(&message("read", json!({}))), Ok(json!(answer)));
    }
}

#[test]
fn instances_that_are_gone_leave_their_copies_behind() {
    let Some(plugin) = rule() else { return };
    let before = leftovers();
    drop(Bench::of(&plugin));
    assert!(leftovers() > before);
}

#[test]
fn a_restart_forgets_everything() {
    let Some(plugin) = rule() else { return };
    let pool = Pool::new(128).unwrap();
    let mut bench = Bench::of(&plugin);
    let came = bench.send(&pool, &[sent(666), sent(80)], Instant::ZERO);
    assert_eq!(came.packets[0].0, Verdict::Fault);
    assert_eq!(came.fault.unwrap().kind, "wrong_verdict");
    bench.instance.restart().unwrap();
    assert_eq!(bench.instance.control(&message("read", json!({}))).unwrap()["packets"], 0);
}

#[test]
fn a_function_that_was_not_granted_refuses_and_is_a_fault() {
    let body = "void millrace_packets(struct millrace_call *call) { uint8_t byte;
        for (uint32_t i = 0; i < call->count; i++) {
            struct millrace_packet *packet = millrace_packet(call, i);
            if (millrace_read(packet, 0, &byte, 1) == 0 && !millrace_resize(packet, 4) && !millrace_make(\"a\", 1, 0))
                millrace_drop(packet, 9);
        } }";
    let Some(bytes) = object_of(&text("", body)) else { return };
    let pool = Pool::new(128).unwrap();
    let came = Bench::of(&native(&bytes)).send(&pool, &[sent(80)], Instant::ZERO);
    assert_eq!(came.packets, [(Verdict::Drop(9), None)]);
    let fault = came.fault.unwrap();
    assert_eq!(fault.kind, "not_granted");
    assert!(fault.text.contains("packet_make"), "{}", fault.text);
}

#[test]
fn refused_start_reports_its_reason() {
    let Some(plugin) = rule() else { return };
    let settings = json!({ "port": 70000 }).as_object().cloned().unwrap();
    let refused = plugin.create(&settings).err().unwrap().to_string();
    assert_eq!(refused, "plugin rule: init: port: give 0 to 65535");
    let Some(silent) = object_of(&text(
        "",
        "int32_t millrace_init(const uint8_t *s, size_t n) { (void)s; (void)n; return 5; }",
    )) else {
        return;
    };
    let refused = native(&silent).create(&Map::new()).err().unwrap().to_string();
    assert!(refused.contains("the plugin returned 5"), "{refused}");
}

#[test]
fn invalid_object_is_refused_with_its_defect() {
    let hidden = "#include <stdint.h>\nuint32_t millrace_abi(void) { return 1; }\n";
    let Some(missing) = refusal(hidden) else { return };
    assert!(missing.starts_with("missing export: millrace_attach"), "{missing}");
    let old = text("", "").replace("\\\"abi\\\":1", "\\\"abi\\\":7");
    assert!(refusal(&old).unwrap().contains("version 7 of the plugin interface"));
    let strange = text(r#","windows":3"#, "");
    assert!(refusal(&strange).unwrap().contains("did you mean \"window\""));
    let unresolved = text(
        "",
        "void nobody_has_this(void);\nvoid millrace_periodic(uint64_t now) { (void)now; nobody_has_this(); }",
    );
    let unresolved = refusal(&unresolved).unwrap();
    assert!(unresolved.contains("can't be loaded: undefined symbol: nobody_has_this"), "{unresolved}");
    let version = "#include \"millrace.h\"\n#undef MILLRACE_ABI_VERSION\n#define MILLRACE_ABI_VERSION 9";
    let newer = text("", "").replace("#include \"millrace.h\"", version);
    assert_eq!(
        refusal(&newer).unwrap(),
        "its code has plugin ABI version 9, this router has 1: rebuild the plugin"
    );
}

#[test]
fn damage_is_found_before_anything_runs() {
    let Some(bytes) = object(&source("rule.c"), &[]) else { return };
    for length in [0, 4, 63, 64, 200, bytes.len() / 2] {
        assert!(NativePlugin::new(&bytes[..length]).is_err(), "{length}");
    }
    let mut other = bytes.clone();
    // ELF number of the s390 architecture.
    (other[18], other[19]) = (22, 0);
    let refused = NativePlugin::new(&other).unwrap_err().to_string();
    assert!(refused.contains("machine 22"), "{refused}");
}
