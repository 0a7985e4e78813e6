//! Tests of the memory limit: memory, tables, and the engine's own data of an instance.

use super::*;

#[test]
fn memory_beyond_the_limit_is_refused() {
    // The module has 4 of 64 pages. The plugin requests 61 more, then one. It writes its number of pages into
    // the packet's first byte.
    let body = for_each(
        "(drop (memory.grow (i32.const 61)))
         (drop (memory.grow (i32.const 1)))
         (i32.store8 (local.get $window) (memory.size))",
    );
    let mut instance = begin(&body);
    assert_eq!(Batch::equal(1, 60).processed(&mut instance).packets[0].data()[0], 5);
    assert_eq!(instance.fault(), None);
}

#[test]
fn tables_count_as_memory() {
    // 4 pages leave 3.75 MiB for tables: 491,520 entries of 8 bytes. The plugin writes the second table's
    // size into the packet.
    let body = for_each(
        "(drop (table.grow $first (ref.null func) (i32.const 400000)))
         (drop (table.grow $second (ref.null func) (i32.const 100000)))
         (drop (table.grow $second (ref.null func) (i32.const 90000)))
         (i32.store (local.get $window) (table.size $second))",
    );
    let mut instance = begin(&format!("(table $first 0 funcref)\n(table $second 0 funcref)\n{body}"));
    let packets = Batch::equal(1, 60).processed(&mut instance).packets;
    assert_eq!(packets[0].data()[..4], 90_000_u32.to_le_bytes());
    assert_eq!(instance.fault(), None);
}

#[test]
fn a_module_with_tables_beyond_the_limit_does_not_begin() {
    let tables = "(table 65536 funcref)\n".repeat(100);
    let before = resident();
    let refused = begin_with("", &tables, InstanceSettings::default()).unwrap_err();
    assert_eq!(refused.kind, FaultKind::Init);
    let grown = resident().saturating_sub(before);
    assert!(grown < 24 << 20, "resident memory grew by {grown} bytes for a limit of 4 MiB");
}

#[test]
fn a_module_with_passive_segments_beyond_the_limit_does_not_begin() {
    // The memory of 4 pages uses the whole limit; 24,000 entries of 16 bytes exceed it.
    let plugin = SANDBOX.compile(&module(&passive(24_000))).unwrap();
    let settings = || InstanceSettings { most_memory: 4 << 16, ..Default::default() };
    let before = resident();
    let refused: Vec<_> = (0..128).map(|_| WasmInstance::new(&plugin, settings()).unwrap_err()).collect();
    let grown = resident().saturating_sub(before);
    assert!(grown < 24 << 20, "resident memory grew by {grown} bytes for a limit of 256 KiB");
    let Fault { kind, text } = &refused[0];
    assert_eq!(*kind, FaultKind::Init);
    assert!(text.ends_with("262144 bytes: build the plugin with fewer, or raise `memory`"), "{text}");
}

/// Returns a passive segment of `entries` entries.
fn passive(entries: usize) -> String {
    format!("(elem funcref{})", " (ref.null func)".repeat(entries))
}

#[test]
fn a_module_with_functions_beyond_the_limit_does_not_begin() {
    // The memory of 4 pages uses the whole limit; 12,000 functions of 32 bytes exceed it.
    let all: String = (0..12_000).map(|index| format!(" {index}")).collect();
    let plugin = module(&format!("{}(elem declare func{all})", "(func)\n".repeat(12_000)));
    let plugin = compiled(&SANDBOX, &plugin, Tier::Baseline);
    let begin =
        |most_memory| WasmInstance::new(&plugin, InstanceSettings { most_memory, ..Default::default() });
    let refused = begin(4 << 16).unwrap_err();
    assert!(refused.text.starts_with("functions, globals and passive segments take 384"), "{refused:?}");
    assert!(begin(10 << 16).is_ok());
}

#[test]
fn bytes_of_an_instance_leave_less_for_memory() {
    // 16,000 entries take 256,000 bytes. 64 KiB of them don't count; the rest takes nearly 3 of the 64 pages.
    let segment = passive(16_000);
    let grows = for_each(
        "(drop (memory.grow (i32.const 58)))
         (drop (memory.grow (i32.const 57)))
         (i32.store8 (local.get $window) (memory.size))",
    );
    let mut instance = begin(&format!("{segment}\n{grows}"));
    assert_eq!(Batch::equal(1, 60).processed(&mut instance).packets[0].data()[0], 61);
    assert_eq!(instance.fault(), None);
}

#[test]
fn memory_grows_as_far_as_the_account_of_the_principal_has_room() {
    // The module has 4 pages. The plugin requests 3 more, then 2. It writes its number of pages into the packet.
    let body = for_each(
        "(drop (memory.grow (i32.const 3)))
         (drop (memory.grow (i32.const 2)))
         (i32.store8 (local.get $window) (memory.size))",
    );
    let mut instance = begin(&body);
    let page = 1 << 16;
    let account = Arc::new(MemoryAccount::default());
    account.set_limit(Some(6 * page));
    instance.set_memory_account(Some(Arc::clone(&account)));
    assert_eq!((account.get().plugin, instance.memory()), (4 * page, 4 * page));
    let pages = |instance: &mut WasmInstance| Batch::equal(1, 60).processed(instance).packets[0].data()[0];
    assert_eq!(pages(&mut instance), 6);
    assert_eq!((account.get().plugin, account.get().refused), (6 * page, 1));
    account.set_limit(Some(9 * page));
    account.set_queued(1);
    assert_eq!(pages(&mut instance), 8, "waiting packets take the room of a page");
    assert_eq!((instance.fault(), account.get().refused), (None, 2));
    // A restart begins with 4 pages again, which always count.
    account.set_limit(Some(page));
    Instance::restart(&mut instance).unwrap();
    assert_eq!((account.get().plugin, pages(&mut instance)), (4 * page, 4));
    instance.set_memory_account(None);
    assert_eq!((account.get().plugin, pages(&mut instance)), (0, 9));
    instance.set_memory_account(Some(Arc::clone(&account)));
    drop(instance);
    assert_eq!(account.get().plugin, 0);
}

/// Returns the resident set size of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
