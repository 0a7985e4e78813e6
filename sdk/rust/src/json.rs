//! Minimal JSON (RFC 8259) for settings, arguments and replies. It has a reader for objects, which copies
//! nothing, and a writer. Reader and writer together add about 3 KB to a module. Neither panics on any input.

use alloc::string::String;
use core::str;

use crate::Refusal;

/// Maximum nesting depth of values.
const MOST_LEVELS: u32 = 32;

/// JSON object, whose text is read in place. If a key occurs several times, the first value applies.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a>(&'a [u8]);

impl<'a> Object<'a> {
    /// Reads an object. Empty input is an object without keys.
    ///
    /// # Errors
    /// Input that is not a JSON object.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Refusal> {
        if bytes.trim_ascii().is_empty() {
            return Ok(Self(b"{}"));
        }
        let text = str::from_utf8(bytes).map_err(|_| Refusal::from("the text is not UTF-8"))?;
        match text.trim_ascii_start().starts_with('{') && crate::manifest::is_json(text) {
            true => Ok(Self(bytes.trim_ascii())),
            false => Err("the text is not a JSON object; give one as in {\"key\": 1}".into()),
        }
    }

    /// Returns the value of a key; `None` for a missing key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        self.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Returns keys and values, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = (String, Value<'a>)> + use<'a> {
        let mut rest = inside(self.0);
        core::iter::from_fn(move || {
            let (name, behind) = take(rest)?;
            let (value, behind) = take(skip(behind, b':'))?;
            rest = skip(behind, b',');
            Some((Value(name).string()?, Value(value)))
        })
    }

    /// Checks that the object has no keys except `known`.
    ///
    /// # Errors
    /// Names the first other key.
    pub fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        match self.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) if known.is_empty() => {
                Err(Refusal([&name, ": there is no such setting; no settings are accepted here"].concat()))
            }
            Some((name, _)) => {
                Err(Refusal([&name, ": there is no such setting; give ", &known.join(", ")].concat()))
            }
        }
    }
}

/// JSON value.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a>(&'a [u8]);

impl<'a> Value<'a> {
    /// Returns the bytes of the value as written.
    #[must_use]
    pub fn raw(&self) -> &'a [u8] {
        self.0
    }

    /// Returns the text if the value is a string. Each unpaired surrogate becomes U+FFFD.
    #[must_use]
    pub fn string(&self) -> Option<String> {
        let inner = self.0.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        let text = str::from_utf8(inner).ok()?;
        unescaped(text)
    }

    /// Returns the number if the value is an integer that fits in `i64`.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        str::from_utf8(self.0).ok()?.parse().ok()
    }

    /// Returns the value if it is `true` or `false`.
    #[must_use]
    pub fn boolean(&self) -> Option<bool> {
        match self.0 {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// Returns an iterator over the elements if the value is an array.
    #[must_use]
    pub fn array(&self) -> Option<impl Iterator<Item = Value<'a>> + use<'a>> {
        let mut rest = self.0.starts_with(b"[").then(|| inside(self.0))?;
        Some(core::iter::from_fn(move || {
            let (value, behind) = take(rest)?;
            rest = skip(behind, b',');
            Some(Value(value))
        }))
    }

    /// Returns the object if the value is an object.
    #[must_use]
    pub fn object(&self) -> Option<Object<'a>> {
        self.0.starts_with(b"{").then_some(Object(self.0))
    }
}

/// Returns the bytes between the first and the last byte, which are brackets.
fn inside(bytes: &[u8]) -> &[u8] {
    bytes.get(1..bytes.len().saturating_sub(1)).unwrap_or_default()
}

/// Removes white space, and then one occurrence of `byte`, from the front.
fn skip(bytes: &[u8], byte: u8) -> &[u8] {
    let bytes = bytes.trim_ascii_start();
    bytes.strip_prefix(&[byte]).unwrap_or(bytes)
}

/// Splits the first value from the rest. The input must be valid JSON: this function only searches for the
/// end of the value.
fn take(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let bytes = bytes.trim_ascii_start();
    let end = match bytes.first()? {
        b'"' => string_end(bytes, 0)?,
        b'{' | b'[' => nested_end(bytes)?,
        _ => bytes.iter().position(|byte| b",:]} \t\r\n".contains(byte)).unwrap_or(bytes.len()),
    };
    (end > 0).then(|| bytes.split_at(end))
}

