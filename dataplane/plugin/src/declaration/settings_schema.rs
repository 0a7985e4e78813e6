//! Settings schema of a plugin. The schema of an untrusted plugin must not take much time or memory.

use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};

/// Maximum number of parts of a schema. A part counts again for each reference that leads to it. A schema
/// without references always has fewer parts, because the size of manifests is limited.
const MOST_PARTS: usize = 1 << 16;
/// Maximum nesting depth of a schema, with references followed.
const MOST_DEPTH: usize = 128;
/// Maximum bytes of a compiled pattern.
const MOST_PATTERN: usize = 1 << 18;
/// Maximum number of patterns, with references followed.
const MOST_PATTERNS: usize = 256;
/// Supported dialect of JSON Schema.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Compiles a schema into a validator. The error text is a predicate: the caller puts "its settings schema"
/// before it.
pub(crate) fn compile(schema: &Map<String, Value>) -> Result<Validator, String> {
    let schema = Value::Object(schema.clone());
    Walk { schema: &schema, left: MOST_PARTS, patterns: MOST_PATTERNS }.follow(&schema, MOST_DEPTH)?;
    let patterns = PatternOptions::fancy_regex().size_limit(MOST_PATTERN);
    jsonschema::options().with_pattern_options(patterns).build(&schema).map_err(|error| {
        format!("is not a valid JSON Schema: at {:?}: {error}", error.instance_path().to_string())
    })
}

/// Walk through a schema. Like a validation of settings, the walk follows references.
struct Walk<'a> {
    schema: &'a Value,
    /// Number of parts that the walk may still visit.
    left: usize,
    /// Number of patterns that the walk may still visit.
    patterns: usize,
}

impl<'a> Walk<'a> {
    fn follow(&mut self, part: &'a Value, depth: usize) -> Result<(), String> {
        let Some(left) = self.left.checked_sub(1).filter(|_| depth > 0) else {
            return Err(format!(
                "is too large: it has more than {MOST_PARTS} parts or {MOST_DEPTH} levels with its references \
                 followed"
            ));
        };
        self.left = left;
        match part {
            Value::Object(members) => {
                members.iter().try_for_each(|(key, value)| self.follow_member(key, value, depth))
            }
            Value::Array(items) => items.iter().try_for_each(|item| self.follow(item, depth - 1)),
            _ => Ok(()),
        }
    }

