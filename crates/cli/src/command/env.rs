//! `recurgent env`: environments on disk, made ahead of need, refreshed and removed.

mod shown;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use recurgent::environment::{
    CacheState, DownloadRemoval, EnvironmentCache, EnvironmentOptions, Removal, Stored,
};
use recurgent::store::sqlite::SqliteStore;
use recurgent::{Language, Preparation, PreparationStatus, Runtime};
use serde_json::{Value, json};

use super::age::age_or_days;
use super::settings::{VerbFlags, language_parser};
use crate::exit::{CommandFault, Exit};
use crate::interrupt::Interrupt;
use crate::render::paint::{Style, clean};
use crate::render::{self, Stream};
use shown::{counted, details, short, summary, table, ticket_json, total};

const EXAMPLES: &str = "\
Examples:
  recurgent env list
  recurgent env prepare 'numpy>=2' python-slugify
  recurgent env prepare --guest ruby 'nokogiri ~> 1.16'
  recurgent env show 3f2a                        any beginning of an id that is not ambiguous
  recurgent env refresh 3f2a                     take newer versions, where constraints allow them
  recurgent env gc --older-than 14d              remove unfinished and long unused environments
  recurgent env prune --dry-run";

/// How often a wait for a preparation checks for Ctrl-C.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// List, show, prepare, refresh or remove environments: sets of installed packages
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EnvOptions {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    flags: VerbFlags,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Every environment, with its packages and what it takes on disk
    List,
    /// One environment: what was declared, every package, where it came from
    Show {
        /// Its id, or the beginning of it
        id: String,
    },
    /// Make an environment before it is needed
    Prepare {
        /// The language its packages are for
        #[arg(long, value_name = "LANGUAGE", value_parser = language_parser())]
        guest: Option<Language>,
        /// A package, and the versions that work: numpy, 'numpy>=2', 'nokogiri ~> 1.16'
        #[arg(required = true, value_name = "NAME[CONSTRAINT]")]
        packages: Vec<String>,
    },
    /// Build an environment again, with the newest versions its constraints allow
    ///
    /// It is built beside the one it replaces: programs that run in that are not disturbed, and a build
    /// that fails changes nothing. `env gc` removes the replaced one.
    Refresh {
        /// Its id, or the beginning of it
        id: String,
    },
    /// Remove what was left half done, was replaced, or was not used for long
    ///
    /// Downloads of package managers are removed too if they are beyond `downloads_total_mb`.
    Gc {
        /// How long without use, such as 12h or 30d
        #[arg(long, value_name = "AGE", default_value = "30d", value_parser = age_or_days)]
        older_than: Duration,
        /// Only say what would be removed
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove all environments that are not in use
    ///
    /// Downloads of package managers are removed too.
    Prune {
        /// Do it; without this, only say what would be removed
        #[arg(long)]
        yes: bool,
        /// Only say what would be removed (the default)
        #[arg(long, conflicts_with = "yes")]
        dry_run: bool,
    },
}

impl EnvOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        match &self.verb {
            Verb::List => self.list(&self.cache()?),
            Verb::Show { id } => self.show(&self.cache()?, id),
            Verb::Prepare { guest, packages } => self.prepare(*guest, packages),
            Verb::Refresh { id } => self.refresh(id),
            Verb::Gc { older_than, dry_run } => {
                let cache = self.cache()?;
                let removed = remove(&cache, cache.unneeded(*older_than), *dry_run);
                let limit = self.options()?.download_bytes;
                self.report(&removed, &empty_downloads(&cache, limit, *dry_run), *dry_run, "")
            }
            Verb::Prune { yes, dry_run: _ } => {
                let cache = self.cache()?;
                let removed = remove(&cache, cache.list(), !yes);
                let downloads = empty_downloads(&cache, 0, !yes);
                self.report(&removed, &downloads, !yes, "; use --yes to remove them")
            }
        }
    }

    fn options(&self) -> Result<EnvironmentOptions, CommandFault> {
        Ok(self.flags.place.config(&[])?.environment_options())
    }

    fn cache(&self) -> Result<EnvironmentCache, CommandFault> {
        let cache = self.options()?.cache;
        cache.map(EnvironmentCache::new).ok_or_else(|| {
            CommandFault::setup("there is no home directory to keep environments in; set cache_dir")
        })
    }

    fn list(&self, cache: &EnvironmentCache) -> Result<Exit, CommandFault> {
        let stored = cache.list();
        let bytes = total(&stored);
        if self.flags.json {
            let environments: Vec<Value> = stored.iter().map(summary).collect();
            render::json(&json!({
                "directory": cache.directory(), "bytes": bytes, "environments": environments,
            }))?;
            return Ok(Exit::Ok);
        }
        if stored.is_empty() {
            render::notice(
                "no environments yet; a program that needs packages makes one, and so does `recurgent env prepare NAME`",
            );
            return Ok(Exit::Ok);
        }
        let paint = render::paint(Stream::Output);
        let mut rows = table(&stored);
        let place = format!(
            "{}, {} in {}",
            counted(stored.len()),
            render::size(bytes),
            cache.directory().display()
        );
        rows.push(paint.in_style(Style::Faint, &place));
        render::lines(&rows)?;
        Ok(Exit::Ok)
    }

    fn show(&self, cache: &EnvironmentCache, id: &str) -> Result<Exit, CommandFault> {
        let (stored, builds) = found(cache, id)?;
        let lock = read_lock(&stored)?;
        if self.flags.json {
            let mut shown = summary(&stored);
            if let Value::Object(fields) = &mut shown {
                fields.insert("lock".to_owned(), json!(lock));
                fields.insert("builds".to_owned(), json!(builds));
            }
            render::json(&shown)?;
            return Ok(Exit::Ok);
        }
        render::lines(&details(&stored, builds, lock.as_deref()))?;
        Ok(Exit::Ok)
    }

    fn prepare(&self, guest: Option<Language>, packages: &[String]) -> Result<Exit, CommandFault> {
        let runtime = self.runtime(guest)?;
        let mut preparation = runtime.prepare("environment");
        for package in packages {
            let (name, constraint) = split(package);
            preparation = preparation.dependency(name, constraint);
        }
        self.wait_and_report(preparation)
    }

    fn refresh(&self, id: &str) -> Result<Exit, CommandFault> {
        let (stored, _) = found(&self.cache()?, id)?;
        match stored.standing {
            CacheState::Ready | CacheState::Superseded => {
                self.wait_and_report(self.runtime(None)?.refresh(&stored))
            }
            CacheState::Building => Err(CommandFault::failed(format!(
                "{} is being built by another process; wait for it, then refresh",
                stored.id
            ))),
            CacheState::Unfinished => Err(CommandFault::failed(format!(
                "{} was never finished, and has no record of its packages; `recurgent env gc` removes it",
                stored.id
            ))),
        }
    }

    /// Building an environment needs no model and no stored data, so the store is in memory.
    fn runtime(&self, guest: Option<Language>) -> Result<Runtime, CommandFault> {
        let config = self
            .flags
            .place
            .config(&[("guest", guest.map(Language::name)), ("provider", Some("auto"))])?;
        Ok(Runtime::builder(config).store(Arc::new(SqliteStore::in_memory()?)).build()?)
    }

    fn wait_and_report(&self, preparation: Preparation) -> Result<Exit, CommandFault> {
        let interrupt = Interrupt::install()?;
        let paint = render::paint(Stream::Error);
        let report = move |what: &str| {
            render::note(&paint.in_style(Style::Faint, &format!("{}…", clean(what))));
        };
        let ticket = preparation.on_progress(report).start();
        let notice = "stopping the build; once more to leave at once";
        interrupt.announcing(notice, |cancellation| {
            while ticket.await_ready(POLL_INTERVAL) == PreparationStatus::Pending {
                if cancellation.is_cancelled() {
                    ticket.cancel();
                }
            }
        });
        if self.flags.json {
            render::json(&ticket_json(&ticket))?;
        }
        if let Some(failure) = ticket.failure() {
            if !self.flags.json {
                render::failure(&failure);
            }
            return Ok(Exit::of_failure(&failure));
        }
        if let Some(made) = ticket.environment().filter(|_| !self.flags.json) {
            made.manifest.notes().iter().for_each(|note| render::notice(note));
            match made.id {
                Some(id) if made.cache_hit => render::text(&format!("{id} was ready"))?,
                Some(id) => {
                    let took = made.prepare_time.as_secs_f64();
                    render::text(&format!("{id} ready after {took:.1} s"))?;
                }
                None => render::notice("nothing to install: the standard library has all of it"),
            }
        }
        Ok(Exit::Ok)
    }

    fn report(
        &self,
        removed: &Removed,
        downloads: &DownloadRemoval,
        dry_run: bool,
        how: &str,
    ) -> Result<Exit, CommandFault> {
        let Removed { gone, kept, failed } = removed;
        let (emptied, problem) = match downloads {
            DownloadRemoval::Within => (None, None),
            DownloadRemoval::Emptied(bytes) => (Some(*bytes), None),
            DownloadRemoval::InUse => (None, Some("another process builds an environment")),
            DownloadRemoval::Failed(problem) => (None, Some(problem.as_str())),
        };
        let failed = *failed || matches!(downloads, DownloadRemoval::Failed(_));
        let exit = if failed { Exit::Failed } else { Exit::Ok };
        if self.flags.json {
            let kept: Vec<Value> = kept
                .iter()
                .map(|(stored, why)| json!({"env_id": stored.id, "root": stored.root, "reason": why}))
                .collect();
            render::json(&json!({
                "dry_run": dry_run,
                "removed": gone.iter().map(summary).collect::<Vec<_>>(),
                "kept": kept,
                "bytes": total(gone),
                "downloads": {"removed_bytes": emptied.unwrap_or(0), "kept_because": problem},
            }))?;
            return Ok(exit);
        }
        for (stored, why) in kept {
            render::notice(&format!("{} stays: {why}", short(stored)));
        }
        if let Some(problem) = problem {
            render::notice(&format!("downloads stay: {problem}"));
        }
        let (did, hint) = if dry_run { ("would remove", how) } else { ("removed", "") };
        let mut lines = table(gone);
        lines.push(format!("{did} {}, {}{hint}", counted(gone.len()), render::size(total(gone))));
        let downloads = emptied.map(|bytes| format!("{did} downloads, {}", render::size(bytes)));
        lines.extend(downloads);
        render::lines(&lines)?;
        Ok(exit)
    }
}

