//! Store of a router's revisions.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::database::{Changes, Place};
use crate::{Draft, Revision, State, StoreError};

/// Maximum number of revisions. Above this number, the oldest revisions that are not good are deleted first,
/// then the oldest good ones.
const MOST: usize = 100;
/// Number of newest good revisions that are never deleted on account of [`MOST`].
const MOST_SURE: usize = 10;
/// Maximum size of all texts together, in bytes. Above this size, revisions are deleted in the order
/// described at [`MOST`]. The newest good revision always stays.
const MOST_BYTES: u64 = 64 << 20;

/// Revisions of a router, in a file or in memory until the router ends. Clones share one store.
#[derive(Clone, Debug)]
pub struct Store {
    kept: Kept,
    most_bytes: u64,
    /// Socket of the router that uses the store; `None` if not assigned.
    router: Option<String>,
}

#[derive(Clone, Debug)]
enum Kept {
    Disk(Place),
    Memory(Arc<Mutex<Vec<(Revision, String)>>>),
}

impl Store {
    /// Opens the revisions of a directory, which may not exist yet; without a directory, they are in memory.
    pub fn open(directory: Option<&Path>) -> Self {
        let kept = match directory {
            Some(directory) => Kept::Disk(Place::new(directory)),
            None => Kept::Memory(Arc::default()),
        };
        Self { kept, most_bytes: MOST_BYTES, router: None }
    }

    /// Assigns the store to a router: new revisions record this router, and revisions of another router can't
    /// be restored.
    #[must_use]
    pub fn of(self, router: Option<String>) -> Self {
        Self { router, ..self }
    }

    /// Returns the router that owns a revision, if it is another router.
    fn owner<'a>(&self, revision: &'a Revision) -> Option<&'a str> {
        revision.router.as_deref().filter(|theirs| self.router.as_deref().is_some_and(|own| own != *theirs))
    }

    /// Returns the path of the file; `None` for a store in memory.
    pub fn path(&self) -> Option<PathBuf> {
        match &self.kept {
            Kept::Disk(place) => Some(place.path()),
            Kept::Memory(_) => None,
        }
    }

    /// Returns all kept revisions, the oldest first.
    pub fn revisions(&self) -> Result<Vec<Revision>, StoreError> {
        match &self.kept {
            Kept::Disk(place) => place.revisions(),
            Kept::Memory(memory) => Ok(lock(memory).iter().map(|(revision, _)| revision.clone()).collect()),
        }
    }

    /// Returns a revision and its text.
    ///
    /// # Errors
    /// [`StoreError::Unknown`], or the file can't be read.
    pub fn revision(&self, number: u64) -> Result<(Revision, String), StoreError> {
        let revisions = self.revisions()?;
        let end = |revision: Option<&Revision>| revision.map_or(0, |revision| revision.number);
        let (oldest, newest) = (end(revisions.first()), end(revisions.last()));
        let unknown = StoreError::Unknown { number, oldest, newest };
        let Some(revision) = revisions.into_iter().find(|revision| revision.number == number) else {
            return Err(unknown);
        };
        Ok((revision, self.text(number)?.ok_or(unknown)?))
    }

    /// Returns a revision of this router, and its text.
    ///
    /// # Errors
    /// [`StoreError::Unknown`], [`StoreError::Foreign`], or the file can't be read.
    pub fn own_revision(&self, number: u64) -> Result<(Revision, String), StoreError> {
        let (revision, text) = self.revision(number)?;
        match self.owner(&revision) {
            Some(theirs) => Err(StoreError::Foreign {
                number,
                theirs: theirs.to_owned(),
                own: self.router.clone().unwrap_or_default(),
            }),
            None => Ok((revision, text)),
        }
    }

    /// Returns the good revisions of this router, the newest first.
    pub fn good(&self) -> Result<Vec<Revision>, StoreError> {
        let revisions = self.revisions()?.into_iter();
        let good = revisions.filter(|one| one.state == State::Good && self.owner(one).is_none());
        Ok(good.rev().collect())
    }

    /// Returns the newest good revision of this router, and its text.
    pub fn last_good(&self) -> Result<Option<(Revision, String)>, StoreError> {
        let newest = self.good()?.into_iter().next();
        newest.map(|revision| self.revision(revision.number)).transpose()
    }

    /// Adds revisions, and deletes old revisions above the limits, in one atomic change. On return, the
    /// change is synced to disk. Never deletes the running revision (`runs`) or the newest good one. Returns
    /// the last added revision.
    pub fn add(&self, drafts: &[Draft], runs: Option<u64>) -> Result<Option<Revision>, StoreError> {
        let old = self.revisions()?;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let first = old.last().map_or(1, |revision| revision.number + 1);
        let numbered = drafts.iter().zip(first..);
        let new: Vec<_> = numbered
            .map(|(draft, number)| (draft.numbered(number, time, self.router.clone()), draft))
            .collect();
        let added: u64 = drafts.iter().map(|draft| draft.text.len() as u64).sum();
        let excess = (old.len() + new.len()).saturating_sub(MOST);
        let mut forget = forgotten(&old, excess, runs);
        let room = self.most_bytes.saturating_sub(added);
        too_long(&old, &self.lengths()?, (room, runs), &mut forget);
        let put = new.iter().map(|(revision, draft)| (revision.clone(), Some(draft.text.clone()))).collect();
        self.change(Changes { put, forget })?;
        Ok(new.into_iter().next_back().map(|(revision, _)| revision))
    }

    /// Sets the state of a revision.
    ///
    /// # Errors
    /// [`StoreError::Unknown`], or the change could not be written.
    pub fn settle(&self, number: u64, state: State) -> Result<(), StoreError> {
        let (revision, _) = self.revision(number)?;
        self.change(Changes { put: vec![(Revision { state, ..revision }, None)], forget: Vec::new() })
    }

    /// Returns the lengths of the texts in bytes, by revision number.
    fn lengths(&self) -> Result<HashMap<u64, u64>, StoreError> {
        match &self.kept {
            Kept::Disk(place) => place.lengths(),
            Kept::Memory(memory) => {
                let memory = lock(memory);
                Ok(memory.iter().map(|(revision, text)| (revision.number, text.len() as u64)).collect())
            }
        }
    }

    fn text(&self, number: u64) -> Result<Option<String>, StoreError> {
        match &self.kept {
            Kept::Disk(place) => place.text(number),
            Kept::Memory(memory) => {
                let memory = lock(memory);
                let found = memory.iter().find(|(revision, _)| revision.number == number);
                Ok(found.map(|(_, text)| text.clone()))
            }
        }
    }

    fn change(&self, changes: Changes) -> Result<(), StoreError> {
        let memory = match &self.kept {
            Kept::Disk(place) => return place.change(&changes),
            Kept::Memory(memory) => memory,
        };
        let mut memory = lock(memory);
        memory.retain(|(revision, _)| !changes.forget.contains(&revision.number));
        for (revision, text) in changes.put {
            match memory.iter_mut().find(|(own, _)| own.number == revision.number) {
                Some((own, _)) => *own = revision,
                None => memory.push((revision, text.unwrap_or_default())),
            }
        }
        Ok(())
    }
}

