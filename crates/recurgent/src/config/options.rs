//! The settings as each part of the runtime takes them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lifecycle::attempt::Budgets;
use lifecycle::dependency::{DependencyPolicy, ManifestMode};
use lifecycle::dialect::Language;
use lifecycle::draft::Nanodollars;
use lifecycle::guardrail::GuardrailPolicy;
use lifecycle::request::Allowance;
use lifecycle::standing::StandingMode;

use super::agent::InferOptions;
use super::agent::retries;
use super::value::{VariableName, working_directory};
use super::{AgentOptions, Config, SettingOrigin, Settings, SettingsLayer};
use crate::environment::{EnvironmentOptions, GuestPolicy};
use crate::grants::Grants;
use crate::models::{ModelOptions, known_models};
use crate::observe::LogLimits;
use crate::provider::engine::EngineLaunch;
use crate::provider::{Price, Prices, ProviderFault, ProviderOptions, ProviderSetting};
use crate::worker::{InstallerLimits, WorkerLimits, WorkerOptions};

impl Config {
    /// The model service and how it is asked. Reads the table of prices, if there is one.
    #[doc(hidden)]
    pub fn provider_options(&self) -> Result<ProviderOptions, ProviderFault> {
        self.check_key()?;
        let settings = &self.settings;
        let prices = Prices::new(self.any_price()?);
        let prices = match &settings.prices_file {
            Some(path) => prices.read(path)?,
            None => prices,
        };
        Ok(ProviderOptions {
            provider: settings.provider.clone(),
            model: settings.model.clone(),
            base_url: settings.base_url.clone(),
            addresses: self.addresses.clone(),
            keys: self.keys.clone(),
            api_key_file: settings.api_key_file.clone(),
            proxy: settings.provider_proxy.clone(),
            ca_file: settings.provider_ca_file.clone(),
            prices,
            temperature: settings.temperature,
            retry_temperature: settings.retry_temperature,
            max_output_tokens: settings.max_output_tokens,
            models: self.model_options()?.folder(),
            engine: self.engine_launch(),
            local_servers: settings.local_servers.clone(),
        })
    }

    /// Remembers where an address of a model service is set, or a service that has one.
    pub(super) fn note_address(&mut self, layer: &SettingsLayer, origin: &SettingOrigin) {
        let names_address = match &layer.provider {
            Some(ProviderSetting::Service(wire)) => !wire.base_url.is_empty(),
            Some(
                ProviderSetting::Scripted(_)
                | ProviderSetting::Replay(_)
                | ProviderSetting::Embedded,
            ) => true,
            Some(ProviderSetting::Auto) | None => false,
        };
        let is_address = names_address || matches!(layer.base_url, Some(Some(_)));
        if is_address && !self.addressed.contains(origin) {
            self.addressed.push(origin.clone());
        }
    }

    /// Refuses to send a key to another address than the one it was set together with.
    fn check_key(&self) -> Result<(), ProviderFault> {
        let Settings { provider, base_url, api_key_file, .. } = &self.settings;
        let origin = |name: &str| self.texts.get(name).map(|(_, origin)| origin);
        let of_provider = match provider {
            ProviderSetting::Service(_) => origin("provider"),
            ProviderSetting::Auto => None,
            ProviderSetting::Scripted(_)
            | ProviderSetting::Replay(_)
            | ProviderSetting::Embedded => return Ok(()),
        };
        let address = base_url.as_ref().and_then(|_| origin("base_url")).or(of_provider);
        let key = api_key_file.as_ref().and_then(|_| origin("api_key_file"));
        let (Some(key), Some(address)) = (key, address) else { return Ok(()) };
        let has_address = self.addressed.iter().any(|origin| origin.is_together_with(key));
        if has_address && !key.is_together_with(address) {
            let (key, address) = (key.to_string(), address.to_string());
            return Err(ProviderFault::KeyOfAnotherAddress { key, address });
        }
        Ok(())
    }

    /// How the engine of the embedded model is reached and started.
    #[doc(hidden)]
    pub fn engine_launch(&self) -> EngineLaunch {
        let settings = &self.settings;
        let mut passed = vec![
            ("engine_idle_seconds", settings.engine_idle_seconds.as_secs_f64().to_string()),
            ("engine_threads", settings.engine_threads.to_string()),
            ("engine_context_tokens", settings.engine_context_tokens.to_string()),
            ("engine_prefix_mb", settings.engine_prefix_mb.to_string()),
        ];
        let cache = self.environment_options().cache;
        passed.extend(cache.map(|cache| ("cache_dir", cache.display().to_string())));
        EngineLaunch {
            command: settings.engine_command.clone(),
            search_path: self.search_path.clone(),
            folder: self.engine_dir(),
            settings: passed,
        }
    }

    /// Where the engine has its socket and its log; `None`: no home directory was found.
    pub(super) fn engine_dir(&self) -> Option<PathBuf> {
        let runtime = || self.runtime_home.as_ref().map(|home| home.join("recurgent"));
        let state = || self.state_dir().ok().map(|state| state.join("engine"));
        self.settings.engine_dir.clone().or_else(runtime).or_else(state)
    }

