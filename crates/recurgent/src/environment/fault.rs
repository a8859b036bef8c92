//! Failures of building an environment, with the stage they occurred in.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use lifecycle::dependency::without_credentials;
use lifecycle::execution::EnvironmentFault;
use lifecycle::outcome::{Failure, FailureKind};

use super::command::InstallerFault;
use super::source::PackageSources;
use crate::worker::BootFault;

/// Bytes kept of a tool's message.
const MESSAGE_BYTES: usize = 2000;
/// Characters kept of a line that states a cause.
const MAX_CAUSE_CHARS: usize = 200;

/// A stage of building an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BuildStage {
    /// Getting the packaging tool itself.
    Tool,
    /// Choosing versions.
    Resolve,
    /// Fetching and unpacking them.
    Install,
    /// Building what was fetched.
    Build,
    /// Loading them.
    Activate,
}

impl BuildStage {
    /// The name in metadata.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resolve => "resolve",
            Self::Install | Self::Build => "install",
            Self::Activate => "activate",
        }
    }
}

/// Why there is no environment.
#[derive(Debug)]
pub(super) enum BuildFault {
    /// No versions satisfy the declared dependencies.
    Unresolvable {
        /// The tool's message.
        explanation: String,
        /// The package, if known.
        package: Option<String>,
    },
    /// A package cannot be built or unpacked.
    Uninstallable {
        /// The tool's message.
        explanation: String,
        /// The package, if known.
        package: Option<String>,
    },
    /// A source does not answer, or not in time.
    Unreachable {
        /// The stage it occurred in.
        stage: BuildStage,
        /// The source, without credentials.
        source: String,
        /// The tool's message, or what was waited for.
        explanation: String,
    },
    /// A source refuses access.
    Denied {
        /// The stage it occurred in.
        stage: BuildStage,
        /// The source, without credentials.
        source: String,
        /// The tool's message.
        explanation: String,
    },
    /// A tool did not end in time.
    TimedOut {
        /// The stage it occurred in.
        stage: BuildStage,
        /// The source it may have waited for.
        source: Option<String>,
        /// What was waited for, how long, and what it printed.
        explanation: String,
    },
    /// An installed package cannot be loaded.
    ActivationFailed {
        /// The interpreter's message.
        explanation: String,
        /// The package, if known.
        package: Option<String>,
    },
    /// The policy forbids a package.
    Refused(Box<Failure>),
    /// The sandbox for package managers is weaker than the minimum tier.
    Uncontained(String),
    /// This machine cannot build now: a tool or a directory is missing, or another process builds the same.
    CannotBuild {
        /// The stage it occurred in.
        stage: BuildStage,
        /// What failed and what to do.
        explanation: String,
    },
    /// The guest language, or what it needs to install anything, is missing.
    GuestMissing(String),
    /// The caller cancelled.
    Cancelled,
}

impl BuildFault {
    /// The fault of a directory or file that cannot be used.
    pub(super) fn file(what: impl fmt::Display, path: &Path, error: &io::Error) -> Self {
        let explanation = format!(
            "{what} {}: {error}; free space there or set cache_dir to a directory you can write to",
            path.display()
        );
        Self::CannotBuild { stage: BuildStage::Install, explanation }
    }

    /// The fault of a tool that did not run to its end.
    pub(super) fn command(
        fault: InstallerFault,
        stage: BuildStage,
        tool: &str,
        sources: Option<&PackageSources>,
    ) -> Self {
        match fault {
            InstallerFault::Cancelled => Self::Cancelled,
            InstallerFault::Unusable(error) => {
                Self::CannotBuild { stage, explanation: format!("{tool} does not run: {error}") }
            }
            InstallerFault::Oversized { limit } => Self::Uninstallable {
                package: None,
                explanation: format!(
                    "its installation needs more than {} MB of disk space; raise installer_disk_mb",
                    limit >> 20
                ),
            },
            InstallerFault::HostilePath(path) => Self::Uninstallable {
                package: None,
                explanation: format!(
                    "its build left {}, which points outside the environment; use another package",
                    path.display()
                ),
            },
            InstallerFault::TimedOut { limit, output } => {
                let asks = matches!(stage, BuildStage::Resolve | BuildStage::Install);
                let source = sources.filter(|_| asks).map(|sources| sources.mentioned_in(&output));
                let explanation = timed_out(tool, stage, limit, source.as_deref(), &output);
                Self::TimedOut { stage, source, explanation }
            }
        }
    }

