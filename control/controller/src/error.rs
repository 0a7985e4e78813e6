//! Why control could not do what it was asked.

use std::fmt;

use millrace_config::{Config, ConfigErrors, Step};

/// Why a request was refused. The text is one sentence for people: what is wrong, where, what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// A configuration can't be used: all that is wrong with it is said, and where.
    #[error(transparent)]
    Config(ConfigErrors),
    /// Something that the request names does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The request contradicts what is there.
    #[error("{0}")]
    Conflict(String),
    /// What was to be changed is no longer what the request says it is.
    #[error("{0}")]
    Changed(String),
    /// The system refused.
    #[error("{0}")]
    System(String),
    /// A worker takes longer to answer than it ever should. What it was told it still does, once it goes on.
    #[error("{0}")]
    Silent(String),
    /// A disk is full or read-only, or there is no memory: nothing was changed.
    #[error("{0}")]
    NoRoom(String),
    /// Only an administrator may ask for this.
    #[error("{0}")]
    NeedsAdmin(String),
    /// Entries of a list can't be done, so none of them is.
    #[error(transparent)]
    List(Refused),
}

/// What is wrong with a list, of which nothing was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// How many entries it has.
    pub entries: usize,
    /// How many of them are wrong.
    pub wrong: usize,
    /// The first ones that are: their numbers, from 0, and what is wrong.
    pub errors: Vec<(usize, ControlError)>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, wrong, errors } = self;
        let entries = millrace_units::count(*entries, "entry");
        write!(f, "{wrong} of {entries} can't be done, so nothing was changed")?;
        errors.first().map_or(Ok(()), |(entry, error)| write!(f, ": entry {entry}, counted from 0: {error}"))
    }
}

impl std::error::Error for Refused {}

/// Collects what is wrong with the entries of a list.
#[derive(Clone, Debug, Default)]
pub struct Wrong {
    count: usize,
    errors: Vec<(usize, ControlError)>,
}

impl Wrong {
    /// Entries that are named one by one; more are counted.
    const NAMED: usize = 100;

    /// Notes that an entry is wrong. They come in any order.
    pub fn note(&mut self, entry: usize, error: ControlError) {
        self.count += 1;
        let at = self.errors.partition_point(|(other, _)| *other <= entry);
        self.errors.insert(at, (entry, error));
        self.errors.truncate(Self::NAMED);
    }

    /// What an entry became, unless it is wrong.
    pub fn unless<T>(&mut self, entry: usize, result: Result<T, ControlError>) -> Option<T> {
        result.map_err(|error| self.note(entry, error)).ok()
    }

    /// Refuses a list of so many entries if one is wrong.
    ///
    /// # Errors
    /// [`ControlError::List`] then.
    pub fn refuse(self, entries: usize) -> Result<(), ControlError> {
        let Self { count: wrong, errors } = self;
        if wrong == 0 { Ok(()) } else { Err(ControlError::List(Refused { entries, wrong, errors })) }
    }
}

/// Collects what is wrong with a configuration while it is planned.
#[derive(Debug, Default)]
pub(crate) struct Unplannable {
    errors: Vec<ControlError>,
    /// Whether something of it was left out, whose name others may use.
    is_rest: bool,
}

impl Unplannable {
    /// Nothing yet.
    pub fn of(config: &Config) -> Self {
        Self { errors: Vec::new(), is_rest: config.is_rest() }
    }

    /// What something became, unless it is wrong.
    pub fn unless<T>(&mut self, result: Result<T, ControlError>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }

    /// The same of what names others: what is said of a name is so as long as nothing was left out that may have it.
    pub fn unless_named<T>(&mut self, result: Result<T, ControlError>) -> Option<T> {
        let is_of_names = |error: &ControlError| {
            let text = error.to_string();
            ["no instance ", "no gate ", "no port ", "no plugin ", "no queue ", "no node "]
                .iter()
                .any(|words| text.contains(words))
        };
        match result {
            Err(error) if self.is_rest && is_of_names(&error) => None,
            other => self.unless(other),
        }
    }

