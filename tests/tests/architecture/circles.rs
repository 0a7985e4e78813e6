//! Circular dependencies between the modules of a crate.
//!
//! Two dependencies are no circle: a module contains its children, and a child may use declarations of its
//! parent. Siblings form a circle if each needs the other, directly or through modules below them. Use of a
//! re-exported name counts as use of the module that declares it.

use std::collections::{BTreeMap, BTreeSet};

use super::items::{Items, Use};

/// Module path: the names from the root of the crate.
type Path = Vec<String>;
/// Maximum number of re-exports that the search follows for a name.
const STEPS: usize = 8;

/// Modules of a crate, by their paths.
#[derive(Debug, Default)]
pub struct Modules {
    files: BTreeMap<Path, (Vec<Use>, Vec<Path>)>,
}

impl Modules {
    /// Adds the file of a module; `file` is its path from the crate's folder `src`.
    pub fn add(&mut self, file: &str, items: &Items) {
        let name = file.trim_end_matches(".rs");
        let mut path: Path = name.split('/').map(str::to_owned).collect();
        if path.last().is_some_and(|last| matches!(&**last, "mod" | "lib" | "main")) {
            path.pop();
        }
        let (uses, paths) = self.files.entry(path).or_default();
        uses.extend_from_slice(&items.uses);
        paths.extend_from_slice(&items.paths);
    }

    /// Returns the modules that are part of a circle, by their parent module.
    pub fn circles(&self) -> BTreeMap<Path, Vec<String>> {
        let mut arrows: BTreeMap<Path, BTreeSet<(String, String)>> = BTreeMap::new();
        for (from, (uses, paths)) in &self.files {
            for path in uses.iter().map(|one| &one.path).chain(paths) {
                let Some(to) = self.resolve(from, path, STEPS) else { continue };
                let common = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
                if let (Some(one), Some(other)) = (from.get(common), to.get(common)) {
                    let siblings = arrows.entry(from[..common].to_vec()).or_default();
                    siblings.insert((one.clone(), other.clone()));
                }
            }
        }
        let circles = arrows.into_iter().map(|(parent, arrows)| (parent, in_circles(&arrows)));
        circles.filter(|(_, names)| !names.is_empty()).collect()
    }

    /// Returns the module to which a path in module `from` leads; `None` for a path into another crate.
    fn resolve(&self, from: &Path, path: &[String], steps: usize) -> Option<Path> {
        let first = path.first()?;
        let mut module = match &**first {
            "crate" => Path::new(),
            "self" | "super" => from.clone(),
            // The path leads to a child of the module itself.
            _ => [from.as_slice(), std::slice::from_ref(first)].concat(),
        };
        if !self.files.contains_key(&module) {
            return None;
        }
        for (index, segment) in path.iter().enumerate() {
            match &**segment {
                "super" => _ = module.pop(),
                "crate" | "self" => {}
                _ if index == 0 => {}
                name => {
                    let child = [module.as_slice(), std::slice::from_ref(segment)].concat();
                    if !self.files.contains_key(&child) {
                        return Some(self.follow(&module, name, steps).unwrap_or(module));
                    }
                    module = child;
                }
            }
        }
        Some(module)
    }

    /// Returns the module that declares a name re-exported by `module`.
    fn follow(&self, module: &Path, name: &str, steps: usize) -> Option<Path> {
        let (uses, _) = self.files.get(module)?;
        let given = uses.iter().find(|one| one.name == name)?;
        self.resolve(module, &given.path, steps.checked_sub(1)?)
    }
}

/// Returns the names that are part of a circle of dependencies. Each pair in `arrows` depends from its first
/// on its second name.
fn in_circles(arrows: &BTreeSet<(String, String)>) -> Vec<String> {
    let names: BTreeSet<&String> = arrows.iter().map(|(from, _)| from).collect();
    let leads_back = |name: &&String| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![*name]);
        while let Some(from) = next.pop() {
            let targets = arrows.iter().filter(|(one, _)| one == from).map(|(_, to)| to);
            next.extend(targets.filter(|to| reached.insert(*to)).collect::<Vec<_>>());
        }
        reached.contains(*name)
    };
    names.into_iter().filter(leads_back).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::items::items;

    fn circles(files: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
        let mut modules = Modules::default();
        files.iter().for_each(|(file, source)| modules.add(file, &items(source)));
        modules.circles().into_iter().map(|(parent, names)| (parent.join("::"), names)).collect()
    }

    #[test]
    fn two_modules_that_need_each_other_are_a_circle() {
        let files =
            [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "fn f() { super::a::g() }")];
        assert_eq!(circles(&files), [(String::new(), vec!["a".to_owned(), "b".to_owned()])]);
        let files = [("lib.rs", ""), ("a.rs", "use crate::b::B;"), ("b.rs", "use std::a::A;")];
        assert_eq!(circles(&files), []);
    }

    #[test]
    fn a_circle_through_three_and_through_deeper_modules_is_found() {
        let files = [
            ("lib.rs", ""),
            ("x/mod.rs", ""),
            ("x/a.rs", "use super::b;"),
            ("x/b/mod.rs", ""),
            ("x/b/deep.rs", "use crate::x::c::C;"),
            ("x/c.rs", "use super::a::A;"),
            ("y.rs", "use crate::x::a::A;"),
        ];
        assert_eq!(circles(&files), [("x".to_owned(), ["a", "b", "c"].map(str::to_owned).to_vec())]);
    }

    #[test]
    fn parents_and_their_children_are_no_circle() {
        let files = [("lib.rs", "mod a; use a::A; struct B;"), ("a.rs", "use crate::B; use super::B as C;")];
        assert_eq!(circles(&files), []);
    }

    #[test]
    fn name_exported_by_the_parent_resolves_to_its_module() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::A; pub use self::b::{inner::B};"),
            ("a.rs", "use crate::B;"),
            ("b.rs", "use super::A;"),
            ("b/inner.rs", ""),
        ];
        assert_eq!(circles(&files), [(String::new(), vec!["a".to_owned(), "b".to_owned()])]);
    }

    #[test]
    fn tests_make_no_circle() {
        let files = [
            ("lib.rs", ""),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "#[cfg(test)] mod tests { use crate::a::A; }"),
        ];
        assert_eq!(circles(&files), []);
    }
}
