//! The messages for a program that could not use something outside.

use crate::blame::Outside;
use crate::dialect::Language;
use crate::execution::ExceptionFacts;
use crate::outcome::{Failure, FailureKind};

/// The failure of a program that could not use a service, a file or another agent: what, why, and the missing grant.
pub(super) fn outside_failure(outside: &Outside, granted: bool, text: &str) -> Failure {
    match outside {
        Outside::Agent => Failure::new(FailureKind::Execution, text),
        Outside::Answer { host } => {
            let what = host.as_deref().unwrap_or("a service the program needs");
            let message = format!(
                "the stored program cannot use what {what} answered ({text}); run it again when it answers as before. \
                 If it goes on, the program is repaired by itself, or now with `--regenerate`"
            );
            Failure::new(FailureKind::ServiceUnavailable, message).with("host", host.as_deref())
        }
        Outside::Service { host, .. } if granted => {
            let what = host.as_deref().unwrap_or("a service the program needs");
            let message = format!("{what} cannot be used ({text}); run it again when it answers");
            Failure::new(FailureKind::ServiceUnavailable, message).with("host", host.as_deref())
        }
        Outside::Service { host, port } => {
            let host_name = host.as_deref().unwrap_or("HOST");
            let grant = match port {
                Some(port) if host_name.contains(':') => format!("--network [{host_name}]:{port}"),
                Some(port) => format!("--network {host_name}:{port}"),
                None => format!("--network {host_name}"),
            };
            let message = format!(
                "the program may not use the network for this ({text}); grant it with `{grant}`"
            );
            Failure::new(FailureKind::UnsupportedCapability, message)
                .with("host", host.as_deref())
                .with("grant", grant)
        }
        Outside::File { .. } => file_failure(outside, granted, text),
    }
}

/// The same of a file.
fn file_failure(outside: &Outside, granted: bool, text: &str) -> Failure {
    match outside {
        Outside::File { path, shut_out_of: Some(workspace), .. } => {
            let message = format!(
                "{text}; programs of root run as another user, whom the permissions of the workspace shut out: open it with \
                 `chmod -R o+rwX {workspace}`, or call as the user whom it belongs to"
            );
            Failure::new(FailureKind::WorkspaceUnusable, message)
                .with("path", path.as_deref())
                .with("workspace", workspace.as_str())
        }
        Outside::File { path, granted_as, .. } if granted => {
            let advice = match granted_as {
                Some(granted) => format!(
                    "relative paths begin where programs run, so give the whole path; granted is `{granted}`"
                ),
                None => "check that the file exists and that its permissions allow this".to_owned(),
            };
            let message = format!("{text}; {advice}");
            Failure::new(FailureKind::Execution, message).with("path", path.as_deref())
        }
        Outside::File { path, in_workspace: true, .. } => {
            let grant = "--workspace-write";
            let message =
                format!("the program may not change the workspace ({text}); let it with `{grant}`");
            Failure::new(FailureKind::UnsupportedCapability, message)
                .with("path", path.as_deref())
                .with("grant", grant)
        }
        Outside::File { path, is_change: true, .. } => {
            let grant = format!("--write {}", path.as_deref().unwrap_or("PATH"));
            let message = format!(
                "the program may read this file and not change it ({text}); let it with `{grant}`, or check that its own \
                 permissions allow reading it"
            );
            Failure::new(FailureKind::UnsupportedCapability, message)
                .with("path", path.as_deref())
                .with("grant", grant)
        }
        Outside::File { path, .. } => {
            let grant = read_grant(path.as_deref().unwrap_or("PATH"));
            let message = format!(
                "the program cannot open a file ({text}); check that it exists, and grant it with `{grant}`, or \
                 `--write` to change it"
            );
            Failure::new(FailureKind::UnsupportedCapability, message)
                .with("path", path.as_deref())
                .with("grant", grant)
        }
        Outside::Agent | Outside::Answer { .. } | Outside::Service { .. } => {
            Failure::new(FailureKind::Execution, text)
        }
    }
}

pub(super) fn read_grant(path: &str) -> String {
    format!("--read {path}")
}

/// What to use where a rename cannot be made: a layer over a workspace has directories that only look like one file system
/// with those that programs make.
pub(super) fn rename_advice(language: Language, facts: &ExceptionFacts) -> Option<String> {
    let is_refused = std::iter::once(&facts.exception)
        .chain(&facts.causes)
        .any(|link| link.has_errno(&["EXDEV"]));
    let instead = match language {
        Language::Python => "shutil.move",
        Language::Ruby => "FileUtils.cp_r` and `FileUtils.rm_r",
    };
    is_refused.then(|| {
        format!("; a directory of a workspace, and what is on another file system, cannot be renamed: use `{instead}`")
    })
}
