//! Plugins that tests build with the plugin kit.

use std::path::Path;

pub use millrace_kit::{Built, Format, Options};
use millrace_kit::{KitError, Progress, build};

use crate::ground::skip;

/// Builds a plugin project for a runtime. Without a compiler for the runtime, prints the reason and returns
/// `None`.
///
/// # Panics
/// The compiler rejects the project, or there is no compiler and `CI=true`.
pub fn built_plugin(project: &Path, format: Format, options: &Options) -> Option<Built> {
    let mut show = |progress: Progress<'_>| match progress {
        Progress::Step(text) => println!("{text}"),
        Progress::Output(line) => println!("    {line}"),
    };
    match build(project, format, options, &mut show) {
        Ok(built) => {
            println!("{}: {} bytes", built.file.display(), built.bytes);
            Some(built)
        }
        Err(error @ KitError::Missing { .. }) => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{}: {error}", project.display()),
    }
}