/// Returns `excess` revisions to delete: first the oldest that are not good, then the oldest good ones.
fn forgotten(revisions: &[Revision], excess: usize, runs: Option<u64>) -> Vec<u64> {
    let counts = |revision: &&Revision| revision.state == State::Good;
    let good = revisions.iter().filter(counts).count();
    let others = revisions.iter().filter(|revision| !counts(revision));
    let oldest = revisions.iter().filter(counts).take(good.saturating_sub(MOST_SURE));
    let numbers = others.chain(oldest).map(|revision| revision.number);
    numbers.filter(|number| Some(*number) != runs).take(excess).collect()
}

/// Adds revisions to delete, until the remaining texts have at most `room` bytes. Starts with the oldest that
/// are not good, then takes the oldest good ones. The newest good revision and the running one (`runs`) stay.
fn too_long(
    revisions: &[Revision],
    lengths: &HashMap<u64, u64>,
    (room, runs): (u64, Option<u64>),
    forget: &mut Vec<u64>,
) {
    let counts = |revision: &&Revision| revision.state == State::Good;
    let newest = revisions.iter().rfind(counts).map(|revision| revision.number);
    let length = |number: &u64| lengths.get(number).copied().unwrap_or_default();
    let mut bytes = lengths.values().sum::<u64>() - forget.iter().map(length).sum::<u64>();
    let others = revisions.iter().filter(|revision| !counts(revision));
    for number in others.chain(revisions.iter().filter(counts)).map(|revision| revision.number) {
        if bytes <= room {
            return;
        }
        if Some(number) != runs && Some(number) != newest && !forget.contains(&number) {
            bytes -= length(&number);
            forget.push(number);
        }
    }
}

