use std::num::NonZeroU32;
use std::sync::Arc;

use super::*;
use crate::limits::CpuLimit;
use crate::machine::{Machine, Place};
use crate::test_support::Scratch;

fn branch(version: Version) -> Branch {
    Branch { version, controllers: Controller::ALL.to_vec(), path: "/g".into(), home: "/".into() }
}

fn texts(settings: Vec<Setting>) -> Vec<String> {
    settings.into_iter().map(|one| format!("{} {}", one.path.display(), one.value)).collect()
}

fn limits() -> Limits {
    Limits {
        cpu_weight: Some(CpuWeight::new(300).unwrap()),
        cpu_limit: Some(CpuLimit::new(200_000).unwrap()),
        memory: NonZeroU64::new(1 << 20),
        disk: NonZeroU64::new(5_000_000),
        processes: NonZeroU32::new(7),
    }
}

#[test]
fn processor_time_has_its_values_in_both_versions() {
    let of = |limits, version| texts(cpu(&limits, &branch(version)));
    assert_eq!(of(limits(), Version::V1), ["/g/cpu.shares 3072", "/g/cpu.cfs_quota_us 20000"]);
    assert_eq!(of(limits(), Version::V2), ["/g/cpu.weight 300", "/g/cpu.max 20000 100000"]);
    assert_eq!(of(Limits::default(), Version::V1), ["/g/cpu.shares 1024", "/g/cpu.cfs_quota_us -1"]);
    assert_eq!(of(Limits::default(), Version::V2), ["/g/cpu.weight 100", "/g/cpu.max max 100000"]);
}

#[test]
fn limit_with_swap_is_never_below_the_limit_without() {
    let limit = limits().memory;
    let (memory_file, both) = ("/g/memory.limit_in_bytes", "/g/memory.memsw.limit_in_bytes");
    let of = |limit, now| texts(memory(limit, &branch(Version::V1), now));
    let written = |files: [&str; 2], value: &str| files.map(|file| format!("{file} {value}"));
    assert_eq!(of(limit, Some(u64::MAX)), written([memory_file, both], "1048576"), "falls");
    assert_eq!(of(limit, Some(4096)), written([both, memory_file], "1048576"), "rises");
    assert_eq!(of(None, Some(4096)), written([both, memory_file], "-1"));
    assert_eq!(of(limit, None), ["/g/memory.limit_in_bytes 1048576"], "no swap accounting");
    assert_eq!(texts(memory(limit, &branch(Version::V2), None)), ["/g/memory.max 1048576"], "no swap");
}

#[test]
fn disk_limit_applies_to_reads_and_writes_of_each_device() {
    let devices = ["8:0".to_owned(), "254:0".to_owned()];
    let of = |version| texts(disk(limits().disk, &branch(version), &devices));
    assert_eq!(
        of(Version::V1),
        [
            "/g/blkio.throttle.read_bps_device 8:0 5000000",
            "/g/blkio.throttle.read_bps_device 254:0 5000000",
            "/g/blkio.throttle.write_bps_device 8:0 5000000",
            "/g/blkio.throttle.write_bps_device 254:0 5000000",
        ]
    );
    assert_eq!(
        of(Version::V2),
        ["/g/io.max 8:0 rbps=5000000 wbps=5000000", "/g/io.max 254:0 rbps=5000000 wbps=5000000"]
    );
    assert_eq!(texts(disk(None, &branch(Version::V2), &devices)), [""; 0], "no device has a limit");
}

fn setting(scratch: &Scratch, file: &str, value: &str, device: Option<&str>) -> Setting {
    let device = device.map(str::to_owned);
    Setting { path: scratch.join(file), value: value.to_owned(), is_default: false, device }
}

#[test]
fn earlier_values_are_those_of_the_device() {
    let files = [("io.max", "8:0 rbps=1 wbps=max riops=max wiops=max\n254:16 rbps=2 wbps=2\n")];
    let scratch = Scratch::new("settings-devices", &files);
    let earlier = |device| setting(&scratch, "io.max", "", Some(device)).earlier().unwrap();
    assert_eq!(earlier("8:0"), "8:0 rbps=1 wbps=max riops=max wiops=max");
    assert_eq!(earlier("254:1"), "254:1 rbps=max wbps=max");
    let scratch = Scratch::new("settings-devices-1", &[(DISK_1[0], "8:0 4096\n")]);
    let earlier = |device| setting(&scratch, DISK_1[0], "", Some(device)).earlier().unwrap();
    assert_eq!([earlier("8:0"), earlier("8:1")], ["8:0 4096", "8:1 0"]);
}

