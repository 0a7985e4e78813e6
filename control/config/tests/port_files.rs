//! Tests of the files of ports in a configuration.

use millrace_config::Config;

fn port(name: &str, keys: &str) -> String {
    format!("[[port]]\nname = \"{name}\"\n{keys}\n")
}

fn refused(text: &str) -> Vec<String> {
    match Config::parse(text, "f") {
        Ok(_) => Vec::new(),
        Err(wrong) => wrong.errors().iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn two_ports_that_record_into_one_file_are_refused_with_both_names() {
    let memory = |name: &str, record: &str| port(name, &format!("kind = \"memory\"\nrecord = \"{record}\""));
    let same = memory("lan", "all.pcapng") + &memory("wan", "./all.pcapng");
    let errors = refused(&same);
    let [error] = &errors[..] else { panic!("{errors:?}") };
    assert!(
        error.starts_with("f:8:10: ") && error.contains("\"lan\"") && error.contains("\"wan\""),
        "{error}"
    );
    assert!(error.contains("\"all.pcapng\"") && error.contains("a file of its own"), "{error}");
    assert_eq!(refused(&(memory("lan", "lan.pcapng") + &memory("wan", "wan.pcapng"))), [""; 0]);
    assert_eq!(refused(&(memory("lan", "/dev/null") + &memory("wan", "/dev/null"))), [""; 0]);
}

#[test]
fn a_file_is_not_written_by_two_keys_nor_read_and_written() {
    let pcap = |name: &str, keys: &str| port(name, &format!("kind = \"pcap\"\n{keys}"));
    for (text, words) in [
        (pcap("a", "output = \"x\"\nrecord = \"x\""), "port \"a\" names \"x\" as record and as output"),
        (pcap("a", "input = \"x\"\nrecord = \"x\""), "port \"a\" names \"x\" as record and as input"),
        (
            pcap("a", "output = \"x\"") + &pcap("b", "output = \"x\""),
            "ports \"a\" (output) and \"b\" (output)",
        ),
        (pcap("a", "input = \"x\"") + &pcap("b", "output = \"x\""), "ports \"b\" (output) and \"a\" (input)"),
    ] {
        let errors = refused(&text);
        assert!(errors.len() == 1 && errors[0].contains(words), "{text}: {errors:?}");
    }
    // Two ports may read the same recording.
    let inputs = pcap("a", "input = \"x\"") + &pcap("b", "input = \"x\"");
    assert_eq!(refused(&inputs), [""; 0]);
}
