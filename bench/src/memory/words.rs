//! Words on the command line that stand for values of a type.

/// Type whose values are words on the command line.
pub trait Words: Copy + PartialEq + 'static {
    /// All words with their values.
    const WORDS: &'static [(&'static str, Self)];

    /// Returns the word of a value.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| word)
    }
}

/// Parses a word.
///
/// # Errors
/// No value has this word; the text lists all words.
pub fn word<T: Words>(text: &str) -> Result<T, String> {
    let found = T::WORDS.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    let known = || T::WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("give one of {}", known()))
}
