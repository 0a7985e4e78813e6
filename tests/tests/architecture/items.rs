//! Items of a source file: types with their fields and methods, functions with their lines, and paths to
//! other modules.

use super::tokens::{Token, tokens};

/// Counted item: its name and its count.
pub type Counted = (String, usize);

/// Items of a source file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Items {
    /// Names of the structs, unions, enums and traits.
    pub types: Vec<String>,
    /// Structs with the number of their fields.
    pub structs: Vec<Counted>,
    /// Types and traits, with the number of methods in one `impl` block. A type may have several blocks.
    pub methods: Vec<Counted>,
    /// Functions with the number of their lines. Methods are named `Type::name`.
    pub functions: Vec<Counted>,
    /// Paths of `use` declarations outside tests, with the name that each declares.
    pub uses: Vec<Use>,
    /// Other paths outside tests that begin with `crate`, `self` or `super`.
    pub paths: Vec<Vec<String>>,
}

/// One path of a `use` declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Declared name; `*` for all names.
    pub name: String,
    /// Segments of the path. Inside an inline module they are rewritten relative to the file.
    pub path: Vec<String>,
}

/// Returns the items of a source file.
pub fn items(source: &str) -> Items {
    let tokens = tokens(source);
    let mut reader = Reader { tokens: &tokens, items: Items::default() };
    reader.scan(0, tokens.len(), &Place::default());
    reader.items
}

/// Position of the reader in nested blocks and modules.
#[derive(Clone, Default)]
struct Place {
    /// Type of the surrounding `impl` block, if any.
    of: Option<String>,
    /// Number of surrounding inline modules.
    depth: usize,
    is_test: bool,
}

struct Reader<'a> {
    tokens: &'a [Token<'a>],
    items: Items,
}

