//! Who is at the other end of a connection, as the kernel says.

use millrace_controller::Who;
use nix::unistd::{Uid, User};
use tokio::net::UnixStream;

/// The process at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    uid: Option<u32>,
    pid: Option<i32>,
}

impl Peer {
    pub fn of(stream: &UnixStream) -> Self {
        let credentials = stream.peer_cred().ok();
        let pid = credentials.as_ref().and_then(|credentials| credentials.pid());
        Self { uid: credentials.map(|credentials| credentials.uid()), pid }
    }

    /// Its user's number.
    pub fn uid(self) -> Option<u32> {
        self.uid
    }

    /// Its process.
    pub fn pid(self) -> Option<i32> {
        self.pid
    }

    /// Its user.
    pub fn who(self) -> Who {
        let Some(uid) = self.uid else { return Who { uid: None, name: "unknown".to_owned() } };
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        Who::user(uid, user.map(|user| user.name))
    }
}
