//! How programs prove themselves: trials, recorded calls, standings, the way back.

use lifecycle::admission::{Admission, MAX_CASES};
use lifecycle::artifact::{
    Artifact, Cacheability, Generation, ProvenShapes, RunVerdict, ShapeDigest,
};
use lifecycle::program::Checksum;
use lifecycle::settlement::Changes;
use lifecycle::standing::{DecisionKind, Standing, WINDOW};
use recurgent::store::MAX_VERSIONS;
use recurgent::store::catalog::{MAX_DECISIONS, Verdict};
use serde_json::json;

use crate::fixture::{
    CommittedCall, alone, call, case, check, commit, failed, generation, in_session, key, line, ok,
    program, recalled,
};

#[test]
fn a_new_version_that_has_recorded_calls_to_reproduce_waits_for_its_trial() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")).accepts(case(1, "a")));
        assert_eq!(store.corpus(&key()).unwrap(), [case(1, "a")]);
        let receipt = commit(store, "c", &ok("c").admits(program("two")).accepts(case(2, "b")));
        assert_eq!(receipt.admission, Some(Admission::AwaitsTrial));
        assert_eq!(receipt.challenger, Some(Checksum::of("two")));
        assert_eq!(receipt.generations, Some(2));
        assert_eq!(recalled(store).0, "one", "the incumbent runs");
        let track_record =
            store.recall(&alone("a1"), &call("c")).unwrap().artifacts[0].track_record.clone();
        assert_eq!((track_record.cases, track_record.challenger), (1, Some(Checksum::of("two"))));
        let (one, two) = (Checksum::of("one"), Checksum::of("two"));
        assert!(store.conclude(&key(), &one, &two, &Verdict::Passed).unwrap());
        assert_eq!(
            line(store),
            [("two".into(), Standing::Probation, true), ("one".into(), Standing::Probation, false)]
        );
        let track_record =
            store.recall(&alone("a1"), &call("c")).unwrap().artifacts[0].track_record.clone();
        assert_eq!((track_record.challenger, track_record.generations), (None, 2));
    });
}

/// A store counts in one statement, by the same rules as [`Window`](lifecycle::standing::Window) and `ProvenShapes`.
#[test]
fn a_store_counts_as_the_policy_does() {
    use RunVerdict::{Answered, ContractBroken, Failed, Succeeded};
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")));
        let stored = || store.versions(&key()).unwrap()[0].artifact.track_record.clone();
        let (mut recent, mut shapes) = (stored().recent, stored().shapes);
        let verdicts = [Succeeded, Answered, Succeeded, Failed, ContractBroken];
        for (n, verdict) in verdicts.into_iter().cycle().take(3 * WINDOW).enumerate() {
            let shape = ShapeDigest::of(&(n * 7 % (ProvenShapes::MAX + 8)).to_string());
            let scored = ok("c").scores("one", verdict).0;
            let changes = Changes { shape: Some(shape.clone()), ..scored };
            commit(store, "c", &CommittedCall(changes));
            recent.push(verdict);
            shapes.add(&shape);
            assert_eq!((stored().recent, stored().shapes), (recent.clone(), shapes.clone()), "{n}");
        }
    });
}

#[test]
fn a_challenger_that_breaks_a_recorded_call_stays_a_candidate_with_it() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")).accepts(case(1, "a")));
        commit(store, "c", &ok("c").admits(program("two")));
        let (one, two) = (Checksum::of("one"), Checksum::of("two"));
        let verdict = Verdict::Failed(Box::new(case(1, "a")));
        assert!(!store.conclude(&key(), &one, &two, &verdict).unwrap());
        let [candidate, incumbent] = &store.versions(&key()).unwrap()[..] else { panic!() };
        assert_eq!(candidate.failing_case, Some(case(1, "a")));
        assert_eq!(candidate.artifact.track_record.standing, Standing::Candidate);
        assert!(incumbent.is_current && !candidate.is_current);
        assert_eq!(
            store.recall(&alone("a1"), &call("c")).unwrap().artifacts[0].track_record.challenger,
            None
        );
        // The same text again gets another trial.
        commit(store, "c", &ok("c").admits(program("two")));
        let newest = &store.versions(&key()).unwrap()[0];
        assert_eq!((newest.number, newest.failing_case.clone()), (3, None));
    });
}

