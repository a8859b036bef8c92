//! Programs that the runner writes for `tolerant_delegate` without a plan.

use recurgent::Language;
use serde_json::Value;

/// A program that returns a value.
pub(crate) fn giving(guest: Language, value: &Value) -> String {
    format!("result = {}", literal(guest, value))
}

/// A program that returns the outcome of the same method of another agent.
pub(crate) fn asking(guest: Language, role: &str, method: &str) -> String {
    let role = literal(guest, &role.into());
    match guest {
        Language::Python => {
            format!("result = delegate({role}, purpose=\"go deeper\").{method}()")
        }
        Language::Ruby => format!("result = delegate({role}, purpose: \"go deeper\").{method}"),
    }
}

/// A JSON value as an expression of the guest language.
fn literal(guest: Language, value: &Value) -> String {
    let (null, yes, no, arrow) = match guest {
        Language::Python => ("None", "True", "False", ": "),
        Language::Ruby => ("nil", "true", "false", " => "),
    };
    match value {
        Value::Null => null.to_owned(),
        Value::Bool(true) => yes.to_owned(),
        Value::Bool(false) => no.to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(guest, text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| literal(guest, item)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| {
                format!("{}{arrow}{}", quoted(guest, key), literal(guest, value))
            };
            format!("{{{}}}", map.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Both languages accept JSON's escapes. Ruby also interpolates `#{…}`, so `#` is escaped.
fn quoted(guest: Language, text: &str) -> String {
    let json = Value::from(text).to_string();
    match guest {
        Language::Python => json,
        Language::Ruby => json.replace('#', "\\#"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_written_in_the_guests_language() {
        let value = json!({"a": [1, null, true], "b": "#{1} \"q\""});
        assert_eq!(
            giving(Language::Python, &value),
            r##"result = {"a": [1, None, True], "b": "#{1} \"q\""}"##
        );
        assert_eq!(
            giving(Language::Ruby, &value),
            r#"result = {"a" => [1, nil, true], "b" => "\#{1} \"q\""}"#
        );
    }
}
