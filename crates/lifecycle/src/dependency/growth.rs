//! How an agent's environment may change: by addition, or in strict mode not at all.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::dialect::Language;
use crate::outcome::{Failure, FailureKind};

use super::{DependencyManifest, MAX_CONSTRAINT_BYTES, MAX_HELD_DEPENDENCIES, python, ruby};

/// Whether an agent's packages may change after its first success (`manifest_mode`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManifestMode {
    /// By addition.
    #[default]
    Additive,
    /// Not at all.
    Strict,
}

impl ManifestMode {
    /// Every mode.
    pub const ALL: [Self; 2] = [Self::Additive, Self::Strict];

    /// The name in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Additive => "additive",
            Self::Strict => "strict",
        }
    }
}

impl fmt::Display for ManifestMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no mode.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown manifest_mode {0:?}: expected \"additive\" or \"strict\"")]
pub struct UnknownManifestMode(pub String);

impl FromStr for ManifestMode {
    type Err = UnknownManifestMode;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or_else(|| UnknownManifestMode(name.to_owned()))
    }
}

/// Why an agent's packages may not become what a program asks for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GrowthFault {
    /// One package, two constraints.
    #[error(
        "`{package}` is `{held}` in this agent's environment and cannot become `{declared}`; declare `{held}`, or leave `version` out"
    )]
    Incompatible {
        /// Which.
        package: String,
        /// The constraint it is held by.
        held: String,
        /// The constraint now declared.
        declared: String,
    },
    /// Any change, in strict mode.
    #[error(
        "`{package}` would change this agent's environment, which is fixed since its first success (manifest_mode = \"strict\"); declare nothing or exactly: {held}"
    )]
    Changed {
        /// The first package that differs.
        package: String,
        /// What the environment holds, for people.
        held: String,
    },
    /// Over [`MAX_HELD_DEPENDENCIES`].
    #[error(
        "this agent's environment would hold {0} packages, at most {MAX_HELD_DEPENDENCIES} are accepted; use those it has, or ask another agent"
    )]
    TooMany(usize),
}

impl GrowthFault {
    /// The package to blame.
    pub fn package(&self) -> Option<&str> {
        match self {
            Self::Incompatible { package, .. } | Self::Changed { package, .. } => Some(package),
            Self::TooMany(_) => None,
        }
    }

    /// The key of its declaration that is wrong.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Self::Incompatible { .. } => "version",
            Self::Changed { .. } | Self::TooMany(_) => "name",
        }
    }

    /// What a call ends as.
    pub fn failure(&self) -> Failure {
        let message = self.to_string();
        match self {
            Self::Incompatible { package, held, declared } => {
                Failure::new(FailureKind::DependencyManifestIncompatible, message)
                    .with("dependency_name", package.clone())
                    .with("held", held.clone())
                    .with("declared", declared.clone())
                    .with(
                        "required_correction",
                        format!("Declare `{package}` as `{held}`, or leave its `version` out."),
                    )
            }
            Self::Changed { package, held } => {
                Failure::new(FailureKind::DependencyManifestChanged, message)
                    .with("dependency_name", package.clone())
                    .with("held", held.clone())
                    .with(
                        "required_correction",
                        format!("Declare nothing, or exactly: {held}. Do without `{package}`."),
                    )
            }
            Self::TooMany(_) => Failure::new(FailureKind::DependencyManifestIncompatible, message)
                .with("required_correction", "Use packages the environment already holds."),
        }
    }
}

/// What the environment of an agent must hold to run a program that declares `declared`.
///
/// `held` is what it holds since its last success; `None`: it has had none, and anything may be declared.
pub fn effective(
    language: Language,
    held: Option<&DependencyManifest>,
    declared: &DependencyManifest,
    mode: ManifestMode,
) -> Result<DependencyManifest, GrowthFault> {
    match held {
        None => Ok(declared.clone()),
        Some(held) => held.grown_by(language, declared, mode),
    }
}

impl DependencyManifest {
    /// This manifest and what `declared` adds to it; declaring nothing changes nothing.
    ///
    /// A package declared without a constraint is satisfied by the one that is held. Two constraints that some version can
    /// satisfy are held together.
    pub fn grown_by(
        &self,
        language: Language,
        declared: &Self,
        mode: ManifestMode,
    ) -> Result<Self, GrowthFault> {
        match mode {
            _ if declared.is_empty() => Ok(self.clone()),
            ManifestMode::Additive => self.extended_by(language, declared),
            ManifestMode::Strict => match self.difference(declared) {
                None => Ok(self.clone()),
                Some(package) => {
                    Err(GrowthFault::Changed { package: package.to_owned(), held: self.listed() })
                }
            },
        }
    }

    fn extended_by(&self, language: Language, declared: &Self) -> Result<Self, GrowthFault> {
        let mut grown = self.clone();
        for new in &declared.dependencies {
            match grown.dependencies.iter_mut().find(|held| held.is_same_package(new)) {
                None => grown.dependencies.push(new.clone()),
                Some(held) if held.version == new.version || new.is_unconstrained() => {
                    held.join_extras(new);
                }
                Some(held) => {
                    let both = held.constraint_with(language, new);
                    held.version = both.ok_or_else(|| GrowthFault::Incompatible {
                        package: held.package().to_owned(),
                        held: held.version.clone(),
                        declared: new.version.clone(),
                    })?;
                    held.join_extras(new);
                }
            }
        }
        if grown.dependencies.len() > MAX_HELD_DEPENDENCIES {
            return Err(GrowthFault::TooMany(grown.dependencies.len()));
        }
        grown.dependencies.sort_by(|a, b| a.order().cmp(&b.order()));
        Ok(grown)
    }

    /// The first package that only one of both has, or has otherwise.
    fn difference<'a>(&'a self, declared: &'a Self) -> Option<&'a str> {
        let lacks = |one: &'a Self, other: &'a Self| {
            one.dependencies
                .iter()
                .find(|dependency| !other.dependencies.iter().any(|o| o.is_equal_to(dependency)))
        };
        lacks(self, declared).or_else(|| lacks(declared, self)).map(super::Dependency::package)
    }

    /// For people: `a >= 0, prawn ~> 2.5`.
    fn listed(&self) -> String {
        if self.is_empty() {
            return "nothing".to_owned();
        }
        let texts: Vec<String> =
            self.dependencies.iter().map(|dependency| format!("`{dependency}`")).collect();
        texts.join(", ")
    }
}

impl super::Dependency {
    /// The constraint that both declarations of a package put on it; `None`: no version satisfies both.
    fn constraint_with(&self, language: Language, other: &Self) -> Option<String> {
        if self.is_unconstrained() {
            return Some(other.version.clone());
        }
        let both = format!("{},{}", self.version, other.version);
        if both.len() > MAX_CONSTRAINT_BYTES {
            return None;
        }
        match language {
            Language::Python => python::satisfiable(&both),
            Language::Ruby => ruby::satisfiable(&both),
        }
    }

    /// The same package, parts and constraint.
    fn is_equal_to(&self, other: &Self) -> bool {
        self.is_same_package(other)
            && self.version == other.version
            && self.extras().eq(other.extras())
    }
}
