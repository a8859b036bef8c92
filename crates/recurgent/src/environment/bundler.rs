//! Ruby gems by Bundler: a generated `Gemfile`, `bundle lock`, then `bundle install` of exactly that lock.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Installed;
use super::command::{CommandEnv, Ended};
use super::fault::{BuildFault, BuildStage, mentioned};
use super::manager::{BuildInputs, PackageManager};
use super::ready::{Package, Proof};
use super::source::{PackageIndex, PackageSources};
use crate::worker::sandbox::InstallPhase;

/// What it writes down.
const LOCK: &str = "Gemfile.lock";
/// Runs the Bundler of the interpreter that will load the gems, whatever `bundle` is on the path. What
/// it lacks is distinguished from Bundler's own errors by an exit status that Bundler does not use.
const BUNDLE: &str = r#"
begin
  require "bundler"
rescue LoadError => problem
  warn problem.message
  exit 99
end
if Gem::Version.new(Bundler::VERSION) < Gem::Version.new("2.3")
  warn "Bundler #{Bundler::VERSION} is too old"
  exit 99
end
require "bundler/friendly_errors"
Bundler.with_friendly_errors do
  require "bundler/cli"
  Bundler::CLI.start(ARGV, debug: true)
end
"#;
/// Says which of the sources before `--` is the first to have each gem after it. Bundler itself, given
/// several sources, takes the highest version of a gem from any of them: then anyone who can publish under
/// a name of ours on a public source has its programs run here.
const HOMES: &str = r#"
require "bundler"
require "bundler/fetcher"
Bundler.ui = Bundler::UI::Silent.new
cut = ARGV.index("--")
sources, names = ARGV[0...cut], ARGV[(cut + 1)..]
begin
  sources.each_with_index do |address, at|
    break if names.empty?
    source = Bundler::Source::Rubygems.new("remotes" => [address])
    remote = Bundler::Source::Rubygems::Remote.new(source.remotes.first)
    specs = Bundler::Fetcher.new(remote).specs(names, source)
    found, names = names.partition { |name| specs.search(name).any? }
    found.each { |name| puts "home: #{name} #{at}" }
  end
rescue Bundler::HTTPError => problem
  warn problem.message
  exit 17
end
"#;
/// Times the lock is made again because it added gems of ours that were not requested.
const MAX_ROUNDS: usize = 8;
/// [`BUNDLE`] found no Bundler to run.
const NO_BUNDLER: i32 = 99;
/// No versions satisfy what was declared, or there is no such gem (Bundler's own statuses).
const UNRESOLVED: [i32; 2] = [6, 7];
/// A source cannot be read.
const NO_SOURCE: i32 = 17;
/// Tries per request before a source counts as unreachable.
const RETRIES: &str = "1";
/// Longest a source may be silent within a request, in seconds.
const SILENCE: &str = "15";
/// Gems fetched and built side by side.
const JOBS: &str = "4";
/// Where gems are installed, below the environment.
const VENDOR: &str = "vendor/bundle";
/// Where fetched gems wait to be installed.
const ARCHIVES: &str = "vendor/cache";

/// One build by Bundler.
#[derive(Debug)]
pub(super) struct Bundler<'a> {
    pub(super) given: BuildInputs<'a>,
}

/// Variables that make Bundler use only the given locations.
pub(super) fn variables(
    root: &Path,
    cache: &Path,
    supply: Option<&PackageSources>,
) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<(OsString, OsString)> = vec![
        ("BUNDLE_GEMFILE".into(), root.join("Gemfile").into()),
        ("BUNDLE_PATH".into(), root.join(VENDOR).into()),
        ("BUNDLE_APP_CONFIG".into(), root.join(".bundle").into()),
        ("BUNDLE_USER_CACHE".into(), cache.into()),
        ("BUNDLE_IGNORE_CONFIG".into(), "true".into()),
        ("BUNDLE_DISABLE_SHARED_GEMS".into(), "true".into()),
        ("BUNDLE_SILENCE_ROOT_WARNING".into(), "true".into()),
        ("BUNDLE_DISABLE_VERSION_CHECK".into(), "true".into()),
        ("BUNDLE_VERSION".into(), "system".into()),
        ("BUNDLE_JOBS".into(), JOBS.into()),
        ("BUNDLE_RETRY".into(), RETRIES.into()),
        ("BUNDLE_TIMEOUT".into(), SILENCE.into()),
    ];
    for source in supply.iter().flat_map(|supply| &supply.internal) {
        let Some(userinfo) = source.userinfo() else { continue };
        let host = source.host().replace('-', "___").replace('.', "__").to_uppercase();
        variables.push((format!("BUNDLE_{host}").into(), userinfo.into()));
    }
    variables
}

/// Gems that have a source of their own: the first of ours that has them.
type Homes = BTreeMap<String, usize>;