impl Reader<'_> {
    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| token.text)
    }

    fn is_path_sign(&self, at: usize) -> bool {
        self.text(at) == ":" && self.text(at + 1) == ":"
    }

    /// Reads the tokens from `at` to `end`. Enters blocks that are not part of an item as well.
    fn scan(&mut self, mut at: usize, end: usize, place: &Place) {
        let mut is_test = false;
        while at < end {
            let word = self.text(at).to_owned();
            if word == "#" {
                let close = self.end_of_attribute(at);
                is_test |= self.tokens[at..close]
                    .windows(3)
                    .any(|three| three[0].text == "cfg" && three[1].text == "(" && three[2].text == "test");
                at = close;
                continue;
            }
            let inner = Place { is_test: place.is_test || is_test, ..place.clone() };
            let next = self.item(&word, at, end, &inner);
            // A visibility may stand between an attribute and its item.
            is_test &= matches!(&*word, "pub" | "(" | ")" | "crate" | "super" | "in" | "self");
            at = next;
        }
    }

    /// Reads the item that begins with a word. Returns the index of the token after the item.
    fn item(&mut self, word: &str, at: usize, end: usize, place: &Place) -> usize {
        let is_named = self.tokens.get(at + 1).is_some_and(|next| is_word(next.text));
        if is_named && matches!(word, "struct" | "union" | "enum" | "trait") {
            self.items.types.push(self.text(at + 1).to_owned());
        }
        match word {
            "struct" | "union" if is_named => self.record(at, end),
            "fn" if is_named => self.function(at, end, place),
            "impl" | "trait" => self.block(at, end, place),
            "mod" if is_named && self.text(at + 2) == "{" => {
                let close = self.close(at + 2);
                let inner = Place { of: None, depth: place.depth + 1, is_test: place.is_test };
                self.scan(at + 3, close, &inner);
                close + 1
            }
            "use" if is_named || self.is_path_sign(at + 1) || self.text(at + 1) == "{" => {
                self.imports(at, end, place)
            }
            "crate" | "self" | "super" if self.is_path_sign(at + 1) => self.path(at, place),
            _ => at + 1,
        }
    }

    /// Returns the index of the token after `#[…]` or `#![…]`.
    fn end_of_attribute(&self, at: usize) -> usize {
        let open = if self.text(at + 1) == "!" { at + 2 } else { at + 1 };
        if self.text(open) == "[" { self.close(open) + 1 } else { at + 1 }
    }

    /// Returns the index of the token that closes the bracket at `open`.
    fn close(&self, open: usize) -> usize {
        let mut depth = 0_usize;
        for (index, token) in self.tokens.iter().enumerate().skip(open) {
            match token.text {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return index;
            }
        }
        self.tokens.len()
    }

    /// Returns the index of the first of `signs` that is outside brackets.
    fn find(&self, mut at: usize, end: usize, signs: &[&str]) -> usize {
        let mut angles = 0_i32;
        while at < end {
            let text = self.text(at);
            if angles <= 0 && signs.contains(&text) {
                return at;
            }
            match text {
                "(" | "[" | "{" => at = self.close(at),
                "<" => angles += 1,
                ">" if self.text(at - 1) != "-" && self.text(at - 1) != "=" => angles -= 1,
                _ => {}
            }
            at += 1;
        }
        end
    }

    /// Reads a struct: `struct A { … }`, `struct A(…);` or `struct A;`.
    fn record(&mut self, at: usize, end: usize) -> usize {
        let name = self.text(at + 1).to_owned();
        let open = self.find(at + 2, end, &["{", "(", ";", "="]);
        if !matches!(self.text(open), "{" | "(") {
            self.items.structs.push((name, 0));
            return open + 1;
        }
        let close = self.close(open);
        let mut fields = 0;
        let mut start = open + 1;
        while start < close {
            let comma = self.find(start, close, &[","]);
            fields += usize::from(comma > start);
            start = comma + 1;
        }
        self.items.structs.push((name, fields));
        close + 1
    }

    /// Reads a function with its body.
    fn function(&mut self, at: usize, end: usize, place: &Place) -> usize {
        let open = self.find(at + 2, end, &["{", ";"]);
        if self.text(open) != "{" {
            return open + 1;
        }
        let close = self.close(open).min(self.tokens.len() - 1);
        let lines = self.tokens[close].line - self.tokens[at].line + 1;
        let name = self.text(at + 1);
        let name = place.of.as_ref().map_or_else(|| name.to_owned(), |of| format!("{of}::{name}"));
        self.items.functions.push((name, lines));
        self.scan(open + 1, close, &Place { of: None, ..place.clone() });
        close + 1
    }

    /// Reads `impl A { … }`, `impl B for A { … }` or `trait A { … }`.
    fn block(&mut self, at: usize, end: usize, place: &Place) -> usize {
        let open = self.find(at + 1, end, &["{", ";", ",", ")", "="]);
        if self.text(open) != "{" {
            // This `impl` is part of a type and begins no block.
            return at + 1;
        }
        let name =
            if self.text(at) == "trait" { self.text(at + 1).to_owned() } else { self.implementor(at, open) };
        let close = self.close(open);
        let mut methods = 0;
        let mut inside = open + 1;
        while inside < close {
            methods += usize::from(self.text(inside) == "fn" && is_word(self.text(inside + 1)));
            inside =
                if matches!(self.text(inside), "{" | "(" | "[") { self.close(inside) } else { inside } + 1;
        }
        self.items.methods.push((name.clone(), methods));
        self.scan(open + 1, close, &Place { of: Some(name), ..place.clone() });
        close + 1
    }

    /// Returns the type of `impl<T> B<T> for path::A<T> where … {`.
    fn implementor(&self, at: usize, open: usize) -> String {
        let mut start = at + 1;
        if self.text(start) == "<" {
            start = self.find_angle(start) + 1;
        }
        let stop = self.find(start, open, &["where"]);
        let of = self.find(start, stop, &["for"]);
        let of = if of == stop { start } else { of + 1 };
        let mut name = "";
        for index in of..stop {
            let text = self.text(index);
            if text == "<" && !name.is_empty() {
                break;
            }
            // A name after a quote is a lifetime.
            if is_word(text) && !matches!(text, "dyn" | "mut" | "const") && self.text(index - 1) != "\"" {
                name = text;
            }
        }
        name.to_owned()
    }

    /// Returns the index of the token that closes `<`.
    fn find_angle(&self, open: usize) -> usize {
        let mut depth = 0;
        for index in open..self.tokens.len() {
            match self.text(index) {
                "<" => depth += 1,
                ">" if self.text(index - 1) != "-" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return index;
            }
        }
        self.tokens.len()
    }

    /// Reads a `use` declaration.
    fn imports(&mut self, at: usize, end: usize, place: &Place) -> usize {
        let stop = self.find(at + 1, end, &[";"]);
        if !place.is_test {
            let mut found = Vec::new();
            self.tree(at + 1, stop, &[], &mut found);
            self.items.uses.extend(found.into_iter().filter_map(|mut one| {
                one.path = from_file(one.path, place.depth)?;
                Some(one)
            }));
        }
        stop + 1
    }

    /// Reads one branch of a `use` declaration, from `at` to `stop`.
    fn tree(&self, mut at: usize, stop: usize, before: &[String], found: &mut Vec<Use>) {
        let mut path = before.to_vec();
        while at < stop {
            match self.text(at) {
                "{" => {
                    let close = self.close(at);
                    let mut start = at + 1;
                    while start < close {
                        let comma = self.find(start, close, &[","]);
                        self.tree(start, comma, &path, found);
                        start = comma + 1;
                    }
                    return;
                }
                "as" => {
                    found.push(Use { name: self.text(at + 1).to_owned(), path });
                    return;
                }
                ":" => {}
                text => path.push(text.to_owned()),
            }
            at += 1;
        }
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        if let Some(name) = path.last().cloned() {
            found.push(Use { name, path });
        }
    }

    /// Reads a path in code.
    fn path(&mut self, at: usize, place: &Place) -> usize {
        let mut segments = vec![self.text(at).to_owned()];
        let mut next = at + 1;
        while self.is_path_sign(next) && is_word(self.text(next + 2)) {
            segments.push(self.text(next + 2).to_owned());
            next += 3;
        }
        if !place.is_test {
            self.items.paths.extend(from_file(segments, place.depth));
        }
        next
    }
}

