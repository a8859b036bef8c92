use super::*;
use crate::outcome::Failure;
use serde_json::json;

mod constraints;
mod injection;
mod policy;

use Language::{Python, Ruby};

fn parse(language: Language, declared: &Value) -> Result<DependencyManifest, ManifestFault> {
    DependencyManifest::parse(language, Some(declared))
}

fn manifest(language: Language, declared: &Value) -> DependencyManifest {
    parse(language, declared).unwrap()
}

/// `name version`, in order.
fn texts(manifest: &DependencyManifest) -> Vec<String> {
    manifest.dependencies().iter().map(Dependency::to_string).collect()
}

fn metadata<'a>(failure: &'a Failure, key: &str) -> Option<&'a str> {
    failure.metadata.get(key).and_then(Value::as_str)
}

#[test]
fn declarations_are_normalised() {
    for (language, declared, expected) in [
        (Ruby, json!(null), vec![]),
        (Ruby, json!([]), vec![]),
        (Ruby, json!([{"name": "prawn"}]), vec!["prawn >= 0"]),
        (Ruby, json!([{"name": "prawn", "version": null}]), vec!["prawn >= 0"]),
        (Ruby, json!([{"name": " prawn ", "version": " ~>2.5 "}]), vec!["prawn ~> 2.5"]),
        (
            Ruby,
            json!([{"name": "b"}, {"name": "C"}, {"name": "a"}]),
            vec!["a >= 0", "b >= 0", "C >= 0"],
        ),
        (Ruby, json!([{"name": "RedCloth"}, {"name": "redcloth"}]), vec!["RedCloth >= 0"]),
        (Ruby, json!([{"name": "net-ssh.extra_x"}]), vec!["net-ssh.extra_x >= 0"]),
        (Ruby, json!([{"name": "a", "version": [">= 1", "< 3"]}]), vec!["a >= 1, < 3"]),
        (
            Ruby,
            json!([{"name": "a", "version": "1.0"}, {"name": "A", "version": "= 1"}]),
            vec!["a = 1"],
        ),
        (Python, json!([{"name": "requests"}]), vec!["requests >=0"]),
        (Python, json!([{"name": "Foo.__Bar"}]), vec!["foo-bar >=0"]),
        (Python, json!([{"name": "requests [Socks, a_b,socks]"}]), vec!["requests[a-b,socks] >=0"]),
        (Python, json!([{"name": "x[a]"}, {"name": "X[b]"}]), vec!["x[a,b] >=0"]),
        (Python, json!([{"name": "x", "version": "2.5"}]), vec!["x ==2.5"]),
        (Python, json!([{"name": "x", "version": [">=1", "<3"]}]), vec!["x >=1,<3"]),
    ] {
        let parsed = manifest(language, &declared);
        assert_eq!(texts(&parsed), expected, "{declared}");
        assert_eq!(parse(language, &parsed.to_json()), Ok(parsed), "reads itself back: {declared}");
    }
}

