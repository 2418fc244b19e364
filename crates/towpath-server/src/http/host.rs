//! For whom a request is meant. A page elsewhere can make a browser send requests here; it cannot make the browser lie about the names.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::app::App;
use super::codes::Code;
use super::error::ApiError;

/// The names that this server goes by.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    names: Vec<String>,
    /// On a wildcard address the server cannot know its own addresses. An address in `Host` is harmless then: to turn a name of their
    /// own against us (DNS rebinding) attackers need a name.
    any_address: bool,
}

impl Hosts {
    pub(crate) fn new(listen: SocketAddr, configured: &[String]) -> Self {
        let mut names: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).into();
        names.extend(configured.iter().map(|name| plain(name)));
        names.push(match listen.ip() {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        });
        Self { names, any_address: listen.ip().is_unspecified() }
    }

    fn includes(&self, authority: &str) -> bool {
        let host = plain(without_port(authority));
        let address = || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        self.names.contains(&host) || (self.any_address && address())
    }
}

/// Case and a final dot make no difference between names.
fn plain(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.ends_with(':') => {
            // The colons of an unbracketed IPv6 address are no port; such an authority is no valid one and matches nothing.
            host
        }
        _ => authority,
    }
}

/// Lets a request through that is meant for this server and comes from a program, or from a page of this server.
pub(crate) async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    match judge(app.hosts(), &request) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

fn judge(hosts: &Hosts, request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    let named: Vec<&str> = headers.get_all(HOST).iter().map(|value| value.to_str().unwrap_or_default()).collect();
    let in_uri = request.uri().authority().map(axum::http::uri::Authority::as_str);
    let mut meant = in_uri.iter().chain(&named).peekable();
    if meant.peek().is_none() || !meant.all(|authority| hosts.includes(authority)) {
        let message = "the Host header does not name this server";
        let hint = "use localhost or the listen address, or start the server with --allowed-host NAME";
        return Err(ApiError::new(Code::MisdirectedHost, message).field("host").hint(hint));
    }
    if from_elsewhere(hosts, headers) {
        let message = "a page of another site sent this request";
        return Err(ApiError::new(Code::CrossOrigin, message).field("origin").hint("call the API from a program instead"));
    }
    Ok(())
}

/// Browsers say where a request comes from; programs say nothing.
fn from_elsewhere(hosts: &Hosts, headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value: &axum::http::HeaderValue| value.to_str().unwrap_or_default());
    let site = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
    let other_site = matches!(site, Some("cross-site" | "same-site"));
    let other_origin = text(ORIGIN).is_some_and(|origin| {
        origin.split_once("://").is_none_or(|(_scheme, authority)| !hosts.includes(authority)) // `null` is an origin too
    });
    other_site || other_origin
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn refusal(hosts: &Hosts, headers: &[(&str, &str)]) -> Option<Code> {
        let mut request = Request::builder().uri("/v1/functions");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        judge(hosts, &request.body(Body::empty()).unwrap()).err().map(|error| error.code())
    }

    #[test]
    fn only_names_of_this_server_are_taken() {
        let listen = "192.0.2.7:8690".parse().unwrap();
        let hosts = Hosts::new(listen, &["Towpath.Example".to_owned()]);
        for good in ["localhost", "LOCALHOST:8690", "127.0.0.1:1", "[::1]:8690", "192.0.2.7", "towpath.example.", "towpath.example:80"] {
            assert_eq!(refusal(&hosts, &[("host", good)]), None, "{good}");
        }
        let bad =
            ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.0.2.8", "::1", "localhost:x", "a@localhost"];
        for bad in bad {
            assert_eq!(refusal(&hosts, &[("host", bad)]), Some(Code::MisdirectedHost), "{bad}");
        }
        assert_eq!(refusal(&hosts, &[]), Some(Code::MisdirectedHost), "no host at all");
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(refusal(&hosts, &two), Some(Code::MisdirectedHost), "two hosts, one of them foreign");
    }

    #[test]
    fn on_a_wildcard_address_any_address_is_taken_but_no_unknown_name() {
        let hosts = Hosts::new("0.0.0.0:8690".parse().unwrap(), &[]);
        assert_eq!(refusal(&hosts, &[("host", "198.51.100.3:8690")]), None);
        assert_eq!(refusal(&hosts, &[("host", "[2001:db8::1]:8690")]), None);
        assert_eq!(refusal(&hosts, &[("host", "evil.example")]), Some(Code::MisdirectedHost));
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let hosts = Hosts::new("127.0.0.1:8690".parse().unwrap(), &[]);
        let with = |name, value| refusal(&hosts, &[("host", "localhost"), (name, value)]);
        for (name, value) in [("origin", "http://localhost:8690"), ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "none")] {
            assert_eq!(with(name, value), None, "{name}: {value}");
        }
        for (name, value) in [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
            assert_eq!(with(name, value), Some(Code::CrossOrigin), "{name}: {value}");
        }
    }
}
