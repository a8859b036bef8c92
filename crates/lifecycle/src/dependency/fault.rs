//! Why a declaration was refused: the exact field, the package, and what would be accepted.

use serde_json::Value;
use thiserror::Error;

use crate::dialect::Language;
use crate::outcome::{Failure, FailureKind};
use crate::program::type_name;

use super::{Dependency, MAX_DEPENDENCIES};

/// Most characters of a refused text that a message repeats.
const SHOWN_CHARS: usize = 80;

/// Why a dependency declaration was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ManifestFault {
    /// Not a list.
    #[error("`dependencies` must be a list of {{\"name\", \"version\"?}} objects, not {found}")]
    NotAList {
        /// What it was.
        found: &'static str,
    },
    /// Over [`MAX_DEPENDENCIES`].
    #[error(
        "`dependencies` has {0} entries; at most {MAX_DEPENDENCIES} are accepted: declare only what is imported"
    )]
    TooMany(usize),
    /// One entry is wrong.
    #[error("`dependencies[{index}]`: {problem}; {correction}")]
    Entry {
        /// Which.
        index: usize,
        /// Its key that is wrong; `None`: the entry itself.
        key: Option<&'static str>,
        /// The package, when its name could be read.
        package: Option<String>,
        /// What is wrong.
        problem: String,
        /// What would be accepted.
        correction: String,
    },
}

impl ManifestFault {
    pub(super) fn entry(index: usize, fault: EntryFault) -> Self {
        let EntryFault { key, package, problem, correction } = fault;
        Self::Entry { index, key, package, problem, correction }
    }

    /// What a call ends as: `invalid_dependency_manifest` with the field, the package and the way out.
    pub fn failure(&self) -> Failure {
        let failure = Failure::new(FailureKind::InvalidDependencyManifest, self.to_string());
        match self {
            Self::NotAList { .. } => failure
                .with("field", "dependencies")
                .with("required_correction", "Write a list, `[]` when nothing is needed."),
            Self::TooMany(_) => failure.with("field", "dependencies").with(
                "required_correction",
                format!("Declare at most {MAX_DEPENDENCIES} packages, only those imported."),
            ),
            Self::Entry { index, key, package, correction, problem: _ } => {
                let field = match key {
                    Some(key) => format!("dependencies[{index}].{key}"),
                    None => format!("dependencies[{index}]"),
                };
                let failure =
                    failure.with("field", field).with("required_correction", correction.clone());
                match package {
                    Some(package) => failure.with("dependency_name", package.clone()),
                    None => failure,
                }
            }
        }
    }
}

/// What is wrong with one entry.
pub(super) struct EntryFault {
    key: Option<&'static str>,
    package: Option<String>,
    problem: String,
    correction: String,
}

impl EntryFault {
    pub(super) fn not_an_object(entry: &Value) -> Self {
        Self::of_entry(
            format!("must be an object with a `name`, not {}", type_name(entry)),
            "write {\"name\": \"...\", \"version\": \"...\"}",
        )
    }

    pub(super) fn unknown_field(key: &str) -> Self {
        Self::of_entry(
            format!("unknown field {}", shown(key)),
            "only `name` and `version` are allowed",
        )
    }

    pub(super) fn name_not_text(found: Option<&Value>) -> Self {
        Self {
            key: Some("name"),
            ..Self::of_entry(
                format!("`name` must be text, not {}", found.map_or("missing", type_name)),
                "give the name the package is installed by",
            )
        }
    }

    pub(super) fn bad_name(language: Language, text: &str) -> Self {
        let (system, correction) = match language {
            Language::Python => (
                "a Python package (PEP 508)",
                "use letters, digits and inner `.`, `_`, `-`, with extras as in `requests[socks]`; no URLs, paths or markers",
            ),
            Language::Ruby => (
                "a gem",
                "use letters, digits, `.`, `_` and `-`, beginning with a letter or digit; no URLs or paths",
            ),
        };
        Self {
            key: Some("name"),
            ..Self::of_entry(
                format!("`name` {} is not the name of {system}", shown(text)),
                correction,
            )
        }
    }

    pub(super) fn version_not_text(language: Language, package: &str, found: &Value) -> Self {
        let problem = format!("`version` must be a constraint text, not {}", type_name(found));
        Self::of_version(language, package, problem)
    }

    pub(super) fn bad_version(language: Language, package: &str, part: &str) -> Self {
        let grammar = match language {
            Language::Python => "PEP 440 specifier",
            Language::Ruby => "RubyGems requirement",
        };
        Self::of_version(language, package, format!("`version` {} is not a {grammar}", shown(part)))
    }

    pub(super) fn contradiction(known: &Dependency, new: &Dependency) -> Self {
        Self {
            key: Some("version"),
            package: Some(new.package().to_owned()),
            problem: format!(
                "`{}` is declared twice, as `{}` and `{}`",
                new.package(),
                known.version,
                new.version
            ),
            correction: "keep one constraint".to_owned(),
        }
    }

    fn of_version(language: Language, package: &str, problem: String) -> Self {
        let correction = match language {
            Language::Python => "write it like `>=2.5,<3` or `==2.5.*`, or leave `version` out",
            Language::Ruby => "write it like `~> 2.5` or `>= 1.2, < 3`, or leave `version` out",
        };
        Self {
            key: Some("version"),
            package: Some(package.to_owned()),
            ..Self::of_entry(problem, correction)
        }
    }

    fn of_entry(problem: String, correction: &str) -> Self {
        Self { key: None, package: None, problem, correction: correction.to_owned() }
    }
}

/// A refused text: quoted, on one line, cut.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN_CHARS).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}
