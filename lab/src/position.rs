//! Line and column of a byte in a file, and suggestions for unknown keys.

use std::ops::Range;

/// Returns the line and column of a byte, both counted from 1; columns count characters.
pub(crate) fn line_and_column(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

/// Formats a position as `FILE:LINE:COLUMN`, or as `FILE` without a span.
pub(crate) fn place(file: &str, text: &str, span: Option<Range<usize>>) -> String {
    match span {
        Some(span) => {
            let (line, column) = line_and_column(text, span.start);
            format!("{file}:{line}:{column}")
        }
        None => file.to_owned(),
    }
}

/// Adds the nearest valid key, or all valid keys, to the parser's message about an unknown key.
pub(crate) fn improve(message: &str) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let unknown_key = message.starts_with("unknown field `");
    let (Some((wrong, right)), true) =
        (quoted.split_first(), unknown_key || message.starts_with("unknown variant `"))
    else {
        return message.trim_end().replace('\n', ", ");
    };
    let noun = if unknown_key { "key" } else { "value" };
    format!("unknown {noun} `{wrong}`{}", millrace_units::remedy(noun, wrong, right.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one() {
        assert_eq!(line_and_column("abc\nde", 0), (1, 1));
        assert_eq!(line_and_column("abc\nde", 4), (2, 1));
        assert_eq!(line_and_column("äb\nde", 3), (1, 3));
        assert_eq!(line_and_column("abc", 99), (1, 4));
    }

    #[test]
    fn an_unknown_key_leads_to_the_nearest() {
        let message = "unknown field `adresses`, expected one of `name`, `addresses`, `gateway`";
        assert_eq!(improve(message), "unknown key `adresses`: did you mean \"addresses\"?");
        let far = improve("unknown field `zzz`, expected `name` or `mtu`");
        assert_eq!(far, "unknown key `zzz`; keys here: name, mtu");
        assert_eq!(improve("missing field `name`\n"), "missing field `name`");
    }
}
