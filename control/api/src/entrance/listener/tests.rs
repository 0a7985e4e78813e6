use std::os::unix::fs::{FileTypeExt, PermissionsExt};

use tokio::net::UnixStream;

use super::*;
use crate::test_directory::TestDirectory;

#[tokio::test]
async fn socket_has_mode_0660_and_is_removed_with_its_listener() {
    let directory = TestDirectory::new();
    let path = directory.join("deep/down/r.sock");
    let listener = Listener::bind(&path).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o660);
    assert_eq!(listener.path(), path);
    drop(listener);
    assert!(!path.exists());
    assert!(!directory.join("deep/down").exists(), "the directory made for it goes too");
}

#[tokio::test]
async fn occupied_socket_names_its_owner_and_stays() {
    let directory = TestDirectory::new();
    let path = directory.join("r.sock");
    let first = Listener::bind(&path).unwrap();
    let refused = Listener::bind(&path).unwrap_err();
    assert!(matches!(refused, ApiError::Occupied { pid: Some(_), .. }), "{refused}");
    assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
    UnixStream::connect(&path).await.unwrap();
    drop(first);
    Listener::bind(&path).unwrap();
}

#[tokio::test]
async fn a_dead_socket_is_replaced() {
    let directory = TestDirectory::new();
    let path = directory.join("r.sock");
    drop(net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "the standard library leaves the file");
    let _listener = Listener::bind(&path).unwrap();
    UnixStream::connect(&path).await.unwrap();
}

#[tokio::test]
async fn of_many_that_replace_a_dead_socket_one_wins() {
    let directory = TestDirectory::new();
    let path = directory.join("r.sock");
    drop(net::UnixListener::bind(&path).unwrap());
    let tries = (0..8).map(|_| {
        let path = path.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _entered = runtime.enter();
            let listener = Listener::bind(&path);
            std::thread::sleep(Duration::from_millis(300));
            listener.is_ok()
        })
    });
    let tries: Vec<_> = tries.collect();
    let winners = tries.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count();
    assert_eq!(winners, 1);
}

#[tokio::test]
async fn lock_of_another_program_does_not_prevent_the_start() {
    let directory = TestDirectory::new();
    let path = directory.join("r.sock");
    let other = File::open(path.parent().unwrap()).unwrap();
    other.lock().unwrap();
    drop(net::UnixListener::bind(&path).unwrap());
    let _listener = Listener::bind(&path).unwrap();
    UnixStream::connect(&path).await.unwrap();
    assert!(matches!(Listener::look(&path), Err(ApiError::Occupied { .. })));
}

#[tokio::test]
async fn file_at_the_socket_path_stays() {
    let directory = TestDirectory::new();
    let path = directory.join("notes");
    fs::write(&path, "dear diary").unwrap();
    let refused = Listener::bind(&path).unwrap_err();
    assert!(matches!(refused, ApiError::NotASocket { .. }), "{refused}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "dear diary");
}

#[tokio::test]
async fn impossible_paths_are_reported_in_one_line() {
    let directory = TestDirectory::new();
    let long = Listener::bind(&directory.join(&"x".repeat(200))).unwrap_err();
    assert!(matches!(long, ApiError::TooLong { length, .. } if length > 200), "{long}");
    fs::write(directory.join("file"), "").unwrap();
    let under_a_file = Listener::bind(&directory.join("file/r.sock")).unwrap_err().to_string();
    assert!(under_a_file.contains("can't create the directory"), "{under_a_file}");
    let no_directory = Listener::bind(Path::new("/proc/r.sock")).unwrap_err().to_string();
    assert!(no_directory.contains("/proc/r.sock") && !no_directory.contains('\n'), "{no_directory}");
}

#[tokio::test]
async fn a_later_socket_of_the_same_name_is_left_alone() {
    let directory = TestDirectory::new();
    let path = directory.join("r.sock");
    let first = Listener::bind(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let _second = Listener::bind(&path).unwrap();
    drop(first);
    assert!(path.exists());
}
