//! A value as it was written: a text, a literal or a list.

use serde_json::Value;

use super::Expected;

/// A value as it was written, before it is parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config) enum Written {
    /// A text: of a flag, of the environment, or in quotes in the configuration file.
    Text(String),
    /// A number, or true or false, without quotes in the configuration file.
    Literal(String),
    /// A list: an array in the configuration file, or a flag that was repeated.
    List(Vec<String>),
}

impl Written {
    /// A JSON value. One that no setting can have is kept as text, for the message.
    pub(in crate::config) fn of_json(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(items) => {
                let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
                let texts: Option<Vec<String>> = texts.collect();
                texts.map_or_else(|| Self::Literal(value.to_string()), Self::List)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                Self::Literal(value.to_string())
            }
        }
    }

    /// One value, as text.
    pub(in crate::config) fn one(&self) -> Result<&str, Expected> {
        match self {
            Self::Text(text) | Self::Literal(text) => Ok(text),
            Self::List(_) => Err("one value, without brackets".to_owned()),
        }
    }

    /// A text in quotes: a number or a flag is not a path.
    pub(in crate::config) fn text(&self) -> Result<&str, Expected> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Literal(_) | Self::List(_) => Err("a text in quotes".to_owned()),
        }
    }

    /// The items of a list. As text they are separated, or they are a JSON array, if the text begins like one.
    pub(in crate::config) fn items(&self) -> Result<Vec<String>, Expected> {
        match self {
            Self::List(items) => Ok(items.clone()),
            Self::Text(text) | Self::Literal(text) if begins_like_array(text) => json_array(text)
                .ok_or_else(|| {
                    "a JSON array of texts, because it begins with `[`, or items separated by commas"
                        .to_owned()
                }),
            Self::Text(text) | Self::Literal(text) => Ok(separated(text)),
        }
    }

    /// The hosts of a list. An IPv6 address begins with `[` too.
    pub(in crate::config) fn hosts(&self) -> Vec<String> {
        match self {
            Self::List(items) => items.clone(),
            Self::Text(text) | Self::Literal(text) => {
                json_array(text).unwrap_or_else(|| separated(text))
            }
        }
    }

    /// The paths of a list, separated by colons. Any text can be a path, so a text that begins like an array must be one.
    pub(in crate::config) fn paths(&self) -> Result<Vec<String>, Expected> {
        match self {
            Self::List(items) => Ok(items.clone()),
            Self::Text(text) | Self::Literal(text) if begins_like_array(text) => json_array(text)
                .ok_or_else(|| {
                    "a JSON array of paths, because it begins with `[` (a path can begin with `./[`)"
                        .to_owned()
                }),
            Self::Text(text) | Self::Literal(text) => {
                Ok(text.split(':').filter(|path| !path.is_empty()).map(str::to_owned).collect())
            }
        }
    }

    /// It as one text, for messages.
    pub(in crate::config) fn shown(&self) -> String {
        match self {
            Self::Text(text) | Self::Literal(text) => text.clone(),
            Self::List(items) => items.join(", "),
        }
    }
}

fn begins_like_array(text: &str) -> bool {
    text.trim_start().starts_with('[')
}

/// The texts and numbers of a JSON array, as texts.
fn json_array(text: &str) -> Option<Vec<String>> {
    let item = |item: Value| match item {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let items: Vec<Value> = serde_json::from_str(text).ok()?;
    items.into_iter().map(item).collect()
}

fn separated(text: &str) -> Vec<String> {
    let items = text.split(|c: char| c == ',' || c.is_whitespace());
    items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
}