fn string_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn nested_end(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut levels) = (0, 0);
    loop {
        match bytes.get(at)? {
            b'"' => {
                at = string_end(bytes, at)?;
                continue;
            }
            b'{' | b'[' => levels += 1,
            b'}' | b']' => levels -= 1,
            _ => {}
        }
        at += 1;
        if levels == 0 || levels > MOST_LEVELS {
            return Some(at);
        }
    }
}

fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('\\') {
        out.push_str(before);
        let mut behind = behind.chars();
        out.push(match behind.next()? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'u' => unicode(&mut behind)?,
            other => other,
        });
        rest = behind.as_str();
    }
    out.push_str(rest);
    Some(out)
}

/// Decodes the hexadecimal digits behind `\u`: a UTF-16 unit, or a surrogate pair.
fn unicode(rest: &mut str::Chars<'_>) -> Option<char> {
    let mut unit = |text: &str| -> Option<u32> { u32::from_str_radix(text.get(..4)?, 16).ok() };
    let first = unit(rest.as_str())?;
    *rest = rest.as_str().get(4..)?.chars();
    if !(0xd800..0xdc00).contains(&first) {
        return Some(char::from_u32(first).unwrap_or('\u{fffd}'));
    }
    let second = rest.as_str().strip_prefix("\\u").and_then(&mut unit);
    let Some(low) = second.filter(|low| (0xdc00..0xe000).contains(low)) else { return Some('\u{fffd}') };
    *rest = rest.as_str().get(6..)?.chars();
    char::from_u32(0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00))
}

/// Writes a number in decimal into `digits`, and returns the text. `core::fmt` is not used, because its code
/// for numbers is larger than a small plugin.
pub(crate) fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &str {
    let mut first = digits.len();
    while first == digits.len() || number > 0 {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    str::from_utf8(&digits[first..]).unwrap_or("0")
}

/// JSON writer, which inserts the commas.
///
/// ```
/// let mut json = millrace_sdk::json::Writer::new();
/// json.begin_object();
/// json.key("packets").number(2);
/// json.key("ports").begin_array();
/// json.string("80").string("443");
/// json.end_array();
/// json.end_object();
/// assert_eq!(json.text(), r#"{"packets":2,"ports":["80","443"]}"#);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Writer(String);

impl Writer {
    /// Creates an empty writer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the text written so far.
    #[must_use]
    pub fn text(self) -> String {
        self.0
    }

    /// Writes `{`.
    pub fn begin_object(&mut self) -> &mut Self {
        self.begin('{')
    }

    /// Writes `}`.
    pub fn end_object(&mut self) -> &mut Self {
        self.0.push('}');
        self
    }

    /// Writes `[`.
    pub fn begin_array(&mut self) -> &mut Self {
        self.begin('[')
    }

    /// Writes `]`.
    pub fn end_array(&mut self) -> &mut Self {
        self.0.push(']');
        self
    }

    /// Writes a key. The next call must write its value.
    pub fn key(&mut self, name: &str) -> &mut Self {
        self.string(name).0.push(':');
        self
    }

    /// Writes a number.
    pub fn number(&mut self, number: u64) -> &mut Self {
        self.comma();
        self.0.push_str(decimal(number, &mut [0; 20]));
        self
    }

    /// Writes `true` or `false`.
    pub fn boolean(&mut self, value: bool) -> &mut Self {
        self.raw(if value { "true" } else { "false" })
    }

    /// Writes a string.
    pub fn string(&mut self, text: &str) -> &mut Self {
        self.begin('"');
        for character in text.chars() {
            match character {
                '"' => self.0.push_str("\\\""),
                '\\' => self.0.push_str("\\\\"),
                '\0'..='\x1f' => {
                    let hex = |digit: u32| char::from_digit(digit, 16).unwrap_or('0');
                    self.0.push_str("\\u00");
                    self.0.push(hex(u32::from(character) >> 4));
                    self.0.push(hex(u32::from(character) & 15));
                }
                other => self.0.push(other),
            }
        }
        self.0.push('"');
        self
    }

    /// Writes a value that is JSON text already.
    pub fn raw(&mut self, json: &str) -> &mut Self {
        self.comma();
        self.0.push_str(json);
        self
    }

    fn begin(&mut self, bracket: char) -> &mut Self {
        self.comma();
        self.0.push(bracket);
        self
    }

    /// Writes a comma, unless the next item is the first of the text, of an object or of an array, or follows
    /// a key.
    fn comma(&mut self) {
        if !matches!(self.0.as_bytes().last(), None | Some(b'{' | b'[' | b':')) {
            self.0.push(',');
        }
    }
}
