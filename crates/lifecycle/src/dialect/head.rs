//! The head of the function that a program defines for a call: `def convert(number, from_, to):`.
//!
//! The call is known before a program is written, so a model need not guess how its function is called. Names come
//! from keywords and from an earlier program's function; other parameters are named by the type of what they are given.

use std::borrow::Cow;

use serde_json::Value;

use super::{Language, ParameterKind, Signature, inspect};
use crate::request::Arguments;

/// Most parameters of a head; a call with more arguments has none, and its program reads `args`.
const MAX_PARAMETERS: usize = 12;
/// Longest name in a head, in bytes; a longer one is not repeated to a model.
const MAX_NAME_BYTES: usize = 64;

/// Words that cannot name a function or a parameter. Sorted.
const PYTHON_WORDS: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import",
    "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while",
    "with", "yield",
];
/// Words that cannot name a function or a parameter. Sorted.
const RUBY_WORDS: &[&str] = &[
    "BEGIN",
    "END",
    "__ENCODING__",
    "__FILE__",
    "__LINE__",
    "alias",
    "and",
    "begin",
    "break",
    "case",
    "class",
    "def",
    "defined",
    "do",
    "else",
    "elsif",
    "end",
    "ensure",
    "false",
    "for",
    "if",
    "in",
    "module",
    "next",
    "nil",
    "not",
    "or",
    "redo",
    "rescue",
    "retry",
    "return",
    "self",
    "super",
    "then",
    "true",
    "undef",
    "unless",
    "until",
    "when",
    "while",
    "yield",
];
/// Names that a program finds in scope: a function of that name would hide one of them.
const SURFACE: [&str; 11] = [
    "args", "kwargs", "result", "context", "memory", "tool", "delegate", "remember", "content",
    "infer", "look",
];

/// The head of the function to write for a call, as one line of its language; `None`: a call whose arguments have no
/// readable names is answered by a program that reads `args` and `kwargs`.
///
/// `earlier` is what an earlier program of the method takes: its names for positional parameters are used again.
pub fn head(
    language: Language,
    method: &str,
    arguments: &Arguments,
    earlier: Option<&Signature>,
) -> Option<String> {
    let keywords = keywords(language, arguments)?;
    if arguments.args.len() + keywords.len() > MAX_PARAMETERS {
        return None;
    }
    let positional = positional(language, arguments, &keywords, earlier);
    let name = function_name(language, method);
    let head = match language {
        Language::Python => {
            let all: Vec<&str> = positional.iter().chain(&keywords).map(String::as_str).collect();
            format!("def {name}({}):", all.join(", "))
        }
        Language::Ruby => {
            let named = keywords.iter().map(|name| format!("{name}:"));
            let all: Vec<String> = positional.iter().cloned().chain(named).collect();
            let list = all.join(", ");
            if list.is_empty() { format!("def {name}") } else { format!("def {name}({list})") }
        }
    };
    is_head(language, &head).then_some(head)
}

/// The name of the function for a method. A name that is not an identifier becomes one: `a-b` is `a_b`, `2fa` is
/// `_2fa`, `class` is `class_`. The harnesses of the guests map names in the same way.
pub fn function_name(language: Language, method: &str) -> String {
    let (stem, mark) = match language {
        Language::Python => (method.trim_end_matches(['?', '!']), ""),
        Language::Ruby => match method.char_indices().next_back() {
            Some((at, '?' | '!')) if at > 0 => method.split_at(at),
            Some(_) | None => (method, ""),
        },
    };
    let name = identifier(language, stem);
    let name = if mark.is_empty() && SURFACE.contains(&&*name) { format!("{name}_") } else { name };
    name + mark
}

/// Whether the harness may call a function of this name for a method.
pub(super) fn is_named_like(language: Language, method: &str, name: &str) -> bool {
    let is_plain = is_identifier(language, method) && !SURFACE.contains(&method);
    name == method
        || (!is_plain
            && (name == function_name(language, method)
                || name == identifier(language, method.trim_end_matches(['?', '!']))))
}

/// The parameter that takes a keyword argument: its name, or an identifier in its place (`from_` for `from`).
pub fn parameter_name(language: Language, keyword: &str) -> Cow<'_, str> {
    if is_identifier(language, keyword) {
        return Cow::Borrowed(keyword);
    }
    Cow::Owned(identifier(language, keyword))
}

fn is_identifier(language: Language, name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || c == '_')
        && !is_reserved(language, name)
}

