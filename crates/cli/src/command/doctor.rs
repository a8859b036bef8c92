//! `recurgent doctor`: what is there, what is missing, and what to do about it.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::time::Instant;

use clap::Args;
use lifecycle::program::GeneratedProgram;
use lifecycle::prompt::Prompt;
use lifecycle::request::{Method, Role};
use recurgent::Language;
use recurgent::config::{Config, SettingOrigin};
use recurgent::environment::{self, InstallerCheck};
use recurgent::guest::Cancellation;
use recurgent::provider::{self, DraftRequest, ProgressListener, ProviderChoice, Service};
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;
use recurgent::worker::{Layer, Reached, Tier, Workers};
use serde_json::{Value, json};

use super::model::{has_engine, no_engine};
use super::settings::SettingFlags;
use crate::exit::{CommandFault, Exit};
use crate::render::paint::Style;
use crate::render::{self, Stream};

const EXAMPLES: &str = "\
Examples:
  recurgent doctor
  recurgent doctor --guest ruby --json
  recurgent doctor --live --base-url http://127.0.0.1:8080/v1 --model qwen2.5-coder";

/// Columns of a check's state and name.
const LABEL_COLUMNS: usize = 18;
/// Tokens the answer of a live check may have: models that think before they answer need more than it.
const LIVE_OUTPUT_TOKENS: u32 = 4096;

/// Check what agents need on this machine, and say what to do about what is missing
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorOptions {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Ask the model for a tiny program, to see that it answers
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    settings: SettingFlags,
}

/// One thing that was looked at.
struct Check {
    name: &'static str,
    state: State,
    /// What was found; when not ok, with what to do next.
    found: String,
}

/// How it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ok,
    /// Works, with less than there could be.
    Warn,
    /// Needed and broken; how a call would exit.
    Fail(Exit),
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail(_) => "fail",
        }
    }

    fn style(self) -> Style {
        match self {
            Self::Ok => Style::Good,
            Self::Warn => Style::Warning,
            Self::Fail(_) => Style::Bad,
        }
    }
}

impl DoctorOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        let checks = match self.settings.config() {
            Ok(config) => {
                let mut checks = examine(&config, self.live);
                checks.extend(self.live.then(|| live(&config)));
                checks
            }
            Err(fault) if fault.exit == Exit::Usage => return Err(fault),
            Err(fault) => vec![failing("config", Exit::Setup, fault.message)],
        };
        show(&checks, self.json)
    }
}

/// Shows what a configuration leads to.
pub(super) fn report(config: &Config) -> Result<Exit, CommandFault> {
    show(&examine(config, false), false)
}

/// Which model a configuration leads to, in words.
pub(super) fn provider_found(config: &Config) -> String {
    provider(config, false).found
}

fn show(checks: &[Check], as_json_object: bool) -> Result<Exit, CommandFault> {
    let exit = checks.iter().find_map(|check| match check.state {
        State::Fail(exit) => Some(exit),
        State::Ok | State::Warn => None,
    });
    if as_json_object {
        render::json(&as_json(checks, exit.is_none()))?;
    } else {
        render::lines(&as_lines(checks))?;
    }
    Ok(exit.unwrap_or(Exit::Ok))
}

fn as_json(checks: &[Check], healthy: bool) -> Value {
    let checks: Vec<Value> = checks
        .iter()
        .map(|check| json!({"name": check.name, "state": check.state.name(), "found": check.found}))
        .collect();
    json!({ "status": if healthy { "ok" } else { "error" }, "checks": checks })
}

fn as_lines(checks: &[Check]) -> Vec<String> {
    let paint = render::paint(Stream::Output);
    let room = render::room(Stream::Output);
    let lines = |check: &Check| {
        let state = paint.in_style(check.state.style(), &format!("{:<4}", check.state.name()));
        let label = format!("{state}  {:<10}  ", check.name);
        render::beside(&label, LABEL_COLUMNS.max(check.name.len() + 8), &check.found, room)
    };
    checks.iter().flat_map(lines).collect()
}

fn ok(name: &'static str, found: impl Into<String>) -> Check {
    Check { name, state: State::Ok, found: found.into() }
}

fn warning(name: &'static str, found: impl Into<String>) -> Check {
    Check { name, state: State::Warn, found: found.into() }
}

fn failing(name: &'static str, exit: Exit, found: impl Into<String>) -> Check {
    Check { name, state: State::Fail(exit), found: found.into() }
}

