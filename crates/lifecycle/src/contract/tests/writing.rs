//! How contracts are written: wholes and fields, bounds, shorthand, and words that are not understood.

use super::*;

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

/// Keys and examples named like misspelt words are data, and remarks of JSON Schema are legal.
#[test]
fn words_of_a_schema_that_demand_nothing_are_remarks() {
    for schema in [
        json!({"type": "object", "properties": {"requird": {"type": "string"}}}),
        json!({"const": {"requird": 1}}),
        json!({"enum": [{"patern": 1}], "examples": [{"tpye": 2}], "default": {"itms": []}}),
        json!({"type": "string", "x-order": 3, "nullable": true, "units": "m"}),
        json!({"required": ["requird"], "dependentRequired": {"typo": ["a"]}}),
    ] {
        let contract = object(json!({"deliverable": {"schema": schema}}));
        let made = Contract::compose(Some(&contract), &Map::new());
        assert!(made.is_ok(), "{schema}: {made:?}");
    }
}

/// In JSON Schema `true` allows everything and `false` nothing, wherever a schema may stand.
#[test]
fn a_schema_may_be_true_or_false() {
    let closed = json!({"type": "object", "properties": {"a": true, "b": false}});
    for deliverable in [closed.clone(), json!({"schema": closed})] {
        check(&deliverable, &json!({"a": [1]}), "ok");
        check(&deliverable, &json!({"a": 1, "b": 2}), "schema_violation $.b");
    }
    let rows = [
        (json!({"type": "array", "items": true}), json!([1, "a"]), "ok"),
        (json!({"type": "array", "items": false}), json!([]), "ok"),
        (json!({"type": "array", "items": false}), json!([1]), "schema_violation $[0]"),
        (
            json!({"prefixItems": [{"type": "string"}, true], "items": false}),
            json!(["a", 1, 2]),
            "schema_violation $[2]",
        ),
        (json!({"anyOf": [false, {"type": "string"}]}), json!(1), "schema_violation $"),
        (json!({"anyOf": [false, {"type": "string"}]}), json!("a"), "ok"),
        (json!({"not": true}), json!(1), "schema_violation $"),
        (json!({"schema": true}), json!(1), "ok"),
        (json!({"schema": false}), json!(1), "schema_violation $"),
        (
            json!({"type": "object", "constraints": {"properties": {"a": false}}}),
            json!({"a": 1}),
            "schema_violation $.a",
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
        (
            json!({"deliverable": {"schema": {"type": "object", "requird": ["a"]}}}),
            "deliverable.schema.requird",
            "did you mean `required`?",
        ),
        (
            json!({"deliverable": {"schema": {"properties": {"a": {"anyOf": [{"min_items": 1}]}}}}}),
            "deliverable.schema.properties.a.anyOf.0.min_items",
            "did you mean `minItems`?",
        ),
        (
            json!({"deliverable": {"schema": {"items": {"$defs": {"n": {"patern": "^a"}}}}}}),
            "deliverable.schema.items.$defs.n.patern",
            "`pattern`",
        ),
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
        (
            json!({"deliverable": {"type": "array", "minItems": 2, "min_items": 0}}),
            "a second spelling of `minItems`",
            json!([1]),
            "min_items_violation $",
        ),
        (json!({"deliverable": {"type": "array", "min_itmes": 1}}), "min_items", json!([]), "ok"),
        (
            json!({"deliverable": {"schema": {"type": "object", "anyOf": [{"requird": ["a"]}]}}}),
            "`required`",
            json!([]),
            "schema_violation $",
        ),
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
