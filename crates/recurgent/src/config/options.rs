//! What the settings mean to each part of the runtime.

use std::ffi::OsString;
use std::time::Duration;

use lifecycle::attempt::Budgets;
use lifecycle::dependency::{DependencyPolicy, ManifestMode};
use lifecycle::dialect::Language;
use lifecycle::draft::Nanodollars;
use lifecycle::guardrail::GuardrailPolicy;
use lifecycle::request::Allowance;
use lifecycle::standing::StandingMode;

use super::key::rules;
use super::{AgentOptions, Config};
use crate::environment::{EnvironmentOptions, GuestPolicy};
use crate::grants::Grants;
use crate::provider::{Price, Prices, ProviderFault, ProviderOptions, Secret};
use crate::worker::{InstallerLimits, Tier, WorkerLimits, WorkerOptions};

impl Config {
    /// Who writes programs, and all that depends on. Reads the table of prices, if there is one.
    pub fn provider_options(&self) -> Result<ProviderOptions, ProviderFault> {
        let price = |input: f64, output: f64| {
            let cached = self.optional("price_cached_per_mtok");
            Price { input, output, cached }
        };
        let input = self.optional("price_input_per_mtok");
        let any = input.zip(self.optional("price_output_per_mtok")).map(|(i, o)| price(i, o));
        let prices = match self.path("prices_file") {
            Some(path) => Prices::new(any).read(&path)?,
            None => Prices::new(any),
        };
        let text = |name: &str| Some(self.text(name)).filter(|text| !text.is_empty());
        Ok(ProviderOptions {
            provider: self.text("provider").to_owned(),
            model: self.text("model").to_owned(),
            base_url: text("base_url").map(str::to_owned),
            keys: self.keys.clone(),
            api_key_file: self.path("api_key_file"),
            proxy: text("provider_proxy").map(Secret::new),
            ca_file: self.path("provider_ca_file"),
            prices,
            temperature: self.optional("temperature"),
            retry_temperature: self.optional("retry_temperature"),
            max_output_tokens: self.optional_count("max_output_tokens"),
        })
    }

    /// How workers are made and bounded.
    pub fn worker_options(&self) -> WorkerOptions {
        let defaults = WorkerOptions::new(self.search_path.clone(), self.scratch.clone());
        let max_running = match self.count("max_running_workers") {
            0 => defaults.max_running,
            count => count,
        };
        WorkerOptions {
            python: self.path("python"),
            ruby: self.path("ruby"),
            max_running,
            max_live: self.count("max_live_workers"),
            max_restarts: self.count("max_worker_restarts"),
            queue_limit: self.seconds("queue_timeout_seconds"),
            minimum_tier: Tier::named(self.text("minimum_sandbox_tier")).unwrap_or(Tier::Process),
            limits: self.worker_limits(),
            ..defaults
        }
    }

    /// What one worker may use up.
    fn worker_limits(&self) -> WorkerLimits {
        let megabytes = |name: &str| self.count::<u64>(name) << 20;
        WorkerLimits {
            memory_bytes: megabytes("worker_memory_mb"),
            cpu_seconds: self.count("worker_cpu_seconds"),
            processes: self.count("worker_processes"),
            open_files: self.count("worker_open_files"),
            file_bytes: megabytes("worker_file_mb"),
            scratch_bytes: megabytes("worker_scratch_mb"),
            scratch_files: self.count("worker_scratch_files"),
            output_bytes: megabytes("worker_output_mb"),
        }
    }

    /// Where and how environments are made.
    pub fn environment_options(&self) -> EnvironmentOptions {
        let cache_home = self.cache_home.as_ref().map(|home| home.join("recurgent"));
        EnvironmentOptions {
            cache: self.path("cache_dir").or(cache_home),
            path: self.search_path.clone(),
            uv: self.path("uv"),
            python: GuestPolicy {
                packages: self.dependency_policy(Language::Python),
                wheels_only: self.text("wheels_only") == "true",
            },
            ruby: GuestPolicy {
                packages: self.dependency_policy(Language::Ruby),
                wheels_only: false,
            },
            variables: self.installer_variables(),
            hosts: self.list("installer_hosts"),
            limits: InstallerLimits {
                memory_bytes: self.count::<u64>("installer_memory_mb") << 20,
                processes: self.count("installer_processes"),
                disk_bytes: self.count::<u64>("installer_disk_mb") << 20,
            },
            resolve_limit: self.seconds("resolve_timeout_seconds"),
            install_limit: self.seconds("install_timeout_seconds"),
        }
    }

