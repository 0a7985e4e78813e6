//! Commands that place services on described hardware, and run the papers' experiments.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn millrace(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millrace")).args(arguments).output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("millrace-admission-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file, and returns its path.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn admission_places_requests_of_a_scenario() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/admission/ixp1200.toml");
    let folder = Folder::new("simulate");
    let page = folder.file("placement.html", "");
    let output = millrace(&["admission", "simulate", example, "--html", &page, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(outcome["placed"], 4, "{outcome}");
    assert_eq!(outcome["requests"][0]["processor"], "UE", "{outcome}");
    assert!(fs::read_to_string(&page).unwrap().contains("UE.flow"));
    let scenario = fs::read_to_string(example).unwrap();
    let dear = folder.file(
        "dear.toml",
        &scenario.replace("packet = 9000", "packet = 9e6").replace("packet = 6000", "packet = 9e6"),
    );
    let output = millrace(&["admission", "simulate", &dear]);
    assert_eq!((output.status.code(), error(&output).trim()), (Some(1), "millrace: 1 request refused"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("refused: on SA lacks") && text.contains("on PT lacks"), "{text}");
    let wrong =
        folder.file("wrong.toml", &scenario.replace("packets-per-second = 2400", "packets-per-second = 0"));
    let output = millrace(&["admission", "simulate", &wrong]);
    assert!(
        error(&output).contains("request \"tag\": input.packets-per-second = 0 is not"),
        "{}",
        error(&output)
    );
}

#[test]
fn reproduce_keeps_results_by_content() {
    let folder = Folder::new("cache");
    let reproduce = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
        command
            .env("XDG_CACHE_HOME", &folder.0)
            .args(["reproduce", "vera-table-4.4", "--json"])
            .output()
            .unwrap()
    };
    let (first, second) = (reproduce(), reproduce());
    let kept = fs::read_dir(folder.0.join("millrace/reproduce")).unwrap().count();
    assert_eq!(kept, 1);
    assert_eq!(first.stdout, second.stdout);
    let report: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
    let experiment = &report["experiments"][0];
    assert_eq!((&experiment["name"], &experiment["holds"]), (&"vera-table-4.4".into(), &true.into()));
    for key in ["paper", "printed", "ours", "difference", "note"] {
        assert!(!experiment[key].is_null(), "{key}: {experiment}");
    }
}
