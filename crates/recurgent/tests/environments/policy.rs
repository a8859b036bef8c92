//! What may be installed, from where, and what happens when a source does not answer.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lifecycle::outcome::FailureKind;
use recurgent::Language;
use recurgent::worker::Tier;
use serde_json::{Value, json};

use crate::fixture::{EnvironmentFixture, failure, failure_facts, value};
use crate::processes::{answer, start_process};
use crate::sources::PackageServer;

const OUTER: &str = "import outer_part\nresult = outer_part.NAME";
const SLUG: &str = "from slugify import slugify\nresult = slugify('A B')";

fn ready(fixture: &EnvironmentFixture) -> Value {
    let roots = fixture.environments();
    assert_eq!(roots.len(), 1);
    serde_json::from_slice(&std::fs::read(roots[0].join(".ready")).unwrap()).unwrap()
}

#[test]
fn public_only_asks_the_public_source_alone() {
    let source = PackageServer::wheels();
    let mut fixture = EnvironmentFixture::new(Language::Python);
    fixture.set("python_indexes", &source.url());
    assert_eq!(value(&fixture.run_program(SLUG, &json!([{"name": "python-slugify"}]))), "a-b");
    assert_eq!(ready(&fixture)["sources"], json!(["public"]));
    assert_eq!(source.requests().len(), 0);
}

#[test]
fn internal_only_asks_the_internal_source_alone() {
    let source = PackageServer::wheels();
    let mut fixture = source.fixture();
    let outer = json!([{"name": "outer-part"}]);
    assert_eq!(value(&fixture.run_program(OUTER, &outer)), "outer of inner");
    assert_eq!(ready(&fixture)["sources"], json!([source.url()]));
    let outcome = fixture.run_program(SLUG, &json!([{"name": "python-slugify"}]));
    assert_eq!(failure(&outcome).kind.code(), "dependency_resolution_failed");

    fixture.set("python_indexes", "");
    let outcome = fixture.run_program(OUTER, &outer);
    assert_eq!(
        failure_facts(&outcome, "policy"),
        ("dependency_policy_violation", false, Some("source_mode"))
    );
}

#[test]
fn internal_then_public_asks_the_internal_source_first() {
    let source = PackageServer::wheels();
    let mut fixture = source.fixture();
    fixture.set("source_mode", "internal_then_public");
    let both = json!([{"name": "outer-part"}, {"name": "python-slugify"}]);
    let code = format!("{OUTER}\nfrom slugify import slugify\nresult += slugify(' A B')");
    assert_eq!(value(&fixture.run_program(&code, &both)), "outer of innera-b");
    assert!(source.asked_for("/simple/outer-part/") > 0);
}

/// A mirror on loopback takes the place of the public source. It has gems of the same names in newer versions.
#[test]
fn an_internal_gem_is_never_taken_from_the_public_source() {
    const MIRROR: &str = "BUNDLE_MIRROR__HTTPS://RUBYGEMS__ORG/";
    let (internal, public) = (PackageServer::gems(), PackageServer::gems());
    internal.set_outdated(true);
    internal.withhold("dash-ed");
    let mut fixture = internal.fixture();
    fixture.set("source_mode", "internal_then_public");
    fixture.set("installer_env", MIRROR);
    let order = |code: &str, gems: &[&str]| {
        let gems: Vec<Value> = gems.iter().map(|name| json!({"name": name})).collect();
        let order = json!({"code": code, "dependencies": gems});
        answer(start_process(&fixture, &order, &[(MIRROR, &public.url())]))
    };
    let printed = order("require 'beta'\nrequire 'dash/ed'\nBeta::VERSION", &["beta", "dash-ed"]);
    assert_eq!(printed["result"], json!({"Ok": "1.0.0"}), "the public source has 2.0.0");
    assert!(public.asked_for("/gems/dash-ed-1.0.0.gem") > 0, "the internal source lacks it");
    let printed = order("require 'alpha'\n[Alpha::VERSION, Beta::VERSION]", &["alpha"]);
    assert_eq!(printed["result"], json!({"Ok": ["1.0.0", "1.0.0"]}), "alpha needs beta");
    assert_eq!((public.asked_for("/gems/beta"), public.asked_for("/gems/alpha")), (0, 0));
}