#[test]
fn a_challenger_that_comes_too_late_does_not_take_over() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")).accepts(case(1, "a")));
        commit(store, "c", &ok("c").admits(program("two")));
        let (one, two) = (Checksum::of("one"), Checksum::of("two"));
        store.pin(&key(), true).unwrap();
        assert!(!store.conclude(&key(), &one, &two, &Verdict::Passed).unwrap(), "pinned meanwhile");
        store.pin(&key(), false).unwrap();
        let other = Checksum::of("three");
        assert!(!store.conclude(&key(), &other, &two, &Verdict::Passed).unwrap());
        assert_eq!(recalled(store).0, "one");
        assert!(store.conclude(&key(), &one, &two, &Verdict::Passed).unwrap());
    });
}

/// A text that comes again starts its record anew, the sessions it was called in included.
#[test]
fn a_program_that_comes_again_proves_itself_anew() {
    check(|store| {
        let calls = |session: &str, draft: CommittedCall| {
            store.commit(&in_session(session), &call("c"), &draft.0).unwrap();
            line(store)[0].1
        };
        let worked = || ok("c").scores("one", RunVerdict::Succeeded);
        calls("first", ok("c").admits(program("one")));
        calls("second", worked());
        calls("third", ok("c").admits(program("one")));
        for _ in 0..12 {
            assert_eq!(calls("third", worked()), Standing::Probation, "one session so far");
        }
        assert_eq!(calls("fourth", worked()), Standing::Durable);
    });
}

/// The admission table, as a store sees it.
#[test]
fn what_takes_over_and_what_does_not() {
    let baked = |code| Artifact { cacheability: Cacheability::InputBakedCode, ..program(code) };
    let impure = |code| Generation { pure: false, ..generation(program(code)) };
    check(|store| {
        commit(store, "c", &ok("c").admits(baked("baked")));
        assert_eq!(recalled(store).0, "baked", "what may not be reused is remembered, as such");
        let takes_over = |draft: CommittedCall| commit(store, "c", &draft).admission;
        assert_eq!(takes_over(ok("c").admits(program("one"))), Some(Admission::TakesOver));
        assert_eq!(takes_over(ok("c").admits(baked("two"))), Some(Admission::KeptForReusable));
        assert_eq!(takes_over(ok("c").generates(impure("three"))), Some(Admission::TakesOver));
        commit(store, "c", &ok("c").accepts(case(1, "a")));
        assert_eq!(takes_over(ok("c").generates(impure("four"))), Some(Admission::KeptUntried));
        store.pin(&key(), true).unwrap();
        assert_eq!(takes_over(ok("c").admits(program("five"))), Some(Admission::KeptForPinned));
        store.pin(&key(), false).unwrap();
        for _ in 0..3 {
            commit(store, "c", &failed("c").scores("three", RunVerdict::Failed));
        }
        assert_eq!(
            takes_over(ok("c").generates(impure("six"))),
            Some(Admission::TakesOver),
            "what fails again and again is not protected"
        );
        assert_eq!(recalled(store).0, "six");
    });
}

#[test]
fn only_calls_of_the_version_that_runs_are_recorded_each_once_and_not_too_many() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")).accepts(case(0, "a")));
        commit(store, "c", &ok("c").admits(program("two")).accepts(case(99, "b")));
        for n in 0..2 * MAX_CASES {
            commit(store, "c", &ok("c").scores("one", RunVerdict::Succeeded).accepts(case(n, "c")));
        }
        let corpus = store.corpus(&key()).unwrap();
        assert_eq!(corpus.len(), usize::try_from(MAX_CASES).unwrap());
        assert!(corpus.contains(&case(0, "a")), "the first outcome stays");
        assert!(corpus.iter().all(|case| case.inputs.args != [json!(99)]));
        store.forget_case(&key(), &case(0, "a")).unwrap();
        store.forget_case(&key(), &case(0, "a")).unwrap();
        let track_record =
            store.recall(&alone("a1"), &call("c")).unwrap().artifacts[0].track_record.clone();
        assert_eq!(track_record.cases, MAX_CASES - 1);
    });
}

