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
                 `chmod -R o+rwX {}`, or call as the user whom it belongs to",
                shell_word(workspace)
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
            let grant = path_grant("--write", path.as_deref());
            let message = format!(
                "the program may read this file and not change it ({text}); let it with `{grant}`, or check that its own \
                 permissions allow reading it"
            );
            Failure::new(FailureKind::UnsupportedCapability, message)
                .with("path", path.as_deref())
                .with("grant", grant)
        }
        Outside::File { path, .. } => {
            let grant = path_grant("--read", path.as_deref());
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
    path_grant("--read", Some(path))
}

/// A flag that grants a path, as a person can paste it into a shell. A path that no line can show is only called one.
fn path_grant(flag: &str, path: Option<&str>) -> String {
    match path.filter(|path| !path.is_empty() && !path.chars().any(char::is_control)) {
        // A word that begins with a dash would be a flag.
        Some(path) if path.starts_with('-') => {
            format!("{flag} {}", shell_word(&format!("./{path}")))
        }
        Some(path) => format!("{flag} {}", shell_word(path)),
        None => format!("{flag} PATH"),
    }
}

/// A word that a shell takes as it is.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./+,:@%=".contains(c);
    if text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_can_be_pasted_into_a_shell() {
        for (path, expected) in [
            (Some("sales.csv"), "--read sales.csv"),
            (Some("/data/Größe-1.csv"), "--read /data/Größe-1.csv"),
            (Some("my sales.csv"), "--read 'my sales.csv'"),
            (Some("it's.csv"), r"--read 'it'\''s.csv'"),
            (Some("$HOME/a"), "--read '$HOME/a'"),
            (Some("~/a"), "--read '~/a'"),
            (Some("-x.csv"), "--read ./-x.csv"),
            (Some("a,b\n"), "--read PATH"),
            (Some(""), "--read PATH"),
            (None, "--read PATH"),
        ] {
            assert_eq!(path_grant("--read", path), expected);
        }
    }
}
