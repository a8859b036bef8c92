//! Functions of the embedding program.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lifecycle::event::{Event, EventKind};
use recurgent::grants::ToolGrant;
use recurgent::observe::Observer;
use recurgent::provider::Scripted;
use recurgent::schemars::{self, JsonSchema};
use recurgent::toolbox::{
    HostFunction, MethodDefinition, OutsideMethod, OutsideOrigin, OutsideTool, ToolFault,
    ToolLimits, Toolbox,
};
use recurgent::{Agent, Language, Runtime};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{GuestFixture, check, code, message};

/// Finds orders by words.
#[derive(Deserialize, JsonSchema)]
struct Search {
    words: String,
    limit: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
struct Order {
    id: u32,
    about: String,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

const SEARCH: (&str, &str) = (
    "def find(words):\n    found = tool('orders').search(words=words, limit=2)\n    return [order['about'] for order in found.value]",
    "def find(words)\n  tool('orders').search(words: words, limit: 2).value.map { |order| order['about'] }\nend",
);

fn add_orders(runtime: &Runtime) {
    let search = |search: Search| {
        if search.words == "nothing" {
            return Err("no order is about nothing");
        }
        let order = |id| Order { id, about: format!("{} {id}", search.words) };
        Ok((1..=search.limit.unwrap_or(3))
            .map(|id| order(u32::try_from(id).unwrap_or(0)))
            .collect::<Vec<_>>())
    };
    runtime.toolbox().add(HostFunction::new("orders.search", search).reads_only()).unwrap();
}

fn desk(fixture: &GuestFixture, runtime: &Runtime) -> Agent {
    fixture.agent(runtime, "desk").build().unwrap()
}

#[test]
fn a_program_calls_a_function_and_is_kept() {
    check(|fixture| {
        let runtime = fixture.runtime(&[]);
        add_orders(&runtime);
        fixture.writes("desk.find", SEARCH.0, SEARCH.1);
        let desk = desk(fixture, &runtime);
        for (words, expected) in [("a", json!(["a 1", "a 2"])), ("b", json!(["b 1", "b 2"]))] {
            let outcome = desk.call("find", (words,)).unwrap();
            assert_eq!(outcome.value(), Some(&expected), "{outcome:?}");
        }
        assert_eq!(fixture.asked(), 1);
        let entry = fixture.log().pop().unwrap();
        let calls = entry.pointer("/attempts/0/outside_calls").unwrap();
        assert_eq!(calls[0]["tool"], "orders.search");
        assert_eq!(calls[0]["origin"], "function");
        assert_eq!(calls[0]["arguments"], "words: \"b\", limit: 2");
        assert_eq!(entry.pointer("/attempts/0/outside_call_count"), Some(&json!(1)));
    });
}

/// A delegated tool may call what its parent may, and no more.
#[test]
fn a_delegated_tool_calls_it_too() {
    check(|fixture| {
        let runtime = fixture.runtime(&[]);
        add_orders(&runtime);
        fixture.writes(
            "desk.find",
            "def find(words):\n    return delegate('clerk', purpose='finds orders').find(words).value",
            "def find(words) = delegate('clerk', purpose: 'finds orders').find(words).value",
        );
        fixture.writes("clerk.find", SEARCH.0, SEARCH.1);
        let outcome = desk(fixture, &runtime).call("find", ("x",)).unwrap();
        assert_eq!(outcome.value(), Some(&json!(["x 1", "x 2"])), "{outcome:?}");
        let none = fixture.agent(&runtime, "desk").tools(ToolGrant::Nothing).build().unwrap();
        let outcome = none.call("find", ("x",)).unwrap();
        assert!(!outcome.is_ok(), "{outcome:?}");
    });
}

/// What a program asks wrongly is its own fault, and a model corrects it from the message.
#[test]
fn arguments_that_do_not_fit_are_corrected() {
    check(|fixture| {
        let runtime = fixture.runtime(&[]);
        add_orders(&runtime);
        fixture.writes(
            "desk.find",
            "def find(words):\n    return tool('orders').search(query=words).value",
            "def find(words) = tool('orders').search(query: words).value",
        );
        fixture.writes("desk.find", SEARCH.0, SEARCH.1);
        let outcome = desk(fixture, &runtime).call("find", ("x",)).unwrap();
        assert_eq!(outcome.value(), Some(&json!(["x 1", "x 2"])), "{outcome:?}");
        let entry = fixture.log().pop().unwrap();
        let said = entry.pointer("/attempts/0/failure/error_message").unwrap().as_str().unwrap();
        assert!(said.contains("takes no `query`; it is called as search(words: string"), "{said}");
        // The arguments were checked before the call, so nothing was reached.
        assert_eq!(entry.pointer("/attempts/0/outside_calls"), None);
    });
}

#[test]
fn an_unknown_method_or_tool_names_what_there_is() {
    check(|fixture| {
        let runtime = fixture.runtime(&[("execution_repair_budget", "0")]);
        add_orders(&runtime);
        for (method, python, ruby, says) in [
            (
                "a",
                "def a():\n    return tool('orders').serch().value",
                "def a = tool('orders').serch.value",
                "it has: search",
            ),
            (
                "b",
                "def b():\n    return tool('order').search().value",
                "def b = tool('order').search.value",
                "orders",
            ),
            (
                "c",
                "def c():\n    tool('orders').remember(x=1)",
                "def c = tool('orders').remember(x: 1)",
                "has no memory",
            ),
        ] {
            fixture.writes(&format!("desk.{method}"), python, ruby);
            let outcome = desk(fixture, &runtime).call(method, ()).unwrap();
            assert!(message(&outcome).contains(says), "{method}: {outcome:?}");
        }
    });
}

/// A panic, an error and a slow function each end in a failure of their own, and the process goes on.
#[test]
fn each_way_to_fail_is_typed() {
    check(|fixture| {
        let runtime = fixture.runtime(&[]);
        add_orders(&runtime);
        let (release, waits) = std::sync::mpsc::channel::<()>();
        let waits = Mutex::new(waits);
        let toolbox = runtime.toolbox();
        toolbox
            .function("broken.panic", |_: Nothing| -> Result<u32, String> {
                panic!("there is no number")
            })
            .unwrap()
            .function("broken.hang", move |_: Nothing| {
                let _ = waits.lock().map(|waits| waits.recv_timeout(Duration::from_mins(5)));
                Ok::<_, String>(1)
            })
            .unwrap()
            .add(HostFunction::untyped(
                "broken.lie",
                json!({"type": "object"}),
                Some(json!({"type": "string"})),
                |_| Ok(json!(7)),
            ))
            .unwrap();
        for (method, call, kind, reason) in [
            ("panic", "panic()", "tool_unavailable", "panicked"),
            ("hang", "hang()", "tool_unavailable", "timed_out"),
            ("lie", "lie()", "tool_unavailable", "invalid_result"),
        ] {
            fixture.writes(
                &format!("desk.{method}"),
                &format!("def {method}():\n    r = tool('broken').{call}\n    return [r.error_type, r.metadata['reason']]"),
                &format!("def {method}\n  r = tool('broken').{call}\n  [r.error_type, r.metadata['reason']]\nend"),
            );
            // Only what hangs has little time.
            let seconds = if method == "hang" { 1 } else { 60 };
            let desk = || {
                let options = [("tool_timeout_seconds", seconds.to_string())];
                let options = options.iter().map(|(key, value)| (*key, value.as_str()));
                let overrides = recurgent::config::AgentOverrides::parse(options).unwrap();
                fixture.agent(&runtime, "desk").overrides(&overrides).build().unwrap()
            };
            let outcome = desk().call(method, ()).unwrap();
            assert_eq!(outcome.value(), Some(&json!([kind, reason])), "{outcome:?}");
            // Unhandled, it ends the call as what it is: no other program would do better.
            let asked = fixture.asked();
            fixture.writes(
                &format!("desk.{method}_value"),
                &format!("def {method}_value():\n    return tool('broken').{call}.value"),
                &format!("def {method}_value = tool('broken').{call}.value"),
            );
            let outcome = desk().call(format!("{method}_value").as_str(), ()).unwrap();
            assert_eq!(code(&outcome), kind, "{outcome:?}");
            assert_eq!(fixture.asked(), asked + 1);
        }
        drop(release);
        fixture.writes("desk.find", SEARCH.0, SEARCH.1);
        let outcome = desk(fixture, &runtime).call("find", ("nothing",)).unwrap();
        assert!(message(&outcome).contains("no order is about nothing"), "{outcome:?}");
    });
}

/// Calls that may have changed something outside are not made twice by a retry; calls that only read are.
#[test]
fn a_retry_repeats_only_what_reads() {
    check(|fixture| {
        for (name, reads_only, expected) in [("sends", false, 1), ("reads", true, 2)] {
            let runtime = fixture.runtime(&[]);
            let count = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&count);
            let function = HostFunction::new(&format!("{name}.go"), move |_: Nothing| {
                Ok::<_, String>(counted.fetch_add(1, Ordering::SeqCst))
            });
            let function = if reads_only { function.reads_only() } else { function };
            runtime.toolbox().add(function).unwrap();
            fixture.writes(
                &format!("desk.{name}"),
                &format!(
                    "def {name}():\n    tool('{name}').go()\n    raise ValueError('after the call')"
                ),
                &format!(
                    "def {name}\n  tool('{name}').go\n  raise ArgumentError, 'after the call'\nend"
                ),
            );
            fixture.writes(
                &format!("desk.{name}"),
                &format!(
                    "def {name}():\n    tool('{name}').go()\n    raise KeyError('after the call')"
                ),
                &format!(
                    "def {name}\n  tool('{name}').go\n  raise KeyError, 'after the call'\nend"
                ),
            );
            let outcome = desk(fixture, &runtime).call(name, ()).unwrap();
            assert!(!outcome.is_ok());
            assert_eq!(count.load(Ordering::SeqCst), expected, "{name}: {outcome:?}");
        }
    });
}

/// Agents have the tools that they are granted.
#[test]
fn tools_are_granted_for_each_agent() {
    check(|fixture| {
        let runtime = fixture.runtime(&[]);
        add_orders(&runtime);
        let toolbox = runtime.toolbox();
        toolbox.function("orders.cancel", |_: Nothing| Ok::<_, String>("cancelled")).unwrap();
        fixture.writes("desk.find", SEARCH.0, SEARCH.1);
        fixture.writes(
            "desk.cancel",
            "def cancel():\n    return tool('orders').cancel().value",
            "def cancel = tool('orders').cancel.value",
        );
        for (grant, find, cancel) in [
            (ToolGrant::Functions, true, true),
            ("orders".parse().unwrap(), true, true),
            ("orders.search".parse().unwrap(), true, false),
            (ToolGrant::Nothing, false, false),
        ] {
            let desk = fixture.agent(&runtime, "desk").tools(grant.clone()).build().unwrap();
            assert_eq!(desk.call("find", ("a",)).unwrap().is_ok(), find, "{grant:?}");
            assert_eq!(desk.call("cancel", ()).unwrap().is_ok(), cancel, "{grant:?}");
        }
    });
}

/// A function that calls the agent whose call it serves would wait for itself: it is refused.
#[test]
fn a_function_that_calls_its_own_session_is_refused() {
    check(|fixture| {
        let runtime = fixture.runtime(&[]);
        let agent: Arc<Mutex<Option<Arc<Agent>>>> = Arc::default();
        let own = Arc::clone(&agent);
        runtime
            .toolbox()
            .function("again.go", move |_: Nothing| {
                let agent = own.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
                let outcome = agent.map(|agent| agent.call("other", ()));
                Ok::<_, String>(format!("{outcome:?}"))
            })
            .unwrap();
        fixture.writes(
            "desk.go",
            "def go():\n    return tool('again').go().value",
            "def go = tool('again').go.value",
        );
        let desk = Arc::new(desk(fixture, &runtime));
        *agent.lock().unwrap() = Some(Arc::clone(&desk));
        let began = Instant::now();
        let outcome = desk.call("go", ()).unwrap();
        let said = outcome.value().and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        assert!(said.contains("would wait for itself"), "{outcome:?}");
        assert!(began.elapsed() < Duration::from_secs(50));
        *agent.lock().unwrap() = None;
    });
}

#[derive(Debug, Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Observer for Seen {
    fn event(&self, event: &Event) {
        let mut seen = self.0.lock().unwrap();
        if let EventKind::CallingOutside { name, arguments } = &event.kind {
            seen.push(format!("calling {name}({arguments})"));
        } else if let EventKind::CalledOutside { call } = &event.kind {
            seen.push(format!("called {}: {:?}", call.name, call.ended));
        }
    }
}

