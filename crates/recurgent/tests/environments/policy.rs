//! What may be installed, from where, and what happens when a source does not answer.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lifecycle::outcome::FailureKind;
use recurgent::Language;
use recurgent::worker::Tier;
use serde_json::{Value, json};

use crate::flight::{answer, process};
use crate::sources::PackageServer;
use crate::stage::{EnvironmentFixture, failure, failure_facts, value};

const OUTER: &str = "import outer_part\nresult = outer_part.NAME";
const SLUG: &str = "from slugify import slugify\nresult = slugify('A B')";

fn ready(stage: &EnvironmentFixture) -> Value {
    let roots = stage.environments();
    assert_eq!(roots.len(), 1);
    serde_json::from_slice(&std::fs::read(roots[0].join(".ready")).unwrap()).unwrap()
}

#[test]
fn public_only_asks_the_public_source_alone() {
    let source = PackageServer::wheels();
    let mut stage = EnvironmentFixture::new(Language::Python);
    stage.set("python_indexes", &source.url());
    assert_eq!(value(&stage.once(SLUG, &json!([{"name": "python-slugify"}]))), "a-b");
    assert_eq!(ready(&stage)["sources"], json!(["public"]));
    assert_eq!(source.requests().len(), 0);
}

#[test]
fn internal_only_asks_ours_alone() {
    let source = PackageServer::wheels();
    let mut stage = source.stage();
    let outer = json!([{"name": "outer-part"}]);
    assert_eq!(value(&stage.once(OUTER, &outer)), "outer of inner");
    assert_eq!(ready(&stage)["sources"], json!([source.url()]));
    let outcome = stage.once(SLUG, &json!([{"name": "python-slugify"}]));
    assert_eq!(failure(&outcome).kind.code(), "dependency_resolution_failed");

    stage.set("python_indexes", "");
    let outcome = stage.once(OUTER, &outer);
    assert_eq!(
        failure_facts(&outcome, "policy"),
        ("dependency_policy_violation", false, Some("source_mode"))
    );
}

#[test]
fn internal_then_public_asks_ours_first() {
    let source = PackageServer::wheels();
    let mut stage = source.stage();
    stage.set("source_mode", "internal_then_public");
    let both = json!([{"name": "outer-part"}, {"name": "python-slugify"}]);
    let code = format!("{OUTER}\nfrom slugify import slugify\nresult += slugify(' A B')");
    assert_eq!(value(&stage.once(&code, &both)), "outer of innera-b");
    assert!(source.asked_for("/simple/outer-part/") > 0);
}

/// The public source is stood in for by a mirror on loopback that also has our names, and newer.
#[test]
fn a_gem_of_ours_is_never_taken_from_the_public_source() {
    const MIRROR: &str = "BUNDLE_MIRROR__HTTPS://RUBYGEMS__ORG/";
    let (ours, public) = (PackageServer::gems(), PackageServer::gems());
    ours.set_outdated(true);
    ours.withhold("dash-ed");
    let mut stage = ours.stage();
    stage.set("source_mode", "internal_then_public");
    stage.set("installer_env", MIRROR);
    let order = |code: &str, gems: &[&str]| {
        let gems: Vec<Value> = gems.iter().map(|name| json!({"name": name})).collect();
        let order = json!({"code": code, "dependencies": gems});
        answer(process(&stage, &order, &[(MIRROR, &public.url())]))
    };
    let printed = order("require 'beta'\nrequire 'dash/ed'\nBeta::VERSION", &["beta", "dash-ed"]);
    assert_eq!(printed["result"], json!({"Ok": "1.0.0"}), "declared; the other has 2.0.0");
    assert!(public.asked_for("/gems/dash-ed-1.0.0.gem") > 0, "what we lack comes from there");
    let printed = order("require 'alpha'\n[Alpha::VERSION, Beta::VERSION]", &["alpha"]);
    assert_eq!(printed["result"], json!({"Ok": ["1.0.0", "1.0.0"]}), "needed by another");
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
        let mut stage = first.stage();
        stage.set(first.key(), &format!("{},{}", first.url(), second.url()));
        let outcome = stage.once(code, &json!([{"name": name}]));
        assert_eq!(value(&outcome), &expected, "the other has 2.0.0");
        assert_eq!((second.asked_for("/gems/"), second.asked_for("/wheels/")), (0, 0));
    }
}

