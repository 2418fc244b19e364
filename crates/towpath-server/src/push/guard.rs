//! Where the server may post: public addresses over https, and what the operator has allowed. A client that may define a function could
//! otherwise make the server talk to its own network.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use thiserror::Error;
use url::{Host, Url};

/// A place that the operator allows although it would be refused: `--allow-target`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedTarget {
    /// One host, on one port or on any.
    Host {
        /// A name or an address, as it stands in a URL.
        host: String,
        /// `None`: any port.
        port: Option<u16>,
    },
    /// All addresses of a network.
    Network(IpNet),
}

/// Text that allows nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no target: give HOST, HOST:PORT or a network such as 10.0.0.0/8")]
pub struct InvalidTarget(String);

impl FromStr for AllowedTarget {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let invalid = || InvalidTarget(text.to_owned());
        if text.contains('/') {
            return text.parse().map(Self::Network).map_err(|_| invalid());
        }
        // Read as part of a URL, so that it is compared in the form that a URL's host has.
        let url = Url::parse(&format!("http://{text}/")).map_err(|_| invalid())?;
        let plain = url.username().is_empty() && url.password().is_none() && url.path() == "/" && url.query().is_none();
        let host = url.host_str().filter(|_| plain).ok_or_else(invalid)?;
        // A URL forgets the port that its scheme implies.
        let port = if text.ends_with(":80") { Some(80) } else { url.port() };
        Ok(Self::Host { host: host.to_owned(), port })
    }
}

impl fmt::Display for AllowedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { host, port: None } => f.write_str(host),
            Self::Host { host, port: Some(port) } => write!(f, "{host}:{port}"),
            Self::Network(network) => write!(f, "{network}"),
        }
    }
}

/// Why a target was refused. The text names the setting that would allow it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetRefused {
    /// Not an absolute http or https URL.
    #[error("'{0}' is not an http or https URL")]
    NotHttp(String),
    /// A name and a password in the URL would end in logs.
    #[error("the target's URL has a user name or a password: leave it out, calls are signed")]
    Userinfo,
    /// Plain http to a place that was not allowed.
    #[error("'{0}' is not https: use https, or allow the host with --allow-target")]
    NotHttps(String),
    /// A host inside.
    #[error("'{host}' is {kind}: allow it with --allow-target if that is meant")]
    Inside {
        /// The host as given.
        host: String,
        /// What sort of address it is.
        kind: &'static str,
    },
}

/// What may be posted to.
#[derive(Clone, Debug, Default)]
pub struct TargetPolicy {
    allowed: Vec<AllowedTarget>,
    /// For development: this very machine, over plain http.
    allow_loopback: bool,
    /// Public addresses may be posted to over plain http, too.
    allow_plain_http: bool,
}

impl TargetPolicy {
    /// Public addresses, and these.
    pub fn new(allowed: Vec<AllowedTarget>, allow_loopback: bool) -> Self {
        Self { allowed, allow_loopback, allow_plain_http: false }
    }

    /// The same and these places besides, over plain http too: receivers of batches speak it often, and batches are signed.
    pub(crate) fn for_batches(&self, allowed: impl IntoIterator<Item = AllowedTarget>) -> Self {
        Self { allowed: self.allowed.iter().cloned().chain(allowed).collect(), allow_plain_http: true, ..self.clone() }
    }

    /// Whether a URL may be posted to, as far as the URL itself tells. What its name leads to is judged when it is looked up.
    pub fn check(&self, url: &str) -> Result<Url, TargetRefused> {
        let parsed = Url::parse(url).map_err(|_| TargetRefused::NotHttp(shown(url)))?;
        let (scheme, Some(host), Some(port)) = (parsed.scheme(), parsed.host(), parsed.port_or_known_default()) else {
            return Err(TargetRefused::NotHttp(shown(url)));
        };
        if !matches!(scheme, "http" | "https") {
            return Err(TargetRefused::NotHttp(shown(url)));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(TargetRefused::Userinfo);
        }
        if !self.allows_host(&host, port) {
            refuse_inside(&host)?;
            if scheme != "https" && !self.allow_plain_http {
                return Err(TargetRefused::NotHttps(shown(url)));
            }
        }
        Ok(parsed)
    }

    fn allows_host(&self, host: &Host<&str>, port: u16) -> bool {
        let text = host.to_string();
        let address = match host {
            Host::Ipv4(ip) => Some(IpAddr::V4(*ip)),
            Host::Ipv6(ip) => Some(IpAddr::V6(*ip)),
            Host::Domain(_) => None,
        };
        let on_loopback = text == "localhost" || address.is_some_and(|ip| ip.is_loopback());
        (self.allow_loopback && on_loopback) || self.names(&text, Some(port)) || address.is_some_and(|ip| self.allows_network(ip))
    }

