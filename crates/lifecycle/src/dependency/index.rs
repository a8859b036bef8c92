//! The addresses of package indexes, and which parts of them may be shown.

use std::fmt;
use std::path::PathBuf;

/// A package index: an address, and credentials that only the installer gets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackageIndex {
    /// Without credentials.
    address: String,
    /// `user:password`, percent-encoded as in an address: `me%40home:…`.
    userinfo: Option<String>,
}

impl fmt::Debug for PackageIndex {
    /// Never shows credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackageIndex({})", self.address)
    }
}

impl PackageIndex {
    /// Reads an `http`, `https` or `file` address, with `user:password@` or without.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(format!(
                "`{}` is not an address such as https://…",
                without_credentials(text)
            ));
        };
        if !matches!(scheme, "http" | "https" | "file") {
            return Err(format!("a source must be http, https or file, not `{scheme}`"));
        }
        if scheme == "file" && !rest.starts_with('/') {
            return Err(format!("`{text}` must name an absolute path, as in file:///srv/packages"));
        }
        // Characters that could end a quoted string in a generated file are refused.
        let plain = |c: char| c.is_ascii_graphic() && !"\"'`\\#<>{}|^".contains(c);
        if rest.is_empty() || !rest.chars().all(plain) {
            return Err(format!(
                "`{}` contains characters that an address cannot have",
                without_credentials(text)
            ));
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (userinfo, host) = match authority.rsplit_once('@') {
            Some((userinfo, host)) => (Some(userinfo.to_owned()), host),
            None => (None, authority),
        };
        let source = Self { address: format!("{scheme}://{host}{path}"), userinfo };
        // Credentials are written into files and variables, one per line.
        let credentials = source.credentials().unwrap_or_default();
        if [credentials.0, credentials.1].concat().contains(char::is_control) {
            return Err(format!(
                "the credentials of `{}` contain a control character",
                source.address
            ));
        }
        Ok(source)
    }

    /// The address without credentials.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// `user` and `password`, decoded.
    pub fn credentials(&self) -> Option<(String, String)> {
        let userinfo = self.userinfo.as_deref()?;
        let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
        Some((decoded(user), decoded(password)))
    }

    /// `user:password`, percent-encoded.
    pub fn userinfo(&self) -> Option<&str> {
        self.userinfo.as_deref()
    }

    /// The directory of its packages, if it is on this machine. If the address ends with `simple`, that is the directory above.
    pub fn directory(&self) -> Option<PathBuf> {
        let pages = self.address.strip_prefix("file://").map(PathBuf::from)?;
        match pages.parent().filter(|_| pages.ends_with("simple")) {
            Some(above) => Some(above.to_owned()),
            None => Some(pages),
        }
    }

    /// `host:port`, if it is on the network.
    pub fn endpoint(&self) -> Option<String> {
        endpoint(&self.address)
    }

    /// The address with credentials.
    pub fn address_with_credentials(&self) -> String {
        match (&self.userinfo, self.address.split_once("://")) {
            (Some(userinfo), Some((scheme, rest))) => format!("{scheme}://{userinfo}@{rest}"),
            _ => self.address.clone(),
        }
    }

    /// The host, without its port.
    pub fn host(&self) -> &str {
        let rest = self.address.split_once("://").map_or("", |(_, rest)| rest);
        let authority = rest.split('/').next().unwrap_or_default();
        without_port(authority).unwrap_or(authority)
    }
}

/// The `host:port` an `http` or `https` address leads to.
pub fn endpoint(address: &str) -> Option<String> {
    let (scheme, rest) = address.split_once("://")?;
    let port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Some(if without_port(host).is_some() { host.to_owned() } else { format!("{host}:{port}") })
}

/// The host of `host:port`; `None` without a port, as in `[::1]`.
fn without_port(authority: &str) -> Option<&str> {
    let (host, port) = authority.rsplit_once(':')?;
    port.parse::<u16>().is_ok().then_some(host)
}

/// Decodes percent-encoding; text that is not valid stays as it is.
fn decoded(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        // `from_str_radix` alone would also read `+f`.
        let is_hex = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let code = code.filter(|_| *first == b'%').filter(is_hex);
        let code = code.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| part.to_owned())
}

/// A text with the credentials of its addresses removed.
pub fn without_credentials(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        shown.push_str(before);
        shown.push_str("://");
        let end = after.find(|c: char| c == '/' || c.is_whitespace()).unwrap_or(after.len());
        let (authority, path) = after.split_at(end);
        shown.push_str(authority.rsplit_once('@').map_or(authority, |(_, host)| host));
        rest = path;
    }
    shown.push_str(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_kept_apart_from_the_address() {
        let source = PackageIndex::parse("https://me:s3cret@gems.example:8080/private/").unwrap();
        assert_eq!(source.address(), "https://gems.example:8080/private/");
        assert_eq!(source.credentials(), Some(("me".to_owned(), "s3cret".to_owned())));
        assert_eq!(source.host(), "gems.example");
        assert!(!format!("{source:?}").contains("s3cret"));
        assert_eq!(
            without_credentials("cannot fetch https://me:s3cret@gems.example/x, or http://a@b"),
            "cannot fetch https://gems.example/x, or http://b"
        );
    }

    #[test]
    fn credentials_are_percent_decoded() {
        for (spelled, user, password) in [
            ("me%40home:s3%2Fcr%3aet", "me@home", "s3/cr:et"),
            ("token", "token", ""),
            ("%C3%A9:100%", "é", "100%"),
            ("a:%zz%ff", "a", "%zz%ff"),
            ("a:%+f%4", "a", "%+f%4"),
        ] {
            let source = PackageIndex::parse(&format!("https://{spelled}@gems.example/")).unwrap();
            let meant = Some((user.to_owned(), password.to_owned()));
            assert_eq!((source.credentials(), source.userinfo()), (meant, Some(spelled)));
            assert_eq!(
                source.address_with_credentials(),
                format!("https://{spelled}@gems.example/")
            );
        }
        let refused = PackageIndex::parse("https://me:a%0Amachine@gems.example/").unwrap_err();
        assert!(refused.contains("control character") && !refused.contains("machine"), "{refused}");
    }

    #[test]
    fn addresses_have_a_directory_or_an_endpoint() {
        for (address, directory, host, endpoint) in [
            ("file:///srv/index/simple/", Some("/srv/index"), "", None),
            ("file:///srv/gems", Some("/srv/gems"), "", None),
            ("https://me:s3cret@gems.example/x", None, "gems.example", Some("gems.example:443")),
            ("http://127.0.0.1:8080/simple/", None, "127.0.0.1", Some("127.0.0.1:8080")),
            ("http://[::1]/simple/", None, "[::1]", Some("[::1]:80")),
            ("http://[::1]:8080/", None, "[::1]", Some("[::1]:8080")),
        ] {
            let source = PackageIndex::parse(address).unwrap();
            assert_eq!(source.directory(), directory.map(PathBuf::from), "{address}");
            assert_eq!(
                (source.host(), source.endpoint().as_deref()),
                (host, endpoint),
                "{address}"
            );
        }
    }

    #[test]
    fn addresses_that_could_end_a_quoted_string_are_refused() {
        for text in [
            "gems.example",
            "ssh://x",
            "file://srv",
            "https://x'\nsystem",
            "https://x\"y",
            "https://#{1}",
        ] {
            assert!(PackageIndex::parse(text).is_err(), "{text}");
        }
    }
}
