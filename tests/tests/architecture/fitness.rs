//! Limits on the structure of rooms. Each limit applies to every room, unless `exceptions.txt` has a line
//! with the current count. Counts may only fall: a lower count needs an updated line, and an unneeded line
//! fails the test.
//!
//! `MILLRACE_WRITE_EXCEPTIONS=1 cargo test -p millrace-tests --test architecture -- --nocapture
//! structure_keeps` prints the lines for the current counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::circles::Modules;
use super::items::{Counted, Items, items};
use super::{is_test_module, read, relative, rooms, root, sources};

/// Kinds of counts, each with the largest count allowed without an exception.
const LIMITS: [(&str, usize); 6] =
    [("circle", 0), ("fields", 15), ("methods", 40), ("files", 15), ("lines", 500), ("function", 60)];
/// Placeholder for the reason in newly printed exception lines. The test does not accept it as a reason.
const NEW: &str = "REASON";

/// Counted thing: kind of count, room and name.
type Subject = (String, String, String);
type Counts = BTreeMap<Subject, usize>;

/// Line of `exceptions.txt`: `kind room name count reason`.
#[derive(Debug, PartialEq, Eq)]
struct Exception {
    subject: Subject,
    count: usize,
    reason: String,
}

/// Reads the lines of `exceptions.txt`.
///
/// # Errors
/// The malformed lines.
fn exceptions(text: &str) -> Result<Vec<Exception>, Vec<String>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for line in lines {
        match exception(line) {
            Some(exception) => good.push(exception),
            None => bad.push(format!("{line:?} is not `kind room name count reason`")),
        }
    }
    if bad.is_empty() { Ok(good) } else { Err(bad) }
}

fn exception(line: &str) -> Option<Exception> {
    let cells: Vec<&str> = line.splitn(5, ' ').collect();
    let [kind, room, name, count, reason] = cells[..] else { return None };
    let is_known = LIMITS.iter().any(|(known, _)| *known == kind);
    let subject = (kind.to_owned(), room.to_owned(), name.to_owned());
    let exception = Exception { subject, count: count.parse().ok()?, reason: reason.to_owned() };
    (is_known && !reason.trim().is_empty() && reason != NEW).then_some(exception)
}

/// Source file: its path from the folder of its room, its lines, and its items.
struct File {
    path: String,
    lines: usize,
    items: Items,
}

impl File {
    fn new(path: String, text: &str) -> Self {
        Self { path, lines: text.lines().count(), items: items(text) }
    }

    fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or(".", |(folder, _)| folder)
    }
}

/// Returns all counts of a room, with their subjects.
fn counts(room: &str, files: &[File]) -> Counts {
    let mut counts = Counts::new();
    for file in files {
        add(&mut counts, room, "files", [(file.folder().to_owned(), 1)]);
        add(&mut counts, room, "lines", [(file.path.clone(), file.lines)]);
        let functions = file.items.functions.iter();
        let functions = functions.map(|(name, lines)| (format!("{}:{name}", file.path), *lines));
        raise(&mut counts, room, "function", functions);
        let of_type = |(name, count): &Counted| (type_name(files, file, name), *count);
        raise(&mut counts, room, "fields", file.items.structs.iter().map(of_type));
        add(&mut counts, room, "methods", file.items.methods.iter().map(of_type));
    }
    add(&mut counts, room, "circle", circles(files).into_iter().map(|(parent, names)| (parent, names.len())));
    counts
}

/// Returns the full name of a type that a file mentions. Several files of a room may declare a type of this
/// name. Then it is the file's own type, or else the type in the nearest file.
fn type_name(files: &[File], file: &File, name: &str) -> String {
    let declares = |other: &&File| other.items.types.iter().any(|declared| declared == name);
    let declaring: Vec<&File> = files.iter().filter(declares).collect();
    match declaring.len() {
        // No file of the room declares the type: it comes from a macro in this file, or from another room.
        0 => return format!("{}:{name}", file.path),
        1 => return name.to_owned(),
        _ => {}
    }
    let common = |other: &&&File| {
        let is_same = other.path == file.path;
        let same =
            other.path.split('/').zip(file.path.split('/')).take_while(|(one, two)| one == two).count();
        (is_same, same, std::cmp::Reverse(other.path.len()))
    };
    declaring.iter().max_by_key(common).map_or(name.to_owned(), |one| format!("{}:{name}", one.path))
}

