//! Every route with what it needs, in one table. Router, permissions and the OpenAPI document all come from these lines.
//!
//! After `/v1` words and keys take turns: `/v1/locks/{scope}/acquire`. A verb for a whole collection is part of its word:
//! `/v1/locks:cleanup`. So no key of a user can be taken for a verb (decision 038).

use std::collections::HashMap;

use axum::Router;
use axum::http::Method;
use serde_json::json;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use super::app::App;
use super::{batches, calls, config, dead_letters, doctor, elo, functions, health, limits, locks, openapi, runs, workers};

/// What a route lets its caller do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    /// For everyone, key or not.
    Public,
    /// Call functions and cancel calls; start runs, send them events and cancel them.
    Call,
    /// Serve functions and execute runs.
    Work,
    /// Look.
    Read,
    /// Change what others rely on.
    Admin,
}

impl Permission {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Call => "call",
            Self::Work => "work",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

/// The table. Public are exactly the probes: two of ours, and the one that old clients know.
fn table() -> Vec<(Permission, UtoipaMethodRouter<App>)> {
    use Permission::{Admin, Call, Public, Read, Work};
    vec![
        (Call, routes!(calls::call)),
        (Call, routes!(calls::submit)),
        (Read, routes!(calls::list)),
        (Read, routes!(calls::show)),
        (Call, routes!(calls::cancel)),
        (Read, routes!(functions::list)),
        (Read, routes!(functions::show)),
        (Admin, routes!(functions::define)),
        (Admin, routes!(functions::forget)),
        (Work, routes!(workers::register)),
        (Read, routes!(workers::list)),
        (Work, routes!(workers::claim)),
        (Work, routes!(workers::complete)),
        (Work, routes!(workers::heartbeat)),
        (Work, routes!(workers::progress)),
        (Work, routes!(workers::unregister)),
        (Read, routes!(dead_letters::list)),
        (Admin, routes!(dead_letters::replay_all)),
        (Admin, routes!(dead_letters::drop_all)),
        (Read, routes!(dead_letters::show)),
        (Admin, routes!(dead_letters::replay)),
        (Admin, routes!(dead_letters::drop_one)),
        (Call, routes!(locks::acquire)),
        (Call, routes!(locks::renew)),
        (Call, routes!(locks::release)),
        (Call, routes!(locks::cancel)),
        (Read, routes!(locks::list)),
        (Read, routes!(locks::show)),
        (Admin, routes!(locks::force)),
        (Call, routes!(locks::cleanup)),
        (Read, routes!(config::show)),
        (Admin, routes!(config::set)),
        (Call, routes!(limits::check)),
        (Call, routes!(limits::refund)),
        (Read, routes!(limits::peek)),
        (Admin, routes!(limits::put)),
        (Admin, routes!(limits::reset)),
        (Read, routes!(limits::list)),
        (Call, routes!(batches::messages::push)),
        (Read, routes!(batches::lists::list)),
        (Read, routes!(batches::lists::show_batcher)),
        (Read, routes!(batches::lists::show_batch)),
        (Call, routes!(batches::messages::flush)),
        (Call, routes!(batches::messages::touch)),
        (Read, routes!(batches::settings::get)),
        (Admin, routes!(batches::settings::put)),
        (Work, routes!(batches::pull::claim)),
        (Work, routes!(batches::pull::finish)),
        (Work, routes!(batches::pull::extend)),
        (Read, routes!(batches::dead_letters::list)),
        (Admin, routes!(batches::dead_letters::replay)),
        (Admin, routes!(batches::dead_letters::drop_many)),
        (Read, routes!(batches::dead_letters::show)),
        (Admin, routes!(batches::dead_letters::drop_one)),
        (Call, routes!(runs::start::start)),
        (Read, routes!(runs::look::list)),
        (Read, routes!(runs::look::show)),
        (Read, routes!(runs::look::wait)),
        (Read, routes!(runs::look::journal)),
        (Read, routes!(runs::look::published)),
        (Read, routes!(runs::export::export)),
        (Call, routes!(runs::events::send)),
        (Call, routes!(runs::events::send_many)),
        (Call, routes!(runs::requests::cancel)),
        (Admin, routes!(runs::requests::terminate)),
        (Admin, routes!(runs::requests::pause)),
        (Admin, routes!(runs::requests::resume)),
        (Read, routes!(runs::workflows::workflows)),
        (Work, routes!(runs::pull::register)),
        (Work, routes!(runs::pull::claim::claim)),
        (Work, routes!(runs::pull::commit::commit)),
        (Work, routes!(runs::pull::renew)),
        (Work, routes!(runs::pull::leave)),
        (Call, routes!(elo::ingest)),
        (Read, routes!(elo::dlq)),
        (Admin, routes!(elo::clear_dlq)),
        (Public, routes!(elo::health)),
        (Read, routes!(health::health)),
        (Read, routes!(doctor::doctor)),
        (Public, routes!(health::healthz)),
        (Public, routes!(health::readyz)),
        (Read, routes!(health::metrics)),
        (Read, routes!(health::openapi_json)),
        (Read, routes!(health::front_page)),
    ]
}

/// All routes, without the layers around them, and the document that describes them.
pub(crate) fn all() -> (Router<App>, utoipa::openapi::OpenApi) {
    let mut router = OpenApiRouter::with_openapi(openapi::frame());
    for (permission, (schemas, mut paths, methods)) in table() {
        for operation in paths.paths.values_mut().flat_map(operations) {
            openapi::complete(operation, permission);
        }
        router = router.routes((schemas, paths, methods));
    }
    router.split_for_parts()
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().filter_map(Option::as_mut)
}

/// What each path and method needs.
pub(crate) fn permissions() -> HashMap<String, Vec<(Method, Permission)>> {
    let mut permissions: HashMap<String, Vec<(Method, Permission)>> = HashMap::new();
    for (permission, (_, paths, _)) in table() {
        for (path, item) in paths.paths {
            let known = [(item.get, Method::GET), (item.put, Method::PUT), (item.post, Method::POST), (item.delete, Method::DELETE)];
            let methods = known.into_iter().filter(|(operation, _)| operation.is_some()).map(|(_, method)| (method, permission));
            permissions.entry(path).or_default().extend(methods);
        }
    }
    permissions
}

/// How a permission stands in the document.
pub(super) fn extension(permission: Permission) -> utoipa::openapi::extensions::Extensions {
    ExtensionsBuilder::new().add("x-towpath-permission", json!(permission.as_str())).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_probes_are_public() {
        let mut public: Vec<String> = permissions()
            .into_iter()
            .flat_map(|(path, methods)| methods.into_iter().map(move |(method, permission)| (format!("{method} {path}"), permission)))
            .filter(|(_, permission)| *permission == Permission::Public)
            .map(|(route, _)| route)
            .collect();
        public.sort();
        assert_eq!(public, ["GET /health", "GET /healthz", "GET /readyz"]);
    }

    #[test]
    fn words_and_keys_take_turns_in_every_path() {
        for path in permissions().keys() {
            let is_key = |segment: &str| segment.starts_with('{');
            match path.strip_prefix("/v1/") {
                None => assert!(!path.contains('{'), "{path}: a key outside of /v1"),
                Some(rest) => {
                    let turns = rest.split('/').enumerate();
                    turns.for_each(|(place, segment)| assert_eq!(is_key(segment), place % 2 == 1, "{path}: '{segment}'"));
                }
            }
        }
    }

    #[test]
    fn no_path_fits_two_routes() {
        let paths: Vec<String> = permissions().into_keys().collect();
        for (place, one) in paths.iter().enumerate() {
            for other in &paths[place + 1..] {
                assert!(!overlap(one, other), "{one} and {other} fit the same path");
            }
        }
        assert!(overlap("/v1/locks/{scope}", "/v1/locks/cleanup") && overlap("/v1/{a}/b", "/v1/c/{d}"), "the check sees what it must see");
    }

    /// Whether some path fits both. A key fits every word, and is never empty: every handler refuses an empty name.
    fn overlap(one: &str, other: &str) -> bool {
        let fits = |key: &str, word: &str| key.starts_with('{') && !word.is_empty();
        let (one, other): (Vec<&str>, Vec<&str>) = (one.split('/').collect(), other.split('/').collect());
        one.len() == other.len() && one.iter().zip(&other).all(|(a, b)| a == b || fits(a, b) || fits(b, a))
    }

    /// A URL library folds a key `.` or `..` away before it sends the request.
    #[test]
    fn a_folded_key_reaches_no_route_that_changes_something() {
        let permissions = permissions();
        for (path, methods) in &permissions {
            for key in path.split('/').filter(|segment| segment.starts_with('{')) {
                for dots in [".", ".."] {
                    let folded = url::Url::parse(&format!("http://localhost{}", path.replace(key, dots))).unwrap();
                    let hits = |(other, methods_there): (&String, &Vec<(Method, Permission)>)| {
                        let there =
                            methods_there.iter().any(|(method, _)| method != Method::GET && methods.iter().any(|(own, _)| own == method));
                        there && overlap(other, &folded.path().replace("%7B", "{").replace("%7D", "}"))
                    };
                    let hit = permissions.iter().find(|route| hits(*route)).map(|(other, _)| other);
                    assert_eq!(hit, None, "{path} with {dots} for {key} becomes {}", folded.path());
                }
            }
        }
    }

    #[test]
    fn every_operation_of_the_document_has_its_own_name_and_says_what_it_needs() {
        let document: serde_json::Value = serde_json::from_str(&openapi::text()).unwrap();
        let mut names = std::collections::HashSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                assert!(operation["x-towpath-permission"].is_string(), "{method} {path}");
                assert!(names.insert(operation["operationId"].to_string()), "{method} {path}");
                assert!(operation["responses"]["default"].is_object(), "{method} {path}");
            }
        }
    }
}