impl PackageManager for Bundler<'_> {
    /// Chooses versions. With several sources, every gem is first given its home; and gems that only the
    /// lock brought in are too.
    fn resolve(&self, limit: Duration) -> Result<(), BuildFault> {
        let deadline = Instant::now() + limit;
        let left = || deadline.saturating_duration_since(Instant::now());
        let PackageSources { internal, public } = self.given.supply;
        let is_mixed = !internal.is_empty() && internal.len() + usize::from(*public) > 1;
        let mut homes = Homes::new();
        let mut asked: BTreeSet<String> = BTreeSet::new();
        let mut names: Vec<String> = self.given.manifest.packages().map(str::to_owned).collect();
        for round in 0..MAX_ROUNDS {
            let found = if is_mixed { self.homes(&names, left())? } else { Homes::new() };
            if round > 0 && found.is_empty() {
                return Ok(()); // nothing of ours was brought in, so the lock is good
            }
            homes.extend(found);
            asked.extend(names);
            self.given.write("Gemfile", &self.gemfile(&homes))?;
            // What was chosen before may have come from the wrong place.
            let _ = fs::remove_file(self.given.root.join(LOCK));
            let ended = self.fetch(
                self.given.command_env,
                words(BUNDLE, &["lock"]),
                BuildStage::Resolve,
                left(),
            )?;
            self.judge(&ended, BuildStage::Resolve, self.given.manifest.packages())?;
            let locked = self.locked()?.into_iter().map(|gem| gem.name);
            names = locked.filter(|name| is_mixed && !asked.contains(name)).collect();
            if names.is_empty() {
                return Ok(());
            }
        }
        let said = format!("its gems had not all a source after {MAX_ROUNDS} rounds");
        Err(BuildFault::Unable { stage: BuildStage::Resolve, said })
    }

    fn locked(&self) -> Result<Vec<Package>, BuildFault> {
        self.given.read(LOCK).map(|text| parse_lock(&text))
    }

    /// Installs what the lock says, nothing else: everything is fetched first, and built where no process can
    /// be talked to.
    fn install(&self, locked: &[Package], limit: Duration) -> Result<(), BuildFault> {
        let deadline = Instant::now() + limit;
        let names = || locked.iter().map(|gem| gem.name.as_str());
        let yes = |name: &str| (name.into(), "true".into());
        let fetching =
            self.given.command_env.with([yes("BUNDLE_FROZEN"), yes("BUNDLE_NO_INSTALL")]);
        let fetched =
            self.fetch(&fetching, words(BUNDLE, &["cache"]), BuildStage::Install, limit)?;
        self.judge(&fetched, BuildStage::Install, names())?;
        let building = self.given.builder.with([yes("BUNDLE_FROZEN")]);
        let left = deadline.saturating_duration_since(Instant::now());
        let (install_phase, ruby) = (InstallPhase::Build(Vec::new()), &self.given.interpreter.path);
        let install = words(BUNDLE, &["install", "--local"]);
        let built = building.run(&install_phase, ruby, install, left);
        let built = self.given.reported(built, BuildStage::Install)?;
        self.judge(&built, BuildStage::Install, names())?;
        self.given.clear(ARCHIVES)
    }

    fn installed(&self) -> Result<Installed, BuildFault> {
        let library = library(self.given.root).ok_or_else(|| BuildFault::Unable {
            stage: BuildStage::Install,
            said: "Bundler installed nothing".to_owned(),
        })?;
        let proofs = self.given.manifest.packages().map(|package| Proof {
            package: package.to_owned(),
            modules: Vec::new(), // the zygote knows the gem's load path, and finds its feature there
        });
        let provides = features(&self.given.root.join(&library));
        Ok(Installed { library, provides, proofs: proofs.collect() })
    }
}

