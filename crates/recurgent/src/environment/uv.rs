//! Installs Python packages with uv: a generated `pyproject.toml`, `uv lock`, then `uv sync` of exactly that lock.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lifecycle::dependency::{PackageIndex, endpoint};

use super::command::{CommandEnv, FinishedCommand};
use super::fault::{BuildFault, BuildStage, first_mentioned};
use super::manager::{BuildInputs, PackageManager};
use super::ready::{LoadCheck, Package};
use super::source::PackageSources;
use super::{Installed, inspection, wheel};
use crate::worker::sandbox::InstallPhase;

/// The virtual environment, in the environment's directory.
const VENV: &str = ".venv";
/// Tries per request before a source counts as unreachable.
const HTTP_RETRIES: &str = "2";
/// Longest time a source may send nothing within a request.
const HTTP_TIMEOUT: Duration = Duration::from_secs(15);
/// What a failed uv command is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UvFailure {
    /// A source did not answer.
    Unreachable,
    /// A source refused access.
    Denied,
    /// A package could not be built.
    Unbuilt,
    /// Anything else.
    Other,
}

/// Phrases of uv's messages, and what they mean. uv reports the kind of an error in its messages only: its exit status is
/// 1 or 2 for each of them. A phrase that a later version changes makes the failure `Other`.
const PHRASES: [(&str, UvFailure); 9] = [
    ("401 Unauthorized", UvFailure::Denied),
    ("403 Forbidden", UvFailure::Denied),
    ("Failed to fetch", UvFailure::Unreachable),
    ("Request failed", UvFailure::Unreachable),
    ("error sending request", UvFailure::Unreachable),
    ("client error (Connect)", UvFailure::Unreachable),
    ("operation timed out", UvFailure::Unreachable),
    ("dns error", UvFailure::Unreachable),
    ("Failed to build", UvFailure::Unbuilt),
];

/// The exit status of uv if something other than the resolution failed.
const FAILED: i32 = 2;

/// Whether a message of uv has a phrase for this kind of failure.
fn mentions(message: &str, failure: UvFailure) -> bool {
    PHRASES.iter().any(|(phrase, meaning)| *meaning == failure && message.contains(phrase))
}

/// Reads the kind of a failure from uv's message.
fn uv_failure(status: Option<i32>, message: &str) -> UvFailure {
    if mentions(message, UvFailure::Denied) {
        UvFailure::Denied
    } else if status == Some(FAILED) && mentions(message, UvFailure::Unreachable) {
        UvFailure::Unreachable
    } else if mentions(message, UvFailure::Unbuilt) {
        UvFailure::Unbuilt
    } else {
        UvFailure::Other
    }
}

/// Arguments that install exactly the lock.
const SYNC: [&str; 2] = ["sync", "--frozen"];
/// A configuration file that can be read once.
const STANDARD_INPUT: &str = "/proc/self/fd/0";
/// A project that needs a package which nearly every index has.
const SAMPLE_PROJECT: &str = "[project]\nname = \"specimen\"\nversion = \"0\"\nrequires-python = \">=3.8\"\ndependencies = [\"setuptools\"]\n[tool.uv]\npackage = false\n";

/// Which commands use the shared cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheUse {
    /// All.
    Full,
    /// Those that install: the newest versions are asked for.
    ForFiles,
    /// None: a damaged environment is built again, and its files may be the same as those of the cache.
    Unused,
}

/// One build by uv.
#[derive(Debug)]
pub(super) struct Uv<'a> {
    pub(super) inputs: BuildInputs<'a>,
    /// The program itself.
    pub(super) tool: &'a Path,
    /// Hosts that packages of build scripts come from, once such a script may have run.
    pub(super) builds: OnceCell<Vec<String>>,
    /// Hosts that may be connected to then, besides those of the sources.
    pub(super) hosts: &'a [String],
    pub(super) wheels_only: bool,
    /// Which commands use the shared cache.
    pub(super) cache_use: CacheUse,
}

