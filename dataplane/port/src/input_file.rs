//! Files that a router reads with its own rights for whoever names them: regular files alone.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::output_file::{refuse_link, refused};

/// Opens a regular file to read. Symbolic links are not followed. A device or a pipe is not opened: some devices act when they are
/// opened, and a pipe waits for its other end.
///
/// # Errors
/// What the system says; a symbolic link, or anything but a regular file.
pub(crate) fn open_input(path: &Path) -> io::Result<File> {
    let known = path.symlink_metadata()?;
    refuse_link(&known)?;
    if !known.is_file() {
        return Err(not_regular());
    }
    // What stood there may have been replaced since.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

fn not_regular() -> io::Error {
    refused("it is no regular file; name a recording")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::pcap::Recording;
    use crate::{PcapFiles, PcapOptions};

    /// Opens the input of a port, or says why not; none of the files here holds packets.
    fn refusal(path: &Path) -> String {
        let options = PcapOptions { input: Some(path.to_owned()), ..PcapOptions::default() };
        PcapFiles::open(options).unwrap_err().to_string()
    }

    #[test]
    fn input_of_a_port_is_a_regular_file_and_no_link_and_nothing_waits() {
        let folder = std::env::temp_dir().join(format!("millrace-input-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [plain, link, pipe] = ["plain", "link", "pipe"].map(|name| folder.join(name));
        fs::write(&plain, "no recording").unwrap();
        symlink(&plain, &link).unwrap();
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let began = Instant::now();
        // Somebody at the other end, so that a reader that does open it gets an end and no wait for ever.
        let writer = {
            let pipe = pipe.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(2));
                let flags = libc::O_NONBLOCK;
                drop(OpenOptions::new().write(true).custom_flags(flags).open(pipe));
            })
        };
        for (path, why) in [
            (link.as_path(), "symbolic link"),
            (&pipe, "no regular file"),
            (&folder, "no regular file"),
            (Path::new("/dev/zero"), "no regular file"),
            (Path::new("/dev/null"), "no regular file"),
        ] {
            let refusal = refusal(path);
            assert!(refusal.contains(why), "{}: {refusal}", path.display());
        }
        assert!(began.elapsed() < Duration::from_secs(1), "nobody waited for the other end of the pipe");
        let refusal = refusal(&plain);
        assert!(!refusal.contains("regular"), "a regular file is read: {refusal}");
        // Who names a file for a tool reads it with rights of their own.
        let named = Recording::read(&link).unwrap_err().to_string();
        assert!(!named.contains("symbolic"), "{named}");
        writer.join().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
