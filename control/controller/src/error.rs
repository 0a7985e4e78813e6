//! Errors of control.

use std::error::Error;
use std::ops::RangeInclusive;
use std::{fmt, io};

use millrace_config::{Config, ConfigErrors, Role, Step};
use millrace_store::StoreError;
use millrace_units::{Message, remedy};
use nix::errno::Errno;

/// Reason why a request was refused. The text is one sentence for people: the problem, its place and the
/// remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// Invalid request.
    #[error("{0}")]
    Invalid(Message),
    /// Unusable configuration: all of its problems, with their positions.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// Name in the request that does not exist.
    #[error("{0}")]
    NotFound(Message),
    /// Request that conflicts with the current state.
    #[error("{0}")]
    Conflict(Message),
    /// Conditional request, refused because the current state differs from the expected one.
    #[error("{0}")]
    Changed(String),
    /// Failure of the system.
    #[error("{0}")]
    System(String),
    /// Worker that does not answer in time. The worker still carries out its commands when it resumes.
    #[error("{0}")]
    Silent(String),
    /// Lack of space: the disk is full or read-only, or memory is short. Nothing was changed.
    #[error("{0}")]
    NoRoom(String),
    /// Request that needs a higher role than the caller has: the needed role, and the text of the error.
    #[error("{1}")]
    Forbidden(Role, String),
    /// List with faulty entries; no entry was carried out.
    #[error("{}", .0.message())]
    List(Refused),
}

/// Errors of a refused list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Number of entries of the list.
    pub entries: usize,
    /// Number of faulty entries.
    pub wrong: usize,
    /// First faulty entries: their numbers, counted from 0, and their errors.
    pub errors: Vec<(usize, ControlError)>,
}

impl Refused {
    /// Returns the text for people, with the first error.
    pub fn message(&self) -> Message {
        let Self { entries, wrong, errors } = self;
        let entries = millrace_units::count(*entries, "entry");
        let message = Message::from(format!("{wrong} of {entries} failed, so nothing was changed"));
        match errors.first() {
            Some((entry, error)) => {
                message.text(format!(": entry {entry}, counted from 0: ")).append(error.message())
            }
            None => message,
        }
    }
}

/// Collector of the errors of a list's entries.
#[derive(Clone, Debug, Default)]
pub struct Wrong {
    count: usize,
    errors: Vec<(usize, ControlError)>,
}

impl Wrong {
    /// Maximum number of stored errors; further errors are only counted.
    const NAMED: usize = 100;

    /// Records the error of an entry. Entries may come in any order.
    pub fn note(&mut self, entry: usize, error: ControlError) {
        self.count += 1;
        let at = self.errors.partition_point(|(other, _)| *other <= entry);
        self.errors.insert(at, (entry, error));
        self.errors.truncate(Self::NAMED);
    }

    /// Returns the value of a result, or records its error for the entry and returns `None`.
    pub fn unless<T>(&mut self, entry: usize, result: Result<T, ControlError>) -> Option<T> {
        result.map_err(|error| self.note(entry, error)).ok()
    }

    /// Refuses a list of `entries` entries if an error was recorded.
    pub fn refuse(self, entries: usize) -> Result<(), ControlError> {
        let Self { count: wrong, errors } = self;
        if wrong == 0 { Ok(()) } else { Err(ControlError::List(Refused { entries, wrong, errors })) }
    }
}

/// Outcome of the steps of a change at the workers. A worker that doesn't answer stops no step: it has the command,
/// and carries it out when it resumes. So the model and the commands to workers stay in step.
#[derive(Debug, Default)]
pub(crate) struct Steps(Option<ControlError>);

