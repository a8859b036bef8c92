//! What a program needs beyond its language: declared by the model, normalised once, canonical ever after.
//!
//! Nothing of a declaration's own text survives. Names and constraints are parsed by the guest's own
//! packaging grammar and written anew, so nothing can be smuggled into a Gemfile or a pyproject, and
//! equivalent spellings are equal.

mod fault;
mod growth;
mod imported;
mod index;
mod near_miss;
mod policy;
mod python;
mod ruby;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dialect::{Language, stdlib};
use crate::program::type_name;

pub use fault::ManifestFault;
pub use growth::{GrowthFault, ManifestMode, UnknownManifestMode, effective};
pub use imported::imported_packages;
pub(crate) use imported::module_of_package;
pub use index::{PackageIndex, endpoint, without_credentials};
pub use near_miss::similar_popular_name;
pub use policy::{
    DependencyPolicy, PackageSource, PolicyFault, PolicyRule, SourceMode, UnknownSourceMode,
};

use fault::EntryFault;

/// Most dependencies one program may declare.
pub const MAX_DEPENDENCIES: usize = 64;
/// Most packages an agent's environment may be asked to hold, as it grows.
pub const MAX_HELD_DEPENDENCIES: usize = 256;
/// Longest package name, extras included.
pub const MAX_PACKAGE_BYTES: usize = 128;
/// Longest version constraint.
pub const MAX_CONSTRAINT_BYTES: usize = 256;

/// What models write for any version, beside leaving the version out.
const ANY_VERSION_TEXTS: [&str; 4] = ["", "*", "latest", "any"];

/// One package, as its packaging system writes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Dependency {
    /// Its canonical name; in Python with its extras, as in `requests[socks]`.
    pub name: String,
    /// Its canonical constraint; any version when none was given.
    pub version: String,
}

impl Dependency {
    /// The name without extras: what is installed, allowed and blocked.
    pub fn package(&self) -> &str {
        self.name.split('[').next().unwrap_or(&self.name)
    }

    /// The optional parts asked for (Python).
    pub fn extras(&self) -> impl Iterator<Item = &str> {
        let extras = self.name.split_once('[').map_or("", |(_, rest)| rest.trim_end_matches(']'));
        extras.split(',').filter(|extra| !extra.is_empty())
    }

    /// The parts of its constraint, each an operator and a version.
    pub fn constraints(&self) -> impl Iterator<Item = &str> {
        self.version.split(',').map(str::trim)
    }

    /// Whether both name the same package: compared without regard to case.
    pub fn is_same_package(&self, other: &Self) -> bool {
        self.package().eq_ignore_ascii_case(other.package())
    }

    /// Whether any version works.
    pub fn is_unconstrained(&self) -> bool {
        [python::ANY_VERSION, ruby::ANY_VERSION].contains(&self.version.as_str())
    }

    /// Adds the extras of `other`, a declaration of the same package.
    fn join_extras(&mut self, other: &Self) {
        let mut extras: Vec<&str> = self.extras().chain(other.extras()).collect();
        extras.sort_unstable();
        extras.dedup();
        if !extras.is_empty() {
            self.name = format!("{}[{}]", self.package(), extras.join(","));
        }
    }

    fn order(&self) -> (String, &str) {
        (self.package().to_ascii_lowercase(), &self.version)
    }
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// The packages a program declares or an environment holds: canonical, sorted, without contradictions.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DependencyManifest {
    dependencies: Vec<Dependency>,
    #[serde(skip)]
    notes: Vec<String>,
}

/// Entries that were dropped on the way do not make two manifests differ.
impl PartialEq for DependencyManifest {
    fn eq(&self, other: &Self) -> bool {
        self.dependencies == other.dependencies
    }
}

impl Eq for DependencyManifest {}

