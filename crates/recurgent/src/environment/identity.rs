//! The identity of an environment.

use lifecycle::dependency::DependencyManifest;
use lifecycle::dialect::Language;
use lifecycle::program::hex;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::GuestPolicy;
use super::source::PackageSources;
use crate::guest::interpreter::InterpreterInfo;

/// `env_id`: SHA-256 over engine, version, patch level, platform, source policy and normalised manifest.
/// Credentials are not part of it.
pub(super) fn env_id(
    language: Language,
    interpreter: &InterpreterInfo,
    policy: &GuestPolicy,
    sources: &PackageSources,
    manifest: &DependencyManifest,
) -> String {
    let mut parts = vec![
        format!("guest:{}", language.name()),
        format!("engine:{}", interpreter.engine),
        format!("version:{}", interpreter.version),
        format!("patchlevel:{}", interpreter.patch_level),
        format!("platform:{}", interpreter.platform),
        format!("source_mode:{}", policy.packages.source_mode.name()),
        format!("sources:{}", json!(sources.addresses())),
        format!("deps:{}", json!(manifest)),
    ];
    // Part of the source policy: an environment with packages built from source is not reused for wheels only.
    parts.extend(policy.wheels_only.then(|| "wheels_only".to_owned()));
    let days = policy.minimum_age_days;
    parts.extend((days > 0).then(|| format!("minimum_age_days:{days}")));
    hex(&Sha256::digest(parts.join("|").as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use lifecycle::dependency::{DependencyPolicy, PackageIndex, SourceMode};

    use super::*;
    use crate::guest::interpreter::InterpreterVersion;

    fn interpreter() -> InterpreterInfo {
        InterpreterInfo {
            roots: Vec::new(),
            path: PathBuf::from("/usr/bin/ruby"),
            version: InterpreterVersion(3, 1, 2),
            engine: "ruby".to_owned(),
            patch_level: "20".to_owned(),
            platform: "x86_64-linux-gnu".to_owned(),
        }
    }

    fn policy(sources: &[&str]) -> GuestPolicy {
        GuestPolicy {
            packages: DependencyPolicy {
                source_mode: SourceMode::InternalThenPublic,
                sources: sources.iter().map(|it| PackageIndex::parse(it).unwrap()).collect(),
                ..DependencyPolicy::default()
            },
            wheels_only: false,
            minimum_age_days: 0,
        }
    }

    fn id(interpreter: &InterpreterInfo, policy: &GuestPolicy, version: &str) -> String {
        let declared = json!([{"name": "prawn", "version": version}, {"name": "a"}]);
        let manifest = DependencyManifest::parse(Language::Ruby, Some(&declared)).unwrap();
        let sources = policy.packages.effective_sources(Language::Ruby).unwrap();
        let sources = PackageSources::of(&sources);
        env_id(Language::Ruby, interpreter, policy, &sources, &manifest)
    }

    #[test]
    fn what_does_not_matter_changes_nothing() {
        let first = id(&interpreter(), &policy(&["https://a/", "https://b/"]), "~> 2.5");
        let elsewhere = InterpreterInfo { path: PathBuf::from("/opt/ruby"), ..interpreter() };
        let again = id(&elsewhere, &policy(&["https://me:pw@b/", "https://a/"]), " ~>2.5 ");
        assert_eq!(first, again);
        assert_eq!(first.len(), 64);
    }

    #[test]
    fn everything_that_matters_makes_another_environment() {
        let base = policy(&["https://a/"]);
        let mut only_ours = base.clone();
        only_ours.packages.source_mode = SourceMode::InternalOnly;
        let ids = [
            id(&interpreter(), &base, "~> 2.5"),
            id(&interpreter(), &base, "~> 2.4"),
            id(&interpreter(), &policy(&["https://b/"]), "~> 2.5"),
            id(&interpreter(), &only_ours, "~> 2.5"),
            id(&interpreter(), &GuestPolicy { wheels_only: true, ..base.clone() }, "~> 2.5"),
            id(&InterpreterInfo { engine: "truffleruby".into(), ..interpreter() }, &base, "~> 2.5"),
            id(
                &InterpreterInfo { version: InterpreterVersion(3, 1, 3), ..interpreter() },
                &base,
                "~> 2.5",
            ),
            id(&InterpreterInfo { patch_level: "21".into(), ..interpreter() }, &base, "~> 2.5"),
            id(
                &InterpreterInfo { platform: "arm64-linux".into(), ..interpreter() },
                &base,
                "~> 2.5",
            ),
        ];
        let distinct: std::collections::BTreeSet<&String> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }
}
