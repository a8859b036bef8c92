//! The types that settings have: how each is read from text and written as text.
//!
//! A parser returns what the text must be when it is something else; the caller says which setting it was and
//! where the text came from.

use std::path::PathBuf;
use std::time::Duration;

use lifecycle::dependency::{ManifestMode, PackageIndex, PackageName, SourceMode};
use lifecycle::dialect::Language;
use lifecycle::guardrail::Rule;
use lifecycle::standing::StandingMode;

use crate::grants::Network;
use crate::models::ModelMirror;
use crate::provider::{
    ModelName, ProviderFault, ProviderSetting, ProxyAddress, ServiceAddress, names_help,
};
use crate::worker::Tier;

/// The largest count that fits every type counts are read as, except the depth of delegation.
pub(super) const MANY: u64 = u32::MAX as u64;
/// The largest depth of delegation.
pub(super) const DEEPEST: u64 = u8::MAX as u64;
/// Most ports of one setting.
const MAX_PORTS: usize = 16;

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

/// What the text must be, when it is something else.
pub(super) type Expected = String;

/// A value as it was written, before it is parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Written {
    /// A text: of a flag, of the environment, or in quotes in the configuration file.
    Text(String),
    /// A number, or true or false, without quotes in the configuration file.
    Literal(String),
    /// A list: an array in the configuration file, or a flag that was repeated.
    List(Vec<String>),
}

impl Written {
    /// One value, as text.
    pub(super) fn one(&self) -> Result<&str, Expected> {
        match self {
            Self::Text(text) | Self::Literal(text) => Ok(text),
            Self::List(_) => Err("one value, without brackets".to_owned()),
        }
    }

    /// A text in quotes: a number or a flag is not a path.
    pub(super) fn text(&self) -> Result<&str, Expected> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Literal(_) | Self::List(_) => Err("a text in quotes".to_owned()),
        }
    }

    /// The items of a list. As text they are separated, or they are a JSON array of texts.
    pub(super) fn items(&self, is_separator: fn(char) -> bool) -> Vec<String> {
        let separated = |text: &str| {
            let items = text.split(is_separator).filter(|item| !item.is_empty());
            items.map(str::to_owned).collect()
        };
        match self {
            Self::List(items) => items.clone(),
            Self::Text(text) | Self::Literal(text) => {
                json_array(text).unwrap_or_else(|| separated(text))
            }
        }
    }

    /// It as one text, for messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Text(text) | Self::Literal(text) => text.clone(),
            Self::List(items) => items.join(", "),
        }
    }
}

fn json_array(text: &str) -> Option<Vec<String>> {
    text.starts_with('[').then(|| serde_json::from_str(text).ok()).flatten()
}

/// Separates the items of most lists.
pub(super) fn comma_or_space(c: char) -> bool {
    c == ',' || c.is_whitespace()
}

/// Separates the paths of a list.
pub(super) fn colon(c: char) -> bool {
    c == ':'
}

