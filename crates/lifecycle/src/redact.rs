//! Removes secrets from what is written: values under names such as `password`, the same values where they appear without
//! the name, and texts that look like keys.

mod assignment;
mod key;
mod named;

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

use assignment::TextKind;

pub use named::NamedSecrets;

/// What stands where a secret stood.
pub const REDACTED: &str = "[redacted]";
/// Names whose value is a secret, as whole words of a key.
const SECRET_WORDS: [&str; 14] = [
    "password",
    "passwords",
    "passwd",
    "passphrase",
    "secret",
    "secrets",
    "apikey",
    "token",
    "authorization",
    "credential",
    "credentials",
    "creds",
    "passcode",
    "pwd",
];
/// The ends of words that name a secret: `pgpassword`, `mysqlpasswd`.
const SECRET_ENDS: [&str; 3] = ["password", "passwd", "passphrase"];
/// The name of a secret only if it is the whole key: `gpio_pin` and `pin_version` are not secrets.
const WHOLE_KEY: &str = "pin";
/// Names whose value is a secret, as the last words of a key: `cookie_policy` and `otp_length` are not secrets.
const LAST_WORDS: [&str; 7] =
    [WHOLE_KEY, "card pin", "sim pin", "otp", "otp code", "cookie", "bearer"];
/// How such a key ends, in lower case: most names are ruled out quickly.
const LAST_LETTERS: [&[u8]; 6] = [b"pin", b"otp", b"otp_code", b"otpcode", b"cookie", b"bearer"];
/// The field of a program's text.
const PROGRAM_FIELD: &str = "code";
/// The letters of which every such name has all of one of these: most names are ruled out quickly.
const SECRET_LETTERS: [u32; 11] = [
    letters("paswd"),
    letters("passphrase"),
    letters("passcode"),
    letters("pwd"),
    letters("creds"),
    letters("secret"),
    letters("key"),
    letters("token"),
    letters("authorization"),
    letters("credential"),
    letters("amzsignature"),
];
/// A named value without its secrets, as [`redacted`] gives it; copied only if it holds any.
pub(crate) fn redacted_field<'a>(name: &str, value: &'a Value) -> Cow<'a, Value> {
    if is_secret(name, value) {
        let mut hidden = value.clone();
        hide(&mut hidden);
        return Cow::Owned(hidden);
    }
    if holds_secrets(value) { Cow::Owned(redacted(value.clone())) } else { Cow::Borrowed(value) }
}

