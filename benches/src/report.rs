//! The results of a run: rows, curves, machine and time.

use std::fmt::Write as _;
use std::process::Command;

use lifecycle::dialect::Language;
use serde::Serialize;

use crate::cost::{Cost, Guests};
use crate::curve::Series;
use crate::fixture::{self, MeasurementOptions};
use crate::job::BenchJob;
use crate::options::Options;
use crate::row::{Measurement, Row, RowVerdict, judge};
use crate::timing::Effort;

/// The results of a run.
#[derive(Debug, Serialize)]
pub(crate) struct CostReport {
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) machine: String,
    /// Whether only a few rounds were run, so that the numbers mean nothing.
    pub(crate) quick: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) curves: Vec<Series>,
    /// Whether every bound holds.
    pub(crate) pass: bool,
}

impl CostReport {
    /// Runs all measurements in sequence and reports progress on stderr.
    pub(crate) fn make(options: &Options) -> Self {
        let (mut rows, mut curves) = (Vec::new(), Vec::new());
        let machine = machine(); // first, for its load is then that of others
        let wanted = |job: &BenchJob| {
            let job = *job;
            let languages = job.languages(&options.guests);
            languages.into_iter().map(move |language| (job, language))
        };
        let pairs: Vec<(BenchJob, Language)> = options.jobs.iter().flat_map(wanted).collect();
        for (at, (job, language)) in pairs.iter().enumerate() {
            eprint!("[{:>2}/{}] {} {language} … ", at + 1, pairs.len(), job.name());
            let job_options = MeasurementOptions { language: *language, effort: options.effort };
            match job {
                BenchJob::Row(cost) => {
                    let row = row(cost, job_options, job);
                    eprintln!("{}", progress(&row));
                    rows.push(row);
                }
                BenchJob::Curve(curve) => {
                    let series = curve.series(*language, job.found(job_options));
                    eprintln!("{}", trail(&series));
                    curves.push(series);
                }
            }
        }
        let good = |verdict: RowVerdict| verdict.is_good();
        let pass = rows.iter().all(|row| good(row.verdict))
            && curves.iter().all(|series| good(series.verdict));
        Self {
            date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
            commit: commit(),
            machine,
            quick: options.effort == Effort::Quick,
            rows,
            curves,
            pass,
        }
    }

    /// The report as text for a terminal.
    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let mut line = |[name, guest, ours, floor, ratio, bound, verdict]: [&str; 7]| {
            let _ = writeln!(
                text,
                "{name:<22} {guest:<7} {ours:>12} {floor:>12} {ratio:>7}  {bound:<12} {verdict}"
            );
        };
        if !self.rows.is_empty() {
            line(["row", "guest", "measured", "floor", "ratio", "bound", ""]);
        }
        for row in &self.rows {
            let [ours, floor] =
                [row.measured, row.floor].map(|it| it.map_or(String::new(), |it| it.to_string()));
            let ratio = row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
            let bound = row.bound.to_string();
            let verdict =
                format!("{} {}", row.verdict.name(), row.note.as_deref().unwrap_or_default());
            line([row.name, guest(row.guest), &ours, &floor, &ratio, &bound, verdict.trim_end()]);
        }
        for series in &self.curves {
            let _ =
                writeln!(text, "{:<22} {:<7} {}", series.curve, series.guest.name(), trail(series));
        }
        let _ = writeln!(text, "\n{} · {} · {}", self.date, self.commit, self.machine);
        let skipped = self.verdicts().filter(|verdict| *verdict == RowVerdict::Skipped).count();
        if skipped > 0 {
            let _ = writeln!(text, "{skipped} could not be measured here, and say why.");
        }
        text.push_str(match (self.quick, self.is_good()) {
            (true, true) => "A quick run: it shows that everything works, not what it costs.",
            (true, false) => "Something does not work.",
            (false, true) => "Every bound that was measured holds.",
            (false, false) => "Bounds are missed. Is the machine quiet?",
        });
        text
    }

    /// Whether every bound holds. For a quick run: whether every row could be measured.
    pub(crate) fn is_good(&self) -> bool {
        let is_broken = |verdict: RowVerdict| verdict == RowVerdict::Broken;
        if self.quick { !self.verdicts().any(is_broken) } else { self.pass }
    }

    fn verdicts(&self) -> impl Iterator<Item = RowVerdict> {
        let rows = self.rows.iter().map(|row| row.verdict);
        rows.chain(self.curves.iter().map(|series| series.verdict))
    }
}

fn row(cost: &Cost, job_options: MeasurementOptions, job: &BenchJob) -> Row {
    let found = job.found::<Measurement>(job_options);
    let (verdict, note) = judge(cost.bound, &found);
    let measurement = found.ok();
    Row {
        name: cost.name,
        guest: (cost.guests == Guests::Each).then_some(job_options.language),
        what: cost.what,
        measured: measurement.map(|measurement| measurement.ours),
        floor: measurement.and_then(|measurement| measurement.floor),
        floor_is: cost.floor,
        ratio: measurement.and_then(|measurement| measurement.ratio),
        bound: cost.bound,
        verdict,
        note,
    }
}

pub(crate) fn guest(guest: Option<Language>) -> &'static str {
    guest.map_or("", Language::name)
}

fn progress(row: &Row) -> String {
    let number = match (row.ratio, row.measured) {
        (Some(ratio), _) => format!("× {ratio:.2}"),
        (None, Some(measured)) => measured.to_string(),
        (None, None) => row.note.clone().unwrap_or_default(),
    };
    format!("{number} ({}) {}", row.bound, row.verdict.name())
}

/// The ratios of a curve, in one line.
fn trail(series: &Series) -> String {
    let points =
        series.points.iter().map(|point| format!("{}: × {:.2}", short(point.x), point.ratio));
    let bound = series.flat.map_or(String::new(), |flat| format!("  (≤ {flat} ×)"));
    let verdict = series.verdict.name();
    let note = series.note.as_deref().unwrap_or_default();
    format!("{}{bound} {verdict} {note}", points.collect::<Vec<_>>().join("  "))
        .trim_end()
        .to_owned()
}

/// A count as an axis label.
pub(crate) fn short(count: f64) -> String {
    match count {
        count if count >= 1e6 => format!("{}M", count / 1e6),
        count if count >= 1e3 => format!("{}k", count / 1e3),
        count => count.to_string(),
    }
}

/// The commit; with `+` if there are uncommitted changes.
fn commit() -> String {
    let git = |words: &[&str]| {
        let said = Command::new("git").args(words).current_dir(env!("CARGO_MANIFEST_DIR")).output();
        said.ok()
            .filter(|said| said.status.success())
            .map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_owned() };
    let is_changed = git(&["status", "--porcelain", "--", ":/crates", ":/benches"])
        .is_some_and(|said| !said.is_empty());
    if is_changed { head + "+" } else { head }
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let name = rustix::system::uname();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let nice = rustix::process::getpriority_process(None).unwrap_or_default();
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": ")).map_or("", |(_, model)| model);
    format!(
        "{cores} cores {model}, {} {} {}, sandbox {}, load {load} before, nice {nice}",
        name.sysname().to_string_lossy(),
        name.release().to_string_lossy(),
        name.machine().to_string_lossy(),
        fixture::sandbox()
    )
}
