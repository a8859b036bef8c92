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

#[test]
fn a_contract_is_composed_of_a_whole_and_of_fields() {
    let rows = [
        (json!(null), json!({}), json!(null), ContractSource::None),
        (json!(null), json!({"purpose": null}), json!(null), ContractSource::None),
        (json!({"purpose": null}), json!({}), json!(null), ContractSource::None),
        (json!({"purpose": "p"}), json!({}), json!({"purpose": "p"}), ContractSource::Hash),
        (
            json!({":purpose": "p"}),
            json!({"acceptance": null}),
            json!({"purpose": "p"}),
            ContractSource::Hash,
        ),
        (json!(null), json!({":purpose": "p"}), json!({"purpose": "p"}), ContractSource::Fields),
        (json!({}), json!({"purpose": "p"}), json!({"purpose": "p"}), ContractSource::Merged),
        (
            json!({"purpose": " ", "acceptance": [1], "intent_signature": "i"}),
            json!({"purpose": "p", "failure_policy": {"on_error": "report"}, "deliverable": "d"}),
            json!({"purpose": "p", "deliverable": "d", "acceptance": [1],
                   "failure_policy": {"on_error": "report"}, "intent_signature": "i"}),
            ContractSource::Merged,
        ),
    ];
    for (whole, fields, expected, source) in rows {
        let (contract, said) = Contract::compose(whole.as_object(), &object(fields)).unwrap();
        assert_eq!(serde_json::to_value(&contract).unwrap(), expected);
        assert_eq!(said, source);
        assert_eq!(json!(said), said.name());
        assert_eq!(serde_json::from_value::<Option<Contract>>(expected).unwrap(), contract);
    }
    for (field, value) in
        [("purpose", json!("  ")), ("purpose", json!(1)), ("intent_signature", json!([]))]
    {
        let fields = object(json!({ field: value }));
        assert_eq!(place(&Contract::compose(None, &fields).unwrap_err()), field);
    }
}

