//! Everything that can be tuned, in one table, and what its text must be.

use std::borrow::Cow;

use lifecycle::dialect::Language;
use lifecycle::guardrail::Rule;

use super::{ConfigFault, Source};
use crate::environment;
use crate::grants::Network;

/// The largest count there is any use for; it fits every type counts are read as, except depth.
const MANY: u64 = u32::MAX as u64;
/// The largest depth; it fits [`Allowance::depth`].
const DEEPEST: u64 = u8::MAX as u64;

/// What a key's text must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Flag,
    Count {
        least: u64,
        most: u64,
    },
    /// Above nothing, and no more than a clock can count.
    Seconds,
    /// A number from nothing to `most`, or empty: nobody says.
    Optional {
        most: u64,
    },
    /// The same, of what comes whole.
    OptionalCount {
        least: u64,
        most: u64,
    },
    Guest,
    Rules,
    /// Texts separated by commas or white space; a list in the file.
    List,
    /// The same, of addresses that may hold credentials.
    Addresses,
    /// Paths separated by colons; a list in the file.
    Paths,
    OneOf(&'static [&'static str]),
    Network,
}

/// One thing that can be tuned.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name in the file; in capitals after `RECURGENT_` in the environment.
    pub name: &'static str,
    /// What it does.
    pub help: &'static str,
    kind: Kind,
    pub(super) default: &'static str,
}

impl Key {
    /// A value of this key, fit to be shown: addresses without credentials.
    pub fn shown<'a>(&self, value: &'a str) -> Cow<'a, str> {
        match self.kind {
            Kind::Addresses => Cow::Owned(environment::redacted(value)),
            Kind::Text
            | Kind::Flag
            | Kind::Count { .. }
            | Kind::Seconds
            | Kind::Optional { .. }
            | Kind::OptionalCount { .. }
            | Kind::Guest
            | Kind::Rules
            | Kind::List
            | Kind::Paths
            | Kind::Network
            | Kind::OneOf(_) => Cow::Borrowed(value),
        }
    }

    /// The text a list of texts stands for.
    pub(super) fn joined(&self, items: &[&str]) -> String {
        items.join(if self.kind == Kind::Paths { ":" } else { ", " })
    }

    /// Its value when nobody sets it; empty: worked out at load time.
    pub fn default(&self) -> &'static str {
        self.default
    }
}