#[test]
fn a_package_comes_from_the_first_source_that_has_its_name() {
    for (first, second, code, name, expected) in [
        (
            PackageServer::gems(),
            PackageServer::gems(),
            "require 'alpha'\n[Alpha::VERSION, Beta::VERSION]",
            "alpha",
            json!(["1.0.0", "1.0.0"]),
        ),
        (
            PackageServer::wheels(),
            PackageServer::wheels(),
            "import inner_part\nresult = inner_part.NAME",
            "inner-part",
            json!("inner"),
        ),
    ] {
        first.set_outdated(true);
        let mut fixture = first.fixture();
        fixture.set(first.key(), &format!("{},{}", first.url(), second.url()));
        let outcome = fixture.run_program(code, &json!([{"name": name}]));
        assert_eq!(value(&outcome), &expected, "the second source has 2.0.0");
        assert_eq!((second.asked_for("/gems/"), second.asked_for("/wheels/")), (0, 0));
    }
}

/// Without a variable that it should get, a package manager could build something else.
#[test]
fn a_variable_that_is_not_set_is_reported_before_anything_is_installed() {
    let source = PackageServer::wheels();
    let mut fixture = source.fixture();
    fixture.set("installer_env", "PATH, RECURGENT_TEST_UNSET");
    let outcome = fixture.run_program(OUTER, &json!([{"name": "outer-part"}]));
    let failure = failure(&outcome);
    let said = "installer_env lists `RECURGENT_TEST_UNSET`, which is not set; set it, or remove it";
    assert!(failure.message.contains(said), "{failure:?}");
    assert_eq!((source.asked_for("/"), fixture.environments()), (0, Vec::<PathBuf>::new()));
}

/// No package is the cause, so no model is asked for a program that needs none.
#[test]
fn a_sandbox_weaker_than_asked_for_installs_nothing() {
    for source in [PackageServer::wheels(), PackageServer::gems()] {
        let mut fixture = source.fixture();
        fixture.layers = Tier::Landlock.layers();
        fixture.set("minimum_sandbox_tier", "namespaces");
        let outcome = fixture.run_program("1", &json!([{"name": "alpha"}]));
        let failure = failure(&outcome);
        assert_eq!(failure.kind, FailureKind::SandboxUnavailable, "{failure:?}");
        assert_eq!(fixture.environments(), Vec::<PathBuf>::new());
        assert_eq!(source.asked_for("/"), 0);
    }
}

#[test]
fn a_blocked_package_is_refused_from_the_lock_before_it_is_installed() {
    let wheels = PackageServer::wheels();
    let gems = PackageServer::gems();
    for (source, blocked, declared, package) in [
        (&wheels, "blocked_packages", "outer-part", "inner-part"),
        (&gems, "blocked_gems", "alpha", "beta"),
    ] {
        let mut fixture = source.fixture();
        fixture.set(blocked, package);
        let outcome = fixture.run_program("1", &json!([{"name": declared}]));
        let seen = failure(&outcome);
        assert_eq!(
            failure_facts(&outcome, "dependency_name"),
            ("dependency_policy_violation", false, Some(package)),
            "{seen:#?}"
        );
        assert!(seen.metadata.contains_key("env_id"), "it was found in the lock: {seen:#?}");
        let needed_by = format!("`{declared}`");
        assert_eq!(failure_facts(&outcome, "needed_by").2, Some(needed_by.as_str()));
        assert!(seen.message.contains(&needed_by), "{seen:#?}");
        assert_eq!(source.asked_for("/gems/"), 0, "nothing was installed");
        assert_eq!(fixture.environments().len(), 0);
    }
}

