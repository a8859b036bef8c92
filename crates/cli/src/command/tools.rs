//! `recurgent tools`: stored programs and the tools agents forged, their health, and people's corrections.

mod correct;
mod diff;
mod list;
mod method_args;
mod show;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use lifecycle::excerpt::counted;
use lifecycle::recommendation::Recommendation;
use lifecycle::request::Role;
use recurgent::store::bundle::{Bundle, ToolEntry};
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;
use recurgent::upkeep::{self, Condition, Health};
use serde_json::{Value, json};

use super::age::age;
use super::settings::VerbFlags;
use super::store::{export, import, opened};
use super::trace::full_call_id;
use crate::exit::{CommandFault, Exit};
use crate::render::paint::{Style, clean};
use crate::render::table::{Column, Table, TableCell, cell, plain};
use crate::render::{self, Stream};
use method_args::{MethodArgs, Pinning};

/// Most names in a message.
const MAX_NAMES: usize = 12;

const EXAMPLES: &str = "\
Examples:
  recurgent tools list
  recurgent tools show web_fetcher
  recurgent tools health
  recurgent tools recommend --json
  recurgent tools stale --older-than 14d
  recurgent tools prune --older-than 30d                what would go; nothing is removed
  recurgent tools prune --older-than 30d --yes
  recurgent tools rollback web_fetcher fetch            back to the version that ran before
  recurgent tools reject calculator double --because \"it adds one\"
  recurgent tools teach calculator double 4 --gives 8   a call and its right answer
  recurgent tools withdraw calculator double 4          the example of this call
  recurgent tools test calculator double                examples and recorded calls, run again
  recurgent tools edit calculator double                in your editor; tested before it runs
  recurgent tools rm calculator double
  recurgent tools pin web_fetcher fetch                 nothing replaces the one that runs
  recurgent tools export backup web_fetcher unit_converter
  recurgent tools import backup";

/// List, test and correct stored programs and the tools that agents forged
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ToolsOptions {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    flags: VerbFlags,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Every tool, most used first, and every stored program
    List,
    /// Its contract, methods with signatures, memory keys, versions side by side, examples, recorded calls and programs, and
    /// how it fares
    Show {
        /// The tool
        name: String,
    },
    /// How every tool fares: failures, weak successes, corrections, spent retries
    Health,
    /// What should be done about them, with the calls that say so; changes nothing
    Recommend {
        /// One tool or role only
        name: Option<String>,
    },
    /// Tools that were not used for a while
    Stale {
        /// How long, such as 12h or 30d
        #[arg(long, value_name = "AGE", default_value = "30d", value_parser = age)]
        older_than: Duration,
    },
    /// Remove tools that were not used for a while, with their programs; says what would go unless --yes is given
    Prune {
        /// How long, such as 12h or 30d
        #[arg(long, value_name = "AGE", default_value = "30d", value_parser = age)]
        older_than: Duration,
        /// Remove them
        #[arg(long, conflicts_with = "dry_run")]
        yes: bool,
        /// Only say what would go (the default)
        #[arg(long)]
        dry_run: bool,
    },
    /// Let an earlier version of a method's program run again
    Rollback {
        #[command(flatten)]
        line: MethodArgs,
        /// The version, by its checksum or the start of it; the one that ran before, if not given
        #[arg(long, value_name = "CHECKSUM")]
        to: Option<String>,
    },
    /// Hold on to the version that runs: nothing replaces it
    Pin {
        #[command(flatten)]
        line: MethodArgs,
        /// Let go of it again
        #[arg(long)]
        off: bool,
    },
    /// Take the program that runs out of service because it is wrong
    ///
    /// The last good version before it runs again. The model that writes the next one reads the reason.
    Reject {
        #[command(flatten)]
        line: MethodArgs,
        /// What is wrong
        #[arg(long, value_name = "TEXT")]
        because: Option<String>,
        /// The call whose answer was wrong, by its id, the beginning of it, or `last`: its answer is kept as an example of a wrong one
        #[arg(long, value_name = "ID")]
        call: Option<String>,
    },
    /// Keep a call and its right answer as an example: every later program must give it
    Teach(correct::TeachArgs),
    /// Withdraw the example of a call
    Withdraw(correct::ExampleCall),
    /// Run the examples and the recorded calls on the program that runs
    Test {
        #[command(flatten)]
        line: MethodArgs,
    },
    /// Change the program that runs, in your editor; it is vetted, and tested on examples and recorded calls
    Edit(correct::EditArgs),
    /// Remove the programs of a method, or everything stored for a role
    Rm {
        /// The tool or role
        role: String,
        /// The method; all of the role, if not given
        method: Option<String>,
    },
    /// Write tools with their programs and patterns to a new directory
    Export {
        /// The directory, which must be empty or new
        directory: PathBuf,
        /// These tools only
        names: Vec<String>,
    },
    /// Take in what an export, or the reference runtime, wrote
    Import {
        /// The directory
        directory: PathBuf,
    },
}

