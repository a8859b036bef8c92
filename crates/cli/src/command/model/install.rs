//! `recurgent model install`: asks, fetches, shows how far it is.

use std::cell::RefCell;
use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::Path;
use std::time::{Duration, Instant};

use recurgent::Cancellation;
use recurgent::config::Config;
use recurgent::models::{
    InstallFault, InstallProgress, InstallRequest, InstalledModel, KnownModel, ModelOptions,
    install,
};
use serde_json::json;

use super::{has_engine, installed_json, model_options, no_engine};
use crate::exit::{CommandFault, Exit};
use crate::interrupt::Interrupt;
use crate::render::{self, Stream};

/// Time between two changes of the bar on a terminal.
const BAR_INTERVAL: Duration = Duration::from_millis(200);
/// Time between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Columns of the bar.
const BAR_COLUMNS: u64 = 24;

/// The flags of the command.
pub(super) struct InstallFlags<'a> {
    /// The model; `None`: the usual one.
    pub(super) name: Option<&'a str>,
    /// A file to take it from.
    pub(super) from: Option<&'a Path>,
    /// Whether it may be fetched without a question.
    pub(super) is_agreed: bool,
}

pub(super) fn run(
    config: &Config,
    asked: &InstallFlags<'_>,
    as_json: bool,
) -> Result<Exit, CommandFault> {
    if !has_engine(config) {
        return Err(no_engine());
    }
    let options = model_options(config)?;
    let interrupt = Interrupt::install()?;
    let installed = interrupt.during(|cancellation| {
        let model = find(&options, asked, &cancellation)?;
        let folder = super::folder(&options)?;
        let is_there = folder.installed().iter().any(|found| found.name == model.name);
        // A file of this machine is copied, nothing is fetched: no question.
        if asked.from.is_none() && !asked.is_agreed && !is_there && !confirm(&model)? {
            return Err(CommandFault::cancelled("nothing was fetched"));
        }
        fetch(&options, &model, asked.from, &cancellation)
    })?;
    if as_json {
        render::json(&json!({"status": "ok", "installed": installed_json(&installed)}))?;
    } else {
        let (name, path) = (&installed.name, installed.path.display());
        render::text(&format!("{name} is installed and verified: {path}"))?;
    }
    Ok(Exit::Ok)
}

fn find(
    options: &ModelOptions,
    asked: &InstallFlags<'_>,
    cancellation: &Cancellation,
) -> Result<KnownModel, CommandFault> {
    if let Some(file) = asked.from {
        return KnownModel::of_file(file, options, cancellation).map_err(|problem| fault(&problem));
    }
    options.known_model(asked.name).cloned().ok_or_else(|| {
        let known: Vec<&str> = options.known.iter().map(|model| model.name.as_str()).collect();
        CommandFault::missing(format!(
            "no model is called {:?}; known are {}; --from FILE installs any other, and models_file names more",
            asked.name.unwrap_or_default(),
            known.join(", ")
        ))
    })
}

/// Asks on a terminal. Without one, nothing is fetched unless `--yes` says so.
fn confirm(model: &KnownModel) -> Result<bool, CommandFault> {
    if !can_ask() {
        return Err(CommandFault::usage(format!(
            "{} is a download of {}, and there is no terminal to ask for consent; add --yes to fetch it",
            model.name,
            render::size(model.bytes)
        )));
    }
    let (size, licence) = (render::size(model.bytes), &model.licence);
    ask(&format!("Install {} ({size}, once; licence {licence})? [Y/n] ", model.name))
}

/// Whether a person can be asked.
pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal() && render::is_terminal(Stream::Error)
}

fn ask(question: &str) -> Result<bool, CommandFault> {
    render::replace_line(question);
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    let unreadable = |error| CommandFault::setup(format!("cannot read the answer: {error}"));
    let read = read.map_err(unreadable)?;
    let answer = answer.trim().to_ascii_lowercase();
    Ok(read > 0 && matches!(answer.as_str(), "" | "y" | "yes"))
}

/// Installs a model and shows how far it is.
fn fetch(
    options: &ModelOptions,
    model: &KnownModel,
    from: Option<&Path>,
    cancellation: &Cancellation,
) -> Result<InstalledModel, CommandFault> {
    let meter = RefCell::new(Meter::new(render::is_terminal(Stream::Error)));
    let report = |progress: InstallProgress<'_>| meter.borrow_mut().show(&progress);
    let request = InstallRequest { options, model, from, cancellation, report: &report };
    let installed = install(&request);
    meter.borrow_mut().end();
    installed.map_err(|problem| fault(&problem))
}

