//! Gems by real Bundler, from a source on loopback.

use recurgent::Language;
use serde_json::{Value, json};

use crate::fixture::{EnvironmentFixture, call, failure, failure_facts, value};
use crate::sources::PackageServer;

/// Which versions were loaded.
const VERSIONS: &str = "require 'alpha'\nrequire 'csv'\n[Alpha::VERSION, Beta::GEM]";

fn gem(name: &str, version: &str) -> Value {
    json!([{"name": name, "version": version}])
}

#[test]
fn gems_are_installed_once_and_a_hit_starts_nothing() {
    let source = PackageServer::gems();
    let mut fixture = source.fixture();
    let outcome = fixture.run_program(VERSIONS, &gem("alpha", "~> 1.0"));
    assert_eq!(value(&outcome), &json!(["1.0.0", "1.0.0"]));
    let first = fixture.last_log_entry();
    assert_eq!(first["environment_cache_hit"], json!(false));
    let root = &fixture.environments()[0];
    for file in ["Gemfile", "Gemfile.lock", "vendor/bundle", ".ready"] {
        assert!(root.join(file).exists(), "{file}");
    }
    let asked = source.requests();
    fixture.progress();
    // Whatever is started to choose or install gems holds this lock.
    let lock = std::fs::File::open(root.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let outcome = fixture.run_program(VERSIONS, &gem("alpha", "~>1.0"));
    assert_eq!(value(&outcome), &json!(["1.0.0", "1.0.0"]));
    let second = fixture.last_log_entry();
    assert_eq!(
        (&second["environment_cache_hit"], &second["env_id"]),
        (&json!(true), &first["env_id"])
    );
    assert_eq!((source.requests(), fixture.progress()), (asked, Vec::new()));
    // And it does: another environment of the same name cannot be made meanwhile.
    std::fs::remove_file(root.join(".ready")).unwrap();
    fixture.set("resolve_timeout_seconds", "0.1");
    fixture.set("install_timeout_seconds", "0.1");
    let refused = fixture.run_program(VERSIONS, &gem("alpha", "~> 1.0"));
    let message = &failure(&refused).message;
    assert!(message.contains("another process has been building"), "{message}");
}

#[test]
fn an_agent_grows_by_a_gem_and_may_not_change_one() {
    let source = PackageServer::gems();
    let fixture = source.fixture();
    fixture.model_writes(
        "first",
        "require 'beta'\ncontext[:beta] = Beta::VERSION",
        &gem("beta", "~> 1.0"),
    );
    fixture.model_writes(
        "second",
        "require 'dash/ed'\nrequire 'beta'\n[context[:beta], Beta::VERSION]",
        &gem("dash-ed", ">= 0"),
    );
    fixture.model_writes("third", "require 'beta'\nBeta::VERSION", &gem("beta", "~> 2.0"));
    let runtime = fixture.runtime();
    let mut agent = runtime.agent("tester").build().unwrap();
    assert_eq!(value(&call(&mut agent, "first")), "1.0.0");
    let first = fixture.last_log_entry();
    assert_eq!(value(&call(&mut agent, "second")), &json!(["1.0.0", "1.0.0"]));
    assert_ne!(fixture.last_log_entry()["env_id"], first["env_id"]);
    let refused = call(&mut agent, "third");
    assert_eq!(
        failure_facts(&refused, "dependency_name"),
        ("dependency_manifest_incompatible", false, Some("beta"))
    );
    assert_eq!(value(&call(&mut agent, "second")), &json!(["1.0.0", "1.0.0"]));
}

#[test]
fn strict_mode_fixes_the_manifest_at_the_first_success() {
    let source = PackageServer::gems();
    let mut fixture = source.fixture();
    fixture.set("manifest_mode", "strict");
    fixture.model_writes("first", "require 'beta'\n1", &gem("beta", "~> 1.0"));
    fixture.model_writes("second", "require 'dash/ed'\n2", &gem("dash-ed", ">= 0"));
    let runtime = fixture.runtime();
    let mut agent = runtime.agent("tester").build().unwrap();
    assert_eq!(value(&call(&mut agent, "first")), &json!(1));
    let refused = call(&mut agent, "second");
    assert_eq!(failure_facts(&refused, "stage").0, "dependency_manifest_changed");
}

#[test]
fn every_failure_has_its_type_and_names_its_gem() {
    let source = PackageServer::gems();
    let fixture = source.fixture();
    let conflict =
        json!([{"name": "alpha", "version": "~> 1.0"}, {"name": "beta", "version": "~> 2.0"}]);
    for (dependencies, kind, retriable, package, stage_name) in [
        (
            gem("no-such-gem", ">= 0"),
            "dependency_resolution_failed",
            false,
            "no-such-gem",
            "resolve",
        ),
        (gem("beta", "~> 9.0"), "dependency_resolution_failed", false, "beta", "resolve"),
        (conflict, "dependency_resolution_failed", false, "beta", "resolve"),
        (gem("unbuildable", ">= 0"), "dependency_install_failed", true, "unbuildable", "install"),
        (gem("faulty", ">= 0"), "dependency_activation_failed", true, "faulty", "activate"),
    ] {
        let outcome = fixture.run_program("1", &dependencies);
        let seen = failure(&outcome);
        assert_eq!(
            failure_facts(&outcome, "stage"),
            (kind, retriable, Some(stage_name)),
            "{seen:#?}"
        );
        assert_eq!(failure_facts(&outcome, "dependency_name").2, Some(package), "{seen:#?}");
        for key in ["specialist_role", "method_name", "env_id"] {
            assert!(seen.metadata.contains_key(key), "{key} in {seen:#?}");
        }
        assert_eq!(fixture.environments().len(), 0, "{package}: a failed build leaves nothing");
    }
}

#[test]
fn a_refused_first_manifest_does_not_stick() {
    let source = PackageServer::gems();
    let fixture = source.fixture();
    fixture.model_writes("broken", "require 'faulty'\n1", &gem("faulty", ">= 0"));
    fixture.model_writes("plain", "require 'set'\nSet[1].size", &json!([]));
    let runtime = fixture.runtime();
    let mut agent = runtime.agent("tester").build().unwrap();
    assert_eq!(failure(&call(&mut agent, "broken")).kind.code(), "dependency_activation_failed");
    assert_eq!(value(&call(&mut agent, "plain")), &json!(1));
}

#[test]
fn a_version_that_would_run_code_is_refused_before_anything_is_written() {
    let fixture = EnvironmentFixture::new(Language::Ruby);
    let marker = fixture.path("injected");
    let version = format!("1'; File.write('{}', 'x'); '", marker.display());
    let outcome = fixture.run_program("1", &json!([{"name": "beta", "version": version}]));
    assert_eq!(failure(&outcome).kind.code(), "invalid_dependency_manifest");
    assert!(!marker.exists() && !fixture.cache().exists());
}

#[test]
fn an_extension_is_compiled() {
    let fixture = PackageServer::gems().fixture();
    let outcome =
        fixture.run_program("require 'native'\nnative_answer", &json!([{"name": "native"}]));
    assert_eq!(value(&outcome), &json!(42));
}

#[test]
fn a_gem_may_need_a_gem_that_comes_with_ruby() {
    let fixture = PackageServer::gems().fixture();
    let code = "require 'needs-json'\n[JSON.generate([1]), BigDecimal('1.5').to_s('F')]";
    let outcome = fixture.run_program(code, &json!([{"name": "needs-json"}]));
    assert_eq!(value(&outcome), &json!(["[1]", "1.5"]));
    // Not a default gem, and in no source either.
    let code = "require 'needs-matrix'\nMatrix[[1, 2], [3, 4]].determinant";
    let outcome = fixture.run_program(code, &json!([{"name": "needs-matrix"}]));
    assert_eq!(value(&outcome), &json!(-2));
}

#[test]
fn a_long_failure_of_an_extension_names_its_cause() {
    let fixture = PackageServer::gems().fixture();
    let outcome = fixture.run_program("1", &json!([{"name": "verbose"}]));
    let message = &failure(&outcome).message;
    assert!(message.contains("checking for widget.h... no"), "{message}");
    assert!(message.len() < 3000);
}

#[test]
fn a_build_that_does_not_end_is_not_taken_for_an_unreachable_source() {
    let mut fixture = PackageServer::gems().fixture();
    fixture.set("install_timeout_seconds", "40");
    let outcome = fixture.run_program("1", &json!([{"name": "stuck"}]));
    let seen = failure(&outcome);
    assert_eq!(
        failure_facts(&outcome, "stage"),
        ("dependency_install_failed", true, Some("install")),
        "{seen:#?}"
    );
    assert!(seen.message.contains("did not finish building a package within"), "{seen:#?}");
    assert!(!seen.metadata.contains_key("source"), "{seen:#?}");
}

/// Run as the zygote runs it, on a machine whose own gems include one called `hosted`.
#[test]
fn gems_of_the_host_that_do_not_come_with_ruby_cannot_be_loaded() {
    let place = tempfile::tempdir().unwrap();
    let gem = place.path().join("gems/hosted-1.0.0/lib");
    std::fs::create_dir_all(&gem).unwrap();
    std::fs::write(gem.join("hosted.rb"), "module Hosted; end").unwrap();
    let specifications = place.path().join("specifications");
    std::fs::create_dir(&specifications).unwrap();
    let stub = "# -*- encoding: utf-8 -*-\n# stub: hosted 1.0.0 ruby lib\n\nGem::Specification.new do |s|\n  s.name = 'hosted'\n  s.version = '1.0.0'\n  s.summary = 'x'\n  s.authors = ['x']\n  s.require_paths = ['lib']\n  s.files = ['lib/hosted.rb']\nend\n";
    std::fs::write(specifications.join("hosted-1.0.0.gemspec"), stub).unwrap();
    let tries = "%w[hosted csv rexml/document json].each { |it| require it; puts it rescue LoadError; nil }";
    let tries =
        tries.replace("; puts it rescue LoadError; nil", "; puts it; rescue LoadError; nil");
    let tries = tries.replace("{ |it|", "do |it|").replace(" }", " end");
    let run = |harness: &str| {
        let ran = std::process::Command::new("ruby")
            .args(["-e", &format!("{harness}\n{tries}")])
            .env("GEM_PATH", format!("{}:/usr/lib/ruby/gems/3.1.0", place.path().display()))
            .output()
            .unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };
    assert!(run("").contains("hosted\n"), "the test is able to fail");
    let seen = run(include_str!("../../guests/ruby/activation.rb"));
    assert!(
        !seen.contains("hosted") && seen.contains("csv\n") && seen.contains("json\n"),
        "{seen}"
    );
}
