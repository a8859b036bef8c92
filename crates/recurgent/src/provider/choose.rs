//! The choice of the model service, made once, with its reason.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use lifecycle::draft::DraftFault;
use ureq::tls::{PemItem, RootCerts, parse_pem};

use super::embedded::{EmbeddedModel, EngineLaunch};
use super::http::Route;
use super::local::find_server;
use super::price::Prices;
use super::secret::Secret;
use super::setting::{ModelName, ProviderSetting, ProxyAddress, ServiceAddress};
use super::wire::{COMPATIBLE, WIRES, Wire, key_beside, key_variables_help};
use super::{DraftRequest, ProviderFault};
use crate::models::ModelFolder;
use crate::regular_file::{open_regular, open_without_waiting};

/// Most bytes of certificates that are read.
const MAX_CERTIFICATE_BYTES: u64 = 16 << 20;
/// Most bytes of a key file.
const MAX_KEY_BYTES: u64 = 4096;

/// Everything that the choice of a provider depends on.
#[derive(Debug, Clone, Default)]
pub struct ProviderOptions {
    /// The configured provider.
    pub provider: ProviderSetting,
    /// The configured model.
    pub model: ModelName,
    /// Where the service is, unless at its usual address.
    pub base_url: Option<ServiceAddress>,
    /// Addresses of services found in the environment, by variable.
    pub addresses: BTreeMap<&'static str, ServiceAddress>,
    /// Keys found in the environment, by variable.
    pub keys: BTreeMap<&'static str, Secret>,
    /// A file with the key, which wins over the environment.
    pub api_key_file: Option<PathBuf>,
    /// The proxy to go through, unless the service is on this machine.
    pub proxy: Option<ProxyAddress>,
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
    /// Where installed models are, if anywhere.
    pub models: Option<ModelFolder>,
    /// How the engine is reached and started.
    pub engine: EngineLaunch,
    /// Ports of this machine where a model server may listen.
    pub local_servers: Vec<u16>,
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
    /// The embedded model.
    Embedded(EmbeddedModel),
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
    pub model: ModelName,
    /// Whether the server is asked for its model first.
    pub asks_for_model: bool,
    /// Where it is.
    pub base_url: ServiceAddress,
    /// The environment variable that its address is from, if it is from one.
    pub address_source: Option<&'static str>,
    /// Why this one.
    pub why: String,
    /// Where its key is from; `None`: it has none.
    pub key_source: Option<String>,
    pub(super) key: Option<Secret>,
    pub(super) route: Route,
}

/// Chooses the provider. If no service is configured, ports of this machine are tried; no other connection is made.
pub fn choose(options: &ProviderOptions) -> Result<ProviderChoice, ProviderFault> {
    match choose_configured(options)? {
        Some(choice) => Ok(choice),
        None => choose_local(options),
    }
}

/// Chooses what the configuration names; `None`: nothing. No connection is made.
pub(super) fn choose_configured(
    options: &ProviderOptions,
) -> Result<Option<ProviderChoice>, ProviderFault> {
    let (wire, why) = match &options.provider {
        ProviderSetting::Scripted(file) => {
            return Ok(Some(ProviderChoice::Scripted(file.clone())));
        }
        ProviderSetting::Replay(file) => return Ok(Some(ProviderChoice::Replay(file.clone()))),
        ProviderSetting::Embedded => return Ok(Some(embedded(options))),
        ProviderSetting::Service(wire) => (*wire, format!("provider = {}", wire.name)),
        ProviderSetting::Auto => match by_circumstance(options) {
            Some(found) => found,
            None => return Ok(None),
        },
    };
    service(options, wire, why).map(|service| Some(ProviderChoice::Service(Box::new(service))))
}

