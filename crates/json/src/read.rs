//! Readers of JSON text that accept what RFC 8259 allows and nothing else.

use std::io;

use memchr::memmem;
use serde::de::{Deserialize, DeserializeOwned, Error as _};
use serde_json_lenient::de::Read;
use serde_json_lenient::{Deserializer, Error, Number, Result, Value};

/// The key under which the fork passes a number through serde. An object with this key would be read as a
/// number, so that text which holds it is refused.
pub const RESERVED_KEY: &str = "$serde_json_lenient::private::Number";

/// Reads a value from text.
pub fn from_str<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T> {
    refuse_reserved_key(text.as_bytes())?;
    strictly(Deserializer::from_str(text))
}

/// Reads a value from bytes, which must be UTF-8.
pub fn from_slice<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T> {
    refuse_reserved_key(bytes)?;
    strictly(Deserializer::from_slice(bytes))
}

/// Reads a value from all that a reader gives.
pub fn from_reader<T: DeserializeOwned>(mut reader: impl io::Read) -> Result<T> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(Error::io)?;
    from_slice(&bytes)
}

/// Reads a typed value from a JSON value.
///
/// A float whose text is not the shortest one (`1e-07`) reaches the type as a float all the same. The fork passes
/// such a number on as a map, which flattened, tagged and untagged types do not accept.
pub fn from_value<T: DeserializeOwned>(mut value: Value) -> Result<T> {
    shorten_floats(&mut value);
    serde_json_lenient::from_value(value)
}

fn shorten_floats(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_str().contains(['.', 'e', 'E']) => {
            if let Some(float) = number.as_f64().and_then(Number::from_f64) {
                *number = float;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(shorten_floats),
        Value::Object(fields) => fields.values_mut().for_each(shorten_floats),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn strictly<'a, R: Read<'a>, T: Deserialize<'a>>(mut reader: Deserializer<R>) -> Result<T> {
    reader.set_allow_comments(false);
    reader.set_ignore_trailing_commas(false);
    let value = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

fn refuse_reserved_key(text: &[u8]) -> Result<()> {
    // Every character of the key is ASCII, so that only escapes that begin like this can spell it.
    let may_hold = memmem::find(text, RESERVED_KEY.as_bytes()).is_some()
        || memmem::find(text, br"\u00").is_some();
    if may_hold && holds_reserved_key(text) {
        let problem = format!("the key {RESERVED_KEY:?} is reserved; use another key");
        return Err(Error::custom(problem));
    }
    Ok(())
}

/// Whether some object of the text has the key. Of text that is not JSON the answer does not matter.
fn holds_reserved_key(mut text: &[u8]) -> bool {
    while let Some(start) = memchr::memchr(b'"', text) {
        let string = text.get(start + 1..).unwrap_or_default();
        let (matches, rest) = compare_string(string, RESERVED_KEY.as_bytes());
        if matches && rest.trim_ascii_start().starts_with(b":") {
            return true;
        }
        text = rest;
    }
    false
}

/// Whether the string whose content begins the text is the expected one, and the text after its closing quote.
fn compare_string<'a>(mut text: &'a [u8], expected: &[u8]) -> (bool, &'a [u8]) {
    let mut expected = expected.iter();
    let mut matches = true;
    loop {
        let (byte, rest) = match text {
            [] => return (false, text),
            [b'"', rest @ ..] => return (matches && expected.next().is_none(), rest),
            [b'\\', b'u', hex @ ..] => {
                let digits = hex.get(..4).and_then(|digits| std::str::from_utf8(digits).ok());
                let code = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok());
                let byte = code.and_then(|code| u8::try_from(code).ok()).filter(u8::is_ascii);
                (byte, hex.get(4..).unwrap_or_default())
            }
            [b'\\', _, rest @ ..] => (None, rest),
            [byte, rest @ ..] => (Some(*byte), rest),
        };
        matches &= byte.is_some() && expected.next() == byte.as_ref();
        text = rest;
    }
}
