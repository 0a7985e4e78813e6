//! Limits of groups of processes.

use std::num::{NonZeroU32, NonZeroU64};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use millrace_principals::{Controller, CpuLimit, CpuWeight, Group, GroupError, Limits, Version};

use crate::support::{BUSY, Testbed, eventually, first_processor, skip};

#[test]
fn processor_limit_of_20_percent_holds() {
    let Some(testbed) = Testbed::new(&[Controller::Cpu, Controller::CpuAccounting]) else { return };
    let limits = Limits { cpu_limit: Some(CpuLimit::new(200_000).unwrap()), ..Limits::default() };
    let mut alice = testbed.group("alice", &limits);
    alice.start(BUSY);
    sleep(Duration::from_millis(200));
    let (start, before) = (Instant::now(), alice.cpu());
    sleep(Duration::from_secs(1));
    let used = (alice.cpu() - before).as_secs_f64() / start.elapsed().as_secs_f64();
    println!("{:.1} % of a processor used", used * 100.0);
    assert!((used - 0.2).abs() < 0.05, "{used}");
    assert!(alice.group.usage().unwrap().throttled.unwrap() > Duration::from_millis(100));
}

#[test]
fn weights_of_1_to_3_share_a_processor_1_to_3() {
    let Some(testbed) = Testbed::new(&[Controller::Cpu, Controller::CpuAccounting]) else { return };
    let weight = |weight| Limits { cpu_weight: Some(CpuWeight::new(weight).unwrap()), ..Limits::default() };
    let (mut alice, mut bob) = (testbed.group("alice", &weight(100)), testbed.group("bob", &weight(300)));
    let processor = first_processor();
    alice.start_on(processor, BUSY);
    bob.start_on(processor, BUSY);
    sleep(Duration::from_millis(200));
    let before = [alice.cpu(), bob.cpu()];
    sleep(Duration::from_millis(1500));
    let used = [alice.cpu() - before[0], bob.cpu() - before[1]].map(|time| time.as_secs_f64());
    let share = used[0] / (used[0] + used[1]);
    println!("shares {:.1} % and {:.1} %", share * 100.0, (1.0 - share) * 100.0);
    assert!((share - 0.25).abs() < 0.05, "{used:?}");
}

#[test]
fn memory_limit_kills_the_child_and_not_this_process() {
    let Some(testbed) = Testbed::new(&[Controller::Memory]) else { return };
    let limits = Limits { memory: NonZeroU64::new(20 << 20), ..Limits::default() };
    let mut alice = testbed.group("alice", &limits);
    // `tail` keeps its input in memory, because it has no line breaks.
    alice.start("head -c 100000000 /dev/zero | tail > /dev/null");
    let status = alice.wait();
    let usage = alice.group.usage().unwrap();
    assert!(!status.success(), "{status}");
    assert!(usage.oom_kills.is_some_and(|kills| kills > 0), "{usage:?}");
    assert!(usage.memory_peak.is_none_or(|peak| peak <= 20 << 20), "{usage:?}");
}

#[test]
fn limit_of_processes_holds() {
    let Some(testbed) = Testbed::new(&[Controller::Processes]) else { return };
    let limits = Limits { processes: NonZeroU32::new(4), ..Limits::default() };
    let mut alice = testbed.group("alice", &limits);
    alice.start("for i in 1 2 3 4 5 6 7 8; do sleep 20 & done 2> /dev/null; wait");
    let mut most = 0;
    eventually("the limit is reached", || {
        most = most.max(alice.group.usage().unwrap().tasks.unwrap());
        most == 4
    });
    sleep(Duration::from_millis(100));
    assert!(alice.group.usage().unwrap().tasks.unwrap() <= 4);
}

#[test]
fn disk_limit_holds_for_direct_writes() {
    let Some(testbed) = Testbed::new(&[Controller::Disk]) else { return };
    let file = std::env::temp_dir().join(format!("principals-disk-{}", std::process::id()));
    let write = format!("dd if=/dev/zero of={} oflag=direct bs=64k count=48 2> /dev/null", file.display());
    // File systems in memory refuse direct writes.
    let possible = Command::new("sh").args(["-c", &write]).status().unwrap().success();
    let took = possible.then(|| {
        let limits = Limits { disk: NonZeroU64::new(2 << 20), ..Limits::default() };
        let mut alice = testbed.group("alice", &limits);
        let start = Instant::now();
        alice.start(&write);
        assert!(alice.wait().success());
        (start.elapsed(), alice.group.usage().unwrap().disk_written)
    });
    let _ = std::fs::remove_file(&file);
    let Some((took, written)) = took else { return skip("the temporary directory refuses direct writes") };
    println!("3 MiB in {:.2} s at 2 MiB/s", took.as_secs_f64());
    assert!(took > Duration::from_millis(1200), "{took:?}");
    assert!(written.is_some_and(|bytes| bytes >= 3 << 20), "{written:?}");
}

#[test]
fn refused_limit_restores_the_earlier_limits() {
    let Some(testbed) = Testbed::new(&[Controller::Cpu, Controller::Memory]) else { return };
    if testbed.machine.usable(Controller::Memory).unwrap().version == Version::V2 {
        return println!("version 2 refuses no memory limit: unit tests cover the restoration");
    }
    let weight = |weight| Some(CpuWeight::new(weight).unwrap());
    let earlier = Limits { cpu_weight: weight(200), memory: NonZeroU64::new(64 << 20), ..Limits::default() };
    let mut alice = testbed.group("alice", &earlier);
    alice.start("exec sleep 20");
    let before = ["cpu.shares", "memory.limit_in_bytes"].map(|name| value(&alice.group, name));
    assert_eq!(before, ["2048", "67108864"]);
    let refused = Limits { cpu_weight: weight(400), memory: NonZeroU64::new(4096), ..Limits::default() };
    // The memory of the sleeping process can't be reclaimed.
    let error = alice.group.set(&refused).expect_err("a limit of one page is refused");
    println!("{error}");
    assert!(
        matches!(&error, GroupError::Limit { path, unrestored, .. }
            if path.ends_with("memory.limit_in_bytes") && unrestored.is_empty()),
        "{error:?}"
    );
    assert_eq!(["cpu.shares", "memory.limit_in_bytes"].map(|name| value(&alice.group, name)), before);
}

/// Reads a file of a group.
fn value(group: &Group, name: &str) -> String {
    let mut files = group.directories().map(|path| path.join(name));
    let file = files.find(|file| file.exists()).expect("the group has the file");
    std::fs::read_to_string(file).unwrap().trim_end().to_owned()
}
