//! Building an environment: resolve, check the lock against the policy, install, prove, announce.

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lifecycle::dependency::PackageIndex;
use lifecycle::dialect::Language;

use super::bundler::Bundler;
use super::command::CommandEnv;
use super::fault::{BuildFault, BuildStage};
use super::manager::{BuildInputs, PackageManager};
use super::ready::{Package, Ready};
use super::uv::{CacheUse, Uv};
use super::{
    BuildChoice, EnvironmentRequest, Environments, Installed, Plan, Progress, StageTimes,
    downloads, generation, inspection, tool,
};
use crate::lock_file::{LockFault, LockFile, LockGuard};
use crate::worker::Workers;

/// What a packaging tool produced.
type Built = (Vec<Package>, Installed);

impl Environments {
    /// Builds it, or waits for the process that does.
    pub(super) fn build_or_wait(
        &self,
        plan: &mut Plan<'_>,
        workers: &Workers,
        request: &EnvironmentRequest<'_>,
    ) -> Result<Ready, BuildFault> {
        let lock = self.lock(plan, request)?;
        plan.root = generation::current(&plan.place(), &plan.id);
        let is_damaged = request.is_damaged(&plan.root);
        match self.ready(plan) {
            Some(ready) if !is_damaged => Ok(ready), // built meanwhile by another process
            // Programs may still run in it: its files are not touched.
            Some(_) => self.build_beside(plan, workers, &lock, request),
            None => self.build_in_place(plan, workers, &lock, request),
        }
    }

    /// Builds it again beside the present build, which stays current until the new one is ready, and stays on disk for
    /// programs that run in it.
    pub(super) fn rebuild(
        &self,
        plan: &mut Plan<'_>,
        workers: &Workers,
        request: &EnvironmentRequest<'_>,
    ) -> Result<Ready, BuildFault> {
        let lock = self.lock(plan, request)?;
        self.build_beside(plan, workers, &lock, request)
    }

    fn build_beside(
        &self,
        plan: &mut Plan<'_>,
        workers: &Workers,
        lock: &File,
        request: &EnvironmentRequest<'_>,
    ) -> Result<Ready, BuildFault> {
        let place = plan.place();
        let unusable = |error| BuildFault::file("cannot use", &place, &error);
        plan.root = generation::next(&place, &plan.id).map_err(unusable)?;
        let built = self.build_in_place(plan, workers, lock, request)?;
        generation::make_current(&plan.root).map_err(unusable)?;
        Ok(built)
    }

    fn build_in_place(
        &self,
        plan: &Plan<'_>,
        workers: &Workers,
        lock: &File,
        request: &EnvironmentRequest<'_>,
    ) -> Result<Ready, BuildFault> {
        if let Some(explanation) = self.options.variable_problem() {
            return Err(BuildFault::CannotBuild { stage: BuildStage::Tool, explanation });
        }
        let unusable = |error| BuildFault::file("cannot use", &plan.root, &error);
        inspection::clear(&plan.root).map_err(unusable)?;
        fs::create_dir(&plan.root).map_err(unusable)?;
        let built = self.build(plan, workers, lock, request);
        if built.is_err() {
            // It is not ready, so nothing uses it; removed to free the disk.
            let _ = inspection::clear(&plan.root);
        }
        built
    }

    fn lock(
        &self,
        plan: &Plan<'_>,
        request: &EnvironmentRequest<'_>,
    ) -> Result<LockGuard, BuildFault> {
        let place = plan.place();
        fs::create_dir_all(&place).map_err(|e| BuildFault::file("cannot create", &place, &e))?;
        let file = LockFile::new(plan.root.with_extension("lock"));
        if let Ok(Some(lock)) = file.try_acquire() {
            return Ok(lock);
        }
        request.report(Progress::Waiting);
        let limit = self.options.resolve_limit + self.options.install_limit;
        file.acquire_within(limit, || request.cancellation.is_cancelled())
            .map_err(|fault| lock_fault(fault, file.path()))
    }

