//! What is wrong with a request, in words for people: where in it, what is there, and what would be right.

use millrace_controller::ControlError;

/// The words for what serde says of the value at a path.
pub(crate) fn explain(path: &str, said: &str) -> String {
    // Whatever stands before it.
    let said = said.rfind("unknown field ").map_or(said, |at| &said[at..]);
    if let Some(rest) = said.strip_prefix("unknown field ") {
        let mut quoted = rest.split('`').skip(1).step_by(2);
        let wrong = quoted.next().unwrap_or_default();
        return ControlError::unknown("key of this request", wrong, quoted).to_string();
    }
    let place = if matches!(path, "" | "." | "?") { "the request".to_owned() } else { format!("{path:?}") };
    if let Some(key) = said.strip_prefix("missing field ") {
        let key = key.split('`').nth(1).unwrap_or(key);
        return format!("{place} lacks the key {key:?}");
    }
    if let Some(rest) = said.strip_prefix("unknown variant ") {
        let mut quoted = rest.split('`').skip(1).step_by(2);
        let wrong = quoted.next().unwrap_or_default();
        return format!("{place}: {}", ControlError::unknown("value here", wrong, quoted));
    }
    for kind in ["invalid type: ", "invalid value: ", "invalid length "] {
        let parts = said.strip_prefix(kind).and_then(|rest| rest.split_once(", expected "));
        if let Some((there, right)) = parts {
            return format!("{place} is {}: {} is right", thing(there), wanted(right));
        }
    }
    match path {
        "" | "." | "?" => format!("the request can't be read: {said}"),
        _ => format!("{place} can't be read: {said}"),
    }
}

/// The words for what is wrong with arguments behind a `?`, as axum says it.
pub(crate) fn of_arguments(said: &str) -> String {
    let said = said.strip_prefix("Failed to deserialize query string: ").unwrap_or(said);
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match said.split_once(": ").filter(|(path, _)| is_name(path)) {
        Some((path, said)) => explain(path, said),
        None => explain("", said),
    }
}

/// What is there, as JSON calls it.
fn thing(there: &str) -> String {
    let (kind, value) = there.split_once(' ').unwrap_or((there, ""));
    let value = value.trim_matches('`');
    match kind {
        "string" => format!("the text {value}"),
        "boolean" | "integer" => value.to_owned(),
        "floating" => value.trim_start_matches("point").trim().trim_matches('`').to_owned(),
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        "null" => "null".to_owned(),
        _ => there.to_owned(),
    }
}

/// What would be right, as JSON calls it.
fn wanted(right: &str) -> String {
    match right {
        "u8" => "a whole number from 0 to 255".to_owned(),
        "u16" => "a whole number from 0 to 65535".to_owned(),
        "u32" | "u64" | "usize" => "a whole number from 0 on".to_owned(),
        "i8" | "i16" | "i32" | "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a string" | "string" | "a borrowed string" => "a text".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        _ if right.starts_with("struct ") => "an object".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let message = "unknown field `filtr`, expected one of `gate`, `filter`, `priority`";
        assert_eq!(
            explain("filtr", message),
            "no key of this request is named \"filtr\": did you mean \"filter\"?"
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_what_would_be_right() {
        for (path, said, words) in [
            (
                "priority",
                "invalid type: string \"high\", expected i32",
                "\"priority\" is the text \"high\": a whole number is right",
            ),
            (
                "ids[0]",
                "invalid value: integer `-1`, expected u64",
                "\"ids[0]\" is -1: a whole number from 0 on is right",
            ),
            (
                "a",
                "invalid type: floating point `1.5`, expected u16",
                "\"a\" is 1.5: a whole number from 0 to 65535 is right",
            ),
            (
                "settings",
                "invalid type: sequence, expected a map",
                "\"settings\" is a list: an object is right",
            ),
            ("filter", "invalid type: null, expected a string", "\"filter\" is null: a text is right"),
            (".", "missing field `action`", "the request lacks the key \"action\""),
            (
                "role",
                "unknown variant `root`, expected one of `viewer`, `operator`, `admin`",
                "\"role\": no value here is named \"root\"",
            ),
            (
                ".",
                "expected value at line 1 column 1",
                "the request can't be read: expected value at line 1 column 1",
            ),
        ] {
            let explained = explain(path, said);
            assert!(explained.starts_with(words), "{explained}");
        }
    }
}