    fn names(&self, host: &str, port: Option<u16>) -> bool {
        self.allowed.iter().any(|allowed| match allowed {
            AllowedTarget::Host { host: known, port: known_port } => {
                known.eq_ignore_ascii_case(host) && (known_port.is_none() || port.is_none() || *known_port == port)
            }
            AllowedTarget::Network(_) => false,
        })
    }

    fn allows_network(&self, ip: IpAddr) -> bool {
        self.allowed.iter().any(|allowed| matches!(allowed, AllowedTarget::Network(network) if network.contains(&ip)))
    }

    /// Whether a connection for `host` may go to `ip`. Asked for every address that a name leads to, at the moment it is used.
    pub(super) fn allows_address(&self, host: &str, ip: IpAddr) -> bool {
        let loopback = self.allow_loopback && ip.is_loopback();
        loopback || self.names(host, None) || self.allows_network(ip) || inside(ip).is_none()
    }
}

/// A URL as it may stand in a message.
fn shown(url: &str) -> String {
    url.chars().take(200).filter(|c| !c.is_control()).collect()
}

fn refuse_inside(host: &Host<&str>) -> Result<(), TargetRefused> {
    let kind = match host {
        Host::Ipv4(ip) => inside(IpAddr::V4(*ip)),
        Host::Ipv6(ip) => inside(IpAddr::V6(*ip)),
        Host::Domain(name) => inside_name(name),
    };
    kind.map_or(Ok(()), |kind| Err(TargetRefused::Inside { host: host.to_string(), kind }))
}

/// Names that by convention lead inside, whatever the resolver says.
fn inside_name(name: &str) -> Option<&'static str> {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let ends = |suffix: &str| name == suffix[1..] || name.ends_with(suffix);
    if ends(".localhost") {
        return Some("this machine");
    }
    let internal = [".internal", ".local", ".lan", ".home.arpa", ".intranet"].into_iter().any(ends);
    (internal || !name.contains('.')).then_some("a name of the local network")
}

/// What sort of address this is, if it is none of the public internet.
pub(super) fn inside(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(ip) => inside_v4(ip),
        IpAddr::V6(ip) => inside_v6(ip),
    }
}

fn inside_v4(ip: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = ip.octets();
    match (a, b, c) {
        (0, ..) => Some("an unspecified address"),
        (127, ..) => Some("a loopback address"),
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => Some("a private address"),
        (169, 254, _) => Some("a link-local address"),
        (100, 64..=127, _) => Some("a carrier's shared address"),
        (192, 0, 0 | 2) | (198, 18 | 19, _) | (198, 51, 100) | (203, 0, 113) => Some("an address set aside for tests"),
        (192, 88, 99) => Some("a 6to4 relay address"),
        (224..=239, ..) => Some("a multicast address"),
        (240.., ..) => Some("a reserved address"),
        _ => None,
    }
}