    /// Refuses the configuration, if something is wrong with it.
    ///
    /// # Errors
    /// All of it, where it is known where in a file it stands; else the first.
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
    /// A route of ours is there already.
    pub(crate) fn there_is_one(prefix: ipnet::IpNet) -> Self {
        Self::Conflict(format!("there is a route of ours to {prefix}: remove it first"))
    }

    /// The same, said of `what`.
    pub(crate) fn of(self, what: &str) -> Self {
        match self {
            Self::Invalid(text) => Self::Invalid(format!("{what}: {text}")),
            Self::NotFound(text) => Self::NotFound(format!("{what}: {text}")),
            Self::Conflict(text) => Self::Conflict(format!("{what}: {text}")),
            Self::System(text) => Self::System(format!("{what}: {text}")),
            Self::Silent(text) => Self::Silent(format!("{what}: {text}")),
            other => other,
        }
    }

    /// The same, with where in a configuration's file stands what is wrong: what these steps lead to, or as far as there is something.
    pub(crate) fn placed(self, config: &Config, path: &[Step<'_>]) -> Self {
        match &self {
            Self::Invalid(text) | Self::NotFound(text) | Self::Conflict(text) => {
                config.error_at(path, text).map_or(self, Self::Config)
            }
            _ => self,
        }
    }

    /// Whether nobody knows what was done: the system or a worker failed in the middle, and nothing was refused.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Self::System(_) | Self::Silent(_) | Self::NoRoom(_))
    }

    /// The system refused to do `what`.
    pub fn system(what: &str, error: impl fmt::Display) -> Self {
        Self::refused(format!("can't {what}: {error}"))
    }

    /// What the system says, as a sentence. That a disk takes nothing is told apart (it is full, what one may have of it is, or it is
    /// read-only), by the number which errors of the system bear through all that they are told by.
    pub(crate) fn refused(text: impl fmt::Display) -> Self {
        let text = text.to_string();
        let no_room = [libc::ENOSPC, libc::EDQUOT, libc::EROFS].map(|number| format!("(os error {number})"));
        match no_room.iter().any(|number| text.contains(number)) {
            true => Self::NoRoom(text),
            false => Self::System(text),
        }
    }

    /// Nothing of kind `noun` has the name `name`; `known` are those that exist.
    pub fn unknown<'a>(noun: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        Self::NotFound(format!("no {noun} is named {name:?}{}", millrace_units::remedy(noun, name, known)))
    }

    /// A port that there is has no scheduler.
    pub fn no_scheduler(port: &str) -> Self {
        Self::NotFound(format!(
            "port {port:?} has no scheduler: `scheduler add {port} NODE --kind fifo` makes one"
        ))
    }
}

impl From<ConfigErrors> for ControlError {
    fn from(error: ConfigErrors) -> Self {
        Self::Config(error)
    }
}

impl From<millrace_plugin::PluginControlError> for ControlError {
    fn from(error: millrace_plugin::PluginControlError) -> Self {
        use millrace_plugin::PluginControlError as Error;
        let text = error.to_string();
        match error {
            Error::Unknown { .. } | Error::NoMaps { .. } | Error::NotBound { .. } => Self::NotFound(text),
            Error::Taken { .. } | Error::OrderTaken { .. } | Error::Bound { .. } | Error::InUse { .. } => {
                Self::Conflict(text)
            }
            _ => Self::Invalid(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use super::*;

    #[test]
    fn fault_27_a_full_or_read_only_disk_is_told_apart_from_other_failures() {
        for (number, has_no_room) in
            [(libc::ENOSPC, true), (libc::EDQUOT, true), (libc::EROFS, true), (libc::EIO, false)]
        {
            let error = ControlError::system("write it", Error::from_raw_os_error(number));
            assert_eq!(matches!(error, ControlError::NoRoom(_)), has_no_room, "{error}");
        }
    }
}
