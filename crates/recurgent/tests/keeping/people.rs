//! People correct: reject, teach, edit, test, forget.

use lifecycle::artifact::{Author, Trigger};
use lifecycle::context::Context;
use lifecycle::example::{Example, ExpectedResult};
use lifecycle::prompt::{self, PromptForm};
use lifecycle::request::{
    Allowance, Arguments, CallId, CallRequest, Lineage, Method, Role, TraceId,
};
use recurgent::store::Owner;
use recurgent::{Language, ProgramFault, TestSource};
use serde_json::json;

use crate::fixture::{KeepingFixture, check};

fn example(fields: &serde_json::Value) -> Example {
    Example::parse(fields).unwrap()
}

fn last_call(agent: &recurgent::Agent) -> String {
    agent.history(1).unwrap()[0]["call_id"].as_str().unwrap().to_owned()
}

fn writes_wrong_double(fixture: &KeepingFixture) {
    fixture.writes("c.double", "result = args[0] + 1", "args[0] + 1");
}

fn writes_right_double(fixture: &KeepingFixture) {
    fixture.writes("c.double", "result = args[0] * 2", "args[0] * 2");
}

/// What the next model is sent about a method.
fn next_prompt(fixture: &mut KeepingFixture, method: &str) -> String {
    let language = fixture.language;
    let request = CallRequest {
        id: CallId("p".into()),
        lineage: Lineage::Root { trace: TraceId::parse("t").unwrap() },
        role: Role::parse("c").unwrap(),
        method: Method::parse(method).unwrap(),
        arguments: Arguments::default(),
        contract: None,
        language,
        context: Context::default(),
        manifest: None,
        allowance: Allowance::default(),
    };
    let owner = Owner { instance: "i".into(), session: None, role: request.role.clone() };
    let known = fixture.runtime().store().prompt_context(&owner, &request).unwrap();
    prompt::build(&request, &known, None, PromptForm::Payload).user
}

#[test]
fn a_rejected_program_leaves_service_and_the_reason_reaches_the_next_model() {
    check(|fixture| {
        writes_wrong_double(fixture);
        let c = fixture.agent("c");
        assert_eq!(fixture.call(&c, "double", &[json!(5)], 1), json!(6));
        let key = fixture.key("c", "double");
        let call = last_call(&c);
        let programs = fixture.runtime().programs();
        let report = programs.reject(&key, "double means twice as much", Some(&call)).unwrap();
        assert_eq!(report.running, None, "there is no other version");
        let wrong = example(&json!({"args": [5], "not_value": 6}));
        assert_eq!(report.counter_example, Some(wrong.clone()));
        let store = fixture.runtime().store();
        assert_eq!(store.corpus(&key).unwrap(), [], "its recorded calls bind nothing any more");
        assert_eq!(store.examples(&key.role, &key.method).unwrap(), [wrong]);
        assert!(next_prompt(fixture, "double").contains("double means twice as much"));
        assert!(!next_prompt(fixture, "half").contains("twice"), "it is about one method");
        writes_right_double(fixture);
        assert_eq!(fixture.call(&c, "double", &[json!(5)], 1), json!(10));
        assert_eq!(fixture.call(&c, "double", &[json!(6)], 0), json!(12));
    });
}

/// An expected value steers its own call: a new program with another value is rejected and written again; a stored one is
/// repaired. None of them runs again, and the call is an example from then on.
#[test]
fn an_expected_value_steers_its_own_call() {
    check(|fixture| {
        let c = fixture.agent("c");
        writes_wrong_double(fixture);
        writes_right_double(fixture);
        let called = c.call_expecting("double", (5,), 10).unwrap();
        assert_eq!(called.outcome.value(), Some(&json!(10)), "{called:?}");
        assert!(called.is_met && called.is_example && called.rejected.len() == 1, "{called:?}");
        let key = fixture.key("c", "double");
        let store = fixture.runtime().store();
        let taught = example(&json!({"args": [5], "value": 10}));
        assert_eq!(store.examples(&key.role, &key.method).unwrap(), [taught]);
        assert_eq!(fixture.call(&c, "double", &[json!(6)], 0), json!(12));
        let again = c.call_expecting("double", (7,), 14.0).unwrap();
        assert!(again.is_met && !again.is_example && again.rejected.is_empty(), "{again:?}");
        fixture.writes("c.double", "result = args[0] * 3", "args[0] * 3");
        fixture.writes("c.double", "result = args[0] * 3", "args[0] * 3");
        let missed = c.call_expecting("double", (7,), 15).unwrap();
        let failure = missed.outcome.failure().unwrap();
        assert_eq!(failure.kind.code(), "contract_violation", "{missed:?}");
        assert_eq!(failure.metadata["mismatch"], "unexpected_value", "{missed:?}");
        assert!(!missed.is_met && missed.is_example && missed.rejected.len() == 2, "{missed:?}");
        let rejected = fixture.runtime().store().rejections(&key.role, &key.method).unwrap();
        assert_eq!(rejected.len(), 3, "{rejected:?}");
    });
}