impl Bundler<'_> {
    /// What is not at home in a source of ours comes from the public one; where that is not allowed, from
    /// the last of ours.
    fn gemfile(&self, homes: &Homes) -> String {
        let ours = &self.given.supply.internal;
        let fallback = match ours.last().filter(|_| !self.given.supply.public) {
            Some(last) => format!("'{}'", last.address()),
            None => "Gem.default_sources.first".to_owned(),
        };
        let mut text = format!("# generated by Recurgent\nsource {fallback}\n");
        for dependency in self.given.manifest.dependencies() {
            // Names and constraints were parsed: they hold nothing that could end the text.
            let parts = [dependency.package()].into_iter().chain(dependency.constraints());
            let quoted: Vec<String> = parts.map(|part| format!("'{part}'")).collect();
            let home = homes.get(dependency.package()).and_then(|at| ours.get(*at));
            let _ = writeln!(text, "gem {}{}, require: false", quoted.join(", "), at_home(home));
        }
        let declared = |name: &str| self.given.manifest.packages().any(|package| package == name);
        for (name, at) in homes.iter().filter(|(name, _)| !declared(name)) {
            let _ = writeln!(text, "gem '{name}'{}, require: false", at_home(ours.get(*at)));
        }
        text
    }

    fn homes(&self, names: &[String], limit: Duration) -> Result<Homes, BuildFault> {
        let addresses = self.given.supply.internal.iter().map(PackageIndex::address);
        let arguments: Vec<&str> =
            addresses.chain(["--"]).chain(names.iter().map(String::as_str)).collect();
        let ended = self.fetch(
            self.given.command_env,
            words(HOMES, &arguments),
            BuildStage::Resolve,
            limit,
        )?;
        self.judge(&ended, BuildStage::Resolve, self.given.manifest.packages())?;
        let found = ended.output.lines().filter_map(|line| {
            let (name, at) = line.strip_prefix("home: ")?.split_once(' ')?;
            // Only what was asked about: it is written into a Gemfile.
            let name = names.iter().find(|asked| *asked == name)?;
            Some((name.clone(), at.parse().ok()?))
        });
        Ok(found.collect())
    }

    /// Where nothing that is fetched can run.
    fn fetch(
        &self,
        command_env: &CommandEnv<'_>,
        words: Vec<&str>,
        stage: BuildStage,
        limit: Duration,
    ) -> Result<Ended, BuildFault> {
        let ended =
            command_env.run(&InstallPhase::Fetch, &self.given.interpreter.path, words, limit);
        self.given.reported(ended, stage)
    }

    fn judge<'n>(
        &self,
        ended: &Ended,
        stage: BuildStage,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<(), BuildFault> {
        let said = ended.output.clone();
        Err(match ended.status {
            Some(0) => return Ok(()),
            Some(NO_BUNDLER) => BuildFault::GuestMissing(format!(
                "Bundler 2.3 or newer is needed to install gems; install it (Debian/Ubuntu: apt-get install bundler). {said}"
            )),
            Some(NO_SOURCE) => {
                BuildFault::Unreachable { stage, source: self.given.supply.blamed(&said), said }
            }
            Some(status) if UNRESOLVED.contains(&status) || stage == BuildStage::Resolve => {
                BuildFault::Unresolvable { package: mentioned(&said, names), said }
            }
            _ => BuildFault::Uninstallable { package: mentioned(&said, names), said },
        })
    }
}

/// What Ruby is started with to run a script.
fn words<'a>(script: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    let options = ["--disable=did_you_mean,error_highlight", "-e", script, "--"];
    options.iter().chain(arguments).copied().collect()
}

/// The option that names a gem's source.
fn at_home(source: Option<&PackageIndex>) -> String {
    source.map_or_else(String::new, |source| format!(", source: '{}'", source.address()))
}

/// Gems are listed four spaces deep below `specs:`; what they need in turn is deeper.
fn parse_lock(text: &str) -> Vec<Package> {
    let mut locked: Vec<Package> = text
        .lines()
        .filter_map(|line| line.strip_prefix("    ").filter(|rest| !rest.starts_with(' ')))
        .filter_map(|gem| gem.strip_suffix(')')?.split_once(" ("))
        .map(|(name, version)| Package {
            name: name.to_owned(),
            // `1.16.0-x86_64-linux`: the version, and the platform it was built for.
            version: version.split('-').next().unwrap_or(version).to_owned(),
        })
        .collect();
    locked.sort();
    locked.dedup();
    locked
}

/// The directory that is a gem home: `vendor/bundle/ruby/3.1.0`.
fn library(root: &Path) -> Option<PathBuf> {
    let engines = PathBuf::from(VENDOR);
    for engine in fs::read_dir(root.join(&engines)).ok()? {
        let engine = engines.join(engine.ok()?.file_name());
        for version in fs::read_dir(root.join(&engine)).ok()? {
            let home = engine.join(version.ok()?.file_name());
            if root.join(&home).join("specifications").is_dir() {
                return Some(home);
            }
        }
    }
    None
}

/// First parts of what can be required: files and directories in the load paths of all gems.
fn features(home: &Path) -> Vec<String> {
    let gems = fs::read_dir(home.join("gems")).into_iter().flatten().filter_map(Result::ok);
    let files = gems
        .filter_map(|gem| fs::read_dir(gem.path().join("lib")).ok())
        .flat_map(|lib| lib.filter_map(Result::ok));
    let mut features: Vec<String> = files
        .filter_map(|file| {
            let name = file.file_name().into_string().ok()?;
            Some(name.split_once('.').map_or(name.as_str(), |(stem, _)| stem).to_owned())
        })
        .collect();
    features.sort();
    features.dedup();
    features
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_names_every_gem_once() {
        let lock = "GEM\n  remote: http://x/\n  specs:\n    alpha (1.2.0)\n      beta (>= 1)\n    beta (1.0)\n    nokogiri (1.16.0-x86_64-linux)\n\nPLATFORMS\n  x86_64-linux\n\nDEPENDENCIES\n  alpha (~> 1.0)\n\nBUNDLED WITH\n   2.3.15\n";
        let pairs: Vec<(String, String)> =
            parse_lock(lock).into_iter().map(|gem| (gem.name, gem.version)).collect();
        let expected = [("alpha", "1.2.0"), ("beta", "1.0"), ("nokogiri", "1.16.0")];
        assert_eq!(pairs, expected.map(|(name, version)| (name.to_owned(), version.to_owned())));
    }
}
