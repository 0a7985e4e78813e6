//! Tests that `sdk/c/millrace.h` agrees with `foundation/plugin-abi/src/binary.rs`, for both runtimes.

use std::fmt::Write as _;
use std::fs;
use std::mem::{offset_of, size_of};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{Folder, repository};
use millrace_plugin_abi::binary::{
    ABI_VERSION, HOST_FUNCTIONS, MOST_PACKETS, NO_OFFSET, RawBacklog, RawCall, RawFlowEnd, RawPacket,
    backlog, connection, map_answer, packet_flags, verdict,
};
use millrace_plugin_abi::process::{
    ADDRESS, ANSWER_LANE, BELL, Layout, MOST_BYTES, MOST_READ, REQUEST_LANE, VERSION, answer, request,
};
use millrace_sdk::exceptions;
use millrace_sdk::host::RawHost;

/// Generates C code that compiles only if the types have these sizes and offsets.
macro_rules! layout {
    ($text:ident, $kind:ty, $name:literal: $($field:ident)*) => {
        let size = size_of::<$kind>();
        writeln!($text, "_Static_assert(sizeof(struct {}) == {size}, \"size\");", $name).unwrap();
        $(
            let (offset, field) = (offset_of!($kind, $field), stringify!($field));
            writeln!($text, "_Static_assert(offsetof(struct {}, {field}) == {offset}, \"{field}\");", $name).unwrap();
            let size = {
                let field = |value: &$kind| size_of_val(&value.$field);
                field(&<$kind>::default())
            };
            writeln!($text, "_Static_assert(sizeof(((struct {} *)0)->{field}) == {size}, \"{field}\");", $name).unwrap();
        )*
    };
}

fn layouts() -> String {
    let mut text = "#include \"millrace.h\"\n".to_owned();
    layout!(text, RawCall, "millrace_call": size packet_size count now packets);
    layout!(text, RawPacket, "millrace_packet": size flags length window window_length network transport ether_type family
        protocol tag exceptions port number state flow source_port destination_port verdict reason target connection until);
    layout!(text, RawFlowEnd, "millrace_flow_end": size family protocol source_port destination_port port reserved flow
        source destination packets bytes state);
    layout!(text, RawBacklog, "millrace_waiting": size of port queue packets instance_packets bytes instance_bytes
        payer_bytes allowance payer_packets paid);
    text
}

fn numbers() -> String {
    let numbers: [(&str, u64); 35] = [
        ("ABI_VERSION", ABI_VERSION.into()),
        ("MOST_PACKETS", MOST_PACKETS as u64),
        ("NO_OFFSET", NO_OFFSET.into()),
        ("MORE", packet_flags::MORE.into()),
        ("COPY", packet_flags::COPY.into()),
        ("FIRST", packet_flags::FIRST.into()),
        ("TO_OPENER", packet_flags::REPLY.into()),
        ("UNTRACKED", connection::UNTRACKED.into()),
        ("NEW", connection::NEW.into()),
        ("ESTABLISHED", connection::ESTABLISHED.into()),
        ("RELATED", connection::RELATED.into()),
        ("INVALID", connection::INVALID.into()),
        ("TTL", exceptions::TTL.into()),
        ("OPTIONS", exceptions::OPTIONS.into()),
        ("FRAGMENT", exceptions::FRAGMENT.into()),
        ("CUT", exceptions::CUT.into()),
        ("PASS", verdict::PASS.into()),
        ("DROP", verdict::DROP.into()),
        ("CONSUME", verdict::CONSUME.into()),
        ("TO_PORT", verdict::PORT.into()),
        ("TO_PORTS", verdict::PORTS.into()),
        ("TO_QUEUE", verdict::QUEUE.into()),
        ("TO_INSTANCE", verdict::INSTANCE.into()),
        ("CLASSIFY", verdict::CLASSIFY.into()),
        ("HOLD", verdict::HOLD.into()),
        ("UNKNOWN", backlog::UNKNOWN.into()),
        ("DONE", map_answer::DONE as u64),
        ("ABSENT", map_answer::ABSENT as u64),
        ("FULL", map_answer::FULL as u64),
        ("REFUSED", map_answer::REFUSED as u64),
        ("OF_LEAF", backlog::LEAF.into()),
        ("OF_FLOW", backlog::FLOW.into()),
        ("ERROR", millrace_sdk::Level::Error as u64),
        ("INFORMATION", millrace_sdk::Level::Information as u64),
        ("DEBUG", millrace_sdk::Level::Debug as u64),
    ];
    numbers.map(|(name, value)| format!("_Static_assert(MILLRACE_{name} == {value}, \"{name}\");\n")).concat()
}

/// Returns C code that checks the order of the router's functions in the function table.
fn table() -> String {
    let mut text = "#ifndef __wasm__\n".to_owned();
    for (index, (name, _)) in HOST_FUNCTIONS.iter().enumerate() {
        let place = 8 * (index + 1);
        writeln!(text, "_Static_assert(offsetof(struct millrace_host, {name}) == {place}, \"{name}\");")
            .unwrap();
    }
    text + "#endif\n"
}

