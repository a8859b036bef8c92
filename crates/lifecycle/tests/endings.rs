//! How a call ends, rule by rule: each row of the table is one sequence of answers and all that came of it.
//!
//! Under its rule a row has, first, the scene: retries of each lane in [`RetryLane::ALL`]'s order, those of the last
//! one after `transport`; `stored`,
//! a program, and how often it was repaired; and what the world answers, in the words of [`answer`]. Then
//! one line per try: where its program came from, what was waited for, the feedback the model got (and how many
//! retries are left), and the lane that rejected it. Last, the ending: its message
//! and metadata, how often a model was asked, and what the store gets.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test")]

mod common;

use std::fmt::Write as _;
use std::time::Duration;

use lifecycle::artifact::{ArtifactChange, ProvenShapes, ShapeDigest};
use lifecycle::attempt::{Attempt, Budgets, RetryLane};
use lifecycle::call::{Commit, Generate, Memory, Policy, Step, StoreFault, begin};
use lifecycle::draft::{Draft, DraftFault, SpentAllowance, Usage};
use lifecycle::execution::{
    Environment, EnvironmentFault, ExceptionFacts, Report, ReportEnding, WorkerFault,
};
use lifecycle::guardrail::{Rule, check_role};
use lifecycle::outcome::{EndedBy, Failure, FailureKind, Reported};
use lifecycle::prompt::PromptContext;
use lifecycle::request::CallId;
use lifecycle::settlement::Timing;
use lifecycle::standing::Window;
use serde_json::{Map, Value, json};

use common::{artifact, report, request};

const TABLE: &str = r#"# A service's fault is waited out, and the next try gets the same feedback as this one.
1 1 1 1: forks, down, slower, late, slower by 7, fine, value
    generated: guardrail
    generated feedback process_escape (guardrail 0): transport
    generated after 500ms feedback process_escape (guardrail 0): transport
    generated after 1s feedback process_escape (guardrail 0): generation
    generated after 2s feedback process_escape (guardrail 0): transport
    generated after 7ms feedback process_escape (guardrail 0): accepted
    ok; 6 asked, kept, admitted as delegated_contract_tool after 0 repairs
# A model that was never asked is not counted: the allowance is spent.
1 1 1 1: fine, raises, spent
    generated: execution
    generated feedback execution (execution 0): rejected
    budget_exceeded: 64 spent; 1 asked
# Nor is one without a prompt, since the store was gone: that is not a fault of a service.
1 1 1 1: fine, raises, no store
    generated: execution
    generated feedback execution (execution 0): rejected
    store_unavailable: gone; 1 asked
# A service that asks for a longer wait than any call makes is not asked again: the caller may wait.
4 1 1 1: slower by a minute
    generated: transport
    rate_limited: slower; 1 asked, transport exhausted
# A service that stays down uses up its own retries, and none of the model's.
0 1 1 1 transport 2: down, down, down
    generated: transport
    generated after 500ms: transport
    generated after 1s: transport
    provider: down; transport_attempts 3; 3 asked, transport exhausted
# After an outage the model still has its attempts.
1 1 1 1 transport 1: down, unparsable, fine, value
    generated: transport
    generated after 500ms: generation
    generated feedback invalid_code (generation 0): accepted
    ok; 3 asked, kept, admitted as delegated_contract_tool after 0 repairs

# An exhausted generation lane counts every try.
2 1 1 1: no object, unparsable, truncated
    generated: generation
    generated feedback invalid_code (generation 1): generation
    generated feedback invalid_code (generation 0): generation
    invalid_code: the answer was cut off at the output limit; write a shorter program, or raise max_output_tokens; generation_attempts 3; 3 asked, generation exhausted
# An exhausted guardrail lane counts retries; a top-level caller gets one stable message.
1 2 1 1: forks, forks2, forks
    generated: guardrail
    generated feedback process_escape (guardrail 1): guardrail
    generated feedback process_escape (guardrail 0): guardrail, repeated
    guardrail_retry_exhausted: This request couldn't be completed after multiple attempts.; guardrail_recovery_attempts 2; last_violation_subtype "process_escape"; normalized true; normalization_policy "guardrail_exhaustion_boundary_v1"; raw_error_message "guardrail retries exhausted; last: `os.fork` starts or signals a process, which this agent may not do"; 3 asked, guardrail exhausted
