mod writing;

use serde_json::{Map, Value, json};

use super::{
    Breach, Contract, ContractFault, ContractSource, FIELDS, Fingerprint, MAX_BYTES, MAX_DEPTH,
    canonical,
};

/// Judges one value under one deliverable: `ok`, `<mismatch> <path>`, or `fault <path>`.
#[track_caller]
fn check(deliverable: &Value, value: &Value, expected: &str) {
    let said = match deliver(deliverable) {
        Err(fault) => format!("fault {}", place(&fault)),
        Ok(contract) => match contract.judge(&[], &Map::new(), value) {
            Ok(()) => "ok".to_owned(),
            Err(breach) => format!("{} {}", breach.mismatch.name(), breach.path),
        },
    };
    assert_eq!(said, expected, "{deliverable} against {value}");
}

#[track_caller]
fn breach(deliverable: &Value, value: &Value) -> Breach {
    deliver(deliverable).unwrap().judge(&[], &Map::new(), value).unwrap_err()
}

fn deliver(deliverable: &Value) -> Result<Contract, ContractFault> {
    let whole = object(json!({ "deliverable": deliverable }));
    Contract::compose(Some(&whole), &Map::new()).map(|(contract, _)| contract.unwrap())
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else { panic!("{value} is not an object") };
    object
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn nested(depth: usize, leaf: Value, wrap: fn(Value) -> Value) -> Value {
    (0..depth).fold(leaf, |inner, _| wrap(inner))
}

fn place(fault: &ContractFault) -> String {
    match fault {
        ContractFault::TooLong { .. } => "contract".to_owned(),
        ContractFault::UnusableExample { .. } => "examples".to_owned(),
        ContractFault::NotText { field, .. } | ContractFault::Blank { field } => {
            (*field).to_owned()
        }
        ContractFault::UnknownType { path, .. }
        | ContractFault::Unusable { path, .. }
        | ContractFault::Contradiction { path, .. }
        | ContractFault::Inapplicable { path, .. }
        | ContractFault::TooDeep { path }
        | ContractFault::UnknownWord { path, .. }
        | ContractFault::UnusableSchema { path, .. } => path.clone(),
    }
}

/// The example of the plan: an empty result is a failure because the contract says so.
fn movies() -> Value {
    json!({"type": "object", "required": ["status", "movies"],
           "constraints": {"properties": {"movies": {"type": "array", "min_items": 1}}}})
}

#[test]
fn each_mismatch_names_its_place() {
    let film = json!({"type": "object", "properties": {"films": {"type": "array", "items": {
        "required": ["title"], "constraints": {"properties": {"title": {"type": "string"},
        "odd key": "string", "cast": {"items": {"min_length": 2}}}}}}}});
    let rows = [
        (movies(), json!({"status": "ok", "movies": ["a"]}), "ok"),
        (movies(), json!({"status": "ok", "movies": []}), "min_items_violation $.movies"),
        (movies(), json!({"status": "ok", "movies": "a"}), "property_type_mismatch $.movies"),
        (movies(), json!({"status": "ok"}), "missing_required_key $.movies"),
        (movies(), json!(["a"]), "type_mismatch $"),
        (json!({"type": "array", "min_items": 2}), json!([1]), "min_items_violation $"),
        (json!({"type": "array", "max_items": 0}), json!([1]), "max_items_violation $"),
        (json!({"type": "string", "min_length": 3}), json!("äb"), "min_length_violation $"),
        (json!({"type": "string", "max_length": 2}), json!("äb"), "ok"),
        (json!({"type": "string", "max_length": 1}), json!("äb"), "max_length_violation $"),
        (json!({"type": "number", "minimum": 3}), json!(2.9), "minimum_violation $"),
        (json!({"type": "number", "maximum": 3}), json!(3.1), "maximum_violation $"),
        (json!({"enum": ["ok", "error", null]}), json!("fine"), "enum_violation $"),
        (json!({"enum": [8, null]}), json!(8.0), "ok"),
        (json!({"schema": {"type": "array"}}), json!({}), "schema_violation $"),
        (film.clone(), json!({}), "ok"),
        (film.clone(), json!({"films": [{"title": "M"}]}), "ok"),
        (
            film.clone(),
            json!({"films": [{"title": "M"}, {}]}),
            "missing_required_key $.films[1].title",
        ),
        (film.clone(), json!({"films": [{"title": 1}]}), "property_type_mismatch $.films[0].title"),
        (film.clone(), json!({"films": [1]}), "property_type_mismatch $.films[0]"),
        (
            film.clone(),
            json!({"films": [{"title": "M", "odd key": 1}]}),
            "property_type_mismatch $.films[0][\"odd key\"]",
        ),
        (
            film,
            json!({"films": [{"title": "M", "cast": ["Lo", "L"]}]}),
            "min_length_violation $.films[0].cast[1]",
        ),
    ];
    for (deliverable, value, expected) in rows {
        check(&deliverable, &value, expected);
    }
}

#[test]
fn types_have_synonyms_and_unions() {
    let rows = [
        (" Hash", json!({}), true),
        ("dict", json!({}), true),
        ("map", json!([]), false),
        ("LIST", json!([]), true),
        ("text", json!("a"), true),
        ("float", json!(1), true),
        ("int", json!(8.0), true),
        ("int", json!(8.5), false),
        ("integer", parsed("1e400"), true),
        ("integer", parsed("1.5e1"), true),
        ("integer", parsed("-340282366920938463463374607431768211456.0"), true),
        ("integer", parsed("15e-1"), false),
        (":bool", json!(false), true),
        ("null", json!(null), true),
        ("nil", json!(0), false),
    ];
    for (name, value, fits) in rows {
        check(&json!({ "type": name }), &value, if fits { "ok" } else { "type_mismatch $" });
    }
    let union = json!({"type": ["string", "null"], "min_length": 1});
    check(&union, &json!(null), "ok");
    check(&union, &json!(""), "min_length_violation $");
    check(&union, &json!(1), "type_mismatch $");
}

#[test]
fn numbers_of_any_size_are_compared_exactly() {
    let bound = |text: &str| parsed(&format!(r#"{{"minimum": {text}, "maximum": {text}}}"#));
    let big = "1267650600228229401496703205376";
    check(&bound(big), &parsed(big), "ok");
    check(&bound(big), &parsed("1267650600228229401496703205375"), "minimum_violation $");
    check(&bound(big), &parsed("1267650600228229401496703205377"), "maximum_violation $");
    check(&bound("-2"), &parsed("-3"), "minimum_violation $");
    check(&bound("0.1"), &parsed("1e-1"), "ok");
    check(&bound("0"), &parsed("-0.0"), "ok");
    check(&bound("0"), &parsed("1e-99999999999999999999"), "maximum_violation $");
    check(&bound("5"), &parsed("-1e99999999999999999999"), "minimum_violation $");
}

#[test]
fn constraints_are_read_with_tolerance() {
    let rows = [
        // value keys: text or symbol; null is present
        (json!({"required": ["movies"]}), json!({":movies": null}), "ok"),
        (json!({"required": [":movies"]}), json!({"movies": 1}), "ok"),
        (
            json!({"properties": {":movies": "array"}}),
            json!({":movies": 1}),
            "property_type_mismatch $.movies",
        ),
        // contract keys: text, symbol, camel case; beside or under `constraints`
        (
            json!({":type": "array", ":constraints": {"minItems": 1}}),
            json!([]),
            "min_items_violation $",
        ),
        (json!({"type": "array", "min_items": "1"}), json!([]), "min_items_violation $"),
        (json!({"type": "array", "min_items": 1.0}), json!([]), "min_items_violation $"),
        (
            json!({"type": "array", "min_items": 0, "constraints": {"min_items": 5}}),
            json!([]),
            "ok",
        ),
        (json!({"constraints": {"properties": {"a": {"min_items": 1}}}}), json!({}), "ok"),
        // a constraint without a type implies one
        (json!({"min_items": 1}), json!("text"), "min_items_violation $"),
        (json!({"max_items": 1}), json!("text"), "max_items_violation $"),
        (json!({"min_length": 1}), json!(1), "min_length_violation $"),
        (json!({"minimum": 1}), json!("9"), "minimum_violation $"),
        (json!({"required": ["a"]}), json!([]), "type_mismatch $"),
        (json!({"items": "string"}), json!({}), "type_mismatch $"),
        // intent only, unknown keys, nulls: nothing enforced
        (json!("a list of movies"), json!(1), "ok"),
        (json!(["status", "movies"]), json!(1), "ok"),
        (json!({}), json!(1), "ok"),
        (
            json!({"format": "html", "constraints": {"tone": "kind"}}),
            json!(1),
            "fault deliverable.constraints.tone",
        ),
        (json!({"description": "an html page", "format": "html"}), json!(1), "ok"),
        (
            json!({"type": null, "required": null, "min_items": null, "schema": null}),
            json!(1),
            "ok",
        ),
        (json!({"type": "object"}), json!({"status": "success_no_parse", "movies": []}), "ok"),
    ];
    for (deliverable, value, expected) in rows {
        check(&deliverable, &value, expected);
    }
}

#[test]
fn what_cannot_be_checked_is_refused_with_advice() {
    let rows = [
        (json!({"type": "html"}), "deliverable.type"),
        (json!({"type": 5}), "deliverable.type"),
        (json!({"type": []}), "deliverable.type"),
        (json!({"required": "movies"}), "deliverable.required"),
        (json!({"required": [1]}), "deliverable.required"),
        (json!({"type": "array", "min_items": 2, "minItems": 0}), "deliverable.minItems"),
        (json!({"type": "array", "maxItems": 9, "max_items": 2}), "deliverable.maxItems"),
        (
            json!({"items": {"type": "string", "minLength": 1, "min_length": 3}}),
            "deliverable.items.minLength",
        ),
        (json!({"min_items": -1}), "deliverable.min_items"),
        (json!({"min_items": 1.5}), "deliverable.min_items"),
        (json!({"constraints": {"max_items": "few"}}), "deliverable.max_items"),
        (json!({"min_items": 3, "max_items": 2}), "deliverable.min_items"),
        (json!({"minimum": 3, "maximum": 2.5}), "deliverable.minimum"),
        (json!({"minimum": "3"}), "deliverable.minimum"),
        (json!({"enum": []}), "deliverable.enum"),
        (json!({"enum": "ok"}), "deliverable.enum"),
        (json!({"constraints": ["be nice"]}), "deliverable.constraints"),
        (json!({"properties": ["a"]}), "deliverable.properties"),
        (json!({"properties": {"a": "the title"}}), "deliverable.properties.a"),
        (
            json!({"constraints": {"properties": {"a": {"type": "film"}}}}),
            "deliverable.constraints.properties.a.type",
        ),
        (json!({"items": {"items": 1}}), "deliverable.items.items"),
        (json!({"type": "object", "min_items": 1}), "deliverable.min_items"),
        (json!({"min_items": 1, "min_length": 1}), "deliverable.min_length"),
        (json!({"schema": "a list"}), "deliverable.schema"),
        (json!({"schema": {"type": "lst"}}), "deliverable.schema"),
        (json!({"schema": {"pattern": "(a"}}), "deliverable.schema"),
        (json!({"schema": {"$ref": "https://example.com/s.json"}}), "deliverable.schema"),
        (
            json!({"schema": {"properties": {"a": {"$ref": "file:///etc/passwd"}}}}),
            "deliverable.schema",
        ),
        (json!({"schema": {"$ref": "#/$defs/none"}}), "deliverable.schema"),
        (json!({"schema": {"allOf": vec![json!({"$ref": "#"}); 25]}}), "deliverable.schema"),
    ];
    for (deliverable, path) in rows {
        check(&deliverable, &json!(null), &format!("fault {path}"));
        let text = deliver(&deliverable).unwrap_err().to_string();
        let advises =
            ["write", "lower the first", "correct one"].iter().any(|word| text.contains(word));
        assert!(advises && text.len() < 600, "{text}");
    }
}

#[test]
fn a_schema_reports_the_failing_place_and_keeps_the_body_to_itself() {
    let schema = json!({"schema": {"type": "object", "properties": {"films": {"items": {"$ref": "#/$defs/film"}},
        "a/b": {"0": {}, "properties": {"0": {"type": "null"}}}},
        "$defs": {"film": {"required": ["title"], "properties": {"title": {"enum": ["M"]}}}}}});
    check(&schema, &json!({"films": [{"title": "M"}]}), "ok");
    check(&schema, &json!({"films": [{"title": "M"}, {}]}), "schema_violation $.films[1]");
    check(&schema, &json!({"a/b": {"0": 1}}), "schema_violation $[\"a/b\"].0");
    let breach = breach(&schema, &json!({"films": [{"title": "hunter2"}]}));
    assert_eq!(breach.path, "$.films[0].title");
    assert_eq!(
        breach.details["constraint_path"],
        "deliverable.schema/$defs/film/properties/title/enum"
    );
    let shown = format!("{} {:?}", breach.message(), breach.metadata());
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_null_input_with_an_empty_success_is_refused() {
    let contract = deliver(&json!({"type": "array"})).unwrap();
    let (none, some) = (Map::new(), object(json!({"a": 1})));
    let judged = |args: &[Value], kwargs, value| contract.judge(args, kwargs, &value);
    let breach = judged(&[json!(null)], &none, json!([])).unwrap_err();
    assert_eq!(breach.mismatch.name(), "nil_required_input");
    assert_eq!(breach.metadata()["expected_shape"], "non_nil_input");
    assert_eq!(breach.metadata()["actual_shape"], "nil");
    assert!(breach.message().contains("missing_input"));
    assert_eq!(
        judged(&[json!(null)], &none, json!({})).unwrap_err().mismatch.name(),
        "nil_required_input"
    );
    assert_eq!(judged(&[json!(null)], &none, json!([1])), Ok(()));
    assert_eq!(judged(&[json!(null)], &some, json!([])), Ok(()));
    assert_eq!(judged(&[], &none, json!([])), Ok(()));
    assert_eq!(judged(&[json!(0)], &none, json!([])), Ok(()));
    let prose = deliver(&json!("a list")).unwrap();
    assert_eq!(prose.judge(&[json!(null)], &none, &json!([])), Ok(()));
}

#[test]
fn a_breach_says_what_to_change_without_the_body() {
    let empty = breach(&movies(), &json!({"status": "hunter2", "movies": []}));
    assert_eq!(
        empty.message(),
        "Return an array of at least 1 item at `$.movies`, where the result has an array of 0 items; \
         if the task cannot give that, report a failure instead."
    );
    assert_eq!(
        Value::Object(empty.metadata()),
        json!({"mismatch": "min_items_violation", "path": "$.movies",
               "expected": "an array of at least 1 item", "actual": "an array of 0 items",
               "expected_shape": "array", "actual_shape": "array",
               "expected_keys": ["status", "movies"], "actual_keys": ["status", "movies"],
               "constraint_path": "deliverable.constraints.properties.movies.min_items",
               "expected_min_items": 1, "actual_items": 0})
    );
    let missing = breach(&movies(), &json!({":status": "hunter2"}));
    assert_eq!(
        missing.message(),
        "Add the key `movies` to the result: `$.movies` is missing from an object of 1 key."
    );
    assert_eq!((missing.expected_keys.len(), &missing.actual_keys[0][..]), (2, ":status"));
    let untyped = breach(&json!({"min_items": 1}), &json!("hunter2"));
    assert_eq!(untyped.metadata()["actual_items"], Value::Null);

    let wide: Map<String, Value> =
        (0..1000).map(|n| (format!("{n}{}", "k".repeat(500)), json!("v".repeat(500)))).collect();
    let wide = breach(&json!({"required": ["x".repeat(5000)]}), &Value::Object(wide));
    assert!(serde_json::to_string(&wide.metadata()).unwrap().len() < 5_000);
    let listed = breach(&json!({"enum": ["x".repeat(5000)]}), &parsed(&"9".repeat(5000)));
    assert!(listed.message().len() < 600, "{}", listed.message());
}
