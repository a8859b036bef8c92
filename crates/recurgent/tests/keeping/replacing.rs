//! What replaces a stored program, what does not, and how that is taken back.

use lifecycle::admission::Admission;
use lifecycle::artifact::Trigger;
use lifecycle::pattern::PatternEvent;
use lifecycle::standing::Standing;
use recurgent::{Arguments, Language};
use serde_json::{Map, json};

use crate::fixture::{KeepingFixture, check, log};

/// A repair that keeps what worked takes over, once it has shown that it does.
#[test]
fn a_repair_that_reproduces_recorded_calls_takes_over() {
    check(|fixture| {
        fixture.writes_half();
        fixture.writes_half_repaired();
        let c = fixture.agent("c");
        assert_eq!(fixture.call(&c, "half", &[json!(8), json!(2)], 1), json!(4));
        assert_eq!(fixture.call(&c, "half", &[json!(9), json!(3)], 0), json!(3));
        assert_eq!(fixture.call(&c, "half", &[json!(1), json!(0)], 1), json!(null));
        let entry = log(fixture).pop().unwrap();
        assert_eq!(entry["artifact_admission"], json!(Admission::AwaitsTrial.name()));
        assert_eq!(entry["artifact_generation_trigger"], json!("repair"));
        assert_eq!(entry["artifact_generation_count"], json!(2));
        assert_eq!(
            fixture.versions("c", "half"),
            [
                (Trigger::Repair, Standing::Probation, true),
                (Trigger::Fresh, Standing::Probation, false)
            ]
        );
        assert_eq!(fixture.call(&c, "half", &[json!(1), json!(0)], 0), json!(null));
    });
}

#[test]
fn a_repair_that_breaks_a_recorded_call_does_not_take_over() {
    check(|fixture| {
        fixture.writes_half();
        // Fixes one case and breaks the others.
        fixture.writes(
            "c.half",
            "result = None if args[1] == 0 else args[0] + args[1]",
            "args[1] == 0 ? nil : args[0] + args[1]",
        );
        let c = fixture.agent("c");
        assert_eq!(fixture.call(&c, "half", &[json!(8), json!(2)], 1), json!(4));
        assert_eq!(fixture.call(&c, "half", &[json!(1), json!(0)], 1), json!(null));
        assert_eq!(
            fixture.versions("c", "half"),
            [
                (Trigger::Repair, Standing::Candidate, false),
                (Trigger::Fresh, Standing::Probation, true)
            ]
        );
        let key = fixture.key("c", "half");
        let versions = fixture.runtime().store().versions(&key).unwrap();
        let failing = versions[0].failing_case.as_ref().unwrap();
        assert_eq!(failing.inputs.args, [json!(8), json!(2)], "kept with what it breaks");
        assert!(versions[0].failure.as_ref().unwrap().contains("IndexError"));
        assert_eq!(versions[0].trigger_stage.as_deref(), Some("execution"));
        assert_eq!(versions[0].trigger_error_class.as_deref(), Some("IndexError"));
        assert_eq!(versions[0].trigger_attempt_id, Some(1));
        assert_eq!(fixture.call(&c, "half", &[json!(8), json!(2)], 0), json!(4));
    });
}

/// A call that its own program does not repeat proves nothing.
#[test]
fn a_recorded_call_that_does_not_repeat_is_forgotten() {
    check(|fixture| {
        // The clock is hidden well enough to pass for a pure program.
        fixture.writes(
            "c.stamp",
            "import logging\nnow = logging.LogRecord('n', 1, 'p', 1, 'm', None, None).created\n\
             result = [now * 1e6 // args[0], [1][args[0] - 1]]",
            "[Object.const_get('Ti' + 'me').now.nsec / args[0], [1].fetch(args[0] - 1)]",
        );
        fixture.writes("c.stamp", "result = [0, args[0]]", "[0, args[0]]");
        let c = fixture.agent("c");
        fixture.call(&c, "stamp", &[json!(1)], 1);
        let key = fixture.key("c", "stamp");
        assert_eq!(fixture.runtime().store().corpus(&key).unwrap().len(), 1);
        fixture.call(&c, "stamp", &[json!(3)], 1);
        assert!(fixture.runtime().store().corpus(&key).unwrap().is_empty());
        assert!(fixture.versions("c", "stamp")[0].2, "nothing that repeats speaks against it");
    });
}

