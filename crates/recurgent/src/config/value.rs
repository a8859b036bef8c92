//! The types that settings have: how each is read from text, and what a typed value must be.
//!
//! What reads or checks a value returns what it must be when it is something else; the caller says which setting it was
//! and where the value came from.

mod number;
mod package;
mod path;
mod service;
mod text;
mod written;

use std::path::PathBuf;
use std::str::FromStr;

use lifecycle::dependency::{ManifestMode, SourceMode};
use lifecycle::dialect::Language;
use lifecycle::guardrail::Rule;
use lifecycle::standing::StandingMode;

use crate::grants::{ModelSees, Network, ToolGrant, host_and_port};
use crate::worker::Tier;

pub(super) use number::{count, optional_count, optional_number, optional_seconds, ports, seconds};
pub(super) use package::{gems, indexes, python_packages};
pub(super) use path::{directory, log_target, optional_path, paths, working_directory};
pub(super) use service::{
    installer_proxy, model, model_mirror, optional_address, optional_model, provider_setting,
    service_proxy,
};
pub(super) use text::ToText;
pub(super) use written::Written;

/// The largest count that fits every type counts are read as, except the depth of delegation.
pub(super) const MANY: u64 = u32::MAX as u64;
/// The largest age of a package that can be required: a hundred years.
pub(super) const MAX_AGE_DAYS: u64 = 36_500;
/// The largest depth of delegation.
pub(super) const DEEPEST: u64 = u8::MAX as u64;

/// Where the log is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LogTarget {
    /// A file in the state directory.
    #[default]
    StateDir,
    /// This file.
    File(PathBuf),
    /// Nowhere.
    Off,
}

/// What the value must be, when it is something else.
pub(super) type Expected = String;

/// One type of value: how it is read from text (`W`: `str`, or `[String]` for lists), and what a typed value must be.
pub(super) struct ValueType<W: ?Sized, T> {
    pub(super) read: fn(&W) -> Result<T, Expected>,
    /// Returns the value, with its paths made absolute.
    pub(super) check: fn(T) -> Result<T, Expected>,
}

impl<W: ?Sized, T> ValueType<W, T> {
    /// A type of which every value is good.
    fn any(read: fn(&W) -> Result<T, Expected>) -> Self {
        Self { read, check: Ok }
    }
}

/// Checks a typed value. The error is what it must be, and its text.
pub(super) fn checked<T: ToText + Clone>(
    value: &T,
    check: fn(T) -> Result<T, Expected>,
) -> Result<T, (Expected, String)> {
    if !value.is_utf8() {
        return Err(("valid UTF-8".to_owned(), value.to_text()));
    }
    check(value.clone()).map_err(|expected| (expected, value.to_text()))
}

/// Any text.
pub(super) fn name() -> ValueType<str, String> {
    ValueType::any(|text| Ok(text.to_owned()))
}

/// The name or address of a host, as [`Network`] lists them: `host:port` is one port of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(String);

impl HostName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        host_and_port(text).ok_or("a host like files.example.org, HOST:PORT or an address")?;
        Ok(Self(text.to_owned()))
    }
}

/// The name of an environment variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableName(String);

impl VariableName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for VariableName {
    type Err = &'static str;

    // Bundler's settings have names such as `BUNDLE_MIRROR__HTTPS://GEMS__EXAMPLE/`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_odd = |c: char| c == '=' || c.is_whitespace() || c.is_control();
        if text.is_empty() || text.contains(is_odd) {
            return Err("the name of an environment variable, without = and spaces");
        }
        Ok(Self(text.to_owned()))
    }
}

/// Hosts.
pub(super) fn hosts() -> ValueType<[String], Vec<HostName>> {
    ValueType::any(each)
}

/// Names of environment variables.
pub(super) fn variables() -> ValueType<[String], Vec<VariableName>> {
    ValueType::any(each)
}

fn each<T: FromStr<Err = &'static str>>(items: &[String]) -> Result<Vec<T>, Expected> {
    let parsed = |item: &String| {
        item.parse().map_err(|expected| format!("a list, each {expected} (`{item}` is not)"))
    };
    items.iter().map(parsed).collect()
}

/// What a model may be shown.
pub(super) fn model_sees() -> ValueType<str, ModelSees> {
    ValueType::any(|text| {
        let named = ModelSees::ALL.into_iter().find(|known| known.name() == text);
        named.ok_or_else(|| ModelSees::ALL.map(ModelSees::name).join(" or "))
    })
}

pub(super) fn flag() -> ValueType<str, bool> {
    ValueType::any(|text| text.parse().map_err(|_| "true or false".to_owned()))
}

pub(super) fn language() -> ValueType<str, Language> {
    ValueType::any(|text| text.parse().map_err(|_| Language::ALL.map(Language::name).join(" or ")))
}

/// Guardrails, each by its subtype or with all others of its type.
pub(super) fn rules() -> ValueType<[String], Vec<Rule>> {
    ValueType::any(|items| {
        let named = |name: &String| {
            let named = Rule::from_subtype(name);
            let is_named =
                |rule: &Rule| named == Some(*rule) || rule.violation_type().name() == *name;
            let found: Vec<Rule> = Rule::ALL.iter().copied().filter(is_named).collect();
            (!found.is_empty()).then_some(found)
        };
        let found = items.iter().map(named).collect::<Option<Vec<_>>>();
        found.map(|found| found.concat()).ok_or_else(|| {
            let all = Rule::ALL.iter().map(|rule| rule.subtype()).collect::<Vec<_>>().join(", ");
            format!("a list of violation subtypes or types, of {all}")
        })
    })
}

pub(super) fn network() -> ValueType<str, Network> {
    ValueType {
        read: |text| text.parse().map_err(str::to_owned),
        check: |network| network.checked().map_err(str::to_owned),
    }
}

pub(super) fn tool_grant() -> ValueType<str, ToolGrant> {
    ValueType::any(|text| text.parse().map_err(str::to_owned))
}

pub(super) fn tier() -> ValueType<str, Tier> {
    ValueType::any(|text| Tier::named(text).ok_or_else(|| Tier::ALL.map(Tier::name).join(" or ")))
}

pub(super) fn manifest_mode() -> ValueType<str, ManifestMode> {
    ValueType::any(|text| {
        text.parse().map_err(|_| ManifestMode::ALL.map(ManifestMode::name).join(" or "))
    })
}

pub(super) fn source_mode() -> ValueType<str, SourceMode> {
    ValueType::any(|text| {
        text.parse().map_err(|_| SourceMode::ALL.map(SourceMode::name).join(" or "))
    })
}

pub(super) fn standing_mode() -> ValueType<str, StandingMode> {
    ValueType::any(|text| match text {
        "shadow" => Ok(StandingMode::Shadow),
        "enforced" => Ok(StandingMode::Enforced),
        _ => Err("shadow or enforced".to_owned()),
    })
}