    /// Where the engine keeps prompt prefixes that it has read.
    #[doc(hidden)]
    pub fn prefix_dir(&self) -> Option<PathBuf> {
        self.environment_options().cache.map(|cache| cache.join("prefixes"))
    }

    /// Where models are and where they come from. Reads the table of further models, if there is one.
    #[doc(hidden)]
    pub fn model_options(&self) -> Result<ModelOptions, ProviderFault> {
        let settings = &self.settings;
        let data_home = self.data_home.as_ref().map(|home| home.join("recurgent").join("models"));
        Ok(ModelOptions {
            folder: settings.models_dir.clone().or(data_home),
            known: known_models(settings.models_file.as_deref())?,
            total_bytes: settings.models_total_mb << 20,
            reserve_bytes: settings.models_reserve_mb << 20,
            mirror: settings.model_mirror.clone(),
            hub: settings.model_hub.clone(),
            proxy: settings.provider_proxy.clone(),
            ca_file: settings.provider_ca_file.clone(),
            python: settings.python.clone(),
            uv: settings.uv.clone(),
            search_path: self.search_path.clone(),
        })
    }

    /// The price of every model that no table names.
    fn any_price(&self) -> Result<Option<Price>, ProviderFault> {
        const INPUT: &str = "price_input_per_mtok";
        const OUTPUT: &str = "price_output_per_mtok";
        let settings = &self.settings;
        let cached = settings.price_cached_per_mtok;
        let fault = |set, missing| Err(ProviderFault::Price { set, missing });
        match (settings.price_input_per_mtok, settings.price_output_per_mtok) {
            (Some(input), Some(output)) => Ok(Some(Price { input, output, cached })),
            (Some(_), None) => fault(INPUT, OUTPUT),
            (None, Some(_)) => fault(OUTPUT, INPUT),
            (None, None) if cached.is_some() => fault("price_cached_per_mtok", INPUT),
            (None, None) => Ok(None),
        }
    }

    /// How workers are started and limited.
    #[doc(hidden)]
    pub fn worker_options(&self) -> WorkerOptions {
        let settings = &self.settings;
        let defaults = WorkerOptions::new(self.search_path.clone(), self.scratch.clone());
        let max_running = match settings.max_running_workers {
            0 => defaults.max_running,
            count => count,
        };
        WorkerOptions {
            python: settings.python.clone(),
            ruby: settings.ruby.clone(),
            max_running,
            max_live: settings.max_live_workers,
            max_restarts: settings.max_worker_restarts,
            queue_limit: settings.queue_timeout_seconds,
            activation_limit: settings.activation_timeout_seconds,
            minimum_tier: settings.minimum_sandbox_tier,
            limits: self.worker_limits(),
            ..defaults
        }
    }

    /// How large the log may become.
    pub(crate) fn log_limits(&self) -> LogLimits {
        let settings = &self.settings;
        LogLimits {
            total_bytes: settings.log_total_mb << 20,
            tree_bytes: settings.log_tree_mb << 20,
            keep: settings.log_keep_days.map(|days| Duration::from_hours(24 * days)),
        }
    }

    /// What one worker may use.
    fn worker_limits(&self) -> WorkerLimits {
        let settings = &self.settings;
        WorkerLimits {
            memory_bytes: settings.worker_memory_mb << 20,
            address_space_bytes: None,
            cpu_seconds: settings.worker_cpu_seconds,
            processes: settings.worker_processes,
            open_files: settings.worker_open_files,
            file_bytes: settings.worker_file_mb << 20,
            scratch_bytes: settings.worker_scratch_mb << 20,
            scratch_files: settings.worker_scratch_files,
            output_bytes: settings.worker_output_mb << 20,
        }
    }

    /// Where and how environments are built.
    #[doc(hidden)]
    pub fn environment_options(&self) -> EnvironmentOptions {
        let settings = &self.settings;
        let cache_home = self.cache_home.as_ref().map(|home| home.join("recurgent"));
        EnvironmentOptions {
            cache: settings.cache_dir.clone().or(cache_home),
            path: self.search_path.clone(),
            uv: settings.uv.clone(),
            python: GuestPolicy {
                packages: self.dependency_policy(Language::Python),
                wheels_only: settings.wheels_only,
                minimum_age_days: settings.minimum_package_age_days,
            },
            ruby: GuestPolicy {
                packages: self.dependency_policy(Language::Ruby),
                wheels_only: false,
                minimum_age_days: settings.minimum_package_age_days,
            },
            variables: self.installer_variables(),
            unset_variables: self.unset_installer_variables(),
            hosts: settings.installer_hosts.iter().map(|host| host.as_str().to_owned()).collect(),
            limits: InstallerLimits {
                memory_bytes: settings.installer_memory_mb << 20,
                processes: settings.installer_processes,
                disk_bytes: settings.installer_disk_mb << 20,
            },
            total_bytes: settings.environments_total_mb << 20,
            download_bytes: settings.downloads_total_mb << 20,
            resolve_limit: settings.resolve_timeout_seconds,
            install_limit: settings.install_timeout_seconds,
        }
    }