/// A person may be wrong too: what was expected by mistake is expected otherwise, taught otherwise, or withdrawn, and the
/// program that was rejected for it runs again.
#[test]
fn an_expectation_that_is_taken_back_costs_no_program() {
    type Correction = fn(&recurgent::Agent);
    let corrections: [Correction; 3] = [
        |c| assert!(c.call_expecting("double", (9,), 18).unwrap().is_met),
        |c| c.teach("double", (9,), 18).unwrap(),
        |c| drop(c.withdraw("double", (9,)).unwrap()),
    ];
    for correct in corrections {
        check(|fixture| {
            let c = fixture.agent("c");
            writes_right_double(fixture);
            assert_eq!(fixture.call(&c, "double", &[json!(5)], 1), json!(10));
            writes_right_double(fixture);
            let missed = c.call_expecting("double", (9,), 19).unwrap();
            assert!(!missed.is_met && missed.rejected.len() == 1, "{missed:?}");
            correct(&c);
            assert_eq!(fixture.call(&c, "double", &[json!(6)], 0), json!(12));
        });
    }
}

/// A stored program is repaired in the call that shows it to be wrong, although its wrong answer was recorded.
#[test]
fn an_expected_value_repairs_a_stored_program() {
    check(|fixture| {
        let c = fixture.agent("c");
        writes_wrong_double(fixture);
        assert_eq!(fixture.call(&c, "double", &[json!(5)], 1), json!(6));
        writes_right_double(fixture);
        let called = c.call_expecting("double", (5,), 10).unwrap();
        assert!(called.is_met && called.rejected.len() == 1, "{called:?}");
        fixture.runtime().wait_for_trials();
        assert_eq!(fixture.call(&c, "double", &[json!(6)], 0), json!(12));
        c.set("n", 1).unwrap();
        let read = c.call_expecting("n", (), 2).unwrap();
        assert!(!read.is_met && !read.is_example, "memory answered: {read:?}");
    });
}

/// A program that passes on the answer of another agent is not rejected for it: once that agent is right, so is it.
#[test]
fn an_unexpected_answer_of_another_agent_does_not_reject_its_caller() {
    check(|fixture| {
        fixture.writes(
            "boss.make",
            "def make(x):\n    return delegate('t', purpose='double').double(x).value",
            "def make(x) = delegate('t', purpose: 'double').double(x).value",
        );
        fixture.writes("t.double", "def double(x):\n    return x + 1", "def double(x) = x + 1");
        fixture.writes("t.double", "def double(x):\n    return x * 2", "def double(x) = x * 2");
        let boss = fixture.agent("boss");
        let missed = boss.call_expecting("make", (5,), 10).unwrap();
        assert!(!missed.is_met && missed.is_example && missed.rejected.is_empty(), "{missed:?}");
        let tool = fixture.runtime().store().artifacts(None, 9).unwrap();
        let key = tool.iter().find(|it| it.current.role.as_str() == "t").unwrap().current.key();
        fixture.runtime().programs().reject(&key, "twice", None).unwrap();
        let met = boss.call_expecting("make", (5,), 10).unwrap();
        assert!(met.is_met && !met.is_example, "{met:?}");
    });
}

