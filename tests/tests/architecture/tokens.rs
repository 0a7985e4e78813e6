//! Tokens of Rust source with their lines, without comments and string contents.

/// Token: one word or sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// Word, number or single sign. String and character literals are `"`.
    pub text: &'a str,
    /// Line where the token begins, from 1.
    pub line: usize,
}

/// Returns the tokens of a source.
pub fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut reader = Reader { source, at: 0, line: 1 };
    let mut found = Vec::with_capacity(source.len() / 5);
    while let Some(token) = reader.next() {
        found.push(token);
    }
    found
}

/// Reader at a position in a source.
struct Reader<'a> {
    source: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Reader<'a> {
    fn byte(&self, ahead: usize) -> u8 {
        self.source.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn starts_with(&self, words: &str) -> bool {
        self.source.as_bytes()[self.at..].starts_with(words.as_bytes())
    }

    /// Skips bytes, and counts their lines.
    fn pass(&mut self, count: usize) {
        let end = (self.at + count).min(self.source.len());
        self.line += self.source.as_bytes()[self.at..end].iter().filter(|byte| **byte == b'\n').count();
        self.at = end;
    }

    /// Returns the next token.
    fn next(&mut self) -> Option<Token<'a>> {
        self.pass_blanks_and_comments();
        if self.at >= self.source.len() {
            return None;
        }
        let (start, line) = (self.at, self.line);
        let text = if self.pass_quoted() {
            "\""
        } else if is_of_word(self.byte(0)) {
            while is_of_word(self.byte(0)) {
                self.at += 1;
            }
            &self.source[start..self.at]
        } else {
            self.at += 1;
            &self.source[start..self.at]
        };
        Some(Token { text, line })
    }

    fn pass_blanks_and_comments(&mut self) {
        loop {
            if self.byte(0).is_ascii_whitespace() {
                self.pass(1);
            } else if self.starts_with("//") {
                let length = self.source[self.at..].find('\n').unwrap_or(self.source.len() - self.at);
                self.at += length;
            } else if self.starts_with("/*") {
                self.pass_block_comment();
            } else {
                return;
            }
        }
    }

    /// Skips a block comment. Block comments may be nested.
    fn pass_block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.source.len() {
            let step = match (self.byte(0), self.byte(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    2
                }
                (b'*', b'/') => {
                    depth -= 1;
                    2
                }
                _ => 1,
            };
            self.pass(step);
            if depth == 0 {
                return;
            }
        }
    }

    /// Skips a string, a character literal or the quote of a lifetime. Returns `false` if none of these
    /// begins here.
    fn pass_quoted(&mut self) -> bool {
        let prefix = ["br", "cr", "r", "b", "c", ""].into_iter().find(|prefix| {
            let after = self.byte(prefix.len());
            let is_raw = prefix.ends_with('r');
            self.starts_with(prefix)
                && match after {
                    b'"' => true,
                    b'#' => is_raw && self.is_raw_text(prefix.len()),
                    b'\'' => *prefix == "b" || prefix.is_empty(),
                    _ => false,
                }
        });
        let Some(prefix) = prefix else { return false };
        self.at += prefix.len();
        if self.byte(0) == b'\'' {
            self.pass_letter();
        } else if prefix.ends_with('r') {
            self.pass_raw_text();
        } else {
            self.pass_text(b'"');
        }
        true
    }

    /// Whether a raw string begins here: hashes and then a quote follow, as in `r#"` but not in `r#type`.
    fn is_raw_text(&self, ahead: usize) -> bool {
        let after = self.source.as_bytes()[self.at + ahead..].iter().find(|byte| **byte != b'#');
        after == Some(&b'"')
    }

    /// Skips `'a'`, `'\n'`, or the quote of `'static`.
    fn pass_letter(&mut self) {
        let rest = &self.source[self.at + 1..];
        let letter = rest.chars().next().map_or(0, char::len_utf8);
        if rest.starts_with('\\') || rest[letter..].starts_with('\'') {
            self.pass_text(b'\'');
        } else {
            self.at += 1;
        }
    }

    /// Skips a string with its quotes.
    fn pass_text(&mut self, quote: u8) {
        self.pass(1);
        while self.at < self.source.len() && self.byte(0) != quote {
            self.pass(if self.byte(0) == b'\\' { 2 } else { 1 });
        }
        self.pass(1);
    }

    fn pass_raw_text(&mut self) {
        let rest = &self.source[self.at..];
        let hashes = rest.bytes().take_while(|byte| *byte == b'#').count();
        let end = format!("\"{}", "#".repeat(hashes));
        let length = rest[hashes + 1..].find(&end).map_or(rest.len(), |at| hashes + 1 + at + end.len());
        self.pass(length);
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

#[test]
fn comments_and_texts_are_no_words() {
    let source =
        "// fn a\n/* fn b /* fn c */ fn */ x \"fn \\\" d\" r#\"fn \"e\"# 'f' '\\'' b'\"' &'static r#type\n y";
    let found = tokens(source);
    let words: Vec<&str> = found.iter().map(|token| token.text).collect();
    assert_eq!(words, ["x", "\"", "\"", "\"", "\"", "\"", "&", "\"", "static", "r", "#", "type", "y"]);
    assert_eq!(found.last().map(|token| token.line), Some(3));
}

#[test]
fn lines_in_texts_and_comments_count() {
    let found = tokens("\"a\n\nb\" /*\n*/ c");
    assert_eq!(found, [Token { text: "\"", line: 1 }, Token { text: "c", line: 4 }]);
}