fn fault(fault: &InstallFault) -> CommandFault {
    match fault {
        InstallFault::Cancelled => CommandFault::cancelled(fault.to_string()),
        InstallFault::NoHomeDirectory
        | InstallFault::Busy(_)
        | InstallFault::Space { .. }
        | InstallFault::TooMany { .. }
        | InstallFault::File { .. } => CommandFault::setup(fault.to_string()),
        InstallFault::Sources { .. } => CommandFault::failed(fault.to_string()),
    }
}

/// Offers to install the usual model to a person whose call needs one; says whether it is there now.
pub(super) fn offer(config: &Config, cancellation: &Cancellation) -> Result<bool, CommandFault> {
    let options = model_options(config)?;
    let Some(model) = options.known_model(None).filter(|_| can_ask()) else { return Ok(false) };
    render::notice("this call needs a model, and none is configured");
    if !confirm(model)? {
        return Ok(false);
    }
    fetch(&options, model, None, cancellation).map(|_| true)
}

/// A bar on a terminal, lines elsewhere.
struct Meter {
    is_terminal: bool,
    is_open: bool,
    shown: Option<Instant>,
    /// When the current phase began, and its bytes then.
    began: Option<(Phase, Instant, u64)>,
}

/// What bytes are counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Fetching,
    Verifying,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Fetching => "fetching",
            Self::Verifying => "verifying",
        }
    }
}

impl Meter {
    fn new(is_terminal: bool) -> Self {
        Self { is_terminal, is_open: false, shown: None, began: None }
    }

    fn show(&mut self, progress: &InstallProgress<'_>) {
        match progress {
            InstallProgress::Waiting => self.line("another process installs it; waiting"),
            InstallProgress::Asking(source) => self.line(&format!("asking {source}")),
            InstallProgress::Failed { source, problem } => {
                self.line(&format!("{source} failed: {problem}"));
            }
            InstallProgress::Fetched { done, total } => self.bytes(Phase::Fetching, *done, *total),
            InstallProgress::Verified { done, total } => {
                self.bytes(Phase::Verifying, *done, *total);
            }
        }
    }

    fn line(&mut self, text: &str) {
        self.end();
        render::notice(text);
    }

    fn bytes(&mut self, phase: Phase, done: u64, total: u64) {
        let now = Instant::now();
        let (since, start) = match self.began {
            Some((known, since, start)) if known == phase && start <= done => (since, start),
            Some(_) | None => {
                self.began = Some((phase, now, done));
                (now, done)
            }
        };
        let interval = if self.is_terminal { BAR_INTERVAL } else { LINE_INTERVAL };
        let is_due = self.shown.is_none_or(|shown| now.duration_since(shown) >= interval);
        if !is_due && (done < total || !self.is_terminal) {
            return;
        }
        self.shown = Some(now);
        let rate = rate(done - start, now.duration_since(since));
        let text = format!("{} {}", phase.name(), described(done, total, rate));
        if self.is_terminal {
            self.is_open = true;
            render::replace_line(&format!("{} {text}", bar(done, total)));
        } else {
            render::note(&text);
        }
    }

    /// Ends the line of the bar.
    fn end(&mut self) {
        if self.is_open {
            render::note("");
        }
        (self.is_open, self.shown, self.began) = (false, None, None);
    }
}

/// Bytes per second.
fn rate(bytes: u64, time: Duration) -> u64 {
    let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    bytes.saturating_mul(1000).checked_div(milliseconds).unwrap_or_default()
}

fn described(done: u64, total: u64, rate: u64) -> String {
    let sizes = format!("{} of {}", render::size(done), render::size(total));
    match (total - done).checked_div(rate) {
        Some(left) => format!("{sizes}, {}/s, {} left", render::size(rate), duration(left)),
        None => sizes,
    }
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

fn bar(done: u64, total: u64) -> String {
    let filled = done.saturating_mul(BAR_COLUMNS).checked_div(total).unwrap_or_default();
    (0..BAR_COLUMNS).map(|column| if column < filled { '█' } else { '░' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_rate_and_remaining_time() {
        assert_eq!(rate(5_000_000, Duration::from_secs(2)), 2_500_000);
        assert_eq!(rate(1, Duration::ZERO), 0);
        let shown = described(100_000_000, 1_000_000_000, 10_000_000);
        assert_eq!(shown, "100.0 MB of 1.0 GB, 10.0 MB/s, 1 min 30 s left");
        assert_eq!(described(1, 10, 0), "1 B of 10 B");
        assert_eq!(duration(7265), "2 h 01 min");
        assert_eq!(bar(1, 2).chars().filter(|c| *c == '█').count(), 12);
    }
}
