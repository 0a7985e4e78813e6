//! Port programs call eBPF variants of plugins; faulty variants are refused, each with its reason.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use millrace_packet::OffloadedFlow;

use super::dry_runs::{Bench, FLOW, OUT, PORT};
use super::tests::{V4, V6, v4_frame, v6_frame};
use super::{LoadedVariant, VariantObject};
use crate::OffloadError;
use crate::test_support::can_load;

/// Source of a variant that counts packets and bytes. It drops packets to a configured port, and punts
/// packets to another port to the worker.
const VARIANT: &str = r#"
#define SETTINGS 2
#define COUNTERS 3
#include "ebpf_variant.h"
static __always_inline enum variant_verdict variant(const struct packet *packet, const __u64 *settings, __u64 *counters)
{
	if (packet->destination_port == settings[1])
		return VARIANT_UPCALL;
	counters[0]++;
	counters[1] += packet->length;
	counters[2] += packet->family;
	return packet->destination_port == settings[0] ? VARIANT_DROP : VARIANT_PASS;
}
"#;

/// Faulty programs, each with a part of the reason for its refusal.
const FAULTY: &[(&str, &str, &str)] = &[
    (
        "an access behind the end of a packet",
        "return *(__u8 *)(long)context->data;",
        "invalid access to packet",
    ),
    (
        "an access far behind what was looked at",
        "__u8 *data = (void *)(long)context->data; if (data + 4 > (__u8 *)(long)context->data_end) return 0; return data[64];",
        "invalid access to packet",
    ),
    (
        "a value of a map that may not be there",
        "__u32 key = context->rx_queue_index; return *(__u64 *)bpf_map_lookup_elem(&counters, &key);",
        "map_value_or_null",
    ),
    (
        "an access behind the end of a value",
        "__u32 key = 0; __u64 *found = bpf_map_lookup_elem(&counters, &key); return found ? found[99] : 0;",
        "invalid access to map value",
    ),
    (
        "an index that nothing bounds",
        "__u32 key = 0; __u64 *found = bpf_map_lookup_elem(&counters, &key); return found ? found[context->rx_queue_index] : 0;",
        "unbounded memory access",
    ),
    ("an address that a program makes up", "return *(volatile __u8 *)0x1234567;", "invalid mem access"),
    (
        "a register that was never written",
        "__u64 read; asm volatile(\"%0 = r7\" : \"=r\"(read)); return read;",
        "!read_ok",
    ),
    (
        "a stack that is too deep",
        "asm volatile(\"*(u64 *)(r10 - 1024) = r1\" ::: \"memory\"); return 0;",
        "invalid write to stack",
    ),
    (
        "a word of the context that is not there",
        "return *(__u32 *)((void *)context + 200);",
        "invalid bpf_context access",
    ),
    ("a write to the context", "context->rx_queue_index = 1; return 0;", "invalid bpf_context access"),
    ("a helper that there is not", "return ((int (*)(void))100000)();", "invalid func"),
    (
        "a helper that XDP programs may not call",
        "return ((int (*)(void *, int, int, int))BPF_FUNC_skb_change_head)(context, 0, 0, 0);",
        "program of this type cannot use helper",
    ),
    ("code that nobody comes to", "asm volatile(\"exit\"); return 0;", "unreachable insn"),
    ("a loop without an end", "for (;;) asm volatile(\"\");", "none of its paths reaches an exit"),
    (
        "a loop with an end",
        "volatile int at; for (at = 0; at < 9; at++) asm volatile(\"\"); return 0;",
        "has a loop",
    ),
    ("too many instructions", "REPEAT return 0;", "the limit is 200"),
];

fn faulty(body: &str) -> String {
    let repeated = "asm volatile(\"r0 = 0\" ::: \"r0\");".repeat(300);
    let body = body.replace("REPEAT", &repeated);
    let program = |section: &str, name: &str| {
        format!("SEC(\"{section}\") int {name}(struct xdp_md *context) {{ {body} }}\n")
    };
    let maps = VARIANT;
    // The maps are those of a correct variant; only the programs are replaced.
    format!(
        "#define millrace_variant right\n#define millrace_variant_sg right_sg\n{maps}\n#undef millrace_variant\n#undef millrace_variant_sg\n{}{}",
        program("xdp", "millrace_variant"),
        program("xdp.frags", "millrace_variant_sg")
    )
}

fn compiled(source: &str) -> Vec<u8> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("mr-variant-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (text, object) = (folder.join("variant.c"), folder.join("variant.o"));
    std::fs::write(&text, source).unwrap();
    let done = millrace_bpf::compile(Path::new(&text), &object, &["-Wno-everything"]);
    let bytes = done.map(|()| std::fs::read(&object).unwrap());
    std::fs::remove_dir_all(&folder).unwrap();
    bytes.unwrap()
}

fn load(bench: &mut Bench, object: &[u8]) -> Result<LoadedVariant, OffloadError> {
    bench.cache.load_variant(VariantObject { object, settings: 2, counters: 3, most_instructions: 200 })
}

