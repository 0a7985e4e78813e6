//! Parser of expressions.

use super::super::error::{FilterError, Refusal, Token};
use super::super::keywords::{missing, unknown};
use super::super::parse::Draft;
use super::super::words::{EITHER, WORDS};
use super::super::{Field, Filter};

/// Parsed expression.
#[derive(Clone, Debug)]
pub(super) enum Expression<'a> {
    /// A single condition.
    Is(Filter, Token<'a>),
    /// The complement of an expression.
    Not(Box<Self>),
    /// All parts must hold.
    All(Vec<Self>),
    /// One of the parts must hold.
    Either(Vec<Self>),
}

/// Maximum depth of nested parentheses and `not`.
const MOST_DEPTH: usize = 32;

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    at: usize,
    depth: usize,
}

/// Reads an expression.
pub(super) fn parse(text: &str) -> Result<Expression<'_>, FilterError> {
    let mut parser = Parser { text, tokens: tokens(text), at: 0, depth: 0 };
    let expression = parser.expression()?;
    match parser.next() {
        None => Ok(expression),
        Some(token) => Err(Refusal::new("closing parenthesis without an opening one", "remove it").at(token)),
    }
}

/// Whether a text is an expression: it has a list of values, or has a word that only expressions have where
/// the keyword syntax has a keyword.
pub(super) fn is_expression(text: &str) -> bool {
    let operators = ["or", "and", "not", "||", "&&", "!", "(", ")"];
    let lower = |token: &Token<'_>| token.text.to_ascii_lowercase();
    let words: Vec<String> = tokens(text).iter().map(lower).collect();
    let is_either = |word: &str| EITHER.iter().any(|(known, _)| *known == word);
    let is_alone =
        |word: &str| matches!(word, "ip" | "ip6") || WORDS.iter().any(|(known, ..)| *known == word);
    // In the keyword syntax every second word is a value.
    words.iter().enumerate().any(|(at, word)| {
        let before = at.checked_sub(1).and_then(|before| words.get(before)).map_or("", String::as_str);
        operators.contains(&&**word)
            || at % 2 == 0 && (is_alone(word) || is_either(word))
            || is_either(word) && matches!(before, "src" | "dst")
            || word.contains(',') && before != "exceptions"
    })
}

/// Returns the whole text as a token.
pub(super) fn whole(text: &str) -> Token<'_> {
    let trimmed = text.trim();
    Token { text: trimmed, offset: trimmed.as_ptr() as usize - text.as_ptr() as usize }
}

