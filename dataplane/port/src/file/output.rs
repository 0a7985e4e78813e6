//! Output files in directories that several users share (`/tmp`): no other user's link can redirect a write
//! to another file.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Mode of a recording's file. Only its owner can read it, because it shows the traffic.
const MODE: u32 = 0o600;
/// Number of temporary names tried for a new file, because some may be in use.
const NAMES: usize = 16;
/// Devices that may stand in place of a recording: `/dev/null`, `/dev/zero` and `/dev/full`. Other devices
/// may act on written data.
const SINKS: [(u32, u32); 3] = [(1, 3), (1, 5), (1, 7)];

/// Creates a recording with mode 0600, and replaces an existing file by a rename. Programs that have the old
/// file open keep its contents. An existing file must meet the conditions of [`create_output`]. If `path` is
/// `/dev/null`, `/dev/zero` or `/dev/full`, opens the device itself.
pub fn create_recording(path: &Path) -> io::Result<File> {
    match check_recording(path)? {
        Some(known) if known.file_type().is_char_device() => {
            let file = open_to_write(OpenOptions::new().write(true), path)?;
            if is_sink(&file.metadata()?) { Ok(file) } else { Err(refused(NO_SINK)) }
        }
        _ => replace(path),
    }
}

/// Checks whether [`create_recording`] can replace the file, without opening it. Returns the metadata of an
/// existing file.
pub fn check_recording(path: &Path) -> io::Result<Option<Metadata>> {
    let known = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        known => known?,
    };
    refuse_link(&known)?;
    if known.file_type().is_char_device() {
        return if is_sink(&known) { Ok(Some(known)) } else { Err(refused(NO_SINK)) };
    }
    refuse_foreign(&known).map(|()| Some(known))
}

const NO_SINK: &str = "it is a device; name a file, or /dev/null";

fn is_sink(known: &Metadata) -> bool {
    let device = (libc::major(known.rdev()), libc::minor(known.rdev()));
    known.file_type().is_char_device() && SINKS.contains(&device)
}

/// Creates a file with a temporary name in the directory of `path`, and renames it to `path`.
fn replace(path: &Path) -> io::Result<File> {
    let (new, file) = create_beside(path).map_err(|error| {
        io::Error::new(error.kind(), format!("can't create a file in its directory: {error}"))
    })?;
    let named = file.set_permissions(Permissions::from_mode(MODE)).and_then(|()| fs::rename(&new, path));
    named.map_err(|error| {
        drop(fs::remove_file(&new));
        match error.kind() {
            io::ErrorKind::ResourceBusy => refused("it is a mount point; name a file in a mounted directory"),
            _ => error,
        }
    })?;
    Ok(file)
}

fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let process = std::process::id();
    let mut last = io::ErrorKind::AlreadyExists.into();
    for _ in 0..NAMES {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let new = path.with_file_name(format!(".millrace-{process}-{number}.new"));
        match open_to_write(OpenOptions::new().write(true).create_new(true).mode(MODE), &new) {
            Ok(file) => return Ok((new, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Creates a file, or truncates an existing one and keeps its mode. Follows no symbolic link. An existing
/// file must be regular, have only one name (hard link), and belong to the caller's user. Character devices
/// (`/dev/null`) are allowed.
///
/// # Errors
/// The system's error; a file of another kind or owner, or with several names.
pub fn create_output(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file of the caller's user, or creates it.
fn open(path: &Path) -> io::Result<File> {
    match open_to_write(OpenOptions::new().write(true).create_new(true), path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let file = open_to_write(OpenOptions::new().write(true), path)?;
    let known = file.metadata()?;
    if !known.file_type().is_char_device() {
        refuse_foreign(&known)?;
    }
    Ok(file)
}

/// Opens a file without following a symbolic link, and without waiting for a pipe's reader.
fn open_to_write(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let opened = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => refused(LINK),
        _ => error,
    })
}

const LINK: &str = "it is a symbolic link; name the file itself";

/// Refuses a symbolic link.
pub(crate) fn refuse_link(known: &Metadata) -> io::Result<()> {
    if known.is_symlink() { Err(refused(LINK)) } else { Ok(()) }
}

/// Refuses every file that is not regular, belongs to another user, or has several names (hard links).
fn refuse_foreign(known: &Metadata) -> io::Result<()> {
    if !known.is_file() || known.nlink() != 1 {
        return Err(refused("it is not a regular file, or has several hard links; choose another file"));
    }
    if known.uid() != nix::unistd::geteuid().as_raw() {
        return Err(refused("it belongs to another user; name another file"));
    }
    Ok(())
}

pub(crate) fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_recording_is_private_and_follows_no_link() {
        let folder = std::env::temp_dir().join(format!("millrace-recording-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, victim) = (folder.join("recording.pcapng"), folder.join("victim"));
        drop(create_recording(&file).unwrap());
        assert_eq!(mode(&file), 0o600);
        fs::write(&file, "older").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let mut reader = File::open(&file).unwrap();
        drop(create_recording(&file).unwrap());
        let mut kept = String::new();
        reader.read_to_string(&mut kept).unwrap();
        assert_eq!(kept, "older", "who reads the older one goes on");
        assert_eq!((mode(&file), fs::metadata(&file).unwrap().len()), (0o600, 0));
        fs::write(&file, "older").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        drop(create_output(&file).unwrap());
        assert_eq!((mode(&file), fs::metadata(&file).unwrap().len()), (0o640, 0));
        fs::write(&victim, "kept").unwrap();
        for (name, link) in [("symbolic", true), ("hard", false)] {
            let path = folder.join(name);
            match link {
                true => symlink(&victim, &path).unwrap(),
                false => fs::hard_link(&victim, &path).unwrap(),
            }
            for create in [create_recording, create_output] {
                assert_eq!(create(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{name}");
            }
        }
        symlink(folder.join("nothing"), folder.join("dangling")).unwrap();
        assert!(create_recording(&folder.join("dangling")).is_err());
        nix::unistd::mkfifo(&folder.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(create_recording(&folder.join("pipe")).is_err());
        for sink in ["/dev/null", "/dev/zero", "/dev/full"] {
            assert!(create_recording(Path::new(sink)).is_ok(), "{sink}");
        }
        let device = create_recording(Path::new("/dev/random")).unwrap_err();
        assert_eq!(device.kind(), io::ErrorKind::PermissionDenied, "{device}");
        assert!(create_output(Path::new("/dev/null")).is_ok());
        assert_eq!(fs::read(&victim).unwrap(), b"kept");
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 6, "none under a name of its own: {left:?}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn recording_that_can_not_be_replaced_is_kept() {
        let folder = std::env::temp_dir().join(format!("millrace-kept-{}", std::process::id()));
        // The rename onto a directory fails, and must leave no file behind.
        fs::create_dir_all(folder.join("taken")).unwrap();
        assert!(replace(&folder.join("taken")).is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        let nowhere = create_recording(&folder.join("missing/recording")).unwrap_err();
        assert!(nowhere.to_string().contains("can't create a file in its directory"), "{nowhere}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
