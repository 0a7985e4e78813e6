use futures_util::StreamExt;
use millrace_telemetry::{EventLog, MOST_EVENTS, Occurrence};

use super::*;

fn noted(events: &Events, count: u64) {
    for number in 0..count {
        // Each event has its own subject, so that no events are combined. Each kind has up to 16 events,
        // because the event log distinguishes only 16 subjects of a kind.
        let kind = EventKind::ALL[number as usize / 16];
        events.note(kind, &format!("s{number}"), "it happened", json!({"number": number}));
    }
}

/// Returns the text of all messages of a follower, until the follower has no further message for 100 ms.
async fn heard(events: &Events, query: EventQuery) -> String {
    let (_end, ending) = watch::channel(false);
    let follower = Follower::new(events.clone(), query, Ending(ending));
    let mut body = as_events(follower, (), |messages| messages).into_body().into_data_stream();
    let mut text = String::new();
    while let Ok(Some(Ok(bytes))) = tokio::time::timeout(Duration::from_millis(100), body.next()).await {
        text += std::str::from_utf8(&bytes).unwrap();
    }
    text
}

fn ids(text: &str) -> Vec<u64> {
    text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect()
}

#[tokio::test]
async fn follower_reads_events_after_its_last_event() {
    let events = Events::default();
    noted(&events, 100);
    let since = EventQuery { since: Some(20), ..EventQuery::default() };
    let text = heard(&events, since).await;
    assert_eq!(ids(&text), (21..=100).collect::<Vec<_>>());
    assert!(text.contains("event: link-up\n") && text.contains(r#""count":1"#), "{text}");
    assert!(!text.contains("missed"));
    let last = EventQuery { last: Some(3), ..EventQuery::default() };
    assert_eq!(ids(&heard(&events, last).await), [98, 99, 100]);
    assert_eq!(ids(&heard(&events, EventQuery::default()).await), [0; 0], "old ones are not asked for");
    let kinds = vec![EventKind::ALL[1]];
    let one_kind = EventQuery { since: Some(0), kinds, ..EventQuery::default() };
    assert_eq!(ids(&heard(&events, one_kind).await), (17..=32).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_follower_hears_at_once_and_ends_with_the_router() {
    let events = Events::default();
    let (end, ending) = watch::channel(false);
    let mut follower = Follower::new(events.clone(), EventQuery::default(), Ending(ending));
    assert!(follower.next().await.is_some());
    let waiting = tokio::spawn(async move {
        let first = follower.next().await.is_some();
        (first, follower.next().await.is_some())
    });
    tokio::task::yield_now().await;
    noted(&events, 1);
    tokio::time::sleep(Duration::from_millis(20)).await;
    end.send_replace(true);
    let ended = tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap();
    assert_eq!(ended, (true, false));
}

#[tokio::test]
async fn late_follower_gets_the_number_of_discarded_events() {
    let mut log = EventLog::default();
    let all = MOST_EVENTS as u64 + 100;
    for number in 0..all {
        let (kind, subject, text) = (EventKind::LinkUp, "lan".to_owned(), String::new());
        // Events two seconds apart are not merged into one entry.
        log.note(Occurrence { kind, subject, text, details: serde_json::Map::new() }, 2000 * number);
    }
    let events = Events::from(log);
    let text = heard(&events, EventQuery { since: Some(40), ..EventQuery::default() }).await;
    assert!(text.contains("event: missed\ndata: {\"missed\":60}\n"), "{}", &text[..500]);
    assert_eq!(ids(&text), (101..=all).collect::<Vec<_>>(), "the others are all heard");
}

#[test]
fn kinds_are_parsed_and_unknown_kinds_named() {
    assert_eq!(kinds(Some("link-up,link-down")).unwrap(), [EventKind::LinkUp, EventKind::LinkDown]);
    assert!(kinds(Some("link-upp")).unwrap_err().detail.to_string().contains("did you mean \"link-up\"?"));
    assert!(kinds(None).unwrap().is_empty());
}

#[test]
fn streams_go_to_clients_that_accept_them() {
    let headers =
        |accept: &str| HeaderMap::from_iter([(axum::http::header::ACCEPT, accept.parse().unwrap())]);
    assert!(accepts_stream(&headers("text/event-stream")));
    assert!(accepts_stream(&headers("application/json, text/event-stream;q=0.9")));
    assert!(!accepts_stream(&headers("*/*")));
    assert!(!accepts_stream(&HeaderMap::new()));
}