    /// Which packages a guest's programs may have, and from where.
    pub fn dependency_policy(&self, language: Language) -> DependencyPolicy {
        let (sources, allowed, blocked) = match language {
            Language::Python => ("python_indexes", "allowed_packages", "blocked_packages"),
            Language::Ruby => ("gem_sources", "allowed_gems", "blocked_gems"),
        };
        DependencyPolicy {
            source_mode: self.text("source_mode").parse().unwrap_or_default(),
            sources: self.list(sources),
            allowed: self.list(allowed),
            blocked: self.list(blocked),
        }
    }

    /// Whether standings decide what runs.
    pub fn standing_mode(&self) -> StandingMode {
        match self.text("standing_mode") {
            "enforced" => StandingMode::Enforced,
            _ => StandingMode::Shadow,
        }
    }

    /// How an agent's packages may change.
    pub fn manifest_mode(&self) -> ManifestMode {
        self.text("manifest_mode").parse().unwrap_or_default()
    }

    /// All that package managers see of the environment beyond what they are started with.
    fn installer_variables(&self) -> Vec<(OsString, OsString)> {
        let mut variables = Vec::new();
        let proxy = self.text("installer_proxy");
        if !proxy.is_empty() {
            let names = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"];
            variables.extend(names.map(|name| (name.into(), proxy.into())));
        }
        let bundle = self.text("installer_ca_bundle");
        if !bundle.is_empty() {
            let names = ["SSL_CERT_FILE", "PIP_CERT", "BUNDLE_SSL_CA_CERT"];
            variables.extend(names.map(|name| (name.into(), bundle.into())));
        }
        for name in self.list("installer_env") {
            variables.extend(Self::variable(&name).map(|value| (name.into(), value)));
        }
        variables
    }

    /// Largest arguments of one call, as JSON.
    pub fn max_argument_bytes(&self) -> usize {
        self.count("max_argument_bytes")
    }

    /// How long a kept value can be referred to; `None`: as long as it is kept.
    pub fn content_ttl(&self) -> Option<Duration> {
        let seconds: u32 = self.count("content_ttl_seconds");
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// What agents start with.
    pub fn agent_options(&self) -> AgentOptions {
        AgentOptions {
            model: self.text("model").to_owned(),
            language: self.text("guest").parse().unwrap_or(Language::Python),
            budgets: Budgets {
                generation: self.count::<u32>("max_generation_attempts").saturating_sub(1),
                guardrail: self.count("guardrail_recovery_budget"),
                execution: self.count("execution_repair_budget"),
                outcome: self.count("fresh_outcome_repair_budget"),
            },
            guardrails: GuardrailPolicy {
                terminal: rules(self.text("guardrail_terminal")).unwrap_or_default(),
                ..GuardrailPolicy::default()
            },
            provider_timeout: self.seconds("provider_timeout_seconds"),
            execution_timeout: self.seconds("execution_timeout_seconds"),
            allowance: Allowance {
                depth: self.count("max_delegation_depth"),
                model_calls: self.count("max_model_calls"),
                asks_per_call: self.count("asks_per_call"),
                tokens: self.optional_count("max_tree_tokens"),
                cost: self.optional("max_tree_cost_usd").map(Nanodollars::from_usd),
                wall_time: self
                    .optional("max_tree_seconds")
                    .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            },
            grants: Grants {
                network: self.text("network").parse().unwrap_or_default(),
                read: self.paths("read_paths"),
                write: self.paths("write_paths"),
            },
            debug: self.text("debug") == "true",
        }
    }
}