#[test]
fn faults_name_the_index_the_problem_and_the_way_out() {
    let gem = |version: Value| json!([{"name": "a"}, {"name": "prawn", "version": version}]);
    let many = Value::Array(vec![json!({"name": "a"}); MAX_DEPENDENCIES + 1]);
    for (declared, expected) in [
        (
            json!("x"),
            "`dependencies` must be a list of {\"name\", \"version\"?} objects, not string",
        ),
        (
            many,
            "`dependencies` has 65 entries; at most 64 are accepted: declare only what is imported",
        ),
        (
            json!([1]),
            "`dependencies[0]`: must be an object with a `name`, not number; \
             write {\"name\": \"...\", \"version\": \"...\"}",
        ),
        (
            json!([{"name": "a"}, {}]),
            "`dependencies[1]`: `name` must be text, not missing; give the name the package is installed by",
        ),
        (
            json!([{"name": 7}]),
            "`dependencies[0]`: `name` must be text, not number; give the name the package is installed by",
        ),
        (
            json!([{"name": "a", "source": "git"}]),
            "`dependencies[0]`: unknown field \"source\"; only `name` and `version` are allowed",
        ),
        (
            json!([{"name": "a b"}]),
            "`dependencies[0]`: `name` \"a b\" is not the name of a gem; use letters, digits, `.`, `_` \
             and `-`, beginning with a letter or digit; no URLs or paths",
        ),
        (
            gem(json!(2)),
            "`dependencies[1]`: `version` must be a constraint text, not number; \
             write it like `~> 2.5` or `>= 1.2, < 3`, or leave `version` out",
        ),
        (
            gem(json!(">= 1, ^2")),
            "`dependencies[1]`: `version` \"^2\" is not a RubyGems requirement; \
             write it like `~> 2.5` or `>= 1.2, < 3`, or leave `version` out",
        ),
        (
            json!([{"name": "a", "version": "1"}, {"name": "A", "version": "2"}]),
            "`dependencies[1]`: `A` is declared twice, as `= 1` and `= 2`; keep one constraint",
        ),
    ] {
        assert_eq!(parse(Ruby, &declared).unwrap_err().to_string(), expected, "{declared}");
    }
    for (declared, expected) in [
        (
            json!([{"name": "-x"}]),
            "`dependencies[0]`: `name` \"-x\" is not the name of a Python package (PEP 508); use letters, \
             digits and inner `.`, `_`, `-`, with extras as in `requests[socks]`; no URLs, paths or markers",
        ),
        (
            json!([{"name": "x", "version": "~> 2.5"}]),
            "`dependencies[0]`: `version` \"~> 2.5\" is not a PEP 440 specifier; \
             write it like `>=2.5,<3` or `==2.5.*`, or leave `version` out",
        ),
    ] {
        assert_eq!(parse(Python, &declared).unwrap_err().to_string(), expected, "{declared}");
    }
}

#[test]
fn a_failure_names_field_and_package() {
    for (declared, field, package) in [
        (json!(3), "dependencies", None),
        (json!([{"name": "a"}, 3]), "dependencies[1]", None),
        (json!([{"name": "a b"}]), "dependencies[0].name", None),
        (json!([{"name": "a", "version": "x"}]), "dependencies[0].version", Some("a")),
        (
            json!([{"name": "a"}, {"name": "A", "version": "2"}]),
            "dependencies[1].version",
            Some("A"),
        ),
    ] {
        let failure = parse(Ruby, &declared).unwrap_err().failure();
        assert_eq!(failure.kind.code(), "invalid_dependency_manifest");
        assert_eq!(metadata(&failure, "field"), Some(field), "{declared}");
        assert_eq!(metadata(&failure, "dependency_name"), package, "{declared}");
        assert!(metadata(&failure, "required_correction").is_some_and(|text| !text.is_empty()));
    }
}

#[test]
fn words_that_mean_any_version_are_not_constraints() {
    for any in ["", " ", "*", "latest", "Any"] {
        for language in [Ruby, Python] {
            let free = manifest(language, &json!([{"name": "x", "version": any}]));
            assert!(free.dependencies()[0].is_unconstrained(), "{any:?}");
        }
    }
}

#[test]
fn the_standard_library_is_dropped_with_a_note() {
    for (language, declared, kept, dropped) in [
        (Ruby, json!([{"name": "json"}, {"name": "prawn"}]), vec!["prawn >= 0"], vec!["json"]),
        (
            Ruby,
            json!([{"name": "net-http"}, {"name": "json-schema"}]),
            vec!["json-schema >= 0"],
            vec!["net-http"],
        ),
        (
            Python,
            json!([{"name": "JSON"}, {"name": "dataclasses"}]),
            vec![],
            vec!["json", "dataclasses"],
        ),
    ] {
        let manifest = manifest(language, &declared);
        assert_eq!(texts(&manifest), kept);
        let notes: Vec<String> = dropped
            .iter()
            .map(|name| {
                format!("`{name}` comes with {language}: it is not installed, and its version is the interpreter's")
            })
            .collect();
        assert_eq!(manifest.notes(), notes);
    }
    let constrained = manifest(Ruby, &json!([{"name": "json", "version": ">= 9"}]));
    assert!(constrained.notes()[0].ends_with("; the constraint `>= 9` has no effect"));
    let noted = manifest(Ruby, &json!([{"name": "json"}]));
    assert_eq!(noted, DependencyManifest::default(), "a note makes no difference");
}