/// What a wrong program answered does not bind its successor once an example shows that it is wrong: in the call of the
/// example, when it is taught and tested, and for a person's text.
#[test]
fn an_example_that_the_program_misses_voids_its_recorded_calls() {
    let four = || example(&json!({"args": [4], "value": 8}));
    let taught = |fixture: &mut KeepingFixture| {
        writes_wrong_double(fixture);
        let c = fixture.agent("c");
        fixture.call(&c, "double", &[json!(5)], 1);
        fixture.call(&c, "double", &[json!(7)], 0);
        let key = fixture.key("c", "double");
        assert_eq!(fixture.runtime().store().corpus(&key).unwrap().len(), 2);
        fixture.runtime().programs().teach(&key.role, &key.method, &four()).unwrap();
        (c, key)
    };
    check(|fixture| {
        let (c, _) = taught(fixture);
        writes_right_double(fixture);
        assert_eq!(fixture.call(&c, "double", &[json!(4)], 1), json!(8));
        assert_eq!(fixture.call(&c, "double", &[json!(5)], 0), json!(10));
    });
    check(|fixture| {
        let (_, key) = taught(fixture);
        let tested = fixture.runtime().programs().test_example(&key, four()).unwrap();
        assert_eq!(tested.passed, Some(false));
        assert_eq!(fixture.runtime().store().corpus(&key).unwrap(), []);
    });
    check(|fixture| {
        let (c, key) = taught(fixture);
        let edited = fixture.runtime().programs().edit(&key, "args[0] * 2", None, false).unwrap();
        assert!(edited.version.is_some(), "{edited:?}");
        assert_eq!(fixture.call(&c, "double", &[json!(5)], 0), json!(10));
    });
}

#[test]
fn a_rejection_falls_back_to_the_last_good_version() {
    check(|fixture| {
        fixture.writes_half();
        fixture.writes_half_repaired();
        let c = fixture.agent("c");
        assert_eq!(fixture.call(&c, "half", &[json!(8), json!(2)], 1), json!(4));
        fixture.call(&c, "half", &[json!(1), json!(0)], 1);
        let versions = fixture.versions("c", "half");
        assert!(versions.len() == 2 && versions[0].2, "the repair runs: {versions:?}");
        let report = c.reject("half", "dividing by 0 is an error").unwrap();
        assert!(report.running.is_some());
        assert!(fixture.versions("c", "half")[1].2, "the first version runs again");
        assert_eq!(fixture.call(&c, "half", &[json!(9), json!(3)], 0), json!(3));
    });
}

/// The version that gave the answer is rejected, also if another one runs by now.
#[test]
fn a_rejection_of_an_answer_rejects_the_version_that_gave_it() {
    check(|fixture| {
        fixture.writes_half();
        fixture.writes_half_repaired();
        let c = fixture.agent("c");
        fixture.call(&c, "half", &[json!(8), json!(2)], 1);
        let call = last_call(&c);
        fixture.call(&c, "half", &[json!(1), json!(0)], 1);
        let key = fixture.key("c", "half");
        let runtime = fixture.runtime();
        let (programs, store) = (runtime.programs(), runtime.store());
        let versions = store.versions(&key).unwrap();
        let [repaired, first] = &versions[..] else { panic!("two versions") };
        let report = programs.reject(&key, "too small", Some(&call)).unwrap();
        assert_eq!(report.rejected, first.artifact.checksum);
        assert_eq!(report.running.as_ref(), Some(&repaired.artifact.checksum));
        assert!(!report.was_running);
        let wrong = example(&json!({"args": [8, 2], "not_value": 4}));
        assert_eq!(store.examples(&key.role, &key.method).unwrap(), [wrong]);
        assert!(store.versions(&key).unwrap()[0].is_current, "the repair still runs");
        let again = programs.reject(&key, "", Some(&call)).unwrap_err();
        assert!(matches!(again, ProgramFault::AlreadyRejected(_)), "{again}");
        let report = programs.reject(&key, "", None).unwrap();
        assert!(report.was_running);
        assert_eq!(report.running, None, "the rejected version does not come back");
    });
}

#[test]
fn a_call_of_another_role_or_method_rejects_nothing() {
    check(|fixture| {
        for method in ["c.double", "c.add", "d.double"] {
            fixture.writes(method, "result = args[0] + 1", "args[0] + 1");
        }
        let (c, d) = (fixture.agent("c"), fixture.agent("d"));
        fixture.call(&c, "double", &[json!(5)], 1);
        let key = fixture.key("c", "double");
        fixture.call(&c, "add", &[json!(5)], 1);
        fixture.call(&d, "double", &[json!(5)], 1);
        for (call, called) in [(last_call(&c), "c.add"), (last_call(&d), "d.double")] {
            let fault = fixture.runtime().programs().reject(&key, "", Some(&call)).unwrap_err();
            let text = fault.to_string();
            assert!(text.contains(called) && text.contains("not of c.double"), "{text}");
        }
        assert_eq!(fixture.call(&c, "double", &[json!(6)], 0), json!(7));
    });
}