/// Makes parsers that accept any text.
macro_rules! any_text {
    ($($(#[$doc:meta])* $name:ident($text:ident) -> $type:ty $body:block)*) => {$(
        $(#[$doc])*
        pub(super) fn $name($text: &str) -> Result<$type, Expected> {
            Ok($body)
        }
    )*};
}

any_text! {
    /// A path, or none when the text is empty.
    optional_path(text) -> Option<PathBuf> {
        Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty())
    }

    log_target(text) -> LogTarget {
        match text {
            "" => LogTarget::StateDir,
            // `false` in the configuration file: no log, not a file of this name.
            "off" | "false" => LogTarget::Off,
            "true" => LogTarget::StateDir,
            path => LogTarget::File(PathBuf::from(path)),
        }
    }

    name(text) -> String {
        text.to_owned()
    }
}

/// Texts as they are.
#[expect(clippy::unnecessary_wraps, reason = "a parser, as the others of the table")]
pub(super) fn list(items: &[String]) -> Result<Vec<String>, Expected> {
    Ok(items.to_vec())
}

/// Paths, made absolute: a grant must not depend on the directory a program runs in.
#[expect(clippy::disallowed_methods, reason = "part of the module that reads the environment")]
pub(super) fn paths(items: &[String]) -> Result<Vec<PathBuf>, Expected> {
    let absolute = |path: &String| {
        std::path::absolute(path).map_err(|error| {
            format!("absolute paths, because the working directory cannot be found ({error})")
        })
    };
    items.iter().filter(|path| !path.is_empty()).map(absolute).collect()
}

/// A directory that exists, as an absolute path without links; none when the text is empty.
pub(super) fn directory(text: &str) -> Result<Option<PathBuf>, Expected> {
    if text.is_empty() {
        return Ok(None);
    }
    match std::fs::canonicalize(text) {
        Ok(path) if path.is_dir() => Ok(Some(path)),
        Ok(_) => Err("a directory; name the one that holds the file".to_owned()),
        Err(error) => Err(format!("a directory that exists ({error})")),
    }
}

/// The working directory, if it can be found.
#[expect(clippy::disallowed_methods, reason = "part of the module that reads the environment")]
pub(super) fn working_directory() -> Option<PathBuf> {
    std::env::current_dir().ok()
}

pub(super) fn provider_setting(text: &str) -> Result<ProviderSetting, Expected> {
    text.parse().map_err(|_: ProviderFault| names_help())
}

pub(super) fn model(text: &str) -> Result<ModelName, Expected> {
    text.parse().map_err(|_: ProviderFault| {
        "auto or a model name: letters, digits and . _ - / : @ + only".to_owned()
    })
}

/// The address of a model service, or none when the text is empty.
pub(super) fn optional_address(text: &str) -> Result<Option<ServiceAddress>, Expected> {
    optional(
        text,
        str::parse,
        |_: ProviderFault| "http://HOST[:PORT]/PATH or https://…, without a query or credentials (a key goes into api_key_file)",
    )
}

/// The proxy of model services, or none when the text is empty.
pub(super) fn service_proxy(text: &str) -> Result<Option<ProxyAddress>, Expected> {
    optional(
        text,
        str::parse,
        |_: ProviderFault| "the address of a proxy, http://HOST:PORT or https://HOST:PORT",
    )
}

/// The proxy of package managers, or none when the text is empty.
pub(super) fn installer_proxy(text: &str) -> Result<Option<ProxyAddress>, Expected> {
    optional(text, ProxyAddress::parse, |_| "the address of a proxy, such as http://HOST:PORT")
}

/// Where models are fetched from first, or none when the text is empty.
pub(super) fn model_mirror(text: &str) -> Result<Option<ModelMirror>, Expected> {
    optional(
        text,
        str::parse,
        |_: ProviderFault| "a path, or http://HOST[:PORT]/PATH or https://… without a query or credentials",
    )
}

/// Port numbers.
pub(super) fn ports(items: &[String]) -> Result<Vec<u16>, Expected> {
    let port = |item: &String| item.parse::<u16>().ok().filter(|port| *port > 0);
    let ports = items.iter().map(port).collect::<Option<Vec<u16>>>();
    ports
        .filter(|ports| ports.len() <= MAX_PORTS)
        .ok_or_else(|| format!("at most {MAX_PORTS} ports, from 1 to 65535, separated by commas"))
}

/// A value, or none when the text is empty.
fn optional<T, E>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, E>,
    expected: impl Fn(E) -> &'static str,
) -> Result<Option<T>, Expected> {
    if text.is_empty() {
        return Ok(None);
    }
    parse(text).map(Some).map_err(|fault| format!("{}, or empty", expected(fault)))
}

/// Addresses of package sources.
pub(super) fn indexes(items: &[String]) -> Result<Vec<PackageIndex>, Expected> {
    let indexes = items.iter().map(|item| PackageIndex::parse(item)).collect::<Result<_, _>>();
    indexes.map_err(|problem| format!("addresses of package sources ({problem})"))
}