#[test]
fn a_package_that_is_blocked_later_is_refused_in_a_cached_environment_too() {
    let source = PackageServer::gems();
    let mut fixture = source.fixture();
    let alpha = json!([{"name": "alpha", "version": "~> 1.0"}]);
    value(&fixture.run_program("require 'alpha'\n1", &alpha));
    fixture.set("blocked_gems", "beta");
    let outcome = fixture.run_program("require 'alpha'\n1", &alpha);
    assert_eq!(failure(&outcome).kind.code(), "dependency_policy_violation");
}

#[test]
fn only_allowed_packages_are_installed() {
    let source = PackageServer::gems();
    let mut fixture = source.fixture();
    fixture.set("allowed_gems", "beta");
    assert_eq!(
        value(&fixture.run_program("require 'beta'\n1", &json!([{"name": "beta"}]))),
        &json!(1)
    );
    let asked = source.requests().len();
    let outcome = fixture.run_program("1", &json!([{"name": "alpha"}]));
    assert_eq!(
        failure_facts(&outcome, "policy"),
        ("dependency_policy_violation", false, Some("allowed_gems"))
    );
    assert_eq!(source.requests().len(), asked, "refused before resolving");
}

#[test]
fn packages_that_must_be_built_are_refused_when_only_wheels_are_allowed() {
    let source = PackageServer::wheels();
    let mut fixture = source.fixture();
    let unbuildable = json!([{"name": "unbuildable-part"}]);
    let outcome = fixture.run_program("1", &unbuildable);
    assert_eq!(
        failure_facts(&outcome, "dependency_name"),
        ("dependency_install_failed", true, Some("unbuildable-part")),
        "{:#?}",
        failure(&outcome)
    );
    fixture.set("wheels_only", "true");
    let outcome = fixture.run_program("1", &unbuildable);
    let code = failure(&outcome).kind.code();
    assert!(code.starts_with("dependency_"), "{:#?}", failure(&outcome));
    assert!(!failure(&outcome).message.contains("refuses to be built"), "{:#?}", failure(&outcome));
}

#[test]
fn a_package_that_raises_when_it_is_loaded_is_not_activated() {
    let fixture = PackageServer::wheels().fixture();
    let outcome = fixture.run_program("1", &json!([{"name": "faulty-part"}]));
    assert_eq!(
        failure_facts(&outcome, "dependency_name"),
        ("dependency_activation_failed", true, Some("faulty-part"))
    );
    assert!(failure(&outcome).message.contains("faulty_part cannot be loaded"));
}

#[test]
fn credentials_reach_the_source_and_nothing_else() {
    for source in [PackageServer::wheels(), PackageServer::gems()] {
        let mut fixture = source.fixture();
        // The user `me@home` and the password `s3cret/1`, percent-encoded.
        fixture.set(source.key(), &source.url_with("me%40home:s3cret%2F1@"));
        let (code, name) = match fixture.language {
            Language::Python => (OUTER, "outer-part"),
            Language::Ruby => ("require 'beta'\nBeta::VERSION", "beta"),
        };
        value(&fixture.run_program(code, &json!([{"name": name}])));
        let meant = "uthorization: Basic bWVAaG9tZTpzM2NyZXQvMQ==\r\n";
        assert!(source.asked_for(meant) > 0, "{:?}", source.requests());
        let root = &fixture.environments()[0];
        for file in ["pyproject.toml", "uv.lock", "Gemfile", "Gemfile.lock", ".ready"] {
            let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            assert!(!text.contains("s3cret"), "{file}: {text}");
        }
        assert!(!std::fs::read_to_string(fixture.path("log.jsonl")).unwrap().contains("s3cret"));
    }
}

