//! Installs Ruby gems with Bundler: a generated `Gemfile`, `bundle lock`, then `bundle install` of exactly that lock.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lifecycle::dependency::PackageIndex;

use super::Installed;
use super::command::{CommandEnv, FinishedCommand};
use super::fault::{BuildFault, BuildStage, first_mentioned};
use super::manager::{BuildInputs, PackageManager};
use super::ready::{LoadCheck, Package};
use super::source::PackageSources;
use crate::worker::sandbox::InstallPhase;

/// The lock file.
const LOCK: &str = "Gemfile.lock";
/// Runs the Bundler of the interpreter that will load the gems, whatever `bundle` is on the path. A missing Bundler is
/// reported by an exit status that Bundler itself does not use.
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
/// Runs before every script. It lets Bundler choose bundled gems (`matrix`; `bigdecimal` since 3.4) as it chooses default
/// gems. Bundler sees no other gem of the host. The names are those that `activation.rb` lets programs load.
const BUNDLED_GEMS: &str = r"
bundled_names = %w[
  abbrev base64 bigdecimal csv debug drb getoptlong matrix minitest mutex_m net-ftp net-imap net-pop net-smtp nkf
  observer power_assert prime racc rake rbs repl_type_completor resolv-replace rexml rinda rss syslog test-unit
  typeprof
]
bundled = Gem::Specification.stubs.select { |it| bundled_names.include?(it.name) && !it.default_gem? }
Gem::Specification.singleton_class.prepend(Module.new do
  define_method(:stubs) { super() | bundled }
  define_method(:stubs_for) { |name| super(name) | bundled.select { |it| it.name == name } }
end)
";
/// Fetches every gem of the lock and installs none of them, so that no fetched code runs. No command of Bundler does this:
/// `bundle cache` fails if a gem that comes with Ruby is in the lock and in none of the sources.
const FETCH: &str = r#"
require "bundler"
require "bundler/friendly_errors"
Bundler.with_friendly_errors do
  require "fileutils"
  require "bundler/cli"
  require "bundler/cli/install"
  Bundler.ui = Bundler::UI::Shell.new
  Bundler::CLI::Install.new(Bundler::Thor::CoreExt::HashWithIndifferentAccess.new).run
  FileUtils.mkdir_p(Bundler.app_cache)
  gems = Array(Bundler.rubygems.gem_cache).flat_map { |place| Dir.glob(File.join(place, "*.gem")) }
  FileUtils.mv(gems, Bundler.app_cache)
end
"#;
/// Finds gems that were published too recently. Its arguments are `TIME -- NAME=VERSION...`. For each gem that was published
/// after `TIME` it prints `newer: NAME VERSION DATE [OLDER]`, where `OLDER` is the highest version published before it. For
/// each gem whose source gives no date it prints `undated: NAME VERSION`. Gems that come with Ruby are left out.
const FIND_AGES: &str = r#"
require "bundler"
require "json"
require "rubygems/remote_fetcher"
require "time"
Bundler.ui = Bundler::UI::Silent.new
cut = ARGV.index("--")
limit, wanted = Time.parse(ARGV[0]), ARGV[(cut + 1)..].map { |entry| entry.split("=", 2) }
locked = Bundler::LockfileParser.new(Bundler.read_file(Bundler.default_lockfile))
wanted.each do |name, version|
  spec = locked.specs.find { |it| it.name == name }
  next if Gem::Specification.stubs_for(name).any? { |it| (it.default_gem? || bundled.include?(it)) && it.version.to_s == version }
  remotes = spec.source.respond_to?(:remotes) ? spec.source.remotes : []
  published = remotes.filter_map do |uri|
    remote = Bundler::Source::Rubygems::Remote.new(uri)
    text = Gem::RemoteFetcher.fetcher.fetch_path(remote.uri.to_s + "api/v1/versions/#{name}.json")
    dated = JSON.parse(text).to_h { |it| [it["number"], it["created_at"]] }
    dated if dated[version]
  rescue StandardError
    nil
  end.first
  if published.nil?
    puts "undated: #{name} #{version}"
  elsif Time.parse(published[version]) > limit
    older = published.select { |_, at| at && Time.parse(at) <= limit }.keys.map { |it| Gem::Version.new(it) }
    older = older.reject(&:prerelease?).max
    puts ["newer: #{name} #{version} #{published[version][0, 10]}", older].compact.join(" ")
  end
