//! Fuzz target of configurations: the parser reads or refuses any text. A configuration keeps its meaning
//! when it is printed, or saved into its own file.

use millrace_config::{Config, ConfigErrors};

use crate::input::Input;

/// Lines of configurations from which inputs choose. An input may put any bytes between them.
const LINES: &str = include_str!("configuration.txt");

/// Reads, checks and prints a configuration made of the input's bytes.
pub fn run(data: &[u8]) {
    let text = text(data);
    match Config::parse(&text, "fuzz") {
        Ok(config) => reads_back(&config, &text),
        Err(errors) => tells(&errors),
    }
}

/// Returns the input as text, or a text made of lines that the input chooses. Each pair of bytes chooses a
/// line; the byte 255 copies up to 23 bytes of the input instead.
fn text(data: &[u8]) -> String {
    let mut input = Input::new(data);
    if input.byte() & 1 == 0 {
        return String::from_utf8_lossy(input.rest()).into_owned();
    }
    let lines: Vec<&str> = LINES.lines().collect();
    let mut text = String::new();
    while !input.is_empty() {
        match input.byte() {
            255 => {
                let count = input.below(24);
                text += &String::from_utf8_lossy(input.take(count));
            }
            // The number of a line takes two bytes, because there may be more than 255 lines.
            first => {
                let number = usize::from(first) * 8 + input.below(8);
                text += lines[number % lines.len()];
                text.push('\n');
            }
        }
    }
    text
}

fn tells(errors: &ConfigErrors) {
    assert!(!errors.errors().is_empty(), "refused without a reason");
    for error in errors.errors() {
        assert!(!error.problem.to_string().is_empty() && !error.place.to_string().is_empty(), "{errors}");
    }
    assert!(!errors.to_string().is_empty());
}

fn reads_back(config: &Config, text: &str) {
    let normal = config.clone().normalized();
    let printed = config.to_text().unwrap_or_else(|error| panic!("{error}\n{text}"));
    let again =
        Config::parse(&printed, "printed").unwrap_or_else(|error| panic!("{error}\n{printed}\nof\n{text}"));
    // Filters with the same meaning can be spelled differently, so both configurations are compared in normal
    // form.
    let difference = normal.difference(&again.normalized());
    assert!(difference.is_empty(), "{difference:?}\n{printed}\nof\n{text}");
    // Saving may unify mixed line endings, and ends the last line.
    let saved = config.save_into(text, "fuzz").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let again = Config::parse(&saved, "saved").unwrap_or_else(|error| panic!("{error}\n{saved}\nof\n{text}"));
    let difference = config.clone().normalized().difference(&again.normalized());
    assert!(difference.is_empty(), "{difference:?}\n{saved}\nof\n{text}");
    if config.plugin.is_empty() {
        // `check` covers all checks that need no access to the machine.
        if let Err(error) = millrace_controller::check(config) {
            assert!(!error.to_string().is_empty());
        }
    }
}
