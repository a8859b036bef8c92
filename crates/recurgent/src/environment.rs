//! Environments: the packages that programs declare, installed and proved to load.
//!
//! ```text
//! prepare ── env_id ── ready? ── yes ─► Environment        no process, no write
//!                        │ no
//!                   lock (one builder, across threads and processes)
//!                        │ resolve ─► lock file ─► policy on every package
//!                        │ install ─► `.built`  ─► a zygote boots in it and loads what was declared
//!                        └ rename `.built` to `.ready`
//! ```
//!
//! An environment is built in its final directory under its lock. It is usable only with `.ready`, which is written last
//! and atomically. What a killed build left is not ready, and the next builder removes it. A refreshed environment is
//! built beside the one it replaces, because programs may run in that one.

mod build;
mod bundler;
mod collection;
mod command;
mod downloads;
mod examination;
mod fault;
mod generation;
mod identity;
mod inspection;
mod manager;
mod ready;
mod cache;
mod source;
mod tool;
mod uv;
mod wheel;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use lifecycle::dependency::{DependencyManifest, DependencyPolicy, PolicyFault};
use lifecycle::dialect::Language;
use lifecycle::execution::{Environment, FailedPreparation};
use lifecycle::outcome::{Failure, FailureKind};

use crate::guest::Cancellation;
use crate::guest::interpreter::InterpreterInfo;
use crate::worker::{Activation, InstallerLimits, Workers};

use collection::Collections;
use fault::{BuildFault, BuildStage};
use inspection::FileList;
use source::PackageSources;

pub use cache::{CacheState, EnvironmentCache, Removal, Stored};
pub use downloads::DownloadRemoval;
pub use examination::{InstallerCheck, examine};
pub(crate) use ready::Ready;
pub(crate) use tool::on_path;

/// Ready environments whose records are cached.
const MAX_KNOWN: usize = 256;

/// Where and how environments are built.
#[derive(Clone)]
pub struct EnvironmentOptions {
    /// The directory of environments and of the tools that build them; `None`: none can be built.
    pub cache: Option<PathBuf>,
    /// The search path of package managers and compilers.
    pub path: OsString,
    /// The uv to use instead of the first on `path`.
    pub uv: Option<PathBuf>,
    /// What Python programs may install.
    pub python: GuestPolicy,
    /// What Ruby programs may install.
    pub ruby: GuestPolicy,
    /// Further variables of every tool: proxies, certificates, and those that settings name.
    pub variables: Vec<(OsString, OsString)>,
    /// Names of such variables that settings list and the host does not have.
    pub unset_variables: Vec<String>,
    /// Hosts that package managers may connect to while they build, besides those of their sources.
    pub hosts: Vec<String>,
    /// Resource limits of installing one environment.
    pub limits: InstallerLimits,
    /// Disk space that all environments together may take; those unused longest are removed after a new one was built.
    pub total_bytes: u64,
    /// Disk space that downloads of package managers may take besides; they are emptied when they take more.
    pub download_bytes: u64,
    /// Longest time choosing versions may take.
    pub resolve_limit: Duration,
    /// Longest time installing them may take.
    pub install_limit: Duration,
}

impl EnvironmentOptions {
    /// What is wrong with the variables that settings list.
    fn variable_problem(&self) -> Option<String> {
        let name = self.unset_variables.first()?;
        Some(format!(
            "installer_env lists `{name}`, which is not set; set it, or remove it from installer_env"
        ))
    }
}

impl fmt::Debug for EnvironmentOptions {
    /// Sources and variables may hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnvironmentOptions").field("cache", &self.cache).finish_non_exhaustive()
    }
}

/// What the programs of one guest may install.
#[derive(Clone, Default)]
pub struct GuestPolicy {
    /// Names and sources.
    pub packages: DependencyPolicy,
    /// Whether nothing is built from source, so that no build script runs (Python).
    pub wheels_only: bool,
    /// Days a version must have been published for; 0: any may be installed.
    pub minimum_age_days: u32,
}

