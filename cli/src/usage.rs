//! Wrong usage as one line, from clap's typed error.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// Describes wrong usage on one line: what is wrong, why, the possible values, and tips.
pub fn one_line(error: &Error) -> String {
    let mut line = what(error);
    if let Some(why) = std::error::Error::source(error) {
        line += &format!(": {why}");
    }
    for (kind, name) in
        [(ContextKind::ValidValue, "possible values"), (ContextKind::ValidSubcommand, "subcommands")]
    {
        if let Some(values) = text(error, kind) {
            line += &format!(" [{name}: {values}]");
        }
    }
    for (kind, name) in [
        (ContextKind::SuggestedSubcommand, "subcommand"),
        (ContextKind::SuggestedArg, "argument"),
        (ContextKind::SuggestedValue, "value"),
    ] {
        match error.get(kind) {
            Some(ContextValue::Strings(similar)) if similar.len() > 1 => {
                line += &format!(" tip: some similar {name}s exist: '{}'", similar.join("', '"));
            }
            _ => {
                line += &text(error, kind)
                    .map_or_else(String::new, |similar| format!(" tip: a similar {name} exists: '{similar}'"))
            }
        }
    }
    if let Some(ContextValue::StyledStrs(tips)) = error.get(ContextKind::Suggested) {
        line.extend(tips.iter().map(|tip| format!(" tip: {tip}")));
    }
    line
}

/// Describes the mistake in clap's words.
fn what(error: &Error) -> String {
    let [argument, value, prior, command] = [
        ContextKind::InvalidArg,
        ContextKind::InvalidValue,
        ContextKind::PriorArg,
        ContextKind::InvalidSubcommand,
    ]
    .map(|kind| text(error, kind).unwrap_or_default());
    match error.kind() {
        ErrorKind::InvalidValue if value.is_empty() => {
            format!("a value is required for '{argument}' but none was supplied")
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            format!("invalid value '{value}' for '{argument}'")
        }
        ErrorKind::UnknownArgument => format!("unexpected argument '{argument}' found"),
        ErrorKind::InvalidSubcommand => format!("unrecognized subcommand '{command}'"),
        ErrorKind::MissingRequiredArgument => {
            format!("the following required arguments were not provided: {argument}")
        }
        ErrorKind::MissingSubcommand => {
            format!("'{command}' requires a subcommand but one was not provided")
        }
        ErrorKind::ArgumentConflict if argument == prior => {
            format!("the argument '{argument}' cannot be used multiple times")
        }
        ErrorKind::ArgumentConflict => {
            format!("the argument '{argument}{command}' cannot be used with '{prior}'")
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "arguments are missing: --help shows them".to_owned()
        }
        kind => format!("{}: '{argument}'", kind.as_str().unwrap_or("wrong usage")),
    }
}

fn text(error: &Error, kind: ContextKind) -> Option<String> {
    error.get(kind).map(ToString::to_string).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::one_line;
    use crate::arguments::Arguments;

    #[test]
    fn wrong_usage_is_one_line_with_values_reason_and_tips() {
        for (words, expected) in [
            (&["fly"][..], "unrecognized subcommand 'fly'"),
            (&["shwo"], "unrecognized subcommand 'shwo' tip: a similar subcommand exists: 'show'"),
            (&["gate", "lst"], "unrecognized subcommand 'lst' tip: a similar subcommand exists: 'list'"),
            (
                &["top", "--interva"],
                "unexpected argument '--interva' found tip: a similar argument exists: '--interval'",
            ),
            (&["top", "--interval", "5"], "invalid value '5' for '--interval <"),
            (&["top", "--interval"], "a value is required for '--interval <"),
            (&["filter", "remove"], "the following required arguments were not provided: <"),
            (&["flow", "list", "--order", "size"], "invalid value 'size' for '--order <"),
            (&["flow", "list", "--order", "size"], " [possible values: "),
            (&["run", "--port", "a", "--config", "b"], " cannot be used with '--"),
            (
                &["run", "--config", "a", "--config", "b"],
                "the argument '--config <FILE>' cannot be used multiple times",
            ),
            (&["gate"], "arguments are missing: --help shows them"),
        ] {
            let error = Arguments::try_parse_from(["millrace"].iter().chain(words)).unwrap_err();
            let line = one_line(&error);
            assert!(line.contains(expected), "{words:?}: {line}");
            assert!(!line.contains('\n') && !line.contains("Usage"), "{words:?}: {line}");
            // The line begins with the words of clap's own message, so nothing of that message is lost.
            let first = error.to_string();
            let first = first.lines().next().unwrap_or_default();
            let first = first.trim_start_matches("error: ");
            assert!(words == ["gate"] || line.starts_with(first), "{words:?}: {line}, clap: {first}");
        }
    }
}
