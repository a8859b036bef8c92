//! How building an environment goes wrong, typed by the stage it went wrong in.

use std::fmt;
use std::io;
use std::path::Path;

use lifecycle::execution::EnvironmentFault;
use lifecycle::outcome::{Failure, FailureKind};

use super::command::InstallerFault;
use super::source::{PackageSources, redacted};
use crate::worker::BootFault;

/// Longest message of a tool that is passed on.
const MESSAGE_BYTES: usize = 2000;

/// When in a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BuildStage {
    /// Getting the packaging tool itself.
    Tool,
    /// Choosing versions.
    Resolve,
    /// Fetching, building and unpacking them.
    Install,
    /// Loading them.
    Activate,
}

impl BuildStage {
    /// As metadata says it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resolve => "resolve",
            Self::Install => "install",
            Self::Activate => "activate",
        }
    }
}

/// Why there is no environment.
#[derive(Debug)]
pub(super) enum BuildFault {
    /// No versions satisfy all that was declared.
    Unresolvable {
        /// The tool's words.
        said: String,
        /// Which package, if that is known.
        package: Option<String>,
    },
    /// A package cannot be built or unpacked.
    Uninstallable {
        /// The tool's words.
        said: String,
        /// Which package, if that is known.
        package: Option<String>,
    },
    /// A source does not answer, or not in time.
    Unreachable {
        /// While doing what.
        stage: BuildStage,
        /// Which, without credentials.
        source: String,
        /// The tool's words, or what was waited for.
        said: String,
    },
    /// An installed package cannot be loaded.
    Inactive {
        /// The interpreter's words.
        said: String,
        /// Which package.
        package: Option<String>,
    },
    /// The policy bars a package.
    Barred(Box<Failure>),
    /// Package managers would be contained less than is asked for.
    Uncontained(String),
    /// This machine cannot build: no tool, no directory.
    Unable {
        /// While doing what.
        stage: BuildStage,
        /// What is wrong and what to do.
        said: String,
    },
    /// The guest language, or what it needs to install anything, is missing.
    GuestMissing(String),
    /// The caller gave up.
    Cancelled,
}

impl BuildFault {
    /// A directory or file that cannot be used.
    pub(super) fn file(what: impl fmt::Display, path: &Path, error: &io::Error) -> Self {
        let said = format!(
            "{what} {}: {error}; free space there or set cache_dir to a directory you can write to",
            path.display()
        );
        Self::Unable { stage: BuildStage::Install, said }
    }

    /// A tool that did not come to an end.
    pub(super) fn command(
        fault: InstallerFault,
        stage: BuildStage,
        tool: &str,
        supply: &PackageSources,
    ) -> Self {
        match fault {
            InstallerFault::Cancelled => Self::Cancelled,
            InstallerFault::Unusable(error) => {
                Self::Unable { stage, said: format!("{tool} does not run: {error}") }
            }
            InstallerFault::Oversized { limit } => Self::Uninstallable {
                package: None,
                said: format!(
                    "its installation took more than {} MB of the disk; set installer_disk_mb to allow more",
                    limit >> 20
                ),
            },
            InstallerFault::Trap(path) => Self::Uninstallable {
                package: None,
                said: format!(
                    "its build left {}, which leads out of the environment",
                    path.display()
                ),
            },
            InstallerFault::TimedOut { limit, output } => Self::Unreachable {
                stage,
                source: supply.blamed(&output),
                said: format!("{tool} had not ended after {} s. {output}", limit.as_secs_f64()),
            },
        }
    }