    fn follow_member(&mut self, key: &str, value: &'a Value, depth: usize) -> Result<(), String> {
        match (key, value) {
            // The values of these keywords are data, not schemas.
            ("const" | "default" | "enum" | "examples", _) => Ok(()),
            // The keys of these objects are names, not keywords.
            ("properties" | "patternProperties" | "dependentSchemas" | "$defs", Value::Object(parts)) => {
                let patterns = if key == "patternProperties" { parts.len() } else { 0 };
                self.count_patterns(patterns)?;
                parts.values().try_for_each(|part| self.follow(part, depth - 1))
            }
            ("pattern", _) => self.count_patterns(1),
            // Reject other references. The validator decodes percent signs, and resolves references against
            // the nearest `$id`. Therefore it would reach a different part than this walk.
            ("$ref", Value::String(to)) => {
                let pointer = to.strip_prefix('#').filter(|pointer| !pointer.contains('%'));
                let target = pointer.and_then(|pointer| self.schema.pointer(pointer));
                let target = target.ok_or_else(|| {
                    format!("refers to {to:?}, which it lacks: write references as #/$defs/NAME")
                })?;
                self.follow(target, depth - 1)
            }
            ("$id", _) => Err("has the keyword $id: remove it".to_owned()),
            ("$schema", dialect) if dialect != DIALECT => {
                Err(format!("has the dialect {dialect}: write JSON Schema 2020-12, or remove $schema"))
            }
            ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                Err(format!("has the keyword {key}: write $ref instead"))
            }
            // Each level of these keywords would double the time to check settings.
            ("unevaluatedProperties" | "unevaluatedItems", _) if depth < MOST_DEPTH => {
                Err(format!("has the keyword {key} below its top level: remove it there"))
            }
            _ => self.follow(value, depth - 1),
        }
    }

    fn count_patterns(&mut self, count: usize) -> Result<(), String> {
        let left = self.patterns.checked_sub(count);
        self.patterns = left.ok_or_else(|| {
            format!("has more than {MOST_PATTERNS} patterns with its references followed: remove some")
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns whether a schema accepts `settings`, or the problem of the schema.
    fn accepts(schema: Value, settings: Value) -> Result<bool, String> {
        compile(schema.as_object().unwrap()).map(|schema| schema.is_valid(&settings))
    }

    fn problem(schema: Value) -> String {
        accepts(schema, json!({})).unwrap_err()
    }

    #[test]
    fn references_to_definitions_are_followed() {
        let schema = json!({"properties": {"a": {"$ref": "#/$defs/small"}, "b": {"$ref": "#/$defs/small"}},
            "unevaluatedProperties": false, "$defs": {"small": {"maximum": 9}}});
        assert_eq!(accepts(schema.clone(), json!({"a": 9, "b": 1})), Ok(true));
        assert_eq!(accepts(schema.clone(), json!({"b": 10})), Ok(false));
        assert_eq!(accepts(schema, json!({"c": 1})), Ok(false));
    }

    #[test]
    fn a_schema_whose_references_double_the_work_is_refused() {
        let to = |next: usize| json!({"$ref": format!("#/$defs/{next}")});
        let twice = |at: usize| (at.to_string(), json!({"allOf": [to(at + 1), to(at + 1)]}));
        let mut definitions: Map<String, Value> = (0..40).map(twice).collect();
        definitions.insert("40".to_owned(), json!({}));
        assert!(problem(json!({"$ref": "#/$defs/0", "$defs": definitions})).starts_with("is too large"));
    }

    #[test]
    fn a_schema_that_refers_to_itself_is_refused() {
        assert!(problem(json!({"$ref": "#"})).starts_with("is too large"));
        let inner = json!({"properties": {"inner": {"$ref": "#"}, "other": {"$ref": "#"}}});
        assert!(problem(inner).starts_with("is too large"));
        assert!(problem(json!({"$dynamicRef": "#"})).starts_with("has the keyword $dynamicRef"));
        assert!(problem(json!({"$ref": "#/$defs/none"})).starts_with("refers to \"#/$defs/none\""));
    }

    #[test]
    fn keywords_that_double_the_work_at_each_level_are_refused() {
        let level = |below, _| json!({"unevaluatedProperties": {"type": "string"}, "allOf": [below]});
        let found = problem((0..40).fold(json!({}), level));
        assert!(found.starts_with("has the keyword unevaluatedProperties"), "{found}");
        assert_eq!(accepts(level(json!({}), 0), json!({"a": "b"})), Ok(true));
    }

    #[test]
    fn references_that_the_validator_reads_in_another_way_are_refused() {
        let twice = json!({"allOf": [{"$ref": "#/$defs/%31"}, {"$ref": "#/$defs/%31"}]});
        let encoded = json!({"$ref": "#/$defs/%30", "$defs": {"%30": {}, "%31": {}, "0": twice, "1": {}}});
        assert!(problem(encoded).starts_with("refers to \"#/$defs/%3"));
        let based = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$id": "b", "$defs": {"a": {}}}}});
        assert!(problem(based).starts_with("has the keyword $id"));
        let old = json!({"$schema": "http://json-schema.org/draft-04/schema#"});
        assert!(problem(old).starts_with("has the dialect \"http://json-schema.org/draft-04"));
        assert_eq!(accepts(json!({"$schema": DIALECT}), json!({})), Ok(true));
    }

    #[test]
    fn names_and_values_of_settings_are_not_keywords() {
        let schema = json!({"properties": {
            "unevaluatedItems": {"type": "integer"}, "$ref": {"default": {"$ref": "x"}, "enum": [{"$id": 1}]}}});
        assert_eq!(accepts(schema, json!({"unevaluatedItems": 1})), Ok(true));
    }

    #[test]
    fn many_patterns_are_refused() {
        let properties =
            |count: usize| (0..count).map(|at| (at.to_string(), json!({"pattern": format!("^{at}$")})));
        let schema = |count| json!({"properties": properties(count).collect::<Map<_, _>>()});
        assert_eq!(accepts(schema(MOST_PATTERNS), json!({"1": "1"})), Ok(true));
        assert!(problem(schema(MOST_PATTERNS + 1)).starts_with("has more than 256 patterns"));
    }

    #[test]
    fn a_pattern_that_takes_much_memory_is_refused() {
        let schema = |count: usize| json!({"properties": {"a": {"pattern": format!("^\\w{{{count}}}$")}}});
        assert_eq!(accepts(schema(3), json!({"a": "bcd"})), Ok(true));
        assert!(
            problem(schema(60_000)).starts_with("is not a valid JSON Schema: at \"/properties/a/pattern\"")
        );
    }
}