/// A challenger that was not tried in one process is tried at a call in the next.
#[test]
fn a_challenger_left_behind_is_tried_later() {
    check(|fixture| {
        fixture.writes_half();
        let c = fixture.agent("c");
        fixture.call(&c, "half", &[json!(8), json!(2)], 1);
        let key = fixture.key("c", "half");
        // As a process leaves it that ends between its commit and the trial.
        let store = fixture.runtime().store();
        let mut left = store.versions(&key).unwrap().remove(0).artifact;
        left.code = left.code.replace("result = ", "result = 0 + ");
        left.code = left.code.replace("args[0] /", "0 + args[0] /");
        left.checksum = lifecycle::program::Checksum::of(&left.code);
        leave(fixture, left);
        assert!(!fixture.versions("c", "half")[0].2);
        drop(c);
        fixture.restart();
        let c = fixture.agent("c");
        fixture.call(&c, "half", &[json!(8), json!(2)], 0);
        assert!(fixture.versions("c", "half")[0].2, "it had its trial");
    });
}

/// Commits a version without trying it.
fn leave(fixture: &mut KeepingFixture, artifact: lifecycle::artifact::Artifact) {
    use lifecycle::artifact::{ArtifactChange, Author, Generation};
    use lifecycle::context::Context;
    use lifecycle::request::{Allowance, Arguments, CallId, CallRequest, Lineage, TraceId};
    use lifecycle::settlement::{Changes, Kept};
    use lifecycle::standing::StateKeys;
    use lifecycle::tool::ToolCount;
    use recurgent::store::Owner;
    let request = CallRequest {
        id: CallId("left".into()),
        lineage: Lineage::Root { trace: TraceId::parse("t").unwrap() },
        role: artifact.role.clone(),
        method: artifact.method.clone(),
        arguments: Arguments::default(),
        contract: None,
        language: artifact.language,
        context: Context::default(),
        manifest: None,
        allowance: Allowance::default(),
    };
    let owner = Owner { instance: "i".into(), session: None, role: artifact.role.clone() };
    let generation = Generation {
        artifact,
        author: Author::Model,
        trigger: Trigger::Repair,
        parent: None,
        failure: None,
        state_keys: StateKeys::default(),
        pure: true,
        agreement: None,
        outranks_recorded: false,
    };
    let changes = Changes {
        kept: Some(Kept::default()),
        artifacts: vec![ArtifactChange::Admit(Box::new(generation))],
        case: None,
        shape: None,
        record: json!({}),
        contents: Vec::new(),
        contents_kept_since: None,
        exhausted: None,
        event: PatternEvent::default(),
        counted: ToolCount::Success,
        stored_under: None,
        answers: Vec::new(),
        answers_bytes: 0,
    };
    let receipt = fixture.runtime().store().commit(&owner, &request, &changes).unwrap();
    assert_eq!(receipt.admission, Some(Admission::AwaitsTrial));
}