#[test]
fn a_fingerprint_ignores_key_order_and_intent_alone() {
    let of = |text: &str| {
        let (contract, _) = Contract::compose(None, &object(parsed(text))).unwrap();
        contract.map_or_else(Fingerprint::none, |contract| contract.fingerprint())
    };
    let base = of(
        r#"{"purpose":"p","deliverable":{"type":"object","constraints":{"enum":[1,{"x":1,"y":2}]}}}"#,
    );
    assert_eq!(base.as_str().len(), 64);
    let turned = r#"{"intent_signature":"i","deliverable":{"constraints":{"enum":[1,{"y":2,"x":1}]},"type":"object"},"purpose":"p"}"#;
    assert_eq!(of(turned), base);
    assert_ne!(of(r#"{"purpose":"q"}"#), of(r#"{"purpose":"p"}"#));
    assert_ne!(of(r#"{"purpose":"p"}"#), of(r#"{"acceptance":"p"}"#));
    assert_ne!(of(r#"{"acceptance":[1,2]}"#), of(r#"{"acceptance":[2,1]}"#));
    assert_eq!(of("{}").to_string(), "none");
    assert_eq!(of(r#"{"intent_signature":"i"}"#), Fingerprint::none());
    // pinned: stored artifacts depend on it
    assert_eq!(
        of(r#"{"purpose":"p"}"#).as_str(),
        "34088dda2864351f706c61bfb3a5f2f44628af46e3430a6a7fda45fe8d06e63b"
    );
    let value = parsed(r#"{"b":[1,2.50,"é\n"],"":{},"a":{"z":null,"c":[]}}"#);
    assert_eq!(canonical(&value), r#"{"":{},"a":{"c":[],"z":null},"b":[1,2.50,"é\n"]}"#);
}

#[test]
fn length_is_bounded() {
    let of = |field: &str, length: usize| {
        let fields = Map::from_iter([(field.to_owned(), json!("x".repeat(length)))]);
        Contract::compose(None, &fields)
    };
    for field in FIELDS.into_iter().filter(|field| *field != "examples") {
        assert!(of(field, 1000).is_ok(), "{field}");
        let fault = of(field, MAX_BYTES + 1).unwrap_err();
        assert!(matches!(fault, ContractFault::TooLong { .. }), "{field}: {fault}");
    }
}

#[test]
fn depth_is_bounded() {
    let in_items = |inner| json!({ "items": inner });
    let in_list = |inner| json!([inner]);
    check(&nested(1000, json!({}), in_items), &json!([]), "fault deliverable");
    check(&nested(1000, json!(1), in_list), &json!([]), "fault deliverable");
    check(&json!({"schema": nested(1000, json!({}), in_items)}), &json!([]), "fault deliverable");
    let deepest = nested(MAX_DEPTH - 1, json!({"type": "string"}), in_items);
    check(&deepest, &nested(MAX_DEPTH - 1, json!("leaf"), in_list), "ok");
    let path = format!("property_type_mismatch ${}", "[0]".repeat(MAX_DEPTH - 1));
    check(&deepest, &nested(1000, json!("leaf"), in_list), &path);

    let recursive = json!({"schema": {"items": {"$ref": "#"}}});
    check(&recursive, &nested(200, json!(1), in_list), "ok");
    check(&recursive, &nested(1000, json!(1), in_list), "schema_violation $");
    check(&json!({"schema": {"$ref": "#"}}), &json!(1), "ok");

    let fields = object(json!({"acceptance": nested(1000, json!(1), in_list)}));
    assert_eq!(place(&Contract::compose(None, &fields).unwrap_err()), "acceptance");
    // made by hand, past `compose`: still fingerprinted, not enforced
    let deliverable = Some(nested(1000, json!({}), in_items));
    let by_hand = Contract { deliverable, ..Contract::EMPTY };
    assert_eq!(by_hand.fingerprint().as_str().len(), 64);
    assert_eq!(by_hand.judge(&[], &Map::new(), &json!(1)), Ok(()));
}

/// Words that only JSON Schema has are enforced, all of them, beside our own.
#[test]
fn a_deliverable_with_words_of_json_schema_is_checked_as_one() {
    let rows = [
        (json!({"type": "string", "pattern": "^a"}), json!("b"), "schema_violation $"),
        (json!({"type": "string", "pattern": "^a"}), json!("ab"), "ok"),
        (json!({"type": "array", "uniqueItems": true}), json!([1, 1]), "schema_violation $"),
        (
            json!({"type": "object", "properties": {"a": {"type": "number"}}, "additionalProperties": false}),
            json!({"a": 1, "b": 2}),
            "schema_violation $",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "array", "min_items": 1}]}),
            json!([]),
            "schema_violation $",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "array", "min_items": 1}]}),
            json!([1]),
            "ok",
        ),
        (
            json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}},
                   "$defs": {"node": {"type": "object", "required": ["id"]}}}),
            json!({"next": {}}),
            "schema_violation $.next",
        ),
        (
            json!({"type": "object", "constraints": {"properties": {"when": {"type": "string", "format": "date"}}}}),
            json!({"when": "tomorrow"}),
            "schema_violation $.when",
        ),
        (json!({"const": 3}), json!(4), "schema_violation $"),
        (json!({"$ref": "https://example.org/schema.json"}), json!(4), "fault deliverable"),
        // Our own words keep their own messages.
        (
            json!({"type": "array", "min_items": 2, "uniqueItems": true}),
            json!([1]),
            "min_items_violation $",
        ),
    ];
    for (deliverable, value, expected) in rows {
        check(&deliverable, &value, expected);
    }
}

#[test]
fn shorthand_names_every_key_and_its_type() {
    let shape = json!({"movies": "array", "count": 3, "title": "Alien", "tags": ["string"]});
    let rows = [
        (json!("array"), json!({}), "type_mismatch $"),
        (json!("a list of movies"), json!({}), "ok"),
        (shape.clone(), json!({"movies": [], "count": 1, "title": "x", "tags": []}), "ok"),
        (
            shape.clone(),
            json!({"movies": [], "count": 1, "title": "x"}),
            "missing_required_key $.tags",
        ),
        (
            shape.clone(),
            json!({"movies": {}, "count": 1, "title": "x", "tags": []}),
            "property_type_mismatch $.movies",
        ),
        (
            shape,
            json!({"movies": [], "count": 1, "title": "x", "tags": [1]}),
            "property_type_mismatch $.tags[0]",
        ),
        (json!([{"id": "integer"}]), json!([{"id": "x"}]), "property_type_mismatch $[0].id"),
        (
            json!({"type": "object", "properties": {"a": {"b": "string"}}}),
            json!({"a": {}}),
            "missing_required_key $.a.b",
        ),
    ];
    for (deliverable, value, expected) in rows {
        check(&deliverable, &value, expected);
    }
}