fn inside_v6(ip: Ipv6Addr) -> Option<&'static str> {
    let parts = ip.segments();
    // Addresses that carry an IPv4 address lead wherever that one leads, or nowhere we know: none is needed to reach the internet.
    match parts {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("an unspecified address"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("a loopback address"),
        [0, 0, 0, 0, 0, 0xffff, ..] => Some("an IPv4 address in disguise"),
        [0, 0, 0, 0, 0, 0, ..] => Some("an IPv4 address in disguise"),
        [0x64, 0xff9b, ..] => Some("an IPv4 address behind NAT64"),
        [0x100, 0, 0, 0, ..] => Some("an address that discards everything"),
        [0x2002, ..] => Some("a 6to4 address"),
        [0x2001, 0, ..] => Some("a Teredo address"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Some("an address set aside for documentation"),
        [0x5f00, ..] => Some("a segment-routing address"),
        [0xfc00..=0xfdff, ..] => Some("a private address"),
        [0xfe80..=0xfebf, ..] => Some("a link-local address"),
        [0xfec0..=0xfeff, ..] => Some("a site-local address"),
        [0xff00..=0xffff, ..] => Some("a multicast address"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allowed: &[&str]) -> TargetPolicy {
        TargetPolicy::new(allowed.iter().map(|text| text.parse().unwrap()).collect(), false)
    }

    #[test]
    fn public_https_addresses_are_taken() {
        for url in ["https://example.com/hook", "https://93.184.215.14:8443/x?y=1", "https://[2606:2800:21f:cb07::1]/"] {
            assert!(policy(&[]).check(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn every_way_to_name_an_inner_address_is_refused() {
        let refused = [
            "https://127.0.0.1/",
            "https://127.1/",
            "https://2130706433/",
            "https://0x7f.0.0.1/",
            "https://0177.0.0.1/",
            "https://localhost/",
            "https://LOCALHOST:8443/",
            "https://localhost./",
            "https://a.localhost/",
            "https://0.0.0.0/",
            "https://0/",
            "https://10.1.2.3/",
            "https://172.16.0.1/",
            "https://172.31.255.255/",
            "https://192.168.1.1/",
            "https://169.254.169.254/latest/meta-data",
            "https://100.64.0.1/",
            "https://192.0.0.1/",
            "https://198.18.0.1/",
            "https://224.0.0.1/",
            "https://255.255.255.255/",
            "https://240.0.0.1/",
            "https://192.88.99.1/",
            "https://[::]/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:169.254.169.254]/",
            "https://[::ffff:8.8.8.8]/",
            "https://[::127.0.0.1]/",
            "https://[64:ff9b::7f00:1]/",
            "https://[64:ff9b:1::1]/",
            "https://[2002:7f00:1::]/",
            "https://[2001::1]/",
            "https://[fc00::1]/",
            "https://[fd12:3456::1]/",
            "https://[fe80::1]/",
            "https://[fec0::1]/",
            "https://[ff02::1]/",
            "https://[100::1]/",
            "https://[2001:db8::1]/",
            "https://metadata.google.internal/",
            "https://printer.local/",
            "https://router.lan/",
            "https://intranet/",
            "https://①②⑦.⓪.⓪.①/",
        ];
        for url in refused {
            assert!(matches!(policy(&[]).check(url), Err(TargetRefused::Inside { .. })), "{url}: {:?}", policy(&[]).check(url));
        }
    }

    #[test]
    fn what_is_no_plain_https_url_is_refused() {
        assert_eq!(policy(&[]).check("http://example.com/"), Err(TargetRefused::NotHttps("http://example.com/".to_owned())));
        assert_eq!(policy(&[]).check("https://me:secret@example.com/"), Err(TargetRefused::Userinfo));
        for url in
            ["", "example.com", "/hook", "file:///etc/passwd", "gopher://example.com/", "ftp://example.com/", "https://", "https:///"]
        {
            assert!(matches!(policy(&[]).check(url), Err(TargetRefused::NotHttp(_))), "{url}");
        }
    }

    #[test]
    fn allowed_hosts_ports_and_networks_are_taken_and_nothing_beside_them() {
        let policy = policy(&["localhost:3000", "printer.local", "10.1.0.0/16", "[fd00::1]:9000", "backend:80"]);
        for url in [
            "http://localhost:3000/x",
            "https://printer.local/",
            "http://printer.local:631/",
            "http://10.1.2.3/",
            "http://[fd00::1]:9000/",
            "http://backend/",
        ] {
            assert!(policy.check(url).is_ok(), "{url}: {:?}", policy.check(url));
        }
        for url in [
            "http://localhost:3001/",
            "http://localhost/",
            "http://10.2.0.1/",
            "http://127.0.0.1:3000/",
            "http://[fd00::2]:9000/",
            "http://xprinter.local/",
            "http://backend:81/",
        ] {
            assert!(policy.check(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_public_name_that_leads_inside_is_refused_when_it_is_looked_up() {
        let policy = policy(&["inner.example"]);
        assert!(!policy.allows_address("rebound.example", "127.0.0.1".parse().unwrap()));
        assert!(!policy.allows_address("rebound.example", "::ffff:10.0.0.1".parse().unwrap()));
        assert!(policy.allows_address("rebound.example", "93.184.215.14".parse().unwrap()));
        assert!(policy.allows_address("inner.example", "10.0.0.1".parse().unwrap()), "allowed by name");
    }

    #[test]
    fn for_development_this_machine_is_taken_and_no_other() {
        let policy = TargetPolicy::new(Vec::new(), true);
        for url in ["http://localhost:3000/", "http://127.0.0.1/", "http://[::1]:1/"] {
            assert!(policy.check(url).is_ok(), "{url}");
        }
        assert!(policy.check("http://10.0.0.1/").is_err());
        assert!(policy.allows_address("localhost", "127.0.0.1".parse().unwrap()));
        assert!(!policy.allows_address("localhost", "10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn text_that_allows_nothing_is_refused() {
        for text in ["", "10.0.0.0/33", "a b", "http://x", "user@host", "host:99999", "host/path", "host?x"] {
            assert!(text.parse::<AllowedTarget>().is_err(), "{text}");
        }
    }
}
