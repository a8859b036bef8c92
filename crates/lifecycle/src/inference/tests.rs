use super::*;

const POLICY: InferPolicy = InferPolicy {
    retries: 1,
    transport_retries: 2,
    max_retry_delay: Duration::from_secs(2),
    form: PromptForm::Payload,
};

fn ask(step: InferStep) -> Box<InferAsk> {
    match step {
        InferStep::Ask(ask) => ask,
        InferStep::Ended(ended) => panic!("{ended:?}"),
    }
}

fn ended(step: InferStep) -> Box<EndedInference> {
    match step {
        InferStep::Ended(ended) => ended,
        InferStep::Ask(ask) => panic!("{ask:?}"),
    }
}

fn question(each: Option<Vec<Value>>, schema: &Value) -> Question {
    let data = if each.is_some() { Value::Null } else { json!("data") };
    Question::parse("What?".to_owned(), data, each, schema).unwrap()
}

fn start(question: Question, policy: InferPolicy) -> InferStep {
    begin(question, "m", policy, NamedSecrets::default(), |_| BTreeMap::new())
}

fn says(payload: Value) -> Draft {
    Draft { payload, usage: Usage { input_tokens: 5, ..Usage::default() } }
}

/// Two rounds of at most 2 + 1 + 1 requests.
const MOST: usize = 8;

/// Every sequence of a few answers ends, asks no more often than its budgets say, and counts what it asked.
#[test]
fn every_sequence_of_replies_ends_within_its_budgets() {
    let replies: [fn() -> Result<Draft, DraftFault>; 7] = [
        || Ok(says(json!({"answers": [{"item": 1, "answer": "a"}, {"item": 2, "answer": "b"}]}))),
        || Ok(says(json!({"answers": [{"item": 1, "answer": "a"}]}))),
        || Ok(says(json!({"answers": "none"}))),
        || Err(DraftFault::Truncated),
        || Err(DraftFault::Unavailable("down".to_owned())),
        || {
            Err(DraftFault::Charged(
                Box::new(DraftFault::Malformed("prose".to_owned())),
                Usage::default(),
            ))
        },
        || Err(DraftFault::Refused("no".to_owned())),
    ];
    let mut counted = 0;
    let mut choices = vec![0_usize; MOST];
    loop {
        let items = vec![json!(1), json!(2)];
        let mut step = start(question(Some(items), &Value::Null), POLICY);
        let mut asked = 0;
        let used = loop {
            match step {
                InferStep::Ask(ask) => {
                    assert!(asked < 4 * MOST, "{choices:?}");
                    assert!(ask.pause() <= POLICY.max_retry_delay);
                    let reply = replies[choices.get(asked).copied().unwrap_or(0)]();
                    asked += 1;
                    step = ask.reply_received(reply, Duration::from_millis(1));
                }
                InferStep::Ended(ended) => {
                    assert_eq!(ended.record.model_calls as usize, asked);
                    assert_eq!(ended.record.failure.is_some(), ended.result.is_err());
                    if let Ok(value) = &ended.result {
                        assert_eq!(value.as_array().map(Vec::len), Some(2));
                    }
                    break asked;
                }
            }
        };
        counted += 1;
        // The next sequence: the last used choice is raised, those after it do not matter.
        choices.iter_mut().skip(used).for_each(|choice| *choice = 0);
        let Some(last) =
            choices.iter().take(used.min(MOST)).rposition(|it| *it + 1 < replies.len())
        else {
            break;
        };
        choices[last] += 1;
        choices.iter_mut().skip(last + 1).for_each(|choice| *choice = 0);
    }
    assert!(counted > 100, "{counted}");
}

