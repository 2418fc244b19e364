//! Keys, hosts and other sites: who may ask, and in whose name.

use reqwest::Method;
use towpath_server::serve;
use towpath_server::settings::Settings;

use crate::support::{answer, server, server_with, settings};

#[tokio::test]
async fn with_keys_every_route_but_the_probes_wants_one() {
    let keyed = Settings { api_keys: vec!["first-key".parse().unwrap(), "second-key".parse().unwrap()], ..settings() };
    let server = server_with(keyed).await;
    let document: serde_json::Value = serde_json::from_str(&towpath_server::http::openapi::text()).unwrap();
    let mut tried = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let filled = path.replace("{name}", "x").replace("{call_id}", "x").replace("{worker_id}", "x");
        for method in item.as_object().unwrap().keys() {
            let method: Method = method.to_uppercase().parse().unwrap();
            for variant in [filled.clone(), format!("{filled}?x=1"), format!("{filled}/"), format!("{filled};a"), format!("/{filled}")] {
                let is_public = method == Method::GET && ["/health", "/healthz", "/readyz"].contains(&variant.split('?').next().unwrap());
                let open = answer(server.request(method.clone(), &variant)).await;
                if is_public {
                    assert_eq!(open.status, 200, "{method} {variant}");
                } else {
                    assert_eq!(open.headers["www-authenticate"], "Bearer", "{method} {variant}");
                    open.error(401, "unauthorized");
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 100, "only {tried} requests were tried");
    for (key, expected) in [("first-key", 200), ("second-key", 200), ("first-ke", 401), ("", 401)] {
        let status = answer(server.request(Method::GET, "/v1/functions").bearer_auth(key)).await.status;
        assert_eq!(status, expected, "{key:?}");
    }
    let server = server.with_key("first-key");
    server.get("/v1/nothing").await.error(404, "route_not_found");
}

#[tokio::test]
async fn a_key_in_any_other_place_opens_nothing() {
    let server = server_with(Settings { api_keys: vec!["the-key".parse().unwrap()], ..settings() }).await;
    for (name, value) in
        [("authorization", "the-key"), ("authorization", "Basic the-key"), ("x-api-key", "the-key"), ("cookie", "key=the-key")]
    {
        answer(server.request(Method::GET, "/v1/functions").header(name, value)).await.error(401, "unauthorized");
    }
    server.get("/v1/functions?api_key=the-key").await.error(401, "unauthorized");
}

#[tokio::test]
async fn a_public_address_without_a_key_is_refused_before_anything_opens() {
    let public = Settings { listen: "0.0.0.0:0".parse().unwrap(), ..settings() };
    let Err(refused) = serve::start(public).await else { panic!("it started") };
    assert_eq!(refused.exit_code(), 78);
    assert!(refused.to_string().contains("--api-key"), "{refused}");
}

#[tokio::test]
async fn a_host_that_is_not_this_server_is_misdirected() {
    let server = server_with(Settings { allowed_hosts: vec!["towpath.example".to_owned()], ..settings() }).await;
    let with_host = |host: &str| answer(server.request(Method::GET, "/healthz").header("host", host));
    for good in ["localhost", "localhost:1234", "127.0.0.1", "[::1]:80", "TOWPATH.example:443"] {
        assert_eq!(with_host(good).await.status, 200, "{good}");
    }
    for bad in ["evil.example", "localhost.evil.example", "towpath.example.evil.example", "127.0.0.2", "0.0.0.0"] {
        assert_eq!(with_host(bad).await.error(421, "misdirected_host")["field"], "host", "{bad}");
    }
    let without = server.raw("GET /healthz HTTP/1.0\r\n\r\n").await;
    assert!(without.starts_with("HTTP/1.0 421") || without.starts_with("HTTP/1.1 421"), "{without}");
    let in_the_target = server.raw("GET http://evil.example/healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
    assert!(in_the_target.starts_with("HTTP/1.1 421"), "{in_the_target}");
}

#[tokio::test]
async fn a_page_of_another_site_cannot_call_functions() {
    let server = server().await;
    let _worker = server.with_functions().await;
    let call = || server.request(Method::POST, "/v1/functions/echo/call");
    for (name, value) in [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
        let refused = answer(call().header(name, value)).await;
        assert!(!refused.headers.contains_key("access-control-allow-origin"));
        refused.error(403, "cross_origin");
    }
    answer(call().header("origin", format!("http://{}", server.addr())).header("sec-fetch-site", "same-origin")).await.with(200);
}

#[tokio::test]
async fn nothing_is_left_for_a_browser_to_guess() {
    let server = server().await;
    for path in ["/", "/v1/functions", "/nothing", "/metrics"] {
        let answer = server.get(path).await;
        assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(answer.headers["content-security-policy"], "default-src 'none'; frame-ancestors 'none'", "{path}");
        assert_eq!(answer.headers["cache-control"], "no-store", "{path}");
    }
}
