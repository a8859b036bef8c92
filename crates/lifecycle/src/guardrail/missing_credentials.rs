//! `missing_credentials`: a program that cannot run without a key from its environment.
//!
//! Keys never reach a worker, so reading one there can only fail, and writing the program again does not
//! bring it: this rule ends the call, unless `guardrail_terminal` says otherwise. A key that may be
//! absent passes, as does a program that reports `missing_credentials` itself; so does everything read
//! from the arguments.
//!
//! ```python
//! import os
//! key = os.environ["WEATHER_API_KEY"]          # barred
//! key = os.environ.get("WEATHER_API_KEY")      # passes: it may be absent
//! key = kwargs["api_key"]                      # passes
//! ```
//! ```ruby
//! key = ENV.fetch("WEATHER_API_KEY")           # barred
//! key = ENV["WEATHER_API_KEY"]                 # passes: it may be nil
//! key = kwargs.fetch(:api_key)                 # passes
//! ```

use crate::dialect::{Call, Lookup, Position};

use super::{Finding, Subject};

/// Words in a variable's name that say it holds a credential.
const CREDENTIAL_WORDS: &[&str] =
    &["APIKEY", "CREDENTIAL", "CREDENTIALS", "KEY", "PASSWD", "PASSWORD", "SECRET", "TOKEN"];

pub(super) fn find(subject: &Subject<'_>) -> Option<Finding> {
    if subject.inspection.says("missing_credentials") {
        return None;
    }
    let lookups = subject.inspection.lookups.iter().filter_map(looked_up);
    let calls = subject.inspection.calls.iter().filter_map(fetched);
    let (name, position) = lookups.chain(calls).find(|(name, _)| says_credential(name))?;
    Some(Finding::at(
        position,
        format!("the program needs the credential `{name}`, and a worker's environment holds none"),
        "Take the credential as an argument of the call, use a source that needs none, or return an \
         error outcome `missing_credentials` that says which one is needed.",
    ))
}

/// `os.environ["NAME"]`
fn looked_up(lookup: &Lookup) -> Option<(&str, Position)> {
    let environment = lookup.object.path() == Some("os.environ");
    Some((lookup.key.as_str().filter(|_| environment)?, lookup.position))
}

/// `ENV.fetch("NAME")`, with nothing to fall back on.
fn fetched(call: &Call) -> Option<(&str, Position)> {
    let needs = call.arguments.len() == 1 && call.path().as_deref() == Some("ENV.fetch");
    Some((call.argument(0).filter(|_| needs)?.text()?, call.position))
}

fn says_credential(name: &str) -> bool {
    name.split('_').any(|word| CREDENTIAL_WORDS.contains(&word.to_ascii_uppercase().as_str()))
}