/// Environments that were removed, or would be, and those that stay.
struct Removed {
    gone: Vec<Stored>,
    /// With the reason.
    kept: Vec<(Stored, String)>,
    failed: bool,
}

fn remove(cache: &EnvironmentCache, stored: Vec<Stored>, dry_run: bool) -> Removed {
    let mut removed = Removed { gone: Vec::new(), kept: Vec::new(), failed: false };
    for stored in stored {
        let removal = match (dry_run, stored.standing) {
            (true, CacheState::Building) => Removal::BeingBuilt,
            (true, _) if stored.is_in_use() => Removal::InUse,
            (true, _) => Removal::Removed,
            (false, _) => cache.remove(&stored),
        };
        let why = match removal {
            Removal::Removed => {
                removed.gone.push(stored);
                continue;
            }
            Removal::InUse => "programs run in it".to_owned(),
            Removal::BeingBuilt => "another process builds it".to_owned(),
            Removal::Failed(problem) => {
                removed.failed = true;
                problem
            }
        };
        removed.kept.push((stored, why));
    }
    if !dry_run {
        cache.remove_unused_locks();
    }
    removed
}

/// Empties the download caches if they take more than this.
fn empty_downloads(cache: &EnvironmentCache, limit: u64, dry_run: bool) -> DownloadRemoval {
    let taken = cache.download_bytes();
    match dry_run {
        true if taken > limit => DownloadRemoval::Emptied(taken),
        true => DownloadRemoval::Within,
        false => cache.shrink_downloads(limit),
    }
}