/// Chooses a model of this machine: a server that answers, else the embedded model.
pub(super) fn choose_local(options: &ProviderOptions) -> Result<ProviderChoice, ProviderFault> {
    let asked = options.model.named();
    let installed = || {
        installed_model(options).map(|(name, path)| EmbeddedModel {
            name,
            path,
            why: "no service is configured".to_owned(),
        })
    };
    // A file that is named is meant, whatever else answers.
    if asked.is_some_and(is_model_file)
        && let Some(model) = installed()
    {
        return Ok(ProviderChoice::Embedded(model));
    }
    if let Some(server) = find_server(&options.local_servers, asked) {
        let why = format!("no service is configured, and a server answers at port {}", server.port);
        let base_url = format!("http://127.0.0.1:{}/v1", server.port).parse()?;
        let options =
            ProviderOptions { model: server.model, base_url: Some(base_url), ..options.clone() };
        let service = service(&options, &COMPATIBLE, why)?;
        return Ok(ProviderChoice::Service(Box::new(service)));
    }
    Ok(match installed() {
        Some(model) => ProviderChoice::Embedded(model),
        None => ProviderChoice::None { why: nothing_configured() },
    })
}

/// The embedded model, because `provider` names it.
fn embedded(options: &ProviderOptions) -> ProviderChoice {
    match (installed_model(options), options.model.named()) {
        (Some((name, path)), _) => ProviderChoice::Embedded(EmbeddedModel {
            name,
            path,
            why: "provider = embedded".to_owned(),
        }),
        (None, Some(asked)) => ProviderChoice::None {
            why: format!(
                "provider is embedded, and the model {asked} is not installed: run `recurgent model install {asked} --yes`, or set model to the path of a GGUF file"
            ),
        },
        (None, None) => ProviderChoice::None {
            why: "provider is embedded, and no model is installed: run `recurgent model install --yes` (1.1 GB, once)"
                .to_owned(),
        },
    }
}

/// The file and the name of the model that is asked for, if it is there.
fn installed_model(options: &ProviderOptions) -> Option<(String, PathBuf)> {
    let asked = options.model.named();
    if let Some(path) = asked.filter(|asked| is_model_file(asked)).map(PathBuf::from)
        && path.is_absolute()
        && path.is_file()
    {
        let name = path.file_stem()?.to_str()?.to_owned();
        return Some((name, path));
    }
    let model = options.models.as_ref()?.find(asked)?;
    Some((model.name, model.path))
}

fn is_model_file(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "gguf")
}

/// By address, then by the model's name, then by the key or address in the environment.
fn by_circumstance(options: &ProviderOptions) -> Option<(&'static Wire, String)> {
    if options.base_url.is_some() {
        let why = "base_url is set, and servers at other addresses speak the chat form";
        return Some((&COMPATIBLE, why.to_owned()));
    }
    if let Some(model) = options.model.named() {
        let by_name = WIRES.iter().copied().find_map(|wire| {
            let prefix = wire.model_prefixes.iter().find(|start| model.starts_with(**start))?;
            Some((wire, format!("the model's name begins with {prefix}")))
        });
        let (wire, why) = by_name.or_else(|| by_environment(options, false))?;
        return Some((at_address(options, wire), why));
    }
    let (wire, why) = by_environment(options, true)?;
    Some((at_address(options, wire), why))
}

/// The first service whose address, or key if that counts, is in the environment.
fn by_environment(options: &ProviderOptions, by_key: bool) -> Option<(&'static Wire, String)> {
    let found = WIRES.iter().copied().find_map(|wire| {
        let key = wire.key_variable.filter(|name| by_key && options.keys.contains_key(name));
        let address = wire.address_variable.map(|(name, _)| name);
        let address = address.filter(|name| options.addresses.contains_key(name));
        key.or(address).map(|variable| (wire, variable))
    });
    found.map(|(wire, variable)| (wire, format!("{variable} is set")))
}