impl fmt::Debug for GuestPolicy {
    /// Sources may hold credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestPolicy")
            .field("source_mode", &self.packages.source_mode)
            .field("wheels_only", &self.wheels_only)
            .finish_non_exhaustive()
    }
}

/// How an environment is requested.
pub(crate) struct EnvironmentRequest<'a> {
    pub(crate) cancellation: &'a Cancellation,
    pub(crate) progress: &'a dyn Fn(Progress<'_>),
    pub(crate) build: BuildChoice<'a>,
}

/// Which build of an environment is requested.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BuildChoice<'a> {
    /// The present one; one is built if there is none.
    Present,
    /// A new one with today's best versions, of the environment with this id. Programs still run in the present one.
    Refreshed(&'a str),
    /// Any but this one, which was ready and cannot be activated any more.
    Except(&'a Path),
}

impl EnvironmentRequest<'_> {
    /// Whether a build is damaged and must not be used.
    fn is_damaged(&self, root: &Path) -> bool {
        match self.build {
            BuildChoice::Except(damaged) => damaged == root,
            BuildChoice::Present | BuildChoice::Refreshed(_) => false,
        }
    }

    fn report(&self, progress: Progress<'_>) {
        (self.progress)(progress);
    }
}

/// The long steps of building an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress<'a> {
    /// The packaging tool itself is missing and is fetched, once.
    FetchingTool {
        /// Its name.
        tool: &'static str,
        /// Its directory.
        into: &'a Path,
    },
    /// Another process or thread builds it; waiting for that.
    Waiting,
    /// Choosing versions.
    Resolving,
    /// Installing this many packages.
    Installing(usize),
    /// Loading what was declared.
    Activating,
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FetchingTool { tool, into } => {
                write!(f, "fetching {tool}, once, into {}", into.display())
            }
            Self::Waiting => f.write_str("waiting for another process that builds it"),
            Self::Resolving => f.write_str("resolving dependencies"),
            Self::Installing(1) => f.write_str("installing 1 package"),
            Self::Installing(count) => write!(f, "installing {count} packages"),
            Self::Activating => f.write_str("loading packages"),
        }
    }
}

/// Builds environments and finds those already built. Shared by a whole process.
#[derive(Debug)]
pub(crate) struct Environments {
    options: EnvironmentOptions,
    /// Records of ready environments, with stamps that show whether they still hold.
    known: Mutex<BTreeMap<PathBuf, (MarkerStamp, Ready)>>,
    /// Held while a damaged environment is built again.
    repairing: Mutex<()>,
    collections: Collections,
}

/// Time and size of the files that change when an environment is rebuilt: its ready file and its lock.
type MarkerStamp = [Option<(SystemTime, u64)>; 2];

/// The result of an installation.
#[derive(Debug)]
struct Installed {
    library: PathBuf,
    provides: Vec<String>,
    load_checks: Vec<ready::LoadCheck>,
}

/// Time per stage.
#[derive(Debug, Clone, Copy, Default)]
struct StageTimes {
    resolve: Duration,
    install: Duration,
}

/// Everything that decides what an environment will be.
struct Plan<'a> {
    language: Language,
    manifest: &'a DependencyManifest,
    policy: &'a GuestPolicy,
    sources: PackageSources,
    interpreter: InterpreterInfo,
    id: String,
    cache: &'a Path,
    root: PathBuf,
    /// Whether it existed already.
    cache_hit: bool,
    /// Time spent so far, kept when a stage fails too.
    took: Cell<StageTimes>,
}

impl Environments {
    pub(crate) fn new(options: EnvironmentOptions) -> Self {
        Self {
            options,
            known: Mutex::default(),
            repairing: Mutex::default(),
            collections: Collections::default(),
        }
    }

    /// The cache they are kept in.
    pub(crate) fn cache(&self) -> Option<EnvironmentCache> {
        self.options.cache.clone().map(EnvironmentCache::new)
    }

