//! Files that are written where another user may have a say (`/tmp`): no link of a stranger leads elsewhere.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Rights of a recording: those who may read it see the traffic.
const MODE: u32 = 0o600;

/// Makes a file for frames, readable by its owner alone, or empties one that is there, as [`create_output`] does.
///
/// # Errors
/// As of [`create_output`].
pub fn create_recording(path: &Path) -> io::Result<File> {
    let file = open(path, MODE)?;
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(MODE))?;
    }
    empty(file)
}

/// Makes a file, or empties one that is there and keeps its rights. Symbolic links are not followed; a file that is there must be
/// a regular one, without other names, of the caller's user. Character devices (`/dev/null`) are written.
///
/// # Errors
/// What the system says; a file of another kind, owner or with several names.
pub fn create_output(path: &Path) -> io::Result<File> {
    empty(open(path, 0o666)?)
}

fn empty(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file of the caller's user, or makes it with these rights.
fn open(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Without a wait for the reader of a pipe.
    options.write(true).mode(mode).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    match options.create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let file = options.create_new(false).open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => refused("it is a symbolic link; name the file itself"),
        _ => error,
    })?;
    let known = file.metadata()?;
    if known.file_type().is_char_device() {
        return Ok(file);
    }
    if !known.is_file() || known.nlink() != 1 {
        return Err(refused("it is no regular file with one name; name another"));
    }
    if known.uid() != nix::unistd::geteuid().as_raw() {
        return Err(refused("it belongs to another user; name another"));
    }
    Ok(file)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

#[cfg(test)]
mod tests {
    use std::fs;
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
        drop(create_recording(&file).unwrap());
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
        assert!(create_recording(Path::new("/dev/null")).is_ok());
        assert!(create_output(Path::new("/dev/null")).is_ok());
        assert_eq!(fs::read(&victim).unwrap(), b"kept");
        fs::remove_dir_all(&folder).unwrap();
    }
}
