//! Positions in a file, and suggestions for unknown keys.

use std::ops::Range;

/// Formats the start of a span as `FILE:LINE:COLUMN`, or as `FILE` without a span. Lines and columns count
/// from 1.
pub(crate) fn place(file: &str, text: &str, span: Option<Range<usize>>) -> String {
    let Some(span) = span else { return file.to_owned() };
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("{file}:{line}:{column}")
}

/// Completes the parser's message about an unknown key with the most similar valid key, or with all valid
/// keys.
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
        for (text, byte, expected) in
            [("abc\nde", 0, "f:1:1"), ("abc\nde", 4, "f:2:1"), ("äb\nde", 3, "f:1:3"), ("abc", 99, "f:1:4")]
        {
            assert_eq!(place("f", text, Some(byte..byte)), expected);
        }
        assert_eq!(place("f", "abc", None), "f");
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