/// Three repairs of one program, whether they worked or not; then it is written from nothing.
#[test]
fn repairs_are_counted_by_line_and_then_it_is_written_anew() {
    check(|fixture| {
        fixture.writes_half();
        for n in 0..3 {
            let failing = ("raise ValueError(args[0] - NN)", "raise (args[0] - NN).to_s");
            let number = n.to_string();
            let [python, ruby] = [failing.0, failing.1].map(|text| text.replace("NN", &number));
            fixture.writes("c.half", &python, &ruby);
            fixture.writes("c.half", &format!("{python} # again"), &format!("{ruby} # again"));
        }
        fixture.writes("c.half", "result = [args[0], args[1]]", "[args[0], args[1]]");
        let c = fixture.agent("c");
        for n in 0..4 {
            // Something works in between: what it is asked for is not all it fails at.
            fixture.call(&c, "half", &[json!(8 + n), json!(2)], usize::from(n == 0));
        }
        let mut shown = Vec::new();
        for n in 0..4 {
            let asked = if n < 3 { 2 } else { 1 };
            let outcome = fixture.try_call(&c, "half", &[json!(1), json!(0)], asked);
            shown.push(outcome.is_ok());
        }
        assert_eq!(shown, [false, false, false, true]);
        let entry = log(fixture).pop().unwrap();
        assert_eq!(entry["artifact_generation_trigger"], json!("regeneration"));
        assert_eq!(entry["program_source"], json!("generated"));
        let versions = fixture.versions("c", "half");
        assert_eq!(
            versions[0],
            (Trigger::Regeneration, Standing::Candidate, false),
            "it breaks the others"
        );
        assert!(versions[1].2, "and the incumbent is still there");
    });
}

#[test]
fn a_pinned_version_is_not_replaced_and_a_rollback_brings_the_last_one_back() {
    check(|fixture| {
        fixture.writes_half();
        fixture.writes_half_repaired();
        let c = fixture.agent("c");
        fixture.call(&c, "half", &[json!(8), json!(2)], 1);
        let key = fixture.key("c", "half");
        assert!(fixture.runtime().store().pin(&key, true).unwrap());
        assert_eq!(fixture.call(&c, "half", &[json!(1), json!(0)], 1), json!(null));
        assert!(fixture.versions("c", "half")[1].2, "pinned");
        assert!(fixture.runtime().store().pin(&key, false).unwrap());
        assert_eq!(fixture.call(&c, "half", &[json!(1), json!(0)], 1), json!(null));
        assert!(fixture.versions("c", "half")[0].2);
        fixture.runtime().store().rollback(&key, None).unwrap().unwrap();
        assert_eq!(
            fixture.versions("c", "half"),
            [
                (Trigger::Repair, Standing::Degraded, false),
                (Trigger::Fresh, Standing::Probation, true)
            ]
        );
        assert_eq!(fixture.call(&c, "half", &[json!(8), json!(4)], 0), json!(2));
    });
}

/// A program with effects cannot be tried on recorded calls: it takes over when none are held against it.
#[test]
fn an_impure_repair_takes_over_when_nothing_is_recorded() {
    check(|fixture| {
        fixture.writes(
            "c.stamp",
            "import time\nresult = [1][args[0] - 1] + 0 * time.time_ns()",
            "[1].fetch(args[0] - 1) + 0 * Time.now.to_i",
        );
        fixture.writes(
            "c.stamp",
            "import time\nresult = None if args[0] > 1 else 1 + 0 * time.time_ns()",
            "args[0] > 1 ? nil : 1 + 0 * Time.now.to_i",
        );
        let c = fixture.agent("c");
        fixture.call(&c, "stamp", &[json!(1)], 1);
        let key = fixture.key("c", "stamp");
        assert!(fixture.runtime().store().corpus(&key).unwrap().is_empty());
        fixture.call(&c, "stamp", &[json!(3)], 1);
        assert_eq!(log(fixture).pop().unwrap()["artifact_admission"], json!("takes_over"));
        fixture.call(&c, "stamp", &[json!(3)], 0);
    });
}

