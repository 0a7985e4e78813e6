//! Executables: programs that contain a plugin. The router runs each instance in a process of its own.

use core::hint::black_box;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

#[doc(hidden)]
pub use millrace_process::Exports;
use millrace_process::{Channel, HOST, serve};

/// Plugin that can be an executable, implemented by [`millrace_plugin!`](crate::millrace_plugin).
#[doc(hidden)]
pub trait Exported {
    /// Returns the functions of the plugin.
    fn exports() -> Exports;
}

/// Defines the main function of an executable, from the type of a plugin. Use it once, in the project's file
/// `src/main.rs`; `millrace plugin build --runtime process` builds the executable.
///
/// ```ignore
/// millrace_sdk::executable!(shaper::Shaper);
/// ```
#[macro_export]
macro_rules! executable {
    ($plugin:ty) => {
        fn main() -> std::process::ExitCode {
            $crate::executable::run::<$plugin>()
        }
    };
}

/// Serves the worker at the other end of the standard output, until the router ends this process.
#[doc(hidden)]
#[must_use]
pub fn run<P: Exported>() -> ExitCode {
    let exports = P::exports();
    // The linker keeps the section with the manifest only if the program uses it.
    black_box(exports.manifest());
    exports.attach(&HOST);
    let channel = Channel::open(std::io::stdout().as_fd());
    let served = channel
        .map_err(|error| [&error, "; only the router starts this program (`millrace plugin load`)"].concat())
        .and_then(|channel| serve(channel, &exports));
    let Err(error) = served;
    let _ = std::io::stderr().write_all(&[error.as_bytes(), b"\n"].concat());
    ExitCode::FAILURE
}

/// Implements [`Exported`] for a plugin, beside the functions of
/// [`__millrace_export`](crate::__millrace_export). Behind the type: the first message of the manifest, its
/// `flow_ends`, `hears` and `state_version`, where given.
#[macro_export]
#[doc(hidden)]
macro_rules! __millrace_exported {
    ($plugin:ty, [$($message:literal)?] [$($flow_ends:tt)?] [$($hears:tt)?] [$($state_version:literal)?]) => {
        impl $crate::executable::Exported for $plugin {
            fn exports() -> $crate::executable::Exports {
                $crate::executable::Exports {
                    periodic: Some(millrace_periodic),
                    $(control: $crate::features::because!(Some(millrace_control), $message),)?
                    $(flow_ended: $crate::executable::when!($flow_ends, millrace_flow_ended),)?
                    $(message: $crate::executable::when!($hears, millrace_message),)?
                    $(
                        save: $crate::features::because!(Some(millrace_save), $state_version),
                        restore: $crate::features::because!(Some(millrace_restore), $state_version),
                    )?
                    ..$crate::executable::Exports::new(
                        millrace_manifest,
                        millrace_attach,
                        millrace_abi,
                        millrace_init,
                        millrace_packets,
                    )
                }
            }
        }
    };
}
#[doc(hidden)]
pub use crate::__millrace_exported as exported;

/// Expands to a function of the plugin, if the manifest declares it.
#[macro_export]
#[doc(hidden)]
macro_rules! __millrace_when {
    (true, $function:ident) => {
        Some($function)
    };
    (false, $function:ident) => {
        None
    };
}
#[doc(hidden)]
pub use crate::__millrace_when as when;
