//! Which packages may be installed, and from where. Open by default: the public source, no lists.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::dialect::Language;
use crate::outcome::{Failure, FailureKind};

use super::{DependencyManifest, PackageIndex, PackageName, folded, similar_popular_name};

/// Most allowed names a message lists.
const SHOWN_NAMES: usize = 24;

/// Where packages may come from (`source_mode`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceMode {
    /// The guest's public index.
    #[default]
    PublicOnly,
    /// The configured sources and nothing else.
    InternalOnly,
    /// The configured sources first, then the public index.
    InternalThenPublic,
}

impl SourceMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::PublicOnly, Self::InternalOnly, Self::InternalThenPublic];

    /// The name in configuration and in an environment's identity.
    pub fn name(self) -> &'static str {
        match self {
            Self::PublicOnly => "public_only",
            Self::InternalOnly => "internal_only",
            Self::InternalThenPublic => "internal_then_public",
        }
    }
}

impl fmt::Display for SourceMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no mode.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "unknown source_mode {0:?}: expected \"public_only\", \"internal_only\" or \"internal_then_public\""
)]
pub struct UnknownSourceMode(pub String);

impl FromStr for SourceMode {
    type Err = UnknownSourceMode;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or_else(|| UnknownSourceMode(name.to_owned()))
    }
}

/// One place to ask for packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PackageSource<'a> {
    /// A configured one.
    Internal(&'a PackageIndex),
    /// The packaging tool's own public index.
    Public,
}

/// What one guest's programs may install, and from where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DependencyPolicy {
    /// Which sources are asked.
    pub source_mode: SourceMode,
    /// The configured ones, in order of preference.
    pub sources: Vec<PackageIndex>,
    /// The only packages allowed; empty: all.
    pub allowed: Vec<PackageName>,
    /// Packages never allowed.
    pub blocked: Vec<PackageName>,
    /// Whether a name that nearly is the name of a popular package is refused; else it is noted.
    pub refuse_near_misses: bool,
}

/// Which rule of a policy was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyRule {
    /// On the block list.
    Blocked,
    /// Not on the allow list, which is this.
    NotAllowed(Vec<String>),
    /// Nearly the name of this popular package.
    NearMiss(&'static str),
    /// `internal_only` without a configured source.
    NoInternalSource,
}

/// A package, or the sources, against the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFault {
    /// The guest whose policy it is.
    pub language: Language,
    /// The package, when one is to blame.
    pub package: Option<String>,
    /// The rule.
    pub rule: PolicyRule,
}

impl DependencyPolicy {
    /// Checks a manifest by every rule, before anything is resolved. An empty one needs no source.
    pub fn check(
        &self,
        language: Language,
        manifest: &DependencyManifest,
    ) -> Result<(), PolicyFault> {
        if manifest.is_empty() {
            return Ok(());
        }
        self.check_names(language, manifest.packages())?;
        let near = self.refuse_near_misses.then(|| self.near_misses(language, manifest).next());
        if let Some((package, popular)) = near.flatten() {
            let rule = PolicyRule::NearMiss(popular);
            return Err(PolicyFault { language, package: Some(package.to_owned()), rule });
        }
        self.effective_sources(language).map(|_| ())
    }

