//! Shortening of texts and requests for the audit log. Otherwise, long requests would fill the log and displace the
//! lines of other users.

use serde_json::{Map, Value};

/// Maximum length of a text, in characters.
const MOST_TEXT: usize = 200;
/// Maximum number of items of a list.
const MOST_ENTRIES: usize = 20;
/// Maximum length of a request, in bytes of JSON.
const MOST_REQUEST: usize = 4096;
/// Maximum length of a character in JSON, in bytes: `\u0001`.
const MOST_CHARACTER: usize = 6;
/// Room in bytes for the brackets of a list and the number of its missing items, or for the length of a text.
const FRAME: usize = 48;

/// Returns a text with at most 200 characters of the original, and the original length if they are fewer than all.
pub(crate) fn shortened(text: &str) -> String {
    cut(text, MOST_TEXT)
}

/// Returns a request with long texts and lists shortened. It has at most 4 KiB of JSON.
pub(crate) fn short_request(request: Value) -> Value {
    fit(request, MOST_REQUEST)
}

/// Shortens a value to `room` bytes of JSON, or to a mark of 5 bytes.
fn fit(value: Value, room: usize) -> Value {
    let fitted = match value {
        Value::String(text) => Value::String(fit_text(&text, room)),
        Value::Array(entries) if room >= FRAME => fit_list(entries, room - FRAME),
        Value::Object(keys) if room >= FRAME => fit_keys(keys, room - FRAME),
        other => other,
    };
    if length(&fitted) <= room { fitted } else { Value::String("…".to_owned()) }
}

/// Returns the first entries of a list that have room, and the number of the others.
fn fit_list(entries: Vec<Value>, mut room: usize) -> Value {
    let (all, mut kept) = (entries.len(), Vec::new());
    for entry in entries.into_iter().take(MOST_ENTRIES) {
        if room < FRAME {
            break;
        }
        // One byte is for the comma.
        let entry = fit(entry, room - 1);
        room = room.saturating_sub(length(&entry) + 1);
        kept.push(entry);
    }
    let more = all - kept.len();
    if more > 0 {
        kept.push(Value::String(format!("… and {more} more")));
    }
    Value::Array(kept)
}

/// Returns the first keys of an object that have room, and the number of the others.
fn fit_keys(keys: Map<String, Value>, mut room: usize) -> Value {
    let (all, mut kept) = (keys.len(), Map::new());
    for (key, value) in keys.into_iter().take(MOST_ENTRIES) {
        if room < FRAME {
            break;
        }
        let key = fit_text(&key, room / 2);
        // Two bytes are for colon and comma.
        room = room.saturating_sub(text_length(&key) + 2);
        let value = fit(value, room);
        room = room.saturating_sub(length(&value));
        kept.insert(key, value);
    }
    let more = all - kept.len();
    if more > 0 {
        kept.insert("…".to_owned(), Value::String(format!("and {more} more")));
    }
    Value::Object(kept)
}

/// Shortens a text to 200 characters and `room` bytes of JSON, but not below [`FRAME`].
fn fit_text(text: &str, room: usize) -> String {
    let kept = shortened(text);
    match text_length(&kept) <= room {
        true => kept,
        false => cut(text, room.saturating_sub(FRAME) / MOST_CHARACTER),
    }
}

/// Returns the first `most` characters of a text, and its length if it has more.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

/// Returns the length of a value in bytes of JSON.
fn length(value: &Value) -> usize {
    value.to_string().len()
}

/// Returns the length of a text in bytes of JSON.
fn text_length(text: &str) -> usize {
    length(&Value::from(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns `inner` in lists or objects of `width` items, `depth` deep.
    fn nested(inner: &Value, width: usize, depth: usize, has_keys: bool) -> Value {
        if depth == 0 {
            return inner.clone();
        }
        let below = nested(inner, width, depth - 1, has_keys);
        match has_keys {
            true => (0..width).map(|number| (format!("key {number}"), below.clone())).collect(),
            false => vec![below; width].into(),
        }
    }

    #[test]
    fn request_of_any_shape_has_at_most_4_kib() {
        let texts = ["x".repeat(150), "\u{1}".repeat(1 << 16), "é\"\\".repeat(99), String::new()];
        let inner = texts.iter().map(|text| json!(text)).chain([json!(1.5e300), json!(null), json!([])]);
        for inner in inner {
            for (width, depth) in [(1_usize, 1), (1, 100), (2, 8), (20, 2), (20, 3), (300, 1), (21, 2)] {
                for has_keys in [true, false] {
                    // As many values as a body has room for.
                    let values = width.pow(depth as u32) * length(&inner);
                    if values > 1 << 20 {
                        continue;
                    }
                    let short = short_request(nested(&inner, width, depth, has_keys));
                    assert!(length(&short) <= MOST_REQUEST, "{width} {depth} {has_keys}: {short}");
                }
            }
        }
        let long = "\u{1}".repeat(300);
        let keys: Map<_, _> = (0..15).map(|key| (format!("{key}{long}"), json!(key))).collect();
        assert!(length(&short_request(keys.into())) <= MOST_REQUEST);
    }

    #[test]
    fn first_entries_of_nested_lists_stay_and_the_others_are_counted() {
        let rows: Vec<_> = (0..20).map(|row| vec![format!("{row:03}{}", "x".repeat(97)); 20]).collect();
        let short = short_request(json!({"rows": rows, "to": "10.0.0.0/8"}));
        let kept = short["rows"].as_array().unwrap();
        assert_eq!(kept[0].as_array().unwrap().len(), 20, "the first row is whole");
        assert!(kept[0][19].as_str().unwrap().starts_with("000xxx"));
        assert_eq!(kept.last().unwrap(), &json!(format!("… and {} more", 20 - (kept.len() - 1))));
        assert!(length(&short) > MOST_REQUEST / 2, "{short}");
    }

    #[test]
    fn short_request_is_unchanged() {
        let request = json!({"to": "10.0.0.0/8", "via": ["10.1.0.9"], "on": {"a": null, "b": []}});
        assert_eq!(short_request(request.clone()), request);
    }
}