# A child's caller is a program: it gets the message as it is.
child 1 0 1 1: forks
    generated: guardrail
    guardrail_retry_exhausted: guardrail retries exhausted; last: `os.fork` starts or signals a process, which this agent may not do; guardrail_recovery_attempts 0; last_violation_subtype "process_escape"; 1 asked, guardrail exhausted
# An exhausted execution lane counts retries; the same program again is one, but is not run.
1 1 2 1: fine, raises, fine, fine2, raises
    generated: execution
    generated feedback execution (execution 1): execution, repeated
    generated feedback execution (execution 0): execution
    execution: E: boom; blame "program"; execution_repair_attempts 2; 3 asked, execution exhausted
# An exhausted outcome lane counts retries; an authored error becomes the last of many.
1 1 1 1: fine, contract broken, fine2, flaky
    generated: outcome
    generated feedback contract_violation (outcome 0): outcome
    outcome_repair_retry_exhausted: outcome repairs exhausted; last: flaky: sorry; outcome_repair_attempts 1; last_error_type "flaky"; last_error_message "sorry"; 2 asked, outcome exhausted
# A broken contract keeps its own kind.
1 1 1 1: fine, flaky, fine2, contract broken
    generated: outcome
    generated feedback flaky (outcome 0): outcome
    contract_violation: Return an array of at least 1 item at `$`, where the result has an array of 0 items; if the task cannot give that, report a failure instead.; outcome_repair_attempts 1; 2 asked, outcome exhausted
# An authored error of the world's is an answer, even one that may pass.
1 1 1 1: fine, network_error
    generated: accepted
    network_error: sorry; 1 asked
# One violation while running outweighs any other ending but a value.
1 2 1 1: fine, violation and raises, fine2, violation and not_found, fine3, violation and value
    generated: guardrail
    generated feedback self_materialization (guardrail 1): guardrail
    generated feedback self_materialization (guardrail 0): accepted
    ok; 3 asked, kept, admitted as delegated_contract_tool after 0 repairs
# Advice is given once, whatever the next program is.
1 3 1 1: baked, baked2, value
    generated: guardrail
    generated feedback input_baked_code (guardrail 2): accepted
    ok; 2 asked, kept, admitted as input_baked_code after 0 repairs
# Advice is given only while a guardrail retry is left.
1 1 1 1: forks, baked, value
    generated: guardrail
    generated feedback process_escape (guardrail 0): accepted
    ok; 2 asked, kept, admitted as input_baked_code after 0 repairs
# A stored program is never advised; a value is its success.
1 1 1 1 stored baked 0: value
    persisted: accepted
    ok; 0 asked, kept, Succeeded
# A stored program's truthful error is not a defect.
1 1 1 1 stored fine 0: not_found
    persisted: accepted
    not_found: sorry; 0 asked, Answered
# The world's fault ends a stored program's call and is excused, though its lane has retries.
1 2 3 4 stored fine 0: unresolvable
    persisted: rejected
    dependency_resolution_failed: no such package; 0 asked, Excused
# The same, without a lane.
1 2 3 4 stored fine 0: shutdown
    persisted: rejected
    worker_crash: x; 0 asked, Excused
# A misfit is repaired, and excused.
1 2 3 4 stored fine 0: refused, fine2, value
    persisted: rejected
    repaired feedback dependency_policy_violation (guardrail 2): accepted
    ok; 1 asked, kept, Excused, admitted as delegated_contract_tool after 1 repairs
# Repairs add up.
1 2 3 4 stored fine 2: raises, fine2, value
    persisted: rejected
    repaired feedback execution (execution 3): accepted
    ok; 1 asked, kept, Failed, repair written, admitted as delegated_contract_tool after 3 repairs
# A stored program's own failure is repaired and uses up no retry; the feedback has the whole budget of its lane.
1 2 1 4 stored fine 0: raises, fine2, raises, fine3, value
    persisted: rejected
    repaired feedback execution (execution 1): execution
    repaired feedback execution (execution 0): accepted
    ok; 2 asked, kept, Failed, repair written, admitted as delegated_contract_tool after 1 repairs
# The same, of the guardrail lane.
1 2 3 4 stored fine 0: violation and raises, no key
    persisted: rejected
    repaired feedback self_materialization (guardrail 2): rejected
    tool_registry_violation: the agent asks for a tool of its own role `lister`; it could not be repaired (provider_auth: no key); violation_subtype "self_materialization"; repair_error_type "provider_auth"; 1 asked, Failed
