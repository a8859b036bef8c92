//! What people say about programs: rejections, examples, edits, forgetting.

use lifecycle::admission::Admission;
use lifecycle::artifact::{Author, Generation, Trigger};
use lifecycle::contract::ContractOrigin;
use lifecycle::example::{Example, MAX_EXAMPLES};
use lifecycle::program::Checksum;
use lifecycle::select::{Miss, select};
use lifecycle::standing::{Standing, StandingMode};
use serde_json::json;

use crate::fixture::{
    alone, call, case, check, commit, generation, key, line, ok, program, recalled,
};

fn example(number: usize, value: u32) -> Example {
    Example::parse(&json!({"args": [number], "value": value})).unwrap()
}

#[test]
fn a_rejected_version_never_runs_and_takes_its_recorded_calls_with_it() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")).accepts(case(1, "a")));
        let rejected = store.reject(&key(), None, "it adds").unwrap().unwrap();
        assert_eq!((rejected.rejected, rejected.running), (Checksum::of("one"), None));
        assert_eq!(store.corpus(&key()).unwrap(), []);
        let memory = store.recall(&alone("a1"), &call("c")).unwrap();
        let selected =
            select(memory.artifacts, &call("c"), StandingMode::Shadow, ContractOrigin::Caller);
        assert_eq!(selected.unwrap_err(), Miss::Rejected);
        let reasons = store.rejections(&key().role, &key().method).unwrap();
        assert_eq!(
            (reasons[0].because.as_str(), &reasons[0].checksum),
            ("it adds", &Checksum::of("one"))
        );
        let shown = store.prompt_context(&alone("a1"), &call("c")).unwrap().rejections;
        assert_eq!(shown, reasons);

        let again = commit(store, "c", &ok("c").admits(program("one")));
        assert_eq!(again.admission, Some(Admission::KeptRejected), "the same text stays out");
        let other = commit(store, "c", &ok("c").admits(program("two")).accepts(case(2, "b")));
        assert_eq!(other.admission, Some(Admission::TakesOver));
        commit(store, "c", &ok("c").admits(program("three")));
        store.pin(&key(), true).unwrap();
        let (two, three) = (Checksum::of("two"), Checksum::of("three"));
        store.pin(&key(), false).unwrap();
        let passed = lifecycle::version_policy::Verdict::Passed;
        assert!(store.conclude(&key(), &two, &three, &passed).unwrap());
        let rejected = store.reject(&key(), None, "").unwrap().unwrap();
        assert_eq!(rejected.running, Some(two), "the last good one before it");
        assert_eq!(recalled(store).0, "two");
        assert_eq!(store.corpus(&key()).unwrap(), [case(2, "b")], "its own calls stay");
        assert_eq!(store.rollback(&key(), Some(&three)).unwrap(), None, "not by name either");
    });
}

#[test]
fn examples_are_recalled_replaced_bounded_and_forgotten() {
    check(|store| {
        let (role, method) = (key().role, key().method);
        commit(store, "c", &ok("c").admits(program("one")).accepts(case(1, "a")));
        assert!(store.teach(&role, &method, &example(1, 5)).unwrap());
        assert_eq!(
            store.corpus(&key()).unwrap(),
            [],
            "a person's answer outranks what was recorded"
        );
        assert!(store.teach(&role, &method, &example(1, 6)).unwrap());
        let recalled = store.recall(&alone("a1"), &call("c")).unwrap().examples;
        assert_eq!(recalled, [example(1, 6)], "the later answer counts");
        assert_eq!(
            store.recall(&alone("a1"), &crate::fixture::method("subtract")).unwrap().examples,
            []
        );
        assert!(store.teach(&role, &crate::fixture::method("new").method, &example(2, 1)).unwrap());
        let before_any = store.recall(&alone("a1"), &crate::fixture::method("new")).unwrap();
        assert_eq!((before_any.artifacts.len(), before_any.examples.len()), (0, 1));
        for n in 2..=MAX_EXAMPLES {
            assert!(store.teach(&role, &method, &example(n, 1)).unwrap());
        }
        assert!(!store.teach(&role, &method, &example(MAX_EXAMPLES + 1, 1)).unwrap());
        assert!(
            store.forget_example(&role, &method, &example(2, 0)).unwrap(),
            "found by its inputs"
        );
        assert!(store.teach(&role, &method, &example(MAX_EXAMPLES + 1, 1)).unwrap());
        assert_eq!(store.forget_method(&role, &method).unwrap(), 1);
        assert_eq!(store.examples(&role, &method).unwrap(), []);
        assert_eq!(line(store), []);
    });
}

#[test]
fn a_persons_program_runs_at_once_and_outranks_a_rejection() {
    let edited = |code: &str| {
        let mut artifact = program(code);
        artifact.successes = 0;
        artifact.track_record.recent = lifecycle::standing::Window::default();
        artifact.track_record.author = Author::Person;
        Generation { author: Author::Person, trigger: Trigger::Edited, ..generation(artifact) }
    };
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")).accepts(case(1, "a")));
        store.pin(&key(), true).unwrap();
        let receipt = store.replace(&edited("two")).unwrap();
        assert_eq!(receipt.admission, Some(Admission::TakesOver));
        assert_eq!(line(store)[0], ("two".into(), Standing::Probation, true));
        let memory = store.recall(&alone("a1"), &call("c")).unwrap();
        let mode = StandingMode::Enforced;
        assert!(select(memory.artifacts, &call("c"), mode, ContractOrigin::Caller).is_ok());
        store.reject(&key(), None, "").unwrap();
        store.replace(&edited("two")).unwrap();
        assert_eq!(recalled(store).0, "two", "a person may change their mind");
    });
}