/// A person is asked what was meant.
#[test]
fn a_word_that_is_not_understood_is_refused_with_a_suggestion() {
    for (contract, at, says) in [
        (
            json!({"deliverable": {"type": "array", "min_itmes": 1}}),
            "deliverable.min_itmes",
            "did you mean `min_items`?",
        ),
        (json!({"deliverable": {"min_itmes": 1}}), "deliverable.min_itmes", "`min_items`"),
        (
            json!({"deliverable": {"type": "object", "properties": {"a": {"type": "string", "size": 3}}}}),
            "deliverable.properties.a.size",
            "write constraints",
        ),
        (
            json!({"deliverable": {"type": "object", "constraints": {"movies": 1}}}),
            "deliverable.constraints.movies",
            "",
        ),
        (json!({"deliverable": "arry"}), "deliverable", "did you mean `array`?"),
        (json!({"deliverable": {"movies": "arry"}}), "deliverable.movies", "`array`"),
        (json!({"deliverable": {"a": {"b": ["integr"]}}}), "deliverable.a.b.0", "`integer`"),
        (json!({"purpos": "p"}), "purpos", "did you mean `purpose`?"),
        (json!({"capabilities": ["http"]}), "capabilities", "`deliverable`"),
        (json!({"examples": [{"args": [1]}]}), "examples", "exactly one of"),
    ] {
        let fault = Contract::compose(Some(&object(contract.clone())), &Map::new()).unwrap_err();
        assert_eq!(place(&fault), at, "{contract}");
        assert!(fault.to_string().contains(says), "{contract}: {fault}");
    }
}

/// What a program, an import or a recording says is kept as intent where it is not understood, and noted.
#[test]
fn a_contract_that_no_person_wrote_is_tolerated_with_a_note() {
    let rows = [
        (json!({"deliverable": {"type": "numeric"}}), "", json!("x"), "type_mismatch $"),
        (json!({"deliverable": {"type": "object", "min_items": 1}}), "min_items", json!({}), "ok"),
        (
            json!({"deliverable": {"type": "object", "min_items": 1}}),
            "min_items",
            json!([]),
            "type_mismatch $",
        ),
        (
            json!({"deliverable": {"type": "array", "constraints": ["at least three"]}}),
            "constraints",
            json!({}),
            "type_mismatch $",
        ),
        (
            json!({"deliverable": {"type": "movie", "required": ["a"]}}),
            "movie",
            json!({}),
            "missing_required_key $.a",
        ),
        (json!({"deliverable": {"type": "array", "min_itmes": 1}}), "min_items", json!([]), "ok"),
        (json!({"deliverable": "arry"}), "`array`", json!(1), "ok"),
        (
            json!({"deliverable": {"movies": "arry", "count": "integer"}}),
            "`array`",
            json!({"count": "x"}),
            "property_type_mismatch $.count",
        ),
        (json!({"purpose": "p", "capabilities": ["http"]}), "capabilities", json!(1), "ok"),
        (json!({"purpose": 3, "deliverable": "array"}), "purpose", json!({}), "type_mismatch $"),
        (json!({"deliverable": {"$ref": "https://example.org/x"}}), "deliverable", json!(1), "ok"),
        (json!({"purpose": "p", "examples": [3]}), "example", json!(1), "ok"),
    ];
    for (contract, note, value, expected) in rows {
        let (composed, _) =
            Contract::compose_tolerant(Some(&object(contract.clone())), &Map::new()).unwrap();
        let composed = composed.unwrap();
        let said = composed.judge(&[], &Map::new(), &value);
        let said =
            said.map_or_else(|b| format!("{} {}", b.mismatch.name(), b.path), |()| "ok".into());
        assert_eq!(said, expected, "{contract} against {value}: {:?}", composed.notes);
        let noted = composed.notes.iter().any(|it| it.contains(note));
        assert_eq!(noted, !note.is_empty(), "{contract}: {:?}", composed.notes);
        let again: Contract = serde_json::from_value(json!(composed)).unwrap();
        assert_eq!(again, composed, "notes are kept with the contract");
    }
}

/// Examples are shown and checked; they do not make another contract.
#[test]
fn examples_are_no_part_of_the_fingerprint() {
    let plain = object(json!({"deliverable": "number"}));
    let taught = object(json!({"deliverable": "number", "examples": [{"args": [2], "value": 4}]}));
    let compose = |whole| Contract::compose(Some(whole), &Map::new()).unwrap().0.unwrap();
    assert_eq!(compose(&plain).fingerprint(), compose(&taught).fingerprint());
    assert_eq!(compose(&taught).examples().len(), 1);
}
