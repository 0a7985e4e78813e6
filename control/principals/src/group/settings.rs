//! Values of limits in the kernel's files, and their writing as a whole.

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use super::{Branch, Group, Members};
use crate::controller::{Controller, Obstacle, Version};
use crate::error::GroupError;
use crate::files::{read, read_if_present, write};
use crate::limits::{CpuWeight, Limits, PERIOD};

/// Value to write to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub path: PathBuf,
    pub value: String,
    /// Whether the value is the kernel's default. A kernel without the file needs no such value.
    pub is_default: bool,
    /// Number of the block device, as `MAJOR:MINOR`, whose line the value replaces.
    pub device: Option<String>,
}

impl Setting {
    fn new(path: PathBuf, limit: Option<String>, default: &str) -> Self {
        let is_default = limit.is_none();
        Self { path, value: limit.unwrap_or_else(|| default.to_owned()), is_default, device: None }
    }

    /// Returns the value that restores the file's present state.
    fn earlier(&self) -> Result<String, GroupError> {
        let text = read(&self.path)?;
        let Some(device) = &self.device else { return Ok(text) };
        let is_of = |line: &&str| line.split(' ').next() == Some(device);
        let unlimited = || match self.path.ends_with(DISK_2) {
            true => unlimited_device(device),
            false => format!("{device} 0"),
        };
        Ok(text.lines().find(is_of).map_or_else(unlimited, str::to_owned))
    }
}

/// Writes all values in order. If the kernel refuses one, writes the earlier values in reverse order.
///
/// # Errors
/// The kernel refuses a value, or a file can't be read.
pub(super) fn apply(settings: &[Setting]) -> Result<(), GroupError> {
    let mut earlier: Vec<(&Setting, String)> = Vec::new();
    for setting in settings.iter().filter(|setting| !setting.is_default || setting.path.exists()) {
        let before = setting.earlier();
        let written = before.map_err(of_reading).and_then(|before| {
            write(&setting.path, &setting.value)?;
            Ok(before)
        });
        match written {
            Ok(before) => earlier.push((setting, before)),
            Err(source) => {
                let restore = |(setting, value): &(&Setting, String)| {
                    write(&setting.path, value).is_err().then(|| setting.path.clone())
                };
                let unrestored = earlier.iter().rev().filter_map(restore).collect();
                let (path, value) = (setting.path.clone(), setting.value.clone());
                return Err(GroupError::Limit { path, value, source, unrestored });
            }
        }
    }
    Ok(())
}

fn of_reading(error: GroupError) -> io::Error {
    match error {
        GroupError::File { source, .. } => source,
        other => io::Error::other(other),
    }
}

/// Returns the values of all limits of a group. `devices`: numbers of the block devices.
///
/// # Errors
/// A limited resource has no usable controller, or is not limited for threads.
pub(super) fn of(limits: &Limits, group: &Group, devices: &[String]) -> Result<Vec<Setting>, GroupError> {
    let mut settings = Vec::new();
    for (controller, is_limited) in [
        (Controller::Cpu, limits.cpu_weight.is_some() || limits.cpu_limit.is_some()),
        (Controller::Memory, limits.memory.is_some()),
        (Controller::Disk, limits.disk.is_some()),
        (Controller::Processes, limits.processes.is_some()),
    ] {
        match (group.branch(controller), is_limited) {
            (Some(branch), _) => settings.extend(values(controller, limits, branch, devices)),
            (None, false) => {}
            (None, true) if group.members == Members::Threads && controller != Controller::Cpu => {
                return Err(GroupError::OfThreads { controller });
            }
            (None, true) => {
                let unknown = || Obstacle::NotMounted { controller: controller.name(Version::V1) };
                let obstacle = group.machine.usable(controller).err().unwrap_or_else(unknown);
                return Err(GroupError::Unavailable { controller, obstacle });
            }
        }
    }
    Ok(settings)
}

fn values(controller: Controller, limits: &Limits, branch: &Branch, devices: &[String]) -> Vec<Setting> {
    match controller {
        Controller::Cpu => cpu(limits, branch),
        Controller::CpuAccounting | Controller::Packets => Vec::new(),
        Controller::Memory => {
            let swap = branch.file(MEMORY_AND_SWAP_1);
            let with_swap = read_if_present(&swap).and_then(|text| text.parse().ok());
            memory(limits.memory, branch, with_swap)
        }
        Controller::Disk => disk(limits.disk, branch, devices),
        Controller::Processes => {
            let most = limits.processes.map(|most| most.to_string());
            vec![Setting::new(branch.file("pids.max"), most, "max")]
        }
    }
}

