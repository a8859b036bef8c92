//! The choice of the model service, made once, with its reason.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ureq::tls::{PemItem, RootCerts, parse_pem};

use super::ProviderFault;
use super::http::{Route, proxy_at};
use super::price::Prices;
use super::secret::Secret;
use super::wire::{COMPATIBLE, WIRES, Wire, key_variables_help};

/// Most bytes of a key file.
const MAX_KEY_BYTES: u64 = 4096;
/// Longest model name.
const MAX_MODEL_BYTES: usize = 256;
/// The value of `provider` and `model` that leaves the choice to this module.
const AUTO: &str = "auto";

/// Everything that the choice of a provider depends on.
#[derive(Debug, Clone, Default)]
pub struct ProviderOptions {
    /// `auto`, the name of a service, `scripted:FILE` or `replay:FILE`.
    pub provider: String,
    /// `auto`, or a model's name.
    pub model: String,
    /// Where the service is, unless at its usual address.
    pub base_url: Option<String>,
    /// Keys found in the environment, by variable.
    pub keys: BTreeMap<&'static str, Secret>,
    /// A file with the key, which wins over the environment.
    pub api_key_file: Option<PathBuf>,
    /// The proxy to go through, unless the service is on this machine.
    pub proxy: Option<Secret>,
    /// Certificates of the authorities to trust instead of the public ones.
    pub ca_file: Option<PathBuf>,
    /// What models cost.
    pub prices: Prices,
    /// Sampling of a first attempt; `None`: the default of the service.
    pub temperature: Option<f64>,
    /// Sampling of a retry.
    pub retry_temperature: Option<f64>,
    /// Most tokens of one answer.
    pub max_output_tokens: Option<u32>,
}

/// The provider that a configuration chooses.
#[derive(Debug)]
pub enum ProviderChoice {
    /// A script.
    Scripted(PathBuf),
    /// A recording.
    Replay(PathBuf),
    /// A model service.
    Service(Box<Service>),
    /// None: stored programs run, new ones cannot be written.
    None {
        /// What to do about it.
        why: String,
    },
}

/// A model service that was chosen.
#[derive(Debug, Clone)]
pub struct Service {
    /// How it is asked.
    pub wire: &'static Wire,
    /// The model to ask when an agent names none.
    pub model: String,
    /// Where it is, without a slash at the end.
    pub base_url: String,
    /// Why this one.
    pub why: String,
    /// Where its key is from; `None`: it has none.
    pub key_source: Option<String>,
    pub(super) key: Option<Secret>,
    pub(super) route: Route,
}

/// Chooses the provider. No connection is made.
pub fn choose(options: &ProviderOptions) -> Result<ProviderChoice, ProviderFault> {
    match options.provider.split_once(':') {
        Some(("scripted", file)) => return Ok(ProviderChoice::Scripted(PathBuf::from(file))),
        Some(("replay", file)) => return Ok(ProviderChoice::Replay(PathBuf::from(file))),
        Some(_) => return Err(ProviderFault::Unknown { name: options.provider.clone() }),
        None => {}
    }
    let (wire, why) = match options.provider.as_str() {
        AUTO => match by_circumstance(options) {
            Some(found) => found,
            None => return Ok(ProviderChoice::None { why: no_model() }),
        },
        name => (named(name)?, format!("provider = {name}")),
    };
    service(options, wire, why).map(|service| ProviderChoice::Service(Box::new(service)))
}

/// The service of a name.
fn named(name: &str) -> Result<&'static Wire, ProviderFault> {
    let wire = WIRES.into_iter().find(|wire| wire.name == name);
    wire.ok_or_else(|| ProviderFault::Unknown { name: name.to_owned() })
}

/// By address, then by the model's name, then by the key that is there.
fn by_circumstance(options: &ProviderOptions) -> Option<(&'static Wire, String)> {
    if options.base_url.is_some() {
        let why = "base_url is set, and servers at other addresses speak the chat form";
        return Some((&COMPATIBLE, why.to_owned()));
    }
    if options.model != AUTO {
        return WIRES.into_iter().find_map(|wire| {
            let prefix =
                wire.model_prefixes.iter().find(|start| options.model.starts_with(**start))?;
            Some((wire, format!("the model's name begins with {prefix}")))
        });
    }
    let found = WIRES.into_iter().find_map(|wire| {
        let variable = wire.key_variable?;
        options.keys.contains_key(variable).then_some((wire, variable))
    });
    found.map(|(wire, variable)| (wire, format!("{variable} is set")))
}

fn no_model() -> String {
    format!(
        "no model is configured: set {}, or name a server of your own with --base-url URL --model NAME, \
         or use --provider scripted:FILE or replay:FILE",
        key_variables_help()
    )
}

