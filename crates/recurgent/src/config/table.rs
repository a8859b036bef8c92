//! Every setting, one row each: its name, type, default, how its value is read and checked, form and help.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use lifecycle::dependency::{
    ManifestMode, PackageIndex, PackageName, SourceMode, without_credentials,
};
use lifecycle::dialect::Language;
use lifecycle::guardrail::{GuardrailPolicy, Rule};
use lifecycle::standing::StandingMode;

use super::value::{
    DEEPEST, Expected, HostName, LogTarget, MANY, MAX_AGE_DAYS, ToText, VariableName, Written,
    checked, count, directory, flag, gems, hosts, indexes, installer_proxy, language, log_target,
    manifest_mode, model, model_mirror, model_sees, name, network, optional_address,
    optional_count, optional_model, optional_number, optional_path, optional_seconds, paths, ports,
    provider_setting, python_packages, rules, seconds, service_proxy, source_mode, standing_mode,
    tier, tool_grant, variables,
};
use crate::grants::{ModelSees, Network, ToolGrant};
use crate::models::{DEFAULT_HUB, ModelMirror};
use crate::provider::{
    self, LOCAL_SERVERS, ModelName, ProviderSetting, ProxyAddress, ServiceAddress,
};
use crate::worker::Tier;

/// How a value of a setting is written and shown. Lists are arrays in the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A text, a number, or true or false.
    Plain,
    /// A path or a name. In the configuration file it must be in quotes.
    Text,
    /// An address that may hold credentials.
    Address,
    /// Hosts separated by commas, or one word. They are parsed together.
    Hosts,
    /// Texts or numbers, as text separated by commas or white space.
    List,
    /// Paths, as text separated by colons.
    Paths,
    /// Addresses that may hold credentials, as text separated by commas or white space.
    Addresses,
}

/// Reads a written value by its form: one text, or the items of a list.
macro_rules! read_written {
    (Plain, $read:expr, $written:expr) => {
        $written.one().and_then($read)
    };
    (Text, $read:expr, $written:expr) => {
        $written.text().and_then($read)
    };
    (Address, $read:expr, $written:expr) => {
        $written.text().and_then($read)
    };
    (Hosts, $read:expr, $written:expr) => {
        $read(&$written.hosts().join(","))
    };
    (List, $read:expr, $written:expr) => {
        $written.items().and_then(|items| $read(&items))
    };
    (Paths, $read:expr, $written:expr) => {
        $written.paths().and_then(|paths| $read(&paths))
    };
    (Addresses, $read:expr, $written:expr) => {
        $written.items().and_then(|items| $read(&items))
    };
}

/// The name of a setting, with what is said about it.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name in the file; in capitals after `RECURGENT_` in the environment.
    pub name: &'static str,
    help: &'static str,
    form: Form,
}

impl Key {
    /// What the setting does.
    pub fn help(&self) -> String {
        self.help
            .replace("{providers}", &provider::names_help())
            .replace("{key_variables}", &provider::key_variables_help())
            .replace("{temperature}", &provider::temperature_help())
            .replace("{retry_temperature}", &provider::retry_temperature_help())
            .replace("{output_tokens}", &provider::output_tokens_help())
    }

    /// A value of this setting without the credentials of the addresses in it.
    pub fn shown<'a>(&self, value: &'a str) -> Cow<'a, str> {
        if self.may_hold_credentials() {
            Cow::Owned(without_credentials(value))
        } else {
            Cow::Borrowed(value)
        }
    }

    /// The same for a message about a value that was refused: of addresses, what may be a secret is cut off.
    pub(super) fn shown_briefly(&self, value: &str) -> String {
        if !self.may_hold_credentials() {
            return value.to_owned();
        }
        let shown = without_credentials(value);
        shown.split(['?', '#']).next().unwrap_or_default().to_owned()
    }

    fn may_hold_credentials(&self) -> bool {
        matches!(self.form, Form::Address | Form::Addresses)
    }

    /// Its default as text. Empty: none, or chosen when the runtime starts.
    pub fn default(&self) -> String {
        let texts = Settings::default().texts();
        texts
            .into_iter()
            .find(|(name, _)| *name == self.name)
            .map(|(_, text)| text)
            .unwrap_or_default()
    }
}