/// A caller's mistake says nothing against a program. What is written for such arguments answers that call, and takes
/// over only if it reproduces recorded calls: those of a program that reads the clock are not recorded.
#[test]
fn a_typo_does_not_replace_a_program_without_recorded_calls() {
    for typo in [json!("2030-13-45"), json!(5)] {
        check(|fixture| {
            fixture.writes(
                "c.day",
                "import datetime\ndef day(d):\n    \
                 return [datetime.date.fromisoformat(d).day, str(datetime.date.today())][0]",
                "require 'date'\ndef day(d) = [Date.iso8601(d).day, Date.today.to_s][0]",
            );
            fixture.writes(
                "c.day",
                "def day(d):\n    return 0 if d else len(d)",
                "def day(d) = d ? 0 : d.size",
            );
            let c = fixture.agent("c");
            assert_eq!(fixture.call(&c, "day", &[json!("2030-01-05")], 1), json!(5));
            assert_eq!(fixture.call(&c, "day", std::slice::from_ref(&typo), 1), json!(0), "{typo}");
            let entry = log(fixture).pop().unwrap();
            assert_eq!(entry["artifact_admission"], json!("kept_untried"));
            assert_eq!(entry["artifact_generation_trigger"], json!("widening"));
            assert_eq!(fixture.call(&c, "day", &[json!("2030-01-06")], 0), json!(6));
            assert_eq!(
                fixture.versions("c", "day"),
                [
                    (Trigger::Widening, Standing::Candidate, false),
                    (Trigger::Fresh, Standing::Probation, true)
                ]
            );
        });
    }
}

/// Recorded calls that do not repeat do not speak for it either.
#[test]
fn a_widened_program_must_reproduce_something() {
    check(|fixture| {
        fixture.writes(
            "c.stamp",
            "import logging\nnow = logging.LogRecord('n', 1, 'p', 1, 'm', None, None).created\n\
             result = [now * 1e6 // args[0], 1]",
            "[Object.const_get('Ti' + 'me').now.nsec / args[0], 1]",
        );
        fixture.writes("c.stamp", "result = [0, args[0]]", "[0, args[0]]");
        let c = fixture.agent("c");
        fixture.call(&c, "stamp", &[json!(1)], 1);
        fixture.call(&c, "stamp", &[json!(0)], 1);
        let versions = fixture.versions("c", "stamp");
        assert_eq!(versions[0], (Trigger::Widening, Standing::Candidate, false));
        assert!(versions[1].2, "the first one still runs");
    });
}

/// A broken contract is repaired in the same call; the repair takes over after it passed.
#[test]
fn a_stored_program_that_breaks_its_contract_is_repaired_in_that_call() {
    check(|fixture| {
        fixture.writes("m.list", "result = ['x'] * args[0]", "['x'] * args[0]");
        fixture.writes("m.list", "result = ['x'] * max(args[0], 1)", "['x'] * [args[0], 1].max");
        let language = fixture.language;
        let deliverable = json!({"type": "array", "min_items": 1});
        let m =
            fixture.runtime().agent("m").guest(language).deliverable(deliverable).build().unwrap();
        assert_eq!(fixture.call(&m, "list", &[json!(2)], 1), json!(["x", "x"]));
        assert_eq!(fixture.call(&m, "list", &[json!(0)], 1), json!(["x"]));
        let entry = log(fixture).pop().unwrap();
        assert_eq!(entry["repair_succeeded"], json!(true));
        assert_eq!(entry["attempts"][0]["failure"]["error_type"], json!("contract_violation"));
        assert_eq!(fixture.call(&m, "list", &[json!(0)], 0), json!(["x"]), "it took over");
    });
}

/// A truthful 404 is a result: it is not repaired, and costs the program nothing.
#[test]
fn a_truthful_error_leaves_the_incumbent_untouched() {
    check(|fixture| {
        fixture.writes(
            "c.fetch",
            "result = 'page' if args[0] == '/' else Outcome.error(error_type='http_error', error_message='404', retriable=False)",
            "args[0] == '/' ? 'page' : Outcome.error(error_type: 'http_error', error_message: '404', retriable: false)",
        );
        let c = fixture.agent("c");
        fixture.call(&c, "fetch", &[json!("/")], 1);
        let key = fixture.key("c", "fetch");
        let before = fixture.runtime().store().versions(&key).unwrap();
        for _ in 0..5 {
            let outcome = fixture.try_call(&c, "fetch", &[json!("/gone")], 0);
            assert_eq!(outcome.failure().unwrap().kind.code(), "http_error");
        }
        let after = fixture.runtime().store().versions(&key).unwrap();
        assert_eq!(after.len(), 1);
        assert_eq!(after[0].artifact.code, before[0].artifact.code);
        assert_eq!((after[0].artifact.successes, after[0].artifact.failures), (1, 0));
        assert_eq!(fixture.call(&c, "fetch", &[json!("/")], 0), json!("page"));
    });
}