    fn build(
        &self,
        plan: &Plan<'_>,
        workers: &Workers,
        lock: &File,
        request: &EnvironmentRequest<'_>,
    ) -> Result<Ready, BuildFault> {
        let sandbox = workers.sandbox().map_err(BuildFault::Uncontained)?;
        let home = StagingDirectory::set_up(plan.root.with_extension("build"))?;
        let shared = plan.shared_cache();
        fs::create_dir_all(&shared).map_err(|e| BuildFault::file("cannot create", &shared, &e))?;
        let _downloads = downloads::lock_for_build(plan.cache)
            .map_err(|e| BuildFault::file("cannot lock the downloads in", plan.cache, &e))?;
        let variables = self.variables(&home.0);
        let command_env = CommandEnv {
            directory: &plan.root,
            variables: [variables, self.options.variables.clone(), plan.variables()].concat(),
            lock,
            cancellation: request.cancellation,
            sandbox,
            read: self.readable(plan),
            write: vec![plan.root.clone(), shared],
            home: &home.0,
            limits: self.options.limits,
            input: None,
        };
        let (packages, installed) = self.by_manager(plan, &command_env, request)?;
        let unusable = |error| BuildFault::file("cannot write", &plan.root, &error);
        let ready = plan.record(packages, installed).map_err(unusable)?;
        ready.note_built(&plan.root).map_err(unusable)?;
        if rustix::process::geteuid().is_root() {
            // Programs of root run as a user that owns nothing.
            inspection::open_to_read(&plan.root).map_err(unusable)?;
        }
        request.report(Progress::Activating);
        workers.activate(plan.language, &plan.activation()).map_err(BuildFault::from)?;
        Ready::announce(&plan.root).map_err(unusable)?;
        Ok(ready)
    }

    /// Installs with uv or Bundler, depending on the language.
    fn by_manager(
        &self,
        plan: &Plan<'_>,
        command_env: &CommandEnv<'_>,
        request: &EnvironmentRequest<'_>,
    ) -> Result<Built, BuildFault> {
        let inputs = BuildInputs {
            name: match plan.language {
                Language::Python => "uv",
                Language::Ruby => "Bundler",
            },
            root: &plan.root,
            interpreter: &plan.interpreter,
            command_env,
            builder: &self.builder(command_env, plan),
            sources: &plan.sources,
            manifest: plan.manifest,
            published_before: plan.published_before(),
        };
        match plan.language {
            Language::Ruby => self.made_by(&Bundler { inputs }, plan, request),
            Language::Python => {
                let search = tool::Search {
                    chosen: self.options.uv.as_deref(),
                    path: &self.options.path,
                    cache: plan.cache,
                    interpreter: &plan.interpreter,
                    command_env,
                };
                let uv = Uv {
                    inputs,
                    tool: &search.find(request)?,
                    builds: OnceCell::new(),
                    hosts: &self.options.hosts,
                    wheels_only: plan.policy.wheels_only,
                    cache_use: match request.build {
                        BuildChoice::Present => CacheUse::Full,
                        BuildChoice::Refreshed(_) => CacheUse::ForFiles,
                        BuildChoice::Except(_) => CacheUse::Unused,
                    },
                };
                self.made_by(&uv, plan, request)
            }
        }
    }

    /// Resolves, checks every package of the lock against the policy, then installs.
    fn made_by(
        &self,
        manager: &dyn PackageManager,
        plan: &Plan<'_>,
        request: &EnvironmentRequest<'_>,
    ) -> Result<Built, BuildFault> {
        request.report(Progress::Resolving);
        let begun = Instant::now();
        let resolved = manager.resolve(self.options.resolve_limit);
        let resolve = begun.elapsed();
        plan.took.set(StageTimes { resolve, install: Duration::ZERO });
        resolved?;
        let packages = manager.locked()?;
        plan.check_policy(&packages)?;
        let too_new = manager.too_new(&packages, self.options.resolve_limit)?;
        plan.check_age(&too_new)?;
        request.report(Progress::Installing(packages.len()));
        let begun = Instant::now();
        let made = manager.install(&packages, self.options.install_limit);
        plan.took.set(StageTimes { resolve, install: begun.elapsed() });
        made?;
        let installed = manager.installed()?;
        Ok((packages, installed))
    }