/// Every key, in the order `recurgent config` prints them. An empty default is worked out at load time.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("provider",                     Kind::Text,                              "auto",        "who writes programs: auto, anthropic, openai, openai-chat, gemini, compatible, scripted:FILE or replay:FILE"),
    key("model",                        Kind::Text,                              "auto",        "which model to ask; auto: the service's usual one"),
    key("base_url",                     Kind::Addresses,                         "",            "where the model service is; a server of your own: http://127.0.0.1:8080/v1"),
    key("api_key_file",                 Kind::Text,                              "",            "a file only you can read that holds the key, instead of ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY"),
    key("provider_proxy",               Kind::Addresses,                         "",            "the proxy model services are reached through, unless they are on this machine"),
    key("provider_ca_file",             Kind::Text,                              "",            "a PEM file of the authorities that vouch for model services, instead of the public ones"),
    key("temperature",                  Kind::Optional { most: 2 },              "",            "sampling of a first try; empty: 0 with a compatible server, else as the service does"),
    key("retry_temperature",            Kind::Optional { most: 2 },              "",            "sampling of a try that is told what was wrong; empty: 0.8 with a compatible server, else as the first"),
    key("max_output_tokens",            OUTPUT_TOKENS,                           "",            "tokens one answer may have; empty: 2048 with a compatible server, else 16384"),
    key("price_input_per_mtok",         Kind::Optional { most: MANY },           "",            "dollars per million tokens sent"),
    key("price_cached_per_mtok",        Kind::Optional { most: MANY },           "",            "dollars per million tokens sent and served from the service's cache"),
    key("price_output_per_mtok",        Kind::Optional { most: MANY },           "",            "dollars per million tokens received"),
    key("prices_file",                  Kind::Text,                              "",            "a TOML table of prices by model"),
    key("guest",                        Kind::Guest,                             "python",      "the language programs are written in: python or ruby"),
    key("max_generation_attempts",      Kind::Count { least: 1, most: MANY },    "2",           "tries a model gets to return a usable program"),
    key("guardrail_recovery_budget",    Kind::Count { least: 0, most: MANY },    "1",           "retries after a program broke a rule"),
    key("execution_repair_budget",      Kind::Count { least: 0, most: MANY },    "1",           "retries after a program failed while running"),
    key("fresh_outcome_repair_budget",  Kind::Count { least: 0, most: MANY },    "1",           "retries after an answer that will not do"),
    key("guardrail_terminal",           Kind::Rules,                             "missing_credentials, unsupported_capability", "guardrails that end a call at once, by subtype or type, separated by commas"),
    key("provider_timeout_seconds",     Kind::Seconds,                           "120",         "time a model may take to answer"),
    key("execution_timeout_seconds",    Kind::Seconds,                           "30",          "time a program may take, nested calls aside"),
    key("max_delegation_depth",         Kind::Count { least: 0, most: DEEPEST }, "8",           "deepest level of delegation"),
    key("max_model_calls",              Kind::Count { least: 0, most: MANY },    "64",          "model calls one call tree may make"),
    key("max_tree_tokens",              TREE_TOKENS,                             "",            "tokens one call tree may use; empty: no limit"),
    key("max_tree_cost_usd",            Kind::Optional { most: MANY },           "",            "dollars one call tree may cost; empty: no limit"),
    key("max_tree_seconds",             Kind::Optional { most: MANY },           "",            "time one call tree may take, models and programs together; empty: no limit"),
    key("asks_per_call",                Kind::Count { least: 0, most: MANY },    "10000",       "questions one program may ask the host"),
    key("max_argument_bytes",           Kind::Count { least: 1, most: MANY },    "16777216",    "largest arguments of one call, as JSON"),
    key("content_ttl_seconds",          Kind::Count { least: 0, most: MANY },    "0",           "seconds an earlier result can be referred to; 0: as long as it is kept"),
    key("max_running_workers",          Kind::Count { least: 0, most: MANY },    "0",           "programs running at once; 0: twice the cores"),
    key("max_live_workers",             Kind::Count { least: 1, most: MANY },    "256",         "worker processes alive at once, idle ones included"),
    key("queue_timeout_seconds",        Kind::Seconds,                           "60",          "time a call may wait for its turn to run, or for a worker"),
    key("max_worker_restarts",          Kind::Count { least: 0, most: MANY },    "5",           "workers one agent may lose in a row before it must wait"),
    key("network",                      Kind::Network,                           "off",         "whom programs may talk to: off, loopback, open, or hosts separated by commas"),
    key("read_paths",                   Kind::Paths,                             "",            "files and directories programs may read, separated by colons"),
    key("write_paths",                  Kind::Paths,                             "",            "files and directories programs may write, separated by colons"),
    key("minimum_sandbox_tier",         SANDBOX_TIER,                            "process",     "refuse to run programs under less: process, landlock, namespaces or sealed"),
    key("worker_memory_mb",             Kind::Count { least: 64, most: MANY },   "4096",        "memory of one process of a worker, as address space; of all its processes together, where there are control groups"),
    key("worker_cpu_seconds",           Kind::Count { least: 1, most: MANY },    "60",          "processor time of one process of a worker"),
    key("worker_processes",             Kind::Count { least: 1, most: MANY },    "64",          "processes and threads of one worker"),
    key("worker_open_files",            Kind::Count { least: 32, most: MANY },   "256",         "files one process of a worker may have open"),
    key("worker_file_mb",               Kind::Count { least: 1, most: MANY },    "64",          "largest file a worker may write"),
    key("worker_scratch_mb",            Kind::Count { least: 1, most: MANY },    "64",          "a worker's scratch space"),
    key("worker_scratch_files",         Kind::Count { least: 16, most: MANY },   "4096",        "files and directories in it"),
    key("worker_output_mb",             Kind::Count { least: 1, most: MANY },    "256",         "what a program may print before it is stopped"),
    key("manifest_mode",                MANIFEST_MODE,                           "additive",    "how an agent's packages may change: additive or strict"),
    key("standing_mode",                STANDING_MODE,                           "shadow",      "whether standings decide what runs: shadow (they are only told) or enforced"),
    key("source_mode",                  SOURCE_MODE,                             "public_only", "where packages come from: public_only, internal_only or internal_then_public"),
    key("python_indexes",               Kind::Addresses,                         "",            "our Python package indexes, best first"),
    key("gem_sources",                  Kind::Addresses,                         "",            "our gem sources, best first"),
    key("allowed_packages",             Kind::List,                              "",            "the only Python packages allowed; empty: all"),
    key("blocked_packages",             Kind::List,                              "",            "Python packages never allowed"),
    key("allowed_gems",                 Kind::List,                              "",            "the only gems allowed; empty: all"),
    key("blocked_gems",                 Kind::List,                              "",            "gems never allowed"),
    key("wheels_only",                  Kind::Flag,                              "false",       "install no Python package that must be built"),
    key("resolve_timeout_seconds",      Kind::Seconds,                           "120",         "time choosing package versions may take"),
    key("install_timeout_seconds",      Kind::Seconds,                           "600",         "time installing packages may take"),
    key("installer_proxy",              Kind::Addresses,                         "",            "the proxy package managers go through"),
    key("installer_ca_bundle",          Kind::Text,                              "",            "certificates package managers trust, instead of the system's"),
    key("installer_hosts",              Kind::List,                              "",            "hosts packages may be fetched from while others are built, beside those sources name"),
    key("installer_memory_mb",          Kind::Count { least: 64, most: MANY },   "16384",       "memory of one process of an installation, as address space"),
    key("installer_processes",          Kind::Count { least: 16, most: MANY },   "512",         "processes and threads of one installation"),
    key("installer_disk_mb",            Kind::Count { least: 1, most: MANY },    "16384",       "disk space one installation may take"),
    key("installer_env",                Kind::List,                              "",            "environment variables package managers are given, by name"),
    key("uv",                           Kind::Text,                              "",            "the uv to use; found on PATH, or fetched once, when empty"),
    key("cache_dir",                    Kind::Text,                              "",            "where environments and tools live"),
    key("state_dir",                    Kind::Text,                              "",            "where the store and the log live"),
    key("log",                          Kind::Text,                              "",            "the log file, or off"),
    key("debug",                        Kind::Flag,                              "false",       "log prompts and memory too"),
    key("python",                       Kind::Text,                              "",            "the Python to run; found on PATH when empty"),
    key("ruby",                         Kind::Text,                              "",            "the Ruby to run; found on PATH when empty"),
];