#[test]
fn rolling_back_goes_to_the_last_version_that_ran_and_forgives_it() {
    check(|store| {
        assert_eq!(store.rollback(&key(), None).unwrap(), None, "there is nothing");
        commit(store, "c", &ok("c").admits(program("one")));
        assert_eq!(store.rollback(&key(), None).unwrap(), None, "there is nothing before it");
        for _ in 0..3 {
            commit(store, "c", &failed("c").scores("one", RunVerdict::Failed));
        }
        commit(store, "c", &ok("c").admits(program("two")).accepts(case(1, "a")));
        commit(store, "c", &ok("c").admits(program("three")));
        let (one, two) = (Checksum::of("one"), Checksum::of("two"));
        assert_eq!(store.rollback(&key(), None).unwrap(), None, "what is degraded must be named");
        assert_eq!(store.rollback(&key(), Some(&Checksum::of("never"))).unwrap(), None);
        assert_eq!(store.rollback(&key(), Some(&one)).unwrap(), Some(one));
        assert_eq!(
            line(store),
            [
                ("three".into(), Standing::Candidate, false),
                ("two".into(), Standing::Degraded, false),
                ("one".into(), Standing::Probation, true),
            ]
        );
        let restored = &store.recall(&alone("a1"), &call("c")).unwrap().artifacts[0];
        assert!(
            !restored.track_record.recent.regressed() && restored.track_record.challenger.is_none()
        );
        assert_eq!(store.rollback(&key(), Some(&two)).unwrap(), Some(two.clone()));
        assert_eq!(recalled(store).0, "two");
        let decisions = store.decisions(&key()).unwrap();
        assert_eq!(decisions[0].checksum, two);
        assert_eq!(decisions[0].decision.kind, DecisionKind::ManualOverride);
    });
}

#[test]
fn a_version_that_runs_or_last_ran_is_never_dropped() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")));
        commit(store, "c", &ok("c").admits(program("two")).accepts(case(1, "a")));
        for n in 0..3 * MAX_VERSIONS {
            commit(store, "c", &ok("c").admits(program(&format!("candidate {n}"))));
        }
        assert_eq!(recalled(store).0, "two");
        assert_eq!(store.versions(&key()).unwrap().len(), MAX_VERSIONS + 2);
        assert_eq!(store.rollback(&key(), None).unwrap(), Some(Checksum::of("one")));
    });
}

/// Candidate, probation, durable, degraded, durable again; each change with its reasons.
#[test]
fn standings_follow_the_record_and_every_change_is_kept() {
    check(|store| {
        commit(store, "c", &ok("c").admits(program("one")));
        let standing =
            || store.recall(&alone("a1"), &call("c")).unwrap().artifacts[0].track_record.standing;
        assert_eq!(standing(), Standing::Probation);
        let score = |verdict| commit(store, "c", &ok("c").scores("one", verdict)).decision;
        for _ in 0..15 {
            assert_eq!(score(RunVerdict::Succeeded).unwrap().kind, DecisionKind::ContinueProbation);
            assert_eq!(score(RunVerdict::Excused), None, "a fault of the world is not evidence");
        }
        let elsewhere = ok("c").scores("one", RunVerdict::Succeeded);
        let other = in_session("another");
        let decision = store.commit(&other, &call("c"), &elsewhere.0).unwrap().decision.unwrap();
        assert_eq!((decision.kind, standing()), (DecisionKind::Promote, Standing::Durable));
        assert_eq!(decision.rationale["session_count"], json!(2));
        assert_eq!(decision.rationale["calls"], json!(17));
        for _ in 0..12 {
            assert_eq!(score(RunVerdict::Failed).unwrap().kind, DecisionKind::Hold);
        }
        assert_eq!(score(RunVerdict::Failed).unwrap().kind, DecisionKind::Degrade);
        assert_eq!(standing(), Standing::Degraded);
        let kinds: Vec<_> =
            store.decisions(&key()).unwrap().iter().map(|d| d.decision.kind).collect();
        assert_eq!(
            kinds,
            [DecisionKind::Degrade, DecisionKind::Promote, DecisionKind::ContinueProbation]
        );
        for _ in 0..2 * MAX_DECISIONS {
            commit(store, "c", &ok("c").admits(program("two")));
            commit(store, "c", &ok("c").admits(program("one")));
        }
        assert_eq!(store.decisions(&key()).unwrap().len(), MAX_DECISIONS);
    });
}