#[test]
fn refused_value_restores_all_earlier_values() {
    let scratch = Scratch::new("settings-restore", &[("a", "1\n"), ("b", "2\n"), ("c", "3\n")]);
    let settings = [("a", "10"), ("b", "20"), ("absent", "30"), ("c", "40")]
        .map(|(file, value)| setting(&scratch, file, value, None));
    let error = apply(&settings).unwrap_err();
    let GroupError::Limit { path, value, unrestored, .. } = error else { panic!("{error}") };
    assert_eq!((path.file_name().unwrap().to_str(), &*value, unrestored.len()), (Some("absent"), "30", 0));
    // The kernel replaces a value; a regular file keeps the bytes behind it.
    let text = |file| fs::read_to_string(scratch.join(file)).unwrap();
    assert_eq!(["a", "b", "c"].map(|file| text(file)[..1].to_owned()), ["1", "2", "3"]);
}

#[test]
fn default_value_needs_no_file() {
    let scratch = Scratch::new("settings-default", &[]);
    let setting = Setting { is_default: true, ..setting(&scratch, "absent", "-1", None) };
    apply(&[setting]).unwrap();
}

#[test]
fn disks_are_devices_with_a_medium_outside_memory() {
    let root = Scratch::new("settings-block", &[]);
    for (name, number, size) in [
        ("vda", "254:0", "9"),
        ("sr0", "11:0", "0"),
        ("loop0", "7:0", "9"),
        ("ram0", "1:0", "9"),
        ("zram0", "252:0", "9"),
    ] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("dev"), format!("{number}\n")).unwrap();
        fs::write(root.join(name).join("size"), format!("{size}\n")).unwrap();
    }
    assert_eq!(devices(root.path()), ["254:0"]);
}

/// Returns a group of version 2 in a scratch directory.
fn group(scratch: &Scratch, controllers: Vec<Controller>) -> Group {
    let (version, own) = (Version::V2, scratch.path().to_owned());
    let branch = Branch { version, controllers, path: scratch.join("g"), home: own.clone() };
    let machine = Machine::with(Controller::Cpu, Place { version, mount: own.clone(), own });
    Group {
        name: "g".to_owned(),
        members: Members::Processes,
        machine: Arc::new(machine),
        branches: vec![branch],
        limits: Limits::default(),
        devices: Vec::new(),
    }
}

#[test]
fn changed_limit_writes_no_other_file() {
    let files = [("g/cpu.weight", "100"), ("g/cpu.max", "max 100000"), ("g/pids.max", "max")];
    let scratch = Scratch::new("settings-changed", &files);
    let mut group = group(&scratch, vec![Controller::Cpu, Controller::Processes]);
    let limits = |weight| Limits {
        cpu_weight: CpuWeight::new(weight).ok(),
        processes: NonZeroU32::new(700),
        ..Limits::default()
    };
    group.set(&limits(300)).unwrap();
    let text = |file| fs::read_to_string(scratch.join(file)).unwrap();
    assert_eq!(files.map(|(file, _)| text(file)), ["300", "max 100000", "700"]);
    scratch.write("g/pids.max", "untouched");
    group.set(&limits(400)).unwrap();
    assert_eq!(files.map(|(file, _)| text(file)), ["400", "max 100000", "untouched"]);
}

#[test]
fn disk_limit_applies_to_a_device_that_appears_later() {
    let scratch = Scratch::new("settings-appears", &[("g/io.max", "")]);
    let mut group = group(&scratch, vec![Controller::Disk]);
    let devices = ["8:0", "8:16"].map(str::to_owned);
    group.limit_devices(&devices).unwrap();
    let text = || fs::read_to_string(scratch.join("g/io.max")).unwrap();
    assert_eq!(text(), "", "there is no limit");
    (group.limits.disk, group.devices) = (NonZeroU64::new(1000), devices[..1].to_vec());
    group.limit_devices(&devices).unwrap();
    assert_eq!(text(), "8:16 rbps=1000 wbps=1000");
    scratch.write("g/io.max", "");
    group.limit_devices(&devices).unwrap();
    assert_eq!(text(), "", "all devices have the limit");
}