    /// Declared packages that nearly have the name of a popular one; a package that is allowed by name is meant.
    fn near_misses<'a>(
        &'a self,
        language: Language,
        manifest: &'a DependencyManifest,
    ) -> impl Iterator<Item = (&'a str, &'static str)> {
        manifest
            .packages()
            .filter(move |package| !is_listed(&self.allowed, &folded(language, package)))
            .filter_map(move |package| Some((package, similar_popular_name(language, package)?)))
    }

    /// What people should know of a manifest: names that may be mistaken, and sources that are not asked.
    pub fn notes(&self, language: Language, manifest: &DependencyManifest) -> Vec<String> {
        if manifest.is_empty() {
            return Vec::new();
        }
        let near = self.near_misses(language, manifest).map(|(package, popular)| {
            format!("`{package}` is nearly the name of the popular package `{popular}`; check which one is meant")
        });
        near.chain(self.unused_sources(language)).collect()
    }

    /// Why configured sources are not asked, if they are not.
    pub fn unused_sources(&self, language: Language) -> Option<String> {
        let key = match language {
            Language::Python => "python_indexes",
            Language::Ruby => "gem_sources",
        };
        let is_unused = self.source_mode == SourceMode::PublicOnly && !self.sources.is_empty();
        is_unused.then(|| {
            format!(
                "`{key}` is set and not used, because `source_mode` is public_only; set `source_mode` to internal_only or internal_then_public"
            )
        })
    }

    /// Checks package names by the lists: those declared, and every one of a lock.
    pub fn check_names<'a>(
        &self,
        language: Language,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), PolicyFault> {
        for name in names {
            let package = folded(language, name);
            let rule = if is_listed(&self.blocked, &package) {
                PolicyRule::Blocked
            } else if !self.allowed.is_empty() && !is_listed(&self.allowed, &package) {
                PolicyRule::NotAllowed(self.allowed.iter().map(PackageName::to_string).collect())
            } else {
                continue;
            };
            return Err(PolicyFault { language, package: Some(name.to_owned()), rule });
        }
        Ok(())
    }

    /// The sources to ask, in order.
    pub fn effective_sources(
        &self,
        language: Language,
    ) -> Result<Vec<PackageSource<'_>>, PolicyFault> {
        let internal = match self.source_mode {
            SourceMode::PublicOnly => &[],
            SourceMode::InternalOnly | SourceMode::InternalThenPublic => self.sources.as_slice(),
        };
        if self.source_mode == SourceMode::InternalOnly && internal.is_empty() {
            let rule = PolicyRule::NoInternalSource;
            return Err(PolicyFault { language, package: None, rule });
        }
        let public =
            (self.source_mode != SourceMode::InternalOnly).then_some(PackageSource::Public);
        Ok(internal.iter().map(PackageSource::Internal).chain(public).collect())
    }
}

fn is_listed(names: &[PackageName], folded: &str) -> bool {
    names.iter().any(|name| name.folded() == folded)
}

impl PolicyFault {
    /// The configuration key of the rule.
    pub fn policy(&self) -> &'static str {
        match (&self.rule, self.language) {
            (PolicyRule::Blocked, Language::Python) => "blocked_packages",
            (PolicyRule::Blocked, Language::Ruby) => "blocked_gems",
            (PolicyRule::NotAllowed(_), Language::Python) => "allowed_packages",
            (PolicyRule::NotAllowed(_), Language::Ruby) => "allowed_gems",
            (PolicyRule::NearMiss(_), _) => "refuse_near_miss_names",
            (PolicyRule::NoInternalSource, _) => "source_mode",
        }
    }

    /// What a program may do instead.
    fn correction(&self) -> String {
        match &self.rule {
            PolicyRule::NotAllowed(allowed) => {
                let shown: Vec<&str> =
                    allowed.iter().take(SHOWN_NAMES).map(String::as_str).collect();
                let more = if allowed.len() > SHOWN_NAMES { ", …" } else { "" };
                format!(
                    "use the standard library, or only these packages: {}{more}",
                    shown.join(", ")
                )
            }
            PolicyRule::Blocked => {
                "do without it: use the standard library or another package".to_owned()
            }
            PolicyRule::NearMiss(popular) => {
                format!("declare `{popular}` if that is meant, or use another package")
            }
            PolicyRule::NoInternalSource => "use the standard library only".to_owned(),
        }
    }

    /// What a call ends as: `dependency_policy_violation` naming package and rule.
    pub fn failure(&self) -> Failure {
        let correction = self.correction();
        let failure =
            Failure::new(FailureKind::DependencyPolicyViolation, format!("{self}; {correction}"))
                .with("policy", self.policy())
                .with("required_correction", correction);
        let failure = match &self.rule {
            PolicyRule::NotAllowed(allowed) => {
                let shown: Vec<String> = allowed.iter().take(SHOWN_NAMES).cloned().collect();
                failure.with("allowed", shown)
            }
            PolicyRule::NearMiss(popular) => failure.with("similar_to", *popular),
            PolicyRule::Blocked | PolicyRule::NoInternalSource => failure,
        };
        match &self.package {
            Some(package) => failure.with("dependency_name", package.clone()),
            None => failure,
        }
    }
}

impl fmt::Display for PolicyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let package = self.package.as_deref().unwrap_or("no package");
        match &self.rule {
            PolicyRule::Blocked => write!(f, "`{package}` is blocked by `{}`", self.policy()),
            PolicyRule::NotAllowed(_) => {
                write!(f, "`{package}` is not allowed by `{}`", self.policy())
            }
            PolicyRule::NearMiss(popular) => write!(
                f,
                "`{package}` is nearly the name of the popular package `{popular}`, which `{}` refuses",
                self.policy()
            ),
            PolicyRule::NoInternalSource => {
                write!(f, "`source_mode` is internal_only and no source is configured")
            }
        }
    }
}

impl std::error::Error for PolicyFault {}