fn service(
    options: &ProviderOptions,
    wire: &'static Wire,
    why: String,
) -> Result<Service, ProviderFault> {
    let base_url = options.base_url.as_deref().unwrap_or(wire.base_url).trim_end_matches('/');
    check_address(base_url)?;
    let model = if options.model == AUTO { wire.default_model } else { &options.model };
    check_model(model)?;
    let (key, key_source) = key(options, wire)?;
    let is_here = is_this_machine(base_url);
    if key.is_some() && base_url.starts_with("http://") && !is_here {
        return Err(ProviderFault::Unsafe(base_url.to_owned()));
    }
    Ok(Service {
        wire,
        model: model.to_owned(),
        base_url: base_url.to_owned(),
        why,
        key_source,
        key,
        route: route(options, is_here)?,
    })
}

fn check_address(base_url: &str) -> Result<(), ProviderFault> {
    let rest = base_url.strip_prefix("http://").or_else(|| base_url.strip_prefix("https://"));
    let is_plain = |rest: &&str| {
        !rest.is_empty()
            && !rest.contains(|c: char| c.is_whitespace() || matches!(c, '@' | '?' | '#'))
    };
    match rest.filter(is_plain) {
        Some(_) => Ok(()),
        None => Err(ProviderFault::Address),
    }
}

/// It becomes part of an address and of log lines.
pub(super) fn check_model(model: &str) -> Result<(), ProviderFault> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@+".contains(c);
    let fits = !model.is_empty()
        && model.len() <= MAX_MODEL_BYTES
        && model.chars().all(is_plain)
        && !model.contains("..");
    if fits { Ok(()) } else { Err(ProviderFault::Model(model.chars().take(40).collect())) }
}

/// A key travels encrypted, or stays on this machine.
fn is_this_machine(base_url: &str) -> bool {
    let rest = base_url.strip_prefix("http://").or_else(|| base_url.strip_prefix("https://"));
    let authority = rest.and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    host == "localhost"
        || host == "[::1]"
        || host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// A service on this machine is not reached through a proxy, which would see the key.
fn route(options: &ProviderOptions, is_here: bool) -> Result<Route, ProviderFault> {
    let proxy = options.proxy.clone().filter(|_| !is_here);
    if proxy.as_ref().is_some_and(|address| proxy_at(address).is_none()) {
        return Err(ProviderFault::Proxy);
    }
    let roots = options.ca_file.as_deref().map(read_roots).transpose()?;
    Ok(Route { proxy, roots })
}

fn read_roots(path: &Path) -> Result<RootCerts, ProviderFault> {
    let fault = |problem: String| ProviderFault::File { path: path.display().to_string(), problem };
    let text = std::fs::read(path).map_err(|error| fault(error.to_string()))?;
    let certificates: Vec<_> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            Ok(_) | Err(_) => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(fault("it holds no certificate; provider_ca_file is a PEM file".to_owned()));
    }
    Ok(RootCerts::from(certificates))
}

/// The key from the file, else from the environment. A compatible server gets no key of another service.
fn key(
    options: &ProviderOptions,
    wire: &Wire,
) -> Result<(Option<Secret>, Option<String>), ProviderFault> {
    if let Some(path) = &options.api_key_file {
        let key = read_key(path)?;
        return Ok((Some(key), Some(path.display().to_string())));
    }
    let found = wire.key_variable.and_then(|name| Some((options.keys.get(name)?, name)));
    match found {
        Some((key, name)) if is_key(key.reveal()) => Ok((Some(key.clone()), Some(name.to_owned()))),
        Some((_, name)) => Err(ProviderFault::Key(name)),
        None => Ok((None, None)),
    }
}

/// Whether a header can carry the text.
fn is_key(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn read_key(path: &Path) -> Result<Secret, ProviderFault> {
    let fault = |problem: String| ProviderFault::File { path: path.display().to_string(), problem };
    let file = File::open(path).map_err(|error| fault(error.to_string()))?;
    let meta = file.metadata().map_err(|error| fault(error.to_string()))?;
    if !meta.is_file() {
        return Err(fault("it is not a file; put the key into a file of its own".to_owned()));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(fault(format!(
            "other users may read this key (mode {:03o}); run: chmod 600 {}",
            meta.mode() & 0o777,
            path.display()
        )));
    }
    let mut text = String::new();
    let read = file.take(MAX_KEY_BYTES + 1).read_to_string(&mut text);
    let read = read.map_err(|error| fault(error.to_string()))?;
    let key = text.trim();
    if read as u64 > MAX_KEY_BYTES || !is_key(key) {
        return Err(fault("it must hold the key on one line and nothing else".to_owned()));
    }
    Ok(Secret::new(key))
}
