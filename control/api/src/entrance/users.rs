//! Users of this machine at the Unix socket: their names, and the roles of their groups.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use millrace_controller::{Role, Who};
use nix::unistd::{Gid, Group, Uid, User, geteuid, getgrouplist};

/// Time for which a user lookup stays valid.
const FRESH: Duration = Duration::from_secs(60);
/// Maximum number of users in the cache.
const MOST: usize = 1000;

/// Name and role of a user; the role is `None` if no group grants one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub who: Who,
    pub role: Option<Role>,
}

/// Cache of user lookups. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Users {
    groups: Arc<BTreeMap<String, Role>>,
    known: Arc<Mutex<HashMap<u32, (Instant, Known)>>>,
}

impl Users {
    /// Creates the cache. `groups` assigns roles to the members of groups.
    pub fn new(groups: BTreeMap<String, Role>) -> Self {
        Self { groups: Arc::new(groups), known: Arc::default() }
    }

    /// Returns the name and role of a user. May take long, because the system may ask a directory service.
    pub fn find(&self, uid: u32) -> Known {
        let now = Instant::now();
        let remembered =
            self.lock().get(&uid).filter(|(at, _)| now - *at < FRESH).map(|(_, one)| one.clone());
        remembered.unwrap_or_else(|| {
            let found = self.ask(uid);
            let mut known = self.lock();
            if known.len() >= MOST {
                known.clear();
            }
            known.insert(uid, (now, found.clone()));
            found
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u32, (Instant, Known)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, uid: u32) -> Known {
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let role = match uid {
            0 => Some(Role::Admin),
            _ if uid == geteuid().as_raw() => Some(Role::Admin),
            _ => user.as_ref().and_then(|user| self.by_groups(&user.name, user.gid)),
        };
        Known { who: Who::user(uid, user.map(|user| user.name)), role }
    }

    /// Returns the highest role that a user's groups grant.
    fn by_groups(&self, name: &str, first: Gid) -> Option<Role> {
        if self.groups.is_empty() {
            return None;
        }
        let member_of = getgrouplist(&CString::new(name).ok()?, first).ok()?;
        let role = |(group, role): (&String, &Role)| {
            let group = Group::from_name(group).ok().flatten()?;
            member_of.contains(&group.gid).then_some(*role)
        };
        self.groups.iter().filter_map(role).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_own_user_have_all_roles_and_others_their_groups_roles() {
        let users =
            Users::new(BTreeMap::from([("daemon".into(), Role::Viewer), ("bin".into(), Role::Operator)]));
        let role = |name: &str| {
            let user = User::from_name(name).unwrap().unwrap();
            let known = users.find(user.uid.as_raw());
            assert_eq!((known.who.name.as_str(), known.who.uid), (name, Some(user.uid.as_raw())));
            known.role
        };
        assert_eq!(users.find(geteuid().as_raw()).role, Some(Role::Admin));
        assert_eq!(role("root"), Some(Role::Admin));
        assert_eq!((role("daemon"), role("bin")), (Some(Role::Viewer), Some(Role::Operator)));
        assert_eq!(role("nobody"), None);
        assert_eq!(users.find(3_999_999_999), Known { who: Who::user(3_999_999_999, None), role: None });
        assert_eq!(
            Users::default().find(User::from_name("daemon").unwrap().unwrap().uid.as_raw()).role,
            None
        );
    }
}
