//! Loaded plugins: their signers, and the highest version of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{KeyId, Memory, NotebookError, Origin, Quarantine, Trust, Untrusted, Version};

/// Record of the loaded plugins: their origins and highest versions.
#[derive(Clone, Debug)]
pub struct Repository {
    trust: Arc<Trust>,
    memory: Memory,
    origins: BTreeMap<String, Origin>,
    /// Origins of the previous versions of upgraded plugins, by plugin name.
    previous: BTreeMap<String, Origin>,
}

/// Permission to load a plugin, returned by [`Repository::admit`]. [`Repository::remember`] and
/// [`Repository::loaded`] require it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Admission {
    name: String,
    version: Version,
    origin: Origin,
}

/// Change of the version record by [`Repository::remember`]. [`Repository::take_back`] undoes it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Remembered(Option<(String, KeyId, Option<Version>)>);

impl Repository {
    /// Creates a repository without loaded plugins. `memory` has the records of earlier runs.
    pub fn new(trust: Trust, memory: Memory) -> Self {
        Self { trust: Arc::new(trust), memory, origins: BTreeMap::new(), previous: BTreeMap::new() }
    }

    /// Returns the trust, which other threads may share.
    pub fn trust(&self) -> Arc<Trust> {
        self.trust.clone()
    }

    /// Admits a plugin unless it is a downgrade: a signed version below the highest loaded version of the
    /// same name. The highest version is that of all versions signed by any trusted key. So nobody can bring
    /// back an old vulnerability with an old signature.
    ///
    /// # Errors
    /// [`Untrusted::Older`] and [`Untrusted::Forgotten`], unless `allow_downgrade`; [`Untrusted::Version`]
    /// for an invalid version.
    pub fn admit(
        &self,
        name: &str,
        version: &str,
        origin: Origin,
        allow_downgrade: bool,
    ) -> Result<Admission, Untrusted> {
        let version: Version = version.parse().map_err(Untrusted::Version)?;
        let admission = Admission { name: name.to_owned(), version, origin };
        let Origin::Signed(key) = origin else { return Ok(admission) };
        if allow_downgrade {
            return Ok(admission);
        }
        let versions = &self.memory.versions;
        if let Some(damage) = versions.damage() {
            let damage = damage.to_owned();
            return Err(Untrusted::Forgotten { name: name.to_owned(), version, damage });
        }
        match versions.highest(name, |other| other == key || self.trust.has(other)) {
            Some(highest) if highest > version => {
                Err(Untrusted::Older { name: name.to_owned(), version, highest })
            }
            _ => Ok(admission),
        }
    }

    /// Records the version of a signed plugin before it is loaded. Unsigned versions are not recorded, since
    /// anybody can choose their numbers.
    pub fn remember(&mut self, admission: &Admission) -> Result<Remembered, NotebookError> {
        let Admission { name, version, origin } = admission;
        let Origin::Signed(key) = *origin else { return Ok(Remembered(None)) };
        let before = self.memory.versions.of(name, key);
        if before.is_some_and(|before| before >= *version) && self.memory.versions.damage().is_none() {
            return Ok(Remembered(None));
        }
        self.memory.versions.raise(name, key, *version)?;
        Ok(Remembered(Some((name.clone(), key, before))))
    }

    /// Undoes [`Repository::remember`] after the version could not be loaded.
    pub fn take_back(&mut self, remembered: Remembered) -> Result<(), NotebookError> {
        let Some((name, key, before)) = remembered.0 else { return Ok(()) };
        self.memory.versions.set(&name, key, before)
    }

    /// Returns the instances in quarantine.
    pub fn quarantine(&self) -> &Quarantine {
        &self.memory.quarantine
    }

    /// Returns the quarantine for modification.
    pub fn quarantine_mut(&mut self) -> &mut Quarantine {
        &mut self.memory.quarantine
    }

    /// Records that a plugin was loaded.
    pub fn loaded(&mut self, admission: Admission) {
        let Admission { name, origin, .. } = admission;
        if let Some(before) = self.origins.insert(name.clone(), origin) {
            self.previous.insert(name, before);
        }
    }