/// Returns the modules of a room that are part of a circle, by their parent module.
fn circles(files: &[File]) -> Vec<(String, Vec<String>)> {
    let mut modules = Modules::default();
    for file in files.iter().filter(|file| !is_test_module(Path::new(&file.path))) {
        if let Some(inside) = file.path.strip_prefix("src/") {
            modules.add(inside, &file.items);
        }
    }
    let parent = |path: Vec<String>| if path.is_empty() { "crate".to_owned() } else { path.join("::") };
    modules.circles().into_iter().map(|(path, names)| (parent(path), names)).collect()
}

/// Adds `more` to the counts of the same subjects.
fn add(counts: &mut Counts, room: &str, kind: &str, more: impl IntoIterator<Item = Counted>) {
    for (name, count) in more {
        *counts.entry((kind.to_owned(), room.to_owned(), name)).or_default() += count;
    }
}

/// Raises the counts of subjects in `more` to the larger of both values.
fn raise(counts: &mut Counts, room: &str, kind: &str, more: impl IntoIterator<Item = Counted>) {
    for (name, count) in more {
        let largest = counts.entry((kind.to_owned(), room.to_owned(), name)).or_default();
        *largest = count.max(*largest);
    }
}

fn limit(kind: &str) -> usize {
    LIMITS.iter().find(|(known, _)| *known == kind).map_or(0, |(_, limit)| *limit)
}

/// Returns the counts above their limits.
fn offenders(counts: Counts) -> Counts {
    counts.into_iter().filter(|((kind, ..), count)| *count > limit(kind)).collect()
}

/// Returns a message for each difference between the current offenders and the exceptions.
fn objections(offenders: &Counts, exceptions: &[Exception]) -> Vec<String> {
    let mut found = Vec::new();
    for (subject, count) in offenders {
        let (kind, room, name) = subject;
        let line = exceptions.iter().find(|exception| exception.subject == *subject);
        let limit = line.map_or(limit(kind), |line| line.count);
        if *count > limit {
            found.push(format!("{kind} {room} {name}: {count}, at most {limit}"));
        } else if *count < limit {
            found.push(format!("{kind} {room} {name}: the line says {limit}: lower it to {count}"));
        }
    }
    for (index, exception) in exceptions.iter().enumerate() {
        let (kind, room, name) = &exception.subject;
        if !offenders.contains_key(&exception.subject) {
            found.push(format!("{kind} {room} {name}: needs no line: remove it"));
        } else if exceptions[..index].iter().any(|earlier| earlier.subject == exception.subject) {
            found.push(format!("{kind} {room} {name}: has two lines"));
        }
    }
    found
}

/// Returns the exception lines for the current offenders. Existing lines keep their reasons.
fn lines(offenders: &Counts, exceptions: &[Exception]) -> String {
    let mut text = String::new();
    for (subject, count) in offenders {
        let (kind, room, name) = subject;
        let line = exceptions.iter().find(|exception| exception.subject == *subject);
        let reason = line.map_or(NEW, |line| &line.reason);
        let _ = writeln!(text, "{kind} {room} {name} {count} {reason}");
    }
    text
}

/// Returns the files of each room.
fn files() -> BTreeMap<String, Vec<File>> {
    let mut by_room: BTreeMap<String, Vec<File>> = BTreeMap::new();
    let rooms = rooms();
    for path in sources() {
        let file = relative(&path);
        let is_of = |room: &&String| file.strip_prefix(&***room).is_some_and(|rest| rest.starts_with('/'));
        let Some(room) = rooms.iter().filter(is_of).max_by_key(|room| room.len()) else { continue };
        let files = by_room.entry(room.clone()).or_default();
        files.push(File::new(file[room.len() + 1..].to_owned(), &read(&path)));
    }
    by_room
}

