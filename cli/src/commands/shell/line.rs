//! Lines of the shell: parsing, and completion of the last word.

use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use crate::completion::complete;

/// Parsed line of the shell.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Empty line or comment.
    Nothing,
    /// End of the shell.
    End,
    /// Command with these words.
    Run(Vec<String>),
}

/// Parses a line. Words are written as in shells, with quotes around spaces, and `#` begins a comment.
pub(super) fn order(line: &str) -> Result<Order, String> {
    let words = shlex::split(line).ok_or("unclosed quote, or a backslash at the end of the line")?;
    match words.first().map(String::as_str) {
        None => Ok(Order::Nothing),
        Some("exit" | "quit") if words.len() == 1 => Ok(Order::End),
        Some("shell") => {
            Err("this is already the shell: give a command without `shell`, or `exit`".to_owned())
        }
        // A line copied from a document may begin with `millrace`.
        Some("millrace") => Ok(Order::Run(words[1..].to_vec())),
        Some(_) => Ok(Order::Run(words)),
    }
}

/// Completer of the last word of a line.
pub(super) struct Words;

impl Helper for Words {}
impl Highlighter for Words {}
impl Validator for Words {}

impl Hinter for Words {
    type Hint = String;
}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, words) = before(&line[..at]);
        let pair = |text: String, help: Option<String>| Pair {
            display: help.map_or_else(|| text.clone(), |help| format!("{text}  {help}")),
            replacement: quoted(&text),
        };
        let mut pairs: Vec<Pair> = complete(words)
            .iter()
            .map(|one| {
                let help =
                    one.get_help().map(|help| help.to_string().lines().next().unwrap_or("").to_owned());
                pair(one.get_value().to_string_lossy().into_owned(), help)
            })
            .collect();
        if let [only] = pairs.as_mut_slice() {
            only.replacement.push(' ');
        }
        Ok((start, pairs))
    }
}

/// Returns the position of a line's last word, and all words. The last word is empty after a blank.
fn before(line: &str) -> (usize, Vec<String>) {
    let (mut quote, mut start, mut escaped) = (None, 0, false);
    for (at, letter) in line.char_indices() {
        match (quote, letter) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            (None, letter) if letter.is_whitespace() => start = at + letter.len_utf8(),
            _ => {}
        }
    }
    let mut words = shlex::split(&line[..start]).unwrap_or_default();
    if words.first().is_some_and(|first| first == "millrace") {
        words.remove(0);
    }
    words.push(line[start..].trim_start_matches(['"', '\'']).to_owned());
    (start, words)
}

/// Quotes a word for a line.
fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_words_a_comment_or_the_end() {
        let run = |words: &[&str]| Ok(Order::Run(words.iter().map(|word| (*word).to_owned()).collect()));
        assert_eq!(order("  # nothing"), Ok(Order::Nothing));
        assert_eq!(
            order("filter add 'proto udp' --action drop # why"),
            run(&["filter", "add", "proto udp", "--action", "drop"])
        );
        assert_eq!(order("millrace show ports"), run(&["show", "ports"]));
        assert_eq!(order(" exit "), Ok(Order::End));
        assert!(order("shell").is_err() && order("bind 'x").unwrap_err().contains("quote"));
    }

    #[test]
    fn the_last_word_of_a_line_is_completed() {
        let found = |line: &str| {
            let (start, words) = before(line);
            (start, words.join("|"))
        };
        assert_eq!(found(""), (0, String::new()));
        assert_eq!(found("filter ad"), (7, "filter|ad".to_owned()));
        assert_eq!(found("filter add 'proto udp' --ga"), (23, "filter|add|proto udp|--ga".to_owned()));
        assert_eq!(found("filter add 'proto u"), (11, "filter|add|proto u".to_owned()));
        assert_eq!(quoted("proto udp"), "'proto udp'");
    }
}
