//! State directory, and the records of plugins that survive a restart of the router.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use crate::Quarantine;
use crate::versions::Versions;

/// Records of plugins that survive a restart of the router: versions and quarantine.
#[derive(Clone, Debug)]
pub struct Memory {
    pub(crate) versions: Versions,
    /// Instances in quarantine.
    pub quarantine: Quarantine,
}

impl Memory {
    /// Opens the records in a directory, which may not exist yet. Without a directory, the records start
    /// empty, and are lost when the router ends.
    pub fn open(directory: Option<&Path>) -> Self {
        Self { versions: Versions::open(directory), quarantine: Quarantine::open(directory) }
    }

    /// Returns one sentence for each file that could not be read.
    pub fn damages(&self) -> impl Iterator<Item = &str> {
        [self.versions.damage(), self.quarantine.damage()].into_iter().flatten()
    }
}

/// Returns the default state directory: STATE_DIRECTORY, as systemd sets it; else `/var/lib/millrace` for
/// root, or `millrace` in the user's state directory. `None` for a user without a state directory.
pub fn usual_state_directory() -> Option<PathBuf> {
    usual(geteuid().is_root(), |name| std::env::var_os(name))
}

/// Returns the default state directory of the router at `socket`. For `usual_socket`, this is
/// [`usual_state_directory`]. For another socket, it is a subdirectory of [`usual_state_directory`]: `at`,
/// followed by the socket's path. A directory set by systemd is used unchanged, because it belongs to the
/// service.
pub fn state_directory_at(socket: &Path, usual_socket: &Path) -> Option<PathBuf> {
    at(usual_state_directory(), std::env::var_os("STATE_DIRECTORY").is_some(), socket, usual_socket)
}

fn at(usual: Option<PathBuf>, is_given: bool, socket: &Path, usual_socket: &Path) -> Option<PathBuf> {
    if is_given || socket == usual_socket {
        return usual;
    }
    let socket = std::path::absolute(socket).ok()?;
    Some(usual?.join("at").join(socket.strip_prefix("/").ok()?))
}

fn usual(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let given = variable("STATE_DIRECTORY");
    if let Some(given) = given.and_then(|list| std::env::split_paths(&list).next().and_then(absolute)) {
        return Some(given);
    }
    if is_root {
        return Some("/var/lib/millrace".into());
    }
    let place = |name| variable(name).map(PathBuf::from).and_then(absolute);
    let state = place("XDG_STATE_HOME").or_else(|| Some(place("HOME")?.join(".local/state")))?;
    Some(state.join("millrace"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_socket_has_a_directory_below_the_default() {
        let usual_socket = Path::new("/run/m/m.sock");
        let base = || Some(PathBuf::from("/var/lib/m"));
        let place = |is_given, socket: &str| at(base(), is_given, Path::new(socket), usual_socket);
        assert_eq!(place(false, "/run/m/m.sock"), base());
        assert_eq!(place(false, "/tmp/r1.sock"), Some("/var/lib/m/at/tmp/r1.sock".into()));
        assert_ne!(place(false, "/tmp/a/b.sock"), place(false, "/tmp/a-b.sock"));
        assert_eq!(place(true, "/tmp/r1.sock"), base(), "it is the service's");
        assert_eq!(at(None, false, Path::new("/tmp/r1.sock"), usual_socket), None);
    }

    #[test]
    fn the_usual_place_is_the_services_the_systems_or_the_users() {
        let at = |is_root, known: &[(&str, &str)]| {
            let value = |name: &str| known.iter().find(|(known, _)| *known == name);
            usual(is_root, |name| value(name).map(|(_, value)| value.into()))
        };
        let (path, home) = (|path: &str| Some(PathBuf::from(path)), ("HOME", "/home/a"));
        assert_eq!(at(true, &[home]), path("/var/lib/millrace"));
        assert_eq!(at(true, &[("STATE_DIRECTORY", "/run/a:/run/b")]), path("/run/a"));
        assert_eq!(at(true, &[("STATE_DIRECTORY", "a")]), path("/var/lib/millrace"));
        assert_eq!(at(false, &[home]), path("/home/a/.local/state/millrace"));
        assert_eq!(at(false, &[home, ("XDG_STATE_HOME", "/s")]), path("/s/millrace"));
        assert_eq!(at(false, &[]), None);
    }
}
