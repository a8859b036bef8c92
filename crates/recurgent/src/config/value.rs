//! The types that settings have: how each is read from text and written as text.
//!
//! What reads or checks a value returns what it must be when it is something else; the caller says which setting it was
//! and where the value came from.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use lifecycle::dependency::{ManifestMode, PackageIndex, PackageName, SourceMode};
use lifecycle::dialect::Language;
use lifecycle::guardrail::Rule;
use lifecycle::standing::StandingMode;

use crate::grants::{Network, host_and_port};
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
    pub(super) fn items(&self) -> Vec<String> {
        match self {
            Self::List(items) => items.clone(),
            Self::Text(text) | Self::Literal(text) => json_array(text).unwrap_or_else(|| {
                let items = text.split(|c: char| c == ',' || c.is_whitespace());
                items.filter(|item| !item.is_empty()).map(str::to_owned).collect()
            }),
        }
    }

    /// The paths of a list, separated by colons. Any text can be a path, so a text that begins like an array must be one.
    pub(super) fn paths(&self) -> Result<Vec<String>, Expected> {
        match self {
            Self::List(items) => Ok(items.clone()),
            Self::Text(text) | Self::Literal(text) if text.starts_with('[') => json_array(text)
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

/// A path, or none when the text is empty.
pub(super) fn optional_path() -> ValueType<str, Option<PathBuf>> {
    ValueType {
        read: |text| Ok(Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty())),
        check: |path| path.map(not_empty).transpose(),
    }
}

fn not_empty(path: PathBuf) -> Result<PathBuf, Expected> {
    if path.as_os_str().is_empty() {
        return Err("a path that is not empty".to_owned());
    }
    Ok(path)
}

/// Where the log is written.
pub(super) fn log_target() -> ValueType<str, LogTarget> {
    ValueType {
        read: |text| match text {
            "" => Ok(LogTarget::StateDir),
            // `false` in the configuration file: no log, not a file of this name.
            "off" | "false" => Ok(LogTarget::Off),
            "true" => Ok(LogTarget::StateDir),
            word if is_switch(word) => {
                Err(format!("off or a path (write `./{word}` for a file of this name)"))
            }
            path => Ok(LogTarget::File(PathBuf::from(path))),
        },
        check: |target| match target {
            LogTarget::File(path) => not_empty(path).map(LogTarget::File),
            LogTarget::StateDir | LogTarget::Off => Ok(target),
        },
    }
}

/// Whether a text is rather meant to switch something on or off than to name a file.
fn is_switch(text: &str) -> bool {
    let words = ["off", "on", "false", "true", "no", "yes", "none", "null", "disabled", "0", "1"];
    words.iter().any(|word| text.eq_ignore_ascii_case(word))
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

/// Paths, made absolute: a grant must not depend on the directory a program runs in.
pub(super) fn paths() -> ValueType<[String], Vec<PathBuf>> {
    ValueType {
        read: |items| {
            let items = items.iter().filter(|path| !path.is_empty());
            items.map(|path| absolute(PathBuf::from(path))).collect()
        },
        check: |paths| paths.into_iter().map(|path| absolute(not_empty(path)?)).collect(),
    }
}

#[expect(clippy::disallowed_methods, reason = "part of the module that reads the environment")]
fn absolute(path: PathBuf) -> Result<PathBuf, Expected> {
    std::path::absolute(path).map_err(|error| {
        format!("absolute paths, because the working directory cannot be found ({error})")
    })
}

/// A directory that exists, as an absolute path without links; none when the text is empty.
pub(super) fn directory() -> ValueType<str, Option<PathBuf>> {
    ValueType {
        read: |text| if text.is_empty() { Ok(None) } else { existing(Path::new(text)).map(Some) },
        check: |path| path.map(|path| existing(&path)).transpose(),
    }
}

fn existing(path: &Path) -> Result<PathBuf, Expected> {
    match std::fs::canonicalize(path) {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err("a directory; name the one that holds the file".to_owned()),
        Err(error) => Err(format!("a directory that exists ({error})")),
    }
}

/// The working directory, if it can be found.
#[expect(clippy::disallowed_methods, reason = "part of the module that reads the environment")]
pub(super) fn working_directory() -> Option<PathBuf> {
    std::env::current_dir().ok()
}

pub(super) fn provider_setting() -> ValueType<str, ProviderSetting> {
    ValueType::any(|text| text.parse().map_err(|_: ProviderFault| names_help()))
}

pub(super) fn model() -> ValueType<str, ModelName> {
    ValueType::any(|text| {
        text.parse().map_err(|_: ProviderFault| {
            "auto or a model name: letters, digits and . _ - / : @ + only".to_owned()
        })
    })
}

/// The address of a model service, or none when the text is empty.
pub(super) fn optional_address() -> ValueType<str, Option<ServiceAddress>> {
    ValueType::any(|text| {
        optional(
            text,
            str::parse,
            "http://HOST[:PORT]/PATH or https://…, without a query or credentials (a key goes into api_key_file)",
        )
    })
}

/// The proxy of model services, or none when the text is empty.
pub(super) fn service_proxy() -> ValueType<str, Option<ProxyAddress>> {
    const EXPECTED: &str = "the address of a proxy, http://HOST:PORT or https://HOST:PORT";
    ValueType {
        read: |text| optional(text, str::parse, EXPECTED),
        check: |proxy| match proxy {
            Some(proxy) if proxy.for_services().is_none() => Err(EXPECTED.to_owned()),
            Some(_) | None => Ok(proxy),
        },
    }
}

/// The proxy of package managers, or none when the text is empty.
pub(super) fn installer_proxy() -> ValueType<str, Option<ProxyAddress>> {
    ValueType::any(|text| {
        optional(text, ProxyAddress::parse, "the address of a proxy, such as http://HOST:PORT")
    })
}

/// Where models are fetched from first, or none when the text is empty.
pub(super) fn model_mirror() -> ValueType<str, Option<ModelMirror>> {
    const EXPECTED: &str =
        "a path, or http://HOST[:PORT]/PATH or https://… without a query or credentials";
    ValueType {
        read: |text| optional(text, str::parse, EXPECTED),
        // A path that reads as an address, or as none, is another mirror when it is written down.
        check: |mirror| {
            let is_itself = |mirror: &ModelMirror| {
                let text = mirror.to_string();
                !text.is_empty() && text.parse::<ModelMirror>().is_ok_and(|read| read == *mirror)
            };
            if mirror.as_ref().is_none_or(is_itself) {
                Ok(mirror)
            } else {
                Err(EXPECTED.to_owned())
            }
        },
    }
}

/// Port numbers.
pub(super) fn ports() -> ValueType<[String], Vec<u16>> {
    fn within(ports: Option<Vec<u16>>) -> Result<Vec<u16>, Expected> {
        let fits = |ports: &Vec<u16>| ports.len() <= MAX_PORTS && !ports.contains(&0);
        ports.filter(fits).ok_or_else(|| {
            format!("at most {MAX_PORTS} ports, from 1 to 65535, separated by commas")
        })
    }
    ValueType {
        read: |items| within(items.iter().map(|item| item.parse().ok()).collect()),
        check: |ports| within(Some(ports)),
    }
}

/// A value, or none when the text is empty.
fn optional<T, E>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, E>,
    expected: &str,
) -> Result<Option<T>, Expected> {
    if text.is_empty() {
        return Ok(None);
    }
    parse(text).map(Some).map_err(|_| format!("{expected}, or empty"))
}

/// Addresses of package sources.
pub(super) fn indexes() -> ValueType<[String], Vec<PackageIndex>> {
    ValueType::any(|items| {
        let indexes = items.iter().map(|item| PackageIndex::parse(item)).collect::<Result<_, _>>();
        indexes.map_err(|problem| format!("addresses of package sources ({problem})"))
    })
}

/// Names of Python packages.
pub(super) fn python_packages() -> ValueType<[String], Vec<PackageName>> {
    ValueType {
        read: |items| packages(Language::Python, items),
        check: |names| same_packages(Language::Python, names),
    }
}

/// Names of gems.
pub(super) fn gems() -> ValueType<[String], Vec<PackageName>> {
    ValueType {
        read: |items| packages(Language::Ruby, items),
        check: |names| same_packages(Language::Ruby, names),
    }
}

fn packages(language: Language, items: &[String]) -> Result<Vec<PackageName>, Expected> {
    let parsed = |name: &String| {
        PackageName::parse(language, name)
            .ok_or_else(|| format!("names of packages without versions (`{name}` is not one)"))
    };
    items.iter().map(parsed).collect()
}

/// Checks that names are those of packages of this language: another compares names in another way.
fn same_packages(
    language: Language,
    names: Vec<PackageName>,
) -> Result<Vec<PackageName>, Expected> {
    let is_other = |name: &&PackageName| {
        PackageName::parse(language, &name.to_string()).as_ref() != Some(*name)
    };
    match names.iter().find(is_other) {
        Some(name) => Err(format!("names of {language} packages (`{name}` is not one)")),
        None => Ok(names),
    }
}

pub(super) fn flag() -> ValueType<str, bool> {
    ValueType::any(|text| text.parse().map_err(|_| "true or false".to_owned()))
}

/// A whole number within bounds.
pub(super) fn count<T, const LEAST: u64, const MOST: u64>() -> ValueType<str, T>
where
    T: TryFrom<u64> + TryInto<u64> + Copy,
{
    fn within<T: TryFrom<u64>>(
        count: Option<u64>,
        (least, most): (u64, u64),
    ) -> Result<T, Expected> {
        let count = count.filter(|count| (least..=most).contains(count));
        let count = count.and_then(|count| T::try_from(count).ok());
        count.ok_or_else(|| format!("a whole number from {least} to {most}"))
    }
    ValueType {
        read: |text| within(text.parse().ok(), (LEAST, MOST)),
        check: |count| within(count.try_into().ok(), (LEAST, MOST)),
    }
}

/// A whole number within bounds, or none when the text is empty.
pub(super) fn optional_count<T, const LEAST: u64, const MOST: u64>() -> ValueType<str, Option<T>>
where
    T: TryFrom<u64> + TryInto<u64> + Copy,
{
    ValueType {
        read: |text| {
            if text.is_empty() {
                return Ok(None);
            }
            let count = (count::<T, LEAST, MOST>().read)(text);
            count.map(Some).map_err(|expected| format!("{expected}, or empty"))
        },
        check: |value| value.map(count::<T, LEAST, MOST>().check).transpose(),
    }
}

/// A number from 0 to `MOST`, or none when the text is empty.
pub(super) fn optional_number<const MOST: u64>() -> ValueType<str, Option<f64>> {
    fn within(number: Option<f64>, most: u64) -> Result<Option<f64>, Expected> {
        let number = number.filter(|number| (0.0..=as_float(most)).contains(number));
        number.map(Some).ok_or_else(|| format!("a number from 0 to {most}, or empty"))
    }
    ValueType {
        read: |text| if text.is_empty() { Ok(None) } else { within(text.parse().ok(), MOST) },
        check: |number| if number.is_none() { Ok(None) } else { within(number, MOST) },
    }
}

/// A time above zero, in seconds.
pub(super) fn seconds() -> ValueType<str, Duration> {
    fn within(time: Option<Duration>) -> Result<Duration, Expected> {
        let fits = |time: &Duration| *time > Duration::ZERO && *time <= Duration::from_secs(MANY);
        time.filter(fits).ok_or_else(|| format!("a number of seconds above 0, at most {MANY}"))
    }
    ValueType { read: |text| within(time(text)), check: |time| within(Some(time)) }
}

/// A time in seconds, or none when the text is empty.
pub(super) fn optional_seconds() -> ValueType<str, Option<Duration>> {
    fn within(time: Option<Duration>) -> Result<Option<Duration>, Expected> {
        let time = time.filter(|time| *time <= Duration::from_secs(MANY));
        time.map(Some).ok_or_else(|| format!("a number from 0 to {MANY}, or empty"))
    }
    ValueType {
        read: |text| if text.is_empty() { Ok(None) } else { within(time(text)) },
        check: |time| if time.is_none() { Ok(None) } else { within(time) },
    }
}

fn time(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
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
displayed!(ModelName, ServiceAddress);

impl ToText for ProviderSetting {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn is_utf8(&self) -> bool {
        match self {
            Self::Scripted(path) | Self::Replay(path) => path.is_utf8(),
            Self::Auto | Self::Service(_) | Self::Embedded => true,
        }
    }
}

impl ToText for ModelMirror {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn is_utf8(&self) -> bool {
        match self {
            Self::Path(path) => path.is_utf8(),
            Self::Address(_) => true,
        }
    }
}

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
            Self::File(path) => {
                let text = path.to_text();
                if is_switch(&text) { format!("./{text}") } else { text }
            }
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

impl ToText for Vec<HostName> {
    fn to_text(&self) -> String {
        self.iter().map(HostName::as_str).collect::<Vec<_>>().join(", ")
    }
}

impl ToText for Vec<VariableName> {
    fn to_text(&self) -> String {
        self.iter().map(VariableName::as_str).collect::<Vec<_>>().join(", ")
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