/// Splits a text into words at white space. Parentheses and `!` are words of their own.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens: Vec<Token<'_>> = Vec::new();
    for word in text.split_whitespace() {
        let mut offset = word.as_ptr() as usize - text.as_ptr() as usize;
        let mut rest = word;
        while let Some(at) = rest.find(['(', ')', '!'])
            && let Some((before, behind)) = rest.split_at_checked(at)
            && let Some((sign, behind)) = behind.split_at_checked(1)
        {
            if !before.is_empty() {
                tokens.push(Token { text: before, offset });
            }
            tokens.push(Token { text: sign, offset: offset + at });
            (rest, offset) = (behind, offset + at + 1);
        }
        if !rest.is_empty() {
            tokens.push(Token { text: rest, offset });
        }
    }
    tokens
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    /// Consumes the next word if it is one of `words`.
    fn take(&mut self, words: &[&str]) -> Option<Token<'a>> {
        let is_one = |token: &Token<'_>| words.iter().any(|word| token.text.eq_ignore_ascii_case(word));
        let token = self.peek().filter(is_one)?;
        self.at += 1;
        Some(token)
    }

    fn end(&self) -> Token<'a> {
        Token { text: "", offset: self.text.trim_end().len() }
    }

    fn expression(&mut self) -> Result<Expression<'a>, FilterError> {
        let first = self.chain()?;
        let (mut parts, mut joined): (Vec<_>, Option<bool>) = (vec![first], None);
        loop {
            let (token, is_or) = match (self.take(&["or", "||"]), self.take(&["and", "&&"])) {
                (Some(token), _) => (token, true),
                (None, Some(token)) => (token, false),
                (None, None) => break,
            };
            if joined.is_some_and(|before| before != is_or) {
                let problem = "`and` and `or` are mixed without parentheses";
                return Err(Refusal::new(problem, "add parentheses, as in `a and (b or c)`").at(token));
            }
            joined = Some(is_or);
            parts.push(self.chain()?);
        }
        Ok(match joined {
            Some(true) => Expression::Either(parts),
            Some(false) => Expression::All(parts),
            None => parts.pop().unwrap_or_else(|| Expression::Either(Vec::new())),
        })
    }

    /// Reads a chain: parts without an operator between them, which must all hold.
    fn chain(&mut self) -> Result<Expression<'a>, FilterError> {
        let mut parts: Vec<Expression<'a>> = Vec::new();
        let mut seen: Vec<Field> = Vec::new();
        while let Some(token) = self.peek() {
            if ["or", "||", "and", "&&", ")"].iter().any(|word| token.text.eq_ignore_ascii_case(word)) {
                break;
            }
            if let Some(Expression::Not(_)) = parts.last() {
                let help = "put `and` between the conditions, or parentheses after `not`";
                return Err(Refusal::new(
                    "`not` is followed by several conditions, and its scope is ambiguous",
                    help,
                )
                .at(token));
            }
            parts.push(self.part(&mut seen)?);
        }
        match parts.len() {
            0 => {
                let at = self.peek().unwrap_or(self.end());
                Err(Refusal::new("a condition is missing", "write one, as in `proto tcp`").at(at))
            }
            1 => Ok(parts.remove(0)),
            _ => Ok(Expression::All(parts)),
        }
    }

    fn part(&mut self, seen: &mut Vec<Field>) -> Result<Expression<'a>, FilterError> {
        if let Some(token) = self.take(&["not", "!"]) {
            return self.nested(token, |parser| {
                let inner = parser.part(&mut Vec::new())?;
                Ok(Expression::Not(Box::new(inner)))
            });
        }
        let Some(token) = self.next() else {
            return Err(Refusal::new("a condition is missing", "write one, as in `proto tcp`").at(self.end()));
        };
        if token.text == "(" {
            return self.nested(token, |parser| {
                let inner = parser.expression()?;
                match parser.take(&[")"]) {
                    Some(_) => Ok(inner),
                    None => Err(Refusal::new("closing parenthesis is missing", "write it").at(parser.end())),
                }
            });
        }
        self.condition(token, seen)
    }

    fn nested(
        &mut self,
        at: Token<'a>,
        read: impl FnOnce(&mut Self) -> Result<Expression<'a>, FilterError>,
    ) -> Result<Expression<'a>, FilterError> {
        if self.depth == MOST_DEPTH {
            let problem = format!("parentheses and `not` are nested more than {MOST_DEPTH} deep");
            return Err(Refusal::new(problem, "split the expression into several filters").at(at));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn condition(&mut self, word: Token<'a>, seen: &mut Vec<Field>) -> Result<Expression<'a>, FilterError> {
        let lower = word.text.to_ascii_lowercase();
        if word.text == "*" {
            return Ok(Expression::Is(Filter::any(), word));
        }
        let fixed = |value| Token { text: value, offset: word.offset };
        if let Some((_, field, value)) = WORDS.iter().find(|(known, ..)| *known == lower) {
            once(*field, word, seen)?;
            return condition(*field, fixed(value));
        }
        if let "ip" | "ip6" = &*lower {
            let net = fixed(if lower == "ip" { "0.0.0.0/0" } else { "::/0" });
            return condition(Field::Source, net);
        }
        if let Some((_, fields)) = EITHER.iter().find(|(known, _)| *known == lower) {
            let values = self.values(fields[0])?;
            let parts = fields.iter().map(|field| any_of(*field, &values)).collect::<Result<Vec<_>, _>>()?;
            return Ok(Expression::Either(parts));
        }
        let field = Field::from_keyword(word.text).ok_or_else(|| unknown(word.text).at(word))?;
        let field = match field {
            Field::Source if self.take(&["port", "portrange"]).is_some() => Field::SourcePort,
            Field::Destination if self.take(&["port", "portrange"]).is_some() => Field::DestinationPort,
            Field::Source | Field::Destination => {
                self.take(&["host", "net"]);
                field
            }
            field => field,
        };
        once(field, word, seen)?;
        any_of(field, &self.values(field)?)
    }

    /// Reads the values after a keyword, separated by commas. White space may follow a comma.
    fn values(&mut self, field: Field) -> Result<Vec<Token<'a>>, FilterError> {
        let value = self.next().ok_or_else(|| missing(field, self.text))?;
        if field == Field::Exceptions {
            return Ok(vec![value]);
        }
        let mut words = vec![value];
        while words.last().is_some_and(|word| word.text.ends_with(','))
            && let Some(more) = self.next()
        {
            words.push(more);
        }
        let mut values = Vec::new();
        let last = words.len() - 1;
        for (index, word) in words.into_iter().enumerate() {
            let text =
                if index < last { word.text.strip_suffix(',').unwrap_or(word.text) } else { word.text };
            let mut offset = word.offset;
            for part in text.split(',') {
                values.push(Token { text: part, offset });
                offset += part.len() + 1;
            }
        }
        Ok(values)
    }
}

/// Refuses a keyword that occurs a second time in the same chain.
fn once(field: Field, word: Token<'_>, seen: &mut Vec<Field>) -> Result<(), FilterError> {
    if seen.contains(&field) {
        let help = format!(
            "remove one {field}: a packet must match all conditions; to match one of two, write `{field} A,B`"
        );
        return Err(Refusal::new(format!("{field} is given twice"), help).at(word));
    }
    seen.push(field);
    Ok(())
}

fn condition(field: Field, value: Token<'_>) -> Result<Expression<'_>, FilterError> {
    let mut draft = Draft::default();
    draft.set(field, value)?;
    Ok(Expression::Is(draft.unchecked(), value))
}

fn any_of<'a>(field: Field, values: &[Token<'a>]) -> Result<Expression<'a>, FilterError> {
    let mut parts = values.iter().map(|value| condition(field, *value)).collect::<Result<Vec<_>, _>>()?;
    Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Either(parts) })
}
