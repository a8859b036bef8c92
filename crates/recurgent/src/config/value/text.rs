//! Each type of value as text, as its parser reads it.

use std::path::PathBuf;
use std::time::Duration;

use lifecycle::dependency::{ManifestMode, PackageIndex, PackageName, SourceMode};
use lifecycle::dialect::Language;
use lifecycle::guardrail::Rule;
use lifecycle::standing::StandingMode;

use super::path::is_switch;
use super::{HostName, LogTarget, VariableName};
use crate::grants::{ModelSees, Network, ToolGrant};
use crate::models::ModelMirror;
use crate::provider::{ModelName, ProviderSetting, ProxyAddress, ServiceAddress};
use crate::worker::Tier;

/// A value of a setting, written as its parser reads it.
pub(in crate::config) trait ToText {
    fn to_text(&self) -> String;

    /// Whether the text says all of it: a path that is not UTF-8 has no text.
    fn is_utf8(&self) -> bool {
        true
    }
}

macro_rules! displayed {
    ($($type:ty),*) => {$(
        impl ToText for $type {
            fn to_text(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
displayed!(String, bool, u8, u32, u64, usize, f64, Language, Network, ManifestMode, SourceMode);
displayed!(ModelName, ServiceAddress, ToolGrant);

impl ToText for ProviderSetting {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn is_utf8(&self) -> bool {
        match self {
            Self::Scripted(path) | Self::Replay(path) => path.is_utf8(),
            Self::Auto | Self::Service(_) | Self::Embedded => true,
        }
    }
}

impl ToText for ModelMirror {
    fn to_text(&self) -> String {
        self.to_string()
    }

    fn is_utf8(&self) -> bool {
        match self {
            Self::Path(path) => path.is_utf8(),
            Self::Address(_) => true,
        }
    }
}

impl ToText for ProxyAddress {
    fn to_text(&self) -> String {
        self.reveal().to_owned()
    }
}

impl ToText for Vec<PackageIndex> {
    fn to_text(&self) -> String {
        self.iter().map(PackageIndex::address_with_credentials).collect::<Vec<_>>().join(", ")
    }
}

impl ToText for Vec<PackageName> {
    fn to_text(&self) -> String {
        self.iter().map(PackageName::to_string).collect::<Vec<_>>().join(", ")
    }
}

impl<T: ToText> ToText for Option<T> {
    fn to_text(&self) -> String {
        self.as_ref().map(ToText::to_text).unwrap_or_default()
    }

    fn is_utf8(&self) -> bool {
        self.as_ref().is_none_or(ToText::is_utf8)
    }
}

impl ToText for PathBuf {
    fn to_text(&self) -> String {
        self.display().to_string()
    }

    fn is_utf8(&self) -> bool {
        self.to_str().is_some()
    }
}

impl ToText for LogTarget {
    fn to_text(&self) -> String {
        match self {
            Self::StateDir => String::new(),
            Self::File(path) => {
                let text = path.to_text();
                if is_switch(&text) { format!("./{text}") } else { text }
            }
            Self::Off => "off".to_owned(),
        }
    }

    fn is_utf8(&self) -> bool {
        match self {
            Self::File(path) => path.is_utf8(),
            Self::StateDir | Self::Off => true,
        }
    }
}

impl ToText for Duration {
    fn to_text(&self) -> String {
        self.as_secs_f64().to_string()
    }
}

impl ToText for Vec<Rule> {
    fn to_text(&self) -> String {
        self.iter().map(|rule| rule.subtype()).collect::<Vec<_>>().join(", ")
    }
}

impl ToText for Vec<u16> {
    fn to_text(&self) -> String {
        self.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
    }
}

impl ToText for Vec<HostName> {
    fn to_text(&self) -> String {
        self.iter().map(HostName::as_str).collect::<Vec<_>>().join(", ")
    }
}

impl ToText for Vec<VariableName> {
    fn to_text(&self) -> String {
        self.iter().map(VariableName::as_str).collect::<Vec<_>>().join(", ")
    }
}

impl ToText for Vec<PathBuf> {
    fn to_text(&self) -> String {
        let paths: Vec<String> = self.iter().map(ToText::to_text).collect();
        let is_ambiguous = |path: &String| path.contains(':') || path.starts_with('[');
        if paths.iter().any(is_ambiguous) {
            return serde_json::Value::from(paths).to_string();
        }
        paths.join(":")
    }

    fn is_utf8(&self) -> bool {
        self.iter().all(ToText::is_utf8)
    }
}

impl ToText for Tier {
    fn to_text(&self) -> String {
        self.name().to_owned()
    }
}

impl ToText for ModelSees {
    fn to_text(&self) -> String {
        self.name().to_owned()
    }
}

impl ToText for StandingMode {
    fn to_text(&self) -> String {
        match self {
            Self::Shadow => "shadow",
            Self::Enforced => "enforced",
        }
        .to_owned()
    }
}
