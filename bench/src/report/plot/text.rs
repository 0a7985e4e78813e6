//! Estimated widths of texts, and line breaks in labels.

/// Font size in pixels, as in the page's style.
const SIZE: f64 = 11.0;
/// Distance between two lines of text, in pixels.
pub(super) const LINE: f64 = 13.0;

/// Returns the width of a text in pixels, for the widest common sans-serif font (DejaVu Sans).
pub(super) fn width(text: &str) -> f64 {
    text.chars().map(letter).sum::<f64>() * SIZE
}

/// Returns the width of a character relative to the font size.
fn letter(letter: char) -> f64 {
    match letter {
        'i' | 'j' | 'l' | 'I' | ' ' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | '/' | '"' => 0.46,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 1.0,
        'A'..='Z' | '+' | '=' | '<' | '>' | '×' => 0.84,
        'a'..='z' | '0'..='9' | 'µ' => 0.64,
        _ => 1.0,
    }
}

/// Breaks a text into lines of at most `most` pixels. Breaks within a word only if the word alone exceeds a
/// line.
pub(super) fn wrapped(text: &str, most: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let line = lines.last().map_or("", String::as_str);
        let joined = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if width(&joined) <= most {
            lines.pop();
            lines.push(joined);
            continue;
        }
        if line.is_empty() {
            lines.pop();
        }
        lines.extend(pieces(word, most));
    }
    lines
}

/// Breaks a word into pieces of at most `most` pixels.
fn pieces(word: &str, most: f64) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for letter in word.chars() {
        match pieces.last_mut() {
            Some(piece)
                if piece.is_empty() || width(piece) + width(letter.encode_utf8(&mut [0; 4])) <= most =>
            {
                piece.push(letter);
            }
            _ => pieces.push(letter.to_string()),
        }
    }
    pieces
}

/// Returns the leftmost position from `x` on at which a text of `wide` pixels overlaps no obstacle. Obstacles
/// are pairs of left and right edges.
pub(super) fn clear_of(x: f64, wide: f64, obstacles: &[[f64; 2]]) -> f64 {
    /// Gap between a text and an obstacle in pixels.
    const APART: f64 = 4.0;
    let mut sorted = obstacles.to_vec();
    sorted.sort_by(|a, b| a[0].total_cmp(&b[0]));
    sorted.iter().fold(x, |x, [left, right]| {
        let crosses = *left < x + wide + APART / 2.0 && *right > x - APART / 2.0;
        if crosses { right + APART } else { x }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_wrapped_and_whole() {
        let text = "TCP at 1000 Mb/s, weights 1, 2 and 5, largest deviation, beside the kernel's HTB and TBF";
        let lines = wrapped(text, 200.0);
        assert!(lines.len() > 1 && lines.iter().all(|line| width(line) <= 200.0), "{lines:?}");
        assert_eq!(lines.join(" "), text);
        assert_eq!(wrapped("short", 200.0), ["short"]);
    }

    #[test]
    fn a_word_wider_than_a_line_is_broken_and_whole() {
        let (word, text) = ("x".repeat(90), format!("a {} b", "x".repeat(90)));
        let lines = wrapped(&text, 200.0);
        assert!(lines.iter().all(|line| width(line) <= 200.0), "{lines:?}");
        assert!(
            lines.concat().contains(&word)
                && lines.concat().starts_with('a')
                && lines.concat().ends_with('b')
        );
    }

    #[test]
    fn text_moves_behind_crossing_lines() {
        assert_eq!(clear_of(10.0, 20.0, &[]), 10.0);
        assert_eq!(clear_of(10.0, 20.0, &[[40.0, 41.0]]), 10.0);
        assert_eq!(clear_of(10.0, 20.0, &[[25.0, 26.0]]), 30.0);
        // Right after the first obstacle, the text would overlap the second one.
        assert_eq!(clear_of(10.0, 20.0, &[[45.0, 46.0], [5.0, 25.0]]), 50.0);
    }
}
