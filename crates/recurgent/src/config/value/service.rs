//! Providers, models, and the addresses and proxies of services.

use super::{Expected, ValueType};
use crate::models::ModelMirror;
use crate::provider::{
    ModelName, ProviderFault, ProviderSetting, ProxyAddress, ServiceAddress, names_help,
};

pub(in crate::config) fn provider_setting() -> ValueType<str, ProviderSetting> {
    ValueType::any(|text| text.parse().map_err(|_: ProviderFault| names_help()))
}

pub(in crate::config) fn model() -> ValueType<str, ModelName> {
    ValueType::any(|text| {
        text.parse().map_err(|_: ProviderFault| {
            "auto or a model name: letters, digits and . _ - / : @ + only".to_owned()
        })
    })
}

/// The name of a model, or none when the text is empty.
pub(in crate::config) fn optional_model() -> ValueType<str, Option<ModelName>> {
    ValueType::any(|text| match text {
        "" => Ok(None),
        text => (model().read)(text).map(Some),
    })
}

/// The address of a model service, or none when the text is empty.
pub(in crate::config) fn optional_address() -> ValueType<str, Option<ServiceAddress>> {
    ValueType::any(|text| {
        optional(
            text,
            str::parse,
            "http://HOST[:PORT]/PATH or https://…, without a query or credentials (a key goes into api_key_file)",
        )
    })
}

/// The proxy of model services, or none when the text is empty.
pub(in crate::config) fn service_proxy() -> ValueType<str, Option<ProxyAddress>> {
    const EXPECTED: &str = "the address of a proxy, http://HOST:PORT or https://HOST:PORT";
    ValueType {
        read: |text| optional(text, str::parse, EXPECTED),
        check: |proxy| match proxy {
            Some(proxy) if proxy.for_services().is_none() => Err(EXPECTED.to_owned()),
            Some(_) | None => Ok(proxy),
        },
    }
}

/// The proxy of package managers, or none when the text is empty.
pub(in crate::config) fn installer_proxy() -> ValueType<str, Option<ProxyAddress>> {
    ValueType::any(|text| {
        optional(text, ProxyAddress::parse, "the address of a proxy, such as http://HOST:PORT")
    })
}

/// Where models are fetched from first, or none when the text is empty.
pub(in crate::config) fn model_mirror() -> ValueType<str, Option<ModelMirror>> {
    const EXPECTED: &str =
        "a path, or http://HOST[:PORT]/PATH or https://… without a query or credentials";
    ValueType {
        read: |text| optional(text, str::parse, EXPECTED),
        // A path that reads as an address, or as none, is another mirror when it is written down.
        check: |mirror| {
            let is_itself = |mirror: &ModelMirror| {
                let text = mirror.to_string();
                !text.is_empty() && text.parse::<ModelMirror>().is_ok_and(|read| read == *mirror)
            };
            if mirror.as_ref().is_none_or(is_itself) {
                Ok(mirror)
            } else {
                Err(EXPECTED.to_owned())
            }
        },
    }
}

/// A value, or none when the text is empty.
fn optional<T, E>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, E>,
    expected: &str,
) -> Result<Option<T>, Expected> {
    if text.is_empty() {
        return Ok(None);
    }
    parse(text).map(Some).map_err(|_| format!("{expected}, or empty"))
}