/// Variables that keep uv from using any other configuration.
pub(super) fn variables(
    cache: &Path,
    sources: Option<&PackageSources>,
) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<(OsString, OsString)> = vec![
        ("UV_CACHE_DIR".into(), cache.into()),
        ("UV_NO_CONFIG".into(), "1".into()),
        ("UV_NO_PROGRESS".into(), "1".into()),
        ("UV_PYTHON_DOWNLOADS".into(), "never".into()),
        // Uses the machine's certificates; older releases know only the second name.
        ("UV_SYSTEM_CERTS".into(), "1".into()),
        ("UV_NATIVE_TLS".into(), "1".into()),
        ("UV_HTTP_RETRIES".into(), HTTP_RETRIES.into()),
        ("UV_HTTP_TIMEOUT".into(), HTTP_TIMEOUT.as_secs().to_string().into()),
    ];
    for (at, source) in sources.iter().flat_map(|sources| &sources.internal).enumerate() {
        let Some((user, password)) = source.credentials() else { continue };
        variables.push((format!("UV_INDEX_SOURCE{at}_USERNAME").into(), user.into()));
        variables.push((format!("UV_INDEX_SOURCE{at}_PASSWORD").into(), password.into()));
    }
    variables
}

impl PackageManager for Uv<'_> {
    /// Chooses versions. A package without metadata must be built to learn its dependencies.
    fn resolve(&self, limit: Duration) -> Result<(), BuildFault> {
        let deadline = Instant::now() + limit;
        self.inputs.write("pyproject.toml", &self.project())?;
        // An empty cache instead of `--refresh`, which would also start the interpreter.
        let command_env = self.with_empty_cache_if(self.cache_use != CacheUse::Full);
        self.inspect_interpreter(&command_env, limit)?;
        let mut ended = self.fetch(&command_env, &["lock"], BuildStage::Resolve, limit)?;
        if self.must_build(&ended) {
            ended = self.build(&["lock"], deadline)?;
        }
        self.judge(&ended, BuildStage::Resolve, self.inputs.manifest.packages())
    }

    /// uv chooses by age itself.
    fn too_new(&self, _locked: &[Package], _limit: Duration) -> Result<Vec<String>, BuildFault> {
        Ok(Vec::new())
    }

    /// All but the project itself.
    fn locked(&self) -> Result<Vec<Package>, BuildFault> {
        parse_lock(&self.inputs.read("uv.lock")?).ok_or_else(|| BuildFault::CannotBuild {
            stage: BuildStage::Resolve,
            explanation: "uv wrote a lock that cannot be read; use another version of uv"
                .to_owned(),
        })
    }

    fn install(&self, locked: &[Package], limit: Duration) -> Result<(), BuildFault> {
        let deadline = Instant::now() + limit;
        let names = || locked.iter().map(|package| package.name.as_str());
        if self.cache_use == CacheUse::Unused {
            self.forget_downloads(locked, limit)?;
        }
        // A lock that was made while build scripts ran may be manipulated, so it is not installed with the shared cache.
        let fetched = if self.builds.get().is_some() {
            None
        } else {
            let command_env = self.with_empty_cache_if(self.cache_use == CacheUse::Unused);
            self.inspect_interpreter(&command_env, limit)?;
            Some(self.fetch(&command_env, &SYNC, BuildStage::Install, limit)?)
        };
        let ended = match fetched {
            Some(ended) if !self.must_build(&ended) => ended,
            _ => {
                // Its files are hard links into the shared cache.
                self.inputs.clear(VENV)?;
                self.build(&SYNC, deadline)?
            }
        };
        self.judge(&ended, BuildStage::Install, names())?;
        self.compile(deadline)
    }

    fn installed(&self) -> Result<Installed, BuildFault> {
        let library = library(self.inputs.root).ok_or_else(|| BuildFault::CannotBuild {
            stage: BuildStage::Install,
            explanation: "uv installed nothing".to_owned(),
        })?;
        let wheels = wheel::read(&self.inputs.root.join(&library))
            .map_err(|error| BuildFault::file("cannot read", &library, &error))?;
        let load_checks = self.inputs.manifest.packages().map(|package| {
            let package = package.to_owned();
            let modules =
                wheels.iter().find(|wheel| wheel.name == package).map(wheel::Wheel::best_first);
            LoadCheck { package, modules: modules.unwrap_or_default() }
        });
        let load_checks = load_checks.collect();
        let mut provides: Vec<String> =
            wheels.into_iter().flat_map(|wheel| wheel.modules).collect();
        provides.sort();
        provides.dedup();
        Ok(Installed { library, provides, load_checks })
    }
}