#[test]
fn observers_see_the_calls_and_programs_find_tools_by_words() {
    check(|fixture| {
        let seen = Seen::default();
        let model = Arc::clone(&fixture.model);
        let builder = Runtime::builder(fixture.config(&[])).provider(model);
        let runtime = builder.observer(Box::new(seen.clone())).build().unwrap();
        add_orders(&runtime);
        fixture.writes("desk.find", SEARCH.0, SEARCH.1);
        desk(fixture, &runtime).call("find", ("a",)).unwrap();
        let expected =
            ["calling orders.search(words: \"a\", limit: 2)", "called orders.search: Ok(47)"];
        assert_eq!(*seen.0.lock().unwrap(), expected);
        fixture.writes(
            "desk.look_up",
            "def look_up(words):\n    return [found['signature'] for found in tools.search(words)]",
            "def look_up(words) = tools.search(words).map { |found| found['signature'] }",
        );
        let outcome = desk(fixture, &runtime).call("look_up", ("orders",)).unwrap();
        let shown = outcome.value().unwrap()[0].as_str().unwrap().to_owned();
        assert!(
            shown.starts_with(
                "search(words: string, limit?: integer|null) -> [{about: string, id: integer"
            ),
            "{shown}"
        );
    });
}

/// A tool that counts how often it is asked what it offers.
#[derive(Debug)]
struct CountedTool {
    offered: Arc<OutsideTool>,
    asked: AtomicUsize,
}