/// Locks a list that is kept in memory: revisions, or lines of the audit log.
pub(crate) fn lock<T>(memory: &Mutex<T>) -> MutexGuard<'_, T> {
    // Ignore a poisoned lock: each change of a list is atomic, so a panic leaves the list valid.
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::Who;
    use crate::test_folder::Folder;

    fn draft(text: &str, state: State) -> Draft {
        let who = Who::user(0, Some("root".to_owned()));
        Draft { who, comment: None, origin: "test.toml".to_owned(), state, changes: 1, text: text.to_owned() }
    }

    fn numbers(store: &Store) -> Vec<u64> {
        store.revisions().unwrap().iter().map(|revision| revision.number).collect()
    }

    #[test]
    fn revisions_are_numbered_kept_and_found_again() {
        let folder = Folder::new("store");
        for store in [Store::open(None), Store::open(Some(&folder.0.join("state")))] {
            assert_eq!((numbers(&store), store.last_good().unwrap()), (vec![], None));
            assert_eq!(
                store.revision(1).unwrap_err().to_string(),
                "there is no revision 1: no configuration was applied yet"
            );
            let added =
                store.add(&[draft("a", State::Good), draft("b", State::Waiting)], None).unwrap().unwrap();
            assert_eq!((added.number, numbers(&store)), (2, vec![1, 2]));
            // The revision awaits its confirmation, so it isn't good yet.
            assert_eq!(store.last_good().unwrap().unwrap().1, "a");
            store.settle(2, State::Good).unwrap();
            let (revision, text) = store.last_good().unwrap().unwrap();
            assert_eq!((revision.number, &*text, &*revision.who.name), (2, "b", "root"));
            assert_eq!(
                store.revision(7).unwrap_err().to_string(),
                "there is no revision 7; stored revisions: 1 to 2"
            );
            let again = store.path().map(|path| Store::open(path.parent()));
            assert_eq!(numbers(again.as_ref().unwrap_or(&store)), [1, 2]);
        }
        let mode = fs::metadata(folder.0.join("state/revisions.redb")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let store = Store::open(None);
        for _ in 0..MOST + 3 {
            store.add(&[draft("x", State::Good)], None).unwrap();
        }
        let numbers = numbers(&store);
        assert_eq!((numbers.len(), numbers[0]), (MOST, 4));
    }

    /// Returns a unique text of `bytes` bytes.
    fn long(number: usize, bytes: usize) -> String {
        format!("{number:08}").repeat(bytes / 8)
    }

    #[test]
    fn texts_are_bounded_and_the_file_becomes_short_again() {
        let folder = Folder::new("store-long");
        for store in [Store::open(None), Store::open(Some(&folder.0))] {
            let store = Store { most_bytes: 8 << 18, ..store };
            let runs = store.add(&[draft(&long(0, 1 << 18), State::Good)], None).unwrap().unwrap().number;
            for number in 1..40 {
                store.add(&[draft(&long(number, 1 << 18), State::Good)], Some(runs)).unwrap();
            }
            let kept = numbers(&store);
            assert_eq!(kept, [1, 34, 35, 36, 37, 38, 39, 40], "what runs, and the newest");
            let long_one = store.add(&[draft(&long(99, 9 << 18), State::Waiting)], Some(runs)).unwrap();
            assert_eq!(long_one.unwrap().number, 41);
            assert_eq!(numbers(&store), [1, 40, 41], "what runs, what counts, and what is added");
            store.add(&[draft("short", State::Good)], None).unwrap();
            store.add(&[draft("short", State::Good)], None).unwrap();
            assert_eq!(numbers(&store), [1, 40, 42, 43], "what was not confirmed goes first");
            if let Some(path) = store.path() {
                let length = fs::metadata(path).unwrap().len();
                assert!(length <= 8 << 18, "{length}");
            }
        }
    }

    #[test]
    fn withdrawn_revisions_displace_no_good_revision() {
        let store = Store::open(None);
        for _ in 0..20 {
            store.add(&[draft("good", State::Good)], None).unwrap();
        }
        for _ in 0..3 * MOST {
            let added = store.add(&[draft("x", State::Waiting)], None).unwrap().unwrap();
            store.settle(added.number, State::Withdrawn).unwrap();
        }
        assert_eq!(store.revisions().unwrap().len(), MOST);
        assert_eq!(store.good().unwrap().len(), 20);
        assert_eq!(store.last_good().unwrap().unwrap().0.number, 20);
        // Numbers are never reused, and the running revision stays.
        let newest = store.add(&[draft("new", State::Good)], None).unwrap().unwrap().number;
        assert_eq!(newest, 20 + 3 * MOST as u64 + 1);
        for _ in 0..MOST {
            store.add(&[draft("newer", State::Good)], Some(1)).unwrap();
        }
        let numbers = numbers(&store);
        assert_eq!((numbers.len(), numbers[0], numbers[1]), (MOST, 1, newest + 2));
    }

    #[test]
    fn a_file_that_others_may_write_or_that_is_none_is_not_read() {
        let folder = Folder::new("store-others");
        let store = Store::open(Some(&folder.0));
        store.add(&[draft("a", State::Good)], None).unwrap();
        let path = store.path().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(store.revisions().unwrap_err().to_string().contains("no other user may write"));
        fs::write(&path, "nonsense").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let refused = store.add(&[draft("b", State::Good)], None).unwrap_err().to_string();
        assert!(refused.contains("revisions.redb") && refused.contains("move it away"), "{refused}");
    }

    #[test]
    fn failed_write_is_reported() {
        let folder = Folder::new("store-full");
        fs::write(folder.0.join("file"), "").unwrap();
        let store = Store::open(Some(&folder.0.join("file/below")));
        let refused = store.add(&[draft("a", State::Good)], None).unwrap_err().to_string();
        assert!(refused.contains("file/below"), "{refused}");
    }
}
