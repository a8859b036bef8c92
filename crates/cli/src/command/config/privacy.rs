//! What can leave this machine, and what is kept on it, by the effective settings.

use lifecycle::dependency::{PackageIndex, SourceMode};
use lifecycle::excerpt::counted;
use lifecycle::redact::redacted_text;
use recurgent::config::Config;
use recurgent::grants::{ModelSees, Network};
use recurgent::provider::{self, ProviderChoice};
use serde_json::{Value, json};

use crate::exit::{CommandFault, Exit};
use crate::render::paint::Style;
use crate::render::{self, Stream};

/// One kind of data that is sent or kept.
struct DataUse {
    what: &'static str,
    /// Where it goes or is kept.
    place: String,
    /// When, and what bounds it.
    when: String,
}

pub(super) fn show(config: &Config, as_json: bool) -> Result<Exit, CommandFault> {
    let (sent, kept) = (sent_data(config), kept_data(config));
    if as_json {
        let rows = |uses: &[DataUse]| -> Value {
            let row = |it: &DataUse| json!({"what": it.what, "where": it.place, "when": it.when});
            uses.iter().map(row).collect()
        };
        render::json(&json!({"leaves": rows(&sent), "kept": rows(&kept)}))?;
        return Ok(Exit::Ok);
    }
    let paint = render::paint(Stream::Output);
    let mut lines = Vec::new();
    for (title, uses) in [("Leaves this machine", &sent), ("Kept on this machine", &kept)] {
        lines.push(paint.in_style(Style::Title, title));
        for DataUse { what, place, when } in uses {
            lines.push(format!("  {}: {place}", paint.in_style(Style::Name, what)));
            lines.push(format!("    {}", paint.in_style(Style::Faint, when)));
        }
    }
    render::lines(&lines)?;
    Ok(Exit::Ok)
}

fn sent_data(config: &Config) -> Vec<DataUse> {
    let settings = config.settings();
    let sources = |given: &[PackageIndex], public: &str| match settings.source_mode {
        SourceMode::PublicOnly => public.to_owned(),
        SourceMode::InternalOnly => counted(given.len(), "configured source"),
        SourceMode::InternalThenPublic => {
            format!("{}, then {public}", counted(given.len(), "configured source"))
        }
    };
    let when_asked = if settings.generate {
        "when a program is written or repaired; `generate=false` never asks a model"
    } else {
        "never: generate is off"
    };
    vec![
        DataUse {
            what: "prompts",
            place: model_service(config),
            when: format!(
                "role, method, contract, tools, memory keys, earlier programs and errors, and of arguments and memory \
                 their types, sizes and short previews, also of the last turns of a session; secrets are redacted; {when_asked}"
            ),
        },
        DataUse {
            what: "values that programs ask about",
            place: model_service(config),
            when: format!(
                "whole, with secrets redacted, when a program calls `infer` or `look`; model_sees={}: {}",
                settings.model_sees.name(),
                match settings.model_sees {
                    ModelSees::Auto => "only to a model on this machine",
                    ModelSees::Previews => "never",
                    ModelSees::Values => "to any model",
                }
            ),
        },
        DataUse {
            what: "package names and versions",
            place: format!(
                "{}; {}",
                sources(&settings.python_indexes, "pypi.org"),
                sources(&settings.gem_sources, "rubygems.org")
            ),
            when: "when a program declares packages that no environment on this machine has"
                .to_owned(),
        },
        DataUse {
            what: "what programs send",
            place: format!("network = {}", settings.network),
            when: match settings.network {
                Network::Open => "to every host; `network=off` is the default",
                Network::Off | Network::Loopback | Network::Hosts(_) => {
                    "only to hosts that are granted; `network=off` by default"
                }
            }
            .to_owned(),
        },
        DataUse {
            what: "the name of a model",
            place: model_sources(config),
            when: "when you run `recurgent model install` or agree to install a model; nothing of your calls is sent"
                .to_owned(),
        },
        DataUse {
            what: "a request for uv",
            place: "PyPI, or the index in /etc/pip.conf".to_owned(),
            when:
                "once, when a program needs Python packages and no uv is on PATH or named by `uv`"
                    .to_owned(),
        },
    ]
}

/// Where models are fetched from.
fn model_sources(config: &Config) -> String {
    let settings = config.settings();
    let mirror = settings.model_mirror.as_ref().map(|mirror| redacted_text(mirror.to_string()));
    let hub = settings.model_hub.as_ref().map(ToString::to_string);
    let index = Some("the package index that pip or uv is configured with".to_owned());
    [mirror, hub, index].into_iter().flatten().collect::<Vec<_>>().join(", then ")
}

/// Where prompts go.
fn model_service(config: &Config) -> String {
    let chosen = config.provider_options().and_then(|options| provider::choose(&options));
    match chosen {
        Ok(ProviderChoice::Service(service)) => {
            format!("{} at {}", service.wire.name, redacted_text(service.base_url.to_string()))
        }
        Ok(ProviderChoice::Scripted(_) | ProviderChoice::Replay(_)) => {
            "nowhere: programs come from a file".to_owned()
        }
        Ok(ProviderChoice::Embedded(model)) => {
            format!("nowhere: {} runs on this machine", model.name)
        }
        Ok(ProviderChoice::None { .. }) => "nowhere: no model is configured".to_owned(),
        Err(fault) => format!("nowhere: {fault}"),
    }
}

fn kept_data(config: &Config) -> Vec<DataUse> {
    let settings = config.settings();
    let path = |found: Option<std::path::PathBuf>| {
        found.map_or_else(|| "nowhere".to_owned(), |path| path.display().to_string())
    };
    let days = settings.log_keep_days.map_or_else(String::new, |days| format!(", {days} days"));
    vec![
        DataUse {
            what: "log",
            place: path(config.log_path().ok().flatten()),
            when: format!(
                "one entry per call, secrets redacted; at most {} MB{days}, {} MB per call tree{}",
                settings.log_total_mb,
                settings.log_tree_mb,
                if settings.debug { "; debug adds prompts and memory" } else { "" }
            ),
        },
        DataUse {
            what: "store",
            place: path(config.store_path().ok()),
            when: "programs, tools, sessions with their memory and history; memory holds what callers and programs put \
                   there, secrets too; `recurgent sessions purge` and `rm` forget it"
                .to_owned(),
        },
        DataUse {
            what: "environments",
            place: path(config.environment_options().cache),
            when: format!(
                "installed packages, at most {} MB: those unused longest are removed first; `recurgent env gc` removes \
                 those that are not used",
                settings.environments_total_mb
            ),
        },
        DataUse {
            what: "downloads",
            place: path(config.environment_options().cache),
            when: format!(
                "packages that uv and Bundler downloaded, at most {} MB besides what environments share with them; all \
                 are removed after a build when there are more; `recurgent env prune` removes them",
                settings.downloads_total_mb
            ),
        },
        DataUse {
            what: "models",
            place: path(config.model_options().ok().and_then(|options| options.folder)),
            when: format!(
                "installed models, at most {} MB; `recurgent model rm` removes one",
                settings.models_total_mb
            ),
        },
        DataUse {
            what: "prompt prefixes",
            place: path(config.prefix_dir()),
            when: format!(
                "what the embedded model computed for the part of prompts that all calls share, at most {} MB; no call's own data",
                settings.engine_prefix_mb
            ),
        },
    ]
}
