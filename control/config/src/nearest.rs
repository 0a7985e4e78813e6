//! The known name that a wrong one was probably meant to be.

/// The one of `known` that is most like `word`, if any is like it at all.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let distance = |name: &str| strsim::damerau_levenshtein(&word, &name.to_lowercase());
    let limit = (word.chars().count() / 2).max(1);
    known
        .into_iter()
        .map(|name| (distance(name), name))
        .filter(|(far, _)| *far <= limit)
        .min_by_key(|(far, _)| *far)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_nonsense_finds_none() {
        assert_eq!(nearest("addres", ["name", "address", "device"]), Some("address"));
        assert_eq!(nearest("zzzzzz", ["name", "address"]), None);
    }
}