#[test]
fn structure_keeps_to_its_limits_and_exceptions() {
    let text = read(&root().join("tests/tests/architecture/exceptions.txt"));
    let exceptions = exceptions(&text).unwrap_or_else(|wrong| panic!("exceptions.txt: {}", wrong.join("\n")));
    let files = files();
    let offenders = offenders(files.iter().flat_map(|(room, files)| counts(room, files)).collect());
    if std::env::var_os("MILLRACE_WRITE_EXCEPTIONS").is_some() {
        panic!("lines of exceptions.txt, and no judgement:\n{}", lines(&offenders, &exceptions));
    }
    let mut objections = objections(&offenders, &exceptions);
    for (room, files) in &files {
        let is_named = |parent: &str| {
            let start = format!("circle {room} {parent}: ");
            objections.iter().any(|objection| objection.starts_with(&start))
        };
        let circles: Vec<_> = circles(files).into_iter().filter(|(parent, _)| is_named(parent)).collect();
        objections.extend(
            circles.iter().map(|(parent, names)| format!("in circles of {room} {parent}: {names:?}")),
        );
    }
    assert!(
        objections.is_empty(),
        "tests/tests/architecture/exceptions.txt (MILLRACE_WRITE_EXCEPTIONS=1 prints its lines):\n{}",
        objections.join("\n")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offenders_of(files: &[(&str, String)]) -> Vec<(String, String, usize)> {
        let files: Vec<File> = files.iter().map(|(path, text)| File::new((*path).to_owned(), text)).collect();
        let found = offenders(counts("room", &files));
        found.into_iter().map(|((kind, _, name), count)| (kind, name, count)).collect()
    }

    fn one(kind: &str, name: &str, count: usize) -> Vec<(String, String, usize)> {
        vec![(kind.to_owned(), name.to_owned(), count)]
    }

    /// Returns `count` repetitions of a text, each with its number in place of `#`.
    fn many(count: usize, text: &str) -> String {
        (0..count).map(|number| text.replace('#', &number.to_string())).collect()
    }

    #[test]
    fn circles_of_modules_are_above_the_limit() {
        let files = [
            ("src/lib.rs", String::new()),
            ("src/a.rs", "use crate::b;".into()),
            ("src/b.rs", "use super::a;".into()),
        ];
        assert_eq!(offenders_of(&files), one("circle", "crate", 2));
        let files = [
            ("src/lib.rs", String::new()),
            ("src/a.rs", "use crate::tests;".into()),
            ("src/tests.rs", "use super::a;".into()),
        ];
        assert_eq!(offenders_of(&files), []);
    }

    #[test]
    fn structs_of_more_than_15_fields_are_above_the_limit() {
        let file = |fields| [("src/lib.rs", format!("struct A {{ {} }}", many(fields, "f#: u8, ")))];
        assert_eq!(offenders_of(&file(15)), []);
        assert_eq!(offenders_of(&file(16)), one("fields", "A", 16));
    }

    #[test]
    fn methods_of_all_blocks_of_a_room_count_together() {
        let block = |from: usize, count: usize| {
            let methods: String =
                (from..from + count).map(|number| format!("fn f{number}() {{}} ")).collect();
            format!("impl A {{ {methods} }}")
        };
        let files = [("src/a.rs", format!("struct A; {}", block(0, 20))), ("src/b.rs", block(20, 20))];
        assert_eq!(offenders_of(&files), []);
        let files = [
            ("src/a.rs", format!("struct A; {}", block(0, 20))),
            ("src/b.rs", block(20, 20)),
            ("src/c.rs", "impl B for A { fn c() {} }".into()),
        ];
        assert_eq!(offenders_of(&files), one("methods", "A", 41));
    }

    #[test]
    fn types_of_one_name_in_several_files_are_several() {
        let methods = many(21, "fn f#() {} ");
        let file = format!("pub struct Packet; impl Packet {{ {methods} }}");
        let files = [("src/tcp.rs", file.clone()), ("src/udp/mod.rs", file)];
        assert_eq!(offenders_of(&files), []);
        let more = ("src/udp/more.rs", format!("use super::Packet; impl Packet {{ {methods} }}"));
        let files = [&files[..], &[more]].concat();
        assert_eq!(offenders_of(&files), one("methods", "src/udp/mod.rs:Packet", 42));
    }

    #[test]
    fn folders_of_more_than_15_files_are_above_the_limit() {
        let names: Vec<String> = (0..16).map(|number| format!("src/x/f{number}.rs")).collect();
        let files: Vec<(&str, String)> = names.iter().map(|name| (&**name, String::new())).collect();
        assert_eq!(offenders_of(&files[1..]), []);
        assert_eq!(offenders_of(&files), one("files", "src/x", 16));
    }

    #[test]
    fn files_of_more_than_500_lines_are_above_the_limit() {
        assert_eq!(offenders_of(&[("src/lib.rs", many(500, "// #\n"))]), []);
        assert_eq!(offenders_of(&[("src/lib.rs", many(501, "// #\n"))]), one("lines", "src/lib.rs", 501));
    }

    #[test]
    fn functions_of_more_than_60_lines_are_above_the_limit() {
        let file =
            |lines| [("src/lib.rs", format!("impl A {{\n fn f() {{\n{} }}\n}}", many(lines, "f#();\n")))];
        assert_eq!(offenders_of(&file(58)), []);
        assert_eq!(offenders_of(&file(59)), one("function", "src/lib.rs:A::f", 61));
    }

    fn subject() -> Subject {
        ("lines".to_owned(), "room".to_owned(), "src/a.rs".to_owned())
    }

    #[test]
    fn changed_count_needs_a_changed_line() {
        let lines = exceptions("# why\n\nlines room src/a.rs 600 is split next\n").unwrap();
        let say = |count: Option<usize>| {
            let offenders = count.map(|count| (subject(), count)).into_iter().collect();
            objections(&offenders, &lines).join("\n")
        };
        assert_eq!(say(Some(600)), "");
        assert_eq!(say(Some(601)), "lines room src/a.rs: 601, at most 600");
        assert_eq!(say(Some(599)), "lines room src/a.rs: the line says 600: lower it to 599");
        assert_eq!(say(None), "lines room src/a.rs: needs no line: remove it");
    }

    #[test]
    fn new_offenders_and_second_lines_are_refused() {
        let offenders: Counts = [(subject(), 501)].into();
        assert_eq!(objections(&offenders, &[]), ["lines room src/a.rs: 501, at most 500"]);
        let twice = exceptions("lines room src/a.rs 501 one\nlines room src/a.rs 501 two\n").unwrap();
        assert_eq!(objections(&offenders, &twice), ["lines room src/a.rs: has two lines"]);
    }

    #[test]
    fn printed_lines_keep_their_reasons() {
        let old = exceptions("lines room src/a.rs 600 is split next\n").unwrap();
        let other = ("files".to_owned(), "room".to_owned(), "src".to_owned());
        let offenders: Counts = [(subject(), 599), (other, 16)].into();
        let text = lines(&offenders, &old);
        assert_eq!(text, format!("files room src 16 {NEW}\nlines room src/a.rs 599 is split next\n"));
        assert!(exceptions(&text).is_err(), "a line without a reason counts");
        let reasoned = exceptions(&text.replace(NEW, "why")).unwrap();
        assert_eq!(objections(&offenders, &reasoned), [""; 0]);
    }

    #[test]
    fn lines_without_a_reason_or_of_an_unknown_kind_are_refused() {
        for line in [
            "lines room src/a.rs 600",
            "lines room src/a.rs 600 ",
            "words room a 600 why",
            "lines room a many why",
        ] {
            assert!(exceptions(line).is_err(), "{line:?}");
        }
    }
}