/// The wire that the server at the address of the environment speaks: servers at other addresses than OpenAI's speak the
/// chat form.
fn at_address(options: &ProviderOptions, wire: &'static Wire) -> &'static Wire {
    let address = wire.address_variable.and_then(|(name, _)| options.addresses.get(name));
    let is_elsewhere = address.is_some_and(|address| address.as_str() != wire.base_url);
    wire.elsewhere.filter(|_| is_elsewhere).unwrap_or(wire)
}

fn nothing_configured() -> String {
    format!(
        "no model is configured: run `recurgent model install --yes` to have one on this machine (1.1 GB, once), \
         or set {}, or name a server of your own with --base-url URL, \
         or use --provider scripted:FILE or replay:FILE",
        key_variables_help()
    )
}

/// The fault of a call that needs a model while there is none.
pub(super) fn no_model(request: &DraftRequest<'_>, why: &str) -> DraftFault {
    DraftFault::Auth(format!("{} needs a model; {why}", request.key()))
}

fn service(
    options: &ProviderOptions,
    wire: &'static Wire,
    why: String,
) -> Result<Service, ProviderFault> {
    let (base_url, address_source) = address(options, wire)?;
    let model = match options.model.named() {
        Some(_) => options.model.clone(),
        None => wire.default_model.parse()?,
    };
    let (key, key_source) = key(options, wire, address_source)?;
    let is_here = base_url.is_this_machine();
    if key.is_some() && !base_url.is_encrypted() && !is_here {
        return Err(ProviderFault::Unsafe(base_url.to_string()));
    }
    let asks_for_model = wire.lists_models && options.model.named().is_none();
    let route = route(options, is_here)?;
    Ok(Service {
        wire,
        model,
        asks_for_model,
        base_url,
        address_source,
        why,
        key_source,
        key,
        route,
    })
}

/// The configured address, else that of the environment, else the usual one; and the variable it is from.
fn address(
    options: &ProviderOptions,
    wire: &Wire,
) -> Result<(ServiceAddress, Option<&'static str>), ProviderFault> {
    if let Some(address) = &options.base_url {
        return Ok((address.clone(), None));
    }
    let named = wire
        .address_variable
        .and_then(|(name, path)| options.addresses.get(name).map(|address| (name, path, address)));
    match named {
        Some((name, path, address)) if address.as_str().ends_with(path) => {
            Ok((address.clone(), Some(name)))
        }
        Some((name, path, address)) => Ok((format!("{address}{path}").parse()?, Some(name))),
        None => Ok((wire.base_url.parse()?, None)),
    }
}

/// A service on this machine is not reached through a proxy, which would see the key.
fn route(options: &ProviderOptions, is_here: bool) -> Result<Route, ProviderFault> {
    let proxy = options.proxy.clone().filter(|_| !is_here);
    let roots = options.ca_file.as_deref().map(read_roots).transpose()?;
    Ok(Route { proxy, roots })
}

pub(crate) fn read_roots(path: &Path) -> Result<RootCerts, ProviderFault> {
    let fault = |problem: String| ProviderFault::File { path: path.display().to_string(), problem };
    let mut text = Vec::new();
    let read =
        open_regular(path).and_then(|file| file.take(MAX_CERTIFICATE_BYTES).read_to_end(&mut text));
    read.map_err(|error| fault(error.to_string()))?;
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

/// The key from the file, else from the environment. A compatible server gets no key of another service, unless its
/// address is that which the environment gives beside the key.
fn key(
    options: &ProviderOptions,
    wire: &Wire,
    address_source: Option<&'static str>,
) -> Result<(Option<Secret>, Option<String>), ProviderFault> {
    if let Some(path) = &options.api_key_file {
        let key = read_key(path)?;
        return Ok((Some(key), Some(path.display().to_string())));
    }
    let variable = wire.key_variable.or_else(|| key_beside(address_source?));
    let found = variable.and_then(|name| Some((options.keys.get(name)?, name)));
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
    let file = open_without_waiting(path).map_err(|error| fault(error.to_string()))?;
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