/// Whether the language uses this word itself.
pub(crate) fn is_reserved(language: Language, name: &str) -> bool {
    let words = match language {
        Language::Python => PYTHON_WORDS,
        Language::Ruby => RUBY_WORDS,
    };
    words.binary_search(&name).is_ok()
}

/// The text with every other character as `_`; `_` before a digit, and after a reserved word.
fn identifier(language: Language, text: &str) -> String {
    let mut name: String =
        text.chars().map(|c| if c.is_alphanumeric() || c == '_' { c } else { '_' }).collect();
    if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') {
        name.insert(0, '_');
    }
    if is_reserved(language, &name) {
        name.push('_');
    }
    name
}

/// The parameters of keyword arguments, in order; `None`: two would have one name.
fn keywords(language: Language, arguments: &Arguments) -> Option<Vec<String>> {
    let mut names: Vec<String> = Vec::new();
    for keyword in arguments.kwargs.keys() {
        let name = parameter_name(language, keyword).into_owned();
        // A capital would make it a constant of Ruby.
        let is_constant = language == Language::Ruby && name.starts_with(char::is_uppercase);
        if name.len() > MAX_NAME_BYTES || is_constant || names.contains(&name) {
            return None;
        }
        names.push(name);
    }
    Some(names)
}

/// The parameters of positional arguments, each with a name of its own.
fn positional(
    language: Language,
    arguments: &Arguments,
    keywords: &[String],
    earlier: Option<&Signature>,
) -> Vec<String> {
    let roles: Vec<&str> = arguments.args.iter().map(role_of).collect();
    let known: Vec<&str> = earlier.map(positional_names).unwrap_or_default();
    let mut names: Vec<String> = Vec::new();
    for (index, role) in roles.iter().enumerate() {
        let of_role = roles.iter().filter(|other| *other == role).count();
        let number = roles.iter().take(index + 1).filter(|other| *other == role).count();
        let earlier = known.get(index).filter(|name| is_identifier(language, name));
        let proposed = match earlier {
            Some(name) => (*name).to_owned(),
            None if of_role == 1 => (*role).to_owned(),
            None => numbered(role, number, of_role),
        };
        let is_taken = |name: &String| names.contains(name) || keywords.contains(name);
        let mut others = (2..).map(|n| format!("{proposed}{n}"));
        let name = Some(proposed.clone()).filter(|name| !is_taken(name));
        names.extend(name.or_else(|| others.find(|name| !is_taken(name))));
    }
    names
}

/// One of several parameters of the same role: `a` and `b` for two or three numbers, `text1` and `text2` for texts.
fn numbered(role: &str, number: usize, of_role: usize) -> String {
    let letter = match number {
        1 => "a",
        2 => "b",
        _ => "c",
    };
    if role == "number" && of_role <= 3 { letter.to_owned() } else { format!("{role}{number}") }
}

fn positional_names(signature: &Signature) -> Vec<&str> {
    let by_place = signature.parameters.iter().filter(|it| it.kind != ParameterKind::Keyword);
    by_place.map(|it| it.name.as_str()).collect()
}

/// What a value is to a function, by its type.
fn role_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "value",
        Value::Bool(_) => "flag",
        Value::Number(_) => "number",
        Value::String(text) if is_date(text) => "date",
        Value::String(text) if text.starts_with("http://") || text.starts_with("https://") => "url",
        Value::String(_) => "text",
        Value::Object(_) => "record",
        Value::Array(items) => match items.first() {
            Some(Value::Number(_)) => "numbers",
            Some(Value::String(_)) => "texts",
            Some(Value::Object(_)) => "records",
            Some(Value::Array(_)) => "rows",
            Some(Value::Null | Value::Bool(_)) | None => "items",
        },
    }
}

/// Whether a text is a date such as `2026-11-15`.
fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