    /// The fault of the call that needs the environment.
    pub(super) fn into_environment_fault(self, env_id: Option<&str>) -> EnvironmentFault {
        const INSTALL: FailureKind = FailureKind::DependencyInstallFailed;
        let with_env_id = |failure: Failure| match env_id {
            Some(id) => Box::new(failure.with("env_id", id)),
            None => Box::new(failure),
        };
        let with_package = |failure: Failure, package: Option<String>| match package {
            Some(package) => with_env_id(failure.with("dependency_name", package)),
            None => with_env_id(failure),
        };
        match self {
            Self::Unresolvable { explanation, package } => {
                let kind = FailureKind::DependencyResolutionFailed;
                let failure = build_failure(kind, UNRESOLVABLE, &explanation, BuildStage::Resolve);
                EnvironmentFault::Unresolvable(with_package(failure, package))
            }
            Self::Uninstallable { explanation, package } => {
                let failure =
                    build_failure(INSTALL, UNINSTALLABLE, &explanation, BuildStage::Install);
                EnvironmentFault::InstallFailed(with_package(failure, package))
            }
            Self::ActivationFailed { explanation, package } => {
                let kind = FailureKind::DependencyActivationFailed;
                let failure = build_failure(kind, NOT_LOADABLE, &explanation, BuildStage::Activate);
                EnvironmentFault::ActivationFailed(with_package(failure, package))
            }
            Self::Unreachable { stage, source, explanation } => {
                let what = format!("the package source {source} {UNREACHABLE}");
                let failure =
                    build_failure(INSTALL, &what, &explanation, stage).with("source", source);
                EnvironmentFault::SourceUnreachable(with_env_id(failure))
            }
            Self::Denied { stage, source, explanation } => {
                let what = format!("the package source {source} {DENIED}");
                let failure =
                    build_failure(INSTALL, &what, &explanation, stage).with("source", source);
                EnvironmentFault::SourceUnreachable(with_env_id(failure))
            }
            // Code of a package ran: another package may do better.
            Self::TimedOut { stage: stage @ BuildStage::Build, source: _, explanation } => {
                let failure = build_failure(INSTALL, "", &explanation, stage);
                EnvironmentFault::InstallFailed(with_env_id(failure))
            }
            Self::TimedOut { stage, source: Some(source), explanation } => {
                let failure = build_failure(INSTALL, "", &explanation, stage);
                EnvironmentFault::SourceUnreachable(with_env_id(failure.with("source", source)))
            }
            // No program is at fault, as where a source does not answer.
            Self::TimedOut { stage, source: None, explanation }
            | Self::CannotBuild { stage, explanation } => {
                let failure = build_failure(INSTALL, "", &explanation, stage);
                EnvironmentFault::SourceUnreachable(with_env_id(failure))
            }
            Self::Refused(failure) => EnvironmentFault::Refused(with_env_id(*failure)),
            Self::Uncontained(message) => EnvironmentFault::Uncontained(message),
            Self::GuestMissing(message) => EnvironmentFault::GuestMissing(message),
            Self::Cancelled => EnvironmentFault::Cancelled,
        }
    }
}

fn build_failure(kind: FailureKind, what: &str, explanation: &str, stage: BuildStage) -> Failure {
    let separator = if what.is_empty() { "" } else { ": " };
    Failure::new(kind, format!("{what}{separator}{}", bounded(explanation)))
        .with("stage", stage.name())
}

fn timed_out(
    tool: &str,
    stage: BuildStage,
    limit: Duration,
    source: Option<&str>,
    output: &str,
) -> String {
    let (what, advice) = match stage {
        BuildStage::Resolve => ("choosing versions", "raise resolve_timeout_seconds"),
        BuildStage::Install => ("fetching packages", "raise install_timeout_seconds"),
        BuildStage::Build => {
            ("building a package", "declare another package, or raise install_timeout_seconds")
        }
        BuildStage::Tool | BuildStage::Activate => ("starting", "run it again later"),
    };
    let source = source.map_or_else(String::new, |it| format!(" (from {it}, which may be slow)"));
    let printed = if output.is_empty() { String::new() } else { format!(". It printed: {output}") };
    let seconds = limit.as_secs_f64();
    format!("{tool} did not finish {what}{source} within {seconds:.1} s; {advice}{printed}")
}

