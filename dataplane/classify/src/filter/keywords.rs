//! The keyword syntax: `src 129.0.0.0/8 proto tcp dport 80`.

use millrace_units::nearest;

use super::error::{FilterError, Refusal, Token};
use super::parse::Draft;
use super::words::words;
use super::{Field, Filter, protocol};

pub(super) fn parse(text: &str) -> Result<Filter, FilterError> {
    let mut tokens = tokens(text);
    let mut draft = Draft::default();
    while let Some(word) = tokens.next() {
        let field = Field::from_keyword(word.text).ok_or_else(|| unknown(word.text).at(word))?;
        if draft.has(field) {
            let help = format!("remove one {field}: a packet must match all conditions");
            return Err(Refusal::new(format!("{field} is given twice"), help).at(word));
        }
        let value = tokens.next().ok_or_else(|| missing(field, text))?;
        draft.set(field, value)?;
    }
    draft.finish()
}

/// Splits a text into words at white space.
fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
    text.split_whitespace()
        .map(|word| Token { text: word, offset: word.as_ptr() as usize - text.as_ptr() as usize })
}

pub(super) fn missing(field: Field, text: &str) -> FilterError {
    let help = match field {
        Field::Source | Field::Destination => "an address or a prefix",
        Field::Protocol => "a protocol's name or number",
        Field::SourcePort | Field::DestinationPort => "a port or a range",
        Field::Incoming => "a port's name",
        Field::Flags => "TCP flags, as in syn/syn+ack",
        Field::Tag => "a number from 0 to 31",
        Field::Exceptions => "exceptions, as in ttl,options",
        Field::Dscp => "a code point, as in ef",
    };
    let end = Token { text: "", offset: text.trim_end().len() };
    Refusal::new(format!("{field} has no value"), format!("write {help} after {field}")).at(end)
}

pub(super) fn unknown(word: &str) -> Refusal {
    let problem = format!("{word:?} is not a keyword");
    let lower = word.to_ascii_lowercase();
    if matches!(protocol::parse(word), Ok(Some(_))) && word.parse::<u32>().is_err() {
        return Refusal::new(problem, format!("write proto {lower}"));
    }
    let help = match lower.as_str() {
        "ether" | "vlan" | "arp" | "len" | "gateway" | "broadcast" | "multicast" => {
            "filters match fields of IP packets: write src, dst, host, net, port, proto, in, flags or dscp"
                .to_owned()
        }
        "from" | "source" | "saddr" => "did you mean src?".to_owned(),
        "to" | "destination" | "daddr" => "did you mean dst?".to_owned(),
        "iif" | "iifname" | "interface" => "did you mean in?".to_owned(),
        _ => match nearest(word, Field::ALL.map(Field::keyword).into_iter().chain(words())) {
            Some(keyword) => format!("did you mean {keyword}?"),
            None => format!("write one of {}", Field::ALL.map(Field::keyword).join(", ")),
        },
    };
    Refusal::new(problem, help)
}
