//! Drives workers the way a call does: builds orders, listens, answers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lifecycle::context::Context;
use lifecycle::dialect::Language;
use lifecycle::execution::{Environment, Order, WorkerFault};
use lifecycle::guardrail::GuardrailPolicy;
use lifecycle::program::{GeneratedProgram, VettedProgram, vet};
use lifecycle::request::{
    Allowance, Arguments, CallId, CallRequest, Lineage, Method, Role, TraceId,
};
use recurgent::grants::Grants;
use recurgent::guest::{Answer, Ask, Cancellation, Done, RunLimits, TurnEvent};
use recurgent::worker::{WorkerGuest, WorkerTurn};
use recurgent::worker::{WorkerOptions, Workers};
use serde_json::{Map, Value, json};

pub(crate) const BOTH: [Language; 2] = [Language::Python, Language::Ruby];

/// One attempt.
pub(crate) struct Program<'a> {
    pub(crate) language: Language,
    pub(crate) code: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) proven: bool,
    pub(crate) args: Vec<Value>,
    pub(crate) context: Context,
    /// The directory of an environment.
    pub(crate) environment: Option<&'a str>,
    pub(crate) limit: Duration,
    pub(crate) cancellation: Cancellation,
    pub(crate) grants: Grants,
}

impl Default for Program<'_> {
    fn default() -> Self {
        Self {
            language: Language::Python,
            code: "",
            agent: "agent",
            proven: false,
            args: Vec::new(),
            context: Context::default(),
            environment: None,
            limit: Duration::from_mins(2),
            cancellation: Cancellation::default(),
            grants: Grants::default(),
        }
    }
}

/// A program vetted and ready to be ordered.
pub(crate) struct Prepared<'a> {
    program: &'a Program<'a>,
    request: CallRequest,
    vetted: VettedProgram,
    environment: Environment,
}

impl<'a> Prepared<'a> {
    pub(crate) fn new(program: &'a Program<'a>) -> Self {
        let request = program.request();
        let generated =
            GeneratedProgram::parse(program.language, &json!({"code": program.code})).unwrap();
        // Workers must survive exactly the programs that guardrails would reject.
        let policy = GuardrailPolicy { allow_processes: true, ..GuardrailPolicy::default() };
        let vetted = vet(generated, &request, &[], &policy).unwrap();
        let root = program.environment.map(str::to_owned);
        let environment = Environment { id: root.clone(), root, ..Environment::bare() };
        Self { program, request, vetted, environment }
    }
}

impl Program<'_> {
    fn request(&self) -> CallRequest {
        let big: Value = serde_json::from_str("99999999999999999999").unwrap();
        CallRequest {
            id: CallId("call-1".into()),
            lineage: Lineage::Root { trace: TraceId::parse("trace-1").unwrap() },
            role: Role::parse("tester").unwrap(),
            method: Method::parse("check").unwrap(),
            arguments: Arguments {
                args: self.args.clone(),
                kwargs: Map::from_iter([("n".to_owned(), big)]),
            },
            contract: None,
            language: self.language,
            context: self.context.clone(),
            manifest: None,
            allowance: Allowance::default(),
        }
    }
}

/// Workers of one test, distinguished from those of concurrent tests by their directory.
pub(crate) struct Driver {
    workers: Option<Workers>,
    guests: BTreeMap<Language, WorkerGuest>,
    scratch: PathBuf,
}