impl Toolbox for CountedTool {
    fn name(&self) -> &str {
        &self.offered.name
    }

    fn origin(&self) -> OutsideOrigin {
        OutsideOrigin::Mcp
    }

    fn definitions(&self, _limits: &ToolLimits<'_>) -> Result<Arc<OutsideTool>, ToolFault> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::clone(&self.offered))
    }

    fn call(
        &self,
        method: &OutsideMethod,
        _arguments: Map<String, Value>,
        _limits: &ToolLimits<'_>,
    ) -> Result<Value, ToolFault> {
        Err(ToolFault::Failed(method.name.clone()))
    }
}

/// A stored program that calls no tool pays nothing for those that are granted.
#[test]
fn granted_tools_are_asked_only_for_a_prompt() {
    check(|fixture| {
        let method = |number: usize| MethodDefinition {
            name: format!("method_{number}"),
            description: "Does something".to_owned(),
            input: json!({"type": "object"}),
            output: None,
            reads_only: true,
        };
        let offered = OutsideTool::new("many", OutsideOrigin::Mcp, (0..500).map(method).collect());
        let tool = Arc::new(CountedTool { offered: Arc::new(offered), asked: AtomicUsize::new(0) });
        let builder = Runtime::builder(fixture.config(&[("tools", "*")]));
        let builder = builder.provider(Arc::<Scripted>::clone(&fixture.model));
        let runtime = builder.toolbox(Arc::<CountedTool>::clone(&tool)).build().unwrap();
        fixture.writes("desk.twice", "def twice(x):\n    return x * 2", "def twice(x) = x * 2");
        let desk = desk(fixture, &runtime);
        for number in 1..4 {
            let outcome = desk.call("twice", (number,)).unwrap();
            assert_eq!(outcome.value(), Some(&json!(number * 2)), "{outcome:?}");
            assert_eq!(tool.asked.load(Ordering::SeqCst), 1);
        }
    });
}

