//! Pages of long lists, each with a link to the next one.

use axum::Json;
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use millrace_controller::{Operation, Page, PageQuery};
use serde::Serialize;

use crate::http::extract::Arguments;
use crate::served::Session;

/// Returns a handler for the operation `O`, which lists many objects and has no arguments. The list is paged,
/// in the order of `key`.
pub(crate) fn pages<O>(
    key: fn(&<O::Answer as IntoIterator>::Item) -> String,
) -> impl Fn(Session, Uri, Arguments<PageQuery>) -> BoxFuture<'static, Response> + Clone
where
    O: Operation<Answer: IntoIterator<Item: Serialize + 'static>> + Default + 'static,
{
    move |session, uri, Arguments(query)| {
        let answer = move |all: O::Answer| Ok(paged(&uri, query.of(all.into_iter().collect(), key)?));
        Box::pin(async move { session.execute_long(O::default(), answer).await })
    }
}

/// Answers with a page of a list, and with a `Link` to the next page.
pub(crate) fn paged<V: Serialize>(uri: &Uri, page: Page<V>) -> Response {
    let mut response = Json(page.rows).into_response();
    if let Some(next) = page.next
        && let Ok(link) = HeaderValue::from_str(&next_page(uri, &next))
    {
        response.headers_mut().insert(header::LINK, link);
    }
    response
}

/// Returns the link to the next page (RFC 8288): the same request with the next cursor.
fn next_page(uri: &Uri, cursor: &str) -> String {
    let kept = uri.query().unwrap_or_default().split('&');
    let kept = kept.filter(|pair| !pair.is_empty() && !pair.starts_with("cursor="));
    let arguments: Vec<String> =
        kept.map(str::to_owned).chain([format!("cursor={}", escaped(cursor))]).collect();
    format!("<{}?{}>; rel=\"next\"", uri.path(), arguments.join("&"))
}

/// Returns a text, percent-encoded as the value of a query argument.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let each = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_asked_for_as_this_one_was() {
        let next = |uri: &str, cursor| next_page(&uri.parse().unwrap(), cursor);
        assert_eq!(
            next("/routes?limit=2", "10.0.0.0/8"),
            "</routes?limit=2&cursor=10.0.0.0%2F8>; rel=\"next\""
        );
        let within = "/routes?within=10.0.0.0%2F8&cursor=a&limit=2";
        assert_eq!(next(within, "b c"), "</routes?within=10.0.0.0%2F8&limit=2&cursor=b%20c>; rel=\"next\"");
    }
}
