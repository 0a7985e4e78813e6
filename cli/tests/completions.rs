//! Completions in a real shell: the text that the shell inserts.

use std::path::Path;
use std::process::Command;

/// Returns bash's completions of the last of these words; `script` holds the completion code.
fn found(script: &str, function: &str, words: &[&str]) -> Vec<String> {
    let binary = Path::new(env!("CARGO_BIN_EXE_millrace"));
    let (all, last) =
        (words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "), words.len());
    let (before, word) = (if last > 1 { words[last - 2] } else { "millrace" }, words[last - 1]);
    let commands = format!(
        "{script}\nCOMP_WORDS=(millrace {all})\nCOMP_CWORD={last}\nCOMP_TYPE=9\n\
         {function} millrace '{word}' '{before}' 2>/dev/null\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    // The script is too long for an argument.
    let file = std::env::temp_dir().join(format!("millrace-completions-{}-{function}", std::process::id()));
    std::fs::write(&file, commands).expect("a file");
    let bash = bash.args(["--norc", "--noprofile"]).arg(&file).env("PATH", path);
    let output = bash.env("MILLRACE_SOCKET", "/nowhere/millrace.sock").output().expect("bash");
    std::fs::remove_file(&file).expect("the file");
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

fn script(arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_millrace")).arg("completions").args(arguments).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_commands_options_and_values() {
    for (arguments, function) in
        [(&["bash"][..], "_millrace"), (&["bash", "--names"], "_clap_complete_millrace")]
    {
        let script = script(arguments);
        let found = |words: &[&str]| found(&script, function, words);
        assert_eq!(found(&["sched"]), ["scheduler"], "{arguments:?}");
        assert_eq!(found(&["trace", "--ev"]), ["--every"], "{arguments:?}");
        assert_eq!(found(&["flow", "list", "--order", "ra"]), ["rate"], "{arguments:?}");
        let below = found(&["filter", ""]);
        let all = ["add", "remove", "list", "explain", "check"];
        assert!(all.iter().all(|one| below.iter().any(|found| found == one)), "{arguments:?}: {below:?}");
    }
}

#[test]
fn other_shells_get_a_script_in_their_language() {
    for (shell, words) in [("zsh", "#compdef millrace"), ("fish", "complete -c millrace")] {
        assert!(script(&[shell]).contains(words), "{shell}");
        assert!(script(&[shell, "--names"]).contains("COMPLETE="), "{shell}");
    }
}
