//! The commands `router` and `neighbour`.

use hyper::Method;
use serde_json::{Value, json};

use crate::arguments::{NeighbourAction, Noun, RouterAction};
use crate::client::Client;
use crate::commands::admission::{trial, tried};
use crate::commands::nouns::describe;
use crate::output::{Failure, as_in_file, done, plain, print};
use crate::pairs::changes;

/// Shows and changes router-wide settings.
pub fn router(client: &Client, action: &RouterAction, json: bool) -> Result<(), Failure> {
    match action {
        RouterAction::Show => {
            let settings = client.get("/router")?;
            print(&if json { settings } else { as_in_file(settings) }, "", json);
        }
        RouterAction::Set { settings, dry_run } => {
            let body = Value::Object(changes(settings)?);
            let value = client.send(Method::PATCH, &format!("/router{}", trial(*dry_run)), Some(&body))?;
            if *dry_run {
                tried(&value, json);
                return Ok(());
            }
            done(&value, &format!("router settings changed: {}", settings.join(" ")), json);
        }
    }
    Ok(())
}

/// Adds, removes and lists neighbours.
pub fn neighbour(client: &Client, action: &NeighbourAction, json: bool) -> Result<(), Failure> {
    match action {
        NeighbourAction::Add { port, address, mac } => {
            let body = json!({"port": port, "address": address, "mac": mac});
            let value = client.send(Method::POST, "/neighbours", Some(&body))?;
            done(
                &value,
                &format!("neighbour {address} added at port {port}, MAC {}", plain(&value["mac"])),
                json,
            );
        }
        NeighbourAction::Remove { port, address } => {
            let body = json!({"port": port, "address": address});
            let value = client.send(Method::DELETE, "/neighbours", Some(&body))?;
            done(
                &value,
                &format!(
                    "neighbour {address} removed at port {port}; the router resolves it again when needed"
                ),
                json,
            );
        }
        NeighbourAction::List => print(&client.get("/neighbours")?, describe(Noun::Neighbours).columns, json),
    }
    Ok(())
}