fn cpu(limits: &Limits, branch: &Branch) -> Vec<Setting> {
    let (weight, quota) = (limits.cpu_weight, limits.cpu_limit.map(|limit| limit.quota()));
    let text = |shares: u32| shares.to_string();
    match branch.version {
        Version::V1 => vec![
            Setting::new(
                branch.file("cpu.shares"),
                weight.map(|weight| text(weight.shares())),
                &text(CpuWeight::DEFAULT.shares()),
            ),
            Setting::new(branch.file("cpu.cfs_quota_us"), quota.map(|quota| quota.to_string()), "-1"),
        ],
        Version::V2 => vec![
            Setting::new(
                branch.file("cpu.weight"),
                weight.map(|weight| text(weight.get().into())),
                &text(CpuWeight::DEFAULT.get().into()),
            ),
            Setting::new(
                branch.file("cpu.max"),
                quota.map(|quota| format!("{quota} {PERIOD}")),
                &format!("max {PERIOD}"),
            ),
        ],
    }
}

/// File of version 1 that limits memory and swap together. Kernels without swap accounting don't have it.
const MEMORY_AND_SWAP_1: &str = "memory.memsw.limit_in_bytes";

/// Returns the values of the memory limit. Swap is excluded, because it would be a limit in name only, and
/// its transfers slow down others. In version 1 the limit with swap is never below the limit without: so it
/// is written first when it rises above `with_swap`, its present value, and last when it falls.
fn memory(limit: Option<NonZeroU64>, branch: &Branch, with_swap: Option<u64>) -> Vec<Setting> {
    let text = limit.map(|limit| limit.to_string());
    if branch.version == Version::V2 {
        let swap = limit.map(|_| "0".to_owned());
        let mut settings = vec![Setting::new(branch.file("memory.max"), text, "max")];
        let file = branch.file("memory.swap.max");
        // Kernels without swap don't have the file.
        settings.extend(file.exists().then(|| Setting::new(file, swap, "max")));
        return settings;
    }
    let memory = Setting::new(branch.file("memory.limit_in_bytes"), text.clone(), "-1");
    let both = Setting::new(branch.file(MEMORY_AND_SWAP_1), text, "-1");
    match with_swap {
        None => vec![memory],
        Some(now) if limit.is_none_or(|limit| limit.get() > now) => vec![both, memory],
        Some(_) => vec![memory, both],
    }
}

/// Files of version 1 that limit a device's reads and writes.
const DISK_1: [&str; 2] = ["blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"];
/// File of version 2 that limits a device.
const DISK_2: &str = "io.max";

/// Returns the values of the disk limit: for each device, or without a limit for each limited device.
pub(super) fn disk(limit: Option<NonZeroU64>, branch: &Branch, devices: &[String]) -> Vec<Setting> {
    let files: &[&str] = match branch.version {
        Version::V1 => &DISK_1,
        Version::V2 => &[DISK_2],
    };
    let mut settings = Vec::new();
    for path in files.iter().map(|name| branch.file(name)) {
        let limited: Vec<String> = match limit {
            Some(_) => devices.to_vec(),
            None => {
                let text = read_if_present(&path).unwrap_or_default();
                text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
            }
        };
        settings.extend(limited.into_iter().filter(|device| device.contains(':')).map(|device| {
            let value = match (branch.version, limit) {
                (Version::V1, _) => format!("{device} {}", limit.map_or(0, NonZeroU64::get)),
                (Version::V2, Some(limit)) => format!("{device} rbps={limit} wbps={limit}"),
                (Version::V2, None) => unlimited_device(&device),
            };
            Setting { path: path.clone(), value, is_default: limit.is_none(), device: Some(device) }
        }));
    }
    settings
}

fn unlimited_device(device: &str) -> String {
    format!("{device} rbps=max wbps=max")
}

/// Returns the numbers of the block devices of this machine, as `MAJOR:MINOR`, without devices in memory, loop devices,
/// which pass their transfers on to another device, and devices without a medium.
pub fn block_devices() -> Vec<String> {
    devices(Path::new("/sys/block"))
}

/// Returns the numbers of such devices, from the directory of block devices.
fn devices(block: &Path) -> Vec<String> {
    let entries = fs::read_dir(block).into_iter().flatten().flatten();
    let is_disk = |name: &str| !["loop", "ram", "zram"].iter().any(|kind| name.starts_with(kind));
    let mut devices: Vec<String> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_disk))
        .filter(|entry| read_if_present(&entry.path().join("size")).is_some_and(|size| size != "0"))
        .filter_map(|entry| read_if_present(&entry.path().join("dev")))
        .collect();
    devices.sort();
    devices
}

#[cfg(test)]
mod tests;