# The same, of the outcome lane.
1 2 3 4 stored fine 0: contract broken, no key
    persisted: rejected
    repaired feedback contract_violation (outcome 4): rejected
    contract_violation: Return an array of at least 1 item at `$`, where the result has an array of 0 items; if the task cannot give that, report a failure instead.; it could not be repaired (provider_auth: no key); repair_error_type "provider_auth"; 1 asked, ContractBroken
# What a rule now forbids for good is repaired, too.
terminal 1 2 3 4 stored forks 0: fine, value
    persisted: rejected
    repaired feedback process_escape: accepted
    ok; 1 asked, kept, Failed, repair written, admitted as delegated_contract_tool after 1 repairs
# One that breaks it only while it runs ends the call: this time it did.
terminal 1 2 3 4 stored fine 0: violation and raises
    persisted: rejected
    tool_registry_violation: the agent asks for a tool of its own role `lister`; violation_subtype "self_materialization"; 0 asked, Failed
# The same of a program just written.
terminal 1 2 3 4: fine, violation and raises
    generated: rejected
    tool_registry_violation: the agent asks for a tool of its own role `lister`; violation_subtype "self_materialization"; 1 asked
# Advice is not dearer than an answer: when the retry breaks a rule, the advised program runs.
1 1 1 1: baked, forks, value
    generated: guardrail
    generated feedback input_baked_code (guardrail 0): guardrail
    generated as a last resort: accepted
    ok; 2 asked, kept, admitted as input_baked_code after 0 repairs
# The same when the retries after it fail while running,
1 1 1 1: baked, fine, raises, fine2, raises, value
    generated: guardrail
    generated feedback input_baked_code (guardrail 0): execution
    generated feedback execution (execution 0): execution
    generated as a last resort: accepted
    ok; 3 asked, kept, admitted as input_baked_code after 0 repairs
# or give no usable program,
1 1 1 1: baked, unparsable, no object, value
    generated: guardrail
    generated feedback input_baked_code (guardrail 0): generation
    generated feedback invalid_code (generation 0): generation
    generated as a last resort: accepted
    ok; 3 asked, kept, admitted as input_baked_code after 0 repairs
# or the service asks for a longer wait than any call makes,
1 1 1 1: baked, slower by a minute, value
    generated: guardrail
    generated feedback input_baked_code (guardrail 0): transport
    generated as a last resort: accepted
    ok; 2 asked, kept, admitted as input_baked_code after 0 repairs
# or no model can be asked.
1 1 1 1: baked, no key, value
    generated: guardrail
    generated feedback input_baked_code (guardrail 0): rejected
    generated as a last resort: accepted
    ok; 2 asked, kept, admitted as input_baked_code after 0 repairs
# A truthful error is an answer, too.
1 1 1 1: baked, forks, not_found
    generated: guardrail
    generated feedback input_baked_code (guardrail 0): guardrail
    generated as a last resort: accepted
    not_found: sorry; 2 asked
# When it fails as well, the call ends as it would have without it.
1 1 1 1: baked, forks, raises
    generated: guardrail
    generated feedback input_baked_code (guardrail 0): guardrail
    generated as a last resort: rejected
    guardrail_retry_exhausted: This request couldn't be completed after multiple attempts.; guardrail_recovery_attempts 1; last_violation_subtype "process_escape"; normalized true; normalization_policy "guardrail_exhaustion_boundary_v1"; raw_error_message "guardrail retries exhausted; last: `os.fork` starts or signals a process, which this agent may not do"; 2 asked, guardrail exhausted
# The same when it is refused its environment.
1 1 1 1: baked, forks, unresolvable
    generated: guardrail
    generated feedback input_baked_code (guardrail 0): guardrail
    generated as a last resort: rejected
    guardrail_retry_exhausted: This request couldn't be completed after multiple attempts.; guardrail_recovery_attempts 1; last_violation_subtype "process_escape"; normalized true; normalization_policy "guardrail_exhaustion_boundary_v1"; raw_error_message "guardrail retries exhausted; last: `os.fork` starts or signals a process, which this agent may not do"; 2 asked, guardrail exhausted
# But the world's own end is reported as it is.
1 1 1 1: baked, forks, shutdown
    generated: guardrail
    generated feedback input_baked_code (guardrail 0): guardrail
    generated as a last resort: rejected
    worker_crash: x; 2 asked, guardrail exhausted
