//! The commands that show what is, and what happens.

use clap::{Args, ValueEnum};

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Seconds between two looks, 0.5 to 60.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
}

/// Arguments of `events`.
#[derive(Debug, Args)]
pub struct Events {
    /// Go on with those that come, until it is interrupted or the router ends.
    #[arg(long, short)]
    pub follow: bool,
    /// Those with higher numbers than this one.
    #[arg(long, value_name = "NUMBER", conflicts_with = "last")]
    pub since: Option<u64>,
    /// The last ones, so many. Default: 50; with --follow none.
    #[arg(long, value_name = "COUNT")]
    pub last: Option<u32>,
    /// Those of this kind; may be given several times.
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<String>,
}

impl Events {
    /// How many of the last ones are printed, if nothing is said.
    pub const LAST: u32 = 50;
}

/// Arguments of `audit`.
#[derive(Debug, Args)]
pub struct Audit {
    /// The last lines, so many: 1 to 10,000.
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub last: u32,
}

/// Arguments of `rates`.
#[derive(Debug, Args)]
pub struct Rates {
    /// How often in a second, 1 to 10.
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=10))]
    pub hz: u8,
    /// End after so many.
    #[arg(long, value_name = "COUNT")]
    pub count: Option<u64>,
}

/// Arguments of `show`.
#[derive(Debug, Args)]
pub struct Show {
    /// What to show.
    pub noun: Noun,
}

/// What can be shown.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Noun {
    /// Ports with counters and rates.
    Ports,
    /// Processors, ports and switches, what each can do, and the tree that they are.
    Hardware,
    /// Routes, mirrored and our own.
    Routes,
    /// Neighbours of the ports.
    Neighbours,
    /// Plugin instances and what they are bound to.
    Instances,
    /// Gates and what is bound there.
    Gates,
    /// Plugins that instances can be made of.
    Plugins,
    /// Instances that a call of theirs has ended the router for.
    Quarantine,
    /// What became of all packets.
    Summary,
    /// What was dropped, and why.
    Drops,
    /// The daemon itself.
    Status,
    /// Bindings of instances and of other actions.
    Bindings,
    /// What runs, as the text of a configuration.
    Configuration,
    /// What the interface has: paths and methods.
    Interface,
    /// The interface described in OpenAPI, as JSON.
    Openapi,
}

impl Noun {
    /// The resource of the interface that holds it.
    pub fn path(self) -> &'static str {
        match self {
            Self::Ports => "/ports",
            Self::Hardware => "/hardware",
            Self::Routes => "/routes",
            Self::Neighbours => "/neighbours",
            Self::Instances => "/instances",
            Self::Gates => "/gates",
            Self::Plugins => "/plugins",
            Self::Quarantine => "/quarantine",
            Self::Summary => "/summary",
            Self::Drops => "/drops",
            Self::Status => "/status",
            Self::Bindings => "/bindings",
            Self::Configuration => "/configuration",
            Self::Interface => "/",
            Self::Openapi => "/openapi.json",
        }
    }
}

/// Seconds between two looks.
pub(super) fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.5..=60.0).contains(seconds));
    seconds.ok_or_else(|| "seconds from 0.5 to 60 are right".to_owned())
}