    /// Records that a plugin was rolled back to its previous version. Swaps the origins of the two versions.
    pub fn rolled_back(&mut self, name: &str) {
        let (Some(now), Some(before)) = (self.origins.get_mut(name), self.previous.get_mut(name)) else {
            return;
        };
        std::mem::swap(now, before);
    }

    /// Records that a plugin was unloaded. Its highest version stays recorded.
    pub fn unloaded(&mut self, name: &str) {
        self.origins.remove(name);
        self.previous.remove(name);
    }

    /// Returns the origin of a loaded plugin; `None` for a built-in plugin.
    pub fn origin(&self, name: &str) -> Option<Origin> {
        self.origins.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_folder::Folder;
    use crate::{KeyId, SecretKey};

    fn key() -> KeyId {
        SecretKey::generate().unwrap().id()
    }

    #[test]
    fn signed_version_downgrade_is_refused() {
        let mut repository = Repository::new(Trust::new(vec![], None), Memory::open(None));
        let origin = Origin::Signed(key());
        let load = |repository: &mut Repository, version: &str, allow| {
            let admission = repository.admit("a", version, origin, allow)?;
            let _ = repository.remember(&admission).unwrap();
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
    fn version_downgrade_is_refused_after_a_restart() {
        let folder = Folder::new("versions");
        let (first, second) = (SecretKey::generate().unwrap(), SecretKey::generate().unwrap());
        let start = |keys: &[&SecretKey]| {
            let keys = keys.iter().map(|key| key.public().unwrap()).collect();
            Repository::new(Trust::new(keys, None), Memory::open(Some(&folder.0)))
        };
        let (of_first, of_second) = (Origin::Signed(first.id()), Origin::Signed(second.id()));
        let mut repository = start(&[&first, &second]);
        let admission = repository.admit("a", "2.0.0", of_first, false).unwrap();
        let _ = repository.remember(&admission).unwrap();
        // Version 3.0.0 is remembered but not loaded, so it does not count.
        let later = repository.admit("a", "3.0.0", of_first, false).unwrap();
        let remembered = repository.remember(&later).unwrap();
        repository.take_back(remembered).unwrap();
        let repository = start(&[&first, &second]);
        let refused = repository.admit("a", "1.0.0", of_first, false).unwrap_err().to_string();
        assert!(refused.contains("older than 2.0.0"), "{refused}");
        assert!(repository.admit("a", "2.0.0", of_first, false).is_ok());
        // While both keys are trusted, a signature by the second key doesn't permit a downgrade either. While
        // only the second key is trusted, only versions signed by it count.
        assert!(repository.admit("a", "1.0.0", of_second, false).is_err());
        assert!(start(&[&second]).admit("a", "1.0.0", of_second, false).is_ok());
        assert!(repository.admit("b", "1.0.0", of_first, false).is_ok());
    }

    #[test]
    fn unreadable_version_record_refuses_signed_plugins_unless_allowed() {
        let folder = Folder::new("versions-damage");
        let start = || Repository::new(Trust::new(vec![], None), Memory::open(Some(&folder.0)));
        std::fs::write(folder.0.join("plugin-versions.json"), "{\"format\":1,").unwrap();
        let mut repository = start();
        let origin = Origin::Signed(key());
        let refused = repository.admit("a", "1.0.0", origin, false).unwrap_err().to_string();
        for word in ["plugin-versions.json", "--allow-downgrade"] {
            assert!(refused.contains(word), "{refused}");
        }
        assert!(repository.admit("a", "1.0.0", Origin::Unsigned, false).is_ok());
        let admission = repository.admit("a", "1.0.0", origin, true).unwrap();
        let _ = repository.remember(&admission).unwrap();
        assert!(start().admit("a", "0.9.0", origin, false).is_err());
        assert!(start().admit("a", "1.0.0", origin, false).is_ok());
    }

    #[test]
    fn unsigned_versions_do_not_count() {
        let mut repository = Repository::new(Trust::new(vec![], None), Memory::open(None));
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