impl Uv<'_> {
    /// The environment of commands that fetch; with an empty cache of this build, if that is asked for.
    fn with_empty_cache_if(&self, empty: bool) -> CommandEnv<'_> {
        let cache = empty.then(|| self.inputs.command_env.home.join("anew").into_os_string());
        self.inputs.command_env.with(cache.map(|cache| ("UV_CACHE_DIR".into(), cache)))
    }

    /// Removes these packages from the shared cache: their files may be damaged there too, and other environments would be
    /// made of them. If that fails, such an environment is found damaged and built again as this one is.
    fn forget_downloads(&self, packages: &[Package], limit: Duration) -> Result<(), BuildFault> {
        // Older releases lock no cache and do not know the option.
        for options in [&["cache", "clean", "--force"][..], &["cache", "clean"]] {
            let names = packages.iter().map(|package| package.name.as_str());
            let arguments = options.iter().copied().chain(names).map(OsString::from);
            let ended = self.inputs.finished(
                self.inputs.command_env.run(&InstallPhase::Fetch, self.tool, arguments, limit),
                BuildStage::Install,
            )?;
            if ended.status == Some(0) {
                break;
            }
        }
        Ok(())
    }

    fn project(&self) -> String {
        let mut text = format!(
            "# generated by Recurgent\n[project]\nname = \"recurgent-environment\"\nversion = \"0\"\nrequires-python = \"=={}\"\ndependencies = [\n",
            self.inputs.interpreter.version
        );
        for dependency in self.inputs.manifest.dependencies() {
            let constraint = if dependency.is_unconstrained() { "" } else { &dependency.version };
            let requirement = format!("{}{constraint}", dependency.name);
            // Names and constraints were parsed: they hold nothing that could end the text.
            let _ = writeln!(text, "    {},", toml::Value::String(requirement));
        }
        // Only this machine's packages, so that the lock holds nothing that is not installed.
        let _ = writeln!(text, "]\n\n[tool.uv]\npackage = false");
        if let Some(marker) = self.inputs.interpreter.marker() {
            let _ = writeln!(text, "environments = [{}]", toml::Value::String(marker));
        }
        text
    }

    /// Makes uv inspect the interpreter and cache the result: commands that fetch packages cannot start processes.
    fn inspect_interpreter(
        &self,
        command_env: &CommandEnv<'_>,
        limit: Duration,
    ) -> Result<(), BuildFault> {
        let arguments = ["python", "find", "--no-project"].map(OsString::from);
        let arguments = arguments.into_iter().chain([self.inputs.interpreter.path.clone().into()]);
        let ended = self.inputs.finished(
            command_env.run(&InstallPhase::Tool, self.tool, arguments, limit),
            BuildStage::Tool,
        )?;
        match ended.status {
            Some(0) => Ok(()),
            _ => {
                Err(BuildFault::CannotBuild { stage: BuildStage::Tool, explanation: ended.output })
            }
        }
    }

    /// Runs a command that cannot start fetched code.
    fn fetch(
        &self,
        command_env: &CommandEnv<'_>,
        arguments_of: &[&str],
        stage: BuildStage,
        limit: Duration,
    ) -> Result<FinishedCommand, BuildFault> {
        let arguments = self.arguments(arguments_of).chain(self.indexes());
        self.inputs
            .finished(command_env.run(&InstallPhase::Fetch, self.tool, arguments, limit), stage)
    }

    /// Runs a command that may start fetched code, isolated from everything else. Sources with their credentials are passed
    /// on standard input: uv has read them before the first build script starts.
    fn build(
        &self,
        arguments_of: &[&str],
        deadline: Instant,
    ) -> Result<FinishedCommand, BuildFault> {
        let left = || deadline.saturating_duration_since(Instant::now());
        // Determined before the first script runs, which could manipulate it.
        let hosts = match self.builds.get() {
            Some(hosts) => hosts.clone(),
            None => self.reachable(left())?,
        };
        let install_phase = InstallPhase::Build(self.builds.get_or_init(|| hosts).clone());
        let mut builder =
            self.inputs.builder.with([("UV_CONFIG_FILE".into(), STANDARD_INPUT.into())]);
        builder.variables.retain(|(name, _)| name != "UV_NO_CONFIG");
        builder.input = Some(self.settings().into_bytes());
        self.inputs.finished(
            builder.run(&install_phase, self.tool, self.arguments(arguments_of), left()),
            BuildStage::Build,
        )
    }

    /// Whether it failed because a package must be built, which this command may not do.
    fn must_build(&self, ended: &FinishedCommand) -> bool {
        !self.wheels_only && ended.status != Some(0) && mentions(&ended.output, UvFailure::Unbuilt)
    }

    /// Compiles the installed modules with the interpreter that will load them, without `.pth` files of packages.
    fn compile(&self, deadline: Instant) -> Result<(), BuildFault> {
        let Some(library) = library(self.inputs.root) else { return Ok(()) };
        let options = ["-I", "-S", "-m", "compileall", "-q", "-q"].map(OsString::from);
        let arguments = options.into_iter().chain([library.into_os_string()]);
        let left = deadline.saturating_duration_since(Instant::now());
        let python = &self.inputs.interpreter.path;
        // Its status is ignored: many packages contain files for other Python versions.
        self.inputs
            .finished(
                self.inputs.builder.run(&InstallPhase::Compile, python, arguments, left),
                BuildStage::Install,
            )
            .map(drop)
    }

    fn arguments(&self, arguments_of: &[&str]) -> impl Iterator<Item = OsString> + use<'_> {
        let arguments_of: Vec<OsString> = arguments_of.iter().map(Into::into).collect();
        let python = ["--python".into(), self.inputs.interpreter.path.clone().into()];
        let wheels = self.wheels_only.then(|| "--no-build".into());
        let before = self.inputs.published_before.as_deref();
        let newest = before.into_iter().flat_map(|time| ["--exclude-newer".into(), time.into()]);
        arguments_of.into_iter().chain(python).chain(wheels).chain(newest)
    }

    /// Hosts that uv may connect to while it builds: its sources and proxies, and the hosts of files that the sources'
    /// pages refer to. Those are found by resolving a package that nearly every source has.
    fn reachable(&self, limit: Duration) -> Result<Vec<String>, BuildFault> {
        let project = self.inputs.command_env.home.join("hosts");
        let unusable = |error| BuildFault::file("cannot use", &project, &error);
        inspection::clear(&project).and_then(|()| fs::create_dir(&project)).map_err(unusable)?;
        fs::write(project.join("pyproject.toml"), SAMPLE_PROJECT).map_err(unusable)?;
        let command_env = CommandEnv { directory: &project, ..self.inputs.command_env.clone() };
        let arguments = self.arguments(&["lock", "--no-build"]).chain(self.indexes());
        // A source without it contributes only its own host.
        self.inputs.finished(
            command_env.run(&InstallPhase::Fetch, self.tool, arguments, limit),
            BuildStage::Resolve,
        )?;
        let lock = fs::read_to_string(project.join("uv.lock")).unwrap_or_default();
        let named = lock.split(['"', '\'']).filter_map(endpoint);
        let proxies = self.inputs.builder.variables.iter().filter_map(|(name, value)| {
            let is_proxy = name.to_string_lossy().to_ascii_uppercase().ends_with("_PROXY");
            endpoint(value.to_str().filter(|_| is_proxy)?)
        });
        let ours = self.inputs.sources.internal.iter().filter_map(PackageIndex::endpoint);
        let mut hosts: Vec<String> =
            ours.chain(named).chain(proxies).chain(self.hosts.iter().cloned()).collect();
        hosts.sort();
        hosts.dedup();
        Ok(hosts)
    }

    /// The same sources as [`Self::indexes`].
    fn settings(&self) -> String {
        let last = self.last();
        let mut text = String::new();
        for (at, source) in self.inputs.sources.internal.iter().enumerate() {
            let url = toml::Value::String(source.address_with_credentials());
            let is_default = Some(at) == last;
            let _ = writeln!(
                text,
                "[[index]]\nname = \"source{at}\"\nurl = {url}\ndefault = {is_default}"
            );
        }
        text
    }

    /// The index that replaces the public one, if that is not allowed: the last.
    fn last(&self) -> Option<usize> {
        self.inputs.sources.internal.len().checked_sub(1).filter(|_| !self.inputs.sources.public)
    }

    /// The configured indexes in order; the last replaces the public one if that is not allowed.
    fn indexes(&self) -> Vec<OsString> {
        let last = self.last();
        let mut options = Vec::new();
        for (at, source) in self.inputs.sources.internal.iter().enumerate() {
            let option = if Some(at) == last { "--default-index" } else { "--index" };
            options.push(option.into());
            options.push(format!("source{at}={}", source.address()).into());
        }
        options
    }

    fn judge<'n>(
        &self,
        ended: &FinishedCommand,
        stage: BuildStage,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<(), BuildFault> {
        if ended.status == Some(0) {
            return Ok(());
        }
        let explanation = message(&ended.output);
        let package = first_mentioned(&explanation, names);
        Err(match (uv_failure(ended.status, &explanation), stage) {
            (UvFailure::Denied, _) => {
                let source = self.inputs.sources.mentioned_in(&explanation);
                BuildFault::Denied { stage, source, explanation }
            }
            (UvFailure::Unreachable, _) => {
                let source = self.inputs.sources.mentioned_in(&explanation);
                BuildFault::Unreachable { stage, source, explanation }
            }
            (UvFailure::Unbuilt, _)
            | (UvFailure::Other, BuildStage::Install | BuildStage::Build) => {
                BuildFault::Uninstallable { explanation, package }
            }
            (UvFailure::Other, BuildStage::Tool | BuildStage::Resolve | BuildStage::Activate) => {
                BuildFault::Unresolvable { explanation: without_age_hint(explanation), package }
            }
        })
    }
}