    /// The command environment for building what was fetched: it can write to this environment only.
    fn builder<'a>(&self, command_env: &CommandEnv<'a>, plan: &Plan<'_>) -> CommandEnv<'a> {
        let way = self.options.variables.iter().filter(|(name, value)| is_public(name, value));
        let way: Vec<(OsString, OsString)> = way.cloned().collect();
        let files = way.iter().map(|(_, value)| PathBuf::from(value));
        // uv, not Bundler, fetches what a build needs while it builds.
        let is_uv = plan.language == Language::Python;
        let sources =
            plan.sources.internal.iter().filter(|_| is_uv).filter_map(PackageIndex::directory);
        let given = files.chain(sources).filter(|path| path.is_absolute() && path.exists());
        let read = plan.interpreter.roots.iter().cloned().chain(given).collect();
        let variables =
            [self.variables(command_env.home), way, plan.builder_variables(command_env.home)];
        CommandEnv {
            variables: variables.concat(),
            read,
            write: vec![plan.root.clone()],
            ..command_env.clone()
        }
    }

    /// What package managers see beside the system: the interpreter, and files that sources and variables
    /// name.
    fn readable(&self, plan: &Plan<'_>) -> Vec<PathBuf> {
        let named = self.options.variables.iter().map(|(_, value)| PathBuf::from(value));
        let files = plan.sources.internal.iter().filter_map(PackageIndex::directory);
        let given = named.chain(files).filter(|path| path.is_absolute() && path.exists());
        plan.interpreter.roots.iter().cloned().chain(given).collect()
    }

    /// What every tool sees.
    fn variables(&self, home: &Path) -> Vec<(OsString, OsString)> {
        vec![
            ("PATH".into(), self.options.path.clone()),
            ("LANG".into(), "C.UTF-8".into()),
            ("HOME".into(), home.into()),
            ("TMPDIR".into(), home.into()),
        ]
    }
}

/// Whether a build script may see a variable of its package manager: proxies, certificates and compiler settings,
/// but nothing that looks like a credential.
fn is_public(name: &OsStr, value: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    let of_builds = name.starts_with("BUNDLE_BUILD__") || CERTIFICATES.contains(&name.as_str());
    let of_tools = TOOLS.iter().any(|tool| name.starts_with(tool)) && !of_builds;
    let secretive = SECRETIVE.iter().any(|word| name.contains(word));
    !of_tools && !secretive && !value.to_string_lossy().contains('@')
}

const CERTIFICATES: [&str; 2] = ["PIP_CERT", "BUNDLE_SSL_CA_CERT"];
/// Prefixes of the settings of package managers, which include credentials.
const TOOLS: [&str; 4] = ["BUNDLE_", "GEM_", "PIP_", "UV_"];
const SECRETIVE: [&str; 7] = ["AUTH", "CREDENTIAL", "KEY", "NETRC", "PASSWORD", "SECRET", "TOKEN"];

/// The directory of the tools' own files during one build, beside the environment. What a killed build left is removed
/// by the next one.
struct StagingDirectory(PathBuf);

impl StagingDirectory {
    fn set_up(path: PathBuf) -> Result<Self, BuildFault> {
        let made = inspection::clear(&path).and_then(|()| fs::create_dir(&path));
        made.map_err(|error| BuildFault::file("cannot create", &path, &error))?;
        Ok(Self(path))
    }
}

impl Drop for StagingDirectory {
    fn drop(&mut self) {
        let _ = inspection::clear(&self.0);
    }
}

pub(super) fn lock_fault(fault: LockFault, path: &Path) -> BuildFault {
    match fault {
        LockFault::Cancelled => BuildFault::Cancelled,
        LockFault::Unusable(error) => BuildFault::file("cannot lock", path, &error),
        LockFault::Busy(limit) => BuildFault::CannotBuild {
            stage: BuildStage::Install,
            explanation: format!(
                "another process has been building this environment for {} s; try again later, or end that process",
                limit.as_secs()
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_scripts_see_build_settings_and_no_credentials() {
        for (name, value, known) in [
            ("CC", "clang", true),
            ("BUNDLE_BUILD__NATIVE", "--with-opt", true),
            ("SSL_CERT_FILE", "/etc/ssl/x.pem", true),
            ("PIP_CERT", "/etc/ssl/x.pem", true),
            ("https_proxy", "http://proxy.example:3128", true),
            ("https_proxy", "http://me:s3cret@proxy.example:3128", false),
            ("BUNDLE_GEMS__EXAMPLE", "me:s3cret", false),
            ("UV_INDEX_SOURCE0_PASSWORD", "s3cret", false),
            ("GITHUB_TOKEN", "s3cret", false),
            ("netrc", "/home/me/.netrc", false),
        ] {
            assert_eq!(is_public(OsStr::new(name), OsStr::new(value)), known, "{name}={value}");
        }
    }
}