macro_rules! settings {
    ($($name:ident: $type:ty = $default:expr, $value:expr, $form:ident, $help:literal;)*) => {
        /// Every setting, in the order `recurgent config` prints them.
        pub const KEYS: &[Key] =
            &[$(Key { name: stringify!($name), help: $help, form: Form::$form }),*];

        /// The value of every setting.
        #[expect(clippy::doc_markdown, reason = "the help texts are for terminals")]
        #[derive(Debug, Clone, PartialEq)]
        pub struct Settings {
            $(#[doc = $help] pub $name: $type,)*
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        #[expect(clippy::doc_markdown, reason = "the help texts are for terminals")]
        /// The values that one layer (the file, the environment, flags, code) sets; the others stay as they are.
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct SettingsLayer {
            $(#[doc = $help] pub $name: Option<$type>,)*
        }

        impl Settings {
            /// Replaces every value that the layer sets.
            pub(super) fn apply(&mut self, layer: &SettingsLayer) {
                $(if let Some(value) = &layer.$name {
                    self.$name.clone_from(value);
                })*
            }

            /// Every value as text.
            pub(super) fn texts(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), self.$name.to_text()),)*]
            }
        }

        impl SettingsLayer {
            /// Sets a value from what was written. `None`: no setting has the name.
            pub(super) fn parse(&mut self, name: &str, written: &Written) -> Option<Result<(), Expected>> {
                match name {
                    $(stringify!($name) => {
                        let read = read_written!($form, ($value().read), written);
                        Some(read.map(|value| self.$name = Some(value)))
                    })*
                    _ => None,
                }
            }

            /// The same values, checked, with paths made absolute. The error names the setting and says what its value
            /// must be and is.
            pub(super) fn checked(&self) -> Result<Self, (&'static str, Expected, String)> {
                Ok(Self {
                    $($name: match &self.$name {
                        None => None,
                        Some(value) => Some(checked(value, $value().check).map_err(
                            |(expected, found)| (stringify!($name), expected, found),
                        )?),
                    },)*
                })
            }

            /// The values it sets, as text.
            pub(super) fn texts(&self) -> Vec<(&'static str, String)> {
                let texts = [$((stringify!($name), self.$name.as_ref().map(ToText::to_text)),)*];
                texts.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
            }
        }
    };
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[rustfmt::skip]
settings! {
    provider:                    ProviderSetting  = ProviderSetting::Auto              , provider_setting                    , Plain    , "the provider that writes programs: {providers}";
    profile:                     String           = String::new()                      , name                                , Text     , "the profile of the configuration file to use: settings of [provider.NAME]";
    model:                       ModelName        = ModelName::default()               , model                               , Plain    , "which model to ask; auto: the service's usual one";
    base_url:                    Option<ServiceAddress>= None                               , optional_address                    , Address  , "where the model service is; a server of your own: http://127.0.0.1:8080/v1";
    api_key_file:                Option<PathBuf>  = None                               , optional_path                       , Text     , "a file only you can read that holds the key, instead of {key_variables}";
    provider_proxy:              Option<ProxyAddress>= None                               , service_proxy                       , Address  , "the proxy model services are reached through, unless they are on this machine";
    provider_ca_file:            Option<PathBuf>  = None                               , optional_path                       , Text     , "a PEM file of the certificate authorities to trust for model services, instead of the public ones";
    temperature:                 Option<f64>      = None                               , optional_number::<2>                , Plain    , "sampling temperature of a first attempt; empty: {temperature}";
    retry_temperature:           Option<f64>      = None                               , optional_number::<2>                , Plain    , "sampling temperature of a retry; empty: {retry_temperature}";
    max_output_tokens:           Option<u32>      = None                               , optional_count::<_, 1, MANY>        , Plain    , "tokens one answer may have; empty: {output_tokens}";
    price_input_per_mtok:        Option<f64>      = None                               , optional_number::<MANY>             , Plain    , "dollars per million tokens sent";
    price_cached_per_mtok:       Option<f64>      = None                               , optional_number::<MANY>             , Plain    , "dollars per million tokens sent and served from the service's cache";
    price_output_per_mtok:       Option<f64>      = None                               , optional_number::<MANY>             , Plain    , "dollars per million tokens received";
    prices_file:                 Option<PathBuf>  = None                               , optional_path                       , Text     , "a TOML table of prices by model";
    models_dir:                  Option<PathBuf>  = None                               , optional_path                       , Text     , "where models are kept; empty: recurgent/models in your data directory";
    models_file:                 Option<PathBuf>  = None                               , optional_path                       , Text     , "a TOML table of further models that `recurgent model install` knows";
    models_total_mb:             u64              = 16_384                             , count::<_, 1, MANY>                 , Plain    , "all installed models together; `recurgent model install` refuses more";
    models_reserve_mb:           u64              = 1024                               , count::<_, 0, MANY>                 , Plain    , "disk space that installing a model leaves free";
    model_mirror:                Option<ModelMirror> = None                               , model_mirror                        , Address  , "where models are fetched from first: a file, a directory, or an http(s) address of either";
    model_hub:                   Option<ServiceAddress> = DEFAULT_HUB.parse().ok()           , optional_address                    , Address  , "the hub that models are fetched from next; empty: none";
    engine_command:              Option<PathBuf>  = None                               , optional_path                       , Text     , "the recurgent that runs the embedded model; empty: the running one, or the one on PATH";
    engine_dir:                  Option<PathBuf>  = None                               , optional_path                       , Text     , "where the engine has its socket and its log; empty: in your runtime directory, else in state_dir";
    engine_idle_seconds:         Duration         = secs(600)                          , seconds                             , Plain    , "time without a request after which the engine ends";
    engine_threads:              usize            = 0                                  , count::<_, 0, 1024>                 , Plain    , "threads of the engine; 0: one per core";
    engine_context_tokens:       usize            = 8192                               , count::<_, 256, 1_048_576>          , Plain    , "most tokens of a prompt and its answer; more take more memory";
    engine_prefix_mb:            u64              = 512                                , count::<_, 0, MANY>                 , Plain    , "disk space for prompt prefixes that the engine has read before";
    local_servers:               Vec<u16>         = LOCAL_SERVERS.to_vec()             , ports                               , List     , "ports of this machine where a model server is looked for when no model is configured; empty: none";
    guest:                       Language         = Language::Python                   , language                            , Plain    , "the language programs are written in: python or ruby";
    max_generation_attempts:     u32              = 2                                  , count::<_, 1, MANY>                 , Plain    , "attempts a model has to return a usable program";
    guardrail_recovery_budget:   u32              = 1                                  , count::<_, 0, MANY>                 , Plain    , "retries after a program broke a rule";
    execution_repair_budget:     u32              = 1                                  , count::<_, 0, MANY>                 , Plain    , "retries after a program failed while running";
    fresh_outcome_repair_budget: u32              = 1                                  , count::<_, 0, MANY>                 , Plain    , "retries after an answer that is not acceptable";
    look_budget:                 u32              = 3                                  , count::<_, 0, MANY>                 , Plain    , "times that programs of one call may look at data before one answers (`look`)";
    transport_retries:           u32              = 4                                  , count::<_, 0, MANY>                 , Plain    , "retries after the model service failed or could not be reached";
    max_retry_delay_seconds:     Duration         = secs(30)                           , seconds                             , Plain    , "the longest wait before such a retry; a service that asks for a longer one is not asked again";
    guardrail_terminal:          Vec<Rule>        = GuardrailPolicy::default().terminal, rules                               , List     , "guardrails that end a call at once, by subtype or type, separated by commas";
    provider_timeout_seconds:    Duration         = secs(120)                          , seconds                             , Plain    , "time a model may take to answer";
    execution_timeout_seconds:   Duration         = secs(30)                           , seconds                             , Plain    , "time a program may take, nested calls aside";
    max_delegation_depth:        u8               = 8                                  , count::<_, 0, DEEPEST>              , Plain    , "deepest level of delegation";
    max_model_calls:             u32              = 64                                 , count::<_, 0, MANY>                 , Plain    , "model calls one call tree may make";
    max_tree_tokens:             Option<u64>      = None                               , optional_count::<_, 0, { u64::MAX }>, Plain    , "tokens one call tree may use; empty: no limit";
    max_tree_cost_usd:           Option<f64>      = None                               , optional_number::<MANY>             , Plain    , "dollars one call tree may cost; empty: no limit";
    max_tree_seconds:            Option<Duration> = None                               , optional_seconds                    , Plain    , "time one call tree may take, models and programs together; empty: no limit";
    infer_model:                 Option<ModelName>= None                               , optional_model                      , Plain    , "which model answers the questions of programs about data (`infer`); empty: the same as `model`";
    infer_retries:               u32              = 1                                  , count::<_, 0, MANY>                 , Plain    , "retries after such an answer cannot be used";
    max_infer_calls:             u32              = 48                                 , count::<_, 0, MANY>                 , Plain    , "model calls that one run of a program may make by asking about data";
    infer_cache:                 bool             = true                               , flag                                , Plain    , "whether such answers are kept: the same question about the same data is asked once";
    infer_cache_mb:              u64              = 16                                 , count::<_, 0, 4096>                 , Plain    , "disk space for kept answers; the oldest are dropped";
    asks_per_call:               u32              = 10000                              , count::<_, 0, MANY>                 , Plain    , "requests one program may make to the host";
    max_tree_memory_mb:          u64              = 256                                , count::<_, 16, MANY>                , Plain    , "memory the host may take for arguments and memories of one call tree";
    max_argument_bytes:          usize            = 16_777_216                          , count::<_, 1, MANY>                 , Plain    , "largest arguments of one call, as JSON";
    content_ttl_seconds:         u32              = 0                                  , count::<_, 0, MANY>                 , Plain    , "seconds an earlier result can be referred to; 0: as long as it is kept";
    max_running_workers:         usize            = 0                                  , count::<_, 0, MANY>                 , Plain    , "programs running at once; 0: twice the cores";
    max_live_workers:            usize            = 256                                , count::<_, 1, MANY>                 , Plain    , "worker processes alive at once, idle ones included";
    queue_timeout_seconds:       Duration         = secs(60)                           , seconds                             , Plain    , "time a call may wait for its turn to run, or for a worker";
    session_wait_seconds:        Duration         = secs(300)                          , seconds                             , Plain    , "time a call may wait for the earlier calls of its session";
    max_worker_restarts:         u32              = 5                                  , count::<_, 0, MANY>                 , Plain    , "workers one agent may lose in a row before it must wait";
    network:                     Network          = Network::Off                       , network                             , Hosts    , "the network that programs may use: off, loopback, open, or hosts separated by commas";
    tools:                       ToolGrant        = ToolGrant::Functions               , tool_grant                          , Hosts    , "tools from outside that programs may call: names such as time or orders.search, * for all, none; empty: only functions of the embedding program";
    mcp_files:                   Vec<PathBuf>     = Vec::new()                         , paths                               , Paths    , "files with MCP servers in the form of other programs (`mcpServers`), separated by colons";
    tool_timeout_seconds:        Duration         = secs(60)                           , seconds                             , Plain    , "time one call of a tool from outside may take";
    read_paths:                  Vec<PathBuf>     = Vec::new()                         , paths                               , Paths    , "files and directories programs may read, separated by colons";
    write_paths:                 Vec<PathBuf>     = Vec::new()                         , paths                               , Paths    , "files and directories programs may write, separated by colons";
    workspace:                   Option<PathBuf>  = None                               , directory                           , Text     , "a directory that programs run in and may read; relative paths resolve there";
    workspace_write:             bool             = false                              , flag                                , Plain    , "let programs change the workspace";
    model_sees:                  ModelSees        = ModelSees::Auto                    , model_sees                          , Plain    , "what programs may show a model of the values they work with: previews, values, or auto (values, if the model is on this machine)";
    minimum_sandbox_tier:        Tier             = Tier::Process                      , tier                                , Plain    , "refuse to run programs under less: process, landlock, namespaces or sealed";
    worker_memory_mb:            u64              = 4096                               , count::<_, 64, MANY>                , Plain    , "memory of one process of a worker, as address space; of all its processes together, where there are control groups";
    worker_cpu_seconds:          u64              = 60                                 , count::<_, 1, MANY>                 , Plain    , "processor time of one process of a worker";
    worker_processes:            u64              = 64                                 , count::<_, 1, MANY>                 , Plain    , "processes and threads of one worker";
    worker_open_files:           u64              = 256                                , count::<_, 32, MANY>                , Plain    , "files one process of a worker may have open";
    worker_file_mb:              u64              = 64                                 , count::<_, 1, MANY>                 , Plain    , "largest file a worker may write";
    worker_scratch_mb:           u64              = 64                                 , count::<_, 1, MANY>                 , Plain    , "a worker's scratch space";
    worker_scratch_files:        u64              = 4096                               , count::<_, 16, MANY>                , Plain    , "files and directories in it";
    worker_output_mb:            u64              = 256                                , count::<_, 1, MANY>                 , Plain    , "what a program may print before it is stopped";
    manifest_mode:               ManifestMode     = ManifestMode::Additive             , manifest_mode                       , Plain    , "how an agent's packages may change: additive or strict";
    widen:                       bool             = true                               , flag                                , Plain    , "whether a model may widen a stored program to arguments it was not written for";
    candidates:                  Option<u32>      = None                               , optional_count::<_, 1, 9>           , Plain    , "programs a model is asked for at once; more than one are compared before an answer is accepted; empty: as the provider has it";
    standing_mode:               StandingMode     = StandingMode::Shadow               , standing_mode                       , Plain    , "whether standings decide what runs: shadow (they are only logged) or enforced";
    source_mode:                 SourceMode       = SourceMode::PublicOnly             , source_mode                         , Plain    , "where packages come from: public_only, internal_only or internal_then_public";
    python_indexes:              Vec<PackageIndex>= Vec::new()                         , indexes                             , Addresses, "your Python package indexes, best first";
    gem_sources:                 Vec<PackageIndex>= Vec::new()                         , indexes                             , Addresses, "your gem sources, best first";
    allowed_packages:            Vec<PackageName> = Vec::new()                         , python_packages                     , List     , "the only Python packages allowed; empty: all";
    blocked_packages:            Vec<PackageName> = Vec::new()                         , python_packages                     , List     , "Python packages never allowed";
    allowed_gems:                Vec<PackageName> = Vec::new()                         , gems                                , List     , "the only gems allowed; empty: all";
    blocked_gems:                Vec<PackageName> = Vec::new()                         , gems                                , List     , "gems never allowed";
    wheels_only:                 bool             = false                              , flag                                , Plain    , "install no Python package that must be built";
    resolve_timeout_seconds:     Duration         = secs(120)                          , seconds                             , Plain    , "time choosing package versions may take";
    install_timeout_seconds:     Duration         = secs(600)                          , seconds                             , Plain    , "time installing packages may take";
    activation_timeout_seconds:  Duration         = secs(60)                           , seconds                             , Plain    , "time installed packages may take to load";
    minimum_package_age_days:    u32              = 0                                  , count::<_, 0, MAX_AGE_DAYS>         , Plain    , "install no package version published less than this many days ago";
    refuse_near_miss_names:      bool             = false                              , flag                                , Plain    , "refuse packages whose name nearly is that of a popular one, instead of noting them";
    installer_proxy:             Option<ProxyAddress>= None                               , installer_proxy                     , Address  , "the proxy package managers go through";
    installer_ca_bundle:         Option<PathBuf>  = None                               , optional_path                       , Text     , "certificates package managers trust, instead of the system's";
    installer_hosts:             Vec<HostName>    = Vec::new()                         , hosts                               , List     , "hosts packages may be fetched from while others are built, beside those sources name";
    installer_memory_mb:         u64              = 16384                              , count::<_, 64, MANY>                , Plain    , "memory of one process of an installation, as address space";
    installer_processes:         u64              = 512                                , count::<_, 16, MANY>                , Plain    , "processes and threads of one installation";
    installer_disk_mb:           u64              = 16384                              , count::<_, 1, MANY>                 , Plain    , "disk space one installation may take";
    environments_total_mb:       u64              = 32768                              , count::<_, 1, MANY>                 , Plain    , "all environments together; those unused longest are removed after a new one was built";
    downloads_total_mb:          u64              = 8192                               , count::<_, 1, MANY>                 , Plain    , "downloads of uv and Bundler, besides what environments share; more are removed after a build";
    installer_env:               Vec<VariableName>= Vec::new()                         , variables                           , List     , "environment variables package managers are given, by name";
    uv:                          Option<PathBuf>  = None                               , optional_path                       , Text     , "the uv to use; found on PATH, or fetched once, when empty";
    cache_dir:                   Option<PathBuf>  = None                               , optional_path                       , Text     , "where environments and tools live";
    state_dir:                   Option<PathBuf>  = None                               , optional_path                       , Text     , "where the store and the log live";
    log:                         LogTarget        = LogTarget::StateDir                , log_target                          , Plain    , "the log file, or off";
    log_total_mb:                u64              = 512                                , count::<_, 1, MANY>                 , Plain    , "all files of the log together; the oldest are removed";
    log_tree_mb:                 u64              = 16                                 , count::<_, 1, MANY>                 , Plain    , "what one call and all it calls may log; further calls of the tree are counted, not logged";
    log_keep_days:               Option<u64>      = None                               , optional_count::<_, 1, MANY>        , Plain    , "days that full log files are kept; empty: until log_total_mb is reached";
    generate:                    bool             = true                               , flag                                , Plain    , "whether a model may be asked; off: stored programs run, every other call fails";
    tools_dir:                   Option<PathBuf>  = None                               , optional_path                       , Text     , "a directory of exported tools, read only; its programs come after those of the store";
    debug:                       bool             = false                              , flag                                , Plain    , "log prompts and memory too";
    python:                      Option<PathBuf>  = None                               , optional_path                       , Text     , "the Python to run; found on PATH when empty";
    ruby:                        Option<PathBuf>  = None                               , optional_path                       , Text     , "the Ruby to run; found on PATH when empty";
}