/// Whether the parser of the language reads it as the head of one function. Letters of some scripts are not part of
/// identifiers.
fn is_head(language: Language, head: &str) -> bool {
    let source = match language {
        Language::Python => format!("{head}\n    pass\n"),
        Language::Ruby => format!("{head}\nend\n"),
    };
    head.is_ascii()
        || inspect(language, &source).is_ok_and(
            |found| matches!(found.definitions.as_slice(), [only] if head.contains(&only.name)),
        )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(language: Language, method: &str, args: Value, kwargs: Value, expected: Option<&str>) {
        let (Value::Array(args), Value::Object(kwargs)) = (args, kwargs) else {
            panic!("a list and an object")
        };
        let arguments = Arguments { args, kwargs };
        let found = head(language, method, &arguments, None);
        assert_eq!(found.as_deref(), expected, "{method}({arguments})");
        let Some(found) = found else { return };
        let end = if language == Language::Python { "\n    pass\n" } else { "\nend\n" };
        let read = inspect(language, &format!("{found}{end}")).unwrap();
        let function = read.function(language, method).unwrap();
        let signature = function.signature.as_ref().unwrap();
        let fits = signature.match_arguments(language, &arguments);
        assert_eq!(fits, super::super::ArgumentMatch::Matches, "{found}");
    }

    #[test]
    fn a_head_takes_the_arguments_of_its_call() {
        use Language::{Python, Ruby};
        let units = || json!({"from": "celsius", "to": "fahrenheit"});
        for (language, method, args, kwargs, expected) in [
            (Python, "total", json!([[1, 2]]), json!({}), "def total(numbers):"),
            (Python, "total", json!([[]]), json!({}), "def total(items):"),
            (Python, "now", json!([]), json!({}), "def now():"),
            (Python, "convert", json!([100]), units(), "def convert(number, from_, to):"),
            (Python, "gcd", json!([84, 36]), json!({}), "def gcd(a, b):"),
            (
                Python,
                "days",
                json!(["2024-02-27", "2024-03-02"]),
                json!({}),
                "def days(date1, date2):",
            ),
            (
                Python,
                "f",
                json!(["x", 2, {"a": 1}, [{"a": 1}], [[1]], ["s"], true, null, "https://x"]),
                json!({}),
                "def f(text, number, record, records, rows, texts, flag, value, url):",
            ),
            (Python, "f", json!(["x"]), json!({"text": 1}), "def f(text2, text):"),
            (Python, "save!", json!([1]), json!({}), "def save(number):"),
            (Python, "2fa", json!([]), json!({}), "def _2fa():"),
            (Python, "class", json!([]), json!({}), "def class_():"),
            (Python, "a-b", json!([]), json!({}), "def a_b():"),
            (Python, "result", json!([]), json!({}), "def result_():"),
            (Python, "größe", json!([1]), json!({}), "def größe(number):"),
            (Ruby, "total", json!([["a"]]), json!({}), "def total(texts)"),
            (Ruby, "now", json!([]), json!({}), "def now"),
            (Ruby, "convert", json!([100]), units(), "def convert(number, from:, to:)"),
            (Ruby, "cut", json!(["x"]), json!({"end": 2}), "def cut(text, end_:)"),
            (Ruby, "save!", json!([1]), json!({}), "def save!(number)"),
            (Ruby, "empty?", json!([[]]), json!({}), "def empty?(items)"),
            (Ruby, "class", json!([]), json!({}), "def class_"),
            (Ruby, "2fa", json!([]), json!({}), "def _2fa"),
            (Ruby, "a-b", json!([]), json!({}), "def a_b"),
            (Ruby, "größe", json!([1]), json!({}), "def größe(number)"),
        ] {
            check(language, method, args, kwargs, Some(expected));
        }
    }

    #[test]
    fn a_call_without_readable_names_has_no_head() {
        for language in Language::ALL {
            for (args, kwargs) in [
                (json!(vec![1; 13]), json!({})),
                (json!([]), json!({"a-b": 1, "a_b": 2})),
                (json!([]), json!({"x".repeat(65): 1})),
            ] {
                check(language, "f", args, kwargs, None);
            }
        }
        check(Language::Ruby, "f", json!([]), json!({"Name": 1}), None);
    }

    #[test]
    fn an_earlier_program_names_the_parameters() {
        let source = "def area(width, height, *, unit='m'):\n    return width * height";
        let read = inspect(Language::Python, source).unwrap();
        let earlier = read.function(Language::Python, "area").unwrap().signature.as_ref();
        for (count, expected) in [
            (2, "def area(width, height):"),
            (3, "def area(width, height, c):"),
            (1, "def area(width):"),
        ] {
            let arguments = Arguments { args: vec![json!(1); count], ..Arguments::default() };
            let found = head(Language::Python, "area", &arguments, earlier);
            assert_eq!(found.as_deref(), Some(expected));
        }
    }

    #[test]
    fn words_are_sorted() {
        assert!(PYTHON_WORDS.is_sorted() && RUBY_WORDS.is_sorted());
    }
}