/// Names of Python packages.
pub(super) fn python_packages(items: &[String]) -> Result<Vec<PackageName>, Expected> {
    packages(Language::Python, items)
}

/// Names of gems.
pub(super) fn gems(items: &[String]) -> Result<Vec<PackageName>, Expected> {
    packages(Language::Ruby, items)
}

fn packages(language: Language, items: &[String]) -> Result<Vec<PackageName>, Expected> {
    let parsed = |name: &String| {
        PackageName::parse(language, name)
            .ok_or_else(|| format!("names of packages without versions (`{name}` is not one)"))
    };
    items.iter().map(parsed).collect()
}

pub(super) fn flag(text: &str) -> Result<bool, Expected> {
    text.parse().map_err(|_| "true or false".to_owned())
}

/// A whole number within bounds.
pub(super) fn count<T: TryFrom<u64>, const LEAST: u64, const MOST: u64>(
    text: &str,
) -> Result<T, Expected> {
    let count = text.parse::<u64>().ok().filter(|count| (LEAST..=MOST).contains(count));
    let count = count.and_then(|count| T::try_from(count).ok());
    count.ok_or_else(|| format!("a whole number from {LEAST} to {MOST}"))
}

/// A whole number within bounds, or none when the text is empty.
pub(super) fn optional_count<T: TryFrom<u64>, const LEAST: u64, const MOST: u64>(
    text: &str,
) -> Result<Option<T>, Expected> {
    if text.is_empty() {
        return Ok(None);
    }
    count::<T, LEAST, MOST>(text).map(Some).map_err(|expected| format!("{expected}, or empty"))
}

/// A number from 0 to `MOST`, or none when the text is empty.
pub(super) fn optional_number<const MOST: u64>(text: &str) -> Result<Option<f64>, Expected> {
    if text.is_empty() {
        return Ok(None);
    }
    let number = text.parse::<f64>().ok().filter(|n| (0.0..=as_float(MOST)).contains(n));
    number.map(Some).ok_or_else(|| format!("a number from 0 to {MOST}, or empty"))
}

/// A time above zero, in seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, Expected> {
    let seconds = text.parse::<f64>().ok().filter(|s| *s > 0.0 && *s <= as_float(MANY));
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("a number of seconds above 0, at most {MANY}"))
}

/// A time in seconds, or none when the text is empty.
pub(super) fn optional_seconds(text: &str) -> Result<Option<Duration>, Expected> {
    let number = optional_number::<MANY>(text)?;
    Ok(number.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()))
}

pub(super) fn language(text: &str) -> Result<Language, Expected> {
    text.parse().map_err(|_| Language::ALL.map(Language::name).join(" or "))
}

/// Guardrails, each by its subtype or with all others of its type.
pub(super) fn rules(items: &[String]) -> Result<Vec<Rule>, Expected> {
    let named = |name: &String| {
        let named = Rule::from_subtype(name);
        let is_named = |rule: &Rule| named == Some(*rule) || rule.violation_type().name() == *name;
        let found: Vec<Rule> = Rule::ALL.iter().copied().filter(is_named).collect();
        (!found.is_empty()).then_some(found)
    };
    let found = items.iter().map(named).collect::<Option<Vec<_>>>().map(|found| found.concat());
    found.ok_or_else(|| {
        let all = Rule::ALL.iter().map(|rule| rule.subtype()).collect::<Vec<_>>().join(", ");
        format!("a list of violation subtypes or types, of {all}")
    })
}

pub(super) fn network(text: &str) -> Result<Network, Expected> {
    text.parse().map_err(str::to_owned)
}

pub(super) fn tier(text: &str) -> Result<Tier, Expected> {
    Tier::named(text).ok_or_else(|| Tier::ALL.map(Tier::name).join(" or "))
}