impl ToolsOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        if let Some(exit) = self.correct()? {
            return Ok(exit);
        }
        let store = opened(&self.flags.place)?;
        match &self.verb {
            Verb::Show { name } => show::show(&store, &known_role(&store, name)?, self.flags.json),
            Verb::Health => self.health(&store),
            Verb::Recommend { name } => {
                let role = name.as_deref().map(|name| known_role(&store, name)).transpose()?;
                self.recommend(&upkeep::recommend(&store, role.as_ref())?)
            }
            Verb::Stale { older_than } => {
                let stale = upkeep::stale(store.bundle(None)?, &upkeep::time_before(*older_than));
                self.stale(&stale)
            }
            Verb::Prune { older_than, yes, dry_run: _ } => self.prune(&store, *older_than, *yes),
            Verb::Rollback { line, to } => line.rollback(&store, to.as_deref(), self.flags.json),
            Verb::Pin { line, off } => {
                let pinning = if *off { Pinning::Free } else { Pinning::Pinned };
                line.pin(&store, pinning, self.flags.json)
            }
            Verb::Export { directory, names } => {
                export(&chosen(&store, names)?, directory, self.flags.json)
            }
            Verb::Import { directory } => return import(&store, directory, self.flags.json),
            Verb::Reject { .. }
            | Verb::List
            | Verb::Teach(_)
            | Verb::Withdraw(_)
            | Verb::Test { .. }
            | Verb::Edit(_)
            | Verb::Rm { .. } => Ok(()),
        }?;
        Ok(Exit::Ok)
    }

    /// Performs what needs a runtime, corrections and the list; `None`: the verb does not.
    fn correct(&self) -> Result<Option<Exit>, CommandFault> {
        let open = || correct::CorrectionCommands::open(&self.flags.place, self.flags.json);
        let exit = match &self.verb {
            Verb::Reject { line, because, call } => {
                let config = self.flags.place.config(&[])?;
                let call = call.as_deref().map(|id| full_call_id(id, &config)).transpose()?;
                open()?.reject(line, because.as_deref(), call.as_deref())
            }
            Verb::List => list::list(&open()?, self.flags.json).map(|()| Exit::Ok),
            Verb::Teach(args) => open()?.teach(args),
            Verb::Withdraw(call) => open()?.withdraw(call),
            Verb::Test { line } => open()?.test(line),
            Verb::Edit(args) => open()?.edit(args),
            Verb::Rm { role, method } => open()?.remove(role, method.as_deref()),
            Verb::Show { .. }
            | Verb::Health
            | Verb::Recommend { .. }
            | Verb::Stale { .. }
            | Verb::Prune { .. }
            | Verb::Rollback { .. }
            | Verb::Pin { .. }
            | Verb::Export { .. }
            | Verb::Import { .. } => return Ok(None),
        };
        exit.map(Some)
    }

    fn health(&self, store: &SqliteStore) -> Result<(), CommandFault> {
        let tools = store.bundle(None)?.tools;
        let corrected = upkeep::corrected_answers(store)?;
        let healths: Vec<Health> = tools
            .iter()
            .map(|tool| upkeep::health(store, tool, &corrected))
            .collect::<Result<_, _>>()?;
        if self.flags.json {
            return render::json(&json!({ "tools": healths }));
        }
        if healths.is_empty() {
            render::notice("no tools yet; a program forges one with `delegate`");
        }
        let mut table = Table::new(&[
            Column::text("state"),
            Column::text("tool").shrinks_to(10),
            Column::number("calls"),
            Column::number("failed"),
            Column::number("weak"),
            Column::number("corrected").expendable(2),
            Column::number("retries spent").expendable(1),
        ]);
        for health in &healths {
            table.row(health_row(health));
        }
        render::lines(&table.lines(render::room(Stream::Output), render::paint(Stream::Output)))
    }

    fn recommend(&self, found: &[Recommendation]) -> Result<(), CommandFault> {
        if self.flags.json {
            return render::json(&json!({ "recommendations": found }));
        }
        if found.is_empty() {
            render::notice("nothing to recommend: no tool shows a pattern of trouble");
        }
        let paint = render::paint(Stream::Output);
        let mut lines = Vec::new();
        for recommendation in found {
            let method =
                recommendation.method.as_ref().map(|m| format!(".{m}")).unwrap_or_default();
            let subject = clean(&format!("{}{method}", recommendation.tool));
            let constraint =
                recommendation.constraint.as_ref().map(|c| format!("  {}", clean(&c.text)));
            lines.push(format!(
                "{} {}{}",
                paint.in_style(Style::Warning, &format!("{:<20}", recommendation.action.name())),
                paint.in_style(Style::Name, &subject),
                constraint.unwrap_or_default()
            ));
            lines.push(format!("  {}", clean(&recommendation.reason)));
            let calls = recommendation.evidence_call_ids.join(" ");
            lines.push(format!(
                "  {}",
                paint.in_style(Style::Faint, &clean(&format!("calls: {calls}")))
            ));
        }
        render::lines(&lines)
    }

    fn stale(&self, stale: &[ToolEntry]) -> Result<(), CommandFault> {
        if self.flags.json {
            return render::json(
                &json!({ "stale": stale.iter().map(stale_json).collect::<Vec<_>>() }),
            );
        }
        if stale.is_empty() {
            render::notice("no tool has been unused for that long");
        }
        render::lines(&stale_lines(stale))
    }

    fn prune(
        &self,
        store: &SqliteStore,
        older_than: Duration,
        yes: bool,
    ) -> Result<(), CommandFault> {
        let used_before = upkeep::time_before(older_than);
        let mut stale = upkeep::stale(store.bundle(None)?, &used_before);
        if yes {
            let mut removed = Vec::new();
            for tool in stale {
                // One that was used meanwhile stays.
                if store.forget_tool(&tool.name, Some(&used_before))? {
                    removed.push(tool);
                }
            }
            stale = removed;
        }
        if self.flags.json {
            let tools: Vec<Value> = stale.iter().map(stale_json).collect();
            return render::json(&json!({ "dry_run": !yes, "pruned": tools }));
        }
        let count = counted(stale.len(), "tool");
        render::notice(&match (stale.len(), yes) {
            (0, _) => "no tool has been unused for that long".to_owned(),
            (_, true) => format!("removed {count}, and the stored programs"),
            (_, false) => format!(
                "{count} would go; keep a copy with `recurgent tools export DIR`, then add --yes"
            ),
        });
        render::lines(&stale_lines(&stale))
    }
}