fn examine(config: &Config, live: bool) -> Vec<Check> {
    let provider = provider(config, live);
    let mut checks = vec![config_file(config), store(config), log(config), provider];
    match Workers::start(&config.worker_options()) {
        Ok(workers) => {
            let wanted = config.agent_options().language;
            checks.extend(Language::ALL.map(|language| interpreter(&workers, language, wanted)));
            checks.extend(sandbox(config, workers.containment()));
            checks.extend(installers(config, &workers));
        }
        Err(error) => checks.push(failing(
            "workers",
            Exit::Unavailable,
            format!("cannot be started: {error}; free some processes or memory and run again"),
        )),
    }
    checks
}

/// What installing packages needs. Programs without packages run without it.
fn installers(config: &Config, workers: &Workers) -> Vec<Check> {
    let found = environment::examine(&config.environment_options(), workers);
    let check = |it: InstallerCheck| match it.found {
        Ok(found) => ok(it.name, found),
        Err(problem) => warning(it.name, problem),
    };
    found.into_iter().map(check).collect()
}

fn config_file(config: &Config) -> Check {
    match config.file() {
        Some(path) if path.exists() => ok("config", path.display().to_string()),
        Some(path) => {
            ok("config", format!("defaults; {} would be read if it existed", path.display()))
        }
        None => warning("config", "no home directory; set RECURGENT_CONFIG to use a file"),
    }
}

fn store(config: &Config) -> Check {
    let probe = || -> Result<Check, CommandFault> {
        let path = config.store_path()?;
        let store = SqliteStore::open(&path)?;
        // No session has this name, so nothing goes; but it takes a write transaction to find out.
        store.remove_session("")?;
        let sessions = match store.sessions()?.len() {
            1 => "1 session".to_owned(),
            several => format!("{several} sessions"),
        };
        let found = format!("{}: opens, current, writable; {sessions}", path.display());
        let notices = store.notices();
        Ok(if notices.is_empty() {
            ok("store", found)
        } else {
            warning("store", notices.join("; "))
        })
    };
    probe().unwrap_or_else(|fault| failing("store", Exit::Setup, fault.message))
}

fn log(config: &Config) -> Check {
    match config.log_path() {
        Ok(None) => warning("log", "off; remove the setting `log` to have one line per call"),
        Ok(Some(path)) => match appendable(&path) {
            Ok(()) => ok("log", path.display().to_string()),
            // A failing log never fails a call.
            Err(error) => warning(
                "log",
                format!("{}: {error}; make it writable, or set RECURGENT_LOG", path.display()),
            ),
        },
        Err(fault) => failing("log", Exit::Setup, fault.to_string()),
    }
}

/// Whether a line could be appended; leaves nothing behind.
fn appendable(path: &Path) -> io::Result<()> {
    if path.exists() {
        return OpenOptions::new().append(true).open(path).map(drop);
    }
    let probe = path.with_extension(format!("probe-{}", std::process::id()));
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    OpenOptions::new().create_new(true).append(true).open(&probe)?;
    fs::remove_file(probe)
}

/// What would be asked. `live`: the model is asked in any case, so nothing else tries its address.
fn provider(config: &Config, live: bool) -> Check {
    let source = config.entries().find(|(key, ..)| key.name == "provider");
    let set_by = source.map_or(&SettingOrigin::Default, |(_, _, source)| source);
    let options = match config.provider_options() {
        Ok(options) => options,
        Err(fault) => return failing("provider", Exit::Setup, fault.to_string()),
    };
    // Made, not only chosen: its file must be there.
    let chosen = provider::make(&options).and_then(|_| provider::choose(&options));
    match chosen {
        Err(fault) => failing("provider", Exit::Setup, format!("{fault} (set by: {set_by})")),
        Ok(ProviderChoice::Scripted(file)) => {
            ok("provider", format!("scripted:{} (set by: {set_by})", file.display()))
        }
        Ok(ProviderChoice::Replay(file)) => {
            ok("provider", format!("replay:{} (set by: {set_by})", file.display()))
        }
        Ok(ProviderChoice::Service(service)) => service_check(&service, live),
        Ok(ProviderChoice::Embedded(_)) if !has_engine(config) => {
            failing("provider", Exit::Setup, no_engine().message)
        }
        Ok(ProviderChoice::Embedded(model)) => ok(
            "provider",
            format!(
                "embedded: {} at {}, on this machine, no key ({})",
                model.name,
                model.path.display(),
                model.why
            ),
        ),
        Ok(ProviderChoice::None { why }) => {
            warning("provider", format!("stored programs run, new ones cannot be written; {why}"))
        }
    }
}

