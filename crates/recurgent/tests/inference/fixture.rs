//! A scripted model that writes programs and answers `infer` questions, and a state directory that several runtimes use
//! in turn.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};

use recurgent::config::Config;
use recurgent::provider::{Draft, DraftFault, DraftRequest, Prompt, Provider, Scripted, Usage};
use recurgent::{Agent, Arguments, Language, Outcome, Runtime};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

/// Answers a prompt with a payload.
type Answerer = Box<dyn Fn(&str) -> Value + Send + Sync>;

/// Writes programs from a script. Questions are answered from a list, or else by a function of what is sent.
#[derive(Default)]
pub(crate) struct AnsweringModel {
    pub(crate) programs: Scripted,
    answers: Mutex<VecDeque<Result<Value, DraftFault>>>,
    answerer: Mutex<Option<Answerer>>,
    questions: Mutex<Vec<(Prompt, Option<Value>)>>,
    prompts: Mutex<Vec<Prompt>>,
    is_remote: bool,
}

impl std::fmt::Debug for AnsweringModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnsweringModel").field("programs", &self.programs).finish_non_exhaustive()
    }
}

impl Provider for AnsweringModel {
    fn draft(&self, prompt: &Prompt, request: &DraftRequest<'_>) -> Result<Draft, DraftFault> {
        self.prompts.lock().unwrap().push(prompt.clone());
        self.programs.draft(prompt, request)
    }

    fn infer(
        &self,
        prompt: &Prompt,
        schema: Option<&Value>,
        _request: &DraftRequest<'_>,
    ) -> Result<Draft, DraftFault> {
        self.questions.lock().unwrap().push((prompt.clone(), schema.cloned()));
        let usage = Usage { input_tokens: 100, output_tokens: 10, ..Usage::default() };
        if let Some(answer) = self.answers.lock().unwrap().pop_front() {
            return answer.map(|payload| Draft { payload, usage });
        }
        match &*self.answerer.lock().unwrap() {
            Some(answerer) => Ok(Draft { payload: answerer(&prompt.user), usage }),
            None => Err(DraftFault::Rejected("the test has no further answer".to_owned())),
        }
    }

    fn is_local(&self) -> bool {
        !self.is_remote
    }

    fn max_output_tokens(&self) -> u32 {
        1000
    }
}

/// One guest language, one scripted model and one state directory.
pub(crate) struct InferFixture {
    pub(crate) language: Language,
    pub(crate) model: Arc<AnsweringModel>,
    pub(crate) runtime: Runtime,
    state: TempDir,
    settings: Vec<(&'static str, &'static str)>,
}

/// Checks one behaviour on both guests.
pub(crate) fn check(behaviour: impl Fn(&mut InferFixture)) {
    check_with(&[], false, behaviour);
}

/// The same with settings, and with a model that may be elsewhere.
pub(crate) fn check_with(
    settings: &[(&'static str, &'static str)],
    is_remote: bool,
    behaviour: impl Fn(&mut InferFixture),
) {
    for language in Language::ALL {
        let state = tempfile::tempdir().unwrap();
        let model = Arc::new(AnsweringModel { is_remote, ..AnsweringModel::default() });
        let runtime = open(state.path(), &model, settings);
        let settings = settings.to_vec();
        behaviour(&mut InferFixture { language, model, runtime, state, settings });
    }
}

fn open(state: &Path, model: &Arc<AnsweringModel>, settings: &[(&str, &str)]) -> Runtime {
    let mut config = Config::defaults();
    config.set("state_dir", &state.display().to_string()).unwrap();
    config.set("max_retry_delay_seconds", "0.05").unwrap();
    for (name, value) in settings {
        config.set(name, value).unwrap();
    }
    Runtime::builder(config).provider(Arc::<AnsweringModel>::clone(model)).build().unwrap()
}

impl InferFixture {
    /// Queues the program that the model writes next, in the language of the fixture.
    pub(crate) fn queue_program(&self, key: &str, python: &str, ruby: &str) {
        let code = match self.language {
            Language::Python => python,
            Language::Ruby => ruby,
        };
        self.model.programs.add(key, json!({"code": code}));
    }

    /// Queues the answer that the model gives next.
    pub(crate) fn queue_answer(&self, payload: Value) {
        self.model.answers.lock().unwrap().push_back(Ok(payload));
    }