# It does not bypass a rule that ends the call.
terminal 1 1 1 1: baked, forks
    generated: guardrail
    generated feedback input_baked_code (guardrail 0): rejected
    process_violation: `os.fork` starts or signals a process, which this agent may not do; violation_subtype "process_escape"; 2 asked
# A third repair is still a repair.
1 2 3 4 stored fine 2: raises, no key
    persisted: rejected
    repaired feedback execution (execution 3): rejected
    execution: E: boom; it could not be repaired (provider_auth: no key); blame "program"; repair_error_type "provider_auth"; 1 asked, Failed
# After three repairs a program is written from nothing.
1 2 3 4 stored fine 3: raises, fine2, value
    persisted: rejected
    generated feedback execution (execution 3): accepted
    ok; 1 asked, kept, Failed, admitted as delegated_contract_tool after 0 repairs
# A type error on arguments of a proven shape is the program's fault.
1 1 1 1 stored fine 0 proven: type error, no key
    persisted: rejected
    repaired feedback execution (execution 1): rejected
    execution: TypeError: boom; it could not be repaired (provider_auth: no key); blame "program"; repair_error_type "provider_auth"; 1 asked, Failed
# On another shape it is the caller's: not counted, and the program's own error comes first.
1 1 1 1 stored fine 0 proven text: type error, no key
    persisted: rejected
    repaired feedback execution (execution 1): rejected
    execution: TypeError: boom; the stored program was never called with such arguments, check them; it could not be repaired (provider_auth: no key); blame "caller"; repair_error_type "provider_auth"; 1 asked, Excused
# With a model the program is widened.
1 1 1 1 stored fine 0 proven text: type error, fine2, value
    persisted: rejected
    repaired feedback execution (execution 1): accepted
    ok; 1 asked, kept, Excused, admitted as delegated_contract_tool after 0 repairs
# A widening that fails gives the caller's error.
1 1 1 1 stored fine 0 proven text: type error, fine2, raises, fine3, raises
    persisted: rejected
    repaired feedback execution (execution 1): execution
    repaired feedback execution (execution 0): execution
    execution: TypeError: boom; the stored program was never called with such arguments, check them; it could not be repaired (execution: E: boom); blame "caller"; repair_error_type "execution"; 2 asked, execution exhausted, Excused
# Nothing is widened if the policy says so.
narrow 1 1 1 1 stored fine 0 proven text: type error
    persisted: rejected
    execution: TypeError: boom; the stored program was never called with such arguments, check them; blame "caller"; 0 asked, Excused
# Another error is the program's, whatever the shape.
1 1 1 1 stored fine 0 proven text: raises, no key
    persisted: rejected
    repaired feedback execution (execution 1): rejected
    execution: E: boom; it could not be repaired (provider_auth: no key); blame "program"; repair_error_type "provider_auth"; 1 asked, Failed
# A missing argument of a stored function is an invalid call: the program does not run, no model is asked.
1 1 1 1 stored pair 0:
    persisted: rejected
    invalid_call: `list` takes (w, h) and was called with (77): h is missing; correct the call; blame "caller"; 0 asked, Excused
# A service that is down ends a stored program's call: not counted, not repaired.
network 1 1 1 1 stored fetches 0 url: refused connection
    persisted: rejected
    service_unavailable: shop.example cannot be used (ConnectionRefusedError: boom); run it again when it answers; blame "world"; 0 asked, Excused
# The same, wrapped in another exception.
network 1 1 1 1 stored fetches 0 url: wrapped refusal
    persisted: rejected
    service_unavailable: shop.example cannot be used (requests.exceptions.RequestException: boom); run it again when it answers; blame "world"; 0 asked, Excused
# Without the grant the message names it.
1 1 1 1 stored fetches 0 url: refused connection
    persisted: rejected
    unsupported_capability: the program may not use the network for this (ConnectionRefusedError: boom); grant it with `--network shop.example`; grant "--network shop.example"; blame "world"; 0 asked, Excused
# A new program cannot do better if the call names the service.
network 1 1 1 1 url: fetches, refused connection
    generated: rejected
    service_unavailable: shop.example cannot be used (ConnectionRefusedError: boom); run it again when it answers; blame "world"; 1 asked
# It may choose a better one if it chose the service itself.
network 1 1 1 1: chooses, refused connection, fine, value
    generated: execution
    generated feedback service_unavailable (execution 0): accepted
    ok; 2 asked, kept, admitted as delegated_contract_tool after 0 repairs
