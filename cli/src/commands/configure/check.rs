//! The command `check`.

use std::path::Path;

use millrace_config::Config;
use millrace_controller::ControlError;
use millrace_units::count;
use serde_json::{Value, json};

use crate::arguments::Check;
use crate::output::{Failure, say};

/// Reads a configuration file.
///
/// # Errors
/// The file can't be read, or has errors.
pub fn read(file: &Path) -> Result<Config, Failure> {
    let text = crate::output::read(file)?;
    Ok(Config::parse_further(&text, &file.display().to_string(), millrace_controller::check_rest)?)
}

/// Reads a configuration file, and checks that a router can be built from it. Also returns the filters that
/// never win.
fn checked(file: &Path) -> Result<(Config, Value), Failure> {
    let config = read(file)?;
    let shadowed = millrace_controller::check(&config).map_err(|error| match error {
        // The error already names the file.
        ControlError::Config(wrong) => Failure::from(wrong),
        error => Failure::new(format!("{}: {error}", file.display())),
    })?;
    Ok((config, json!(shadowed)))
}

/// Checks a configuration, or prints the schema.
pub fn check(check: &Check, json: bool) -> Result<(), Failure> {
    if check.schema {
        say!("{:#}", Config::schema());
        return Ok(());
    }
    let Some(file) = &check.file else {
        return Err(Failure::usage("give a configuration file, or --schema"));
    };
    let (config, shadowed) = checked(file).inspect_err(|failure| {
        if json && failure.wrong > 0 {
            say!("{:#}", json!({"valid": false, "wrong": failure.wrong, "errors": failure.errors}));
        }
    })?;
    let (ports, routes) = (config.port.len(), config.route.len());
    let (bindings, filters) = (config.bind.len(), config.filter.len());
    if json {
        let valid = json!({
            "valid": true, "ports": ports, "routes": routes, "bindings": bindings, "filters": filters,
            "shadowed": shadowed,
        });
        say!("{valid:#}");
    } else {
        say!(
            "{} is valid: {}, {}, {}, {}",
            file.display(),
            count(ports, "port"),
            count(routes, "route"),
            count(bindings, "binding"),
            count(filters, "filter")
        );
    }
    crate::commands::forwarding::filter::warn_never_winning(&shadowed);
    Ok(())
}
