//! First calls: concurrent ones ask the model once; a rejected attempt leaves no tool behind.

use std::sync::{Arc, Barrier};
use std::thread;

use recurgent::provider::Scripted;
use serde_json::json;

use crate::fixture::{check, open};

const CALLERS: usize = 8;

#[test]
fn concurrent_first_calls_of_a_method_ask_the_model_once() {
    check(|fixture| {
        fixture.writes("c.double", "result = args[0] * 2", "args[0] * 2");
        let (language, runtime) = (fixture.language, fixture.runtime().clone());
        let together = Barrier::new(CALLERS);
        thread::scope(|scope| {
            for n in 0..CALLERS {
                let (runtime, together) = (&runtime, &together);
                scope.spawn(move || {
                    let c = runtime.agent("c").guest(language).build().unwrap();
                    together.wait();
                    let outcome = c.call("double", (n,)).unwrap();
                    assert_eq!(outcome.value(), Some(&json!(2 * n)), "{outcome:?}");
                });
            }
        });
        assert_eq!(fixture.asked(), 1);
    });
}

/// Two runtimes on one state directory stand for two processes.
#[test]
fn first_calls_of_two_processes_ask_one_model() {
    let state = tempfile::tempdir().unwrap();
    let models: Vec<_> = (0..2)
        .map(|_| Arc::new(Scripted::new().with("c.double", "result = args[0] * 2")))
        .collect();
    let runtimes: Vec<_> = models
        .iter()
        .map(|model| open(state.path(), Arc::<Scripted>::clone(model), "shadow"))
        .collect();
    let together = Barrier::new(runtimes.len());
    thread::scope(|scope| {
        for runtime in &runtimes {
            let together = &together;
            scope.spawn(move || {
                let c = runtime.agent("c").build().unwrap();
                together.wait();
                assert_eq!(c.call("double", (4,)).unwrap().value(), Some(&json!(8)));
            });
        }
    });
    assert_eq!(models.iter().map(|model| model.asked().len()).sum::<usize>(), 1);
}

#[test]
fn a_caller_goes_on_by_itself_when_the_first_one_fails() {
    check(|fixture| {
        for _ in 0..2 {
            // Two programs that fail end the first call; the third one is for the caller that waited.
            fixture.writes("c.double", "result = args[0] / 0", "args[0] / 0");
        }
        fixture.writes("c.double", "result = args[0] * 2", "args[0] * 2");
        let (language, runtime) = (fixture.language, fixture.runtime().clone());
        let together = Barrier::new(2);
        let ok: usize = thread::scope(|scope| {
            let call = || {
                let c = runtime.agent("c").guest(language).build().unwrap();
                together.wait();
                usize::from(c.call("double", (3,)).unwrap().is_ok())
            };
            let callers = [scope.spawn(call), scope.spawn(call)];
            callers.into_iter().map(|caller| caller.join().unwrap()).sum()
        });
        assert_eq!((ok, fixture.asked()), (1, 3));
    });
}

/// A tool that a child of a rejected attempt forged belongs to no accepted call.
#[test]
fn the_next_attempt_does_not_see_what_a_rejected_one_forged_through_a_child() {
    check(|fixture| {
        fixture.writes(
            "c.run",
            "delegate('builder', purpose='build').build(args[0])\nraise ValueError('no')",
            "delegate('builder', purpose: 'build').build(args[0])\nraise 'no'",
        );
        fixture.writes(
            "builder.build",
            "delegate('gadget', purpose='count')\nresult = args[0]",
            "delegate('gadget', purpose: 'count')\nargs[0]",
        );
        fixture.writes(
            "c.run",
            "try:\n    tool('gadget')\n    seen = True\nexcept Exception:\n    seen = False\nresult = [args[0], seen]",
            "seen = begin\n  tool('gadget')\n  true\nrescue StandardError\n  false\nend\n[args[0], seen]",
        );
        let c = fixture.agent("c");
        assert_eq!(fixture.call(&c, "run", &[json!(1)], 3), json!([1, false]));
        assert_eq!(fixture.runtime().store().tools(None, 9).unwrap(), []);
    });
}

/// What a child forged is there for the rest of the attempt, and for everybody once the call is accepted.
#[test]
fn what_a_child_forged_belongs_to_its_parents_attempt() {
    check(|fixture| {
        fixture.writes(
            "c.run",
            "delegate('builder', purpose='build').build(args[0])\nresult = tool('gadget').count(args[0]).value",
            "delegate('builder', purpose: 'build').build(args[0])\ntool('gadget').count(args[0]).value",
        );
        fixture.writes(
            "builder.build",
            "delegate('gadget', purpose='count')\nresult = args[0]",
            "delegate('gadget', purpose: 'count')\nargs[0]",
        );
        fixture.writes("gadget.count", "result = args[0] + 1", "args[0] + 1");
        let c = fixture.agent("c");
        assert_eq!(fixture.call(&c, "run", &[json!(1)], 3), json!(2));
        let tools = fixture.runtime().store().tools(None, 9).unwrap();
        let mut names: Vec<_> = tools.iter().map(|known| known.tool.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["builder", "gadget"]);
    });
}
