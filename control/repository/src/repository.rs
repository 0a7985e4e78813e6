//! What was loaded since the router started: whose it is, and how far each plugin's version has come.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Origin, Trust, Untrusted, Version};

/// What a router remembers of the plugins that it loaded.
#[derive(Clone, Debug)]
pub struct Repository {
    trust: Arc<Trust>,
    highest: BTreeMap<String, Version>,
    origins: BTreeMap<String, Origin>,
    /// Those of the versions that were there before.
    previous: BTreeMap<String, Origin>,
}

/// A plugin that may be loaded: what [`Repository::admit`] returns for [`Repository::loaded`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Admission {
    name: String,
    version: Version,
    origin: Origin,
}

impl Repository {
    /// One that nothing was loaded from yet.
    pub fn new(trust: Trust) -> Self {
        Self {
            trust: Arc::new(trust),
            highest: BTreeMap::new(),
            origins: BTreeMap::new(),
            previous: BTreeMap::new(),
        }
    }

    /// What is trusted, for other threads too.
    pub fn trust(&self) -> Arc<Trust> {
        self.trust.clone()
    }

    /// Whether a version may be loaded after those that were: a signed one that is lower than the highest signed one of its
    /// name is refused, so that nobody brings back an old mistake with an old signature.
    ///
    /// # Errors
    /// [`Untrusted::Older`], unless `allow_downgrade`; [`Untrusted::Version`] for a version that is none.
    pub fn admit(
        &self,
        name: &str,
        version: &str,
        origin: Origin,
        allow_downgrade: bool,
    ) -> Result<Admission, Untrusted> {
        let version: Version = version.parse().map_err(Untrusted::Version)?;
        let highest = self.highest.get(name).copied().filter(|highest| *highest > version);
        match (highest, origin) {
            (Some(highest), Origin::Signed(_)) if !allow_downgrade => {
                Err(Untrusted::Older { name: name.to_owned(), version, highest })
            }
            _ => Ok(Admission { name: name.to_owned(), version, origin }),
        }
    }

    /// Notes that a plugin was loaded. What nobody signed does not count as a version: anybody can choose its number.
    pub fn loaded(&mut self, admission: Admission) {
        let Admission { name, version, origin } = admission;
        if matches!(origin, Origin::Signed(_)) {
            let highest = self.highest.entry(name.clone()).or_insert(version);
            *highest = version.max(*highest);
        }
        if let Some(before) = self.origins.insert(name.clone(), origin) {
            self.previous.insert(name, before);
        }
    }

    /// Notes that a plugin and the version that was there before have changed places.
    pub fn rolled_back(&mut self, name: &str) {
        let (Some(now), Some(before)) = (self.origins.get_mut(name), self.previous.get_mut(name)) else {
            return;
        };
        std::mem::swap(now, before);
    }

    /// Notes that a plugin is gone. How far its version has come stays known.
    pub fn unloaded(&mut self, name: &str) {
        self.origins.remove(name);
        self.previous.remove(name);
    }

    /// Who has signed a plugin that is loaded; `None` for one that came with the router.
    pub fn origin(&self, name: &str) -> Option<Origin> {
        self.origins.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyId, SecretKey};

    fn key() -> KeyId {
        SecretKey::generate().unwrap().id()
    }

    #[test]
    fn signed_versions_do_not_go_back() {
        let mut repository = Repository::new(Trust::new(vec![], None));
        let origin = Origin::Signed(key());
        let load = |repository: &mut Repository, version: &str, allow| {
            let admission = repository.admit("a", version, origin, allow)?;
            repository.loaded(admission);
            repository.unloaded("a");
            Ok::<_, Untrusted>(())
        };
        load(&mut repository, "1.9.0", false).unwrap();
        load(&mut repository, "1.10.0", false).unwrap();
        load(&mut repository, "1.10.0", false).unwrap();
        let refused = load(&mut repository, "1.9.9", false).unwrap_err().to_string();
        assert!(refused.contains("1.9.9") && refused.contains("older than 1.10.0"), "{refused}");
        load(&mut repository, "1.9.9", true).unwrap();
        assert!(load(&mut repository, "1.9.9", false).is_err());
        assert!(repository.admit("b", "0.0.1", origin, false).is_ok());
    }

    #[test]
    fn unsigned_versions_do_not_count() {
        let mut repository = Repository::new(Trust::new(vec![], None));
        repository.loaded(repository.admit("a", "9.0.0", Origin::Unsigned, false).unwrap());
        assert_eq!(repository.origin("a"), Some(Origin::Unsigned));
        let signed = Origin::Signed(key());
        repository.loaded(repository.admit("a", "1.0.0", signed, false).unwrap());
        assert_eq!((repository.origin("a"), repository.origin("b")), (Some(signed), None));
        assert!(repository.admit("a", "0.1.0", Origin::Unsigned, false).is_ok());
        repository.rolled_back("a");
        assert_eq!(repository.origin("a"), Some(Origin::Unsigned));
        repository.rolled_back("a");
        assert_eq!(repository.origin("a"), Some(signed));
        repository.unloaded("a");
        assert_eq!(repository.origin("a"), None);
    }
}