/// A package manager without a variable that it was to be given could build something else than was meant.
#[test]
fn a_variable_that_is_not_set_is_reported_before_anything_is_installed() {
    let source = PackageServer::wheels();
    let mut stage = source.stage();
    stage.set("installer_env", "PATH, RECURGENT_TEST_UNSET");
    let outcome = stage.once(OUTER, &json!([{"name": "outer-part"}]));
    let failure = failure(&outcome);
    let said = "installer_env lists `RECURGENT_TEST_UNSET`, which is not set; set it, or remove it";
    assert!(failure.message.contains(said), "{failure:?}");
    assert_eq!((source.asked_for("/"), stage.environments()), (0, Vec::<PathBuf>::new()));
}

/// No package caused it, so no program is asked to do without it.
#[test]
fn a_sandbox_weaker_than_asked_for_installs_nothing() {
    for source in [PackageServer::wheels(), PackageServer::gems()] {
        let mut stage = source.stage();
        stage.layers = Tier::Landlock.layers();
        stage.set("minimum_sandbox_tier", "namespaces");
        let outcome = stage.once("1", &json!([{"name": "alpha"}]));
        let failure = failure(&outcome);
        assert_eq!(failure.kind, FailureKind::SandboxUnavailable, "{failure:?}");
        assert_eq!(stage.environments(), Vec::<PathBuf>::new());
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
        let mut stage = source.stage();
        stage.set(blocked, package);
        let outcome = stage.once("1", &json!([{"name": declared}]));
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
        assert_eq!(stage.environments().len(), 0);
    }
}

#[test]
fn what_is_blocked_later_is_refused_on_a_hit_too() {
    let source = PackageServer::gems();
    let mut stage = source.stage();
    let alpha = json!([{"name": "alpha", "version": "~> 1.0"}]);
    value(&stage.once("require 'alpha'\n1", &alpha));
    stage.set("blocked_gems", "beta");
    let outcome = stage.once("require 'alpha'\n1", &alpha);
    assert_eq!(failure(&outcome).kind.code(), "dependency_policy_violation");
}

#[test]
fn only_allowed_packages_are_installed() {
    let source = PackageServer::gems();
    let mut stage = source.stage();
    stage.set("allowed_gems", "beta");
    assert_eq!(value(&stage.once("require 'beta'\n1", &json!([{"name": "beta"}]))), &json!(1));
    let asked = source.requests().len();
    let outcome = stage.once("1", &json!([{"name": "alpha"}]));
    assert_eq!(
        failure_facts(&outcome, "policy"),
        ("dependency_policy_violation", false, Some("allowed_gems"))
    );
    assert_eq!(source.requests().len(), asked, "refused before resolving");
}

#[test]
fn packages_that_must_be_built_are_refused_when_only_wheels_are_allowed() {
    let source = PackageServer::wheels();
    let mut stage = source.stage();
    let crooked = json!([{"name": "crooked-part"}]);
    let outcome = stage.once("1", &crooked);
    assert_eq!(
        failure_facts(&outcome, "dependency_name"),
        ("dependency_install_failed", true, Some("crooked-part")),
        "{:#?}",
        failure(&outcome)
    );
    stage.set("wheels_only", "true");
    let outcome = stage.once("1", &crooked);
    let code = failure(&outcome).kind.code();
    assert!(code.starts_with("dependency_"), "{:#?}", failure(&outcome));
    assert!(!failure(&outcome).message.contains("refuses to be built"), "{:#?}", failure(&outcome));
}

#[test]
fn a_package_that_raises_when_it_is_loaded_is_not_activated() {
    let stage = PackageServer::wheels().stage();
    let outcome = stage.once("1", &json!([{"name": "faulty-part"}]));
    assert_eq!(
        failure_facts(&outcome, "dependency_name"),
        ("dependency_activation_failed", true, Some("faulty-part"))
    );
    assert!(failure(&outcome).message.contains("faulty_part cannot be loaded"));
}

#[test]
fn credentials_reach_the_source_and_nothing_else() {
    for source in [PackageServer::wheels(), PackageServer::gems()] {
        let mut stage = source.stage();
        // Spelled as addresses must have it: me@home, s3cret/1.
        stage.set(source.key(), &source.url_with("me%40home:s3cret%2F1@"));
        let (code, name) = match stage.language {
            Language::Python => (OUTER, "outer-part"),
            Language::Ruby => ("require 'beta'\nBeta::VERSION", "beta"),
        };
        value(&stage.once(code, &json!([{"name": name}])));
        let meant = "uthorization: Basic bWVAaG9tZTpzM2NyZXQvMQ==\r\n";
        assert!(source.asked_for(meant) > 0, "{:?}", source.requests());
        let root = &stage.environments()[0];
        for file in ["pyproject.toml", "uv.lock", "Gemfile", "Gemfile.lock", ".ready"] {
            let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            assert!(!text.contains("s3cret"), "{file}: {text}");
        }
        assert!(!std::fs::read_to_string(stage.path("log.jsonl")).unwrap().contains("s3cret"));
    }
}

