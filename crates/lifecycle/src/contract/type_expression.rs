//! Types as people write them in shorthand: `string`, `string[]`, `array<string>`, `list of strings`, `string|null`,
//! `string?`.

use serde_json::{Map, Value, json};

use super::clause::Kind;

/// How deep lists may be nested in one expression.
const MAX_DEPTH: usize = 8;

/// The schema of a type expression; `None`: the text is something else.
pub(super) fn parse(text: &str) -> Option<Map<String, Value>> {
    nested(text, MAX_DEPTH)
}

fn nested(text: &str, depth: usize) -> Option<Map<String, Value>> {
    let text = text.trim();
    let depth = depth.checked_sub(1)?;
    if let Some(kind) = Kind::named(text) {
        return Some(of_types(json!(kind.name())));
    }
    if let Some(item) = text.strip_suffix("[]").or_else(|| item_in_brackets(text)) {
        return nested(item, depth).map(list_of);
    }
    if let Some(item) = item_of_list(text) {
        return Kind::named(item).map(|kind| list_of(of_types(json!(kind.name()))));
    }
    let alternatives: Vec<&str> = match text.strip_suffix('?') {
        Some(optional) => vec![optional, "null"],
        None => text.split('|').collect(),
    };
    let kinds = alternatives.into_iter().map(|it| Kind::named(it).map(Kind::name));
    let kinds: Vec<&str> = kinds.collect::<Option<_>>()?;
    Some(of_types(json!(kinds)))
}

/// `array<X>`, `list[X]`, `Array(X)`: X.
fn item_in_brackets(text: &str) -> Option<&str> {
    let (list, item) = text.split_once(['<', '[', '('])?;
    let item = item.strip_suffix(['>', ']', ')'])?;
    matches!(Kind::named(list), Some(Kind::Array)).then_some(item)
}

/// `list of strings`, `array of number`: the name of one item.
fn item_of_list(text: &str) -> Option<&str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [list, of, item] if of.eq_ignore_ascii_case("of") => {
            let singular = item.strip_suffix('s').filter(|it| Kind::named(it).is_some());
            matches!(Kind::named(list), Some(Kind::Array)).then_some(singular.unwrap_or(item))
        }
        _ => None,
    }
}

fn of_types(types: Value) -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), types)])
}

fn list_of(item: Map<String, Value>) -> Map<String, Value> {
    let mut list = of_types(json!("array"));
    list.insert("items".to_owned(), Value::Object(item));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_as_people_write_them() {
        let strings = json!({"type": "array", "items": {"type": "string"}});
        for (text, expected) in [
            ("string", json!({"type": "string"})),
            ("string[]", strings.clone()),
            ("array<string>", strings.clone()),
            ("list[str]", strings.clone()),
            ("list of strings", strings.clone()),
            ("Array of text", strings.clone()),
            ("string[][]", json!({"type": "array", "items": strings})),
            ("string|null", json!({"type": ["string", "null"]})),
            ("string | integer", json!({"type": ["string", "integer"]})),
            ("number?", json!({"type": ["number", "null"]})),
        ] {
            assert_eq!(parse(text).map(Value::Object), Some(expected), "{text}");
        }
        let deep = "[]".repeat(1000);
        for text in
            ["", "a list of movies", "list of movies", "yes|no", "why?", "map<string>", "[]", &deep]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
