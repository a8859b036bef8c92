//! What the readers accept and refuse, and what survives them.

use recurgent_json::{
    RESERVED_KEY, Value, from_reader, from_slice, from_str, from_value, json, to_finite_value,
    to_standard,
};
use serde::{Deserialize, Serialize};

#[test]
fn only_json_is_read() {
    for text in [
        "[1,]",
        r#"{"a": 1,}"#,
        "// note\n1",
        "[1 /* note */]",
        "1 // note",
        "\"tab\there\"",
        "\"line\nend\"",
        r#""\x41""#,
        r#""\v""#,
        "01",
        "1.",
        "NaN",
        "'a'",
        "{a: 1}",
        "",
        "1 2",
        r#""\ud800""#,
    ] {
        assert!(from_str::<Value>(text).is_err(), "{text:?} as text");
        assert!(from_slice::<Value>(text.as_bytes()).is_err(), "{text:?} as bytes");
        assert!(from_reader::<Value>(text.as_bytes()).is_err(), "{text:?} from a reader");
    }
    assert!(from_slice::<Value>(b"\"\xff\"").is_err(), "bytes that are not UTF-8");
    assert!(from_str::<Value>(&"[".repeat(100_000)).is_err(), "nested without end");
}

#[test]
fn numbers_of_any_size_and_the_order_of_keys_survive() {
    for text in [
        r#"{"z":1,"a":[123456789012345678901234567890,-0.1],"m":{"y":null,"b":true}}"#,
        "18446744073709551616",
        "-9223372036854775809",
        r#""plain \" text""#,
    ] {
        assert_eq!(from_str::<Value>(text).unwrap().to_string(), text);
    }
}

#[test]
fn an_object_is_never_read_as_a_number() {
    let escaped: Vec<String> = RESERVED_KEY.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
    let escaped = escaped.concat();
    for key in [RESERVED_KEY, &escaped, &RESERVED_KEY.replace('$', "\\u0024")] {
        // The fork itself reads a number. If it stops doing so, the check is not needed any more.
        let text = format!("{{\"{key}\" : \"12\"}}");
        let lenient = serde_json_lenient::from_str::<Value>(&text).unwrap();
        assert!(lenient.is_number(), "{key}");
        for text in [text.clone(), format!("[1,{{\"a\":{text}}}]")] {
            let problem = from_str::<Value>(&text).unwrap_err().to_string();
            assert!(problem.contains("is reserved; use another key"), "{problem}");
            assert!(from_slice::<Value>(text.as_bytes()).is_err(), "{text}");
        }
    }
}

#[test]
fn text_about_the_reserved_key_is_read() {
    for value in [
        json!({"note": RESERVED_KEY}),
        json!({"note": format!("the key {RESERVED_KEY} is reserved")}),
        json!([RESERVED_KEY, {"a": "\u{1}\u{7f}\\\"", "key": 1}]),
        json!({format!("{RESERVED_KEY}s"): 1}),
    ] {
        assert_eq!(from_str::<Value>(&value.to_string()).unwrap(), value);
    }
    assert_eq!(from_str::<Value>(r#"{"\u0024a":"\u0026"}"#).unwrap(), json!({"$a": "&"}));
}

#[test]
fn other_libraries_get_numbers_of_64_bits() {
    for (text, standard) in [
        (r#"{"z":[1,-1,1.5,null,true,"a"],"a":{}}"#, r#"{"z":[1,-1,1.5,null,true,"a"],"a":{}}"#),
        ("18446744073709551615", "18446744073709551615"),
        ("123456789012345678901234567890", "1.2345678901234568e29"),
        ("1e400", "1.7976931348623157e308"),
        ("-1e400", "-1.7976931348623157e308"),
    ] {
        let value: Value = from_str(text).unwrap();
        let expected: recurgent_json::StandardValue = standard.parse().unwrap();
        assert_eq!(to_standard(&value), expected, "{text}");
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Whole(i64),
    Float(f64),
    Text(String),
}

#[test]
fn types_are_read_from_values_whatever_the_text_of_their_floats() {
    for (text, expected) in [
        ("7", Untagged::Whole(7)),
        ("0.1", Untagged::Float(0.1)),
        ("0.10", Untagged::Float(0.1)),
        ("1e-07", Untagged::Float(1e-7)),
        ("1E5", Untagged::Float(1e5)),
        ("\"a\"", Untagged::Text("a".to_owned())),
    ] {
        assert_eq!(from_value::<Untagged>(from_str(text).unwrap()).unwrap(), expected, "{text}");
    }
    let large: Value = from_str("123456789012345678901234567890123456789012345").unwrap();
    assert_eq!(from_value::<Value>(large.clone()).unwrap(), large);
    let large: u128 = 123_456_789_012_345_678_901_234_567_890;
    assert_eq!(from_value::<u128>(from_str(&large.to_string()).unwrap()).unwrap(), large);
}

#[test]
fn a_number_that_json_has_not_is_refused() {
    #[derive(Serialize)]
    struct Reading {
        values: Vec<Option<f32>>,
    }
    for (value, expected) in [
        (
            to_finite_value(&Reading { values: vec![Some(1.5), None] }),
            Some(json!({"values": [1.5, null]})),
        ),
        (to_finite_value(&Reading { values: vec![Some(f32::NAN)] }), None),
        (to_finite_value(&[("a", f64::INFINITY)]), None),
        (to_finite_value(&Untagged::Float(f64::NEG_INFINITY)), None),
        (to_finite_value(&u128::MAX), Some(from_str(&u128::MAX.to_string()).unwrap())),
    ] {
        assert_eq!(value.ok(), expected);
    }
}