#[test]
fn package_managers_go_through_the_proxy_that_is_set() {
    for (source, index, code, name) in [
        (PackageServer::wheels(), "http://packages.invalid/simple/", OUTER, "outer-part"),
        (PackageServer::gems(), "http://packages.invalid/", "require 'beta'\n1", "beta"),
    ] {
        let mut stage = source.stage();
        stage.set(source.key(), index);
        stage.set("installer_proxy", &source.proxy());
        value(&stage.once(code, &json!([{"name": name}])));
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
            let mut stage = EnvironmentFixture::new(language);
            let url = format!("http://{address}/");
            stage.set("source_mode", "internal_only");
            stage.set(key, &url);
            stage.set("resolve_timeout_seconds", "12");
            let begun = Instant::now();
            let outcome = stage.once("1", &json!([{"name": "anything"}]));
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
            let stage = source.stage();
            let outcome = stage.once("1", &json!([{"name": "anything"}]));
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
        let mut stage = source.stage();
        stage.set("activation_timeout_seconds", "15");
        for (package, words) in
            [(hanging, "did not load within 15 s"), (dying, "ended the interpreter")]
        {
            let outcome = stage.once("1", &json!([{"name": package}]));
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
        let stage = source.stage();
        assert_eq!(value(&stage.once(code, &json!([{"name": package}]))), &json!(7));
    }
}

#[test]
fn what_was_published_too_lately_is_not_installed() {
    let mut stage = PackageServer::gems().stage();
    stage.set("minimum_package_age_days", "7");
    let old = stage.once("require 'beta'\nBeta::VERSION", &json!([{"name": "beta"}]));
    assert_eq!(value(&old), "2.0.0");
    for (gem, words) in [
        ("young", "; 0.9.0 is old enough) was published less than 7 days ago"),
        ("dash-ed", "does not say when"),
    ] {
        let outcome = stage.once("1", &json!([{"name": gem}]));
        assert_eq!(
            failure_facts(&outcome, "policy"),
            ("dependency_policy_violation", false, Some("minimum_package_age_days"))
        );
        assert!(failure(&outcome).message.contains(words), "{:#?}", failure(&outcome));
    }
    let older = json!([{"name": "young", "version": "~> 0.9.0"}]);
    assert_eq!(value(&stage.once("require 'young'\nYoung::VERSION", &older)), "0.9.0");
    // uv leaves out what its source gives no time for.
    let mut stage = PackageServer::wheels().stage();
    stage.set("minimum_package_age_days", "7");
    let outcome = stage.once("import inner_part\nresult = 1", &json!([{"name": "inner-part"}]));
    assert_eq!(failure(&outcome).kind.code(), "dependency_resolution_failed");
    let message = &failure(&outcome).message;
    assert!(message.contains("minimum_package_age_days"), "{message}");
    assert!(message.contains("too new"), "{message}");
    assert!(!message.contains("exclude-newer"), "{message}");
}

/// The retry is the rejected program again, so nothing is prepared for it.
#[test]
fn an_entry_keeps_what_the_last_preparation_found() {
    let mut stage = PackageServer::wheels().stage();
    stage.set("execution_repair_budget", "1");
    stage.set("max_generation_attempts", "2");
    let unknown = json!([{"name": "missing-part"}]);
    stage.writes("check", "import missing_part\nresult = 1", &unknown);
    let outcome = stage.once("import missing_part\nresult = 1", &unknown);
    assert_eq!(failure(&outcome).kind.code(), "dependency_resolution_failed");
    let entry = stage.logged();
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
    let mut stage = source.stage();
    let order = json!([{"name": "requets"}]);
    stage.once("result = 1", &order);
    let notes = stage.logged()["dependency_notes"].to_string();
    assert!(notes.contains("nearly the name of the popular package `requests`"), "{notes}");
    stage.set("refuse_near_miss_names", "true");
    let asked = source.requests().len();
    let outcome = stage.once("result = 1", &order);
    assert_eq!(
        failure_facts(&outcome, "similar_to"),
        ("dependency_policy_violation", false, Some("requests"))
    );
    assert_eq!(source.requests().len(), asked, "nothing is fetched");
}

#[test]
fn sources_that_the_mode_leaves_unused_are_noted() {
    let source = PackageServer::wheels();
    let mut stage = source.stage();
    stage.set("source_mode", "public_only");
    stage.set("blocked_packages", "inner-part");
    stage.once("result = 1", &json!([{"name": "inner-part"}]));
    let notes = stage.logged()["dependency_notes"].to_string();
    assert!(notes.contains("`python_indexes` is set and not used"), "{notes}");
}