# When it does not, the service is named.
network 1 1 1 1: chooses, refused connection, fetches, refused connection
    generated: execution
    generated feedback service_unavailable (execution 0): rejected
    service_unavailable: a service the program needs cannot be used (ConnectionRefusedError: boom); run it again when it answers; blame "world"; 2 asked
# A file that is not granted.
1 1 1 1 path: reads, no file
    generated: rejected
    unsupported_capability: the program cannot open a file (FileNotFoundError: boom); check that it exists, and grant it with `--read sales.csv`, or `--write` to change it; grant "--read sales.csv"; blame "world"; 1 asked
# A failed call of another agent counts there, not here.
1 1 1 1 stored fine 0 proven: nested failure
    persisted: rejected
    execution: TypeError: boom; blame "world"; 0 asked, Excused
# A wrong call of another agent counts here.
1 1 1 1 stored fine 0 proven: nested misuse, no key
    persisted: rejected
    repaired feedback execution (execution 1): rejected
    execution: TypeError: boom; it could not be repaired (provider_auth: no key); blame "program"; repair_error_type "provider_auth"; 1 asked, Failed
# Nothing runs again after something may have been sent.
network 1 2 3 4: posts, contract broken
    generated: outcome
    contract_violation: Return an array of at least 1 item at `$`, where the result has an array of 0 items; if the task cannot give that, report a failure instead.; the program may have sent something (urllib.request.urlopen), so nothing was run again: check before calling again; sent ["urllib.request.urlopen"]; 1 asked, outcome exhausted
# Without a network nothing was sent.
1 1 1 1: posts, contract broken, fine, value
    generated: outcome
    generated feedback contract_violation (outcome 0): accepted
    ok; 2 asked, kept, admitted as delegated_contract_tool after 0 repairs
# A degraded program runs when no better one can be obtained,
1 1 1 1 stored fine 0 proven degraded: no key, value
    generated: rejected
    persisted as a last resort: accepted
    ok; note: the stored program is degraded; it ran because no better one could be obtained (provider_auth: no key); 1 asked, kept, Succeeded
# and its own error comes first.
1 1 1 1 stored fine 0 proven degraded: no key, raises
    generated: rejected
    persisted as a last resort: rejected
    execution: E: boom; it could not be repaired (provider_auth: no key); blame "program"; repair_error_type "provider_auth"; 1 asked, Failed
# It does not run on arguments it was never accepted with.
1 1 1 1 stored fine 0 proven degraded text: no key
    generated: rejected
    provider_auth: no key; 1 asked
# An authored error without a budget to repair it is returned unchanged.
1 1 1 0: fine, flaky
    generated: outcome
    flaky: sorry; 1 asked, outcome exhausted
"#;

#[test]
fn every_row_ends_as_written() {
    let mut otherwise = String::new();
    for row in TABLE.trim_start_matches("# ").split("\n# ") {
        let lines: Vec<_> = row.trim().lines().map(str::trim).collect();
        let [rule, script, expected @ ..] = lines.as_slice() else { panic!("{row}") };
        let ended = run(script);
        if ended != expected {
            write!(otherwise, "# {rule}\n{script}\n    {}\n", ended.join("\n    ")).unwrap();
        }
    }
    assert!(otherwise.is_empty(), "these end otherwise; if that was meant, write:\n{otherwise}");
}

/// What the world answers when it is asked.
enum Answer {
    Drafts(Result<Draft, DraftFault>),
    Prepares(EnvironmentFault),
    Runs(Result<Box<Report>, WorkerFault>),
}