fn service_check(service: &Service, live: bool) -> Check {
    let key = service.key_source.as_deref();
    let found = format!(
        "{}: {} at {}, key: {} ({})",
        service.wire.name,
        service.model,
        service.base_url,
        key.unwrap_or("none"),
        service.why
    );
    match (key, service.wire.key_variable) {
        _ if !live && service.base_url.is_silent() => warning(
            "provider",
            format!("{found}; nothing answers there: start the server, or correct base_url"),
        ),
        (None, Some(variable)) => {
            warning("provider", format!("{found}; set {variable} or api_key_file to use it"))
        }
        (Some(_), _) | (None, None) => ok("provider", found),
    }
}

/// Asks the model for the smallest program there is.
fn live(config: &Config) -> Check {
    let asked = || -> Result<String, String> {
        let options = config.provider_options().map_err(|fault| fault.to_string())?;
        let provider = provider::make(&options).map_err(|fault| fault.to_string())?;
        let (role, method) = (Role::parse("doctor"), Method::parse("ping"));
        let (role, method) =
            role.and_then(|role| Ok((role, method?))).map_err(|f| f.to_string())?;
        let agent = config.agent_options();
        let request = DraftRequest {
            role: &role,
            method: &method,
            language: agent.language,
            model: agent.model.as_str(),
            timeout: agent.provider_timeout,
            max_output_tokens: Some(LIVE_OUTPUT_TOKENS),
            is_retry: false,
            sample: 0,
            seed: 0,
            cancellation: &Cancellation::default(),
            progress: ProgressListener::default(),
        };
        let began = Instant::now();
        let draft = provider.draft(&live_prompt(), &request).map_err(|fault| fault.to_string())?;
        let program = GeneratedProgram::parse(agent.language, &draft.payload);
        program.map_err(|fault| format!("it answered, but not with a program: {fault}"))?;
        let usage = draft.usage;
        Ok(format!(
            "{} answered in {:.1} s; {} tokens sent, {} received, {}",
            provider.model(agent.model.as_str()),
            began.elapsed().as_secs_f64(),
            usage.input_tokens,
            usage.output_tokens,
            usage.cost.map_or("cost unknown".to_owned(), |cost| format!("${:.6}", cost.usd()))
        ))
    };
    match asked() {
        Ok(found) => ok("live", found),
        Err(problem) => failing("live", Exit::Setup, problem),
    }
}

fn live_prompt() -> Prompt {
    Prompt {
        system: "Answer with one JSON object {\"code\": \"...\", \"dependencies\": []} and nothing else."
            .to_owned(),
        user: "Write the program `result = 1`.".to_owned(),
        head: None,
    }
}

fn interpreter(workers: &Workers, language: Language, wanted: Language) -> Check {
    match workers.probe(language) {
        Ok(found) => ok(language.name(), format!("{} at {}", found.version, found.path.display())),
        Err(problem) if language == wanted => failing(language.name(), Exit::Unavailable, problem),
        Err(problem) => warning(language.name(), problem),
    }
}

/// The tier, and each layer with what it adds or why it is missing.
fn sandbox(config: &Config, reached: &Reached) -> Vec<Check> {
    let minimum = config.worker_options().minimum_tier;
    let tier = reached.tier;
    let promise = match tier {
        _ if !reached.reaches(Tier::Process) => "nothing would hold a program back",
        Tier::Sealed => {
            "programs see none of your files, processes or network, and could touch none"
        }
        Tier::Namespaces => "programs see none of your files, processes or network",
        Tier::Landlock => "the kernel refuses your files, processes and network to programs",
        Tier::Process => {
            "programs run in their own processes with limits, but see your files and network; \
             run only programs you would run yourself"
        }
    };
    let found = format!("{}: {promise}", reached.name());
    let whole = match tier {
        _ if !reached.reaches(minimum) => failing(
            "sandbox",
            Exit::Unavailable,
            format!("{found}; minimum_sandbox_tier is {minimum}, so no program is run"),
        ),
        Tier::Sealed | Tier::Namespaces => ok("sandbox", found),
        Tier::Landlock | Tier::Process => warning("sandbox", found),
    };
    let layers = Layer::ALL.into_iter().map(|layer| {
        match reached.missing.iter().find(|(missing, _)| *missing == layer) {
            Some((_, why)) => warning(layer.name(), format!("missing: {why}")),
            None => ok(layer.name(), layer.adds()),
        }
    });
    std::iter::once(whole).chain(layers).collect()
}