/// The error message in uv's output; what comes before `error:` is progress.
fn message(output: &str) -> String {
    let at = output.find("error:").unwrap_or(0);
    output.get(at..).unwrap_or(output).trim_start_matches("error:").trim().to_owned()
}

/// A message of uv in which our setting replaces uv's hint at its option, if versions were left out for their age.
fn without_age_hint(message: String) -> String {
    const OPTION: &str = "exclude-newer";
    if !message.contains(OPTION) {
        return message;
    }
    let lines = message.lines().filter(|line| !line.contains(OPTION));
    let rest: Vec<&str> = lines.map(str::trim_end).filter(|line| !line.is_empty()).collect();
    format!(
        "versions are too new for minimum_package_age_days, or their source does not say when they were published; \
         declare an older version, or lower minimum_package_age_days. {}",
        rest.join("\n")
    )
}

fn parse_lock(text: &str) -> Option<Vec<Package>> {
    let lock: toml::Table = text.parse().ok()?;
    let Some(packages) = lock.get("package") else { return Some(Vec::new()) };
    let mut locked = Vec::new();
    for package in packages.as_array()? {
        let is_project = package.get("source").is_some_and(|source| {
            source.get("virtual").is_some() || source.get("editable").is_some()
        });
        if is_project {
            continue;
        }
        let text = |key: &str| package.get(key).and_then(toml::Value::as_str);
        let version = text("version").unwrap_or_default().to_owned();
        let needs = package.get("dependencies").and_then(toml::Value::as_array);
        let named = |need: &toml::Value| Some(need.get("name")?.as_str()?.to_owned());
        let needs = needs.into_iter().flatten().filter_map(named).collect();
        locked.push(Package { name: text("name")?.to_owned(), version, needs });
    }
    Some(locked)
}