fn health_row(health: &Health) -> Vec<TableCell> {
    let style = match health.condition {
        Condition::Good => Style::Good,
        Condition::Weak => Style::Warning,
        Condition::Failing => Style::Bad,
        Condition::Unused => Style::Faint,
    };
    vec![
        cell(style, health.condition.name()),
        cell(Style::Name, &health.name),
        plain(health.recent_calls.to_string()),
        plain(health.recent_failures.to_string()),
        plain(health.recent_weak_successes.to_string()),
        plain(health.recent_corrections.to_string()),
        plain(health.exhaustion_count.to_string()),
    ]
}

fn stale_json(tool: &ToolEntry) -> Value {
    let calls = tool.success_count + tool.failure_count;
    json!({
        "name": tool.name,
        "purpose": tool.contract.as_ref().and_then(|contract| contract.purpose.as_ref()),
        "usage_count": tool.usage_count,
        "success_count": tool.success_count,
        "calls": calls,
        "created_at": tool.created_at,
        "last_used_at": tool.last_used_at,
    })
}

fn stale_lines(stale: &[ToolEntry]) -> Vec<String> {
    let mut table = Table::new(&[
        Column::text("tool").shrinks_to(10),
        Column::text("last used (UTC)"),
        Column::number("used"),
    ]);
    for tool in stale {
        let last_used = tool.last_used_at.get(..16).unwrap_or(&tool.last_used_at).replace('T', " ");
        let name = cell(Style::Name, tool.name.as_str());
        table.row(vec![name, plain(last_used), plain(tool.usage_count.to_string())]);
    }
    table.lines(render::room(Stream::Output), render::paint(Stream::Output))
}

/// What is known of the named tools, or of everything.
fn chosen(store: &SqliteStore, names: &[String]) -> Result<Bundle, CommandFault> {
    if names.is_empty() {
        return Ok(store.bundle(None)?);
    }
    let mut roles =
        names.iter().map(|name| known_role(store, name)).collect::<Result<Vec<_>, _>>()?;
    roles.sort();
    roles.dedup();
    let mut bundle = Bundle::default();
    for role in &roles {
        let known = store.bundle(Some(role))?;
        bundle.tools.extend(known.tools);
        bundle.artifacts.extend(known.artifacts);
        bundle.patterns.extend(known.patterns);
    }
    Ok(bundle)
}

/// A role something is known of: a tool, or an agent that was called.
fn known_role(store: &SqliteStore, name: &str) -> Result<Role, CommandFault> {
    let role = Role::parse(name)?;
    let known = store.bundle(Some(&role))?;
    if known != Bundle::default() || !store.taught(Some(&role), 1)?.is_empty() {
        return Ok(role);
    }
    let tools = store.tools(None, MAX_NAMES)?.into_iter().map(|known| known.tool.name.to_string());
    let roles = store.artifacts(None, MAX_NAMES)?.into_iter().map(|it| it.current.role.to_string());
    let names: BTreeSet<String> = tools.chain(roles).collect();
    let names = names.into_iter().take(MAX_NAMES).collect::<Vec<_>>().join(", ");
    let names = if names.is_empty() { "none".to_owned() } else { names };
    Err(CommandFault::missing(format!(
        "nothing is known of {:?}; there are: {names}",
        role.as_str()
    )))
}