end
"#;
/// Finds the first source that has each gem. Its arguments are `SOURCE... -- NAME...`; it prints `source: NAME INDEX`.
/// Bundler itself, given several sources, takes the highest version of a gem from any of them: then anyone who publishes a
/// gem under an internal name on a public source could run code here.
const FIND_SOURCES: &str = r#"
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
    found.each { |name| puts "source: #{name} #{at}" }
  end
rescue Bundler::HTTPError => problem
  warn problem.message
  exit 17
end
"#;
/// Most times the lock is made. It is made again if it contains further gems that an internal source has.
const MAX_ROUNDS: usize = 8;
/// Exit status of [`BUNDLE`] if it finds no usable Bundler.
const NO_BUNDLER: i32 = 99;
/// Exit statuses of Bundler if no versions satisfy what was declared, or there is no such gem.
const UNRESOLVED: [i32; 2] = [6, 7];
/// Exit status of Bundler and of the scripts above if a source cannot be read.
const NO_SOURCE: i32 = 17;
/// Times a failed request is tried again before its source counts as unreachable.
const RETRIES: &str = "2";
/// Longest time a source may send nothing within a request, in seconds.
const SILENCE: &str = "15";
/// Gems fetched and built in parallel.
const JOBS: &str = "4";
/// Directory of installed gems, in the environment.
const VENDOR: &str = "vendor/bundle";
/// Directory of fetched gems.
const ARCHIVES: &str = "vendor/cache";
/// Words of Bundler's messages about a source that refuses access (HTTP 401 and 403). Its exit status is the same as for
/// a source that does not answer. If another version words them differently, the source is reported as unreachable.
const DENIALS: [&str; 3] = ["Authentication is required", "Bad username or password", "403"];

/// One build by Bundler.
#[derive(Debug)]
pub(super) struct Bundler<'a> {
    pub(super) inputs: BuildInputs<'a>,
}

/// Variables that keep Bundler from using any other configuration.
pub(super) fn variables(
    root: &Path,
    cache: &Path,
    sources: Option<&PackageSources>,
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
    for source in sources.iter().flat_map(|sources| &sources.internal) {
        let Some(userinfo) = source.userinfo() else { continue };
        let host = source.host().replace('-', "___").replace('.', "__").to_uppercase();
        variables.push((format!("BUNDLE_{host}").into(), userinfo.into()));
    }
    variables
}

/// For each pinned gem the index of the first internal source that has it.
type PinnedSources = BTreeMap<String, usize>;