/// Returns whether C code compiles with the first clang found; `None` without a clang. Also compiles a wrong
/// layout, which must fail: this shows that layouts are really compared.
fn compiles(text: &str, flags: &[&str]) -> Option<bool> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let folder = Folder::new(&format!("header-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let file = folder.0.join(format!("{}.c", flags.len()));
    fs::write(&file, text).unwrap();
    for clang in ["clang", "clang-19"] {
        let mut command = Command::new(clang);
        command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]);
        command.arg(repository().join("sdk/c")).args(flags).arg(&file);
        if let Ok(output) = command.output() {
            println!("{clang} {flags:?}: {}", String::from_utf8_lossy(&output.stderr));
            return Some(output.status.success());
        }
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "there is no clang");
    println!("skipped: there is no clang");
    None
}

#[test]
fn the_header_has_the_layout_of_the_interface() {
    let text = [layouts(), numbers(), table()].concat();
    for flags in [&["--target=wasm32", "-ffreestanding"][..], &["-fPIC"]] {
        assert_ne!(compiles(&text, flags), Some(false), "{flags:?}");
        let wrong = text.replace("millrace_packet) == 64", "millrace_packet) == 72");
        assert_ne!(compiles(&wrong, flags), Some(true), "{flags:?}");
    }
}

/// Generates C code that compiles only if the header has the places and kinds of the shared memory.
fn shared_memory() -> String {
    let (requests, answers) = (REQUEST_LANE, ANSWER_LANE);
    let places = [
        ("REQUESTS_POSTED", requests.posted),
        ("REQUESTS_TAKEN", requests.taken),
        ("REQUESTS", requests.start),
        ("REQUEST_WORDS", requests.words),
        ("ANSWERS_POSTED", answers.posted),
        ("ANSWERS_TAKEN", answers.taken),
        ("ANSWERS", answers.start),
        ("ANSWER_WORDS", answers.words),
        ("BELL", BELL),
        ("ADDRESS", ADDRESS),
        ("SERVICE", Layout::new(0, 0, 0).service()),
        ("PROCESS_VERSION", VERSION as usize),
        ("MOST_BYTES", MOST_BYTES),
        ("MOST_PIECE", MOST_READ),
    ];
    let kinds = [
        ("INIT", request::INIT),
        ("PACKETS", request::PACKETS),
        ("CONTROL", request::CONTROL),
        ("PERIODIC", request::PERIODIC),
        ("FLOW_ENDED", request::FLOW_ENDED),
        ("MESSAGE", request::MESSAGE),
        ("SAVE", request::SAVE),
        ("RESTORE", request::RESTORE),
        ("RESULT", request::RESULT),
        ("ENDED", answer::DONE),
        ("MISSING", answer::done::MISSING as u32),
        ("HEARS_FLOW_ENDS", answer::done::HEARS_FLOW_ENDS as u32),
        ("SAVES", answer::done::SAVES as u32),
    ];
    let functions = HOST_FUNCTIONS.iter().enumerate().filter(|(_, (name, _))| *name != "service_state");
    let functions = functions.map(|(index, (name, _))| (name.to_uppercase(), index + 1));
    let kinds = kinds.map(|(name, kind)| (name.to_owned(), kind as usize));
    let all = places.map(|(name, place)| (name.to_owned(), place)).into_iter().chain(kinds).chain(functions);
    let assert = |(name, value)| format!("_Static_assert(MILLRACE_{name} == {value}, \"{name}\");\n");
    all.map(assert).collect()
}

#[test]
fn the_header_has_the_format_of_the_shared_memory() {
    let text = ["#include \"millrace.h\"\n", &shared_memory()].concat();
    assert_ne!(compiles(&text, &["-fPIE", "-DMILLRACE_EXECUTABLE"]), Some(false));
    let wrong = text.replace("MILLRACE_BELL == 32", "MILLRACE_BELL == 33");
    assert_ne!(compiles(&wrong, &["-fPIE", "-DMILLRACE_EXECUTABLE", "-w"]), Some(true));
}

#[test]
fn the_kit_for_rust_has_the_table_of_the_interface() {
    let fields = [
        ("fail", offset_of!(RawHost, fail)),
        ("reply", offset_of!(RawHost, reply)),
        ("log", offset_of!(RawHost, log)),
        ("packet_read", offset_of!(RawHost, packet_read)),
        ("packet_write", offset_of!(RawHost, packet_write)),
        ("packet_resize", offset_of!(RawHost, packet_resize)),
        ("packet_make", offset_of!(RawHost, packet_make)),
        ("flow_backlog", offset_of!(RawHost, flow_backlog)),
        ("timer", offset_of!(RawHost, timer)),
        ("request", offset_of!(RawHost, request)),
        ("service_state", offset_of!(RawHost, service_state)),
        ("map_get", offset_of!(RawHost, map_get)),
        ("map_set", offset_of!(RawHost, map_set)),
        ("map_remove", offset_of!(RawHost, map_remove)),
        ("send", offset_of!(RawHost, send)),
        ("count", offset_of!(RawHost, count)),
    ];
    for (index, (name, _)) in HOST_FUNCTIONS.iter().enumerate() {
        assert_eq!(fields[index], (*name, 8 * (index + 1)));
    }
}
