//! Tools: kept, counted, shown to programs that may need them.

use lifecycle::artifact::Artifact;
use lifecycle::contract::Contract;
use lifecycle::prompt::MAX_TOOLS;
use lifecycle::request::{CallId, CallRequest, Method};
use lifecycle::settlement::Changes;
use lifecycle::tool::{Tool, ToolCount};

use crate::fixture::{
    CommittedCall, alone, call, check, commit, failed, no_contract, ok, program, role,
};

#[test]
fn tools_are_kept_counted_and_listed_most_used_first() {
    check(|store| {
        let contract = Contract { purpose: Some("fetches pages".into()), ..no_contract() };
        commit(store, "c1", &ok("c1").forges("web_fetcher", Some(contract.clone())));
        commit(store, "c2", &ok("c2").forges("web_fetcher", None).forges("poet", None));
        let request = CallRequest { role: role("poet"), ..call("c3") };
        store.commit(&alone("poet-1"), &request, &ok("c3").0).unwrap();
        store.commit(&alone("poet-1"), &request, &failed("c4").0).unwrap();

        store
            .commit(
                &alone("poet-1"),
                &request,
                &CommittedCall(Changes { counted: ToolCount::Neither, ..failed("c5").0 }).0,
            )
            .unwrap();

        let [poet, fetcher] = &store.tools(None, 10).unwrap()[..] else { panic!() };
        assert_eq!(fetcher.tool, Tool { name: role("web_fetcher"), contract: Some(contract) });
        assert_eq!(fetcher.usage_count, 0, "asked for twice, never called");
        let counts = (poet.usage_count, poet.success_count, poet.failure_count);
        assert_eq!(counts, (3, 1, 1), "a truthful error is neither");
        assert_eq!(poet.methods, ["add"]);
        assert_eq!(store.tools(None, 1).unwrap().len(), 1);
        assert_eq!(store.tools(Some(&role("poet")), 1).unwrap(), std::slice::from_ref(poet));
        assert!(
            store.tools(Some(&role("calculator")), 1).unwrap().is_empty(),
            "called, but never forged"
        );
    });
}

#[test]
fn a_new_tool_knows_the_methods_it_was_called_with_while_it_was_forged() {
    check(|store| {
        let artifact = Artifact { role: role("poet"), ..program("result = 1") };
        commit(store, "c1", &ok("c1").admits(artifact));
        commit(store, "c2", &ok("c2").forges("poet", None));
        assert_eq!(store.tools(Some(&role("poet")), 1).unwrap()[0].methods, ["add"]);
    });
}

#[test]
fn the_prompt_context_shows_the_tools_that_fit_and_the_other_methods_of_the_role() {
    check(|store| {
        for n in 0..2 * MAX_TOOLS {
            commit(store, "c", &ok("c").forges(&format!("tool_{n}"), None));
        }
        commit(store, "c", &ok("c").forges("calculator", None));
        let used = CallRequest { role: role("tool_3"), ..call("c") };
        store.commit(&alone("tool-3"), &used, &ok("c").0).unwrap();
        let purpose = Contract { purpose: Some("Add numbers".into()), ..no_contract() };
        commit(store, "c", &ok("c").forges("number_cruncher", Some(purpose)));
        for name in ["multiply", "subtract", "add"] {
            let method = Method::parse(name).unwrap();
            commit(store, "c", &ok("c").admits(Artifact { method, ..program("result = 1") }));
        }
        let shown = store.prompt_context(&alone("a1"), &call("c")).unwrap();
        let names: Vec<_> = shown.tools.iter().map(|known| known.tool.name.as_str()).collect();
        assert_eq!(names.len(), MAX_TOOLS);
        assert_eq!(names[..2], ["number_cruncher", "tool_3"], "shared words first, then use");
        assert!(!names.contains(&"calculator"), "no agent is its own tool");
        let siblings: Vec<_> = shown.siblings.iter().map(|state| state.method.as_str()).collect();
        assert_eq!(siblings, ["multiply", "subtract"]);
    });
}

/// The first calls of a tool are committed before the call that forges it.
#[test]
fn a_tools_first_calls_are_counted() {
    check(|store| {
        let lineage = call("c0").lineage.child_of(&CallId("c0".into()));
        let request = CallRequest { role: role("poet"), lineage, ..call("c1") };
        store.commit(&alone("poet-1"), &request, &ok("c1").0).unwrap();
        store.commit(&alone("poet-1"), &request, &failed("c2").0).unwrap();
        commit(store, "c3", &ok("c3").forges("poet", None));
        store.commit(&alone("poet-1"), &request, &ok("c4").0).unwrap();
        commit(store, "c5", &ok("c5").forges("poet", None));
        let [poet] = &store.tools(Some(&role("poet")), 1).unwrap()[..] else { panic!() };
        assert_eq!((poet.usage_count, poet.success_count, poet.failure_count), (3, 2, 1));
    });
}