impl PackageManager for Bundler<'_> {
    /// Chooses versions. With several sources, each gem is first pinned to one source, and so are gems that only the lock
    /// contains.
    fn resolve(&self, limit: Duration) -> Result<(), BuildFault> {
        let deadline = Instant::now() + limit;
        let left = || deadline.saturating_duration_since(Instant::now());
        let PackageSources { internal, public } = self.inputs.sources;
        let is_mixed = !internal.is_empty() && internal.len() + usize::from(*public) > 1;
        let mut pinned = PinnedSources::new();
        let mut asked: BTreeSet<String> = BTreeSet::new();
        let mut names: Vec<String> = self.inputs.manifest.packages().map(str::to_owned).collect();
        for round in 0..MAX_ROUNDS {
            let found = if is_mixed {
                self.find_pinned_sources(&names, left())?
            } else {
                PinnedSources::new()
            };
            if round > 0 && found.is_empty() {
                return Ok(()); // no further gem has an internal source, so the lock is final
            }
            pinned.extend(found);
            asked.extend(names);
            self.inputs.write("Gemfile", &self.gemfile(&pinned))?;
            // The earlier lock may have chosen gems from the wrong source.
            let _ = fs::remove_file(self.inputs.root.join(LOCK));
            let ended = self.run_without_building(
                self.inputs.command_env,
                arguments_of(BUNDLE, &["lock"]),
                BuildStage::Resolve,
                left(),
            )?;
            self.judge(&ended, BuildStage::Resolve, self.inputs.manifest.packages())?;
            let locked = self.locked()?.into_iter().map(|gem| gem.name);
            names = locked.filter(|name| is_mixed && !asked.contains(name)).collect();
            if names.is_empty() {
                return Ok(());
            }
        }
        let explanation = format!(
            "not all of its gems had a source after {MAX_ROUNDS} rounds; declare fewer gems, or use one source"
        );
        Err(BuildFault::CannotBuild { stage: BuildStage::Resolve, explanation })
    }

    fn locked(&self) -> Result<Vec<Package>, BuildFault> {
        self.inputs.read(LOCK).map(|text| parse_lock(&text))
    }

    /// Installs exactly the lock: everything is fetched first, and built without a network.
    fn install(&self, locked: &[Package], limit: Duration) -> Result<(), BuildFault> {
        let deadline = Instant::now() + limit;
        let names = || locked.iter().map(|gem| gem.name.as_str());
        let yes = |name: &str| (name.into(), "true".into());
        let fetching =
            self.inputs.command_env.with([yes("BUNDLE_FROZEN"), yes("BUNDLE_NO_INSTALL")]);
        let fetched = self.run_without_building(
            &fetching,
            arguments_of(FETCH, &[]),
            BuildStage::Install,
            limit,
        )?;
        self.judge(&fetched, BuildStage::Install, names())?;
        let building = self.inputs.builder.with([yes("BUNDLE_FROZEN")]);
        let left = deadline.saturating_duration_since(Instant::now());
        let (install_phase, ruby) =
            (InstallPhase::Build(Vec::new()), &self.inputs.interpreter.path);
        let install = arguments_of(BUNDLE, &["install", "--local"]);
        let built = building.run(&install_phase, ruby, install, left);
        let built = self.inputs.finished(built, BuildStage::Build)?;
        self.judge(&built, BuildStage::Install, names())?;
        self.inputs.clear(ARCHIVES)
    }

    /// The public index does not choose by age, so what was chosen is checked.
    fn too_new(&self, locked: &[Package], limit: Duration) -> Result<Vec<String>, BuildFault> {
        let Some(before) = &self.inputs.published_before else { return Ok(Vec::new()) };
        let gems: Vec<String> =
            locked.iter().map(|gem| format!("{}={}", gem.name, gem.version)).collect();
        let arguments: Vec<&str> =
            [before.as_str(), "--"].into_iter().chain(gems.iter().map(String::as_str)).collect();
        let ended = self.run_without_building(
            self.inputs.command_env,
            arguments_of(FIND_AGES, &arguments),
            BuildStage::Resolve,
            limit,
        )?;
        self.judge(&ended, BuildStage::Resolve, self.inputs.manifest.packages())?;
        let reported = ended.output.lines().filter_map(|line| {
            let (kind, gem) = line.split_once(": ")?;
            match kind {
                "newer" => Some(too_new_message(gem)),
                "undated" => Some(format!("{gem} (its source does not say when)")),
                _ => None,
            }
        });
        Ok(reported.collect())
    }

    fn installed(&self) -> Result<Installed, BuildFault> {
        let library = library(self.inputs.root).ok_or_else(|| BuildFault::CannotBuild {
            stage: BuildStage::Install,
            explanation: "Bundler installed nothing".to_owned(),
        })?;
        let gem_home = self.inputs.root.join(&library);
        let load_checks = self.inputs.manifest.packages().map(|package| LoadCheck {
            package: package.to_owned(),
            // Without a module here, the zygote looks for one on the gem's load path.
            modules: feature_of(&gem_home, package).into_iter().collect(),
        });
        let provides = features(&gem_home);
        Ok(Installed { library, provides, load_checks: load_checks.collect() })
    }
}