impl Steps {
    /// Returns the value of a step; `None` if a worker didn't answer.
    ///
    /// # Errors
    /// Returns any other error of the step, which ends the change.
    pub fn note<T>(&mut self, step: Result<T, ControlError>) -> Result<Option<T>, ControlError> {
        match step {
            Ok(value) => Ok(Some(value)),
            Err(error @ ControlError::Silent(_)) => {
                self.0.get_or_insert(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the first error of a worker that didn't answer.
    pub fn end(self) -> Result<(), ControlError> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Collector of the errors found while a configuration is planned.
#[derive(Debug, Default)]
pub(crate) struct Unplannable {
    errors: Vec<ControlError>,
    /// Whether invalid parts of the configuration were left out. They may define names that the rest uses.
    is_rest: bool,
}

impl Unplannable {
    /// Creates a collector for the errors of a configuration.
    pub fn of(config: &Config) -> Self {
        Self { errors: Vec::new(), is_rest: config.is_rest() }
    }

    /// Returns the value of a result, or records its error and returns `None`.
    pub fn unless<T>(&mut self, result: Result<T, ControlError>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }

    /// Returns the value of a result, or records its error at the configuration entry at `path` and returns
    /// `None`. Ignores unknown names if invalid parts of the configuration were left out, because those parts
    /// may define the names.
    pub fn unless_named<T>(
        &mut self,
        result: Result<T, ControlError>,
        config: &Config,
        path: &[Step<'_>],
    ) -> Option<T> {
        match result {
            Err(ControlError::NotFound(_)) if self.is_rest => None,
            other => self.unless(other.map_err(|error| error.placed(config, path))),
        }
    }

    /// Refuses the configuration if an error was recorded.
    ///
    /// # Errors
    /// If an error has no position in the file, returns the first such error. Otherwise returns all errors
    /// with their positions.
    pub fn refuse(self) -> Result<(), ControlError> {
        let (mut placed, mut others) = (Vec::new(), Vec::new());
        for error in self.errors {
            match error {
                ControlError::Config(errors) => placed.push(errors),
                other => others.push(other),
            }
        }
        match others.into_iter().next() {
            Some(other) => Err(other),
            None => ConfigErrors::of(placed).map_or(Ok(()), |errors| Err(errors.into())),
        }
    }
}

impl ControlError {
    /// Creates the error for an invalid request.
    pub fn invalid(problem: impl Into<Message>) -> Self {
        Self::Invalid(problem.into())
    }

    /// Creates the error for a name that does not exist.
    pub fn not_found(problem: impl Into<Message>) -> Self {
        Self::NotFound(problem.into())
    }

    /// Creates the error for a conflict with the current state.
    pub fn conflict(problem: impl Into<Message>) -> Self {
        Self::Conflict(problem.into())
    }

    /// Returns the text for people.
    pub fn message(&self) -> Message {
        match self {
            Self::Invalid(message) | Self::NotFound(message) | Self::Conflict(message) => message.clone(),
            Self::List(list) => list.message(),
            Self::Config(_)
            | Self::Changed(_)
            | Self::System(_)
            | Self::Silent(_)
            | Self::NoRoom(_)
            | Self::Forbidden(..) => self.to_string().into(),
        }
    }

    /// Returns the error for adding a route to a prefix that already has a configured route.
    pub(crate) fn there_is_one(prefix: ipnet::IpNet) -> Self {
        Self::conflict(format!(
            "a configured route to {prefix} exists already: remove it first, or use `route replace`"
        ))
    }

    /// Prefixes the error's text with `what`.
    pub(crate) fn of(self, what: &str) -> Self {
        let of = |message: Message| Message::from(format!("{what}: ")).append(message);
        match self {
            Self::Invalid(message) => Self::Invalid(of(message)),
            Self::NotFound(message) => Self::NotFound(of(message)),
            Self::Conflict(message) => Self::Conflict(of(message)),
            Self::System(text) => Self::System(format!("{what}: {text}")),
            Self::Silent(text) => Self::Silent(format!("{what}: {text}")),
            other => other,
        }
    }

    /// Adds a position in the configuration file: the position of the value at `path`, or of the longest part
    /// of `path` that exists.
    pub(crate) fn placed(self, config: &Config, path: &[Step<'_>]) -> Self {
        match &self {
            Self::Invalid(message) | Self::NotFound(message) | Self::Conflict(message) => {
                config.error_at(path, message.clone()).map_or(self, Self::Config)
            }
            _ => self,
        }
    }

    /// Whether the request was valid but failed: in the system, at a worker, or for lack of space. For a
    /// list, its first error decides.
    pub(crate) fn is_failure(&self) -> bool {
        match self {
            Self::System(_) | Self::Silent(_) | Self::NoRoom(_) => true,
            Self::List(list) => list.errors.first().is_some_and(|(_, error)| error.is_failure()),
            _ => false,
        }
    }

    /// Returns the error for a failed system operation; `what` completes the error text "can't …".
    pub fn system(what: &str, error: impl Error + 'static) -> Self {
        Self::of_system(format!("can't {what}: {error}"), &error)
    }

    /// Returns an error of the system as an error of control, with the same text.
    pub(crate) fn refused(error: impl Error + 'static) -> Self {
        Self::of_system(error.to_string(), &error)
    }

    /// Returns a system error with the given text. Returns [`NoRoom`](Self::NoRoom) if the cause is a full
    /// disk, an exceeded quota or a read-only disk.
    fn of_system(text: String, error: &(dyn Error + 'static)) -> Self {
        let no_room = [libc::ENOSPC, libc::EDQUOT, libc::EROFS];
        let mut cause = Some(error);
        while let Some(error) = cause {
            if os_error(error).is_some_and(|number| no_room.contains(&number)) {
                return Self::NoRoom(text);
            }
            cause = error.source();
        }
        Self::System(text)
    }

    /// Returns a number if it is in the range. `what` names the number in the error.
    ///
    /// # Errors
    /// [`Invalid`](Self::Invalid) with the range.
    pub fn in_range<N: PartialOrd + fmt::Display>(
        what: &str,
        value: N,
        range: RangeInclusive<N>,
    ) -> Result<N, Self> {
        if range.contains(&value) {
            return Ok(value);
        }
        let (least, most) = range.into_inner();
        Err(Self::invalid(format!("{what} must be {least} to {most}, not {value}")))
    }

    /// Returns the error for an unknown `name`. `noun` names the kind of object, and `known` lists the
    /// existing names.
    pub fn unknown<'a>(noun: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        Self::not_found(format!("no {noun} is named {name:?}{}", remedy(noun, name, known)))
    }

    /// Returns the error for an existing port that has no scheduler.
    pub fn no_scheduler(port: &str) -> Self {
        Self::not_found(format!(
            "port {port:?} has no scheduler: `scheduler add {port} NODE --kind fifo` adds one"
        ))
    }
}

/// Returns the number of an error of the operating system; `None` for any other error.
fn os_error(error: &(dyn Error + 'static)) -> Option<i32> {
    let number = error.downcast_ref::<Errno>().map(|error| *error as i32);
    number.or_else(|| error.downcast_ref::<io::Error>()?.raw_os_error())
}

impl From<StoreError> for ControlError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unknown { .. } => Self::not_found(error.to_string()),
            StoreError::Foreign { .. } => Self::conflict(error.to_string()),
            StoreError::File { .. } => Self::refused(error),
        }
    }
}

impl From<millrace_plugin::PluginControlError> for ControlError {
    fn from(error: millrace_plugin::PluginControlError) -> Self {
        use millrace_plugin::PluginControlError as Error;
        let text = error.to_string();
        match error {
            Error::Unknown { .. } | Error::NoMaps { .. } | Error::NotBound { .. } => Self::not_found(text),
            Error::Taken { .. } | Error::OrderTaken { .. } | Error::Bound { .. } | Error::InUse { .. } => {
                Self::conflict(text)
            }
            _ => Self::invalid(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Error of a layer above the operating system. Its cause is an error of the operating system.
    #[derive(Debug, thiserror::Error)]
    #[error("the notebook: {0}")]
    struct Above(#[source] io::Error);

    #[test]
    fn fault_27_full_or_read_only_disk_is_distinguished_from_other_failures() {
        for (number, has_no_room) in
            [(libc::ENOSPC, true), (libc::EDQUOT, true), (libc::EROFS, true), (libc::EIO, false)]
        {
            for error in [
                ControlError::system("write it", io::Error::from_raw_os_error(number)),
                ControlError::system("write it", Above(io::Error::from_raw_os_error(number))),
                ControlError::refused(Errno::from_raw(number)),
            ] {
                assert_eq!(matches!(error, ControlError::NoRoom(_)), has_no_room, "{error}");
            }
        }
        // A file name that contains "os error 28" doesn't count as error number 28.
        let named = ControlError::refused(io::Error::other("\"x (os error 28)\" is no file"));
        assert!(matches!(named, ControlError::System(_)), "{named}");
    }

    #[test]
    fn first_error_of_a_list_decides_its_kind() {
        let list = |error| {
            let mut wrong = Wrong::default();
            wrong.note(0, error);
            wrong.refuse(1).unwrap_err()
        };
        assert!(list(ControlError::NoRoom("full".to_owned())).is_failure());
        assert!(!list(ControlError::invalid("bad")).is_failure());
    }
}