    /// The environment for programs with this manifest; built now if necessary.
    pub(crate) fn prepare(
        &self,
        language: Language,
        manifest: &DependencyManifest,
        workers: &Workers,
        request: &EnvironmentRequest<'_>,
    ) -> Result<Environment, FailedPreparation> {
        if manifest.is_empty() {
            return Ok(Environment::bare());
        }
        let begun = Instant::now();
        let mut plan = self
            .plan(language, manifest, workers)
            .map_err(|fault| fault.into_environment_fault(None))?;
        let provided = self.provide(&mut plan, workers, request);
        let env_id = match request.build {
            BuildChoice::Refreshed(id) => id.to_owned(),
            BuildChoice::Present | BuildChoice::Except(_) => plan.id.clone(),
        };
        let provided =
            provided.and_then(|ready| plan.check_policy(&ready.packages).map(|()| ready));
        match provided {
            Ok(ready) => {
                if let (false, Some(cache)) = (plan.cache_hit, self.cache()) {
                    self.collect(cache, plan.id.clone());
                }
                Ok(plan.environment(Some(ready), begun.elapsed()))
            }
            Err(fault) => Err(FailedPreparation {
                fault: fault.into_environment_fault(Some(&env_id)),
                environment: Some(Box::new(Environment {
                    id: Some(env_id),
                    ..plan.environment(None, begun.elapsed())
                })),
            }),
        }
    }

    /// Removes environments and downloads beyond their limits, in the background. The environment with this id stays.
    fn collect(&self, cache: EnvironmentCache, id: String) {
        let (environments, downloads) = (self.options.total_bytes, self.options.download_bytes);
        self.collections.start(move || {
            cache.shrink_to(environments, &id);
            cache.shrink_downloads(downloads);
        });
    }

    /// Another build of an environment that was ready and cannot be activated any more. Concurrent callers share one.
    pub(crate) fn replace_damaged(
        &self,
        language: Language,
        damaged: &Environment,
        workers: &Workers,
        request: &EnvironmentRequest<'_>,
    ) -> Result<Environment, FailedPreparation> {
        let _one_at_a_time = self.repairing.lock().unwrap_or_else(PoisonError::into_inner);
        let build = damaged
            .root
            .as_deref()
            .map(Path::new)
            .map_or(BuildChoice::Present, BuildChoice::Except);
        let request = EnvironmentRequest { build, ..*request };
        self.prepare(language, &damaged.manifest, workers, &request)
    }

    /// The record of the environment: the present one, or one built now.
    fn provide(
        &self,
        plan: &mut Plan<'_>,
        workers: &Workers,
        request: &EnvironmentRequest<'_>,
    ) -> Result<Ready, BuildFault> {
        match request.build {
            BuildChoice::Refreshed(id) if id != plan.id => {
                let explanation = "it was built with another interpreter or other sources than are set now; prepare its packages again, and remove it".to_owned();
                return Err(BuildFault::CannotBuild { stage: BuildStage::Resolve, explanation });
            }
            BuildChoice::Refreshed(_) => return self.rebuild(plan, workers, request),
            BuildChoice::Present | BuildChoice::Except(_) => {}
        }
        match self.ready(plan).filter(|_| !request.is_damaged(&plan.root)) {
            Some(ready) => {
                plan.cache_hit = true;
                Ok(ready)
            }
            None => self.build_or_wait(plan, workers, request),
        }
    }

