//! Python packages from the public index.

use recurgent::Language;
use serde_json::json;

use crate::fixture::{EnvironmentFixture, call, failure, failure_facts, value};

const SLUG: &str = "from slugify import slugify\nresult = slugify('Déjà vu, again')";
const SUM: &str = "import numpy\nresult = int(numpy.arange(5).sum())";

#[test]
fn a_pure_package_and_a_compiled_one_work_and_the_second_call_starts_nothing() {
    let mut fixture = EnvironmentFixture::new(Language::Python);
    let dependencies = json!([{"name": "python-slugify"}, {"name": "numpy"}]);
    let both = format!("{SUM}\nfrom slugify import slugify\nresult = [result, slugify('A B')]");
    let outcome = fixture.run_program(&both, &dependencies);
    assert_eq!(value(&outcome), &json!([10, "a-b"]));
    let first = fixture.last_log_entry();
    assert_eq!(first["environment_cache_hit"], json!(false), "{first:#}");
    assert!(first["env_install_ms"].as_f64().unwrap() > 0.0, "{first:#}");
    assert!(fixture.progress().iter().any(|what| what.starts_with("installing 3")));

    // No uv can be run any more.
    fixture.set("uv", "/nonexistent/uv");
    let outcome = fixture.run_program(&both, &dependencies);
    assert_eq!(value(&outcome), &json!([10, "a-b"]));
    let second = fixture.last_log_entry();
    assert_eq!(second["environment_cache_hit"], json!(true));
    assert_eq!(second["env_id"], first["env_id"]);
    assert_eq!(fixture.progress(), Vec::<String>::new());
    assert_eq!(fixture.environments().len(), 1);

    let other = fixture
        .run_program("import text_unidecode\nresult = 1", &json!([{"name": "text-unidecode"}]));
    assert_eq!(failure_facts(&other, "stage"), ("dependency_install_failed", true, Some("tool")));
    let message = &failure(&other).message;
    assert!(message.contains("/nonexistent/uv") && message.contains("name another"), "{message}");
}

#[test]
fn an_agent_grows_into_a_new_environment_and_keeps_its_memory() {
    let fixture = EnvironmentFixture::new(Language::Python);
    fixture.model_writes(
        "first",
        &format!("{SLUG}\ncontext['seen'] = result"),
        &json!([{"name": "python-slugify"}]),
    );
    fixture.model_writes(
        "second",
        "import text_unidecode\nresult = context['seen']",
        &json!([{"name": "text-unidecode"}]),
    );
    fixture.model_writes(
        "third",
        "from slugify import slugify\nresult = slugify('Still Here')",
        &json!([]),
    );
    let runtime = fixture.runtime();
    let mut agent = runtime.agent("tester").build().unwrap();
    assert_eq!(value(&call(&mut agent, "first")), "deja-vu-again");
    let first = fixture.last_log_entry();
    assert_eq!(value(&call(&mut agent, "second")), "deja-vu-again");
    let second = fixture.last_log_entry();
    assert_ne!(first["env_id"], second["env_id"]);
    assert_eq!(value(&call(&mut agent, "third")), "still-here");
    assert_eq!(fixture.last_log_entry()["env_id"], second["env_id"]);
    assert_eq!(fixture.environments().len(), 2);
}

#[test]
fn what_cannot_be_resolved_is_named() {
    let fixture = EnvironmentFixture::new(Language::Python);
    for (dependencies, package) in [
        (json!([{"name": "recurgent-has-no-such-package"}]), "recurgent-has-no-such-package"),
        (json!([{"name": "python-slugify", "version": ">=99"}]), "python-slugify"),
        (
            json!([{"name": "python-slugify", "version": "==8.0.4"}, {"name": "text-unidecode", "version": "<1.3"}]),
            "python-slugify",
        ),
    ] {
        let outcome = fixture.run_program("import slugify\nresult = 1", &dependencies);
        assert_eq!(
            failure_facts(&outcome, "dependency_name"),
            ("dependency_resolution_failed", false, Some(package)),
            "{:#?}",
            failure(&outcome)
        );
        assert!(failure(&outcome).metadata.contains_key("env_id"));
        assert_eq!(fixture.environments().len(), 0, "a failed build leaves nothing");
    }
}

/// It has no wheel: its build script says what it needs, and what builds it is fetched meanwhile.
#[test]
fn a_package_that_comes_as_its_source_is_built() {
    let fixture = EnvironmentFixture::new(Language::Python);
    let code = "import docopt\nresult = docopt.__version__";
    let outcome = fixture.run_program(code, &json!([{"name": "docopt", "version": "==0.6.2"}]));
    assert_eq!(value(&outcome), "0.6.2");
}
