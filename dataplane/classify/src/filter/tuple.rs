//! The six-tuple syntax of *Router Plugins* (section 2): `<129.*, 192.94.233.10, TCP, *, *, *>`.

use super::error::{FilterError, Refusal, Token};
use super::parse::Draft;
use super::{Field, Filter};

const FIELDS: [Field; 6] = [
    Field::Source,
    Field::Destination,
    Field::Protocol,
    Field::SourcePort,
    Field::DestinationPort,
    Field::Incoming,
];

const SHAPE: &str = "write <source, destination, protocol, source port, destination port, incoming port>";

/// Reads `text`, whose first character other than white space is `<`.
pub(super) fn parse(text: &str) -> Result<Filter, FilterError> {
    let start = text.len() - text.trim_start().len() + 1;
    let inner = text.get(start..).unwrap_or_default();
    let Some((inner, behind)) = inner.split_once('>') else {
        let end = Token { text: "", offset: text.trim_end().len() };
        return Err(Refusal::new("the closing > is missing", SHAPE).at(end));
    };
    if !behind.trim().is_empty() {
        let rest = trimmed(behind, start + inner.len() + 1);
        return Err(Refusal::new("text follows the closing >", "remove it").at(rest));
    }
    fields(inner, start)
}

fn fields(inner: &str, start: usize) -> Result<Filter, FilterError> {
    let count = inner.split(',').count();
    if count != FIELDS.len() {
        return Err(Refusal::new(format!("the filter has {count} fields instead of 6"), SHAPE)
            .at(trimmed(inner, start)));
    }
    let mut draft = Draft::default();
    let mut offset = start;
    for (field, part) in FIELDS.into_iter().zip(inner.split(',')) {
        draft.set(field, trimmed(part, offset))?;
        offset += part.len() + 1;
    }
    draft.finish()
}

/// Returns `part`, which starts at `offset`, without the white space around it.
fn trimmed(part: &str, offset: usize) -> Token<'_> {
    Token { text: part.trim(), offset: offset + part.len() - part.trim_start().len() }
}