#[test]
fn a_text_that_was_rejected_does_not_come_back_by_itself() {
    check(|fixture| {
        writes_wrong_double(fixture);
        let c = fixture.agent("c");
        fixture.call(&c, "double", &[json!(5)], 1);
        c.reject("double", "").unwrap();
        writes_wrong_double(fixture);
        writes_right_double(fixture);
        let key = fixture.key("c", "double");
        fixture.try_call(&c, "double", &[json!(5)], 2);
        assert_eq!(fixture.call(&c, "double", &[json!(7)], 0), json!(14));
        let versions = fixture.runtime().store().versions(&key).unwrap();
        let running = versions.iter().find(|version| version.is_current).unwrap();
        assert!(!running.artifact.track_record.rejected);
    });
}

/// Comments, blank lines and spaces do not make another program.
#[test]
fn a_text_that_was_rejected_does_not_come_back_with_another_layout() {
    check(|fixture| {
        writes_wrong_double(fixture);
        let c = fixture.agent("c");
        fixture.call(&c, "double", &[json!(5)], 1);
        c.reject("double", "it adds one").unwrap();
        let prompt = next_prompt(fixture, "double");
        assert!(prompt.contains("it adds one") && prompt.contains("args[0] + 1"), "{prompt}");
        fixture.writes(
            "c.double",
            "# doubles\n\nresult = args[0]+1\n",
            "# doubles\n\nargs[0]+1 # x\n",
        );
        writes_right_double(fixture);
        assert_eq!(fixture.call(&c, "double", &[json!(5)], 2), json!(10));
        assert_eq!(fixture.call(&c, "double", &[json!(7)], 0), json!(14));
    });
}

#[test]
fn examples_are_tested_on_the_running_program_and_on_edits() {
    check(|fixture| {
        writes_wrong_double(fixture);
        let c = fixture.agent("c");
        fixture.call(&c, "double", &[json!(1)], 1);
        assert_eq!(fixture.call(&c, "double", &[json!(5)], 0), json!(6));
        c.teach("double", (5,), 10).unwrap();
        let tested = c.test("double").unwrap();
        let shown: Vec<_> = tested.iter().map(|call| (call.source, call.passed)).collect();
        assert_eq!(
            shown,
            [(TestSource::Example, Some(false)), (TestSource::Recorded, Some(true))],
            "the recorded call with the same arguments gave way to the example"
        );
        assert_eq!(tested[0].actual, Some(json!({"value": 6})));
        assert_eq!(tested[0].expected, Some(ExpectedResult::Value(json!(10))));
        let key = fixture.key("c", "double");
        let [wrong, right] = ["args[0] + 2", "args[0] * 2"].map(|value| match fixture.language {
            Language::Python => format!("result = {value}"),
            Language::Ruby => value.to_owned(),
        });
        let programs = fixture.runtime().programs();
        assert_eq!(programs.edit(&key, &wrong, None, false).unwrap().version, None);
        let malformed = programs.edit(&key, "result = (", None, true);
        assert!(matches!(malformed, Err(ProgramFault::Invalid(_))), "{malformed:?}");
        let report = programs.edit(&key, &right, None, false).unwrap();
        assert_eq!(report.version, Some(2), "{report:?}");
        assert_eq!(fixture.call(&c, "double", &[json!(6)], 0), json!(12));
        let versions = fixture.runtime().store().versions(&key).unwrap();
        assert_eq!((versions[0].author, versions[0].is_current), (Author::Person, true));
        let forced = fixture.runtime().programs().edit(&key, &wrong, None, true).unwrap();
        assert_eq!(forced.version, Some(3));
        assert_eq!(forced.withdrawn, [example(&json!({"args": [5], "value": 10}))]);
        assert_eq!(fixture.call(&c, "double", &[json!(5)], 0), json!(7), "the later word counts");
        let store = fixture.runtime().store();
        assert_eq!(store.examples(&key.role, &key.method).unwrap(), []);
        assert!(c.test("double").unwrap().iter().all(|call| call.passed == Some(true)));
    });
}

#[test]
fn a_program_that_a_person_asks_for_replaces_the_stored_one_and_its_recorded_calls() {
    check(|fixture| {
        writes_wrong_double(fixture);
        writes_right_double(fixture);
        let c = fixture.agent("c");
        assert_eq!(fixture.call(&c, "double", &[json!(5)], 1), json!(6));
        let key = fixture.key("c", "double");
        assert_eq!(fixture.runtime().store().corpus(&key).unwrap().len(), 1, "6 is recorded");
        let language = fixture.language;
        let asking = fixture.runtime().agent("c").guest(language).regenerate(true).build().unwrap();
        assert_eq!(fixture.call(&asking, "double", &[json!(5)], 1), json!(10));
        assert_eq!(fixture.call(&c, "double", &[json!(6)], 0), json!(12), "it runs from now on");
        let versions = fixture.versions("c", "double");
        assert_eq!(versions[0].0, Trigger::Requested);
        let tested = c.test("double").unwrap();
        assert!(tested.iter().all(|call| call.passed == Some(true)), "{tested:?}");
    });
}

