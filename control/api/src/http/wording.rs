//! Wording of request errors for users.

/// Converts an error of serde about the value at `path` into a message for users.
pub(crate) fn explain(path: &str, said: &str) -> String {
    millrace_config::explain("the request", "key of this request", path, said)
}

/// Converts an error of axum about query arguments into a message for users.
pub(crate) fn of_arguments(said: &str) -> String {
    let said = said.strip_prefix("Failed to deserialize query string: ").unwrap_or(said);
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match said.split_once(": ").filter(|(path, _)| is_name(path)) {
        Some((path, said)) => explain(path, said),
        None => explain("", said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_named() {
        let said = "Failed to deserialize query string: limit: invalid digit found in string";
        assert_eq!(of_arguments(said), "\"limit\" is no whole number: give a whole number, 0 or more");
        let said = "Failed to deserialize query string: missing field `address`";
        assert_eq!(of_arguments(said), "the request lacks the key \"address\"");
    }
}