pub(super) fn manifest_mode(text: &str) -> Result<ManifestMode, Expected> {
    text.parse().map_err(|_| ManifestMode::ALL.map(ManifestMode::name).join(" or "))
}

pub(super) fn source_mode(text: &str) -> Result<SourceMode, Expected> {
    text.parse().map_err(|_| SourceMode::ALL.map(SourceMode::name).join(" or "))
}

pub(super) fn standing_mode(text: &str) -> Result<StandingMode, Expected> {
    match text {
        "shadow" => Ok(StandingMode::Shadow),
        "enforced" => Ok(StandingMode::Enforced),
        _ => Err("shadow or enforced".to_owned()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a bound for people")]
fn as_float(count: u64) -> f64 {
    count as f64
}

/// A value of a setting, written as its parser reads it.
pub(super) trait ToText {
    fn to_text(&self) -> String;

    /// Whether the text says all of it: a path that is not UTF-8 has no text.
    fn is_utf8(&self) -> bool {
        true
    }
}

macro_rules! displayed {
    ($($type:ty),*) => {$(
        impl ToText for $type {
            fn to_text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
displayed!(String, bool, u8, u32, u64, usize, f64, Language, Network, ManifestMode, SourceMode);
displayed!(ProviderSetting, ModelName, ModelMirror, ServiceAddress);

impl ToText for ProxyAddress {
    fn to_text(&self) -> String {
        self.reveal().to_owned()
    }
}

impl ToText for Vec<PackageIndex> {
    fn to_text(&self) -> String {
        self.iter().map(PackageIndex::address_with_credentials).collect::<Vec<_>>().join(", ")
    }
}

impl ToText for Vec<PackageName> {
    fn to_text(&self) -> String {
        self.iter().map(PackageName::to_string).collect::<Vec<_>>().join(", ")
    }
}

impl<T: ToText> ToText for Option<T> {
    fn to_text(&self) -> String {
        self.as_ref().map(ToText::to_text).unwrap_or_default()
    }

    fn is_utf8(&self) -> bool {
        self.as_ref().is_none_or(ToText::is_utf8)
    }
}

impl ToText for PathBuf {
    fn to_text(&self) -> String {
        self.display().to_string()
    }

    fn is_utf8(&self) -> bool {
        self.to_str().is_some()
    }
}

impl ToText for LogTarget {
    fn to_text(&self) -> String {
        match self {
            Self::StateDir => String::new(),
            Self::File(path) => path.to_text(),
            Self::Off => "off".to_owned(),
        }
    }

    fn is_utf8(&self) -> bool {
        match self {
            Self::File(path) => path.is_utf8(),
            Self::StateDir | Self::Off => true,
        }
    }
}

impl ToText for Duration {
    fn to_text(&self) -> String {
        self.as_secs_f64().to_string()
    }
}

impl ToText for Vec<Rule> {
    fn to_text(&self) -> String {
        self.iter().map(|rule| rule.subtype()).collect::<Vec<_>>().join(", ")
    }
}

impl ToText for Vec<u16> {
    fn to_text(&self) -> String {
        self.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
    }
}

impl ToText for Vec<String> {
    fn to_text(&self) -> String {
        self.join(", ")
    }
}

impl ToText for Vec<PathBuf> {
    fn to_text(&self) -> String {
        let paths: Vec<String> = self.iter().map(ToText::to_text).collect();
        let is_ambiguous = |path: &String| path.contains(':') || path.starts_with('[');
        if paths.iter().any(is_ambiguous) {
            return serde_json::Value::from(paths).to_string();
        }
        paths.join(":")
    }

    fn is_utf8(&self) -> bool {
        self.iter().all(ToText::is_utf8)
    }
}

impl ToText for Tier {
    fn to_text(&self) -> String {
        self.name().to_owned()
    }
}

impl ToText for StandingMode {
    fn to_text(&self) -> String {
        match self {
            Self::Shadow => "shadow",
            Self::Enforced => "enforced",
        }
        .to_owned()
    }
}