/// A cancelled call does not wait for a slow function.
#[test]
fn a_cancelled_call_leaves_a_slow_function() {
    check(|fixture| {
        let runtime = fixture.runtime(&[]);
        let cancellation = recurgent::Cancellation::default();
        let (cancels, (release, waits)) = (cancellation.clone(), std::sync::mpsc::channel::<()>());
        let waits = Mutex::new(waits);
        runtime
            .toolbox()
            .function("slow.go", move |_: Nothing| {
                cancels.cancel();
                let _ = waits.lock().map(|waits| waits.recv_timeout(Duration::from_mins(5)));
                Ok::<_, String>(1)
            })
            .unwrap();
        fixture.writes(
            "desk.go",
            "def go():\n    return tool('slow').go().value",
            "def go = tool('slow').go.value",
        );
        let desk = fixture.agent(&runtime, "desk").cancellation(cancellation).build().unwrap();
        let outcome = desk.call("go", ()).unwrap();
        assert_eq!(code(&outcome), "cancelled", "{outcome:?}");
        drop(release);
    });
}

#[test]
fn names_that_cannot_be_used_are_refused() {
    let fixture = GuestFixture::new(Language::Python);
    let runtime = fixture.runtime(&[]);
    let toolbox = runtime.toolbox();
    let nothing = |_: Nothing| Ok::<_, String>(());
    for (name, says) in [
        ("Orders.search", "cannot name a tool"),
        ("", "cannot name a tool"),
        ("orders.", "cannot name a tool"),
        ("a b.c", "cannot name a tool"),
    ] {
        let refused = toolbox.function(name, nothing).unwrap_err().to_string();
        assert!(refused.contains(says), "{name}: {refused}");
    }
    toolbox.function("orders.get-one", nothing).unwrap();
    let refused = toolbox.function("orders.get_one", nothing).unwrap_err().to_string();
    assert!(
        refused.contains("`get_one` is left out: programs would call it `get_one` like `get-one`"),
        "{refused}"
    );
}