fn answer(word: &str) -> Answer {
    let draft = |payload| Answer::Drafts(Ok(Draft { payload, usage: Usage::default() }));
    let fault = |fault| Answer::Drafts(Err(fault));
    let slower = |wait: Option<u64>| {
        let retry_after = wait.map(Duration::from_millis);
        fault(DraftFault::RateLimited { message: "slower".into(), retry_after })
    };
    let unfit = || Box::new(Failure::new(FailureKind::Execution, "no such package"));
    match word {
        "no object" => draft(json!(null)),
        "unparsable" => draft(json!({"code": "result = ("})),
        "truncated" => fault(DraftFault::Truncated),
        "down" => fault(DraftFault::Unavailable("down".into())),
        "late" => fault(DraftFault::TimedOut(Duration::from_secs(9))),
        "slower" => slower(None),
        "slower by 7" => slower(Some(7)),
        "slower by a minute" => slower(Some(60_000)),
        "no key" => fault(DraftFault::Auth("no key".into())),
        "no store" => fault(DraftFault::Store(StoreFault::Unavailable("gone".into()))),
        "spent" => fault(DraftFault::AllowanceSpent(Box::new(SpentAllowance {
            budget: "model_calls",
            limit: json!(64),
            spent: json!(64),
            message: "64 spent".into(),
        }))),
        "unresolvable" => Answer::Prepares(EnvironmentFault::Unresolvable(unfit())),
        "refused" => Answer::Prepares(EnvironmentFault::Refused(unfit())),
        "value" => ran(ReportEnding::Value(json!([1]))),
        "contract broken" => ran(ReportEnding::Value(json!([]))),
        "raises" => ran(ReportEnding::Raised {
            class: "E".into(),
            message: "boom".into(),
            location: None,
            facts: Box::default(),
        }),
        "type error" => raises("TypeError", &["TypeError", "Exception"], |_| {}),
        "refused connection" => raises(
            "ConnectionRefusedError",
            &["ConnectionRefusedError", "ConnectionError", "OSError"],
            |facts| facts.errno = Some("ECONNREFUSED".into()),
        ),
        "wrapped refusal" => {
            raises("requests.exceptions.RequestException", &["OSError"], |facts| {
                facts.cause_chain = vec!["ConnectionRefusedError".into(), "ConnectionError".into()];
            })
        }
        "no file" => raises("FileNotFoundError", &["FileNotFoundError", "OSError"], |facts| {
            (facts.errno, facts.path) = (Some("ENOENT".into()), Some("sales.csv".into()));
        }),
        "nested failure" => raises("TypeError", &["TypeError"], |facts| {
            facts.failed_call = Some("execution".into());
        }),
        "nested misuse" => raises("TypeError", &["TypeError"], |facts| {
            facts.failed_call = Some("invalid_call".into());
        }),
        "not_found" => says(word, false),
        "flaky" | "network_error" => says(word, true),
        "shutdown" => {
            Answer::Runs(Err(WorkerFault::Crashed { by: EndedBy::Host, detail: "x".into() }))
        }
        _ => match word.strip_prefix("violation and ") {
            Some(rest) => violating(answer(rest)),
            None => draft(json!({"code": program(word)})),
        },
    }
}

fn program(name: &str) -> &'static str {
    match name {
        "fine" => "result = [args[0]]",
        "fine2" => "result = [args[0], 2]",
        "fine3" => "result = [args[0], 3]",
        "baked" => "result = [77]",
        "baked2" => "result = [77, 2]",
        "forks" => "import os\nos.fork()\nresult = [args[0]]",
        "pair" => "def list(w, h): return [w, h]",
        "fetches" => "import urllib.request\nresult = [urllib.request.urlopen(args[0]).read()]",
        "chooses" => {
            "import urllib.request\nurl = 'http://prices.example/list'\nresult = [urllib.request.urlopen(url).read(), args[0]]"
        }
        "reads" => "result = open(args[0]).readlines()",
        "posts" => {
            "import urllib.request\nurllib.request.urlopen('http://hook.example', data=b'x')\nresult = [args[0]]"
        }
        "forks2" => "import os\nos.fork()\nresult = [args[0], 2]",
        _ => panic!("no answer is called {name:?}"),
    }
}

fn ran(ending: ReportEnding) -> Answer {
    Answer::Runs(Ok(Box::new(report(ending))))
}

/// The program raised; `known` adds to what the guest reports of it.
fn raises(class: &str, chain: &[&str], known: impl Fn(&mut ExceptionFacts)) -> Answer {
    let class_chain = chain.iter().map(|name| (*name).to_owned()).collect();
    let mut facts = ExceptionFacts { class_chain, ..ExceptionFacts::default() };
    known(&mut facts);
    let (class, message) = (class.to_owned(), "boom".to_owned());
    ran(ReportEnding::Raised { class, message, location: None, facts: Box::new(facts) })
}

fn says(code: &str, retriable: bool) -> Answer {
    let reported = Reported { code: code.into(), retriable };
    ran(ReportEnding::Reported { reported, message: "sorry".into(), metadata: Map::new() })
}

