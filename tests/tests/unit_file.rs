//! Systemd unit as packages install it: the permissions of the service.

use std::collections::BTreeMap;

const UNIT: &str = include_str!("../../packaging/millrace.service");

/// Returns the keys of a unit with their values. If a key occurs several times, its values are joined by a
/// space.
fn settings(unit: &str) -> BTreeMap<&str, String> {
    let mut settings = BTreeMap::<&str, String>::new();
    for (key, value) in
        unit.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='))
    {
        let known = settings.entry(key).or_default();
        *known = format!("{known} {value}").trim().to_owned();
    }
    settings
}

#[test]
fn service_keeps_its_files_private_and_gains_no_privileges() {
    let settings = settings(UNIT);
    for (key, value) in [
        ("UMask", "0077"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "read-only"),
        ("PrivateTmp", "yes"),
        ("ProtectClock", "yes"),
        ("ProtectHostname", "yes"),
        ("ProtectKernelLogs", "yes"),
        ("ProtectKernelModules", "yes"),
        ("KeyringMode", "private"),
        ("RestrictSUIDSGID", "yes"),
        ("RestrictRealtime", "yes"),
        ("LockPersonality", "yes"),
        ("RemoveIPC", "yes"),
        ("RestrictNamespaces", "net ipc uts mnt pid"),
        ("SystemCallArchitectures", "native"),
        ("SystemCallErrorNumber", "EPERM"),
        ("StateDirectoryMode", "0700"),
        ("CacheDirectoryMode", "0700"),
    ] {
        assert_eq!(settings.get(key).map(String::as_str), Some(value), "{key}");
    }
    let capabilities = &settings["CapabilityBoundingSet"];
    for denied in ["CAP_SYS_MODULE", "CAP_SYS_PTRACE", "CAP_SYS_RAWIO", "CAP_SYS_BOOT", "CAP_MKNOD"] {
        assert!(!capabilities.contains(denied), "{denied}");
    }
}

#[test]
fn service_may_create_control_groups_below_its_own() {
    let settings = settings(UNIT);
    let delegated: Vec<&str> = settings["Delegate"].split(' ').collect();
    assert_eq!(delegated, ["cpu", "memory", "io", "pids"]);
    assert_eq!(settings["ProtectControlGroups"], "no", "the hierarchy is writable");
}

#[test]
fn service_makes_only_the_system_calls_of_its_work() {
    let filter = &settings(UNIT)["SystemCallFilter"];
    let (allowed, refused) = filter.split_once('~').unwrap_or((filter, ""));
    for needed in ["@system-service", "bpf", "seccomp", "@mount", "setns", "unshare"] {
        assert!(allowed.split(' ').any(|word| word == needed), "{needed} is missing in {filter:?}");
    }
    for group in [
        "@clock",
        "@debug",
        "@module",
        "@obsolete",
        "@raw-io",
        "@reboot",
        "@swap",
        "kexec_load",
        "kexec_file_load",
    ] {
        assert!(refused.split(' ').any(|word| word == group), "{group} is allowed by {filter:?}");
    }
}