#[test]
fn package_managers_go_through_the_proxy_that_is_set() {
    for (source, index, code, name) in [
        (PackageServer::wheels(), "http://packages.invalid/simple/", OUTER, "outer-part"),
        (PackageServer::gems(), "http://packages.invalid/", "require 'beta'\n1", "beta"),
    ] {
        let mut fixture = source.fixture();
        fixture.set(source.key(), index);
        fixture.set("installer_proxy", &source.proxy());
        value(&fixture.run_program(code, &json!([{"name": name}])));
        assert!(source.asked_for("GET http://packages.invalid/") > 0, "{:?}", source.requests());
    }
}

#[test]
fn a_source_that_does_not_answer_ends_the_call_in_time_and_is_named() {
    // One refuses connections; the other accepts them and says nothing.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for (language, key) in [(Language::Python, "python_indexes"), (Language::Ruby, "gem_sources")] {
        for address in [closed, silent.local_addr().unwrap()] {
            let mut fixture = EnvironmentFixture::new(language);
            let url = format!("http://{address}/");
            fixture.set("source_mode", "internal_only");
            fixture.set(key, &url);
            fixture.set("resolve_timeout_seconds", "12");
            let begun = Instant::now();
            let outcome = fixture.run_program("1", &json!([{"name": "anything"}]));
            let seen = failure(&outcome);
            assert_eq!(
                failure_facts(&outcome, "source"),
                ("dependency_install_failed", true, Some(url.as_str())),
                "{seen:#?}"
            );
            assert_eq!(failure_facts(&outcome, "stage").2, Some("resolve"));
            assert!(seen.message.contains(&url), "{seen:#?}");
            assert!(begun.elapsed() < Duration::from_mins(2), "{:?}", begun.elapsed());
        }
    }
}

#[test]
fn a_source_that_refuses_access_is_reported_alike_by_both_guests() {
    for status in ["401 Unauthorized", "403 Forbidden"] {
        for source in [PackageServer::wheels(), PackageServer::gems()] {
            source.deny(status);
            let fixture = source.fixture();
            let outcome = fixture.run_program("1", &json!([{"name": "anything"}]));
            let seen = failure(&outcome);
            assert_eq!(
                failure_facts(&outcome, "source"),
                ("dependency_install_failed", true, Some(source.url().as_str())),
                "{seen:#?}"
            );
            assert!(seen.message.contains("refuses access"), "{status}: {seen:#?}");
        }
    }
}

#[test]
fn a_package_that_hangs_or_ends_the_interpreter_when_loaded_is_named() {
    for (source, hanging, dying) in [
        (PackageServer::wheels(), "hanging-part", "dying-part"),
        (PackageServer::gems(), "hanging", "dying"),
    ] {
        let mut fixture = source.fixture();
        fixture.set("activation_timeout_seconds", "15");
        for (package, words) in
            [(hanging, "did not load within 15 s"), (dying, "ended the interpreter")]
        {
            let outcome = fixture.run_program("1", &json!([{"name": package}]));
            assert_eq!(
                failure_facts(&outcome, "dependency_name"),
                ("dependency_activation_failed", true, Some(package)),
                "{:#?}",
                failure(&outcome)
            );
            assert!(failure(&outcome).message.contains(words), "{:#?}", failure(&outcome));
        }
    }
}

#[test]
fn a_package_may_print_a_lot_when_it_is_loaded() {
    for (source, package, code) in [
        (PackageServer::wheels(), "noisy-part", "import noisy_part\nresult = 7"),
        (PackageServer::gems(), "noisy", "require 'noisy'\n7"),
    ] {
        let fixture = source.fixture();
        assert_eq!(value(&fixture.run_program(code, &json!([{"name": package}]))), &json!(7));
    }
}

