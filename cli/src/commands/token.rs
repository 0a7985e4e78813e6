//! The command `token`.

use hyper::Method;
use serde_json::json;

use crate::arguments::{Noun, TokenAction, word};
use crate::client::{Client, segment};
use crate::commands::nouns::describe;
use crate::output::{Failure, done, plain, print, say};

/// Creates, lists and revokes tokens.
pub fn token(client: &Client, action: &TokenAction, json: bool) -> Result<(), Failure> {
    match action {
        TokenAction::Create { name, role, expires } => {
            let role = word(*role);
            let body = json!({"name": name, "role": role, "expires": expires});
            let made = client.send(Method::POST, "/tokens", Some(&body))?;
            if json {
                say!("{made:#}");
                return Ok(());
            }
            // The token is alone on standard output, so that it can be redirected to a file.
            say!("{}", plain(&made["token"]));
            eprintln!("token {name}, role {role}: store it now, because it is not shown again");
        }
        TokenAction::List => {
            let all = client.get("/tokens")?;
            print(&all, describe(Noun::Tokens).columns, json);
        }
        TokenAction::Revoke { name } => {
            let gone = client.send(Method::DELETE, &format!("/tokens/{}", segment(name)), None)?;
            done(&gone, &format!("token {name} revoked"), json);
        }
    }
    Ok(())
}