/// The program asked for a tool of its own role before.
fn violating(answer: Answer) -> Answer {
    let Answer::Runs(Ok(report)) = answer else { panic!("only what runs can ask") };
    let violations = check_role("lister", "lister").into_iter().collect();
    Answer::Runs(Ok(Box::new(Report { violations, ..*report })))
}

/// Answers until the call ends; environments are there unless an answer says otherwise.
fn run(script: &str) -> Vec<String> {
    let (scene, answers) = script.split_once(':').unwrap();
    let answers: Vec<&str> = answers.trim().split(", ").filter(|word| !word.is_empty()).collect();
    let mut answers = answers.into_iter().map(answer).peekable();
    let mut asked = Vec::new();
    let mut step = recalled(scene);
    loop {
        let prepared = matches!(step, Step::Prepare(_))
            && !matches!(answers.peek(), Some(Answer::Prepares(_)));
        step = match (step, if prepared { None } else { answers.next() }) {
            (Step::Generate(mut generate), Some(Answer::Drafts(reply))) => {
                asked.push(feedback(&mut generate));
                generate.generated(reply, Duration::ZERO)
            }
            (Step::Prepare(prepare), None) => prepare.prepared(Ok(Environment::bare())),
            (Step::Prepare(prepare), Some(Answer::Prepares(fault))) => {
                prepare.prepared(Err(fault.into()))
            }
            (Step::Execute(execute), Some(Answer::Runs(report))) => {
                execute.executed(report.map(|report| *report).map_err(Into::into), Duration::ZERO)
            }
            (Step::Commit(commit), None) => return summary(&commit, asked),
            (step, _) => panic!("{script}: no answer, or not one to {step:?}"),
        };
    }
}

fn recalled(scene: &str) -> Step {
    let mut request = request();
    let (mut policy, mut memory) = (Policy::default(), Memory::default());
    let mut words = scene.split(' ');
    let number = |text: Option<&str>| text.unwrap().parse::<u32>().unwrap();
    while let Some(word) = words.next() {
        match word {
            "child" => request.lineage = request.lineage.child_of(&CallId("parent".into())),
            "terminal" => {
                policy.guardrails.terminal = vec![Rule::ProcessEscape, Rule::SelfMaterialization];
            }
            "stored" => {
                let code = program(words.next().unwrap());
                memory.artifacts.push(artifact(code, number(words.next())));
            }
            // Accepted before with a number.
            "proven" => {
                for artifact in &mut memory.artifacts {
                    let shape = ShapeDigest::of_call(&common::request());
                    artifact.repute.shapes = ProvenShapes::stored(shape.as_str().to_owned());
                }
            }
            "degraded" => {
                for artifact in &mut memory.artifacts {
                    artifact.repute.recent = Window::stored("fff".to_owned());
                }
            }
            "narrow" => policy.widen = false,
            "text" => request.arguments.args = vec![json!("foo")],
            "url" => request.arguments.args = vec![json!("http://shop.example/list")],
            "path" => request.arguments.args = vec![json!("sales.csv")],
            "network" => policy.access.hosts = None,
            "transport" => policy.budgets.transport = number(words.next()),
            generation => {
                policy.budgets = Budgets {
                    generation: number(Some(generation)),
                    guardrail: number(words.next()),
                    execution: number(words.next()),
                    outcome: number(words.next()),
                    ..Budgets::default()
                };
            }
        }
    }
    let Step::Recall(recall) = begin(request, policy) else { panic!("recall comes first") };
    recall.recalled(Ok(memory))
}

fn feedback(generate: &mut Generate) -> String {
    let mut feedback = String::new();
    if generate.pause() > Duration::ZERO {
        write!(feedback, " after {:?}", generate.pause()).unwrap();
    }
    let user = generate.prompt(&PromptContext::default()).user;
    if let Some(line) = user.lines().find_map(|line| line.strip_prefix("feedback: ")) {
        let block: Value = serde_json::from_str(line).unwrap();
        let what = block.get("violation_subtype").or(block.get("error_type")).unwrap();
        write!(feedback, " feedback {}", what.as_str().unwrap()).unwrap();
        for lane in RetryLane::ALL.map(RetryLane::name) {
            if let Some(left) = block.get(format!("remaining_{lane}_budget")) {
                write!(feedback, " ({lane} {left})").unwrap();
            }
        }
    }
    feedback
}

