//! Package sources: their order, and the one that a message of a packaging tool is about.

use lifecycle::dependency::{PackageIndex, PackageSource};

/// The sources of one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackageSources {
    /// The configured indexes, in order.
    pub(super) internal: Vec<PackageIndex>,
    /// Whether the packaging tool's public index comes after them.
    pub(super) public: bool,
}

impl PackageSources {
    /// The sources that a policy allows.
    pub(super) fn of(sources: &[PackageSource<'_>]) -> Self {
        let mut allowed = Self { internal: Vec::new(), public: false };
        for source in sources {
            match source {
                PackageSource::Public => allowed.public = true,
                PackageSource::Internal(index) => allowed.internal.push((*index).clone()),
            }
        }
        allowed
    }

    /// Addresses in a stable order, for `env_id` and the record of the environment.
    pub(super) fn addresses(&self) -> Vec<String> {
        let mut addresses: Vec<String> =
            self.internal.iter().map(|source| source.address().to_owned()).collect();
        addresses.extend(self.public.then(|| PUBLIC.to_owned()));
        addresses.sort();
        addresses.dedup();
        addresses
    }

    /// The source that a tool's message is about: the one it mentions, else the first. The tools report it in no other
    /// way; a wrong guess only affects the wording of the message.
    pub(super) fn mentioned_in(&self, text: &str) -> String {
        let named = self.internal.iter().find(|source| match source.host() {
            "" => text.contains(source.address()), // a directory on this machine
            host => text.contains(host),
        });
        let first = self.internal.first().filter(|_| !self.public);
        match named.or(first) {
            Some(source) => source.address().to_owned(),
            None => address_in(text).unwrap_or_else(|| PUBLIC.to_owned()),
        }
    }
}

/// The name of the packaging tool's public index.
pub(super) const PUBLIC: &str = "public";

/// The first address in a text, up to its host.
fn address_in(text: &str) -> Option<String> {
    let at = text.find("https://").or_else(|| text.find("http://"))?;
    let rest = text.get(at..)?;
    let end = rest
        .char_indices()
        .skip("https://".len())
        .find(|(_, c)| !(c.is_ascii_alphanumeric() || ".-:".contains(*c)))
        .map_or(rest.len(), |(at, _)| at);
    rest.get(..end).map(|address| address.trim_end_matches([':', '.']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_mentioned_in_a_message_is_found() {
        let source = |text| PackageIndex::parse(text).unwrap();
        let sources = PackageSources {
            internal: vec![source("http://a.example/"), source("http://b.example/")],
            public: true,
        };
        assert_eq!(sources.mentioned_in("cannot reach b.example"), "http://b.example/");
        assert_eq!(
            sources.mentioned_in("Failed to fetch: `https://c.example/simple/x/`"),
            "https://c.example"
        );
        assert_eq!(sources.mentioned_in("no idea"), PUBLIC);
        let beside = PackageSources {
            internal: vec![source("file:///srv/index/"), source("http://b.example/")],
            public: false,
        };
        assert_eq!(beside.mentioned_in("cannot reach b.example"), "http://b.example/");
        assert_eq!(beside.mentioned_in("no file:///srv/index/x"), "file:///srv/index/");
        assert_eq!(sources.addresses(), ["http://a.example/", "http://b.example/", "public"]);
    }
}