/// Shadow: shown, not enforced. Enforced: what is degraded does not run.
#[test]
fn standings_are_logged_in_shadow_mode_and_decide_when_enforced() {
    let mut fixture = KeepingFixture::new(Language::Python);
    fixture.writes("c.half", "result = args[0] // args[1]", "");
    fixture.writes("c.half", "result = args[0] // args[1] + 0", "");
    let c = fixture.agent("c");
    fixture.call(&c, "half", &[json!(8), json!(2)], 1);
    fixture.call(&c, "half", &[json!(8), json!(2)], 0);
    let entry = log(&fixture).pop().unwrap();
    assert_eq!(entry["promotion_policy_version"], json!("solver_promotion_v1"));
    assert_eq!(entry["promotion_shadow_mode"], json!(true));
    assert_eq!(entry["lifecycle_state"], json!("probation"));
    assert_eq!(entry["lifecycle_decision"], json!("continue_probation"));
    assert_eq!(entry["promotion_decision_rationale"]["calls"], json!(2));
    drop(c);
    // Degraded by hand: a rollback takes the current version back.
    let key = fixture.key("c", "half");
    let store = fixture.state.path().join("recurgent.sqlite");
    fixture.restart();
    let connection = rusqlite::Connection::open(&store).unwrap();
    connection.execute("UPDATE artifact_versions SET standing = 'degraded'", []).unwrap();
    drop(connection);
    let c = fixture.agent("c");
    fixture.call(&c, "half", &[json!(9), json!(3)], 0);
    drop(c);
    fixture.restart();
    fixture.mode = "enforced";
    let c = fixture.agent("c");
    fixture.call(&c, "half", &[json!(9), json!(3)], 1);
    let entry = log(&fixture).pop().unwrap();
    assert_eq!(entry["selection_miss_reason"], json!("degraded"));
    assert_eq!(entry["promotion_enforced"], json!(true));
    assert_eq!(fixture.runtime().store().versions(&key).unwrap().len(), 2);
}

/// The failure that a version was written because of is kept to be read, without what was given as a secret.
#[test]
fn the_failure_of_a_version_is_kept_without_secrets() {
    check(|fixture| {
        fixture.writes(
            "c.login",
            "def login(user, password):\n    if user != 'ann':\n        raise RuntimeError(f'no {password} for {user}')\n    \
             return user",
            "def login(user, password:)\n  raise \"no #{password} for #{user}\" unless user == 'ann'\n  user\nend",
        );
        fixture.writes(
            "c.login",
            "def login(user, password):\n    return user",
            "def login(user, password:) = user",
        );
        let c = fixture.agent("c");
        for user in ["ann", "bob"] {
            let arguments = Arguments {
                args: vec![json!(user)],
                kwargs: Map::from_iter([("password".to_owned(), json!("tulip-42-garden"))]),
            };
            assert_eq!(c.call("login", arguments).unwrap().value(), Some(&json!(user)));
        }
        fixture.runtime().wait_for_trials();
        let key = fixture.key("c", "login");
        let versions = fixture.runtime().store().versions(&key).unwrap();
        let failure = versions.iter().find_map(|version| version.failure.as_deref()).unwrap();
        assert!(failure.contains("for bob"), "{failure}");
        assert!(!failure.contains("tulip"), "{failure}");
    });
}