    fn plan<'a>(
        &'a self,
        language: Language,
        manifest: &'a DependencyManifest,
        workers: &Workers,
    ) -> Result<Plan<'a>, BuildFault> {
        let policy = match language {
            Language::Python => &self.options.python,
            Language::Ruby => &self.options.ruby,
        };
        let cache = self.options.cache.as_deref().ok_or_else(|| BuildFault::CannotBuild {
            stage: BuildStage::Install,
            explanation:
                "there is no home directory for the environment cache; set RECURGENT_CACHE_DIR"
                    .to_owned(),
        })?;
        let barred = |fault: PolicyFault| BuildFault::Refused(Box::new(fault.failure()));
        policy.packages.check(language, manifest).map_err(barred)?;
        let sources = policy.packages.effective_sources(language).map_err(barred)?;
        let sources = PackageSources::of(&sources);
        let interpreter = workers.probe(language).map_err(BuildFault::GuestMissing)?;
        let id = identity::env_id(language, &interpreter, policy, &sources, manifest);
        let root = generation::current(&EnvironmentCache::place(cache, language), &id);
        let (cache_hit, took) = (false, Cell::default());
        Ok(Plan {
            language,
            manifest,
            policy,
            sources,
            interpreter,
            id,
            cache,
            root,
            cache_hit,
            took,
        })
    }

    /// The record of a ready environment. Reads two files the first time, and checks their stamps after that.
    fn ready(&self, plan: &Plan<'_>) -> Option<Ready> {
        let stamp = plan.stamp();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, ready)) = known.get(&plan.root).filter(|(seen, _)| *seen == stamp) {
            return Some(ready.clone());
        }
        let ready = Ready::read(plan.language, &plan.root)?;
        if known.len() >= MAX_KNOWN {
            known.pop_first();
        }
        known.insert(plan.root.clone(), (stamp, ready.clone()));
        Some(ready)
    }
}

/// Whether files of a ready environment were lost, cut or written. Lists all its files and, with `read_all`, also reads
/// them.
pub(crate) fn has_damaged_files(
    language: Language,
    environment: &Environment,
    read_all: bool,
) -> bool {
    let Some(root) = environment.root.as_deref().map(Path::new) else { return false };
    Ready::read(language, root).is_none_or(|ready| ready.has_damaged_files(root, read_all))
}