    /// Which packages a guest's programs may use, and from which sources.
    pub(crate) fn dependency_policy(&self, language: Language) -> DependencyPolicy {
        let settings = &self.settings;
        let (sources, allowed, blocked) = match language {
            Language::Python => {
                (&settings.python_indexes, &settings.allowed_packages, &settings.blocked_packages)
            }
            Language::Ruby => {
                (&settings.gem_sources, &settings.allowed_gems, &settings.blocked_gems)
            }
        };
        DependencyPolicy {
            source_mode: settings.source_mode,
            sources: sources.clone(),
            allowed: allowed.clone(),
            blocked: blocked.clone(),
            refuse_near_misses: settings.refuse_near_miss_names,
        }
    }

    /// Whether standings decide what runs.
    pub(crate) fn standing_mode(&self) -> StandingMode {
        self.settings.standing_mode
    }

    /// How an agent's packages may change.
    pub(crate) fn manifest_mode(&self) -> ManifestMode {
        self.settings.manifest_mode
    }

    /// The environment variables that package managers get beyond those they are always started with.
    fn installer_variables(&self) -> Vec<(OsString, OsString)> {
        let mut variables = Vec::new();
        if let Some(proxy) = &self.settings.installer_proxy {
            let names = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"];
            variables.extend(names.map(|name| (name.into(), proxy.reveal().into())));
        }
        if let Some(bundle) = &self.settings.installer_ca_bundle {
            let names = ["SSL_CERT_FILE", "PIP_CERT", "BUNDLE_SSL_CA_CERT"];
            variables.extend(names.map(|name| (name.into(), bundle.into())));
        }
        for name in &self.settings.installer_env {
            let name = name.as_str();
            variables.extend(Self::variable(name).map(|value| (name.into(), value)));
        }
        variables
    }

    /// The names in `installer_env` that no environment variable has.
    fn unset_installer_variables(&self) -> Vec<String> {
        let names = self.settings.installer_env.iter().map(VariableName::as_str);
        names.filter(|name| Self::variable(name).is_none()).map(str::to_owned).collect()
    }

    /// Most memory that the host keeps for one call tree.
    pub(crate) fn max_tree_memory_bytes(&self) -> usize {
        usize::try_from(self.settings.max_tree_memory_mb << 20).unwrap_or(usize::MAX)
    }

    /// Largest arguments of one call, as JSON.
    pub(crate) fn max_argument_bytes(&self) -> usize {
        self.settings.max_argument_bytes
    }

    /// How long an earlier result can be referred to; `None`: as long as it is kept.
    pub(crate) fn content_ttl(&self) -> Option<Duration> {
        let seconds = self.settings.content_ttl_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// A directory of exported tools that is only read.
    pub(crate) fn tools_dir(&self) -> Option<&Path> {
        self.settings.tools_dir.as_deref()
    }

    /// What agents start with.
    #[doc(hidden)]
    pub fn agent_options(&self) -> AgentOptions {
        let settings = &self.settings;
        AgentOptions {
            model: settings.model.clone(),
            language: settings.guest,
            budgets: Budgets {
                generation: retries(settings.max_generation_attempts),
                guardrail: settings.guardrail_recovery_budget,
                execution: settings.execution_repair_budget,
                outcome: settings.fresh_outcome_repair_budget,
                transport: settings.transport_retries,
                look: settings.look_budget,
            },
            guardrails: GuardrailPolicy {
                terminal: settings.guardrail_terminal.clone(),
                ..GuardrailPolicy::default()
            },
            provider_timeout: settings.provider_timeout_seconds,
            execution_timeout: settings.execution_timeout_seconds,
            allowance: Allowance {
                depth: settings.max_delegation_depth,
                model_calls: settings.max_model_calls,
                asks_per_call: settings.asks_per_call,
                tokens: settings.max_tree_tokens,
                cost: settings.max_tree_cost_usd.map(Nanodollars::from_usd),
                wall_time: settings.max_tree_seconds,
            },
            grants: Grants {
                network: settings.network.clone(),
                read: settings.read_paths.clone(),
                write: settings.write_paths.clone(),
                workspace: settings.workspace.clone(),
                workspace_write: settings.workspace_write,
                model_sees: settings.model_sees,
                names_from: names_from(settings),
            },
            tools: settings.tools.clone(),
            tool_timeout: settings.tool_timeout_seconds,
            infer: InferOptions {
                model: settings.infer_model.clone(),
                retries: settings.infer_retries,
                max_calls: settings.max_infer_calls,
            },
            generate: settings.generate,
            widen: settings.widen,
            debug: settings.debug,
        }
    }
}

/// Where granted paths are named from; `None` if none are, so that agents of several directories share zygotes.
fn names_from(settings: &Settings) -> Option<PathBuf> {
    let granted = !settings.read_paths.is_empty() || !settings.write_paths.is_empty();
    granted.then(working_directory).flatten()
}