/// The one place that knows origins: by their wire names. Only a model's programs were asked for.
fn tried(attempt: &Attempt, asked: &mut impl Iterator<Item = String>) -> String {
    let source = attempt.origin.program_source();
    let feedback = match source {
        _ if attempt.last_resort => " as a last resort".to_owned(),
        "persisted" => String::new(),
        _ => asked.next().unwrap(),
    };
    let end = match &attempt.rejection {
        None => "accepted".to_owned(),
        Some(rejection) => {
            let lane = attempt.lane().map_or("rejected", RetryLane::name);
            format!("{lane}{}", if rejection.repeated { ", repeated" } else { "" })
        }
    };
    format!("{source}{feedback}: {end}")
}

/// Parts of the metadata keys that the retry policy writes.
const OF_THE_POLICY: [&str; 9] = [
    "_attempts",
    "normaliz",
    "raw_",
    "violation_sub",
    "last_error",
    "blame",
    "repair_error_type",
    "grant",
    "sent",
];

fn summary(commit: &Commit, asked: Vec<String>) -> Vec<String> {
    let mut asked = asked.into_iter();
    let mut lines: Vec<_> = commit.attempts().iter().map(|a| tried(a, &mut asked)).collect();
    lines.push(commit.outcome().failure().map_or("ok".to_owned(), Failure::to_string));
    for (key, value) in commit.outcome().failure().iter().flat_map(|failure| &failure.metadata) {
        if OF_THE_POLICY.iter().any(|part| key.contains(part)) {
            lines.push(format!("{key} {value}"));
        }
    }
    lines.extend(commit.outcome().notes.iter().map(|note| format!("note: {note}")));
    let moment = Timing { timestamp: "now".into(), since_epoch_ms: 0, duration: Duration::ZERO };
    let changes = commit.changes(&moment);
    let mut effects = vec![format!("{} asked", commit.model_calls())];
    effects.extend(changes.exhausted.map(|lane| format!("{} exhausted", lane.name())));
    effects.extend(changes.kept.map(|_| "kept".to_owned()));
    effects.extend(changes.artifacts.iter().map(|change| match change {
        ArtifactChange::Admit(new) => {
            let program = &new.artifact;
            format!(
                "admitted as {} after {} repairs",
                program.cacheability.reason(),
                program.repairs
            )
        }
        ArtifactChange::RepairWritten { checksum } => {
            assert_eq!(*checksum, commit.selected().unwrap().checksum);
            "repair written".to_owned()
        }
        ArtifactChange::Score { checksum, verdict } => {
            let selected = commit.selected().map_or(checksum, |artifact| &artifact.checksum);
            assert_eq!(checksum, selected);
            format!("{verdict:?}")
        }
    }));
    let ending = lines.split_off(commit.attempts().len());
    lines.push(format!("{}; {}", ending.join("; "), effects.join(", ")));
    lines
}

/// What a program calls its error is kept in the store and in every log line: it is cut like everything else.
#[test]
fn an_authored_error_type_of_any_length_is_kept_short() {
    let endless = "x".repeat(1 << 20);
    for ending in [
        says(&endless, false),
        ran(ReportEnding::Raised {
            class: endless,
            message: "boom".into(),
            location: None,
            facts: Box::default(),
        }),
    ] {
        let Answer::Runs(Ok(report)) = ending else { panic!("it runs") };
        let Step::Recall(recall) = begin(request(), Policy::default()) else { panic!("recall") };
        let stored = Memory { artifacts: vec![artifact(program("fine"), 0)], ..Memory::default() };
        let Step::Prepare(prepare) = recall.recalled(Ok(stored)) else { panic!("it is stored") };
        let Step::Execute(execute) = prepare.prepared(Ok(Environment::bare())) else {
            panic!("it runs")
        };
        let step = execute.executed(Ok(*report), Duration::ZERO);
        let shown = format!("{:?}", step.attempts());
        let shown = match &step {
            Step::Commit(commit) => {
                let moment =
                    Timing { timestamp: "now".into(), since_epoch_ms: 0, duration: Duration::ZERO };
                let changes = commit.changes(&moment);
                format!("{shown} {} {:?}", changes.record, changes.event)
            }
            Step::Generate(_) => shown,
            Step::Recall(_) | Step::Prepare(_) | Step::Execute(_) | Step::Rehearse(_) => {
                panic!("{step:?}")
            }
        };
        assert!(shown.len() < 10_000, "{} bytes", shown.len());
    }
}
