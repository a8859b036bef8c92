//! `missing_credentials`: a program that cannot run without a key from its environment.
//!
//! Keys never reach a worker, so reading one there can only fail, and writing the program again does not
//! bring it: this rule ends the call, unless `guardrail_terminal` says otherwise. A key that may be
//! absent passes: one with a default, one whose absence is rescued, one that is asked for or set by the
//! program itself. So do a program that reports `missing_credentials`, and everything read from the
//! arguments.
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

use crate::dialect::{Call, Inspection, Lookup, Position};

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
    let needed: Vec<_> = lookups.chain(calls).filter(|(name, _)| says_credential(name)).collect();
    let expects = |name: &str| mentions(subject.inspection, name) <= times(&needed, name);
    let &(name, position) = needed.iter().find(|(name, _)| expects(name))?;
    Some(Finding::at(
        position,
        format!("the program needs the credential `{name}`, and a worker's environment holds none"),
        "Take the credential as an argument of the call, use a source that needs none, or return an \
         error outcome `missing_credentials` that says which one is needed.",
    ))
}

/// `os.environ["NAME"]`
fn looked_up(lookup: &Lookup) -> Option<(&str, Position)> {
    let environment = lookup.object.path() == Some("os.environ") && !lookup.guarded;
    Some((lookup.key.as_str().filter(|_| environment)?, lookup.position))
}

/// `ENV.fetch("NAME")`, with nothing to fall back on.
fn fetched(call: &Call) -> Option<(&str, Position)> {
    let alone = call.arguments.len() == 1 && !call.guarded;
    let needs = alone && call.path().as_deref() == Some("ENV.fetch");
    Some((call.argument(0).filter(|_| needs)?.text()?, call.position))
}

/// How often the program says the name: more than it needs it when it asks first whether it is there
/// (`"NAME" in os.environ`, `ENV.key?("NAME")`), or sets it.
fn mentions(inspection: &Inspection, name: &str) -> usize {
    let literals = inspection.literals.iter().filter(|literal| literal.value == name);
    literals.count()
}

fn times(needed: &[(&str, Position)], name: &str) -> usize {
    needed.iter().filter(|(needed, _)| *needed == name).count()
}

fn says_credential(name: &str) -> bool {
    name.split('_').any(|word| CREDENTIAL_WORDS.contains(&word.to_ascii_uppercase().as_str()))
}
