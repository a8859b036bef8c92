//! Examples that come with a program: those of a tool's contract, and those of the files of `tools_dir`.

use std::sync::Arc;

use recurgent::config::Config;
use recurgent::provider::Scripted;
use recurgent::store::layout;
use recurgent::{Language, Runtime, TestSource, TestedCall};
use serde_json::json;

use crate::fixture::check;

fn results(tested: &[TestedCall]) -> Vec<(TestSource, Option<bool>)> {
    tested.iter().map(|call| (call.source, call.passed)).collect()
}

/// `value`, as the whole text of a program.
fn text(language: Language, value: &str) -> String {
    match language {
        Language::Python => format!("result = {value}"),
        Language::Ruby => value.to_owned(),
    }
}

#[test]
fn the_examples_of_a_contract_are_tested() {
    check(|fixture| {
        let language = fixture.language;
        fixture.writes(
            "c.run",
            "made = delegate('doubler', purpose='double', examples=[{'args': [2], 'value': 4}])\nresult = made.double(args[0]).value",
            "delegate('doubler', purpose: 'double', examples: [{args: [2], value: 4}]).double(args[0]).value",
        );
        fixture.writes("doubler.double", "result = args[0] * 2", "args[0] * 2");
        let c = fixture.agent("c");
        fixture.call(&c, "run", &[json!(5)], 2);
        let doubler = fixture.agent("doubler");
        let example = (TestSource::Example, Some(true));
        let recorded = (TestSource::Recorded, Some(true));
        assert_eq!(results(&doubler.test("double").unwrap()), [example, recorded]);
        let programs = fixture.runtime().programs();
        let known = programs.list(None).unwrap();
        let known = known.iter().find(|it| it.program.current.role.as_str() == "doubler").unwrap();
        assert_eq!(known.examples, 1);
        let key = known.program.current.key();
        assert_eq!(results(&programs.test(&key).unwrap()), [example, recorded]);
        // Right for the recorded call alone.
        let wrong = text(language, "args[0] + 5");
        let report = programs.edit(&key, &wrong, None, false).unwrap();
        assert_eq!(report.version, None, "{report:?}");
        let failed: Vec<_> = report.tested.iter().filter(|it| it.passed == Some(false)).collect();
        assert_eq!(failed.len(), 1, "{report:?}");
        assert_eq!(failed[0].inputs.args, [json!(2)]);
        // What the contract says stays, whatever is forced.
        let forced = programs.edit(&key, &wrong, None, true).unwrap();
        assert!(forced.version.is_some() && forced.withdrawn.is_empty(), "{forced:?}");
        let tested = programs.test(&key).unwrap();
        assert!(tested.iter().any(|it| it.passed == Some(false)), "{tested:?}");
    });
}

#[test]
fn the_examples_of_pinned_tools_are_tested_and_bind() {
    check(|fixture| {
        let language = fixture.language;
        fixture.writes("c.double", "result = args[0] * 2", "args[0] * 2");
        let c = fixture.agent("c");
        fixture.call(&c, "double", &[json!(5)], 1);
        c.teach("double", (2,), 4).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let exported = folder.path().join("tools");
        let bundle = fixture.runtime().store().bundle(None).unwrap();
        layout::write(&bundle, &exported).unwrap();
        let state = tempfile::tempdir().unwrap();
        let mut config = Config::defaults();
        config.set("state_dir", &state.path().display().to_string()).unwrap();
        config.set("tools_dir", exported.to_str().unwrap()).unwrap();
        let wrong = text(language, "args[0] + 1");
        let model = Scripted::new().with("c.double", wrong.as_str());
        let runtime = Runtime::builder(config).provider(Arc::new(model)).build().unwrap();
        let pinned = |regenerates| {
            let agent = runtime.agent("c").guest(language).regenerate(regenerates);
            agent.build().unwrap()
        };
        let tested = pinned(false).test("double").unwrap();
        assert_eq!(results(&tested), [(TestSource::Example, Some(true))], "{tested:?}");
        let outcome = pinned(true).call("double", (9,)).unwrap();
        assert!(!outcome.is_ok(), "a new program must meet them too: {outcome:?}");
        let key = fixture.key("c", "double");
        let report = runtime.programs().edit(&key, &wrong, None, false).unwrap();
        assert_eq!(report.version, None, "{report:?}");
    });
}