#[test]
fn a_reply_is_read_tolerantly_and_checked_strictly() {
    let topics = json!(["bug", "praise"]);
    let check = |schema: &Value, payload: Value, expected: Result<Value, &str>| {
        let found = reply::answers(&question(None, schema), &payload, 1).remove(0);
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(problem), Err(part)) => assert!(problem.message.contains(part), "{problem:?}"),
            (found, expected) => panic!("{payload}: {found:?}, {expected:?}"),
        }
    };
    check(&Value::Null, json!({"answer": "text"}), Ok(json!("text")));
    check(&Value::Null, json!({"answer": 4}), Ok(json!("4")));
    check(&Value::Null, json!({"answer": " "}), Err("empty"));
    check(&Value::Null, json!({"answer": ["a"]}), Err("must be a text"));
    check(&Value::Null, json!({"text": "a"}), Err("no `answer`"));
    check(&topics, json!({"answer": "bug"}), Ok(json!("bug")));
    check(&topics, json!({"answer": "rant"}), Err("$"));
    check(&json!({"type": "integer"}), json!({"answer": 3}), Ok(json!(3)));
    check(&json!("integer"), json!({"answer": "3"}), Err("$"));
    check(&json!({"name": "string"}), json!({"answer": {"name": "x"}}), Ok(json!({"name": "x"})));
    for (text, expects_json, expected) in [
        ("  plain words ", false, Some(json!({"answer": "plain words"}))),
        ("", false, None),
        ("Here: {\"answer\": 1}", true, Some(json!({"answer": 1}))),
        ("```json\n{\"answer\": [1]}\n```", true, Some(json!({"answer": [1]}))),
        ("<think>{\"answer\": 0}</think>{\"answer\": 1}", true, Some(json!({"answer": 1}))),
        ("{\"other\": 1}", true, None),
        ("no", true, None),
    ] {
        assert_eq!(read_reply(text, expects_json).ok(), expected, "{text}");
    }
}

#[test]
fn a_list_of_as_many_plain_answers_is_in_order() {
    let two = || question(Some(vec![json!(1), json!(2)]), &Value::Null);
    let read = |payload| -> Vec<Option<Value>> {
        reply::answers(&two(), &payload, 2).into_iter().map(Result::ok).collect()
    };
    assert_eq!(read(json!({"answers": ["a", "b"]})), [Some(json!("a")), Some(json!("b"))]);
    assert_eq!(read(json!({"answers": ["a"]})), [None, None]);
    let swapped = json!({"answers": [{"item": 2, "answer": "b"}, {"item": 1, "answer": "a"}]});
    assert_eq!(read(swapped), [Some(json!("a")), Some(json!("b"))]);
}

#[test]
fn a_kept_answer_is_for_the_same_question_to_the_same_model() {
    let key = |instruction: &str, data: Value, schema: Value, model: &str| {
        Question::parse(instruction.to_owned(), data, None, &schema).unwrap().keys(model).remove(0)
    };
    let first = key("a", json!({"x": 1, "y": 2}), Value::Null, "m");
    assert_eq!(first, key("a", json!({"y": 2, "x": 1}), Value::Null, "m"));
    for other in [
        key("b", json!({"x": 1, "y": 2}), Value::Null, "m"),
        key("a", json!({"x": 1, "y": 3}), Value::Null, "m"),
        key("a", json!({"x": 1, "y": 2}), json!("string"), "m"),
        key("a", json!({"x": 1, "y": 2}), Value::Null, "n"),
    ] {
        assert_ne!(first, other);
    }
}

#[test]
fn a_service_gets_a_schema_of_words_that_it_knows() {
    let schema = json!({"type": "object", "required": ["n"], "properties": {
        "n": {"type": "integer", "minimum": 1}, "tags": {"type": "array", "items": {"type": "string", "format": "uri"}}}});
    let sent = ask(start(question(None, &schema), POLICY)).schema().unwrap();
    assert_eq!(
        sent["properties"]["answer"],
        json!({"type": "object", "required": ["n"], "additionalProperties": false, "properties": {
            "n": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}})
    );
    let text = InferPolicy { form: PromptForm::Program, ..POLICY };
    assert_eq!(ask(start(question(None, &Value::Null), text)).schema(), None);
}

#[test]
fn a_model_that_refuses_fails_the_question_and_says_why() {
    let fault = DraftFault::Refused("not that".to_owned());
    let end = ended(
        ask(start(question(None, &Value::Null), POLICY)).reply_received(Err(fault), Duration::ZERO),
    );
    let failed = end.result.unwrap_err();
    assert_eq!(failed.reason, Reason::InferFailed);
    assert!(failed.failure.message.contains("not that"), "{}", failed.failure.message);
    assert_eq!(failed.failure.metadata["provider_error_type"], "provider_refusal");
}