impl Plan<'_> {
    fn place(&self) -> PathBuf {
        EnvironmentCache::place(self.cache, self.language)
    }

    fn stamp(&self) -> MarkerStamp {
        [ready::READY, ready::lock_file(self.language)].map(|file| {
            let meta = fs::metadata(self.root.join(file)).ok()?;
            Some((meta.modified().ok()?, meta.len()))
        })
    }

    fn variables(&self) -> Vec<(OsString, OsString)> {
        match self.language {
            Language::Python => uv::variables(&self.shared_cache(), Some(&self.sources)),
            Language::Ruby => {
                bundler::variables(&self.root, &self.shared_cache(), Some(&self.sources))
            }
        }
    }

    /// The packaging tools' download cache, shared by every environment. Fetched code never runs where it can write
    /// there.
    fn shared_cache(&self) -> PathBuf {
        self.cache.join(match self.language {
            Language::Python => downloads::UV,
            Language::Ruby => downloads::BUNDLER,
        })
    }

    /// The variables of builds, which have a separate cache and no credentials.
    fn builder_variables(&self, home: &Path) -> Vec<(OsString, OsString)> {
        match self.language {
            Language::Python => uv::variables(&home.join("uv"), None),
            Language::Ruby => bundler::variables(&self.root, &home.join("bundler"), None),
        }
    }

    /// Every package of the lock, not only the declared ones.
    fn check_policy(&self, packages: &[ready::Package]) -> Result<(), BuildFault> {
        let names = packages.iter().map(|package| package.name.as_str());
        self.policy.packages.check_names(self.language, names).map_err(|fault| {
            let chain = fault.package.as_deref().and_then(|it| self.needed_by(it, packages));
            let failure = fault.failure();
            BuildFault::Refused(Box::new(match chain {
                Some(chain) => {
                    let message = format!("{}; it is needed by {chain}", failure.message);
                    Failure { message, ..failure }.with("needed_by", chain)
                }
                None => failure,
            }))
        })
    }

    /// The packages that lead from a declared one to a package that is needed: `` `outer`, `middle` ``. `None` for a declared
    /// one.
    fn needed_by(&self, name: &str, packages: &[ready::Package]) -> Option<String> {
        let is_declared =
            |name: &str| self.manifest.packages().any(|it| it.eq_ignore_ascii_case(name));
        let mut chain = Vec::new();
        let mut needed = name;
        while !is_declared(needed) && chain.len() < packages.len() {
            let needs = |it: &&ready::Package| it.needs.iter().any(|need| need == needed);
            let by = packages.iter().filter(needs).find(|it| is_declared(&it.name));
            let by = by.or_else(|| packages.iter().find(needs))?;
            chain.push(format!("`{}`", by.name));
            needed = &by.name;
        }
        chain.reverse();
        (!chain.is_empty()).then(|| chain.join(", "))
    }

    /// The time before which packages must have been published; `None`: any time.
    fn published_before(&self) -> Option<String> {
        let days = self.policy.minimum_age_days;
        (days > 0).then(|| days_before(jiff::Timestamp::now(), days))
    }

    fn check_age(&self, too_new: &[String]) -> Result<(), BuildFault> {
        let Some(first) = too_new.first() else { return Ok(()) };
        let days = self.policy.minimum_age_days;
        let message = format!(
            "{} was published less than {days} days ago (minimum_package_age_days); declare an older version",
            too_new.join(", ")
        );
        let package = first.split(' ').next().unwrap_or_default();
        let failure = Failure::new(FailureKind::DependencyPolicyViolation, message)
            .with("policy", "minimum_package_age_days")
            .with("dependency_name", package);
        Err(BuildFault::Refused(Box::new(failure)))
    }

    fn record(
        &self,
        packages: Vec<ready::Package>,
        installed: Installed,
    ) -> std::io::Result<Ready> {
        let files = FileList::of(&self.root.join(&installed.library))?;
        Ok(Ready {
            guest: self.language.name().to_owned(),
            manifest: self.manifest.clone(),
            lock_checksum: ready::lock_checksum(self.language, &self.root)?,
            source_mode: self.policy.packages.source_mode.name().to_owned(),
            sources: self.sources.addresses(),
            prepared_at: crate::upkeep::now().to_string(),
            packages,
            provides: installed.provides,
            library: installed.library,
            load_checks: installed.load_checks,
            files_checksum: files.names_checksum(),
            last_modified: Some(files.last_modified()),
            contents_checksum: files.contents_checksum()?,
        })
    }

    fn activation(&self) -> Activation {
        Activation { id: self.id.clone(), root: self.root.clone() }
    }

    /// The environment; without a record it could not be made.
    fn environment(self, ready: Option<Ready>, prepare: Duration) -> Environment {
        let stages = self.took.get();
        let root = ready.as_ref().map(|_| self.root.to_string_lossy().into_owned());
        Environment {
            id: Some(self.id),
            manifest: self.manifest.clone(),
            root,
            cache_hit: self.cache_hit,
            prepare_time: prepare,
            resolve_time: stages.resolve,
            install_time: stages.install,
            provides: ready.map(|ready| ready.provides),
        }
    }
}

/// The time `days` before `now`, not before 1970, for package managers.
fn days_before(now: jiff::Timestamp, days: u32) -> String {
    let age = jiff::SignedDuration::from_hours(24 * i64::from(days));
    let before = now.checked_sub(age).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    before.max(jiff::Timestamp::UNIX_EPOCH).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_required_age_of_any_number_of_days_has_a_date() {
        let now: jiff::Timestamp = "2026-11-19T14:00:00Z".parse().unwrap();
        for (days, expected) in [
            (1, "2026-11-18T14:00:00Z"),
            (365, "2025-11-19T14:00:00Z"),
            (36_500, "1970-01-01T00:00:00Z"),
            (u32::MAX, "1970-01-01T00:00:00Z"),
        ] {
            assert_eq!(days_before(now, days), expected, "{days}");
        }
    }
}
