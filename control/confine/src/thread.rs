//! Confinement of a thread in a process with privileges.

use caps::CapSet;
use nix::sys::prctl;

use crate::{Calls, ConfineError};

/// Removes all capabilities from the calling thread permanently, including those that it could gain by
/// executing programs. Allows only the system calls `calls`. Threads that it starts are confined too; other
/// threads are not.
///
/// # Errors
/// [`ConfineError`] if the kernel refuses a step. The thread is then only partly confined and must end.
pub fn confine_thread(calls: Calls) -> Result<(), ConfineError> {
    let failed = ConfineError::of("set no_new_privs");
    // A process without CAP_SETPCAP can't clear its bounding set. That set only matters for started programs,
    // and this thread can't start any.
    let _ = caps::clear(None, CapSet::Bounding);
    let sets = [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted];
    sets.into_iter()
        .try_for_each(|set| caps::clear(None, set))
        .map_err(ConfineError::of("drop capabilities"))?;
    prctl::set_no_new_privs().map_err(failed)?;
    calls.leave_to_thread()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::process::Command;

    use super::*;
    use crate::look;

    #[test]
    fn a_confined_thread_serves_and_does_nothing_else_while_others_do() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        datagrams.send_to(b"before", address).unwrap();
        let thread = std::thread::spawn(move || {
            confine_thread(Calls::SERVING).unwrap();
            let denied = ErrorKind::PermissionDenied;
            assert_eq!(File::open("/etc/passwd").unwrap_err().kind(), denied);
            assert_eq!(File::create("/tmp/millrace-confined").unwrap_err().kind(), denied);
            assert_eq!(TcpStream::connect(address).unwrap_err().kind(), denied);
            assert_eq!(TcpListener::bind("127.0.0.1:0").unwrap_err().kind(), denied);
            assert_eq!(Command::new("/bin/true").status().unwrap_err().kind(), denied);
            assert_eq!(datagrams.send_to(b"after", address).unwrap_err().kind(), denied);
            listener.accept().unwrap();
        });
        let _client = TcpStream::connect(address).unwrap();
        thread.join().unwrap();
        File::open("/etc/passwd").unwrap();
    }

    #[test]
    fn dropped_privileges_of_a_thread_are_visible() {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            confine_thread(Calls::COMPUTING).unwrap();
            tell.send(nix::unistd::gettid()).unwrap();
            let _ = ended.recv();
        });
        let seen = look(told.recv().unwrap().as_raw()).unwrap();
        assert!(seen.is_complete(), "{seen:?}");
        assert!(!look(nix::unistd::gettid().as_raw()).unwrap().is_complete());
        drop(end);
        thread.join().unwrap();
    }
}