impl Bundler<'_> {
    /// Gems that are not pinned come from the public source or, where that is not allowed, from the last internal one.
    fn gemfile(&self, pinned: &PinnedSources) -> String {
        let internal = &self.inputs.sources.internal;
        let fallback = match internal.last().filter(|_| !self.inputs.sources.public) {
            Some(last) => format!("'{}'", last.address()),
            None => "Gem.default_sources.first".to_owned(),
        };
        let mut text = format!("# generated by Recurgent\nsource {fallback}\n");
        for dependency in self.inputs.manifest.dependencies() {
            // Names and constraints were parsed: they contain nothing that could end the quoted string.
            let parts = [dependency.package()].into_iter().chain(dependency.constraints());
            let quoted: Vec<String> = parts.map(|part| format!("'{part}'")).collect();
            let pinned_source = pinned.get(dependency.package()).and_then(|at| internal.get(*at));
            let _ = writeln!(
                text,
                "gem {}{}, require: false",
                quoted.join(", "),
                source_option(pinned_source)
            );
        }
        let declared = |name: &str| self.inputs.manifest.packages().any(|package| package == name);
        for (name, at) in pinned.iter().filter(|(name, _)| !declared(name)) {
            let _ =
                writeln!(text, "gem '{name}'{}, require: false", source_option(internal.get(*at)));
        }
        text
    }

    fn find_pinned_sources(
        &self,
        names: &[String],
        limit: Duration,
    ) -> Result<PinnedSources, BuildFault> {
        let addresses = self.inputs.sources.internal.iter().map(PackageIndex::address);
        let arguments: Vec<&str> =
            addresses.chain(["--"]).chain(names.iter().map(String::as_str)).collect();
        let ended = self.run_without_building(
            self.inputs.command_env,
            arguments_of(FIND_SOURCES, &arguments),
            BuildStage::Resolve,
            limit,
        )?;
        self.judge(&ended, BuildStage::Resolve, self.inputs.manifest.packages())?;
        let found = ended.output.lines().filter_map(|line| {
            let (name, at) = line.strip_prefix("source: ")?.split_once(' ')?;
            // Only names that were asked about: they are written into a Gemfile.
            let name = names.iter().find(|asked| *asked == name)?;
            Some((name.clone(), at.parse().ok()?))
        });
        Ok(found.collect())
    }

    /// Runs a command that cannot start fetched code.
    fn run_without_building(
        &self,
        command_env: &CommandEnv<'_>,
        arguments: Vec<&str>,
        stage: BuildStage,
        limit: Duration,
    ) -> Result<FinishedCommand, BuildFault> {
        let ended =
            command_env.run(&InstallPhase::Fetch, &self.inputs.interpreter.path, arguments, limit);
        self.inputs.finished(ended, stage)
    }

    fn judge<'n>(
        &self,
        ended: &FinishedCommand,
        stage: BuildStage,
        names: impl Iterator<Item = &'n str>,
    ) -> Result<(), BuildFault> {
        let explanation = ended.output.clone();
        Err(match ended.status {
            Some(0) => return Ok(()),
            Some(NO_BUNDLER) => BuildFault::GuestMissing(format!(
                "Bundler 2.3 or newer is needed to install gems; install it (Debian/Ubuntu: apt-get install bundler). {explanation}"
            )),
            Some(NO_SOURCE) if DENIALS.iter().any(|denial| explanation.contains(denial)) => {
                BuildFault::Denied {
                    stage,
                    source: self.inputs.sources.mentioned_in(&explanation),
                    explanation,
                }
            }
            Some(NO_SOURCE) => BuildFault::Unreachable {
                stage,
                source: self.inputs.sources.mentioned_in(&explanation),
                explanation,
            },
            Some(status) if UNRESOLVED.contains(&status) || stage == BuildStage::Resolve => {
                BuildFault::Unresolvable {
                    package: first_mentioned(&explanation, names),
                    explanation,
                }
            }
            _ => BuildFault::Uninstallable {
                package: first_mentioned(&explanation, names),
                explanation,
            },
        })
    }
}

/// Ruby's arguments to run a script.
fn arguments_of<'a>(script: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    let options =
        ["--disable=did_you_mean,error_highlight", "-e", BUNDLED_GEMS, "-e", script, "--"];
    options.iter().chain(arguments).copied().collect()
}

/// The message about a gem that was published too recently: `NAME VERSION DATE [OLDER]`.
fn too_new_message(gem: &str) -> String {
    let mut words = gem.splitn(4, ' ');
    let [name, version, date] = [(); 3].map(|()| words.next().unwrap_or_default());
    match words.next() {
        Some(older) => format!("{name} {version} (published {date}; {older} is old enough)"),
        None => format!("{name} {version} (published {date}; no version is old enough)"),
    }
}

/// The option that names a gem's source.
fn source_option(source: Option<&PackageIndex>) -> String {
    source.map_or_else(String::new, |source| format!(", source: '{}'", source.address()))
}

