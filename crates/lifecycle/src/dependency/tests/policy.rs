//! Policies: one row per rule and per source mode.

use super::*;

fn names(language: Language, names: &[&str]) -> Vec<PackageName> {
    names.iter().map(|name| PackageName::parse(language, name).unwrap()).collect()
}

#[test]
fn lists_compare_names_as_the_guest_does() {
    for (language, allowed, blocked, package, rule) in [
        (Ruby, vec![], vec![], "anything", None),
        (Ruby, vec!["prawn"], vec![], "Prawn", None),
        (Ruby, vec!["Prawn"], vec![], "nokogiri", Some("allowed_gems")),
        (Ruby, vec![], vec!["Evil"], "evil", Some("blocked_gems")),
        (Ruby, vec!["evil"], vec!["evil"], "evil", Some("blocked_gems")),
        (Ruby, vec![], vec!["e_vil"], "e-vil", None),
        (Python, vec!["Foo_Bar"], vec![], "foo-bar", None),
        (Python, vec!["requests[socks]"], vec![], "requests", None),
        (Python, vec!["requests"], vec![], "numpy", Some("allowed_packages")),
        (Python, vec![], vec!["e.vil"], "E__vil", Some("blocked_packages")),
    ] {
        let policy = DependencyPolicy {
            allowed: names(language, &allowed),
            blocked: names(language, &blocked),
            ..DependencyPolicy::default()
        };
        let found = policy.check_names(language, [package]).err();
        assert_eq!(found.as_ref().map(PolicyFault::policy), rule, "{package}");
        assert_eq!(found.map(|fault| fault.package), rule.map(|_| Some(package.to_owned())));
    }
}

#[test]
fn the_mode_decides_which_sources_are_asked() {
    use PackageSource::{Internal, Public};
    use SourceMode::{InternalOnly, InternalThenPublic, PublicOnly};
    let ours = PackageIndex::parse("https://gems.example/").unwrap();
    let beside = PackageIndex::parse("file:///srv/gems").unwrap();
    for (mode, sources, expected) in [
        (PublicOnly, vec![], Ok(vec![Public])),
        (PublicOnly, vec![&ours], Ok(vec![Public])),
        (InternalOnly, vec![&ours, &beside], Ok(vec![Internal(&ours), Internal(&beside)])),
        (InternalOnly, vec![], Err(PolicyRule::NoInternalSource)),
        (InternalThenPublic, vec![&ours], Ok(vec![Internal(&ours), Public])),
        (InternalThenPublic, vec![], Ok(vec![Public])),
    ] {
        let policy = DependencyPolicy {
            source_mode: mode,
            sources: sources.iter().map(|&source| source.clone()).collect(),
            ..DependencyPolicy::default()
        };
        let found = policy.effective_sources(Ruby).map_err(|fault| fault.rule);
        assert_eq!(found, expected, "{mode} {sources:?}");
    }
}

#[test]
fn a_list_names_packages_only() {
    for (language, text, is_name) in [
        (Python, "Foo_Bar", true),
        (Python, "requests[socks]", true),
        (Python, "numpy>=2", false),
        (Python, "my-*", false),
        (Ruby, "nokogiri", true),
        (Ruby, "nokogiri ~> 1", false),
        (Ruby, "", false),
    ] {
        assert_eq!(PackageName::parse(language, text).is_some(), is_name, "{text}");
    }
}

#[test]
fn violations_name_package_rule_and_alternative() {
    let needs = manifest(Ruby, &json!([{"name": "prawn"}]));
    let policy = |edit: fn(&mut DependencyPolicy)| {
        let mut policy = DependencyPolicy::default();
        edit(&mut policy);
        policy
    };
    for (policy, message) in [
        (
            policy(|p| p.blocked = names(Ruby, &["prawn"])),
            "`prawn` is blocked by `blocked_gems`; do without it: use the standard library or another package",
        ),
        (
            policy(|p| p.allowed = names(Ruby, &["rouge", "kramdown"])),
            "`prawn` is not allowed by `allowed_gems`; \
             use the standard library, or only these packages: rouge, kramdown",
        ),
        (
            policy(|p| p.source_mode = SourceMode::InternalOnly),
            "`source_mode` is internal_only and no source is configured; use the standard library only",
        ),
    ] {
        let failure = policy.check(Ruby, &needs).unwrap_err().failure();
        assert_eq!(failure.message, message);
        assert_eq!(failure.kind.code(), "dependency_policy_violation");
        assert!(
            metadata(&failure, "policy").is_some()
                && metadata(&failure, "required_correction").is_some()
        );
        assert_eq!(
            policy.check(Ruby, &DependencyManifest::default()),
            Ok(()),
            "nothing needs no source"
        );
    }
}

#[test]
fn modes_are_closed_sets() {
    for mode in SourceMode::ALL {
        assert_eq!(mode.name().parse(), Ok(mode));
    }
    for mode in ManifestMode::ALL {
        assert_eq!(mode.name().parse(), Ok(mode));
    }
    let unknown = "any".parse::<SourceMode>().unwrap_err();
    assert!(unknown.to_string().contains("\"internal_then_public\""));
    assert!("loose".parse::<ManifestMode>().is_err());
}