/// What is wrong with a source that cannot be reached.
const UNREACHABLE: &str = "cannot be reached; check the network, or set another source";
/// What is wrong with a source that refuses.
const DENIED: &str = "refuses access; check the user name and password in its address";
const UNRESOLVABLE: &str =
    "no versions satisfy the declared dependencies; declare others or loosen a constraint";
const UNINSTALLABLE: &str =
    "a declared package cannot be installed; declare another one or use the standard library";
const NOT_LOADABLE: &str =
    "a declared package is installed but cannot be loaded; declare another version or package";

impl From<BootFault> for BuildFault {
    fn from(fault: BootFault) -> Self {
        match fault {
            BootFault::Unavailable(problem) => Self::GuestMissing(problem),
            BootFault::ActivationFailed { package, problem } => {
                Self::ActivationFailed { explanation: problem, package }
            }
        }
    }
}

/// A tool's message without credentials. A long message is cut to the lines that state a cause and to its end: compilers
/// and build scripts print the cause first and much after it.
fn bounded(explanation: &str) -> String {
    let explanation = without_credentials(explanation.trim());
    if explanation.len() <= MESSAGE_BYTES {
        return explanation;
    }
    let mut causes = String::new();
    for line in explanation.lines().map(str::trim).filter(|line| states_cause(line)) {
        let line: String = line.chars().take(MAX_CAUSE_CHARS).collect();
        if causes.len() + line.len() > MESSAGE_BYTES / 2 {
            break;
        }
        if !causes.contains(&line) {
            causes.push_str(&line);
            causes.push('\n');
        }
    }
    if !causes.is_empty() {
        causes.push_str("…\n");
    }
    let cut = explanation.len().saturating_sub(MESSAGE_BYTES - causes.len());
    let start = (cut..=explanation.len()).find(|at| explanation.is_char_boundary(*at)).unwrap_or(0);
    causes + explanation.get(start..).unwrap_or_default()
}

/// Whether a line of a tool's output looks like the cause of a failure. A wrong answer only affects which part of a long
/// message is shown.
fn states_cause(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    line.ends_with("... no") || CAUSES.iter().any(|word| line.contains(word))
}

const CAUSES: [&str; 9] = [
    "error",
    "fatal",
    "refuses",
    "cannot find",
    "can't find",
    "not found",
    "no such file",
    "undefined reference",
    "missing",
];

/// The package a tool's message is about: the first of the known names it mentions. Neither uv nor Bundler reports it in
/// another way; a wrong guess only affects `dependency_name` in the metadata.
pub(super) fn first_mentioned<'a>(
    explanation: &str,
    names: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let inside = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let found = |name: &'a str| {
        explanation.match_indices(name).map(|(at, _)| at).find(|at| {
            let before = explanation.get(..*at).and_then(|text| text.chars().next_back());
            let after = explanation.get(at + name.len()..).and_then(|text| text.chars().next());
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
        let explanation = "Because array-math depends on numpy<1 and ray";
        assert_eq!(first_mentioned(explanation, names).as_deref(), Some("array-math"));
        assert_eq!(first_mentioned("hurray", names), None);
    }

    #[test]
    fn long_messages_keep_their_causes() {
        let noise = "compiling a file that is fine\n".repeat(500);
        let explanation = format!(
            "Installing native 1.0\nchecking for widget.h... no\nnative.c:3: fatal error: widget.h: No such file\n{noise}the end"
        );
        let shown = bounded(&explanation);
        assert!(
            shown.starts_with("checking for widget.h... no\nnative.c:3: fatal error"),
            "{shown}"
        );
        assert!(shown.ends_with("the end") && shown.len() <= MESSAGE_BYTES);
    }

    #[test]
    fn long_messages_keep_their_end() {
        let explanation = format!("{}é the end", "x".repeat(5000));
        assert!(
            bounded(&explanation).len() <= MESSAGE_BYTES
                && bounded(&explanation).ends_with("é the end")
        );
    }
}
