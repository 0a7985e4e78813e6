//! OpenAPI 3.1 description of the interface, generated from the endpoints and the types of requests and
//! answers.

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::endpoint::{Content, Endpoint, JSON, Resource};
use crate::http::problem::ProblemBody;

/// Path under which the schemas of answers stand.
const SCHEMAS: &str = "/components/schemas";

/// Returns the description of resources.
pub(crate) fn document(resources: &[Resource]) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut answers = settings.with(|settings| settings.definitions_path = SCHEMAS.into()).into_generator();
    // Schemas of requests are inline, because a type may have another schema in answers.
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let mut requests = settings.with(|settings| settings.inline_subschemas = true).into_generator();
    let problem = answers.subschema_for::<ProblemBody>();
    let mut paths = Map::new();
    for resource in resources {
        let mut item = Map::new();
        let names = path_parameters(resource.path);
        if !names.is_empty() {
            item.insert("parameters".into(), names.into());
        }
        for endpoint in &resource.endpoints {
            let described = describe(resource.path, endpoint, &mut answers, &mut requests);
            item.insert(endpoint.method.to_lowercase(), described);
        }
        paths.insert(resource.path.into(), item.into());
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Millrace",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The interface of a running router.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The router's Unix socket, or where it listens with TLS."}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {
                "type": "http", "scheme": "bearer",
                "description": "A token, as `millrace token create` tells it once. It has a role: `viewer`, `operator`, which may do all that \
                    `viewer` may, or `admin`, which may do everything. At the Unix socket no token is needed: what a user may do there \
                    depends on the user.",
            }},
            "schemas": answers.take_definitions(true),
            "responses": {"Problem": {
                "description": "Why it was not done.",
                "content": {"application/problem+json": {"schema": problem}},
            }},
        },
    })
}

fn describe(
    path: &str,
    endpoint: &Endpoint,
    answers: &mut SchemaGenerator,
    requests: &mut SchemaGenerator,
) -> Value {
    let mut parameters = endpoint.arguments.map_or_else(Vec::new, |describe| arguments(describe(requests)));
    parameters.extend(headers(endpoint));
    let answer = answer(endpoint, answers);
    let problem = json!({"$ref": "#/components/responses/Problem"});
    let mut described = json!({
        "operationId": operation_id(path, endpoint.method),
        "summary": endpoint.summary,
        "tags": [tag(path)],
        // Needed role, in the place of a scope (OpenAPI 3.1, 4.8.30).
        "security": [{"token": [endpoint.role]}],
        "responses": {endpoint.status.to_string(): answer, "4XX": problem, "5XX": problem},
    });
    if endpoint.tagged && endpoint.method == "GET" {
        described["responses"]["304"] =
            json!({"description": "What `If-None-Match` names is what there is."});
    }
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    if let Some(content) = endpoint.body {
        let schema = match content {
            Content::One(describe) => bare(describe(requests)),
            Content::OneOrList(describe) => {
                let one = bare(describe(requests));
                json!({"anyOf": [one.clone(), {"type": "array", "items": one}]})
            }
        };
        described["requestBody"] =
            json!({"required": endpoint.needs_body, "content": {JSON: {"schema": schema}}});
    }
    described
}

/// Returns the header parameters of an endpoint.
fn headers(endpoint: &Endpoint) -> Vec<Value> {
    let mut headers = Vec::new();
    let mut add = |name: &str, schema: Value, description: &str| {
        headers.push(
            json!({"name": name, "in": "header", "required": false, "schema": schema, "description": description}),
        );
    };
    match (endpoint.tagged, endpoint.method) {
        (true, "GET") => add(
            "If-None-Match",
            json!({"type": "string"}),
            "An ETag that was answered before: where that is still the one, the answer is 304, without a body.",
        ),
        (true, _) => add(
            "If-Match",
            json!({"type": "string"}),
            "The ETag of what is to be changed: where it has another by now, nothing is changed, and the answer is 412.",
        ),
        (false, _) => {}
    }
    if endpoint.resumes {
        let text = "Of a stream that is taken up again: the id of what was heard last.";
        add("Last-Event-ID", json!({"type": "integer", "minimum": 0}), text);
    }
    headers
}

/// Returns the description of the successful answer.
fn answer(endpoint: &Endpoint, answers: &mut SchemaGenerator) -> Value {
    let mut content = json!({endpoint.media: {"schema": (endpoint.answer)(answers)}});
    if endpoint.streams {
        content["text/event-stream"] = json!({"schema": {"type": "string"}});
    }
    let mut answer = json!({"description": "Done.", "content": content});
    let mut headers = Map::new();
    if endpoint.tagged {
        let text = "Names what can be changed of it; counters don't count.";
        headers.insert("ETag".into(), json!({"description": text, "schema": {"type": "string"}}));
    }
    if endpoint.paged {
        let text = "Where there are more: the next page, as `rel=\"next\"`.";
        headers.insert("Link".into(), json!({"description": text, "schema": {"type": "string"}}));
    }
    if !headers.is_empty() {
        answer["headers"] = headers.into();
    }
    answer
}

/// Returns a schema without its dialect, because the document declares the dialect.
fn bare(schema: Schema) -> Value {
    let mut schema = schema.to_value();
    if let Value::Object(keys) = &mut schema {
        keys.remove("$schema");
    }
    schema
}

/// Returns the properties of an object as query parameters.
fn arguments(schema: Schema) -> Vec<Value> {
    let schema = bare(schema);
    let required = |name: &str| {
        schema["required"].as_array().is_some_and(|required| required.iter().any(|one| one == name))
    };
    let properties = schema["properties"].as_object();
    let parameter = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|keys| keys.remove("description"));
        json!({
            "name": name, "in": "query", "required": required(name), "schema": without_null(schema),
            "description": description.unwrap_or_default(),
        })
    };
    properties.into_iter().flatten().map(parameter).collect()
}

/// Removes `null` from the types of a query argument, because an absent argument is omitted.
fn without_null(mut schema: Value) -> Value {
    let Some(keys) = schema.as_object_mut() else { return schema };
    if keys.get("default").is_some_and(Value::is_null) {
        keys.remove("default");
    }
    if let Some(Value::Array(types)) = keys.get_mut("type") {
        types.retain(|one| one != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            keys.insert("type".into(), one);
        }
    }
    schema
}

/// Returns the path parameters of a path.
fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| {
        let schema = match name {
            "id" | "number" => json!({"type": "integer", "minimum": 0, "maximum": u64::MAX}),
            _ => json!({"type": "string", "minLength": 1}),
        };
        json!({"name": name, "in": "path", "required": true, "schema": schema})
    };
    names.map(parameter).collect()
}

/// Returns the identifier of an endpoint, from which code generators make names: `get_ports_name`.
fn operation_id(path: &str, method: &str) -> String {
    let words = path.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    let what = if words.is_empty() { "resources".to_owned() } else { words.join("_") };
    format!("{}_{what}", method.to_lowercase())
}

/// Returns the noun of a path, as tag of its operations.
fn tag(path: &str) -> &str {
    path.split('/').nth(1).filter(|noun| !noun.is_empty()).unwrap_or("resources")
}