/// The gems of a lock file. They are indented by four spaces below `specs:`, and their dependencies by six.
fn parse_lock(text: &str) -> Vec<Package> {
    let mut locked: Vec<Package> = Vec::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("    ") else { continue };
        if let (Some(need), Some(gem)) = (rest.strip_prefix("  "), locked.last_mut()) {
            gem.needs.extend(need.split(' ').next().map(str::to_owned));
        } else if let Some((name, version)) =
            rest.strip_suffix(')').and_then(|gem| gem.split_once(" ("))
        {
            locked.push(Package {
                name: name.to_owned(),
                // `1.16.0-x86_64-linux`: the version, and the platform it was built for.
                version: version.split('-').next().unwrap_or(version).to_owned(),
                needs: Vec::new(),
            });
        }
    }
    locked.sort();
    locked.dedup_by(|one, other| (&one.name, &one.version) == (&other.name, &other.version));
    locked
}

/// The gem home: `vendor/bundle/ruby/3.1.0`.
fn library(root: &Path) -> Option<PathBuf> {
    let engines = PathBuf::from(VENDOR);
    for engine in fs::read_dir(root.join(&engines)).ok()? {
        let engine = engines.join(engine.ok()?.file_name());
        for version in fs::read_dir(root.join(&engine)).ok()? {
            let gem_home = engine.join(version.ok()?.file_name());
            if root.join(&gem_home).join("specifications").is_dir() {
                return Some(gem_home);
            }
        }
    }
    None
}

/// The feature with the name of a gem, if its file is in `lib`. It must load before the environment is used.
fn feature_of(gem_home: &Path, name: &str) -> Option<String> {
    let is_of = |directory: &str| {
        let version = directory.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
    };
    let gems = fs::read_dir(gem_home.join("gems")).ok()?.filter_map(Result::ok);
    let gem = gems.into_iter().find(|gem| gem.file_name().to_str().is_some_and(is_of))?;
    let lib = gem.path().join("lib");
    let likely = [name.to_owned(), name.replace('-', "/"), name.replace('-', "_")];
    likely.into_iter().find(|feature| {
        ["rb", "so"].iter().any(|ending| lib.join(format!("{feature}.{ending}")).is_file())
    })
}

/// Names that can be required: files and directories in the load paths of all gems, without extensions.
fn features(gem_home: &Path) -> Vec<String> {
    let gems = fs::read_dir(gem_home.join("gems")).into_iter().flatten().filter_map(Result::ok);
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
    fn a_gem_that_is_too_new_is_reported_with_an_older_version() {
        for (line, expected) in [
            (
                "young 1.0.0 2026-01-02 0.9.0",
                "young 1.0.0 (published 2026-01-02; 0.9.0 is old enough)",
            ),
            (
                "young 1.0.0 2026-01-02",
                "young 1.0.0 (published 2026-01-02; no version is old enough)",
            ),
        ] {
            assert_eq!(too_new_message(line), expected);
        }
    }

    #[test]
    fn requests_are_tried_again_twice() {
        let variables = variables(Path::new("/root"), Path::new("/cache"), None);
        assert!(variables.contains(&("BUNDLE_RETRY".into(), "2".into())), "{variables:?}");
    }

    #[test]
    fn gems_that_bundler_may_choose_are_those_that_programs_may_load() {
        let names = |text: &str, before: &str| -> Vec<String> {
            let (_, rest) = text.split_once(before).unwrap();
            let (list, _) = rest.split_once(']').unwrap();
            list.split_whitespace().map(str::to_owned).collect()
        };
        let activation = include_str!("../../guests/ruby/activation.rb");
        let chosen = names(BUNDLED_GEMS, "bundled_names = %w[");
        assert_eq!(chosen, names(activation, "BUNDLED = %w["));
        assert!(chosen.contains(&"matrix".to_owned()));
    }

    #[test]
    fn the_lock_names_every_gem_once() {
        let lock = "GEM\n  remote: http://x/\n  specs:\n    alpha (1.2.0)\n      beta (>= 1)\n    beta (1.0)\n    nokogiri (1.16.0-x86_64-linux)\n\nPLATFORMS\n  x86_64-linux\n\nDEPENDENCIES\n  alpha (~> 1.0)\n\nBUNDLED WITH\n   2.3.15\n";
        let pairs: Vec<(String, String)> =
            parse_lock(lock).into_iter().map(|gem| (gem.name, gem.version)).collect();
        assert_eq!(parse_lock(lock)[0].needs, ["beta"]);
        let expected = [("alpha", "1.2.0"), ("beta", "1.0"), ("nokogiri", "1.16.0")];
        assert_eq!(pairs, expected.map(|(name, version)| (name.to_owned(), version.to_owned())));
    }
}