impl Driver {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(adjust: impl FnOnce(&mut WorkerOptions)) -> Self {
        static DRIVERS: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "recurgent-test-{}-{}",
            std::process::id(),
            DRIVERS.fetch_add(1, Ordering::Relaxed)
        );
        let scratch = tempfile::env::temp_dir().join(name);
        #[expect(clippy::disallowed_methods, reason = "a test has no configuration")]
        let mut options = WorkerOptions::new(std::env::var_os("PATH").unwrap(), scratch.clone());
        options.max_restarts = u32::MAX; // hostile programs crash one worker after another
        adjust(&mut options);
        let workers = Workers::start(&options).unwrap();
        let guests = BOTH.into_iter().map(|language| (language, workers.guest(language))).collect();
        Self { workers: Some(workers), guests, scratch }
    }

    pub(crate) fn guest(&self, language: Language) -> &WorkerGuest {
        &self.guests[&language]
    }

    /// Ends the workers but keeps the guests.
    pub(crate) fn close(&mut self) {
        self.workers = None;
    }

    /// Has an interpreter booted, so that what follows measures something else.
    pub(crate) fn boot(&self, language: Language) {
        self.run(&Program { language, code: "1", ..Program::default() }).unwrap();
    }

    /// Runs a program that asks nothing.
    pub(crate) fn run(&self, program: &Program<'_>) -> Result<Done, WorkerFault> {
        self.ask(program, |ask| panic!("unexpected {ask:?}"))
    }

    /// Runs a program, answering what it asks.
    pub(crate) fn ask(
        &self,
        program: &Program<'_>,
        answer: impl FnMut(Ask) -> Answer,
    ) -> Result<Done, WorkerFault> {
        converse(&mut self.try_start(&Prepared::new(program))?, answer)
    }

    /// Runs a program made ready before, so that only the exchange is timed.
    pub(crate) fn exchange(&self, prepared: &Prepared<'_>) -> Result<Done, WorkerFault> {
        converse(&mut self.try_start(prepared)?, |ask| panic!("unexpected {ask:?}"))
    }

    pub(crate) fn start(&self, program: &Program<'_>) -> WorkerTurn {
        self.try_start(&Prepared::new(program)).unwrap()
    }

    fn try_start(&self, prepared: &Prepared<'_>) -> Result<WorkerTurn, WorkerFault> {
        let Prepared { program, request, vetted, environment } = prepared;
        let order = Order { request, program: vetted, proven: program.proven };
        let run_limits = RunLimits {
            agent: program.agent,
            time_limit: program.limit,
            cancellation: &program.cancellation,
            grants: &program.grants,
        };
        self.guest(program.language).start(environment, &order, &run_limits)
    }

    /// What contains its workers.
    pub(crate) fn containment(&self) -> &recurgent::worker::Reached {
        self.workers.as_ref().unwrap().containment()
    }

    /// The interpreter its workers run in.
    pub(crate) fn interpreter(&self, language: Language) -> PathBuf {
        self.workers.as_ref().unwrap().probe(language).unwrap().path
    }

    /// The zygote of a worker of its: still alive when this is asked.
    pub(crate) fn zygote(&self, language: Language, environment: Option<&str>) -> u32 {
        let code = "1";
        let kept = Program { language, code, proven: true, environment, ..Program::default() };
        let worker = self.run(&kept).unwrap().worker.pid.unwrap();
        parent(worker)
    }

    /// Waits until a process that has this number for itself has ended.
    pub(crate) fn await_end(&self, inside: u64) {
        let has_number = |pid: &u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let numbers = status.lines().find(|line| line.starts_with("NSpid:"));
            numbers.is_some_and(|line| line.ends_with(&format!("\t{inside}")))
        };
        let begun = std::time::Instant::now();
        let lives =
            || descendants().iter().any(|pid| has_number(pid) && self.owns(*pid) && is_alive(*pid));
        while lives() {
            assert!(begun.elapsed() < Duration::from_mins(2), "process {inside} is still alive");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Where its workers keep their files.
    pub(crate) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Whether a process is one of this driver's workers or zygotes.
    pub(crate) fn owns(&self, pid: u32) -> bool {
        let of = |file: &str| format!("/proc/{pid}/{file}");
        let scratch = self.scratch.to_string_lossy();
        std::fs::read_link(of("cwd")).is_ok_and(|cwd| cwd.starts_with(&self.scratch))
            || std::fs::read_to_string(of("mountinfo"))
                .is_ok_and(|mounts| mounts.contains(scratch.as_ref()))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.close();
        let left: Vec<u32> = descendants().into_iter().filter(|pid| self.owns(*pid)).collect();
        let _ = std::fs::remove_dir(&self.scratch);
        if !std::thread::panicking() {
            assert!(left.is_empty(), "processes left: {left:?}");
            assert!(!self.scratch.exists(), "files left in {}", self.scratch.display());
        }
    }
}

/// Whether a process runs; a zombie does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    status(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// The parent of a process.
pub(crate) fn parent(pid: u32) -> u32 {
    status(pid).unwrap().1
}

/// Every process below this one.
pub(crate) fn descendants() -> Vec<u32> {
    let all: Vec<(u32, u32)> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid: u32| Some((pid, status(pid)?.1)))
        .collect();
    let mut found = vec![std::process::id()];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found.remove(0);
    found
}

/// State and parent.
fn status(pid: u32) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

fn converse(
    turn: &mut WorkerTurn,
    mut answer: impl FnMut(Ask) -> Answer,
) -> Result<Done, WorkerFault> {
    loop {
        match turn.listen()? {
            TurnEvent::Ask(ask) => turn.answer(&answer(ask))?,
            TurnEvent::Done(done) => return Ok(*done),
        }
    }
}