const OUTPUT_TOKENS: Kind = Kind::OptionalCount { least: 1, most: MANY };
const TREE_TOKENS: Kind = Kind::OptionalCount { least: 0, most: u64::MAX };
const MANIFEST_MODE: Kind = Kind::OneOf(&["additive", "strict"]);
const STANDING_MODE: Kind = Kind::OneOf(&["shadow", "enforced"]);
const SANDBOX_TIER: Kind = Kind::OneOf(&["process", "landlock", "namespaces", "sealed"]);
const SOURCE_MODE: Kind = Kind::OneOf(&["public_only", "internal_only", "internal_then_public"]);

const fn key(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Key {
    Key { name, help, kind, default }
}

pub(super) fn unknown(name: &str, source: &Source) -> ConfigFault {
    let nearest = KEYS
        .iter()
        .map(|key| key.name)
        .min_by_key(|known| strsim::damerau_levenshtein(known, name));
    let suggestion =
        nearest.filter(|known| strsim::normalized_damerau_levenshtein(known, name) > 0.6);
    ConfigFault::Unknown {
        key: name.to_owned(),
        origin: source.to_string(),
        suggestion: suggestion.map(str::to_owned),
    }
}

/// The rules a list names, each by its subtype or with all others of its type; `None`: a name is unknown.
pub(super) fn rules(list: &str) -> Option<Vec<Rule>> {
    let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let meant = |name: &str| {
        let is_named = |rule: &Rule| rule.subtype() == name || rule.violation_type().name() == name;
        let found: Vec<Rule> = Rule::ALL.iter().copied().filter(is_named).collect();
        (!found.is_empty()).then_some(found)
    };
    names.map(meant).collect::<Option<Vec<_>>>().map(|found| found.concat())
}

#[expect(clippy::cast_precision_loss, reason = "a bound for people")]
fn as_float(count: u64) -> f64 {
    count as f64
}

fn is_count(value: &str, least: u64, most: u64) -> bool {
    value.parse::<u64>().is_ok_and(|count| (least..=most).contains(&count))
}

pub(super) fn check(key: &Key, value: &str, source: &Source) -> Result<(), ConfigFault> {
    let (fits, expected) = match key.kind {
        Kind::Text => (true, String::new()),
        Kind::Flag => (matches!(value, "true" | "false"), "true or false".to_owned()),
        Kind::Count { least, most } => {
            (is_count(value, least, most), format!("a whole number from {least} to {most}"))
        }
        Kind::Seconds => (
            value.parse::<f64>().is_ok_and(|s| s > 0.0 && s <= as_float(MANY)),
            format!("a number of seconds above 0, at most {MANY}"),
        ),
        Kind::Optional { most } => (
            value.is_empty()
                || value.parse::<f64>().is_ok_and(|n| (0.0..=as_float(most)).contains(&n)),
            format!("a number from 0 to {most}, or empty"),
        ),
        Kind::OptionalCount { least, most } => (
            value.is_empty() || is_count(value, least, most),
            format!("a whole number from {least} to {most}, or empty"),
        ),
        Kind::Rules => (
            rules(value).is_some(),
            format!(
                "a list of violation subtypes or types, of {}",
                Rule::ALL.iter().map(|rule| rule.subtype()).collect::<Vec<_>>().join(", ")
            ),
        ),
        Kind::Guest => (value.parse::<Language>().is_ok(), "python or ruby".to_owned()),
        Kind::List | Kind::Addresses | Kind::Paths => (true, String::new()),
        Kind::Network => (
            value.parse::<Network>().is_ok(),
            "off, loopback, open, or a list of hosts like api.example.org".to_owned(),
        ),
        Kind::OneOf(choices) => (choices.contains(&value), choices.join(" or ")),
    };
    if fits {
        return Ok(());
    }
    Err(ConfigFault::Invalid {
        key: key.name,
        origin: source.to_string(),
        expected,
        found: value.to_owned(),
    })
}