/// Rewrites a path inside an inline module, `depth` levels deep, as the file itself would write it. `None` if
/// the path stays inside the module.
fn from_file(mut path: Vec<String>, depth: usize) -> Option<Vec<String>> {
    let is_relative = matches!(path.first().map(String::as_str), Some("self" | "super"));
    if depth == 0 || path.first().is_some_and(|first| first == "crate") {
        return Some(path);
    }
    let supers = path.iter().take_while(|segment| *segment == "super").count();
    if !is_relative || supers < depth {
        return None;
    }
    path.drain(..depth);
    if path.first().is_none_or(|first| first != "super") {
        path.insert(0, "self".to_owned());
    }
    Some(path)
}

fn is_word(text: &str) -> bool {
    text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_' || !byte.is_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(expected: &[(&str, usize)]) -> Vec<Counted> {
        expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn fields_are_counted_in_every_kind_of_struct() {
        let source = "pub struct A<T: Fn(u8, u8) -> u8> where T: Copy { #[x(a, b)] pub a: HashMap<u8, T>, b: [u8; 1 << 2], c: Box<dyn Fn(u8) -> u8>, }\n\
                      struct B(u8, pub (u8, u8)); struct C; enum D { A { a: u8, b: u8 } }";
        assert_eq!(items(source).structs, counted(&[("A", 3), ("B", 2), ("C", 0)]));
    }

    #[test]
    fn methods_belong_to_the_type_of_their_block() {
        let source = "impl<T: Into<u8>> a::A<T> where T: X { fn a() { fn inner() {} } const fn b() {} }\n\
                      impl Iterator for A<'_> { type Item = u8; fn next(&mut self) -> impl Fn() -> u8 { || 1 } }\n\
                      impl<F> From<F> for &mut B { fn from(f: fn(u8)) {} }\n\
                      trait C: Send { fn a(&self); fn b(&self) {} } fn d(x: impl Fn(u8)) -> impl Copy { x }";
        let found = items(source);
        assert_eq!(found.methods, counted(&[("A", 2), ("A", 1), ("B", 1), ("C", 2)]));
        let names: Vec<&str> = found.functions.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["A::a", "inner", "A::b", "A::next", "B::from", "C::b", "d"]);
    }

    #[test]
    fn lines_of_a_function_reach_from_its_name_to_its_last_brace() {
        let source = "#[test]\nfn a(\n  x: u8,\n) {\n  \"}\n\"; // }\n}\nfn b() {}\n";
        assert_eq!(items(source).functions, counted(&[("a", 6), ("b", 1)]));
    }

    #[test]
    fn paths_of_tests_are_left_out() {
        let source = "use crate::a::{self, B as C, d::{E, *}};\nuse super::f;\n\
                      fn x() { crate::g::H::new(); super::super::i(); std::mem::take() }\n\
                      mod inside { use super::j; use super::super::k; use self::l; }\n\
                      #[cfg(test)]\nmod tests { use super::m; use crate::n; fn y() { crate::o::p() } }\n\
                      #[cfg(test)]\npub(crate) mod more { use crate::q; }\n fn z() { crate::r::s() }";
        let found = items(source);
        let uses: Vec<(String, String)> =
            found.uses.iter().map(|one| (one.name.clone(), one.path.join("::"))).collect();
        let expected = [
            ("a", "crate::a"),
            ("C", "crate::a::B"),
            ("E", "crate::a::d::E"),
            ("*", "crate::a::d::*"),
            ("f", "super::f"),
            ("j", "self::j"),
            ("k", "super::k"),
        ];
        assert_eq!(uses, expected.map(|(name, path)| (name.to_owned(), path.to_owned())));
        let paths: Vec<String> = found.paths.iter().map(|path| path.join("::")).collect();
        assert_eq!(paths, ["crate::g::H::new", "super::super::i", "crate::r::s"]);
    }
}
