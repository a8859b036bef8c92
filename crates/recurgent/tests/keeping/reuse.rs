//! Which programs serve later calls, and what they must not hold for that.

use serde_json::json;

use crate::world::{World, check, log};

#[test]
fn questions_are_written_anew_and_stable_methods_are_reused() {
    check(|world| {
        world.writes("c.ask", "result = 'about ' + args[0]", "'about ' + args[0]");
        world.writes("c.fetch_url", "result = 'page of ' + args[0]", "'page of ' + args[0]");
        let mut c = world.agent("c");
        world.call(&mut c, "ask", &[json!("Google")], 1);
        world.call(&mut c, "ask", &[json!("Yahoo")], 1);
        world.call(&mut c, "fetch_url", &[json!("Google")], 1);
        world.call(&mut c, "fetch_url", &[json!("Yahoo")], 0);
    });
}

/// A literal of this call is sent back once; what comes then serves every call, in every process.
#[test]
fn a_baked_literal_is_sent_back_and_then_admitted_parametric() {
    check(|world| {
        world.writes(
            "c.add",
            "result = context.get('memory', 0) + 37",
            "context.fetch(:memory, 0) + 37",
        );
        writes_add(world);
        let mut c = world.agent("c");
        c.set("memory", 5).unwrap();
        assert_eq!(world.call(&mut c, "add", &[json!(37)], 2), json!(42));
        drop(c);
        world.restart();
        let mut c = world.agent("c");
        c.set("memory", 5).unwrap();
        assert_eq!(world.call(&mut c, "add", &[json!(5)], 0), json!(10));
    });
}

/// `memory` is what one method writes; another that reads `value` is told before it runs.
#[test]
fn state_key_drift_is_caught_from_a_new_process() {
    check(|world| {
        world.writes(
            "c.store",
            "context['memory'] = args[0]\nresult = args[0]",
            "context[:memory] = args[0]\nargs[0]",
        );
        world.writes("c.recall", "result = context.get('value')", "context[:value]");
        world.writes("c.recall", "result = context.get('memory')", "context[:memory]");
        let language = world.language;
        let session = |world: &mut World| {
            world.runtime().agent("c").guest(language).session("s").build().unwrap()
        };
        let mut c = session(world);
        world.call(&mut c, "store", &[json!(5)], 1);
        drop(c);
        world.restart();
        // Nothing in the memory of this one says what the key is called.
        let mut empty = world.agent("c");
        assert_eq!(world.call(&mut empty, "recall", &[], 2), json!(null));
        let entry = log(world).pop().unwrap();
        assert_eq!(entry["guardrail_violation_subtype"], json!("state_key_drift"));
        assert_eq!(
            entry["attempts"][0]["stages"],
            json!(["generated", "rolled_back"]),
            "before it ran"
        );
        let mut c = session(world);
        assert_eq!(world.call(&mut c, "recall", &[], 0), json!(5));
    });
}

#[test]
fn state_key_drift_is_caught_against_a_setter() {
    check(|world| {
        world.writes(
            "c.add",
            "result = context.get('value', 0) + args[0]",
            "context.fetch(:value, 0) + args[0]",
        );
        writes_add(world);
        let mut c = world.agent("c");
        c.set("memory", 5).unwrap();
        assert_eq!(world.call(&mut c, "add", &[json!(3)], 2), json!(8));
        assert_eq!(world.call(&mut c, "add", &[json!(4)], 0), json!(9));
    });
}

/// What every call of the method can use.
fn writes_add(world: &World) {
    world.writes(
        "c.add",
        "result = context.get('memory', 0) + args[0]",
        "context.fetch(:memory, 0) + args[0]",
    );
}