#[test]
fn what_was_recorded_of_a_version_goes_when_a_person_rolls_it_back() {
    check(|fixture| {
        writes_right_double(fixture);
        writes_wrong_double(fixture);
        let c = fixture.agent("c");
        assert_eq!(fixture.call(&c, "double", &[json!(5)], 1), json!(10));
        let language = fixture.language;
        let asking = fixture.runtime().agent("c").guest(language).regenerate(true).build().unwrap();
        assert_eq!(fixture.call(&asking, "double", &[json!(5)], 1), json!(6));
        let key = fixture.key("c", "double");
        assert!(fixture.runtime().store().rollback(&key, None).unwrap().is_some());
        assert_eq!(fixture.runtime().store().corpus(&key).unwrap(), []);
        assert_eq!(fixture.call(&c, "double", &[json!(5)], 0), json!(10));
        assert!(c.test("double").unwrap().iter().all(|call| call.passed == Some(true)));
    });
}

#[test]
fn a_program_is_rejected_once() {
    check(|fixture| {
        writes_wrong_double(fixture);
        let c = fixture.agent("c");
        fixture.call(&c, "double", &[json!(5)], 1);
        c.reject("double", "").unwrap();
        let again = c.reject("double", "").unwrap_err();
        assert!(matches!(again, ProgramFault::AlreadyRejected(_)), "{again:?}");
    });
}

#[test]
fn a_stored_program_does_not_answer_an_example_wrongly() {
    check(|fixture| {
        writes_wrong_double(fixture);
        writes_right_double(fixture);
        let c = fixture.agent("c");
        assert_eq!(fixture.call(&c, "double", &[json!(5)], 1), json!(6));
        c.teach("double", (5,), 10).unwrap();
        assert_eq!(fixture.call(&c, "double", &[json!(5)], 1), json!(10), "a repair meets it");
        c.teach("double", (7,), 15).unwrap();
        let refused = fixture.try_call(&c, "double", &[json!(7)], 2);
        let failure = refused.failure().unwrap_or_else(|| panic!("{refused:?}"));
        assert_eq!(failure.kind.code(), "contract_violation", "no model writes a better one");
    });
}

#[test]
fn what_is_forgotten_is_written_again() {
    check(|fixture| {
        writes_wrong_double(fixture);
        writes_right_double(fixture);
        let c = fixture.agent("c");
        fixture.call(&c, "double", &[json!(5)], 1);
        c.teach("double", (5,), 10).unwrap();
        assert!(c.forget("double").unwrap());
        assert!(!c.forget("double").unwrap(), "nothing is left");
        assert_eq!(fixture.call(&c, "double", &[json!(5)], 1), json!(10));
        let (role, method) = (Role::parse("c").unwrap(), Method::parse("double").unwrap());
        assert_eq!(fixture.runtime().store().examples(&role, &method).unwrap(), []);
        assert!(fixture.runtime().programs().forget(&role, None).unwrap().is_some());
        assert_eq!(fixture.runtime().programs().list(None).unwrap(), []);
    });
}

#[test]
fn every_stored_program_is_listed_and_what_is_not_stored_is_named() {
    check(|fixture| {
        fixture.writes(
            "c.run",
            "result = delegate('adder', purpose='add').add(args[0]).value",
            "delegate('adder', purpose: 'add').add(args[0]).value",
        );
        fixture.writes("adder.add", "result = args[0] + 1", "args[0] + 1");
        let c = fixture.agent("c");
        fixture.call(&c, "run", &[json!(1)], 2);
        let listed = fixture.runtime().programs().list(None).unwrap();
        let shown: Vec<_> = listed
            .iter()
            .map(|summary| (summary.program.current.method.as_str(), summary.is_tool))
            .collect();
        assert_eq!(shown, [("add", true), ("run", false)]);
        let missing = c.reject("walk", "").unwrap_err().to_string();
        assert!(missing.contains("c.walk") && missing.contains("tools list"), "{missing}");
        let unknown = fixture.key("c", "run");
        let fault =
            fixture.runtime().programs().reject(&unknown, "", Some("nonsense")).unwrap_err();
        assert_eq!(fault, ProgramFault::UnknownCall("nonsense".into()));
    });
}