    /// Queues a fault of the model.
    pub(crate) fn queue_fault(&self, fault: DraftFault) {
        self.model.answers.lock().unwrap().push_back(Err(fault));
    }

    /// How the model answers what the list does not.
    pub(crate) fn answers_by(&self, answerer: impl Fn(&str) -> Value + Send + Sync + 'static) {
        *self.model.answerer.lock().unwrap() = Some(Box::new(answerer));
    }

    /// The questions so far: what was sent, and the schema.
    pub(crate) fn questions(&self) -> Vec<(Prompt, Option<Value>)> {
        self.model.questions.lock().unwrap().clone()
    }

    /// The prompts for programs so far.
    pub(crate) fn prompts(&self) -> Vec<Prompt> {
        self.model.prompts.lock().unwrap().clone()
    }

    pub(crate) fn agent(&self, role: &str) -> Agent {
        self.runtime.agent(role).guest(self.language).build().unwrap()
    }

    pub(crate) fn call(&self, role: &str, method: &str, args: &[Value]) -> Outcome {
        let arguments = Arguments { args: args.to_vec(), kwargs: Map::new() };
        self.agent(role).call(method, arguments).unwrap()
    }

    /// The value of a call that ends well.
    pub(crate) fn value(&self, role: &str, method: &str, args: &[Value]) -> Value {
        let outcome = self.call(role, method, args);
        outcome.value().unwrap_or_else(|| panic!("{}: {outcome:?}", self.language)).clone()
    }

    /// The code and the message of a call that fails.
    pub(crate) fn failure(&self, role: &str, method: &str, args: &[Value]) -> (String, String) {
        let outcome = self.call(role, method, args);
        let failure = outcome.failure().unwrap_or_else(|| panic!("{outcome:?}"));
        (failure.kind.code().to_owned(), failure.message.clone())
    }

    /// Programs the model was asked for.
    pub(crate) fn written(&self) -> usize {
        self.model.programs.asked().len()
    }

    /// Replaces the runtime by a new one on the same state, as another process would.
    pub(crate) fn restart(&mut self) {
        self.reopen(&[]);
    }

    /// The same with more settings.
    pub(crate) fn reopen(&mut self, settings: &[(&'static str, &'static str)]) {
        self.settings.extend(settings);
        self.runtime = open(self.state.path(), &self.model, &self.settings);
    }

    /// Drops queued answers that were not asked for.
    pub(crate) fn drop_queued_answers(&self) {
        self.model.answers.lock().unwrap().clear();
    }

    /// Every entry of the log, oldest first.
    pub(crate) fn entries(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.state.path().join("recurgent.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn last_entry(&self) -> Value {
        self.entries().pop().unwrap()
    }

    /// A program that sums up a text.
    pub(crate) fn writes_summary(&self) {
        self.queue_program(
            "editor.summarise",
            "def summarise(text):\n    return infer('Sum up in one sentence', text)",
            "def summarise(text)\n  infer('Sum up in one sentence', text)\nend",
        );
    }

    /// A program that names the topic of a text.
    pub(crate) fn writes_topic(&self) {
        self.queue_program(
            "triage.topic",
            "def topic(mail):\n    return infer('Which topic?', mail, ['bug', 'praise'])",
            "def topic(mail)\n  infer('Which topic?', mail, ['bug', 'praise'])\nend",
        );
    }

    /// A program that names the topic of each text.
    pub(crate) fn writes_topics(&self) {
        self.queue_program(
            "triage.topics",
            "def topics(mails):\n    return infer('Which topic?', each=mails, schema=['bug', 'praise'])",
            "def topics(mails)\n  infer('Which topic?', each: mails, schema: ['bug', 'praise'])\nend",
        );
    }
}

/// The items of a batch as they were sent, in order.
pub(crate) fn sent_items(user: &str) -> Vec<Value> {
    let lines = user.lines().skip_while(|line| !line.starts_with("items, one on each line"));
    let item = |line: &str| {
        let (number, json) = line.split_once(": ")?;
        number.parse::<usize>().ok()?;
        serde_json::from_str(json).ok()
    };
    lines.skip(1).filter_map(item).collect()
}

/// The answers to a batch.
pub(crate) fn batch_reply(answers: impl IntoIterator<Item = Value>) -> Value {
    let numbered = answers.into_iter().enumerate();
    let entries: Vec<Value> =
        numbered.map(|(at, answer)| json!({"item": at + 1, "answer": answer})).collect();
    json!({ "answers": entries })
}