impl DependencyManifest {
    /// Normalises a declaration as it came.
    pub fn parse(language: Language, declared: Option<&Value>) -> Result<Self, ManifestFault> {
        let entries = match declared {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Array(entries)) => entries,
            Some(other) => return Err(ManifestFault::NotAList { found: type_name(other) }),
        };
        if entries.len() > MAX_DEPENDENCIES {
            return Err(ManifestFault::TooMany(entries.len()));
        }
        Self::parse_entries(language, entries)
    }

    fn parse_entries(language: Language, entries: &[Value]) -> Result<Self, ManifestFault> {
        let mut manifest = Self::default();
        for (index, entry) in entries.iter().enumerate() {
            parse_entry(language, entry)
                .and_then(|dependency| manifest.declare(language, dependency))
                .map_err(|fault| ManifestFault::entry(index, fault))?;
        }
        manifest.dependencies.sort_by(|a, b| a.order().cmp(&b.order()));
        Ok(manifest)
    }

    /// Parses again what was read back from storage, which is compared and never trusted.
    pub fn readmitted(&self, language: Language) -> Result<Self, ManifestFault> {
        if self.dependencies.len() > MAX_HELD_DEPENDENCIES {
            return Err(ManifestFault::TooMany(self.dependencies.len()));
        }
        let entries: Vec<Value> =
            self.dependencies.iter().map(|dependency| serde_json::json!(dependency)).collect();
        Self::parse_entries(language, &entries)
    }

    /// The packages in name order.
    pub fn dependencies(&self) -> &[Dependency] {
        &self.dependencies
    }

    /// Their names, without extras.
    pub fn packages(&self) -> impl Iterator<Item = &str> {
        self.dependencies.iter().map(Dependency::package)
    }

    /// What was left out, and why.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether nothing but the language is needed.
    pub fn is_empty(&self) -> bool {
        self.dependencies.is_empty()
    }

    /// The wire form: `[{"name", "version"}]`, which [`Self::parse`] reads back to an equal manifest.
    pub fn to_json(&self) -> Value {
        serde_json::json!(self.dependencies)
    }

    /// Adds one entry of a payload; a repetition is one entry, a contradiction a fault.
    fn declare(&mut self, language: Language, new: Dependency) -> Result<(), EntryFault> {
        if stdlib::ships(language, new.package()) {
            let ignored = if new.is_unconstrained() {
                String::new()
            } else {
                format!("; the constraint `{}` has no effect", new.version)
            };
            self.notes.push(format!(
                "`{}` comes with {language}: it is not installed, and its version is the interpreter's{ignored}",
                new.package()
            ));
            return Ok(());
        }
        match self.dependencies.iter_mut().find(|known| known.is_same_package(&new)) {
            None => self.dependencies.push(new),
            Some(known) if known.version == new.version => known.join_extras(&new),
            Some(known) => return Err(EntryFault::contradiction(known, &new)),
        }
        Ok(())
    }
}

/// Where in a payload's declaration `package` stands: `dependencies[1].version`.
pub(crate) fn field(
    language: Language,
    declared: Option<&Value>,
    package: &str,
    part: &str,
) -> String {
    let is_it = |entry: &Value| {
        parse_entry(language, entry)
            .is_ok_and(|dependency| dependency.package().eq_ignore_ascii_case(package))
    };
    let entries = declared.and_then(Value::as_array);
    match entries.and_then(|entries| entries.iter().position(is_it)) {
        Some(index) => format!("dependencies[{index}].{part}"),
        None => "dependencies".to_owned(),
    }
}

fn parse_entry(language: Language, entry: &Value) -> Result<Dependency, EntryFault> {
    let Value::Object(fields) = entry else { return Err(EntryFault::not_an_object(entry)) };
    if let Some(unknown) = fields.keys().find(|key| !matches!(key.as_str(), "name" | "version")) {
        return Err(EntryFault::unknown_field(unknown));
    }
    let name = match fields.get("name") {
        Some(Value::String(name)) => parse_name(language, name.trim())?,
        other => return Err(EntryFault::name_not_text(other)),
    };
    let version = match fields.get("version") {
        None | Some(Value::Null) => any_version(language).to_owned(),
        Some(Value::String(text)) => parse_version(language, &name, text.trim())?,
        Some(Value::Array(parts)) if !parts.is_empty() && parts.iter().all(Value::is_string) => {
            let parts: Vec<&str> = parts.iter().filter_map(Value::as_str).collect();
            parse_version(language, &name, &parts.join(","))?
        }
        Some(other) => return Err(EntryFault::version_not_text(language, &name, other)),
    };
    Ok(Dependency { name, version })
}

fn parse_name(language: Language, text: &str) -> Result<String, EntryFault> {
    let parsed = match language {
        Language::Python => python::parse_name(text),
        Language::Ruby => ruby::parse_name(text),
    };
    parsed
        .filter(|_| text.len() <= MAX_PACKAGE_BYTES)
        .ok_or_else(|| EntryFault::bad_name(language, text))
}

fn parse_version(language: Language, name: &str, text: &str) -> Result<String, EntryFault> {
    if ANY_VERSION_TEXTS.iter().any(|any| text.eq_ignore_ascii_case(any)) {
        return Ok(any_version(language).to_owned());
    }
    let refused = |part: &str| EntryFault::bad_version(language, name, part);
    if text.len() > MAX_CONSTRAINT_BYTES {
        return Err(refused(text));
    }
    match language {
        Language::Python => python::parse_constraint(text),
        Language::Ruby => ruby::parse_constraint(text),
    }
    .map_err(refused)
}

fn any_version(language: Language) -> &'static str {
    match language {
        Language::Python => python::ANY_VERSION,
        Language::Ruby => ruby::ANY_VERSION,
    }
}

/// A package in a list of the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageName {
    /// As it was written.
    written: String,
    /// As names are compared.
    folded: String,
}

impl PackageName {
    /// Reads the name of a package. `None`: the text is not one.
    pub fn parse(language: Language, text: &str) -> Option<Self> {
        let written = text.trim();
        parse_name(language, written).ok()?;
        Some(Self { written: written.to_owned(), folded: folded(language, written) })
    }

    fn folded(&self) -> &str {
        &self.folded
    }
}

impl fmt::Display for PackageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

/// A package name as lists of names compare it: without extras, case or (Python) kind of separator.
fn folded(language: Language, name: &str) -> String {
    let package = name.trim().split('[').next().unwrap_or_default().trim();
    match language {
        Language::Python => python::normalise(package),
        Language::Ruby => package.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests;
