//! The command `tag`.

use serde_json::json;

use crate::client::Client;
use crate::output::{Failure, done};

/// Prints the tag of a resource.
///
/// # Errors
/// The resource can't be read, or has no tag.
pub fn tag(client: &Client, resource: &str, json: bool) -> Result<(), Failure> {
    let path = format!("/{}", resource.trim_start_matches('/'));
    let Some(tag) = client.tag(&path)? else {
        return Err(Failure::new(format!(
            "{path} has no entity tag: `millrace tag --help` lists the resources that have one"
        )));
    };
    done(&json!({"resource": path, "tag": tag}), &tag, json);
    Ok(())
}
