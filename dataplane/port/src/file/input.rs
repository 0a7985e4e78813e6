//! Input files named by a configuration: only regular files, because the router opens them with its own
//! rights.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::output::{refuse_link, refused};

/// Opens a regular file for reading, and follows no symbolic link. Refuses devices and pipes without opening
/// them: some devices act when they are opened, and a pipe waits for its other end.
///
/// # Errors
/// The system's error; a symbolic link, or anything but a regular file.
pub(crate) fn open_input(path: &Path) -> io::Result<File> {
    let known = path.symlink_metadata()?;
    refuse_link(&known)?;
    if !known.is_file() {
        return Err(not_regular());
    }
    // These flags apply because the file may have been replaced since the check.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

fn not_regular() -> io::Error {
    refused("not a regular file; give the path of a capture file (pcap or pcapng)")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::pcap::Recording;
    use crate::{PcapFiles, PcapOptions};

    /// Opens the input of a port, and returns the error. The test files contain no packets, so each open
    /// fails.
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
        let files = [
            (link.clone(), "symbolic link"),
            (pipe, "not a regular file"),
            (folder.clone(), "not a regular file"),
            (PathBuf::from("/dev/zero"), "not a regular file"),
            (PathBuf::from("/dev/null"), "not a regular file"),
        ];
        for (path, why) in files {
            let (done, refused) = std::sync::mpsc::channel();
            let opened = path.clone();
            // On a thread, because opening a pipe without a writer would wait for ever.
            std::thread::spawn(move || done.send(refusal(&opened)));
            let refusal = refused.recv_timeout(Duration::from_secs(10)).expect("nobody waits for a writer");
            assert!(refusal.contains(why), "{}: {refusal}", path.display());
        }
        let refusal = refusal(&plain);
        assert!(!refusal.contains("regular"), "a regular file is read: {refusal}");
        // A tool reads its files with the rights of its user.
        let named = Recording::read(&link).unwrap_err().to_string();
        assert!(!named.contains("symbolic"), "{named}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