fn counted(variant: &LoadedVariant) -> [u64; 3] {
    [0, 1, 2].map(|word| variant.memory().counted(word))
}

#[test]
fn ebpf_variant_is_called_for_each_packet_and_counts_it_once() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    let variant = load(&mut bench, &compiled(VARIANT)).unwrap();
    assert!(variant.instructions() > 20);
    assert!(!variant.time().is_zero(), "a packet takes some nanoseconds");
    assert_eq!(counted(&variant), [0; 3], "measuring the time counts nothing");
    let flow = OffloadedFlow { variant: Some(variant.place()), ..FLOW };
    let slots = [bench.begin(V4.0, V4.1), bench.begin(V6.0, V6.1)];
    slots.iter().for_each(|slot| bench.writer.renew(*slot, &flow, 1));
    let (v4, v6) = (v4_frame(), v6_frame());
    for program in 0..2 {
        assert!(bench.run(program, &v4).is_some() && bench.run(program, &v6).is_some());
    }
    assert_eq!(counted(&variant), [4, 2 * (v4.len() + v6.len()) as u64, 20]);
    // Test frames have the destination port 9.
    variant.memory().configure(&[9]);
    assert!(!bench.forwards(&v4) && bench.run(1, &v4).is_none());
    assert_eq!(bench.counters().cache.variant_dropped, 2);
    let totals = bench.writer.totals(slots[0]);
    assert_eq!(
        (totals.sent.packets, totals.dropped.packets, totals.dropped.bytes),
        (2, 2, 2 * v4.len() as u64)
    );
    let up = bench.writer.up(PORT);
    variant.memory().configure(&[9, 9]);
    assert!(!bench.forwards(&v4));
    assert_eq!((bench.writer.up(PORT), counted(&variant)[0]), (up + 1, 6), "it went up, and isn't counted");
    assert_eq!(bench.counters().cache.variant_dropped, 2);
    // Settings are changed back and forth, and stay consistent.
    variant.memory().configure(&[]);
    bench.writer.set_done(PORT, up + 1);
    assert!(bench.forwards(&v4));
    assert_eq!(bench.cache.sent(OUT).unwrap().packets, 5);
    // An unloaded variant is not called: its packets are punted to the worker.
    let memory = variant.memory().clone();
    bench.cache.unload_variant(variant);
    let up = bench.writer.up(PORT);
    assert!(!bench.forwards(&v4) && bench.run(1, &v4).is_none());
    assert_eq!((bench.writer.up(PORT), memory.counted(0)), (up + 2, 7));
}

#[test]
fn padding_is_hidden_from_an_ebpf_variant() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    let variant = load(&mut bench, &compiled(VARIANT)).unwrap();
    let slot = bench.begin(V4.0, V4.1);
    bench.writer.renew(slot, &OffloadedFlow { variant: Some(variant.place()), ..FLOW }, 1);
    let whole = super::tests::short_v4_frame();
    let padded = [&whole[..], &vec![0; 60 - whole.len()]].concat();
    assert!(bench.forwards(&padded));
    assert_eq!(counted(&variant)[1], whole.len() as u64);
    assert_eq!(bench.writer.totals(slot).sent.bytes, whole.len() as u64);
}

#[test]
fn ebpf_variants_have_separate_maps_and_slots_are_reused() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    let object = compiled(VARIANT);
    let (one, two) = (load(&mut bench, &object).unwrap(), load(&mut bench, &object).unwrap());
    assert_ne!((one.place(), one.memory().id()), (two.place(), two.memory().id()));
    let slot = bench.begin(V4.0, V4.1);
    bench.writer.renew(slot, &OffloadedFlow { variant: Some(two.place()), ..FLOW }, 1);
    assert!(bench.forwards(&v4_frame()));
    assert_eq!((counted(&one)[0], counted(&two)[0]), (0, 1));
    let place = one.place();
    bench.cache.unload_variant(one);
    assert_eq!(load(&mut bench, &object).unwrap().place(), place);
}

#[test]
fn invalid_ebpf_variant_is_refused_with_a_reason_and_no_leftovers() {
    if !can_load() {
        return;
    }
    let mut bench = Bench::new(16);
    for (what, body, reason) in FAULTY {
        let error = load(&mut bench, &compiled(&faulty(body))).expect_err(what).to_string();
        assert!(error.contains(reason), "{what}: {reason:?} is not in: {error}");
    }
    for (what, object) in [("nothing", &[][..]), ("no object file", &[0x7f; 4096][..])] {
        let error = load(&mut bench, object).expect_err(what).to_string();
        assert!(error.contains("is missing from the object file"), "{what}: {error}");
    }
    let maps = VARIANT.replace("COUNTERS 3", "COUNTERS 30");
    let error = load(&mut bench, &compiled(&maps)).expect_err("other maps").to_string();
    assert!(error.contains("map counters must have values of 64 bytes"), "{error}");
    assert_eq!(bench.cache.variants, [false; super::VARIANTS], "all places are free");
    assert!(load(&mut bench, &compiled(VARIANT)).is_ok());
}