/// The lock file of an environment; one that is not finished has none.
fn read_lock(stored: &Stored) -> Result<Option<String>, CommandFault> {
    let path = stored.lock_file();
    match std::fs::read_to_string(&path) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let path = path.display();
            Err(CommandFault::failed(format!("{path} cannot be read: {error}; check who owns it")))
        }
    }
}

/// The environment whose id begins with this: its ready build, else its newest; and the number of its builds, which
/// [`EnvironmentCache::find`] gives sorted.
fn found(cache: &EnvironmentCache, prefix: &str) -> Result<(Stored, usize), CommandFault> {
    let builds = cache.find(prefix.trim());
    let mut ids: Vec<&str> = builds.iter().map(|stored| stored.id.as_str()).collect();
    ids.dedup();
    if ids.len() > 1 {
        return Err(CommandFault::missing(format!(
            "{} environments have an id that begins with {prefix:?}; use a longer beginning: {}",
            ids.len(),
            ids.join(", ")
        )));
    }
    let count = builds.len();
    let ready = builds.iter().position(|stored| stored.standing == CacheState::Ready);
    let counts = ready.or(count.checked_sub(1)).and_then(|at| builds.into_iter().nth(at));
    counts.map(|stored| (stored, count)).ok_or_else(|| {
        CommandFault::missing(format!(
            "no environment has an id that begins with {prefix:?}; `recurgent env list` shows them"
        ))
    })
}

/// `numpy>=2`: where the name ends, the constraint begins.
fn split(package: &str) -> (&str, &str) {
    let end = package.find(|c: char| c.is_whitespace() || "<>=!~".contains(c));
    package.split_at(end.unwrap_or(package.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constraint_begins_where_the_name_ends() {
        for (package, expected) in [
            ("numpy", ("numpy", "")),
            ("numpy>=2,<3", ("numpy", ">=2,<3")),
            ("nokogiri ~> 1.16", ("nokogiri", " ~> 1.16")),
            ("requests[socks]==2.0", ("requests[socks]", "==2.0")),
            ("zope.interface!=5", ("zope.interface", "!=5")),
        ] {
            assert_eq!(split(package), expected);
        }
    }
}
