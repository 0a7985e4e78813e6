//! OpenAPI 3.1 description of the API, generated from the endpoints and the types of requests and answers.

use millrace_controller::view::TrialView;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::endpoint::{Content, Endpoint, JSON, Resource};
use crate::http::problem::ProblemBody;

/// JSON pointer to the schemas of answers in the document.
const SCHEMAS: &str = "/components/schemas";

/// Returns the OpenAPI document that describes these resources.
pub(crate) fn document(resources: &[Resource]) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut answers = settings.with(|settings| settings.definitions_path = SCHEMAS.into()).into_generator();
    // Schemas of requests are inline, since a type may have a different schema in answers.
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
            "description": "Queries and changes a running router.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "Unix socket of the router, or an HTTPS address of `listen` in [api]."}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {
                "type": "http", "scheme": "bearer",
                "description": "API token that `millrace token create` printed. Its role is `viewer`, `operator` or `admin`; each role \
                    includes the rights of the roles before it. Clients at the Unix socket need no token: there, the user and \
                    its groups determine the role.",
            }},
            "schemas": answers.take_definitions(true),
            "responses": {"Problem": {
                "description": "The request failed; `detail` gives the reason.",
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
    let trial: Option<Value> = endpoint.tried.then(|| answers.subschema_for::<TrialView>().into());
    let mut described = json!({
        "operationId": operation_id(path, endpoint.method),
        "summary": endpoint.summary,
        "tags": [tag(path)],
        // The needed role stands in place of an OAuth scope (OpenAPI 3.1, 4.8.30).
        "security": [{"token": [endpoint.role]}],
        "responses": {endpoint.status.to_string(): answer, "4XX": problem, "5XX": problem},
    });
    match trial {
        Some(trial) if endpoint.status == 200 => {
            let schema = &mut described["responses"]["200"]["content"][JSON]["schema"];
            *schema = json!({"anyOf": [schema.take(), trial]});
        }
        Some(trial) => {
            let text = "With `dry_run`: nothing was changed.";
            described["responses"]["200"] =
                json!({"description": text, "content": {JSON: {"schema": trial}}});
        }
        None => {}
    }
    if endpoint.tagged && endpoint.method == "GET" {
        described["responses"]["304"] =
            json!({"description": "The resource still has the ETag of `If-None-Match`."});
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
            "ETag of an earlier answer. If the resource still has it, the answer is 304 without a body.",
        ),
        (true, _) => add(
            "If-Match",
            json!({"type": "string"}),
            "Expected ETag of the resource. If the resource has another ETag, the router changes nothing and answers 412.",
        ),
        (false, _) => {}
    }
    if endpoint.resumes {
        let text = "To resume a stream: id of the last received event.";
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
        let text = "Identifies the settings of the resource. Changed counters don't change the ETag.";
        headers.insert("ETag".into(), json!({"description": text, "schema": {"type": "string"}}));
    }
    if endpoint.paged {
        let text = "If more entries follow: URL of the next page, as `rel=\"next\"`.";
        headers.insert("Link".into(), json!({"description": text, "schema": {"type": "string"}}));
    }
    if !headers.is_empty() {
        answer["headers"] = headers.into();
    }
    answer
}

/// Returns a schema without `$schema`, since the document declares the dialect once.
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

/// Removes `null` from the types of a query argument: `None` is expressed by omitting the argument.
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

/// Returns the first segment of a path, as the OpenAPI tag of its operations.
fn tag(path: &str) -> &str {
    path.split('/').nth(1).filter(|noun| !noun.is_empty()).unwrap_or("resources")
}
