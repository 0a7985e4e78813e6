//! Running processes of this machine, found by the names of their commands or systemd units.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use nix::unistd::Pid;

use crate::files::read_if_present;
use crate::member::Member;
use crate::name;

/// Process that starts all others. Its limits would be those of the machine.
const FIRST: u32 = 1;
/// Control group of the system's units. Users make units elsewhere.
const SYSTEM: &str = "/system.slice/";
/// Kinds of units with processes of their own. Slices hold other units.
const UNITS: [&str; 2] = [".service", ".scope"];

/// Running process that may join the group of a principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Id and start.
    pub member: Member,
    /// Kernel's name of the command: at most 15 bytes, the rest is cut.
    command: String,
    /// File name of the executable; `None` if this process may not read it.
    executable: Option<String>,
    /// Components of the paths of the process's control groups among those of the system's units.
    units: HashSet<String>,
}

impl Process {
    /// Returns the processes of this machine with one of these names that are in no group of a principal. Leaves out
    /// kernel threads, the first process, this process, and processes with the same executable or started by this
    /// process.
    pub fn outside(names: &[&str]) -> Vec<Self> {
        Self::outside_of(Path::new("/proc"), std::process::id(), names)
    }

    fn outside_of(proc: &Path, own: u32, names: &[&str]) -> Vec<Self> {
        let own_executable = fs::read_link(proc.join(own.to_string()).join("exe")).ok();
        let numbered = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
        let ids = fs::read_dir(proc).into_iter().flatten().flatten().filter_map(numbered);
        let process = |id: u32| {
            let directory = proc.join(id.to_string());
            let executable = fs::read_link(directory.join("exe")).ok();
            if id == own || id == FIRST || (executable.is_some() && executable == own_executable) {
                return None;
            }
            let groups = read_if_present(&directory.join("cgroup"))?;
            let paths = || groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
            let units = paths().filter_map(|path| path.strip_prefix(SYSTEM)).flat_map(|path| path.split('/'));
            let command = read_if_present(&directory.join("comm"))?;
            let file = executable.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
            let units = units.map(str::to_owned).collect();
            let member = Member::in_directory(&directory, Pid::from_raw(id as i32))?;
            let found = Self { member, command, executable: file, units };
            let is_meant = names.iter().any(|name| found.is_of(name))
                && !paths().any(is_held)
                && has_arguments(&directory)
                && parent(&directory) != Some(own);
            is_meant.then_some(found)
        };
        ids.filter_map(process).collect()
    }

    /// Whether the process belongs to a name: of its command, of the file of its executable, or of its unit of
    /// the system, with or without `.service`. A name of more than 15 bytes is never that of a command.
    pub fn is_of(&self, name: &str) -> bool {
        self.command == name
            || self.executable.as_deref() == Some(name)
            || (UNITS.iter().any(|kind| name.ends_with(kind)) && self.units.contains(name))
            || self.units.contains(&format!("{name}.service"))
    }
}

/// Whether a path of a control group is that of a principal or plugin. What a principal's group has left behind is in
/// the group of the router's own process.
fn is_held(path: &str) -> bool {
    let mut directories = path.split('/').skip_while(|directory| !name::is_routers(directory)).skip(1);
    directories.next().is_some_and(|directory| directory != name::ROUTER)
}

/// Whether a process has arguments: only kernel threads, and processes that have ended, have none. Reads a single byte:
/// there may be megabytes.
fn has_arguments(directory: &Path) -> bool {
    let first = File::open(directory.join("cmdline")).and_then(|mut file| file.read(&mut [0]));
    first.is_ok_and(|bytes| bytes > 0)
}

/// Returns the id of the parent of a process.
pub(crate) fn parent(directory: &Path) -> Option<u32> {
    let status = read_if_present(&directory.join("status"))?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const OWN: u32 = 100;

    fn add(proc: &Path, id: u32, executable: Option<&str>, [command, arguments, group, status]: [&str; 4]) {
        let directory = proc.join(id.to_string());
        fs::create_dir_all(&directory).unwrap();
        let stat = &*format!("{id} ({command}) S 1{}", " 0".repeat(20));
        let files = [("comm", command), ("cmdline", arguments), ("cgroup", group), ("status", status)];
        for (file, text) in files.into_iter().chain([("stat", stat)]) {
            fs::write(directory.join(file), text).unwrap();
        }
        executable.into_iter().for_each(|path| symlink(path, directory.join("exe")).unwrap());
    }

    #[test]
    fn processes_are_found_by_command_executable_or_unit() {
        let proc = std::env::temp_dir().join(format!("millrace-processes-{}", std::process::id()));
        let (home, held) = ("4:cpu:/\n0::/system.slice/frr.service\n", "0::/a/millrace-100/video\n");
        let other = "0::/user.slice\n";
        let started = "Name:\tx\nPPid:\t1\n";
        add(&proc, OWN, Some("/usr/bin/millrace"), ["millrace", "millrace\0run\0", other, started]);
        add(&proc, 101, Some("/usr/sbin/bgpd"), ["bgpd", "bgpd\0-d\0", home, started]);
        add(&proc, 102, None, ["a-command-of-mo", "x\0", other, started]);
        add(&proc, 103, Some("/usr/bin/python3"), ["tool", "x\0", other, started]);
        add(&proc, 104, Some("/usr/bin/held"), ["held", "x\0", held, started]);
        let left = "0::/a/millrace-100/router\n";
        add(&proc, 109, Some("/usr/bin/left"), ["left", "x\0", left, started]);
        add(&proc, 105, None, ["kworker/0:1", "", "0::/\n", started]);
        add(&proc, 106, Some("/usr/bin/millrace"), ["millrace", "x\0", other, started]);
        add(&proc, 107, Some("/usr/bin/child"), ["child", "x\0", other, "PPid:\t100\n"]);
        add(&proc, 1, Some("/usr/bin/init"), ["systemd", "x\0", "0::/init.scope\n", started]);
        let users = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/mine.service\n";
        add(&proc, 108, Some("/usr/bin/other"), ["other", "x\0", users, started]);
        let of = |name: &str| {
            let found = Process::outside_of(&proc, OWN, &["of-no-process", name]);
            let mut ids: Vec<i32> = found.iter().map(|one| one.member.id().as_raw()).collect();
            ids.sort_unstable();
            ids
        };
        for name in ["bgpd", "frr", "frr.service"] {
            assert_eq!(of(name), [101], "{name}");
        }
        assert_eq!(of("a-command-of-mo"), [102]);
        assert_eq!((of("tool"), of("python3")), (vec![103], vec![103]));
        assert_eq!(of("left"), [109], "a group that was removed has left it behind");
        let others =
            ["held", "kworker/0:1", "millrace", "child", "system", "systemd", "mine", "mine.service"];
        let slices = ["user.slice", "system.slice", "init.scope", "a-command-of-more-than-15-bytes"];
        for name in others.into_iter().chain(slices) {
            assert_eq!(of(name), [0; 0], "{name}");
        }
        fs::remove_dir_all(&proc).unwrap();
    }
}
