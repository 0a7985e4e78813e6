//! Who is at the other end of a connection, as the kernel says.

use millrace_controller::Who;
use nix::unistd::{Uid, User};
use tokio::net::UnixStream;

/// The process at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    uid: Option<u32>,
}

impl Peer {
    pub fn of(stream: &UnixStream) -> Self {
        Self { uid: stream.peer_cred().ok().map(|credentials| credentials.uid()) }
    }

    /// Its user.
    pub fn who(self) -> Who {
        let Some(uid) = self.uid else { return Who { uid: None, name: "unknown".to_owned() } };
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        Who::user(uid, user.map(|user| user.name))
    }
}