fn holds_secrets(value: &Value) -> bool {
    match value {
        Value::String(text) => holds_secret(text, TextKind::Prose),
        Value::Array(items) => items.iter().any(holds_secrets),
        Value::Object(fields) => fields.iter().any(|(name, value)| match value {
            Value::String(text) if name == PROGRAM_FIELD => holds_secret(text, TextKind::Program),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => is_secret(name, value) || holds_secrets(value),
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The value without its secrets.
pub fn redacted(mut value: Value) -> Value {
    redact(&mut value);
    value
}

fn redact(value: &mut Value) {
    match value {
        Value::String(text) => *text = redacted_text(std::mem::take(text)),
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Object(fields) => {
            for (name, value) in fields {
                if is_secret(name, value) {
                    hide(value);
                } else {
                    redact_field(name, value);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A description without what looks like a key, and without texts in quotes that are named as secrets; copied only if
/// it holds any. Fields are not judged by their names: `{"token": "string"}` describes a value and is not one.
pub(crate) fn redacted_description(value: &Value) -> Cow<'_, Value> {
    fn holds(value: &Value) -> bool {
        match value {
            Value::String(text) => holds_secret(text, TextKind::Program),
            Value::Array(items) => items.iter().any(holds),
            Value::Object(fields) => fields.values().any(holds),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    fn remove(value: &mut Value) {
        match value {
            Value::String(text) => {
                *text = without_secrets(std::mem::take(text), TextKind::Program);
            }
            Value::Array(items) => items.iter_mut().for_each(remove),
            Value::Object(fields) => fields.values_mut().for_each(remove),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    if !holds(value) {
        return Cow::Borrowed(value);
    }
    let mut clean = value.clone();
    remove(&mut clean);
    Cow::Owned(clean)
}

/// Removes the secrets of a value whose name is not that of a secret.
pub(crate) fn redact_field(name: &str, value: &mut Value) {
    match value {
        Value::String(text) if name == PROGRAM_FIELD => {
            *text = without_secrets(std::mem::take(text), TextKind::Program);
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => redact(value),
    }
}

/// Whether a value stands under a secret's name: a text, a number, or a list or map that holds one.
fn is_secret(name: &str, value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(_)) && names_a_secret(name)
}

/// Replaces every text and number of a secret; its shape stays.
fn hide(secret: &mut Value) {
    match secret {
        Value::String(_) | Value::Number(_) => *secret = Value::String(REDACTED.to_owned()),
        Value::Array(items) => items.iter_mut().for_each(hide),
        Value::Object(fields) => fields.values_mut().for_each(hide),
        Value::Null | Value::Bool(_) => {}
    }
}

/// `api_key`, `dbPassword`, `auth-token`, `password2`, `session_cookie`; but not `input_tokens` or `cookie_policy`.
pub(crate) fn names_a_secret(name: &str) -> bool {
    if ends_as_secret(name) {
        return true;
    }
    let has = letters(name);
    if name.is_ascii() && SECRET_LETTERS.iter().all(|needed| has & needed != *needed) {
        return false;
    }
    let spaced = spaced(name);
    let words = || spaced.split(' ');
    let is_secret_word = |word: &str| {
        SECRET_WORDS.contains(&word) || SECRET_ENDS.iter().any(|end| word.ends_with(end))
    };
    words().any(is_secret_word)
        || words().zip(words().skip(1)).any(|pair| {
            matches!(
                pair,
                (
                    "api"
                        | "private"
                        | "access"
                        | "account"
                        | "secret"
                        | "signing"
                        | "encryption"
                        | "master",
                    "key"
                ) | ("amz", "signature")
            )
        })
        || words().flat_map(str::chars).eq("apikey".chars())
}

/// Whether the last words of a key are those of a secret.
fn ends_as_secret(name: &str) -> bool {
    let has_end = |end: &[u8]| {
        let at = name.len().checked_sub(end.len());
        at.and_then(|at| name.as_bytes().get(at..)).is_some_and(|it| it.eq_ignore_ascii_case(end))
    };
    if !LAST_LETTERS.iter().any(|end| has_end(end)) {
        return false;
    }
    let spaced = spaced(name);
    let words = spaced.trim();
    LAST_WORDS.iter().any(|last| match words.strip_suffix(last) {
        Some("") => true,
        Some(before) => *last != WHOLE_KEY && before.ends_with(' '),
        None => false,
    })
}

/// The letters of a text, one bit each, whatever their case.
const fn letters(text: &str) -> u32 {
    let mut rest = text.as_bytes();
    let mut found = 0;
    while let [byte, after @ ..] = rest {
        if byte.is_ascii_alphabetic() {
            found |= 1 << (byte.to_ascii_lowercase() - b'a');
        }
        rest = after;
    }
    found
}

/// The words of a name, in lower case, a space between two.
fn spaced(name: &str) -> String {
    let mut words = String::with_capacity(2 * name.len());
    let mut after_lower = false;
    for c in name.chars() {
        let starts = c.is_uppercase() && after_lower;
        if !c.is_alphabetic() || starts {
            words.push(' ');
        }
        if c.is_alphabetic() {
            words.extend(c.to_lowercase());
        }
        after_lower = c.is_lowercase();
    }
    words
}

/// A text without what looks like a key or is named as a secret in it.
pub fn redacted_text(text: String) -> String {
    without_secrets(text, TextKind::Prose)
}

fn without_secrets(text: String, kind: TextKind) -> String {
    let Some(mut secret) = next_secret(text.as_bytes(), 0, kind) else { return text };
    let (mut clean, mut done) = (String::with_capacity(text.len()), 0);
    loop {
        clean.push_str(text.get(done..secret.start).unwrap_or_default());
        clean.push_str(REDACTED);
        done = secret.end;
        match next_secret(text.as_bytes(), done, kind) {
            Some(next) => secret = next,
            None => break,
        }
    }
    clean.push_str(text.get(done..).unwrap_or_default());
    clean
}

fn holds_secret(text: &str, kind: TextKind) -> bool {
    next_secret(text.as_bytes(), 0, kind).is_some()
}

/// The first secret of a text after a place: one look at each of its bytes, since most texts hold none. Secrets
/// begin and end at ASCII characters or at the end of the text.
fn next_secret(text: &[u8], from: usize, kind: TextKind) -> Option<Range<usize>> {
    let mut word = from;
    for at in from..=text.len() {
        let byte = text.get(at).copied().unwrap_or(b' ');
        if key::is_word(byte) {
            continue;
        }
        if word < at
            && let Some(found) = key::at_word(text, word..at)
        {
            return Some(found);
        }
        if byte == b' '
            && let Some(found) = assignment::after_word(text, word..at, kind)
        {
            return Some(found);
        }
        if (byte == b':' || byte == b'=')
            && let Some(found) = assignment::at_sign(text, at, kind)
        {
            return Some(found);
        }
        word = at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_removed_and_the_rest_stays() {
        for (value, expected) in [
            (json!({"api_key": "hunter2"}), json!({"api_key": "[redacted]"})),
            (
                json!({"dbPassword": "x", "user": "ada"}),
                json!({"dbPassword": "[redacted]", "user": "ada"}),
            ),
            (json!({"auth-token": 7}), json!({"auth-token": "[redacted]"})),
            (
                json!({"password1": "x", "oauth2token": "x", "api_key_2": "x", "k1": "x"}),
                json!({"password1": "[redacted]", "oauth2token": "[redacted]", "api_key_2": "[redacted]", "k1": "x"}),
            ),
            (
                json!({"PRIVATE_KEY": "x", "ApiKey": "x", "a.p.i.k.e.y": "x", "API \u{212a}ey": "x", "monkey": "x", "key": "x"}),
                json!({"PRIVATE_KEY": "[redacted]", "ApiKey": "[redacted]", "a.p.i.k.e.y": "[redacted]", "API \u{212a}ey": "[redacted]", "monkey": "x", "key": "x"}),
            ),
            (
                json!({"input_tokens": 7, "tokens": ["a"]}),
                json!({"input_tokens": 7, "tokens": ["a"]}),
            ),
            (
                json!({"pin": 1234, "card_pin": "1234", "otp": "123456", "otpCode": "1", "session_cookie": "x", "Bearer": "x"}),
                json!({"pin": "[redacted]", "card_pin": "[redacted]", "otp": "[redacted]", "otpCode": "[redacted]", "session_cookie": "[redacted]", "Bearer": "[redacted]"}),
            ),
            (
                json!({"gpio_pin": 13, "pin_version": "1.2", "spin": 1, "pincode": "110001", "otp_length": 6, "cookie_policy": "strict", "bearer_name": "ada", "forbearer": 1}),
                json!({"gpio_pin": 13, "pin_version": "1.2", "spin": 1, "pincode": "110001", "otp_length": 6, "cookie_policy": "strict", "bearer_name": "ada", "forbearer": 1}),
            ),
            (
                json!({"passwords": ["a", "b"], "secret": {"nested": "x", "n": 7, "on": true, "none": null}}),
                json!({"passwords": ["[redacted]", "[redacted]"], "secret": {"nested": "[redacted]", "n": "[redacted]", "on": true, "none": null}}),
            ),
            (
                json!({"PGPASSWORD": "x", "AccountKey": "x", "X-Amz-Signature": "x", "account": "ada"}),
                json!({"PGPASSWORD": "[redacted]", "AccountKey": "[redacted]", "X-Amz-Signature": "[redacted]", "account": "ada"}),
            ),
            (json!(["see sk-ant-api03-abcdefgh1234, ok?"]), json!(["see [redacted], ok?"])),
            (json!("a risk-free task"), json!("a risk-free task")),
            (json!("sk-abcdefghijk üsk-abcdefghijkl"), json!("sk-abcdefghijk ü[redacted]")),
            (json!("Bearer ghp_abcdefghijklmnop"), json!("Bearer [redacted]")),
            (json!({"code": "password = args[0]"}), json!({"code": "password = args[0]"})),
        ] {
            let clean = redacted(value);
            assert_eq!(clean, expected);
            assert_eq!(redacted(clean.clone()), clean, "a second time changes nothing");
        }
    }

    /// One look at each byte: a text of many short words takes no longer than any other.
    #[test]
    fn a_chain_of_names_is_searched_in_linear_time() {
        for word in ["a.", "e.", "t1x.", "-", "SG"] {
            let text = word.repeat(500_000);
            assert_eq!(redacted_text(text.clone()), text);
        }
    }

    #[test]
    fn keys_of_services_are_removed() {
        let token =
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P";
        let many = "0123456789abcdef".repeat(8);
        for secret in [
            token,
            "glpat-abcdefghij0123456789",
            "hf_abcdefghijklmnopqrstuvwxyz",
            "rk_live_abcdefghijklmnop",
            "sk_test_abcdefghijklmnop",
            "ASIAABCDEFGHIJKLMNOP",
            "AKIAABCDEFGHIJKLMNOP",
            "npm_abcdefghijklmnopqrstuvwxyz0123456789",
            "ghs_abcdefghijklmnopqrstuvwxyz0123456789",
            "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----",
            &format!("SG.{many}"),
            &format!("hvs.{many}"),
            &format!("dop_v1_{many}"),
            &format!("pypi-AgEIcHlwaS5vcmc{many}"),
        ] {
            for (before, after) in
                [("", ""), ("use ", ", now"), ("{\"a\":\"", "\"}"), ("x=", "&y=1")]
            {
                let clean = redacted_text(format!("{before}{secret}{after}"));
                assert_eq!(clean, format!("{before}{REDACTED}{after}"), "{secret}");
            }
        }
        for plain in [
            "ASIA-PACIFIC-REGION-2024",
            "ASIAN countries",
            "eyJhbGciOiJIUzI1NiJ9",
            "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
            "----------------------------",
            "skeleton-of-a-very-long-word",
            "SKilled",
            "api_org_chart",
            "hf_hub",
        ] {
            assert_eq!(redacted_text(plain.to_owned()), plain);
        }
    }

    #[test]
    fn what_a_text_names_as_a_secret_goes() {
        for (text, expected) in [
            ("password=hunter2", "password=[redacted]"),
            ("user=ada&password=hunter2&x=1", "user=ada&password=[redacted]&x=1"),
            ("DB_PASSWORD='hunter2'", "DB_PASSWORD='[redacted]'"),
            ("db_password: hunter2\nport: 1", "db_password: [redacted]\nport: 1"),
            (r#"{"password": "hunter2", "a": 1}"#, r#"{"password": "[redacted]", "a": 1}"#),
            (r#"{\"token\":\"hunter2\"}"#, r#"{\"token\":\"[redacted]\"}"#),
            (":api_key => 'hunter2'", ":api_key => '[redacted]'"),
            ("Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"),
            ("-H 'Authorization: Basic YWRhOng='", "-H 'Authorization: Basic [redacted]'"),
            ("postgres://ada:hunter2@db.example/x", "postgres://ada:[redacted]@db.example/x"),
            ("https://:t0ken@host", "https://:[redacted]@host"),
            ("two token=abc1 token=def2", "two token=[redacted] token=[redacted]"),
            ("curl -u ada:hunter2 http://x", "curl -u ada:[redacted] http://x"),
            ("curl -s --user 'a@b.c:hunter2'", "curl -s --user 'a@b.c:[redacted]'"),
            ("psql --password hunter2 -x", "psql --password [redacted] -x"),
            ("x --api-key 'Hunter'", "x --api-key '[redacted]'"),
            ("x --token 12345678", "x --token [redacted]"),
            ("her passwd is hunter2.", "her passwd is [redacted]."),
            ("the API token is aBcDeF", "the API token is [redacted]"),
            ("password = hunter22", "password = [redacted]"),
            (
                "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPx\nregion = eu",
                "aws_secret_access_key = [redacted]\nregion = eu",
            ),
            ("PGPASSWORD=hunter2 psql", "PGPASSWORD=[redacted] psql"),
            ("machine x login ada password hunter2", "machine x login ada password [redacted]"),
            ("AccountKey=Abc123==;Endpoint=x", "AccountKey=[redacted];Endpoint=x"),
        ] {
            let clean = redacted_text(text.to_owned());
            assert_eq!(clean, expected);
            assert_eq!(redacted_text(clean.clone()), clean, "a second time changes nothing");
        }
        for plain in [
            "input_tokens=7000",
            "the password is long",
            "the secret is 32 bytes long",
            "the token is EXPIRED",
            "its token is $TOKEN1",
            "docker run -u 1000:1000 curl",
            "curl -u ada:$PASSWORD",
            "use the --token option",
            "--password --verbose2",
            "--password-file /run/x1",
            "--verbose hunter2",
            "password == other",
            "token = next(tokens)",
            "password = getpass",
            "the password policy is strict",
            "password=null",
            "http://ada@host/x:y@z",
            "secret::value",
            "monkey=banana",
        ] {
            assert_eq!(redacted_text(plain.to_owned()), plain);
        }
    }

    #[test]
    fn of_a_program_only_literals_go() {
        for (code, expected) in [
            ("connect(password='hunter22')", "connect(password='[redacted]')"),
            ("token = \"abc123def\"", "token = \"[redacted]\""),
            ("connect(password=password)", "connect(password=password)"),
            (
                "headers = {'Authorization': 'Bearer ' + token}",
                "headers = {'Authorization': 'Bearer ' + token}",
            ),
            ("{'Authorization': f'Bearer {key1}'}", "{'Authorization': f'Bearer {key1}'}"),
            ("{'token': 'bearer'}", "{'token': 'bearer'}"),
            ("key = 'sk-abcdefghijklmnop'", "key = '[redacted]'"),
        ] {
            assert_eq!(redacted(json!({"code": code})), json!({"code": expected}));
        }
    }
}