    /// The fault as a call reports it.
    pub(super) fn reported(self, env_id: Option<&str>) -> EnvironmentFault {
        let known = |failure: Failure| match env_id {
            Some(id) => Box::new(failure.with("env_id", id)),
            None => Box::new(failure),
        };
        let about = |kind: FailureKind, what: &str, said: &str, stage: BuildStage| {
            let separator = if what.is_empty() { "" } else { ": " };
            Failure::new(kind, format!("{what}{separator}{}", bounded(said)))
                .with("stage", stage.name())
        };
        let naming = |failure: Failure, package: Option<String>| match package {
            Some(package) => known(failure.with("dependency_name", package)),
            None => known(failure),
        };
        match self {
            Self::Unresolvable { said, package } => {
                let kind = FailureKind::DependencyResolutionFailed;
                let failure = about(kind, UNRESOLVABLE, &said, BuildStage::Resolve);
                EnvironmentFault::Unresolvable(naming(failure, package))
            }
            Self::Uninstallable { said, package } => {
                let kind = FailureKind::DependencyInstallFailed;
                let failure = about(kind, UNINSTALLABLE, &said, BuildStage::Install);
                EnvironmentFault::InstallFailed(naming(failure, package))
            }
            Self::Inactive { said, package } => {
                let kind = FailureKind::DependencyActivationFailed;
                let failure = about(kind, INACTIVE, &said, BuildStage::Activate);
                EnvironmentFault::ActivationFailed(naming(failure, package))
            }
            Self::Unreachable { stage, source, said } => {
                let what = format!(
                    "the package source {source} cannot be reached; check the network, or set another source"
                );
                let failure = about(FailureKind::DependencyInstallFailed, &what, &said, stage);
                EnvironmentFault::SourceUnreachable(known(failure.with("source", source)))
            }
            Self::Unable { stage, said } => {
                let failure = about(FailureKind::DependencyInstallFailed, "", &said, stage);
                EnvironmentFault::SourceUnreachable(known(failure))
            }
            Self::Barred(failure) => EnvironmentFault::Refused(known(*failure)),
            Self::Uncontained(message) => EnvironmentFault::Uncontained(message),
            Self::GuestMissing(message) => EnvironmentFault::GuestMissing(message),
            Self::Cancelled => EnvironmentFault::Cancelled,
        }
    }
}

const UNRESOLVABLE: &str =
    "no versions satisfy the declared dependencies; declare others or loosen a constraint";
const UNINSTALLABLE: &str =
    "a declared package cannot be installed; declare another one or use the standard library";
const INACTIVE: &str =
    "a declared package is installed but cannot be loaded; declare another version or package";

impl From<BootFault> for BuildFault {
    fn from(fault: BootFault) -> Self {
        match fault {
            BootFault::Unavailable(problem) => Self::GuestMissing(problem),
            BootFault::Inactive { package, problem } => Self::Inactive { said: problem, package },
        }
    }
}

/// A tool's words, without credentials, cut to the end of what it said.
fn bounded(said: &str) -> String {
    let said = redacted(said.trim());
    let cut = said.len().saturating_sub(MESSAGE_BYTES);
    let start = (cut..=said.len()).find(|at| said.is_char_boundary(*at)).unwrap_or(0);
    said.get(start..).unwrap_or_default().to_owned()
}

/// The package a tool's words are about: the first of the known names they mention.
pub(super) fn mentioned<'a>(
    said: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let inside = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let found = |name: &'a str| {
        said.match_indices(name).map(|(at, _)| at).find(|at| {
            let before = said.get(..*at).and_then(|text| text.chars().next_back());
            let after = said.get(at + name.len()..).and_then(|text| text.chars().next());
            !before.is_some_and(inside) && !after.is_some_and(inside)
        })
    };
    let mentions = names.into_iter().filter_map(|name| Some((found(name)?, name)));
    mentions.min().map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_package_mentioned_is_the_one_meant() {
        let names = ["ray", "array-math", "numpy"];
        let said = "Because array-math depends on numpy<1 and ray";
        assert_eq!(mentioned(said, names).as_deref(), Some("array-math"));
        assert_eq!(mentioned("hurray", names), None);
    }

    #[test]
    fn long_messages_keep_their_end() {
        let said = format!("{}é the end", "x".repeat(5000));
        assert!(bounded(&said).len() <= MESSAGE_BYTES && bounded(&said).ends_with("é the end"));
    }
}
