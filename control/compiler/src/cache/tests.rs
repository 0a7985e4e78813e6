use std::os::unix::fs::symlink;

use super::*;

/// Directory that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("millrace-cache-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn entries(&self) -> usize {
        fs::read_dir(&self.0).unwrap().count() - 1
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const KEY: Key = Key([7; TAG]);

#[test]
fn cached_code_is_found_by_the_next_process() {
    let folder = Folder::new("next");
    let cache = Cache::open(&folder.0).unwrap();
    assert_eq!(cache.get(KEY), Ok(None));
    cache.put(KEY, b"code").unwrap();
    assert_eq!(cache.get(KEY), Ok(Some(b"code".to_vec())));
    assert_eq!(Cache::open(&folder.0).unwrap().get(KEY), Ok(Some(b"code".to_vec())));
    assert_eq!(cache.get(Key([8; TAG])), Ok(None));
    for file in fs::read_dir(&folder.0).unwrap().flatten() {
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
    }
    assert_eq!(fs::metadata(&folder.0).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let folder = Folder::new("flipped");
    let cache = Cache::open(&folder.0).unwrap();
    cache.put(KEY, b"some code").unwrap();
    let path = cache.path(KEY);
    let whole = fs::read(&path).unwrap();
    for bit in 0..whole.len() * 8 {
        let mut wrong = whole.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        write_whole(&folder.0, &path, &[&wrong]).unwrap();
        assert!(cache.get(KEY).is_err(), "bit {bit}");
        assert!(!path.exists());
    }
}

#[test]
fn a_cut_entry_is_noticed() {
    let folder = Folder::new("cut");
    let cache = Cache::open(&folder.0).unwrap();
    cache.put(KEY, b"some code").unwrap();
    let path = cache.path(KEY);
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        write_whole(&folder.0, &path, &[&whole[..length]]).unwrap();
        assert!(cache.get(KEY).is_err(), "{length} bytes");
    }
    write_whole(&folder.0, &path, &[&whole, b"more"]).unwrap();
    assert!(cache.get(KEY).is_err());
}

#[test]
fn an_entry_under_another_key_or_secret_is_noticed() {
    let (folder, other) = (Folder::new("key"), Folder::new("other-secret"));
    let (cache, stranger) = (Cache::open(&folder.0).unwrap(), Cache::open(&other.0).unwrap());
    stranger.put(KEY, b"code").unwrap();
    fs::copy(stranger.path(KEY), cache.path(KEY)).unwrap();
    assert!(cache.get(KEY).is_err());
    cache.put(KEY, b"code").unwrap();
    fs::rename(cache.path(KEY), cache.path(Key([8; TAG]))).unwrap();
    assert!(cache.get(Key([8; TAG])).is_err());
}

#[test]
fn cache_writable_by_others_is_refused() {
    let folder = Folder::new("foreign");
    let cache = Cache::open(&folder.0).unwrap();
    cache.put(KEY, b"code").unwrap();
    fs::set_permissions(cache.path(KEY), Permissions::from_mode(0o644)).unwrap();
    assert!(cache.get(KEY).is_err());
    cache.put(KEY, b"code").unwrap();
    fs::rename(cache.path(KEY), folder.0.join("elsewhere")).unwrap();
    symlink(folder.0.join("elsewhere"), cache.path(KEY)).unwrap();
    assert!(cache.get(KEY).is_err());
    fs::set_permissions(&folder.0, Permissions::from_mode(0o770)).unwrap();
    assert!(matches!(Cache::open(&folder.0), Err(CacheError::Foreign { .. })));
}

#[test]
fn cache_of_another_user_is_refused() {
    if !geteuid().is_root() {
        return millrace_testkit::skip("needs root");
    }
    let folder = Folder::new("user");
    let cache = Cache::open(&folder.0).unwrap();
    cache.put(KEY, b"code").unwrap();
    std::os::unix::fs::chown(cache.path(KEY), Some(65_534), None).unwrap();
    assert!(cache.get(KEY).unwrap_err().contains("belongs to user 65534"));
    std::os::unix::fs::chown(folder.0.join(SECRET), Some(65_534), None).unwrap();
    assert!(matches!(Cache::open(&folder.0), Err(CacheError::Foreign { .. })));
    std::os::unix::fs::chown(&folder.0, Some(65_534), None).unwrap();
    assert!(matches!(Cache::open(&folder.0), Err(CacheError::Foreign { .. })));
}

#[test]
fn least_recently_used_entry_is_evicted_first() {
    let folder = Folder::new("most");
    let size = (MAGIC.len() + TAG + 1000) as u64;
    let cache = Cache { most: 3 * size, ..Cache::open(&folder.0).unwrap() };
    let at = |key: u8, seconds: u64| {
        let file = File::open(cache.path(Key([key; TAG]))).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    };
    for key in 1..=3 {
        cache.put(Key([key; TAG]), &[0; 1000]).unwrap();
        at(key, u64::from(key));
    }
    // Using the first entry makes the second one the least recently used.
    assert!(cache.get(Key([1; TAG])).unwrap().is_some());
    cache.put(Key([4; TAG]), &[0; 1000]).unwrap();
    assert_eq!(folder.entries(), 3);
    assert_eq!(cache.get(Key([2; TAG])), Ok(None));
    cache.put(Key([5; TAG]), &[0; 5000]).unwrap();
    assert_eq!(cache.get(Key([5; TAG])), Ok(None));
}

#[test]
fn a_disk_that_takes_nothing_is_an_error_and_no_more() {
    let folder = Folder::new("full");
    let cache = Cache::open(&folder.0).unwrap();
    fs::remove_dir_all(&folder.0).unwrap();
    assert!(cache.put(KEY, b"code").is_err());
    assert_eq!(cache.get(KEY), Ok(None));
}