#[test]
fn manifests_grow_by_addition() {
    let held = json!([{"name": "nokogiri", "version": "~> 1.0"}]);
    for (declared, expected) in [
        (json!([]), Ok("nokogiri ~> 1.0")),
        (json!([{"name": "nokogiri", "version": "~>1.0"}]), Ok("nokogiri ~> 1.0")),
        (json!([{"name": "Nokogiri"}]), Ok("nokogiri ~> 1.0")),
        (json!([{"name": "prawn"}]), Ok("nokogiri ~> 1.0; prawn >= 0")),
        (json!([{"name": "Ascii"}, {"name": "nokogiri"}]), Ok("Ascii >= 0; nokogiri ~> 1.0")),
        (json!([{"name": "nokogiri", "version": "~> 2.0"}]), Err(("nokogiri", "~> 2.0"))),
        (
            json!([{"name": "prawn"}, {"name": "NOKOGIRI", "version": "~> 1"}]),
            Ok("nokogiri ~> 1, ~> 1.0; prawn >= 0"),
        ),
        (json!([{"name": "nokogiri", "version": "= 1.5.0"}]), Ok("nokogiri ~> 1.0, = 1.5")),
        (
            json!([{"name": "nokogiri", "version": "> 1.5.rc1, < 1.5"}]),
            Ok("nokogiri ~> 1.0, < 1.5, > 1.5.rc.1"),
        ),
        (
            json!([{"name": "nokogiri", "version": "> 1.5, < 1.6"}]),
            Ok("nokogiri ~> 1.0, > 1.5, < 1.6"),
        ),
        (json!([{"name": "nokogiri", "version": "< 1"}]), Err(("nokogiri", "< 1"))),
        (json!([{"name": "nokogiri", "version": "= 2.0.rc1"}]), Err(("nokogiri", "= 2.rc.1"))),
    ] {
        let grown = manifest(Ruby, &held).grown_by(
            Ruby,
            &manifest(Ruby, &declared),
            ManifestMode::Additive,
        );
        let expected =
            expected.map(str::to_owned).map_err(|(package, declared)| GrowthFault::Incompatible {
                package: package.to_owned(),
                held: "~> 1.0".to_owned(),
                declared: declared.to_owned(),
            });
        assert_eq!(grown.map(|grown| texts(&grown).join("; ")), expected, "{declared}");
    }
    for (held, declared, both) in [
        (">=0", "==1.5.0", Some("==1.5")),
        (">=2", "<3", Some(">=2,<3")),
        ("~=1.4.5", ">1.4.7", Some("~=1.4.5,>1.4.7")),
        ("==1.*", ">=1.9", Some("==1.*,>=1.9")),
        ("==1.*", ">=2", None),
        ("<2", ">=2", None),
        ("!=2,<=2", ">=2", None),
    ] {
        let one = |version| manifest(Python, &json!([{"name": "p", "version": version}]));
        let grown = one(held).grown_by(Python, &one(declared), ManifestMode::Additive).ok();
        let expected = both.map(|both| vec![format!("p {both}")]);
        assert_eq!(grown.as_ref().map(texts), expected, "{held} and {declared}");
    }
    let extras = manifest(Python, &json!([{"name": "requests", "version": ">=2"}])).grown_by(
        Python,
        &manifest(Python, &json!([{"name": "requests[socks]", "version": ">=2.0"}])),
        ManifestMode::Additive,
    );
    assert_eq!(texts(&extras.unwrap()), ["requests[socks] >=2"]);
}

#[test]
fn an_environment_has_a_limit() {
    let names = |from: usize| {
        let entries = (from..from + MAX_DEPENDENCIES).map(|n| json!({"name": format!("p{n}")}));
        manifest(Ruby, &Value::Array(entries.collect()))
    };
    let mut held = names(0);
    for step in 1..MAX_HELD_DEPENDENCIES / MAX_DEPENDENCIES {
        held =
            held.grown_by(Ruby, &names(step * MAX_DEPENDENCIES), ManifestMode::Additive).unwrap();
    }
    assert_eq!(held.dependencies().len(), MAX_HELD_DEPENDENCIES);
    assert_eq!(held.readmitted(Ruby).as_ref(), Ok(&held), "what was grown can be read back");
    let more = held.grown_by(Ruby, &names(10_000), ManifestMode::Additive);
    assert_eq!(more, Err(GrowthFault::TooMany(MAX_HELD_DEPENDENCIES + MAX_DEPENDENCIES)));
}

