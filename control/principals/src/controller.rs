//! Controllers of the kernel, and the obstacles that keep a router from using them.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// Version of the kernel's interface for control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Version {
    /// Version 1: a hierarchy for each controller, or for a few.
    #[serde(rename = "1")]
    V1,
    /// Version 2: one hierarchy for all controllers.
    #[serde(rename = "2")]
    V2,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "1",
            Self::V2 => "2",
        })
    }
}

/// Kernel controller, by its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Controller {
    /// Weight and limit of processor time: `cpu`.
    Cpu,
    /// Accounting of processor time: `cpuacct` in version 1, part of every group in version 2.
    CpuAccounting,
    /// Memory limit and usage: `memory`.
    Memory,
    /// Rate of disk reads and writes: `blkio` in version 1, `io` in version 2.
    Disk,
    /// Number of processes and threads: `pids`.
    Processes,
    /// Group of the process that has sent a packet: part of every group in version 2, absent in version 1.
    Packets,
}

impl Controller {
    /// All controllers.
    pub const ALL: [Self; 6] =
        [Self::Cpu, Self::CpuAccounting, Self::Memory, Self::Disk, Self::Processes, Self::Packets];

    /// Whether every group of version 2 has it, without a controller of the kernel.
    pub fn is_in_every_group(self) -> bool {
        matches!(self, Self::CpuAccounting | Self::Packets)
    }

    /// Returns the kernel's name. In version 2, accounting of processor time needs no controller; its name is
    /// that of the processor time. For packets it is the name of the file system.
    pub fn name(self, version: Version) -> &'static str {
        match (self, version) {
            (Self::Cpu, _) | (Self::CpuAccounting, Version::V2) => "cpu",
            (Self::CpuAccounting, Version::V1) => "cpuacct",
            (Self::Memory, _) => "memory",
            (Self::Disk, Version::V1) => "blkio",
            (Self::Disk, Version::V2) => "io",
            (Self::Processes, _) => "pids",
            (Self::Packets, _) => "cgroup2",
        }
    }

    /// Returns the name of the resource.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Cpu => "processor time",
            Self::CpuAccounting => "accounting of processor time",
            Self::Memory => "memory",
            Self::Disk => "disk transfer",
            Self::Processes => "number of processes",
            Self::Packets => "packets of user processes",
        }
    }
}

/// Reason why a controller can't be used here. Its text states the reason; [`remedy`](Self::remedy) is
/// separate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Obstacle {
    /// No hierarchy with the controller is mounted.
    NotMounted {
        /// Kernel's name of the controller in version 1.
        controller: &'static str,
    },
    /// The kernel has no such controller, or it is disabled.
    Absent {
        /// Kernel's name of the controller in version 2.
        controller: &'static str,
        /// Mount point of the version-2 hierarchy.
        mount: PathBuf,
    },
    /// The own group is not below the mounted part of the hierarchy.
    OutsideMount {
        /// Mount point of the hierarchy.
        mount: PathBuf,
        /// Path of the own group in the hierarchy.
        group: PathBuf,
    },
    /// The hierarchy is mounted read-only.
    ReadOnly {
        /// Mount point of the hierarchy.
        mount: PathBuf,
    },
    /// The own group's directory can't be written.
    NotWritable {
        /// Directory of the own group.
        directory: PathBuf,
        /// System's error.
        error: String,
    },
    /// Version 2: the parent group doesn't enable the controller for the own group.
    NotDelegated {
        /// Kernel's name of the controller.
        controller: &'static str,
        /// Directory of the own group.
        directory: PathBuf,
    },
    /// Version 2: the own group holds threads, so that it can't have groups of processes.
    Threaded {
        /// Directory of the own group.
        directory: PathBuf,
    },
}

impl Obstacle {
    /// Returns the remedy, as an imperative clause.
    pub fn remedy(&self) -> String {
        match self {
            Self::NotMounted { controller } => format!(
                "mount the version-2 hierarchy (`mount -t cgroup2 none /sys/fs/cgroup`), or version 1 \
                 (`mount -t cgroup -o {controller} none DIRECTORY`)"
            ),
            Self::Absent { controller, .. } => format!(
                "use a kernel with the controller {controller}, and remove cgroup_disable={controller} from \
                 its command line"
            ),
            Self::OutsideMount { mount, .. } => format!(
                "mount the hierarchy again in this namespace at {}, or start the container with its own \
                 control group mounted",
                mount.display()
            ),
            Self::ReadOnly { mount } => format!(
                "`mount -o remount,rw {}`, or start the container with writable control groups",
                mount.display()
            ),
            Self::NotWritable { directory, .. } => {
                format!("run the router as root, or give its user the directory {}", directory.display())
            }
            Self::NotDelegated { .. } => {
                "run the router as a systemd service with Delegate=yes, or with `systemd-run --scope -p \
                 Delegate=yes`"
                    .to_owned()
            }
            Self::Threaded { .. } => "start the router in a group of type domain".to_owned(),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMounted { controller } => {
                write!(f, "no hierarchy with the controller {controller} is mounted")
            }
            Self::Absent { controller, mount } => {
                write!(f, "{} has no controller {controller}", mount.display())
            }
            Self::OutsideMount { mount, group } => write!(
                f,
                "the own group {} is outside the part of the hierarchy that is mounted at {}",
                group.display(),
                mount.display()
            ),
            Self::ReadOnly { mount } => write!(f, "{} is mounted read-only", mount.display()),
            Self::NotWritable { directory, error } => write!(f, "{}: {error}", directory.display()),
            Self::NotDelegated { controller, directory } => {
                write!(f, "the controller {controller} is not enabled for {}", directory.display())
            }
            Self::Threaded { directory } => write!(f, "{} is a group of threads", directory.display()),
        }
    }
}