#[test]
fn a_package_that_was_published_too_recently_is_not_installed() {
    let mut fixture = PackageServer::gems().fixture();
    fixture.set("minimum_package_age_days", "7");
    let old = fixture.run_program("require 'beta'\nBeta::VERSION", &json!([{"name": "beta"}]));
    assert_eq!(value(&old), "2.0.0");
    for (gem, words) in [
        ("young", "; 0.9.0 is old enough) was published less than 7 days ago"),
        ("dash-ed", "does not say when"),
    ] {
        let outcome = fixture.run_program("1", &json!([{"name": gem}]));
        assert_eq!(
            failure_facts(&outcome, "policy"),
            ("dependency_policy_violation", false, Some("minimum_package_age_days"))
        );
        assert!(failure(&outcome).message.contains(words), "{:#?}", failure(&outcome));
    }
    let older = json!([{"name": "young", "version": "~> 0.9.0"}]);
    assert_eq!(value(&fixture.run_program("require 'young'\nYoung::VERSION", &older)), "0.9.0");
    // uv leaves out packages whose source gives no time of publication.
    let mut fixture = PackageServer::wheels().fixture();
    fixture.set("minimum_package_age_days", "7");
    let outcome =
        fixture.run_program("import inner_part\nresult = 1", &json!([{"name": "inner-part"}]));
    assert_eq!(failure(&outcome).kind.code(), "dependency_resolution_failed");
    let message = &failure(&outcome).message;
    assert!(message.contains("minimum_package_age_days"), "{message}");
    assert!(message.contains("too new"), "{message}");
    assert!(!message.contains("exclude-newer"), "{message}");
}

/// The model returns the rejected program again, so nothing is prepared for the retry.
#[test]
fn a_log_entry_keeps_the_facts_of_the_last_preparation() {
    let mut fixture = PackageServer::wheels().fixture();
    fixture.set("execution_repair_budget", "1");
    fixture.set("max_generation_attempts", "2");
    let unknown = json!([{"name": "missing-part"}]);
    fixture.model_writes("check", "import missing_part\nresult = 1", &unknown);
    let outcome = fixture.run_program("import missing_part\nresult = 1", &unknown);
    assert_eq!(failure(&outcome).kind.code(), "dependency_resolution_failed");
    let entry = fixture.last_log_entry();
    let [first, second] = entry["attempts"].as_array().unwrap().as_slice() else {
        panic!("two attempts: {entry}")
    };
    assert_eq!(second["failure"]["repeated"], true, "{entry}");
    for field in [
        "normalized_dependencies",
        "env_id",
        "environment_cache_hit",
        "env_prepare_ms",
        "env_resolve_ms",
        "env_install_ms",
    ] {
        assert!(!first[field].is_null(), "{field}: {first}");
        assert_eq!(entry[field], first[field], "{field}");
    }
}

#[test]
fn a_name_that_nearly_is_a_popular_one_is_noted_or_refused() {
    let source = PackageServer::wheels();
    let mut fixture = source.fixture();
    let order = json!([{"name": "requets"}]);
    fixture.run_program("result = 1", &order);
    let notes = fixture.last_log_entry()["dependency_notes"].to_string();
    assert!(notes.contains("nearly the name of the popular package `requests`"), "{notes}");
    fixture.set("refuse_near_miss_names", "true");
    let asked = source.requests().len();
    let outcome = fixture.run_program("result = 1", &order);
    assert_eq!(
        failure_facts(&outcome, "similar_to"),
        ("dependency_policy_violation", false, Some("requests"))
    );
    assert_eq!(source.requests().len(), asked, "nothing is fetched");
}

#[test]
fn sources_that_the_mode_leaves_unused_are_noted() {
    let source = PackageServer::wheels();
    let mut fixture = source.fixture();
    fixture.set("source_mode", "public_only");
    fixture.set("blocked_packages", "inner-part");
    fixture.run_program("result = 1", &json!([{"name": "inner-part"}]));
    let notes = fixture.last_log_entry()["dependency_notes"].to_string();
    assert!(notes.contains("`python_indexes` is set and not used"), "{notes}");
}