#[test]
fn strict_manifests_do_not_change() {
    let held = json!([{"name": "a"}, {"name": "prawn", "version": "~> 2.5"}]);
    for (held, declared, blamed) in [
        (&held, json!([]), None),
        (
            &held,
            json!([{"name": "Prawn", "version": "~>2.5"}, {"name": "A", "version": ">= 0.0"}]),
            None,
        ),
        (&held, json!([{"name": "prawn", "version": "~> 2.5"}]), Some("a")),
        (&held, json!([{"name": "a"}, {"name": "prawn"}]), Some("prawn")),
        (
            &held,
            json!([{"name": "a"}, {"name": "prawn", "version": "~> 2.5"}, {"name": "b"}]),
            Some("b"),
        ),
        (&json!([]), json!([{"name": "b"}]), Some("b")),
    ] {
        let held = manifest(Ruby, held);
        let grown = held.grown_by(Ruby, &manifest(Ruby, &declared), ManifestMode::Strict);
        match blamed {
            None => assert_eq!(grown, Ok(held), "{declared}"),
            Some(blamed) => assert_eq!(grown.unwrap_err().package(), Some(blamed), "{declared}"),
        }
    }
    let first = effective(Ruby, None, &manifest(Ruby, &held), ManifestMode::Strict);
    assert_eq!(
        first,
        Ok(manifest(Ruby, &held)),
        "before the first success anything may be declared"
    );
}

#[test]
fn growth_faults_say_what_would_do() {
    let held = manifest(Ruby, &json!([{"name": "nokogiri", "version": "~> 1.0"}]));
    let other = manifest(Ruby, &json!([{"name": "nokogiri", "version": "~> 2.0"}]));
    let failure = held.grown_by(Ruby, &other, ManifestMode::Additive).unwrap_err().failure();
    assert_eq!(failure.kind.code(), "dependency_manifest_incompatible");
    assert_eq!(
        failure.message,
        "`nokogiri` is `~> 1.0` in this agent's environment and cannot become `~> 2.0`; \
         declare `~> 1.0`, or leave `version` out"
    );
    for (key, value) in
        [("dependency_name", "nokogiri"), ("held", "~> 1.0"), ("declared", "~> 2.0")]
    {
        assert_eq!(metadata(&failure, key), Some(value));
    }
    let failure = held.grown_by(Ruby, &other, ManifestMode::Strict).unwrap_err().failure();
    assert_eq!(failure.kind.code(), "dependency_manifest_changed");
    assert_eq!(
        failure.message,
        "`nokogiri` would change this agent's environment, which is fixed since its first success \
         (manifest_mode = \"strict\"); declare nothing or exactly: `nokogiri ~> 1.0`"
    );
    assert_eq!(metadata(&failure, "dependency_name"), Some("nokogiri"));
}

#[test]
fn what_storage_gives_back_is_parsed_again() {
    let falsified: DependencyManifest =
        serde_json::from_value(json!([{"name": "x", "version": "1\"; system('x')"}])).unwrap();
    assert!(falsified.readmitted(Ruby).is_err());
    let kept = manifest(Python, &json!([{"name": "x[b,a]", "version": ">=1"}]));
    assert_eq!(kept.readmitted(Python), Ok(kept));
}

#[test]
fn a_field_is_found_in_the_payload() {
    let declared = json!([{"name": "a"}, 3, {"name": "Foo_Bar[x]", "version": ">=1"}]);
    for (package, expected) in [
        ("foo-bar", "dependencies[2].version"),
        ("a", "dependencies[0].version"),
        ("b", "dependencies"),
    ] {
        assert_eq!(field(Python, Some(&declared), package, "version"), expected);
    }
}