/// `site-packages`, relative to the environment's root.
fn library(root: &Path) -> Option<PathBuf> {
    let lib = PathBuf::from(VENV).join("lib");
    let versions = fs::read_dir(root.join(&lib)).ok()?;
    let mut found = versions.filter_map(|entry| {
        let library = lib.join(entry.ok()?.file_name()).join("site-packages");
        root.join(&library).is_dir().then_some(library)
    });
    found.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_names_every_package_but_the_project() {
        let lock = "version = 1\n[[package]]\nname = \"a\"\nversion = \"1.0\"\nsource = { registry = \"x\" }\n[[package]]\nname = \"recurgent-environment\"\nversion = \"0\"\nsource = { virtual = \".\" }\n";
        let names: Vec<String> = parse_lock(lock).unwrap().into_iter().map(|p| p.name).collect();
        assert_eq!(names, ["a"]);
        assert!(parse_lock("package = 1").is_none());
    }

    #[test]
    fn an_error_message_is_found_after_the_progress_output() {
        let output = "Using CPython\nerror: No solution found\n  cause: because";
        assert_eq!(message(output), "No solution found\n  cause: because");
    }

    #[test]
    fn a_hint_at_an_option_of_uv_names_our_setting_instead() {
        let hint = "hint: `a` was filtered by `exclude-newer` to only include packages uploaded before 2026";
        let message = without_age_hint(format!("No solution found\n  cause: because\n\n{hint}"));
        assert!(message.contains("minimum_package_age_days"), "{message}");
        assert!(message.ends_with("No solution found\n  cause: because"), "{message}");
        assert_eq!(without_age_hint("No solution".to_owned()), "No solution");
    }
}
